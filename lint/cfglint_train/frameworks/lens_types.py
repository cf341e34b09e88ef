"""Kinds of lenses: one key (`Key`), one key with several fields (`Table`), and functions (`Custom`).

An `Access` holds the functions that differ between frameworks: the lookup of a key, its default, and the change that
writes a value. Everything else about reading and writing a key is implemented once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.codec import Codec
from cfglint_train.frameworks.lens import (
    Auto,
    Changes,
    Config,
    Triple,
    build_default_origin,
    format_route,
    refuse_override,
    resolve_default,
    select_pending,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

ABSENT: Final = object()


class StatedValue(Frozen):
    """The value of a stated setting, with interpolations resolved, and its origin."""

    value: Any
    origin: Origin


class _NoValue:
    """A reason why a setting has no value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Name the reason."""
        self.name = name

    def __repr__(self) -> str:
        return self.name


NOT_STATED: Final = _NoValue("NOT_STATED")
"""Marker for a setting that is not stated: the framework's default applies."""
UNRESOLVED: Final = _NoValue("UNRESOLVED")
"""Marker for a setting that is or may be stated, but whose value is known only on the training machine."""

LookupResult = StatedValue | _NoValue


class Access(Frozen):
    """Functions that look up a key of a framework, yield its default and write its value."""

    find: Callable[[Config, tuple[Route, ...]], tuple[Route | None, LookupResult]]
    """Lookup of the spelling in use and its value. If none is in use: the spelling to write, or None if no key exists.
    """
    yield_default: Callable[[Config, Key, Route | None], Iterator[Triple]]
    """Generator of the values that apply if the key is not stated."""
    put: Callable[[Config, Key, Route | None, Any], list[Change]]
    """Function that returns the changes that write a plan value, or raises CannotEdit."""
    auto_word: str | None = None
    """Word that leaves the value to the launching program (`auto`)."""


def find_stated(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
    """Return the first stated spelling and its value, or else the first spelling and NOT_STATED."""
    for route in names:
        value = config.get_value(*route)
        if value is not MISSING:
            return route, StatedValue(value, config.get_origin(*route))
    return names[0], NOT_STATED


def yield_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """Yield the key's own default, if it has one."""
    if key.default is not ABSENT:
        yield key.field, resolve_default(config, key.default), build_default_origin(config, route or key.names[0])


def replace_value(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
    """Return the change that replaces the stated value, or adds the key."""
    route = route or key.names[0]
    refuse_override(config, route)
    return [Set(config.root + route, key.codec.write(value), key.siblings)]


PLAIN: Final = Access(find_stated, yield_default, replace_value)
"""Access to keys of nested mappings."""


def build_access(look: Callable[[Config, Route], LookupResult]) -> Access:
    """Return an access that looks up keys with `look`.

    It prefers the first spelling with a value, then the first spelling whose value cannot be resolved.
    """

    def find(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
        best: tuple[Route, LookupResult] = (names[0], NOT_STATED)
        for route in names:
            result = look(config, route)
            if isinstance(result, StatedValue):
                return route, result
            if result is UNRESOLVED and best[1] is NOT_STATED:
                best = (route, result)
        return best

    return PLAIN._replace(find=find)


class Key(Frozen):
    """The common lens: one key, one field.

    `names` are the accepted spellings; a new key is written with the first. `default` is the plan value if the key is
    absent, possibly a `ValueByRelease`; with ABSENT, the framework has no default and the field stays unknown.
    `null_value` is the plan value of an explicit null; with ABSENT, null means the default. `siblings` are keys next
    to which a new key is written. If `applies` returns false, the key has no effect and is not read.
    """

    field: Field
    names: tuple[Route, ...]
    codec: Codec
    default: Any = ABSENT
    null_value: Any = ABSENT
    siblings: tuple[str, ...] = ()
    access: Access = PLAIN
    applies: Callable[[Config], bool] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """Field of the key, as a tuple."""
        return (self.field,)

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """Every spelling of the key, by field."""
        return {self.field: self.names}

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """Return the spelling in use, or the one to write."""
        route = self.access.find(config, self.names)[0]
        return () if route is None else (route,)

    def read(self, config: Config) -> Iterator[Triple]:
        """Yield the stated value, or the default."""
        if self.applies is not None and not self.applies(config):
            return
        route, result = self.access.find(config, self.names)
        if isinstance(result, StatedValue):
            value = result.value
            if value is None and self.null_value is not ABSENT:
                yield self.field, self.null_value, result.origin
                return
            if value is not None:
                if self.access.auto_word is not None and value == self.access.auto_word:
                    fallback = None if self.default is ABSENT else resolve_default(config, self.default)
                    yield self.field, Auto(fallback), result.origin
                else:
                    yield self.field, self.codec.read_or_none(value), result.origin
                return
        elif result is UNRESOLVED:
            if route is not None and config.has(*route):
                yield self.field, None, config.get_origin(*route)
            return
        yield from self.access.yield_default(config, self, route)

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """Return the change that replaces the stated value or adds the key, or [] if the value is present.

        Raise CannotEdit if the key has no effect in this run.
        """
        if not select_pending(self, config, changes):
            return []
        route, _ = self.access.find(config, self.names)
        if self.applies is not None and not self.applies(config):
            raise CannotEdit(f"{format_route(route or self.names[0])} has no effect in this run")
        return self.access.put(config, self, route, changes[self.field])


def has_fixed_default(lens: object) -> bool:
    """Return whether a lens has the same default at every release, independent of other settings."""
    return (
        isinstance(lens, Key)
        and lens.access is PLAIN
        and lens.applies is None
        and not isinstance(lens.default, ValueByRelease)
    )


class Table(Frozen):
    """A key that determines several fields at once, by a table of its values (`optim: paged_adamw_8bit`).

    Rows: framework value -> {field: plan value}. A value outside the table leaves every field but `raw_field` unknown.
    `raw_field` names a field that receives the spelling itself.
    """

    names: tuple[Route, ...]
    rows: Mapping[str, Changes]
    fields: tuple[Field, ...]
    raw_field: str | None = None
    default: Any = ABSENT
    """The framework's value (a row's name) if the key is absent; may be a `ValueByRelease`."""
    siblings: tuple[str, ...] = ()

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """Every spelling of the key, for each field."""
        return dict.fromkeys(self.fields, self.names)

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """Return the spelling in use, or the one to write."""
        return (self._find_stated(config) or self.names[0],)

    def _find_stated(self, config: Config) -> Route | None:
        return next((route for route in self.names if config.get(*route) is not None), None)

    def read(self, config: Config) -> Iterator[Triple]:
        """Yield the fields of the stated value's row, or of the default's."""
        route = self._find_stated(config)
        if route is not None:
            name, origin = config.get_value(*route), config.get_origin(*route)
        else:
            if self.default is ABSENT:
                return
            name = resolve_default(config, self.default)
            origin = build_default_origin(config, self.names[0])
        row = self.rows.get(name.lower(), {}) if isinstance(name, str) else {}
        for field in self.fields:
            if field == self.raw_field:
                yield field, name if isinstance(name, str) else None, origin
            elif field in row:
                yield field, row[field], origin

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """Return the change that selects the first row with the new values and all other fields unchanged.

        Raise CannotEdit if no row has that combination.
        """
        if not select_pending(self, config, changes):
            return []
        wanted = {field: value for field, value, _ in self.read(config) if field != self.raw_field}
        wanted.update(
            {field: value for field, value in changes.items() if field in self.fields and field != self.raw_field}
        )
        for name, row in self.rows.items():
            if all(row.get(field) == value for field, value in wanted.items()):
                route = self._find_stated(config)
                if route is not None:
                    refuse_override(config, route)
                return [Set(config.root + (route or self.names[0]), name, self.siblings)]
        raise CannotEdit("this framework has no name for that combination")


def refuse_write(config: Config, changes: Changes) -> list[Change]:
    """Raise CannotEdit; the writer of fields that no fix changes.

    `read_only.json` gives the reason for each field.
    """
    raise CannotEdit("it cannot be written automatically")


class Custom(Frozen):
    """A lens made of two functions, for settings that need their own way of reading.

    `keys` lists, for each field, the keys that state it; a new value is written to the first if none is in use.
    `other_keys` are further keys that influence the fields. If a field is a sum of keys,
    `list_terms` returns those keys.
    """

    keys: Mapping[Field, tuple[Route, ...]]
    reader: Callable[[Config], Iterable[Triple]]
    writer: Callable[[Config, Changes], list[Change]]
    access: Access = PLAIN
    other_keys: tuple[Route, ...] = ()
    list_terms: Callable[[Config], tuple[Route, ...]] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields that the keys state."""
        return tuple(self.keys)

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """Return the first key in use, or else the first key; for a sum, return all its terms."""
        terms = () if self.list_terms is None else self.list_terms(config)
        names = self.keys[field]
        route = self.access.find(config, names)[0] if names and not terms else None
        return terms if route is None else (route,)

    def read(self, config: Config) -> Iterator[Triple]:
        """Return the triples of the reader."""
        return iter(self.reader(config))

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """Return the writer's changes; the writer receives only fields whose values are new."""
        changes = select_pending(self, config, changes)
        return self.writer(config, changes) if changes else []
