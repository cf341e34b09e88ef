"""Python scripts: their syntax tree from `ast`, with byte offsets.

A script has no settings tree of its own. A framework attaches the tree that it reads from the script (`attach_tree`);
its nodes are of the same kinds as in every other document.
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
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import Record, Value, find_file_step, is_default
from cfglint_train.foundation.credentials import shorten
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.python_grammar import parse_python
from cfglint_train.foundation.typed import Any, ClassVar, Final, TypeVar

# Python's line endings; form feeds and Unicode separators do not end a line.
_LINE_END: Final = compile_on_use(rb"\r\n|\r|\n")
_BLANK: Final = compile_on_use(rb"(?:[ \t\f\r\n]|\\\r?\n|#[^\r\n]*)*")

_NAMED: Final = ("constant", "parameter", "option")
"""Steps from a name to the expression that it stands for."""

Remedy = Callable[[Route, Any], str]


def _return_no_remedy(_: Route, __: Any) -> str:
    return ""


Doubts = Callable[["PythonScript", Node], str]


def _return_no_doubt(_: PythonScript, __: Node) -> str:
    return ""


_Kind = TypeVar("_Kind", bound=ast.AST)


class PythonScript(Document):
    """A Python file. `root` is None until a framework attaches the tree that it reads (`attach_tree`)."""

    syntax: ClassVar[str] = "python"

    def __init__(self, path: str, source: bytes) -> None:
        """Parse the source. Raise `DocumentError` if it is not UTF-8 or not Python."""
        super().__init__(path, source)
        self._starts: list[int] | None = None
        self._uses: dict[str, int] | None = None
        self._nodes: dict[type[ast.AST], list[Any]] | None = None
        self.modules: dict[tuple[str, bytes], PythonScript | None] = {}
        """Modules of the repository that it imports, by path and source; those that they import share the dictionary.
        """
        self.awaits_file = False
        """True if the script reads a settings file that only a launch names."""
        self.launches: tuple[tuple[str, ...], ...] = ()
        """Words that launches pass to the script, if they name the settings file."""
        self.remedy: Remedy = _return_no_remedy
        self._doubts: Doubts = _return_no_doubt
        text = decode(source)
        try:
            self.module = parse_python(text)
        except SyntaxError as error:
            raise DocumentError(
                f"not Python: {error.msg}", Position(max(1, error.lineno or 1), max(1, error.offset or 1))
            ) from None
        except (RecursionError, MemoryError):
            raise DocumentError("unreadable Python: nested too deeply") from None
        except ValueError as error:
            raise DocumentError(f"not Python: {error}") from None

    def copy_for(self, importer: PythonScript) -> PythonScript:
        """Return a copy of a freshly parsed module for a script that imports it; both share the syntax tree."""
        module = object.__new__(type(self))
        module.__dict__.update(self.__dict__)
        module.modules = importer.modules
        return module

    def attach_tree(
        self, root: Node | None, remedy: Remedy = _return_no_remedy, doubts: Doubts = _return_no_doubt
    ) -> None:
        """Store the tree that a framework reads from this script.

        `remedy` formats the launch-time override of a setting, `doubts` the reason why a value is uncertain.
        """
        self.root = root
        self.remedy = remedy
        self._doubts = doubts

    def find_entry(self, route: Route) -> Entry | None:
        """Return the entry at `route`, even if another call of the script sets it."""
        entry = super().find_entry(route)
        if entry is None and route:
            owner = super().find_node(route[:-1])
            part = owner.parts.get(str(route[-1])) if isinstance(owner, Record) else None
            return None if part is None else part.entry
        return entry

    def find_node(self, route: Route) -> Node | None:
        """Return the node at `route`, even if another call of the script sets it."""
        node = super().find_node(route)
        if node is None and route:
            entry = self.find_entry(route)
            return None if entry is None else entry.value
        return node

    def get_assumption(self, route: Route) -> str:
        """Return the reason why the value at `route` is uncertain, or ""."""
        node = self.find_node(route)
        return "" if node is None else self._doubts(self, node)

    def locate_entry(self, entry: Entry) -> tuple[Document, Span]:
        """Return where a user edits a setting; a settings file that the script reads comes first."""
        step = find_file_step(entry.value)
        return super().locate_entry(entry) if step is None or step.document is None else (step.document, step.span)

    def list_spans(self, entry: Entry) -> list[Span]:
        """Return the spans of the key, of the value, which may be elsewhere, and of the constants that it names.

        A value that the library fills in has none.
        """
        key, value = entry.key.span, entry.value.span
        if key == value and is_default(entry.value):
            return []
        if value.start <= key.start < value.end:
            return [key]  # the value is what a call with this argument returns
        if self.source[key.end : value.start].strip() in (b"=", b":"):
            key = Span(key.start, value.start)
        spans = [key, value]
        for step in entry.value.how if isinstance(entry.value, Value) else ():
            is_name = self.get_text(spans[-1]).replace(".", "_").isidentifier()
            if not is_name or step.kind not in _NAMED or step.document is not None:
                break
            spans.append(step.span)
        return spans

    def locate_key(self, entry: Entry) -> tuple[Document, Span]:
        """Return where the key of a setting is written: in a settings file if `**` unpacks the file's mapping."""
        step = find_file_step(entry.value)
        if step is None or step.document is None or self.get_text(entry.key.span).strip("\"'") == entry.name:
            return self, entry.key.span
        text = step.document.get_text(step.span)
        length = len((entry.name or "").encode()) + 2 * text.startswith(("'", '"'))
        return step.document, Span(step.span.start, step.span.start + length)

    def get_spelled_route(self, route: Route) -> Route:
        """Return the route, spelled with the argument name of the call that accepts the setting."""
        parent = self.find_node(route[:-1])
        part = parent.parts.get(str(route[-1])) if isinstance(parent, Record) else None
        return route if part is None or not part.name else (*route[:-1], part.name)

    def find_span(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> Span:
        """Return the span of a syntax node, without enclosing parentheses."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(self._find_offset(node.lineno, node.col_offset), self._find_offset(end_line, end_column))

    def _find_offset(self, line: int, column: int) -> int:
        if self._starts is None:
            first = len(BOM) if self.source.startswith(BOM) else 0
            self._starts = [first, *(match.end() for match in _LINE_END.finditer(self.source))]
        return self._starts[line - 1] + column

    def find_key_span(self, keyword: ast.keyword) -> Span:
        """Return the span of the name of a keyword argument."""
        start = self._find_offset(keyword.lineno, keyword.col_offset)
        return Span(start, start + len((keyword.arg or "**").encode()))

    def find_brackets(self, call: ast.Call) -> Span:
        """Return the span of a call's parentheses, both included."""
        at = self.find_span(call.func).end
        # Parentheses around the callee close before the call's own open.
        while True:
            at = _BLANK.match(self.source, at).end()  # type: ignore[union-attr]
            if self.source[at : at + 1] != b")":
                break
            at += 1
        return Span(at, self.find_span(call).end)

    def find_item_span(self, node: ast.expr | ast.keyword, brackets: Span) -> Span:
        """Return the span of an argument, including the parentheses around it."""
        return self.widen_item_span(self.find_span(node), brackets)

    def widen_item_span(self, span: Span, brackets: Span) -> Span:
        """Return the span of an item between brackets, including the parentheses around the item."""
        end, closing = span.end, 0
        while True:
            at = _BLANK.match(self.source, end).end()  # type: ignore[union-attr]
            if self.source[at : at + 1] != b")" or at >= brackets.end - 1:
                break
            end, closing = at + 1, closing + 1
        start = span.start
        # The parentheses of a keyword argument open after its name, inside its span.
        if not re.match(rb"[A-Za-z_]\w*\s*=(?!=)|\*\*", self.source[start:end]):
            for _ in range(closing):
                start = self.source.rindex(b"(", brackets.start, start)
        return Span(start, end)

    def get_short_text(self, span: Span) -> str:
        """Return the text of a span on one line, shortened if it is long."""
        return shorten(" ".join(self.get_text(span).split()), 60)

    def widen_to_node(self, span: Span) -> Span:
        """Return the span, or the smallest syntax node around it if its text does not parse on its own.

        Example: a span that ends after the key of `arguments["max_length"] = 512`.
        """
        text = self.get_text(span)
        if any(map(_is_parsable, (text, f"f({text})", f"{{{text}}}"))):
            return span
        spans = (
            self.find_span(node)
            for node in ast.walk(self.module)
            if isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        )
        candidates = (candidate for candidate in spans if candidate.start <= span.start and span.end <= candidate.end)
        return min(candidates, key=lambda candidate: candidate.end - candidate.start, default=span)

    def list_comments(self) -> list[Comment]:
        """Return the comments in order; if the script cannot be tokenized, only those before the error."""
        if b"#" not in self.source:
            return []
        import io
        import tokenize

        shift = len(BOM) if self.source.startswith(BOM) else 0
        lines = _LINE_END.split(self.source[shift:])
        starts = [shift, *(match.end() for match in _LINE_END.finditer(self.source))]
        text = io.BytesIO(b"".join(line + b"\n" for line in lines))
        comments = []
        try:
            for token in tokenize.tokenize(text.readline):
                if token.type == tokenize.COMMENT:
                    line, column = token.start
                    start = starts[line - 1] + len(lines[line - 1].decode("utf-8")[:column].encode("utf-8"))
                    body = token.string.rstrip("\r\n")
                    comments.append(Comment(Span(start, start + len(body.encode("utf-8"))), body))
        except (tokenize.TokenError, SyntaxError):
            pass
        return comments

    def list_blocks(self) -> Iterator[Span]:
        """Yield the spans of multi-line strings."""
        strings = [
            *self.list_nodes(ast.JoinedStr),
            *(node for node in self.list_nodes(ast.Constant) if isinstance(node.value, str)),
        ]
        last = 0
        for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset)):
            if node.lineno < (node.end_lineno or node.lineno) and node.lineno > last:
                last = node.end_lineno or node.lineno
                yield self.find_span(node)

    def list_nodes(self, kind: type[_Kind]) -> list[_Kind]:
        """Return the syntax nodes of a kind in the order of `ast.walk`, which is slow and so runs only once."""
        if self._nodes is None:
            self._nodes = {}
            for node in ast.walk(self.module):
                self._nodes.setdefault(type(node), []).append(node)
        return self._nodes.get(kind, [])

    def find_calls(self, *names: str) -> list[ast.Call]:
        """Return the calls whose callee's last name is in `names`, in source order."""
        return sorted(
            (node for node in self.list_nodes(ast.Call) if get_callee_name(node) in names), key=self.find_span
        )

    def find_classes(self, name: str) -> list[ast.ClassDef]:
        """Return the classes called `name` that the script defines, including those inside functions."""
        return [node for node in self.list_nodes(ast.ClassDef) if node.name == name]

    def list_keyword_groups(self) -> Iterator[frozenset[str]]:
        """Yield the names of the keyword arguments of every call."""
        for node in self.list_nodes(ast.Call):
            if node.keywords:
                yield frozenset(keyword.arg for keyword in node.keywords if keyword.arg is not None)

    def list_imports(self) -> Iterator[str]:
        """Yield the full names of the modules that the script imports absolutely."""
        for import_node in self.list_nodes(ast.Import):
            yield from (alias.name for alias in import_node.names)
        for node in self.list_nodes(ast.ImportFrom):
            if not node.level and node.module:
                yield node.module

    def count_uses(self, name: str) -> int:
        """Return how often a variable occurs in the script, assignments included."""
        if self._uses is None:
            self._uses = {}
            for node in self.list_nodes(ast.Name):
                self._uses[node.id] = self._uses.get(node.id, 0) + 1
        return self._uses.get(name, 0)


def _is_parsable(text: str) -> bool:
    """Return whether a text parses on its own."""
    try:
        parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
