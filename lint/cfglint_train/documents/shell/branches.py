"""Which branch of an `if` or `case` a script takes, where the conditions rest on words that are known.

Where they do not, a branch is an alternative: what its condition says of a variable holds inside it (`[ "$N" -eq 1 ]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.shell.words import Chain, Fragment, Step
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

    from cfglint_train.documents.document import Span

_INTEGER: Final = re.compile(rb"-?[0-9]{1,18}")
_NAMED: Final = re.compile(rb'"?\$\{?([A-Za-z_]\w*)\}?"?')
_LITERAL: Final = re.compile(rb"([\"']?)([\w./:-]*)\1")
_OPTION: Final = re.compile(rb"--[A-Za-z][\w.-]*")
_PATTERN: Final = frozenset(b"*?[]()|+@!\\")


class Choice(Frozen):
    """An `if` or `case` with its branches."""

    at: int
    chain: Chain
    subject: SyntaxNode | None
    """The word of a `case`; None for an `if`."""
    branches: tuple[tuple[Step, tuple[SyntaxNode, ...]], ...]
    """The step of each branch and its conditions (of a `case`: its patterns); none for `else`."""

    @property
    def steps(self) -> frozenset[Step]:
        """The steps of all branches."""
        return frozenset(step for step, _ in self.branches)


class Words(Protocol):
    """What deciding asks of the script."""

    text: bytes
    choices: dict[Step, Choice]

    def assigned(self, name: str, at: int) -> int:
        """Where a variable was last set before a place; -1 where it was not."""

    def sites(self, start: int, end: int) -> tuple[Span, ...]:
        """The places in the file of what is at `start` to `end` of the text."""

    def expand(self, start: int, end: int, mode: str, at: int, chain: Chain, depth: int) -> list[Fragment]:
        """What bash makes of the bytes `start` to `end`."""


def choice_of(node: SyntaxNode, chain: Chain) -> Choice:
    """The branches of an `if_statement` or a `case_statement`."""
    branches: list[tuple[Step, tuple[SyntaxNode, ...]]] = []
    if node.type == "case_statement":
        for item in node.children:
            if item.type == "case_item":
                branches.append((("case_item", item.id), tuple(item.children_by_field_name("value"))))
        return Choice(node.start_byte, chain, node.child_by_field_name("value"), tuple(branches))
    branches.append((("then", node.id), tuple(_conditions(node))))
    for clause in node.children:
        if clause.type in ("elif_clause", "else_clause"):
            branches.append((("clause", clause.id), tuple(_conditions(clause))))
    return Choice(node.start_byte, chain, None, tuple(branches))


def _conditions(clause: SyntaxNode) -> Iterator[SyntaxNode]:
    """The commands between `if` or `elif` and `then`."""
    if clause.type != "else_clause":
        for child in clause.children:
            if child.type == "then":
                return
            if child.is_named:
                yield child


def is_exhaustive(choice: Choice, text: bytes) -> bool:
    """Whether one of the branches is always taken: the last is `else`, or has the pattern `*`."""
    conditions = choice.branches[-1][1] if choice.branches else ()
    if choice.subject is None:
        return not conditions and len(choice.branches) > 1
    return any(text[pattern.start_byte : pattern.end_byte] == b"*" for pattern in conditions)


def is_plain(script: Words, choice: Choice) -> bool:
    """Whether all conditions of a choice are words without variables."""
    return re.search(rb"[$`]", _conditions_text(script, choice)) is None


def takes(script: Words, choice: Choice, step: Step, depth: int, lenient: bool = False) -> bool | None:
    """Whether a branch is taken; None where that cannot be determined. `lenient`: assumed defaults count as known."""
    reading = _Conditions(script, choice, depth, lenient)
    for other, conditions in choice.branches:
        holds = reading.matches(conditions) if choice.subject is not None else reading.all(conditions)
        if other == step or holds is None:
            return holds
        if holds:
            return False
    return None


def narrowed(
    script: Words, name: str, value: tuple[Fragment, ...] | None, at: int, chain: Chain, depth: int
) -> tuple[Fragment, ...] | None:
    """A variable's uncertain value inside the branches around a place: what their conditions make it equal to; None
    where they exclude the value that is assumed.
    """
    variable = name.encode()
    since = script.assigned(name, at)
    for step in reversed(chain):
        choice = script.choices.get(step)
        if choice is None or choice.at < since:
            continue
        implied = _implied(script, choice, step)
        if variable in implied:
            return (Fragment(implied[variable], script.sites(at, at), exact=False),)
        named = re.search(rb"\$\{?" + variable + rb"\b", _conditions_text(script, choice)) is not None
        if named and takes(script, choice, step, depth, lenient=True) is False:
            return None
    return value


def probed(script: Words, chain: Chain) -> frozenset[str]:
    """The options for which the conditions around a place search the help of a program (`train --help | grep`)."""
    texts = (_conditions_text(script, choice) for step in chain if (choice := script.choices.get(step)) is not None)
    found = (option.decode() for text in texts if b"--help" in text for option in _OPTION.findall(text))
    return frozenset(found) - {"--help"}


def _conditions_text(script: Words, choice: Choice) -> bytes:
    """The conditions of a choice as written."""
    nodes = [node for _, conditions in choice.branches for node in conditions]
    nodes += [] if choice.subject is None else [choice.subject]
    return b"\n".join(script.text[node.start_byte : node.end_byte] for node in nodes)


def _implied(script: Words, choice: Choice, step: Step) -> Mapping[bytes, bytes]:
    """The texts of variables that follow from a branch being taken."""
    found: dict[bytes, bytes] = {}
    for other, conditions in choice.branches:
        is_own = other == step
        if choice.subject is None and len(conditions) == 1:
            found.update(_equal(script.text, conditions[0], is_own))
        elif choice.subject is not None and is_own and len(conditions) == 1:
            found.update(_pair(script.text, choice.subject, conditions[0]))
        if is_own:
            break
    return found


def _equal(text: bytes, node: SyntaxNode, holds: bool) -> Iterator[tuple[bytes, bytes]]:
    """The texts of variables that follow from a condition being true, or false."""
    inside = [child for child in node.children if child.is_named]
    if node.type == "negated_command" and len(inside) == 1:
        yield from _equal(text, inside[0], not holds)
    elif node.type in ("test_command", "parenthesized_expression") and len(inside) == 1:
        yield from _equal(text, inside[0], holds)
    elif node.type == "list" and any(child.type == ("&&" if holds else "||") for child in node.children):
        for child in inside:
            yield from _equal(text, child, holds)
    elif node.type == "binary_expression":
        left, right, operator = (node.child_by_field_name(name) for name in ("left", "right", "operator"))
        if left is None or right is None or operator is None:
            return
        sign = text[operator.start_byte : operator.end_byte]
        if sign in ((b"&&", b"-a") if holds else (b"||", b"-o")):
            yield from _equal(text, left, holds)
            yield from _equal(text, right, holds)
        elif sign in ((b"=", b"==", b"-eq") if holds else (b"!=", b"-ne")):
            yield from _pair(text, left, right)


def _pair(text: bytes, left: SyntaxNode, right: SyntaxNode) -> Iterator[tuple[bytes, bytes]]:
    """A variable and the plain text that it is equal to."""
    one, other = (text[node.start_byte : node.end_byte] for node in (left, right))
    for named, literal in ((one, other), (other, one)):
        name, value = _NAMED.fullmatch(named), _LITERAL.fullmatch(literal)
        if name is not None and value is not None:
            yield name[1], value[2]


class _Conditions:
    """Reads the conditions of one choice."""

    __slots__ = ("choice", "depth", "lenient", "script")

    def __init__(self, script: Words, choice: Choice, depth: int, lenient: bool) -> None:
        self.script = script
        self.choice = choice
        self.depth = depth
        self.lenient = lenient

    def all(self, conditions: tuple[SyntaxNode, ...]) -> bool | None:
        """Whether the one command of a condition succeeds; True for `else`."""
        if not conditions:
            return True
        return self._holds(conditions[0]) if len(conditions) == 1 else None

    def matches(self, patterns: tuple[SyntaxNode, ...]) -> bool | None:
        """Whether the subject of a `case` is one of some patterns."""
        subject = self.choice.subject
        word = None if subject is None else self._word(subject)
        found: bool | None = False
        for pattern in patterns:
            raw = self._raw(pattern)
            literal = self._word(pattern) if _PATTERN.isdisjoint(raw) else None
            if raw == b"*" or (word is not None and literal == word):
                return True
            if word is None or literal is None:
                found = None
        return found

    def _raw(self, node: SyntaxNode) -> bytes:
        return self.script.text[node.start_byte : node.end_byte]

    def _word(self, node: SyntaxNode) -> bytes | None:
        """The text of one word; None where it is not certain."""
        start, end, choice = node.start_byte, node.end_byte, self.choice
        fragments = self.script.expand(start, end, "plain", choice.at, choice.chain, self.depth + 1)
        if not all(fragment.certain or (self.lenient and fragment.told) for fragment in fragments):
            return None
        return b"".join(fragment.text for fragment in fragments)

    def _holds(self, node: SyntaxNode) -> bool | None:
        """Whether a test is true."""
        kind, inside = node.type, [child for child in node.children if child.is_named]
        if kind == "negated_command":
            return _not(self._holds(inside[0])) if len(inside) == 1 else None
        if kind in ("test_command", "parenthesized_expression"):
            return self._holds(inside[0]) if len(inside) == 1 else None
        if kind == "command":
            return {b"true": True, b":": True, b"false": False}.get(self._raw(node))
        if kind == "unary_expression":
            return self._unary(node, inside)
        if kind == "binary_expression":
            return self._binary(node)
        if kind in ("string", "raw_string", "simple_expansion", "expansion", "word", "number", "concatenation"):
            word = self._word(node)
            return None if word is None else bool(word)
        return None

    def _unary(self, node: SyntaxNode, inside: list[SyntaxNode]) -> bool | None:
        operator = node.child_by_field_name("operator")
        if operator is None:
            return None
        sign = self._raw(operator)
        if sign == b"!":
            return _not(self._holds(inside[-1]))
        if sign not in (b"-z", b"-n") or len(inside) != 2:
            return None
        word = self._word(inside[1])
        return None if word is None else bool(word) is (sign == b"-n")

    def _binary(self, node: SyntaxNode) -> bool | None:
        left, right, operator = (node.child_by_field_name(name) for name in ("left", "right", "operator"))
        if left is None or right is None or operator is None:
            return None
        sign = self._raw(operator)
        if sign in (b"&&", b"-a", b"||", b"-o"):
            found = (self._holds(left), self._holds(right))
            decisive = sign in (b"||", b"-o")
            return decisive if decisive in found else None if None in found else not decisive
        one, other = self._word(left), self._word(right)
        if one is None or other is None:
            return None
        if sign in (b"=", b"==", b"!="):
            if right.type not in ("string", "raw_string", "number") and not _PATTERN.isdisjoint(self._raw(right)):
                return None
            return (one == other) is (sign != b"!=")
        if sign in _COMPARED and _INTEGER.fullmatch(one) and _INTEGER.fullmatch(other):
            difference = int(one) - int(other)
            return (difference > 0) - (difference < 0) in _COMPARED[sign]
        return None


# Operators -> the signs of left minus right for which they hold.
_COMPARED: Final = {
    b"-eq": (0,), b"-ne": (-1, 1), b"-lt": (-1,), b"-le": (-1, 0), b"-gt": (1,), b"-ge": (0, 1),
}  # fmt: skip


def _not(holds: bool | None) -> bool | None:
    return None if holds is None else not holds
