"""Stand-ins for `typing` names, which only type checkers need.

Importing `typing` takes 4 ms of the 60 ms in which cfglint lints a file, and nothing evaluates the annotations, which
stay strings. For type checkers, the names are those of `typing`; at run time, they are classes that accept any
subscript. `Literal` stores its values, so that an enumeration is written only once; `list_members` returns them.
"""

from __future__ import annotations

__all__ = [
    "TYPE_CHECKING", "Any", "AnyStr", "ClassVar", "Final", "Generic", "Literal", "NoReturn", "Protocol", "TextIO",
    "TypeGuard", "TypeVar", "list_members",
]  # fmt: skip

TYPE_CHECKING = False  # type checkers treat this name as true

if TYPE_CHECKING:
    from typing import Any, AnyStr, ClassVar, Final, Generic, Literal, NoReturn, Protocol, TextIO, TypeGuard, TypeVar
else:

    class _Word:
        def __class_getitem__(cls, _: object) -> type:
            return cls

    class TypeVar(_Word):
        """A stand-in that accepts a name and bounds."""

        def __init__(self, name: str, **bounds: object) -> None:
            """Accept the arguments of `typing.TypeVar` and ignore them."""

    class Literal:
        """A stand-in that stores its values."""

        __slots__ = ("__args__",)

        def __init__(self, values: tuple[object, ...]) -> None:
            """Store the values in `__args__`, as `typing` does."""
            self.__args__ = values

        def __class_getitem__(cls, values: object) -> Literal:
            """Return a stand-in for `Literal[values]`."""
            return cls(values if isinstance(values, tuple) else (values,))

        def __or__(self, other: object) -> Any:
            """Return a `typing` union; used only when `typing.get_type_hints` evaluates an annotation."""
            from typing import Literal

            return Literal[self.__args__] | other

    Any = AnyStr = ClassVar = Final = Generic = NoReturn = Protocol = TextIO = TypeGuard = _Word


def list_members(alias: Any) -> tuple[Any, ...]:
    """Return the values of a `Literal[...]` in order."""
    values: tuple[Any, ...] = alias.__args__
    return values
