"""Branches of `if` and `case`: the branch that a script takes, if the words in the conditions are known.

If the words are unknown, every branch is possible. Inside a branch, its condition determines the value of the variable
(`[ "$N" -eq 1 ]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.shell.words import Chain, Fragment, Step
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

    from cfglint_train.documents.document import Span

_INTEGER: Final = compile_on_use(rb"-?[0-9]{1,18}")
_VARIABLE: Final = compile_on_use(rb'"?\$\{?([A-Za-z_]\w*)\}?"?')
_LITERAL: Final = compile_on_use(rb"([\"']?)([\w./:-]*)\1")
_OPTION: Final = compile_on_use(rb"--[A-Za-z][\w.-]*")
_PATTERN: Final = frozenset(b"*?[]()|+@!\\")


class Choice(Frozen):
    """An `if` or `case` with its branches."""

    at: int
    chain: Chain
    subject: SyntaxNode | None
    """Word of a `case`, or None for an `if`."""
    branches: tuple[tuple[Step, tuple[SyntaxNode, ...]], ...]
    """Step of each branch and its conditions (patterns for a `case`); `else` has no conditions."""

    @property
    def steps(self) -> frozenset[Step]:
        """Steps of all branches."""
        return frozenset(step for step, _ in self.branches)


class BranchingScript(Protocol):
    """The parts of a script that are needed to evaluate conditions."""

    text: bytes
    choices: dict[Step, Choice]

    def find_last_assignment(self, name: str, at: int) -> int:
        """Return the offset of the last assignment of a variable before a place, or -1 if there is none."""

    def find_sites(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the spans of the file that the text from `start` to `end` comes from."""

    def expand(self, start: int, end: int, mode: str, at: int, chain: Chain, depth: int) -> list[Fragment]:
        """Expand the text from `start` to `end` as bash does."""


def build_choice(node: SyntaxNode, chain: Chain) -> Choice:
    """Return the branches of an `if_statement` or a `case_statement`."""
    branches: list[tuple[Step, tuple[SyntaxNode, ...]]] = []
    if node.type == "case_statement":
        for item in node.children:
            if item.type == "case_item":
                branches.append((("case_item", item.id), tuple(item.children_by_field_name("value"))))
        return Choice(node.start_byte, chain, node.child_by_field_name("value"), tuple(branches))
    branches.append((("then", node.id), tuple(_list_conditions(node))))
    for clause in node.children:
        if clause.type in ("elif_clause", "else_clause"):
            branches.append((("clause", clause.id), tuple(_list_conditions(clause))))
    return Choice(node.start_byte, chain, None, tuple(branches))


def _list_conditions(clause: SyntaxNode) -> Iterator[SyntaxNode]:
    """Yield the commands between `if` or `elif` and `then`."""
    if clause.type != "else_clause":
        for child in clause.children:
            if child.type == "then":
                return
            if child.is_named:
                yield child


def is_exhaustive(choice: Choice, text: bytes) -> bool:
    """Return whether one of the branches is always taken: the last branch is `else` or has the pattern `*`."""
    conditions = choice.branches[-1][1] if choice.branches else ()
    if choice.subject is None:
        return not conditions and len(choice.branches) > 1
    return any(text[pattern.start_byte : pattern.end_byte] == b"*" for pattern in conditions)


def is_plain(script: BranchingScript, choice: Choice) -> bool:
    """Return whether no condition of a choice uses a variable or a command substitution."""
    return re.search(rb"[$`]", _join_conditions(script, choice)) is None


def is_taken(
    script: BranchingScript, choice: Choice, step: Step, depth: int, assumptions: list[str] | None = None
) -> bool | None:
    """Return whether a branch is taken, or None if that cannot be determined.

    With `assumptions`, assumed defaults count as known, and the notes on them are appended to the list.
    """
    reading = _ConditionEvaluator(script, choice, depth, assumptions)
    for other, conditions in choice.branches:
        holds = (
            reading.match_patterns(conditions) if choice.subject is not None else reading.evaluate_command(conditions)
        )
        if other == step or holds is None:
            return holds
        if holds:
            return False
    return None


def narrow_value(
    script: BranchingScript, name: str, value: tuple[Fragment, ...] | None, at: int, chain: Chain, depth: int
) -> tuple[Fragment, ...] | None:
    """Narrow a variable's uncertain value by the branches around a place.

    Return the value that an enclosing condition requires, None if a condition excludes the assumed value, or else
    `value` unchanged.
    """
    variable = name.encode()
    since = script.find_last_assignment(name, at)
    for step in reversed(chain):
        choice = script.choices.get(step)
        if choice is None or choice.at < since:
            continue
        implied = _find_implied_values(script, choice, step)
        if variable in implied:
            return (Fragment(implied[variable], script.find_sites(at, at), exact=False),)
        is_mentioned = re.search(rb"\$\{?" + variable + rb"\b", _join_conditions(script, choice)) is not None
        if is_mentioned and is_taken(script, choice, step, depth, []) is False:
            return None
    return value


def find_probed_options(script: BranchingScript, chain: Chain) -> frozenset[str]:
    """Return the options that enclosing conditions look up in a program's help (`train --help | grep`)."""
    texts = (_join_conditions(script, choice) for step in chain if (choice := script.choices.get(step)) is not None)
    options = (option.decode() for text in texts if b"--help" in text for option in _OPTION.findall(text))
    return frozenset(options) - {"--help"}


def _join_conditions(script: BranchingScript, choice: Choice) -> bytes:
    """Return the source text of a choice's conditions and of the word of a `case`."""
    nodes = [node for _, conditions in choice.branches for node in conditions]
    nodes += [] if choice.subject is None else [choice.subject]
    return b"\n".join(script.text[node.start_byte : node.end_byte] for node in nodes)


def _find_implied_values(script: BranchingScript, choice: Choice, step: Step) -> Mapping[bytes, bytes]:
    """Return the variable values that hold whenever a branch is taken."""
    values: dict[bytes, bytes] = {}
    for other, conditions in choice.branches:
        is_taken_branch = other == step
        if choice.subject is None and len(conditions) == 1:
            values.update(_find_equalities(script.text, conditions[0], is_taken_branch))
        elif choice.subject is not None and is_taken_branch and len(conditions) == 1:
            values.update(_match_equality(script.text, choice.subject, conditions[0]))
        if is_taken_branch:
            break
    return values


def _find_equalities(text: bytes, node: SyntaxNode, holds: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the variable values that hold if a condition is true (`holds`) or false."""
    children = [child for child in node.children if child.is_named]
    if node.type == "negated_command" and len(children) == 1:
        yield from _find_equalities(text, children[0], not holds)
    elif node.type in ("test_command", "parenthesized_expression") and len(children) == 1:
        yield from _find_equalities(text, children[0], holds)
    elif node.type == "list" and any(child.type == ("&&" if holds else "||") for child in node.children):
        for child in children:
            yield from _find_equalities(text, child, holds)
    elif node.type == "binary_expression":
        left, right, operator = (node.child_by_field_name(name) for name in ("left", "right", "operator"))
        if left is None or right is None or operator is None:
            return
        sign = text[operator.start_byte : operator.end_byte]
        if sign in ((b"&&", b"-a") if holds else (b"||", b"-o")):
            yield from _find_equalities(text, left, holds)
            yield from _find_equalities(text, right, holds)
        elif sign in ((b"=", b"==", b"-eq") if holds else (b"!=", b"-ne")):
            yield from _match_equality(text, left, right)


def _match_equality(text: bytes, left: SyntaxNode, right: SyntaxNode) -> Iterator[tuple[bytes, bytes]]:
    """Yield the variable and its value if one side is a variable and the other a literal."""
    first, second = (text[node.start_byte : node.end_byte] for node in (left, right))
    for variable_text, value_text in ((first, second), (second, first)):
        name, value = _VARIABLE.fullmatch(variable_text), _LITERAL.fullmatch(value_text)
        if name is not None and value is not None:
            yield name[1], value[2]


class _ConditionEvaluator:
    """An evaluator for the conditions of one choice."""

    __slots__ = ("assumptions", "choice", "depth", "script")

    def __init__(self, script: BranchingScript, choice: Choice, depth: int, assumptions: list[str] | None) -> None:
        self.script = script
        self.choice = choice
        self.depth = depth
        self.assumptions = assumptions

    def evaluate_command(self, conditions: tuple[SyntaxNode, ...]) -> bool | None:
        """Return whether the single command of a condition succeeds; True for `else`."""
        if not conditions:
            return True
        return self._evaluate_test(conditions[0]) if len(conditions) == 1 else None

    def match_patterns(self, patterns: tuple[SyntaxNode, ...]) -> bool | None:
        """Return whether the subject of a `case` matches one of the patterns, or None if that is uncertain."""
        subject = self.choice.subject
        word = None if subject is None else self._read_word(subject)
        matched: bool | None = False
        for pattern in patterns:
            raw = self._get_source(pattern)
            literal = self._read_word(pattern) if _PATTERN.isdisjoint(raw) else None
            if raw == b"*" or (word is not None and literal == word):
                return True
            if word is None or literal is None:
                matched = None
        return matched

    def _get_source(self, node: SyntaxNode) -> bytes:
        return self.script.text[node.start_byte : node.end_byte]

    def _read_word(self, node: SyntaxNode) -> bytes | None:
        """Return the text of one word, or None if it is uncertain."""
        start, end, choice = node.start_byte, node.end_byte, self.choice
        fragments = self.script.expand(start, end, "plain", choice.at, choice.chain, self.depth + 1)
        blanks = {name for fragment in fragments if (name := fragment.default_blank)}
        notes = [note for fragment in fragments for note in fragment.assumptions]
        notes += [f"`${name}` is empty unless the environment sets it" for name in sorted(blanks)]
        fragments = [fragment for fragment in fragments if not fragment.default_blank]
        if not all(fragment.is_known for fragment in fragments) or (notes and self.assumptions is None):
            return None
        if self.assumptions is not None:
            self.assumptions += notes
        return b"".join(fragment.text for fragment in fragments)

    def _evaluate_test(self, node: SyntaxNode) -> bool | None:
        """Return whether a test is true, or None if that cannot be determined."""
        kind, children = node.type, [child for child in node.children if child.is_named]
        if kind == "negated_command":
            return _invert(self._evaluate_test(children[0])) if len(children) == 1 else None
        if kind in ("test_command", "parenthesized_expression"):
            return self._evaluate_test(children[0]) if len(children) == 1 else None
        if kind == "command":
            return {b"true": True, b":": True, b"false": False}.get(self._get_source(node))
        if kind == "unary_expression":
            return self._evaluate_unary(node, children)
        if kind == "binary_expression":
            return self._evaluate_binary(node)
        if kind in ("string", "raw_string", "simple_expansion", "expansion", "word", "number", "concatenation"):
            word = self._read_word(node)
            return None if word is None else bool(word)
        return None

    def _evaluate_unary(self, node: SyntaxNode, children: list[SyntaxNode]) -> bool | None:
        operator = node.child_by_field_name("operator")
        if operator is None:
            return None
        sign = self._get_source(operator)
        if sign == b"!":
            return _invert(self._evaluate_test(children[-1]))
        if sign not in (b"-z", b"-n") or len(children) != 2:
            return None
        word = self._read_word(children[1])
        return None if word is None else bool(word) is (sign == b"-n")

    def _evaluate_binary(self, node: SyntaxNode) -> bool | None:
        left, right, operator = (node.child_by_field_name(name) for name in ("left", "right", "operator"))
        if left is None or right is None or operator is None:
            return None
        sign = self._get_source(operator)
        if sign in (b"&&", b"-a", b"||", b"-o"):
            operands = (self._evaluate_test(left), self._evaluate_test(right))
            decisive = sign in (b"||", b"-o")
            return decisive if decisive in operands else None if None in operands else not decisive
        first, second = self._read_word(left), self._read_word(right)
        if first is None or second is None:
            return None
        if sign in (b"=", b"==", b"!="):
            if right.type not in ("string", "raw_string", "number") and not _PATTERN.isdisjoint(
                self._get_source(right)
            ):
                return None
            return (first == second) is (sign != b"!=")
        if sign in _COMPARISONS and _INTEGER.fullmatch(first) and _INTEGER.fullmatch(second):
            difference = int(first) - int(second)
            return (difference > 0) - (difference < 0) in _COMPARISONS[sign]
        return None


# Operator -> signs of (left - right) for which it holds.
_COMPARISONS: Final = {
    b"-eq": (0,), b"-ne": (-1, 1), b"-lt": (-1,), b"-le": (-1, 0), b"-gt": (1,), b"-ge": (0, 1),
}  # fmt: skip


def _invert(holds: bool | None) -> bool | None:
    return None if holds is None else not holds
