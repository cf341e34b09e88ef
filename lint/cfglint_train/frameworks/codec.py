"""Codecs: conversion of values between a framework's files and the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.documents.document import CannotEdit, Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_LARGEST: Final = 2**63


def is_countable(value: Any) -> bool:
    """Return whether a value is not a number or fits in 64 bits, so that computing with it is safe."""
    return not isinstance(value, (int, float)) or -_LARGEST < value < _LARGEST


class UnreadableError(Exception):
    """A value that the framework itself would reject; the plan field stays unknown."""


def keep_value(value: Any) -> Any:
    """Return the value unchanged."""
    return value


class Codec(Frozen):
    """A pair of conversions: `read` to the plan's value (raises `UnreadableError`), `write` back to the framework's."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = keep_value

    def read_or_none(self, value: Any) -> Any:
        """Return the plan value, or None if the framework would reject the value or it exceeds 64 bits."""
        try:
            plan_value = self.read(value)
        except UnreadableError:
            return None
        return plan_value if is_countable(plan_value) else None


def build_choice(spellings: Mapping[Any, Any], strict: bool = True) -> Codec:
    """Return a codec for named values: framework spelling -> plan value.

    The codec writes the first spelling of a value. An unlisted value is unreadable if `strict`, otherwise it is kept
    unchanged.
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
    """Return a codec for members of a Python enumeration, by name.

    A value may carry the enumeration's name (`DType.bfloat16`). `members` maps member names to plan values. `name` is
    the enumeration's name; if None, any prefix is accepted. `numbers` lists the members that can be written as 1, 2
    and so on. `extra` maps spellings that the framework rewrites before it looks up a member.
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
    """Return the member name in a value such as `DType.bfloat16` or `bfloat16`."""
    if isinstance(value, str):
        return value.rpartition(".")[2]
    raise UnreadableError


def build_writer(spellings: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that maps a plan value to its first spelling.

    The function raises `CannotEdit` for a value without a spelling.
    """
    spelling_by_value: dict[Any, Any] = {}
    for spelling, plan_value in spellings.items():
        spelling_by_value.setdefault(plan_value, spelling)

    def write(value: Any) -> Any:
        if value not in spelling_by_value:
            raise CannotEdit(f"this framework has no value for {value!r}")
        return spelling_by_value[value]

    return write


def bound_below(lowest: int, codec: Codec) -> Codec:
    """Return a codec whose numbers must be at least `lowest`."""

    def read(value: Any) -> Any:
        number = codec.read(value)
        if number < lowest:
            raise UnreadableError
        return number

    return Codec(read, codec.write)


def accept_unknown_folder(codec: Codec) -> Codec:
    """Return a codec that also reads a path in an unknown folder, as written (`$MODELS/Qwen/Qwen2.5-7B`)."""
    return Codec(
        lambda value: value.path if isinstance(value, Unknown) and value.path else codec.read(value), codec.write
    )


def write_zero_as_null(codec: Codec) -> Codec:
    """Return a codec for intervals that writes the plan's 0 (never) as null and any other value unchanged."""
    return Codec(codec.read, lambda value: value or None)
