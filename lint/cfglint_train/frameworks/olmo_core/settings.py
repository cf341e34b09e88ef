"""Lookup of OLMo-core settings in the tree of a script, in a saved `config.json` and in overrides.

A setting that is missing from the tree is not always absent: a script may build a section elsewhere (an open record) or
set a key under a condition. In both cases the default does not apply.
"""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.codec import Codec, parse_member_name, write_zero_as_null
from cfglint_train.frameworks.lens import Config, format_route, refuse_override
from cfglint_train.frameworks.lens_types import (
    ABSENT,
    NOT_STATED,
    UNRESOLVED,
    Access,
    Key,
    LookupResult,
    StatedValue,
    build_access,
    replace_value,
    yield_default,
)
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def find(config: Config, route: Route) -> LookupResult:
    """Return a setting that the tree or an override states, or else NOT_STATED or UNRESOLVED."""
    overridden = config.find_override(route)
    if overridden is not None:
        value = config.get_value(*route)
        return NOT_STATED if value is MISSING else StatedValue(value, config.get_origin(*route))
    note = ""
    kind: Literal["explicit", "default", "assumed"] = "explicit"
    node: Any = config.document.root
    for length in range(1, len(route) + 1):
        if node is None or (length > 1 and not isinstance(node, MappingNode)):
            # A null has no keys below it; a value that cannot be determined may have any.
            unset = node is not None and config.document.build_value(node) is None
            return _find_override_below(config, route) if unset else UNRESOLVED
        child = config.document.find_node((*config.root, *route[:length]))
        if child is None:
            return UNRESOLVED if length == 1 or _is_open(node) else _find_override_below(config, route)
        node = child
        for step in getattr(node, "how", ()):
            if step.kind == "depends":
                line = config.document.locate(step.span.start).line
                kind = "assumed"
                note = (
                    f"it depends on a condition in line {line} ({step.text}); set it with --set "
                    f"{format_route(route)}=..."
                )
            elif step.kind == "library" and kind == "explicit":
                kind, note = "default", f"olmo_core {config.release}: {step.text}"
            elif step.kind == "option" and not note:
                note = f"unless {step.text} is given"
    value = config.get_value(*route)
    if type(value).__name__ == "Unknown":
        return UNRESOLVED
    if config.document.build_value(node) is None:
        override_value = _find_override_below(config, route)
        if override_value is not NOT_STATED:
            return override_value
    origin = config.get_origin(*route)
    return StatedValue(value, origin._replace(kind=kind, note=note) if note else origin)


def _find_override_below(config: Config, route: Route) -> LookupResult:
    """Return the value of an unset section whose keys are overridden, or NOT_STATED if none of them is.

    An example is `--train_module.ac_config.mode=full`. Up to 2.4.0, OmegaConf creates the section; later releases stop
    (`OLMoCoreKeys`).
    """
    nested = next(
        (
            candidate
            for candidate in config.overrides
            if len(candidate) > len(route) and candidate[: len(route)] == route
        ),
        None,
    )
    return NOT_STATED if nested is None else StatedValue(config.get_value(*route), config.overrides[nested].origin)


def _is_open(node: Any) -> bool:
    """Return whether a section may have more keys than the tree shows."""
    return bool(getattr(node, "open", ""))


def split_route(name: str) -> Route:
    """Return the route of a dotted name (`a.b.c`)."""
    return tuple(name.split("."))


def find_first(config: Config, *names: str) -> tuple[Any, Origin] | None:
    """Return the value and the origin of the first setting that is stated, or None."""
    for name in names:
        setting_value = find(config, split_route(name))
        if isinstance(setting_value, StatedValue):
            return setting_value.value, setting_value.origin
    return None


def is_resolved(config: Config, name: str) -> bool:
    """Return whether a setting is certainly stated or certainly absent."""
    return find(config, split_route(name)) is not UNRESOLVED


def get_class_name(config: Config, route: Route) -> str:
    """Return the class that a section was built from, without its module, or "" if it is unknown."""
    name = config.get_value(*route, "_CLASS_")
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else ""


INTERVAL: Final = write_zero_as_null(PLAIN.integer)
KEEP_COUNT: Final = Codec(PLAIN.integer.read, lambda value: None if value == "all" else value)
"""Codec of the number of checkpoints to keep; null keeps all."""

DTYPES: Final = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def parse_dtype(stated: tuple[Any, Origin] | None) -> str | None:
    """Return a DType as the plan's number format, or None if it is absent, null or unknown."""
    if stated is None or not isinstance(stated[0], str):
        return None
    return DTYPES.get(parse_member_name(stated[0]))


def has_train_module(config: Config) -> bool:
    """Return whether the configuration has a train module (since 2.0) that can be read."""
    return isinstance(config.document.find_node((*config.root, "train_module")), MappingNode)


def is_before(config: Config, release: str) -> bool:
    """Return whether the run is checked against an earlier release of OLMo-core."""
    return parse_release(config.release) < parse_release(release)


_ACCESS: Final = build_access(find)


def build_key(
    field: Field, names: str, codec: Codec, default: Any = ABSENT, null: Any = ABSENT, beside: tuple[str, ...] = ()
) -> Key:
    """Return the lens of one key; alternative spellings are separated by spaces."""
    return Key(field, tuple(split_route(name) for name in names.split()), codec, default, null, beside, _ACCESS)


Section = Callable[[Config], "Route | None"]
"""Function that returns the route of a section, or None if the section may or may not exist."""


def build_section_access(section: Section, explain_refusal: Callable[[Config, Any], str] = lambda _, __: "") -> Access:
    """Return the access to keys whose section must be located first (a callback, by its class).

    `explain_refusal` returns the reason why OLMo-core would reject a new value together with the other settings, or "".
    """

    def find_below(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
        route = section(config)
        if route is None:
            return names[0], UNRESOLVED
        key_route = (*route, names[0][-1])
        absent = config.document.find_node((*config.root, *route)) is None and config.find_override(key_route) is None
        return key_route, NOT_STATED if absent else find(config, key_route)

    def put_below(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
        if route is None or section(config) is None:
            raise CannotEdit("the script creates its callbacks elsewhere")
        if config.document.find_node((*config.root, *route[:-1])) is None:
            raise CannotEdit(f"the trainer has no callback for it: add one with {route[-1]} with .with_callback(...)")
        reason = explain_refusal(config, value)
        if reason:
            raise CannotEdit(reason)
        return replace_value(config, key, route, value)

    return Access(find_below, yield_default, put_below)


def build_callback_locator(*classes: str, name: str) -> Section:
    """Return a function that locates a callback by its class, or else under its usual name."""

    def locate(config: Config) -> Route | None:
        callbacks = config.document.find_node((*config.root, "trainer", "callbacks"))
        if isinstance(callbacks, MappingNode):
            for entry in callbacks.entries:
                route = ("trainer", "callbacks", entry.name or "")
                if get_class_name(config, route) in classes:
                    return route
            if name in callbacks.index:
                return ("trainer", "callbacks", name)
            return None if _is_open(callbacks) else ("trainer", "callbacks", name)
        trainer = config.document.find_node((*config.root, "trainer"))
        is_complete = isinstance(trainer, MappingNode) and not _is_open(trainer)
        return ("trainer", "callbacks", name) if is_complete else None

    return locate


CHECKPOINTER: Final = build_callback_locator("CheckpointerCallback", name="checkpointer")
COLLECTOR: Final = build_callback_locator("GarbageCollectorCallback", name="garbage_collector")


def set_member(config: Config, route: Route, member: tuple[str, str, str], beside: tuple[str, ...]) -> list[Change]:
    """Return the change that sets an enumeration member.

    `member` holds the class, the member's name and the module. If a script does not state the key yet, the change also
    writes the class and its import.
    """
    refuse_override(config, route)
    kind, name, module = member
    value: Any = name
    if config.document.syntax == "python" and config.get_entry(*route) is None:
        from cfglint_train.documents.python.write import PythonSource

        value = PythonSource(f"{kind}.{name}", name, ((module, kind),))
    return [Set(config.root + route, value, beside)]
