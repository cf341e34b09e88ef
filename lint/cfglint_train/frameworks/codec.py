"""Codecs: how one value is spelled in a framework's files, and what it is in the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.documents.document import CannotEdit
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_LARGEST: Final = 2**63


def is_countable(value: Any) -> bool:
    """Whether a value is no number, or one that a counter holds: a plan can be computed with."""
    return not isinstance(value, (int, float)) or -_LARGEST < value < _LARGEST


class UnreadableError(Exception):
    """A value that the framework itself would refuse; the plan field stays unknown."""


def keep_value(value: Any) -> Any:
    """The value as it is."""
    return value


class Codec(Frozen):
    """How one value is spelled: `read` from the framework's value to the plan's (raises Unreadable), `write` back."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = keep_value

    def read_or_none(self, value: Any) -> Any:
        """The plan value, None where the framework would refuse the value, or no counter holds it."""
        try:
            plan_value = self.read(value)
        except UnreadableError:
            return None
        return plan_value if is_countable(plan_value) else None


def build_choice(spellings: Mapping[Any, Any], strict: bool = True) -> Codec:
    """A codec for named values: framework spelling -> plan value. The first spelling of a value is written.

    A value that is not listed is unreadable, or stands for itself where not `strict`.
    """
    write = build_writer(spellings)

    def read(value: Any) -> Any:
        try:
            if value in spellings:
                return spellings[value]
        except TypeError:
            raise UnreadableError from None
        if strict:
            raise UnreadableError
        return value

    return Codec(read, write)


def build_enumeration(
    members: Mapping[str, Any],
    name: str | None = None,
    numbers: tuple[str, ...] = (),
    extra: Mapping[Any, Any] | None = None,
) -> Codec:
    """A codec for members of a Python enumeration, by name, with or without the enumeration's own (`DType.bfloat16`).

    `members` maps names to plan values. `name` is the enumeration's, None where any is taken. `numbers` lists the
    members that are also known by number, in the order of their numbers, from 1. `extra` are further spellings that the
    framework rewrites before it looks for a member.
    """
    write = build_writer(members)

    def read(value: Any) -> Any:
        if extra is not None and isinstance(value, (bool, str)) and value in extra:
            return extra[value]
        if type(value) is int and 1 <= value <= len(numbers):
            return members[numbers[value - 1]]
        if isinstance(value, str):
            member = parse_member_name(value) if name is None else value.removeprefix(f"{name}.")
            if member in members:
                return members[member]
        raise UnreadableError

    return Codec(read, write)


def parse_member_name(value: Any) -> str:
    """The name of an enumeration's member, however it is spelled (`DType.bfloat16`, `"bfloat16"`)."""
    if isinstance(value, str):
        return value.rpartition(".")[2]
    raise UnreadableError


def build_writer(spellings: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """The function that finds the first spelling of a plan value. It raises CannotEdit for a value without one."""
    spelling_by_value: dict[Any, Any] = {}
    for spelling, plan_value in spellings.items():
        spelling_by_value.setdefault(plan_value, spelling)

    def write(value: Any) -> Any:
        if value not in spelling_by_value:
            raise CannotEdit(f"this framework has no value for {value!r}")
        return spelling_by_value[value]

    return write


def bound_below(lowest: int, codec: Codec) -> Codec:
    """A codec of numbers that are not below `lowest`."""

    def read(value: Any) -> Any:
        number = codec.read(value)
        if number < lowest:
            raise UnreadableError
        return number

    return Codec(read, codec.write)


def write_zero_as_null(codec: Codec) -> Codec:
    """A codec of intervals: the plan's 0 (never) is written as null."""
    return Codec(codec.read, lambda value: value or None)
