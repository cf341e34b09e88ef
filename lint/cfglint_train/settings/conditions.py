"""Conditions of house rules: comparisons of arithmetic on plan fields, such as `batch.global <= 2 * launch.nodes`."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.python_arithmetic import BINARY, is_bounded
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.plan.typed_values import get_field_type, parse_field

MAX_CHARACTERS: Final = 300
"""Maximum length of a condition."""
_MAX_DEPTH: Final = 50
"""Maximum depth of a condition's syntax tree."""
_MAX_EXCERPT: Final = 20
"""Number of characters of a condition that an error shows."""
_DOTTED_NAME: Final = r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
_WORDS: Final = "numbers, plan fields, + - * / // % **, parentheses, comparisons, `and` and `or`"
_COMPARISONS: Final[Mapping[type[ast.cmpop], tuple[Callable[[Any, Any], bool], str]]] = {
    ast.LtE: (operator.le, "is more than"),
    ast.Lt: (operator.lt, "is not less than"),
    ast.GtE: (operator.ge, "is less than"),
    ast.Gt: (operator.gt, "is not more than"),
    ast.Eq: (operator.eq, "does not equal"),
    ast.NotEq: (operator.ne, "equals"),
}
"""Comparisons, each with the words that say that it fails."""

Number = int | float
ReadField = Callable[[Field], Number | None]
"""Function that returns the value of a field, or None if it is unknown."""


class Condition(Frozen):
    """A condition on plan fields."""

    text: str
    fields: tuple[Field, ...]
    """Fields in the order of their first use."""
    is_monotone: bool
    """True if a condition that fails at both ends of a field's range also fails between them."""
    tree: ast.expr
    """Syntax tree; its names are in `names`."""
    names: Mapping[int, Field]
    """Fields by the column of their name in `text`."""

    def list_failures(self, read: ReadField) -> tuple[str, ...]:
        """Return the failed comparisons (`9 is more than 8`), or () if the condition holds or is not decidable."""
        holds, failures = self._judge(self.tree, read)
        return failures if holds is False else ()

    def is_undefined(self, node: ast.BinOp) -> bool:
        """Return whether an operation divides by a constant zero, or has constants with no real result in bounds."""
        left, right = (self._compute(part, lambda _: None) for part in (node.left, node.right))
        if right is None:
            return False
        if left is None:
            return right == 0 and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod))
        return self._compute(node, lambda _: None) is None

    def _judge(self, node: ast.expr, read: ReadField) -> tuple[bool | None, tuple[str, ...]]:
        """Return whether a comparison or a combination of them holds (None if unknown), and what fails."""
        if isinstance(node, ast.Compare):
            results = list(self._compare(node, read))
        else:
            assert isinstance(node, ast.BoolOp)
            results = [self._judge(part, read) for part in node.values]
        is_alternative = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
        verdicts = [holds for holds, _ in results]
        if is_alternative in verdicts:
            failures = () if is_alternative else next(failures for holds, failures in results if holds is False)
            return is_alternative, failures
        if None in verdicts:
            return None, ()
        return not is_alternative, tuple(failure for _, failures in results for failure in failures)

    def _compare(self, node: ast.Compare, read: ReadField) -> Iterator[tuple[bool | None, tuple[str, ...]]]:
        """Yield the result of each comparison of a chain."""
        left = self._compute(node.left, read)
        for sign, part in zip(node.ops, node.comparators):
            right = self._compute(part, read)
            compare, words = _COMPARISONS[type(sign)]
            if left is None or right is None:
                yield None, ()
            else:
                holds = compare(left, right)
                yield holds, () if holds else (f"{format_number(left)} {words} {format_number(right)}",)
            left = right

    def _compute(self, node: ast.expr, read: ReadField) -> Number | None:
        """Return the value of an arithmetic expression, or None if it is unknown, undefined or too large."""
        if isinstance(node, ast.Constant):
            return node.value  # type: ignore[return-value]  # `parse_condition` has checked it
        if isinstance(node, ast.Name):
            return read(self.names[node.col_offset])
        if isinstance(node, ast.UnaryOp):
            value = self._compute(node.operand, read)
            return -value if value is not None and isinstance(node.op, ast.USub) else value
        assert isinstance(node, ast.BinOp)
        left, right = self._compute(node.left, read), self._compute(node.right, read)
        if left is None or right is None or not is_bounded(node.op, left, right):
            return None
        try:
            result = BINARY[type(node.op)](left, right)
        except ArithmeticError:
            return None
        return result if isinstance(result, (int, float)) else None  # a root of a negative number is complex


@cache
def parse_condition(text: str) -> Condition:
    """Parse a condition, or raise `UsageError` with a message that follows the name of its setting."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"is too long: {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    spaced = re.sub(r"\s", " ", text)
    tree = _parse(spaced)
    if any(depth > _MAX_DEPTH for _, depth in _walk(tree)):
        raise UsageError("is nested too deeply; split it into several rules")
    _check(tree, spaced)
    nodes = [node for node, _ in _walk(tree)]
    names = {
        node.col_offset: _parse_number_field(_get_source(node, spaced)) for node in nodes if isinstance(node, ast.Name)
    }
    if not names:
        raise UsageError("names no plan field, so it is the same for every run")
    fields = tuple(dict.fromkeys(names[column] for column in sorted(names)))
    is_monotone = len(fields) == len(names) and not any(
        isinstance(node, (ast.Eq, ast.NotEq, ast.Mod, ast.Pow)) for node in nodes
    )
    condition = Condition(text, fields, is_monotone, tree, names)
    undefined = next((node for node in nodes if isinstance(node, ast.BinOp) and condition.is_undefined(node)), None)
    if undefined is not None:
        raise UsageError(f"cannot be computed at `{_get_source(undefined, spaced)}`, whatever the fields are")
    return condition


def _parse(text: str) -> ast.expr:
    # A field's name may contain a keyword (`batch.global`). The replacement has the same length, so columns stay valid.
    code = re.sub(_DOTTED_NAME, lambda match: match[0].replace(".", "_"), text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ast.parse(code, mode="eval").body
    except SyntaxError as error:
        start = max((error.offset or 1) - 1, 0)
        raise UsageError(f"cannot be read at `{text[start : start + _MAX_EXCERPT]}`; use {_WORDS}") from None
    except (ValueError, MemoryError, RecursionError):
        raise UsageError(f"cannot be read; use {_WORDS}") from None


def _walk(tree: ast.AST, depth: int = 0) -> Iterator[tuple[ast.AST, int]]:
    """Yield every node with its depth, without descending further than one level below the limit."""
    yield tree, depth
    if depth <= _MAX_DEPTH:
        for node in ast.iter_child_nodes(tree):
            yield from _walk(node, depth + 1)


def _parse_number_field(name: str) -> Field:
    try:
        field = parse_field(name)
    except UsageError as error:
        raise UsageError(f"is invalid: {error}") from None
    if not get_field_type(field).startswith(("int", "float")):
        raise UsageError(f"compares numbers, but {field} is not a number")
    return field


def _check(node: ast.expr, text: str) -> None:
    """Raise `UsageError` unless an expression is a comparison, or several with `and` and `or`."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check(part, text)
    elif isinstance(node, ast.Compare) and all(type(sign) in _COMPARISONS for sign in node.ops):
        for part in (node.left, *node.comparators):
            _check_arithmetic(part, text)
    else:
        raise UsageError(f"must be a comparison; `{_get_source(node, text)}` compares nothing")


def _check_arithmetic(node: ast.expr, text: str) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        _check_arithmetic(node.left, text)
        _check_arithmetic(node.right, text)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        _check_arithmetic(node.operand, text)
    elif not isinstance(node, ast.Name) and not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
        raise UsageError(f"cannot contain `{_get_source(node, text)}`; use {_WORDS}")


def _get_source(node: ast.expr, text: str) -> str:
    """Return the text of a node."""
    return text.encode()[node.col_offset : node.end_col_offset].decode()


def format_number(value: Number) -> str:
    """Return a number with thousands separators: `8,388,608`, `0.0002`."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1 << 53):
        return f"{int(value):,}"
    return f"{value:,}"
