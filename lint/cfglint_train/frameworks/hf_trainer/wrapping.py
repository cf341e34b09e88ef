"""Classes that FSDP wraps: `transformer_layer_cls_to_wrap` in files of the Trainer and accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import MISSING, Change, Route, Set
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Changes, Config, Triple, refuse_override
from cfglint_train.frameworks.lens_types import Custom

WRAPPED_CLASSES_KEY = "transformer_layer_cls_to_wrap"


def build_wrapping_lens(applies: Callable[[Config], bool], is_argument: bool = False) -> Custom:
    """Return the lens of `transformer_layer_cls_to_wrap`, with or without the prefix `fsdp_`.

    The key is read only if `applies` returns true.
    `is_argument`: the key may also be an argument of the Trainer itself (transformers 4.26 to 4.57).
    """
    routes: tuple[Route, ...] = (("fsdp_config", f"fsdp_{WRAPPED_CLASSES_KEY}"), ("fsdp_config", WRAPPED_CLASSES_KEY))
    if is_argument:
        routes = (*routes, (f"fsdp_{WRAPPED_CLASSES_KEY}",))

    def find_stated_route(config: Config) -> Route | None:
        return next((route for route in routes if config.get_value(*route) not in (MISSING, None)), None)

    def read(config: Config) -> Iterator[Triple]:
        route = find_stated_route(config)
        if route is not None and applies(config):
            yield "parallel.wrapped_classes", _parse_classes(config.get(*route)), config.get_origin(*route)

    def write(config: Config, changes: Changes) -> list[Change]:
        route = find_stated_route(config) or routes[1]
        refuse_override(config, route)
        names = list(changes["parallel.wrapped_classes"])
        value = names if isinstance(config.get(*route), list) else ",".join(names)
        return [Set((*config.root, *route), value)]

    return Custom({"parallel.wrapped_classes": routes}, read, write)


def _parse_classes(value: Any) -> tuple[str, ...] | None:
    """Return the class names in a list or comma-separated string, or None if the value has no valid names."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(name.strip() for name in names if name.strip()) or None
