"""Edits of Python scripts: values, keyword arguments and imports that a single place in the text determines.

Any other change is refused with a message that names the launch-time override, if there is one.
"""

from __future__ import annotations

import ast
from keyword import iskeyword

from cfglint_train.documents import flow
from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    Edit,
    Node,
    Rename,
    Route,
    Sequence,
    Set,
    Span,
    sort_edits,
)
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.tree import Record, Target, Value, find_condition, is_default
from cfglint_train.documents.writer import find_own_entry, is_identical
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_MAX_LINE: Final = 100


class PythonSource(Frozen):
    """Python source as the value of a change, with its plain value and the imports it needs as (module, name)."""

    text: str
    plain: Any
    imports: tuple[tuple[str, str], ...] = ()


class PythonWriter:
    """Conversion of changes of the settings tree into edits of the script."""

    def __init__(self, document: PythonScript) -> None:
        """Store the document."""
        self.document = document
        self.needed_imports: dict[str, list[str]] = {}

    def write(self, changes: list[Change]) -> list[Edit]:
        """Return the edits of all changes, sorted. Raise `CannotEdit` if a change cannot be made."""
        edits: list[Edit] = []
        for change in changes:
            if isinstance(change, Set):
                edits += self.set(change)
            elif isinstance(change, Delete):
                edits += self.delete(change.route)
            elif isinstance(change, Rename):
                edits += self.rename(change)
            else:
                edits += self.append(change)
        for module, names in self.needed_imports.items():
            edits += self._add_imports(module, names)
        return sort_edits(edits)

    def build_refusal(self, reason: str, change: Set) -> CannotEdit:
        """Return the error for a change: the reason, and the launch-time override with the same effect."""
        value = change.value.plain if isinstance(change.value, PythonSource) else change.value
        remedy = self.document.remedy(change.route, value)
        return CannotEdit(f"{reason}; {remedy}" if remedy else reason)

    def set(self, change: Set) -> list[Edit]:
        """Return the edits that replace the text behind a value or add a keyword argument."""
        parent = self.document.find_node(change.route[:-1])
        if not isinstance(parent, Record):
            raise self.build_refusal("no call in the script accepts it", change)
        name = str(change.route[-1])
        part = parent.parts.get(name)
        entry = find_own_entry(parent, name) if part is None else part.entry
        owner, name = (parent, name) if part is None else (part.record, part.name)
        if owner is not None and owner.is_repeated:
            raise self.build_refusal("one call in the script creates several of these", change)
        if entry is None or (part is not None and is_default(entry.value)):
            return self._insert(owner, name, change)
        node = entry.value
        if not isinstance(change.value, PythonSource) and is_identical(self.document.build_value(node), change.value):
            return []
        condition = find_condition(node)
        if condition is not None:
            raise self.build_refusal(f"it depends on a condition ({condition.text})", change)
        if isinstance(node, Value):
            for target in node.targets:
                text = self._render_target(target, change.value)
                if text is not None:
                    return [Edit(target.span, text)]
        if is_default(node):
            raise self.build_refusal("the library sets it", change)
        raise self.build_refusal(f"the script computes it ({self.document.get_short_text(node.span)})", change)

    def _render_target(self, target: Target, value: Any) -> str | None:
        """Return the text to write at a target for a value, or None if the target cannot hold it."""
        if target.unit:
            is_multiple = type(value) is int and value > 0 and value % target.unit == 0
            return str(value // target.unit) if is_multiple else None
        if target.is_member:
            return value if isinstance(value, str) and value.isidentifier() and not iskeyword(value) else None
        if isinstance(value, PythonSource):
            self._require_imports(value)
            return value.text
        return format_literal(value, self.document.source[target.span.start : target.span.start + 1] == b"'")

    def _require_imports(self, source: PythonSource) -> None:
        for module, name in source.imports:
            if name not in self.needed_imports.setdefault(module, []):
                self.needed_imports[module].append(name)

    def _insert(self, record: Record | None, name: str, change: Set) -> list[Edit]:
        """Return the edits that add a keyword argument.

        The new argument follows the first argument in `beside` that is present, or else the last argument.
        """
        if record is None:
            raise self.build_refusal("no call in the script accepts it", change)
        document, call = self.document, record.call
        if call is None or record.sealed or record.open:
            raise self.build_refusal(record.sealed or record.open or "no call in the script accepts it", change)
        if not name.isidentifier() or iskeyword(name):
            raise self.build_refusal(f"{name!r} is not an argument name", change)
        condition = find_condition(record)
        if condition is not None:
            raise self.build_refusal(f"it depends on a condition ({condition.text})", change)
        if isinstance(change.value, PythonSource):
            self._require_imports(change.value)
            text = change.value.text
        else:
            text = format_literal(change.value)
        brackets, spans, names = self._locate_arguments(call)
        after = next((names.index(beside) for beside in change.beside if beside in names), len(spans) - 1)
        lead = self._get_indent(spans[after]) if spans else ""
        return flow.insert(document, brackets, spans, after, self._wrap_argument(f"{name}={text}", lead))

    def _get_indent(self, span: Span) -> str:
        """Return the white space before an argument that starts its line, or "" if other text precedes it."""
        start = self.document.source.rfind(b"\n", 0, span.start) + 1
        lead = self.document.get_text(Span(start, span.start))
        return "" if lead.strip() else lead

    def _wrap_argument(self, text: str, lead: str) -> str:
        """Return an argument to insert; a call that is too long for its line is broken over several lines."""
        if not lead or len(lead) + len(text) + 1 <= _MAX_LINE or not text.endswith(")"):
            return text
        head, _, arguments = text[:-1].partition("(")
        line = self.document.newline
        return f"{head}({line}{lead}    {arguments}{line}{lead})"

    def _locate_arguments(self, call: ast.Call) -> tuple[Span, list[Span], list[str]]:
        """Return the spans of a call's parentheses and arguments, and the names of the arguments."""
        document = self.document
        if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp):
            raise CannotEdit("its only argument is a generator")
        brackets = document.find_brackets(call)
        items: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        items.sort(key=document.find_span)
        spans = [document.find_item_span(item, brackets) for item in items]
        return brackets, spans, [item.arg or "" if isinstance(item, ast.keyword) else "" for item in items]

    def delete(self, route: Route) -> list[Edit]:
        """Return the edits that remove a keyword argument."""
        owner = self.document.find_node(route[:-1])
        _refuse_part(owner, route)
        if not isinstance(owner, Record) or find_own_entry(owner, str(route[-1])) is None:
            return []
        if owner.call is None or not any(keyword.arg == route[-1] for keyword in owner.call.keywords):
            raise CannotEdit("it is not an argument of a call")
        _, spans, names = self._locate_arguments(owner.call)
        return [flow.delete(self.document, spans, names.index(str(route[-1])))]

    def rename(self, change: Rename) -> list[Edit]:
        """Return the edits that rename a keyword argument."""
        owner = self.document.find_node(change.route[:-1])
        _refuse_part(owner, change.route)
        entry = owner.get(str(change.route[-1])) if isinstance(owner, Record) else None
        if entry is None:
            return []
        if not change.key.isidentifier() or self.document.get_text(entry.key.span) != change.route[-1]:
            raise CannotEdit("it is not an argument of a call")
        return [Edit(entry.key.span, change.key)]

    def append(self, change: Append) -> list[Edit]:
        """Return the edits that add an item to a literal list."""
        node = self.document.find_node(change.route)
        if not isinstance(node, Sequence) or self.document.source[node.span.start : node.span.start + 1] != b"[":
            raise CannotEdit("its value is not a literal list in the script")
        spans = [self.document.widen_item_span(item.span, node.span) for item in node.items]
        return flow.insert(self.document, node.span, spans, len(spans) - 1, format_literal(change.value))

    def _add_imports(self, module: str, names: list[str]) -> list[Edit]:
        """Return the edits that import names from a module, in an existing import if possible."""
        document = self.document
        imported = {
            alias.asname or alias.name: (node, alias) for node in _list_imports(document) for alias in node.names
        }
        missing = []
        for name in names:
            if name not in imported:
                if document.count_uses(name):
                    raise CannotEdit(f"the script uses this name for something else: {name}")
                missing.append(name)
        if not missing:
            return []
        for node in _list_imports(document):
            if node.module == module and not node.level and all(alias.name != "*" for alias in node.names):
                edits = self._extend_import(node, missing)
                if edits is not None:
                    return edits
        return [self._insert_import(f"from {module} import {', '.join(missing)}", module)]

    def _extend_import(self, node: ast.ImportFrom, names: list[str]) -> list[Edit] | None:
        """Return the edits that add names to an import, or None if its line would become too long."""
        document = self.document
        spans = [document.find_span(alias) for alias in node.names]
        imported = [alias.name for alias in node.names]
        lead = document.source[document.find_span(node).start : spans[0].start]
        edits: list[Edit] = []
        if b"(" not in lead:
            width = document.locate(document.find_span(node).end).column + sum(len(name) + 2 for name in names)
            if width > _MAX_LINE:
                return None
        start = document.find_span(node).start + lead.rfind(b"(")
        brackets = (
            Span(start, document.find_span(node).end) if b"(" in lead else Span(spans[0].start - 1, spans[-1].end + 1)
        )
        for name in sorted(names):
            preceding = [index for index, other in enumerate(imported) if other < name]
            ordered_list = imported == sorted(imported)
            if ordered_list and not preceding:
                gap = document.get_text(Span(brackets.start + 1, spans[0].start))
                edits.append(Edit(Span(spans[0].start, spans[0].start), f"{name},{gap if chr(10) in gap else ' '}"))
            else:
                after = preceding[-1] if ordered_list else len(imported) - 1
                edits += flow.insert(document, brackets, spans, after, name)
        return edits

    def _insert_import(self, line: str, module: str) -> Edit:
        """Return the edit that inserts an import, in alphabetical order among the imports of the same package."""
        document = self.document
        top = [node for node in document.module.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        package = module.split(".")[0]
        siblings = [
            node for node in _list_imports(document) if not node.level and (node.module or "").split(".")[0] == package
        ]
        preceding = [node for node in siblings if (node.module or "") <= module]
        if siblings and not preceding:
            start = document.find_span(siblings[0]).start
            return Edit(Span(start, start), line + document.newline)
        anchors = preceding or top
        if not anchors:
            raise CannotEdit("the script has no import statement to extend")
        end = document.find_line_end(document.find_span(anchors[-1]).end)
        return Edit(Span(end, end), document.newline + line)


def _refuse_part(owner: Node | None, route: Route) -> None:
    """Raise `CannotEdit` for a setting of another call, because removing or renaming it has a different effect."""
    part = owner.parts.get(str(route[-1])) if isinstance(owner, Record) else None
    if part is not None and part.entry is not None:
        raise CannotEdit("another call in the script accepts it")


def _list_imports(document: PythonScript) -> list[ast.ImportFrom]:
    return [node for node in document.module.body if isinstance(node, ast.ImportFrom)]


def format_literal(value: Any, single: bool = False) -> str:
    """Return a plain value as a Python literal. Raise `CannotEdit` for a value without a literal."""
    if isinstance(value, str):
        text = ascii(value) if not value.isprintable() else repr(value)
        if single or '"' in text:
            return text
        return '"' + text[1:-1].replace("\\'", "'") + '"'
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(format_literal(item, single) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{format_literal(key, single)}: {format_literal(item, single)}" for key, item in value.items())
            + "}"
        )
    raise CannotEdit(f"{value!r} cannot be written in Python")
