"""Explanations of YAML syntax errors: the place where the broken construct starts, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import yaml

from cfglint_train.documents.document import Document, Mapping, Node, Position, Scalar
from cfglint_train.documents.document import Sequence as List
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

OpenCollections = Sequence[tuple[Mapping | List, list[Node]]]
"""Open collections, innermost last, each with the key whose value has not been read yet."""

_CLOSING_SIGNS: Final = {"[": "]", "{": "}"}
_QUOTES: Final = ("'", '"')

_STARTS: Final = {
    "*": "an alias",
    "&": "an anchor",
    "!": "a tag",
    "|": "a block of text",
    ">": "a block of text",
    "{": "a mapping",
    "[": "a list",
    "%": "a directive",
}
"""Character at the start of a plain value -> the construct that YAML starts there."""

_SCANNED: Final = ("alias", "anchor", "tag", "block scalar")
"""Constructs that a scanner names in the context of an error if a sign starts them."""

_COLLECTION_TOKEN: Final = compile_on_use(r"""(?<![^\s,\[{:])(?:"(?:\\.|[^"\\])*"|'[^']*')|(?<!\S)\#[^\n]*|[\[\]{}]""")
"""Quoted text and comments, which are skipped, and the signs around lists and mappings."""


class Fault(Frozen):
    """An explanation of a syntax error."""

    message: str = ""
    """Message that replaces the parser's, or "" if that one says enough."""
    position: Position | None = None
    """Start of the construct, or None if the error is at the fault itself."""
    help: str | None = None


def explain(error: Exception, message: str, stop: Position, stack: OpenCollections, text: str, source: bytes) -> Fault:
    """Return the explanation of a parser's error at `stop`, given the collections that are open there."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return Fault()
    problem, context = error.problem or "", error.context or ""
    locate = Document("", source).locate
    if problem.startswith("found unexpected ") and "quoted scalar" in context and error.context_mark is not None:
        start = Position(error.context_mark.line + 1, error.context_mark.column + 1)
        return Fault(f"the quote is not closed: {message} on line {stop.line}", start, "close the quote")
    if problem.startswith("could not find expected ':'") and error.context_mark is not None:
        start = Position(error.context_mark.line + 1, error.context_mark.column + 1)
        return Fault(
            f"{message} after the key", start, "add `: ` and a value, or indent the line if it continues a value"
        )
    last = _find_last_node(*stack[-1]) if stack else None
    if isinstance(last, Scalar) and last.style in _QUOTES:
        start, end = locate(last.span.start), locate(last.span.end)
        if start.line < end.line == stop.line:
            return Fault(
                f"the quote is only closed on line {end.line}: {message}", start, "close the quote on its own line"
            )
        if end.line == stop.line and end.column <= stop.column and _is_in_block(stack):
            return Fault(help="quote the whole value: text follows the closing quote")
    fault = _explain_open_collection(message, stop, stack, source, locate)
    return fault or Fault(help=_find_remedy(error, last, text, stop, locate))


def _explain_open_collection(
    message: str, stop: Position, stack: OpenCollections, source: bytes, locate: Callable[[int], Position]
) -> Fault | None:
    """Return the explanation of an error inside `[` or `{`, or None if the error is outside."""
    for node, _ in reversed(stack):
        sign = source[node.span.start : node.span.start + 1].decode("utf-8", "replace")
        if not node.is_flow or sign not in _CLOSING_SIGNS:
            continue
        start, closing = locate(node.span.start), _CLOSING_SIGNS[sign]
        if _is_closed(source[node.span.start :].decode("utf-8", "replace")):
            return Fault(f"{message} after the `{sign}` on line {start.line}", help="put a comma between the items")
        return Fault(
            f"the `{sign}` is not closed: {message} on line {stop.line}",
            start,
            f"close it with `{closing}`, or quote the value if it is text",
        )
    return None


def _is_closed(text: str) -> bool:
    """Return whether the `[` or `{` at the start of a text has its counterpart."""
    expected: list[str] = []
    for sign in _COLLECTION_TOKEN.findall(text):
        if sign in _CLOSING_SIGNS:
            expected.append(_CLOSING_SIGNS[sign])
        elif sign in ("]", "}") and expected.pop() != sign:
            return False
        if not expected:
            return True
    return False


def _is_in_block(stack: OpenCollections) -> bool:
    return not any(node.is_flow for node, _ in stack)


def _find_remedy(
    error: yaml.MarkedYAMLError, last: Node | None, text: str, stop: Position, locate: Callable[[int], Position]
) -> str | None:
    """Return the remedy for an error outside `[` and `{`, or None if no remedy is known."""
    problem, context = error.problem or "", error.context or ""
    line = _get_line(text, stop.line)
    before = line[: stop.column - 1]
    if "could not determine a constructor for the tag" in problem:
        return "quote the value: `!` starts a tag"
    if "mapping values are not allowed" in problem:
        if re.search(r"\S:\s", before):
            return "quote the value: `: ` starts a mapping"
        return "indent the key like the keys above it"
    if "sequence entries are not allowed" in problem:
        return "put the list on lines of its own, or quote the value: `- ` starts a list"
    if "cannot start any token" in problem:
        sign = line[stop.column - 1 : stop.column]
        shown = "a backtick" if sign == "`" else f"`{sign}`"
        return "replace the tab by spaces" if sign == "\t" else f"quote the value: it cannot start with {shown}"
    if any(f"scanning {article}{name}" in context for name in _SCANNED for article in ("a ", "an ")):
        mark = error.context_mark
        sign = "" if mark is None else _get_line(text, mark.line + 1)[mark.column : mark.column + 1]
        return f"quote the value: `{sign}` starts {_STARTS[sign]}" if sign in _STARTS else None
    if isinstance(last, (Mapping, List)) and last.is_flow and locate(last.span.end).line == stop.line:
        sign = "{" if isinstance(last, Mapping) else "["
        return f"quote the value: `{sign}` starts {_STARTS[sign]}"
    return None


def _get_line(text: str, number: int) -> str:
    lines = text.split("\n", number)
    return lines[number - 1] if number <= len(lines) else ""


def _find_last_node(node: Mapping | List, pending_keys: Iterable[Node]) -> Node | None:
    """Return the last node of an open collection, or None if the collection is empty."""
    for key in pending_keys:
        return key
    if isinstance(node, List):
        return node.items[-1] if node.items else None
    return node.entries[-1].value if node.entries else None
