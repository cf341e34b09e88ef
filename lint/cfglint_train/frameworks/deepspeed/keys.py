"""Keys of DeepSpeed's file: the host fills in "auto", and the prefix `stage3_` is optional."""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.frameworks.keys import Keys


class DeepSpeedKeys(Keys):
    """Key handling of DeepSpeed 0.12.6 to 0.19.8 (`runtime/config_utils.py`, `runtime/zero/config.py`)."""

    placeholders = ("auto",)

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """Return the routes of a key and its alias.

        In the ZeRO section, `stage3_param_persistence_threshold` is also read as `param_persistence_threshold`. The
        section `tp` of `tensor_parallel` may also be called `tensor_parallel`.
        """
        route: Route = tuple(name.split("."))
        if len(route) == 2 and name.startswith("zero_optimization.stage3_"):
            return route, (route[0], str(route[1]).removeprefix("stage3_"))
        if route[:2] == ("tensor_parallel", "tp"):
            return route, ("tensor_parallel", "tensor_parallel", *route[2:])
        return (route,)
