"""Immutable records: named tuples that are cheap to define.

To lint a file, cfglint imports 120 record classes and creates a few records of each. `typing.NamedTuple` compiles every
annotation of a class, and `collections.namedtuple` a constructor; together they took a fifth of the command's time.
Here, annotations stay strings, and a constructor is compiled only once many records of a class exist. For type
checkers, `Frozen` is `typing.NamedTuple`; at run time it has the same methods. `dataclass` does the same for classes
that users of the API treat as data classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.foundation.typed import TYPE_CHECKING, Any

__all__ = ["Frozen", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple as Frozen
else:
    # The descriptor that `collections.namedtuple` uses for its fields.
    from _collections import _tuplegetter

    # Compiling a constructor takes as long as creating this many records without it.
    _PAYS = 30
    _tuple = tuple.__new__

    def _list_places(kind: Any) -> dict[str, int]:
        """Return the index of each field."""
        if kind._places is None:
            kind._places = dict(zip(kind._fields, range(len(kind._fields))))
        return kind._places

    def _fill(kind: Any, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return the values of all fields. Raise `TypeError` if one is missing or unexpected."""
        count, places = len(values), _list_places(kind)
        for field in kind._fields[count : len(places) - len(kind._field_defaults)]:
            if field not in named:
                raise TypeError(f"{kind.__name__} is missing {field!r}")
        if count > len(places) or any(places.get(field, -1) < count for field in named):
            raise TypeError(f"{kind.__name__} got unexpected fields; its fields are {', '.join(places)}")
        filled = [*values, *kind._blank[count:]]
        for field, value in named.items():
            filled[places[field]] = value
        return filled

    class _Row(tuple):
        """Base class with the methods of all records."""

        __slots__ = ()
        _places = None
        """Index of each field, once it is needed."""

        def __new__(cls, /, *values: Any, **named: Any) -> Any:
            made = cls._made
            made[0] += 1
            if made[0] > _PAYS:
                cls.__new__ = constructor = _compiled(cls)
                return constructor(cls, *values, **named)
            return _tuple(cls, values if len(values) == len(cls._fields) and not named else _fill(cls, values, named))

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            made = _tuple(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, /, **changes: Any) -> Any:
            kind = type(self)
            values, places = list(self), _list_places(kind)
            try:
                for field, value in changes.items():
                    values[places[field]] = value
            except KeyError as field:
                raise ValueError(f"{kind.__name__} has no field {field}") from None
            return _tuple(kind, values)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    def _compiled(cls: type) -> Any:
        """Compile a constructor with named parameters, whose arguments Python checks."""
        arguments = "".join(f"{field}, " for field in cls._fields)
        constructor = eval(f"lambda _cls, {arguments}: _tuple(_cls, ({arguments}))", {"_tuple": _tuple})
        constructor.__name__ = "__new__"
        constructor.__defaults__ = tuple(cls._field_defaults.values())
        return constructor

    _getters: list[Any] = []
    """Descriptors by index, which all classes share."""

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            _getters.extend(_tuplegetter(place, None) for place in range(len(_getters), len(fields)))
            body.update(zip(fields, _getters))
            body.update(__slots__=(), __match_args__=fields, _fields=fields, _field_defaults=defaults)
            body["_made"] = [0]  # in a list, because setting an attribute of a class empties its cache of attributes
            body["_blank"] = (*[None] * (len(fields) - len(defaults)), *defaults.values())
            return type(name, (_Row,), body)

    class Frozen(metaclass=_Maker):
        """Base of record classes: `class Place(Frozen)` with annotated fields; fields with defaults come last."""

    _ASKED = ("__dataclass_fields__", "__dataclass_params__")

    class _DataFields:
        """A class attribute that `dataclasses` and data class printers read; created on first access."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __get__(self, record: Any, kind: Any) -> Any:
            from dataclasses import field, make_dataclass

            defaults = {name: field(default=value) for name, value in kind._field_defaults.items()}
            fields = [(name, kind.__annotations__[name], defaults.get(name, field())) for name in kind._fields]
            made = make_dataclass(kind.__name__, fields, frozen=True)
            for name in _ASKED:
                setattr(kind, name, getattr(made, name))
            return getattr(kind, self.name)

    def _equals(self: Any, other: object) -> bool:
        if type(other) is type(self):
            return tuple.__eq__(self, other)
        return False if isinstance(other, tuple) else NotImplemented

    def _differs(self: Any, other: object) -> bool:
        equal = _equals(self, other)
        return equal if equal is NotImplemented else not equal

    _DATA = {"__eq__": _equals, "__ne__": _differs, "__hash__": tuple.__hash__}
    _DATA |= {name: _DataFields(name) for name in _ASKED}
    """Attributes of records that are treated as data classes: one equals only records of its own class."""

    def dataclass(*, frozen: bool, slots: bool, order: bool = False) -> Any:
        """Turn a class into a record class, like `dataclasses.dataclass`, but without importing that module."""
        assert frozen
        assert slots

        def made(kind: type) -> type:
            body = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
            return _Maker(kind.__name__, (Frozen,), {**body, **_DATA})

        return made
