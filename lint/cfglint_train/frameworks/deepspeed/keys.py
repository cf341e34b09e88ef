"""The keys of DeepSpeed's file: "auto" waits for the host, and ZeRO-3's prefix may be left out."""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.frameworks.keys import Keys


class DeepSpeedKeys(Keys):
    """DeepSpeed 0.12.6 to 0.19.8 (`runtime/config_utils.py`, `runtime/zero/config.py`)."""

    placeholders = ("auto",)

    def list_routes(self, name: str) -> tuple[Route, ...]:
        """`stage3_param_persistence_threshold` is `param_persistence_threshold`, too: fields and their aliases."""
        route: Route = tuple(name.split("."))
        if len(route) == 2 and name.startswith("zero_optimization.stage3_"):
            return route, (route[0], str(route[1]).removeprefix("stage3_"))
        return (route,)
