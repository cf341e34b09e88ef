"""The lenses that frameworks are made of: one key (`Key`), one key with several fields (`Table`), functions (`Custom`).

How a framework finds a key, what holds without it and how it is stated is a value, `Access`, so that reading and
writing a key is written once.
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
    """A setting that is stated: its value, with interpolations resolved, and where it is."""

    value: Any
    origin: Origin


class _NoValue:
    """Why a setting has no value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


NOT_STATED: Final = _NoValue("NOT_STATED")
"""The framework's default holds."""
UNRESOLVED: Final = _NoValue("UNRESOLVED")
"""It is stated, or may be, but its value only exists where the job runs."""

LookupResult = StatedValue | _NoValue


class Access(Frozen):
    """How a framework looks a key up, what holds where it is not stated, and how it is stated."""

    find: Callable[[Config, tuple[Route, ...]], tuple[Route | None, LookupResult]]
    """The spelling in use and what it states; where none is in use, the one to write (None: no such key)."""
    yield_default: Callable[[Config, Key, Route | None], Iterator[Triple]]
    """What holds where the key is not stated."""
    put: Callable[[Config, Key, Route | None, Any], list[Change]]
    """The changes that state a plan value. Raises CannotEdit."""
    auto_word: str | None = None
    """The word that leaves a setting to the program that launches."""


def find_stated(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
    """The first spelling that the document or an override states."""
    for route in names:
        value = config.get_value(*route)
        if value is not MISSING:
            return route, StatedValue(value, config.get_origin(*route))
    return names[0], NOT_STATED


def yield_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """The key's own default, if it has one."""
    if key.default is not ABSENT:
        yield key.field, resolve_default(config, key.default), build_default_origin(config, route or key.names[0])


def replace_value(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
    """Replace the stated value, or add the key."""
    route = route or key.names[0]
    refuse_override(config, route)
    return [Set(config.root + route, key.codec.write(value), key.siblings)]


PLAIN: Final = Access(find_stated, yield_default, replace_value)
"""Keys of nested mappings."""


def build_access(look: Callable[[Config, Route], LookupResult]) -> Access:
    """Access to keys of which `look` finds the value: the first spelling that is stated, else the first that may be."""

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

    `names` are the accepted spellings, the one that is written first. `default` is the framework's own value when the
    key is absent, in plan terms (ABSENT: the framework has none, the field stays unknown); it may be `Since`.
    `null` is what an explicit null means: the default, unless given. Where `applies` is false the key has no effect:
    nothing is read.
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
        """The one field."""
        return (self.field,)

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """Every spelling."""
        return {self.field: self.names}

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """The spelling in use, or the one that is written."""
        route = self.access.find(config, self.names)[0]
        return () if route is None else (route,)

    def read(self, config: Config) -> Iterator[Triple]:
        """The stated value, or the default."""
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
        """Replace the stated value, or state it."""
        if not select_pending(self, config, changes):
            return []
        route, _ = self.access.find(config, self.names)
        if self.applies is not None and not self.applies(config):
            raise CannotEdit(f"{format_route(route or self.names[0])} has no effect in this run")
        return self.access.put(config, self, route, changes[self.field])


def has_fixed_default(lens: object) -> bool:
    """Whether the default of a lens is the same at every release, whatever else a configuration says."""
    return (
        isinstance(lens, Key)
        and lens.access is PLAIN
        and lens.applies is None
        and not isinstance(lens.default, ValueByRelease)
    )


class Table(Frozen):
    """One key that settles several fields at once, by a table of its values (`optim: paged_adamw_8bit`).

    Rows: framework value -> {field: plan value}. A value that is not in the table leaves every field but `raw`
    unknown. `raw` names a field that receives the spelling itself.
    """

    names: tuple[Route, ...]
    rows: Mapping[str, Changes]
    fields: tuple[Field, ...]
    raw_field: str | None = None
    default: Any = ABSENT
    """The framework's value (a row's name) when the key is absent; may be `Since`."""
    siblings: tuple[str, ...] = ()

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """Every spelling, for each field."""
        return dict.fromkeys(self.fields, self.names)

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """The spelling in use, or the one that is written."""
        return (self._find_stated(config) or self.names[0],)

    def _find_stated(self, config: Config) -> Route | None:
        return next((route for route in self.names if config.get(*route) is not None), None)

    def read(self, config: Config) -> Iterator[Triple]:
        """The row of the stated value, or of the default."""
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
        """The first row that has the changed fields new and every other as it is."""
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
    """Raise CannotEdit: the writer of fields that no fix changes. `read_only.json` has the reason for each."""
    raise CannotEdit("it cannot be written automatically")


class Custom(Frozen):
    """A lens made of two functions, for settings whose reading is a story of its own.

    `keys` lists, for each field, the keys that state it: the first is the one that a new value is written to where none
    is in use. `also` are further keys that have a say, and `terms` those whose sum the one field is, where it is one.
    """

    keys: Mapping[Field, tuple[Route, ...]]
    reader: Callable[[Config], Iterable[Triple]]
    writer: Callable[[Config, Changes], list[Change]]
    access: Access = PLAIN
    other_keys: tuple[Route, ...] = ()
    list_terms: Callable[[Config], tuple[Route, ...]] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its keys."""
        return tuple(self.keys)

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """The first key in use, or the first of all, but for a sum."""
        terms = () if self.list_terms is None else self.list_terms(config)
        names = self.keys[field]
        route = self.access.find(config, names)[0] if names and not terms else None
        return terms if route is None else (route,)

    def read(self, config: Config) -> Iterator[Triple]:
        """What the reader finds."""
        return iter(self.reader(config))

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """What the writer answers; it is asked only for fields whose value is really new."""
        changes = select_pending(self, config, changes)
        return self.writer(config, changes) if changes else []
