"""How a setting of OLMo-core is looked up: in the tree of a script or of a saved `config.json`, or in an override.

What is not there is not always absent. A script may make a section elsewhere (`Record.open`), or set a key under a
condition; then the default does not hold either.
"""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.codec import Codec, member_name, or_zero
from cfglint_train.frameworks.lens import Config, refuse_override, spelled
from cfglint_train.frameworks.lens_types import (
    ABSENT,
    NOT_STATED,
    UNRESOLVED,
    Access,
    Found,
    Key,
    Stated,
    looking,
    put,
    take_default,
)
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def find(config: Config, route: Route) -> Found:
    """A setting as the tree or an override states it: Stated, NOT_STATED or UNRESOLVED."""
    overridden = config.override(route)
    if overridden is not None:
        value = config.value(*route)
        return NOT_STATED if value is MISSING else Stated(value, config.origin(*route))
    note = ""
    kind: Literal["explicit", "default", "assumed"] = "explicit"
    known: Any = config.document.root
    for length in range(1, len(route) + 1):
        if known is None or (length > 1 and not isinstance(known, MappingNode)):
            # Below a null there is nothing; below what cannot be determined there may be anything.
            unset = known is not None and config.document.plain(known) is None
            return _laid_below(config, route) if unset else UNRESOLVED
        below = config.document.node((*config.root, *route[:length]))
        if below is None:
            return UNRESOLVED if length == 1 or _open(known) else _laid_below(config, route)
        known = below
        for step in getattr(known, "how", ()):
            if step.kind == "depends":
                line = config.document.position(step.span.start).line
                kind = "assumed"
                note = (
                    f"it depends on a condition in line {line} ({step.text}); state it with --set {spelled(route)}=..."
                )
            elif step.kind == "library" and kind == "explicit":
                kind, note = "default", f"olmo_core {config.release}: {step.text}"
            elif step.kind == "option" and not note:
                note = f"unless {step.text} is given"
    value = config.value(*route)
    if type(value).__name__ == "Unknown":
        return UNRESOLVED
    if config.document.plain(known) is None:
        laid = _laid_below(config, route)
        if laid is not NOT_STATED:
            return laid
    origin = config.origin(*route)
    return Stated(value, origin._replace(kind=kind, note=note) if note else origin)


def _laid_below(config: Config, route: Route) -> Found:
    """What overrides make of a section that the file leaves unset (`--train_module.ac_config.mode=full`).

    Up to 2.4.0, OmegaConf makes the section; later releases stop (`OLMoCoreKeys`).
    """
    below = next(
        (other for other in config.overrides if len(other) > len(route) and other[: len(route)] == route), None
    )
    return NOT_STATED if below is None else Stated(config.value(*route), config.overrides[below].origin)


def _open(node: Any) -> bool:
    """Whether a section may have more keys than the tree shows."""
    return bool(getattr(node, "open", ""))


def dotted(name: str) -> Route:
    """`a.b.c` as a route."""
    return tuple(name.split("."))


def first(config: Config, *names: str) -> tuple[Any, Origin] | None:
    """The first of some settings that is stated: value and origin. None where none is."""
    for name in names:
        found = find(config, dotted(name))
        if isinstance(found, Stated):
            return found.value, found.origin
    return None


def is_known(config: Config, name: str) -> bool:
    """Whether a setting is stated, or certainly is not."""
    return find(config, dotted(name)) is not UNRESOLVED


def class_name(config: Config, route: Route) -> str:
    """The class that a section was made of, without its module."""
    name = config.value(*route, "_CLASS_")
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else ""


NEVER: Final = or_zero(PLAIN.integer)
KEEP: Final = Codec(PLAIN.integer.read, lambda value: None if value == "all" else value)
"""How many are kept; null keeps all."""

DTYPES: Final = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def dtype_of(stated: tuple[Any, Origin] | None) -> str | None:
    """A DType as the plan's number format; None where it is absent, null or odd."""
    if stated is None or not isinstance(stated[0], str):
        return None
    return DTYPES.get(member_name(stated[0]))


def has_train_module(config: Config) -> bool:
    """Whether the configuration has a train module (since 2.0) that can be read."""
    return isinstance(config.document.node((*config.root, "train_module")), MappingNode)


def before(config: Config, release: str) -> bool:
    """Whether the run is checked against an earlier release of OLMo-core."""
    return release_key(config.release) < release_key(release)


_ACCESS: Final = looking(find)


def setting(
    field: Field, names: str, codec: Codec, default: Any = ABSENT, null: Any = ABSENT, beside: tuple[str, ...] = ()
) -> Key:
    """A lens of one key, with alternative spellings separated by spaces."""
    return Key(field, tuple(dotted(name) for name in names.split()), codec, default, null, beside, _ACCESS)


Section = Callable[[Config], "Route | None"]
"""Finds the route of a section; None where the configuration leaves open whether there is one."""


def below(section: Section, refuses: Callable[[Config, Any], str] = lambda _, __: "") -> Access:
    """The lookup of keys whose section has to be found first (a callback, by its class).

    `refuses` says why OLMo-core would not take a new value beside the others.
    """

    def find_below(config: Config, names: tuple[Route, ...]) -> tuple[Route, Found]:
        route = section(config)
        if route is None:
            return names[0], UNRESOLVED
        own = (*route, names[0][-1])
        absent = config.document.node((*config.root, *route)) is None and config.override(own) is None
        return own, NOT_STATED if absent else find(config, own)

    def put_below(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
        if route is None or section(config) is None:
            raise CannotEdit("the script makes its callbacks elsewhere")
        if config.document.node((*config.root, *route[:-1])) is None:
            raise CannotEdit(f"the trainer has no callback for it: add one with {route[-1]} by .with_callback(...)")
        why = refuses(config, value)
        if why:
            raise CannotEdit(why)
        return put(config, key, route, value)

    return Access(find_below, take_default, put_below)


def callback(*classes: str, name: str) -> Section:
    """Where a callback of one of the classes stands; under its usual name where there is none."""

    def section(config: Config) -> Route | None:
        callbacks = config.document.node((*config.root, "trainer", "callbacks"))
        if isinstance(callbacks, MappingNode):
            for entry in callbacks.entries:
                route = ("trainer", "callbacks", entry.name or "")
                if class_name(config, route) in classes:
                    return route
            if name in callbacks.index:
                return ("trainer", "callbacks", name)
            return None if _open(callbacks) else ("trainer", "callbacks", name)
        trainer = config.document.node((*config.root, "trainer"))
        told = isinstance(trainer, MappingNode) and not _open(trainer)
        return ("trainer", "callbacks", name) if told else None

    return section


CHECKPOINTER: Final = callback("CheckpointerCallback", name="checkpointer")
COLLECTOR: Final = callback("GarbageCollectorCallback", name="garbage_collector")


def set_member(config: Config, route: Route, of: tuple[str, str, str], beside: tuple[str, ...]) -> list[Change]:
    """Set a member of an enumeration: in place, or with its class where a script does not state the key yet."""
    refuse_override(config, route)
    kind, name, module = of
    value: Any = name
    if config.document.syntax == "python" and config.entry(*route) is None:
        from cfglint_train.documents.python.write import Source

        value = Source(f"{kind}.{name}", name, ((module, kind),))
    return [Set(config.root + route, value, beside)]
