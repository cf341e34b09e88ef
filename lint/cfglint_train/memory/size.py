"""Sizes that record their computation: numbers with units, and arithmetic on them.

Estimates compute with plain numbers. `explanation.py` runs the same functions with a `Size` in place of each number of
the setup, so the text shows that computation. A size is a sum of products: `8,030,261,248 trained elements x 4 B / 8
ranks + 16,777,216 elements of a bucket x 2 B`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TypeVar

Factor = tuple[float, str]
"""A number and its unit; a `*` in the unit marks the position of the number, which otherwise comes first."""

BYTES: Final = "B"
CHECKPOINTS: Final = "checkpoints"
RANKS: Final = "ranks"

# If a product would have more terms, each sum is merged into one number before it is multiplied.
_LONGEST: Final = 6


class Term(Frozen):
    """A product of a plain number and factors, divided by other factors."""

    number: float
    factors: tuple[Factor, ...] = ()
    divisors: tuple[Factor, ...] = ()


class Size:
    """A number with the sum of products that it was computed from; it compares and hashes like the number."""

    __slots__ = ("terms", "value")

    def __init__(self, value: Any, terms: tuple[Term, ...]) -> None:
        """Store a value and the terms that add up to it."""
        self.value: Any = value
        self.terms = terms

    @classmethod
    def create(cls, value: Any, unit: str) -> Size:
        """Return a size of one number with its unit."""
        if not value:
            return cls(value, ())
        return cls(value, (Term(1, ((value, unit),)) if unit else Term(value),))

    @property
    def unit(self) -> str:
        """Unit of the sum: bytes if any factor is in bytes, else the unit of the first factor."""
        units = [unit for term in self.terms for _, unit in term.factors]
        return next((unit for unit in units if _is_bytes(unit)), units[0] if units else "")

    @property
    def text(self) -> str:
        """Computation as text; the value must be in bytes."""
        text = "".join(f" {'-' if term.number < 0 else '+'} {_format_term(term)}" for term in self.terms or (Term(0),))
        return f"-{text[3:]}" if text.startswith(" - ") else text[3:]

    def __repr__(self) -> str:
        """Return the value with its computation."""
        return f"Size({self.value!r}: {self.text})"

    # Value

    def __format__(self, form: str) -> str:
        """Format the value."""
        return format(self.value, form)

    def __bool__(self) -> bool:
        """Return whether the value is not zero."""
        return bool(self.value)

    def __int__(self) -> int:
        """Return the value as an integer."""
        return int(self.value)

    def __index__(self) -> int:
        """Return the value as an index."""
        return operator.index(self.value)

    def __hash__(self) -> int:
        """Hash like the value."""
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        """Compare by the value."""
        return bool(self.value == _get_value(other))

    def __lt__(self, other: Any) -> bool:
        """Compare by the value."""
        return bool(self.value < _get_value(other))

    def __le__(self, other: Any) -> bool:
        """Compare by the value."""
        return bool(self.value <= _get_value(other))

    def __gt__(self, other: Any) -> bool:
        """Compare by the value."""
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        """Compare by the value."""
        return not self < other

    # Arithmetic

    def __add__(self, other: Any) -> Size:
        """Add the values, and merge the terms."""
        return Size(self.value + _get_value(other), _add_up((*self.terms, *_list_terms(other))))

    def __radd__(self, other: Any) -> Size:
        """Add the values, and merge the terms."""
        return Size(_get_value(other) + self.value, _add_up((*_list_terms(other), *self.terms)))

    def __neg__(self) -> Size:
        """Negate the value and the terms."""
        return Size(-self.value, _negate(self.terms))

    def __sub__(self, other: Any) -> Size:
        """Subtract the values, and merge the terms."""
        return Size(self.value - _get_value(other), _add_up((*self.terms, *_negate(_list_terms(other)))))

    def __rsub__(self, other: Any) -> Size:
        """Subtract the values, and merge the terms."""
        return Size(_get_value(other) - self.value, _add_up((*_list_terms(other), *_negate(self.terms))))

    def __mul__(self, other: Any) -> Size:
        """Multiply the values, and expand the terms."""
        return Size(self.value * _get_value(other), _multiply(self, other))

    def __rmul__(self, other: Any) -> Size:
        """Multiply the values, and expand the terms."""
        return Size(_get_value(other) * self.value, _multiply(other, self))

    def __truediv__(self, other: Any) -> Size:
        """Divide the values; a divisor that is a sum is merged into one number."""
        return Size(self.value / _get_value(other), _multiply(self, _invert(other)))

    def __rtruediv__(self, other: Any) -> Size:
        """Divide the values; a divisor that is a sum is merged into one number."""
        return Size(_get_value(other) / self.value, _multiply(other, _invert(self)))

    def __floordiv__(self, other: Any) -> Size:
        """Divide and round down; the terms are kept if there is no remainder."""
        value = self.value // _get_value(other)
        exact = value * _get_value(other) == self.value
        return Size(value, _multiply(self, _invert(other))) if exact else Size.create(value, self.unit)

    def __rfloordiv__(self, other: Any) -> Size:
        """Divide and round down; the result has no unit."""
        return Size.create(_get_value(other) // self.value, "")

    def __mod__(self, other: Any) -> Size:
        """Return the remainder, in the unit of this size."""
        return Size.create(self.value % _get_value(other), self.unit)


if TYPE_CHECKING:
    Number = TypeVar("Number", int, float)


def merge_terms(size: Number, unit: str) -> Number:
    """Return a size as a single number with a new unit, or a plain number unchanged."""
    return Size.create(size.value, unit) if size.__class__ is Size else size


def label_count(number: Number, unit: str, other: float) -> Number:
    """Return a number with a unit if `other`, with which it will be combined, is a size; otherwise unchanged."""
    return Size.create(_get_value(number), unit) if other.__class__ is Size else number


def _get_value(number: Any) -> Any:
    return number.value if number.__class__ is Size else number


def _list_terms(number: Any) -> tuple[Term, ...]:
    if number.__class__ is Size:
        return tuple(number.terms)
    return (Term(number),) if number else ()


def _is_bytes(unit: str) -> bool:
    return unit == BYTES or unit.startswith("B ")


def _negate(terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(Term(-term.number, *term[1:]) for term in terms)


def _invert(number: Any) -> Size:
    """Return the reciprocal of a number; a sum is first merged into one number."""
    value, terms = _get_value(number), _list_terms(number)
    if len(terms) != 1:
        terms = Size.create(value, number.unit).terms
    (term,) = terms
    return Size(1 / value, (Term(1 / term.number, term.divisors, term.factors),))


def _multiply(first: Any, second: Any) -> tuple[Term, ...]:
    """Return the expanded product of two sums, which are merged into single numbers if it would be too long."""
    first_terms, second_terms = _list_terms(first), _list_terms(second)
    if len(first_terms) * len(second_terms) > _LONGEST:
        if len(first_terms) > 1:
            first_terms = Size.create(_get_value(first), first.unit).terms
        if len(second_terms) > 1:
            second_terms = Size.create(_get_value(second), second.unit).terms
    return _add_up(_multiply_terms(term, other) for term in first_terms for other in second_terms)


def _multiply_terms(first: Term, second: Term) -> Term:
    factors = [
        factor for factor in (*first.factors, *second.factors) if factor[0] != 1 or factor[1] in (BYTES, CHECKPOINTS)
    ]
    divisors = [factor for factor in (*first.divisors, *second.divisors) if factor[0] != 1]
    for divisor in tuple(divisors):
        if divisor in factors and divisor[1] != RANKS:  # ranks on a node and ranks that share a state do not cancel
            factors.remove(divisor)
            divisors.remove(divisor)
    return Term(first.number * second.number, tuple(factors), tuple(divisors))


def _add_up(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Merge terms that differ in only one number: bytes of the same elements, counts of one unit, plain numbers."""
    merged: list[Term] = []
    for term in terms:
        for place, earlier in enumerate(merged):
            joined = _join_terms(earlier, term)
            if joined is not None:
                merged[place] = joined
                break
        else:
            merged.append(term)
    return tuple(term for term in merged if term.number)


def _join_terms(left: Term, right: Term) -> Term | None:
    if left.divisors != right.divisors:
        return None
    (counts, each, in_bytes), (other_counts, other_each, others_in_bytes) = (
        _split_per_element(left),
        _split_per_element(right),
    )
    if counts == other_counts:
        total = each + other_each
        if not (in_bytes or others_in_bytes):
            return Term(total, counts, left.divisors)
        return _build_signed_term(total, counts, BYTES, left.divisors)
    if abs(each) == abs(other_each) and in_bytes == others_in_bytes:
        return _join_counts(left, counts, other_counts, 1 if each == other_each else -1)
    if left.divisors or not (_is_number(left) and _is_number(right)):
        return None
    (first, unit), (second, other_unit) = (term.factors[0] if term.factors else (1, "") for term in (left, right))
    if unit and other_unit and unit != other_unit:
        return None
    return _build_signed_term(left.number * first + right.number * second, (), unit or other_unit)


def _join_counts(term: Term, counts: tuple[Factor, ...], other_counts: tuple[Factor, ...], sign: int) -> Term | None:
    """Return the sum of two products that differ in the count of one unit, or None for other products.

    `sign`: -1 if the second product has the opposite sign of the first, else 1.
    """
    first, second = (
        [item for item in source if item not in target]
        for source, target in ((counts, other_counts), (other_counts, counts))
    )
    if len(first) > 1 or len(second) > 1 or len(counts) + len(second) != len(other_counts) + len(first):
        return None
    (number, unit), (others, other_unit) = (left[0] if left else (1, "") for left in (first, second))
    if (unit and other_unit and unit != other_unit) or (_is_bytes(unit or other_unit) and not (unit and other_unit)):
        return None
    total = number + sign * others
    factors = [factor for factor in term.factors if factor not in first]
    factors.insert(counts.index(first[0]) if first else 0, (abs(total), unit or other_unit))
    return Term(term.number * ((total > 0) - (total < 0)), tuple(factors), term.divisors)


def _build_signed_term(total: float, counts: tuple[Factor, ...], unit: str, divisors: tuple[Factor, ...] = ()) -> Term:
    """Return a product of counts and a number with a unit; the number may be negative."""
    return Term((total > 0) - (total < 0), (*counts, (abs(total), unit)), divisors)


def _is_number(term: Term) -> bool:
    """Return whether a term is a plain number or a single count with a unit other than bytes."""
    if not term.factors:
        return True
    return len(term.factors) == 1 and abs(term.number) == 1 and not _is_bytes(term.factors[0][1])


def _split_per_element(term: Term) -> tuple[tuple[Factor, ...], float, bool]:
    """Return the factors that are counts, the number that multiplies them, and whether that number is in bytes."""
    each, factors = term.number, list(term.factors)
    for factor in term.factors:
        if factor[1] == BYTES:
            each *= factor[0]
            factors.remove(factor)
            break
    return tuple(factors), each, len(factors) < len(term.factors)


def _format_term(term: Term) -> str:
    """Format a term without its sign: counts, then bytes per element, then divisors."""
    number = abs(term.number)
    counts = [_format_factor(factor) for factor in term.factors if not _is_bytes(factor[1])]
    each = [_format_factor(factor) for factor in term.factors if _is_bytes(factor[1])]
    if not each:
        each = [_format_factor((number, BYTES))]
    elif number != 1:
        counts.insert(0, format_number(number))
    return " x ".join(counts + each) + "".join(f" / {_format_factor(factor)}" for factor in term.divisors)


def _format_factor(factor: Factor) -> str:
    number, unit = factor
    if number == 1 and unit == CHECKPOINTS:
        unit = CHECKPOINTS.removesuffix("s")
    return unit.replace("*", format_number(number)) if "*" in unit else f"{format_number(number)} {unit}".rstrip()


def format_number(number: float) -> str:
    """Format integers and numbers above a million as integers, other numbers with up to seven significant digits."""
    if number == int(number) or abs(number) >= 1e6:
        return f"{round(number):,}"
    return f"{number:,.7g}"
