"""A Python script as text: its syntax from `ast`, with the bytes at which everything stands.

A script has no tree of settings of its own. It carries the one that a framework reads in it (`show`), of the same kinds
of node as every other document.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from cfglint_train.documents.document import (
    BOM,
    Comment,
    Document,
    DocumentError,
    Entry,
    Node,
    Position,
    Route,
    Span,
    decode,
)
from cfglint_train.documents.python.syntax import callee
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.credentials import shortened
from cfglint_train.foundation.python_grammar import parsed
from cfglint_train.foundation.typed import Any, ClassVar, Final, TypeVar

# Python ends a line at each of these; form feeds and Unicode separators do not count.
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BLANK: Final = re.compile(rb"(?:[ \t\f\r\n]|\\\r?\n|#[^\r\n]*)*")

Remedy = Callable[[Route, Any], str]


def _no_remedy(_: Route, __: Any) -> str:
    return ""


Doubts = Callable[["PythonScript", Node], str]


def _no_doubts(_: PythonScript, __: Node) -> str:
    return ""


_Kind = TypeVar("_Kind", bound=ast.AST)


class PythonScript(Document):
    """A Python file. `root` is None until a framework shows what it read (`show`)."""

    syntax: ClassVar[str] = "python"

    def __init__(self, path: str, source: bytes) -> None:
        """Raises DocumentError where the text is not UTF-8 or not Python."""
        super().__init__(path, source)
        self._starts: list[int] | None = None
        self._uses: dict[str, int] | None = None
        self._nodes: dict[type[ast.AST], list[Any]] | None = None
        self.remedy: Remedy = _no_remedy
        self._doubts: Doubts = _no_doubts
        text = decode(source)
        try:
            self.module = parsed(text)
        except SyntaxError as error:
            raise DocumentError(
                f"not Python: {error.msg}", Position(max(1, error.lineno or 1), max(1, error.offset or 1))
            ) from None
        except (RecursionError, MemoryError):
            raise DocumentError("not Python that can be read: nested too deeply") from None
        except ValueError as error:
            raise DocumentError(f"not Python: {error}") from None

    def show(self, root: Node | None, remedy: Remedy = _no_remedy, doubts: Doubts = _no_doubts) -> None:
        """Take the tree that a framework reads in this script, how it names a launch-time override, and what makes a
        value uncertain.
        """
        self.root = root
        self.remedy = remedy
        self._doubts = doubts

    def entry(self, route: Route) -> Entry | None:
        """As in the base class, or what another call states."""
        found = super().entry(route)
        if found is None and route:
            owner = super().node(route[:-1])
            part = owner.parts.get(str(route[-1])) if isinstance(owner, Record) else None
            return None if part is None else part.entry
        return found

    def node(self, route: Route) -> Node | None:
        """As in the base class, or what another call states."""
        found = super().node(route)
        if found is None and route:
            entry = self.entry(route)
            return None if entry is None else entry.value
        return found

    def assumed(self, route: Route) -> str:
        """As in the base class."""
        node = self.node(route)
        return "" if node is None else self._doubts(self, node)

    def spelling(self, route: Route) -> Route:
        """As in the base class."""
        above = self.node(route[:-1])
        part = above.parts.get(str(route[-1])) if isinstance(above, Record) else None
        return route if part is None or not part.name else (*route[:-1], part.name)

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> Span:
        """The bytes of a syntax node (enclosing parentheses are not part of it)."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(self._offset(node.lineno, node.col_offset), self._offset(end_line, end_column))

    def _offset(self, line: int, column: int) -> int:
        if self._starts is None:
            first = len(BOM) if self.source.startswith(BOM) else 0
            self._starts = [first, *(match.end() for match in _LINE_END.finditer(self.source))]
        return self._starts[line - 1] + column

    def key_span(self, keyword: ast.keyword) -> Span:
        """The name of a keyword argument."""
        start = self._offset(keyword.lineno, keyword.col_offset)
        return Span(start, start + len((keyword.arg or "**").encode()))

    def brackets(self, call: ast.Call) -> Span:
        """A call's parentheses, both included."""
        at = self.span(call.func).end
        # Parentheses around the callee close before the call's own opens.
        while True:
            at = _BLANK.match(self.source, at).end()  # type: ignore[union-attr]
            if self.source[at : at + 1] != b")":
                break
            at += 1
        return Span(at, self.span(call).end)

    def item(self, node: ast.expr | ast.keyword, brackets: Span) -> Span:
        """An argument with the parentheses around it."""
        return self.item_at(self.span(node), brackets)

    def item_at(self, span: Span, brackets: Span) -> Span:
        """The span of an item between brackets, with the parentheses around the item."""
        end, closing = span.end, 0
        while True:
            at = _BLANK.match(self.source, end).end()  # type: ignore[union-attr]
            if self.source[at : at + 1] != b")" or at >= brackets.end - 1:
                break
            end, closing = at + 1, closing + 1
        start = span.start
        # A keyword argument opens its parentheses behind its name, inside its own span.
        if not re.match(rb"[A-Za-z_]\w*\s*=(?!=)|\*\*", self.source[start:end]):
            for _ in range(closing):
                start = self.source.rindex(b"(", brackets.start, start)
        return Span(start, end)

    def cut(self, span: Span) -> str:
        """The text of a span on one line, shortened where it is long."""
        return shortened(" ".join(self.text(span).split()), 60)

    def whole(self, span: Span) -> Span:
        """A span, or the smallest argument, expression or statement around it where it ends inside of one, as behind
        the name of `arguments["max_length"] = 512`.
        """
        text = self.text(span)
        if any(map(_is_whole, (text, f"f({text})", f"{{{text}}}"))):
            return span
        around = (
            self.span(node) for node in ast.walk(self.module) if isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        )
        holding = (one for one in around if one.start <= span.start and span.end <= one.end)
        return min(holding, key=lambda one: one.end - one.start, default=span)

    def comments(self) -> list[Comment]:
        """Every comment of the text, in order."""
        if b"#" not in self.source:
            return []
        import io
        import tokenize

        shift = len(BOM) if self.source.startswith(BOM) else 0
        lines = _LINE_END.split(self.source[shift:])
        starts = [shift, *(match.end() for match in _LINE_END.finditer(self.source))]
        text = io.BytesIO(b"".join(line + b"\n" for line in lines))
        found = []
        try:
            for token in tokenize.tokenize(text.readline):
                if token.type == tokenize.COMMENT:
                    line, column = token.start
                    start = starts[line - 1] + len(lines[line - 1].decode("utf-8")[:column].encode("utf-8"))
                    body = token.string.rstrip("\r\n")
                    found.append(Comment(Span(start, start + len(body.encode("utf-8"))), body))
        except (tokenize.TokenError, SyntaxError):
            pass
        return found

    def blocks(self) -> Iterator[Span]:
        """As in the base class: strings."""
        strings = [*self.nodes(ast.JoinedStr), *(one for one in self.nodes(ast.Constant) if isinstance(one.value, str))]
        last = 0
        for one in sorted(strings, key=lambda one: (one.lineno, one.col_offset)):
            if one.lineno < (one.end_lineno or one.lineno) and one.lineno > last:
                last = one.end_lineno or one.lineno
                yield self.span(one)

    def nodes(self, kind: type[_Kind]) -> list[_Kind]:
        """The syntax nodes of a kind, in the order of `ast.walk`, which is slow and so is called once."""
        if self._nodes is None:
            self._nodes = {}
            for node in ast.walk(self.module):
                self._nodes.setdefault(type(node), []).append(node)
        return self._nodes.get(kind, [])

    def calls(self, *names: str) -> list[ast.Call]:
        """The calls in the text whose callee ends in one of these names, in order."""
        return sorted((node for node in self.nodes(ast.Call) if callee(node) in names), key=self.span)

    def classes(self, name: str) -> list[ast.ClassDef]:
        """The classes of a name that the text defines, be it in a function."""
        return [node for node in self.nodes(ast.ClassDef) if node.name == name]

    def keyword_groups(self) -> Iterator[frozenset[str]]:
        """The names of the keyword arguments of every call."""
        for node in self.nodes(ast.Call):
            if node.keywords:
                yield frozenset(keyword.arg for keyword in node.keywords if keyword.arg is not None)

    def imports(self) -> Iterator[str]:
        """The modules that the file imports, in full."""
        for plain in self.nodes(ast.Import):
            yield from (alias.name for alias in plain.names)
        for node in self.nodes(ast.ImportFrom):
            if not node.level and node.module:
                yield node.module

    def uses(self, name: str) -> int:
        """How often a name occurs in the text as a variable, its assignments included."""
        if self._uses is None:
            self._uses = {}
            for node in self.nodes(ast.Name):
                self._uses[node.id] = self._uses.get(node.id, 0) + 1
        return self._uses.get(name, 0)


def _is_whole(text: str) -> bool:
    """Whether a text can be read by itself."""
    try:
        parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
