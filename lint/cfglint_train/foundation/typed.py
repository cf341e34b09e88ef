"""The words of `typing` that only type checkers read.

Importing `typing` takes 4 ms, of the 60 that a lint of one file has, and nothing in a lint asks for what it makes:
annotations stay strings. To a type checker the names are those of `typing`; at run time they are a class that takes
whatever is written behind it. `Literal` keeps it, so that an enumeration is written once: `members` lists it.
"""

from __future__ import annotations

__all__ = [
    "TYPE_CHECKING", "Any", "ClassVar", "Final", "Generic", "Literal", "NoReturn", "Protocol", "TextIO", "TypeGuard",
    "TypeVar", "list_members",
]  # fmt: skip

TYPE_CHECKING = False  # type checkers know the name

if TYPE_CHECKING:
    from typing import Any, ClassVar, Final, Generic, Literal, NoReturn, Protocol, TextIO, TypeGuard, TypeVar
else:

    class _Word:
        def __class_getitem__(cls, _: object) -> type:
            return cls

    class TypeVar(_Word):
        """Made with a name, and perhaps bounds."""

        def __init__(self, name: str, **bounds: object) -> None:
            pass

    class Literal:
        """The values that are written behind it."""

        __slots__ = ("__args__",)

        def __init__(self, values: tuple[object, ...]) -> None:
            self.__args__ = values

        def __class_getitem__(cls, values: object) -> Literal:
            return cls(values if isinstance(values, tuple) else (values,))

        def __or__(self, other: object) -> Any:
            """Return what `typing` makes of the union: only `typing.get_type_hints` evaluates one."""
            from typing import Literal

            return Literal[self.__args__] | other

    Any = ClassVar = Final = Generic = NoReturn = Protocol = TextIO = TypeGuard = _Word


def list_members(alias: Any) -> tuple[Any, ...]:
    """Return the values of a `Literal[...]`, in their order."""
    values: tuple[Any, ...] = alias.__args__
    return values
