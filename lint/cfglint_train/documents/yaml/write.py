"""Edits of YAML texts in the style of the surrounding lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from cfglint_train.documents import flow
from cfglint_train.documents.document import (
    BOM,
    Alias,
    Append,
    CannotEdit,
    Document,
    Edit,
    Entry,
    Mapping,
    Node,
    Rename,
    Route,
    Scalar,
    Sequence,
    Set,
    Span,
    follow,
    list_scalars,
)
from cfglint_train.documents.writer import Writer, find_own_entry, is_empty, is_identical
from cfglint_train.documents.yaml.dialects import PYYAML, construct_scalar, get_omegaconf_dialect
from cfglint_train.foundation.typed import Any


class YamlWriter(Writer[Document]):
    """Conversion of changes to one YAML document into edits."""

    def set(self, change: Set) -> list[Edit]:
        """Return the edits that replace or insert a value whose parent exists, or fill an empty file."""
        document, route, value = self.document, change.route, change.value
        step = route[-1]
        parent = document.find_node(route[:-1]) if len(route) > 1 else document.root and follow(document.root)
        if parent is None or (isinstance(parent, Scalar) and len(route) == 1 and is_empty(parent)):
            return [self._insert_first_entry(str(step), value)]
        if isinstance(parent, Mapping):
            entry = find_own_entry(parent, str(step))
            if entry is None:
                return self._insert(parent, route[:-1], str(step), value, change.beside)
            after = self._find_value_start(entry)
            return self._replace(entry.value, value, parent.is_flow, self._get_column(entry.key), after)
        if isinstance(parent, Sequence) and isinstance(step, int):
            if step >= len(parent.items):
                raise CannotEdit("its list is too short")
            item = parent.items[step]
            after = self._find_dash(item) + 1
            # A block inside an item is indented more than the item's dash.
            return self._replace(item, value, parent.is_flow, self._get_column(parent) + len("- "), after)
        raise CannotEdit("its parent is not a mapping")

    def _replace(self, node: Node, value: Any, in_flow: bool, column: int, after: int) -> list[Edit]:
        """Return the edits that replace a value.

        In a block, the value starts at `after`, the offset just after the colon of its key or the dash of its item.
        """
        document = self.document
        if is_identical(document.build_value(node), value):
            return []
        if isinstance(node, Alias):
            return [Edit(node.span, self._format_inline(value, in_flow, None))]
        if isinstance(node, Scalar):
            if node.tag is not None:
                raise CannotEdit("its value has an explicit tag")
            start = node.span.start
            if node.is_anchored:
                start += len(re.match(rb"&\S+\s*", document.source[start : node.span.end]).group())  # type: ignore[union-attr]
            collection = isinstance(value, (dict, list)) and value
            if node.span.start == node.span.end and collection and not in_flow:
                return [Edit(node.span, self._format_block(value, column))]
            space = (
                " " if node.span.start == node.span.end and document.source[start - 1 : start] in (b":", b"-") else ""
            )
            return [Edit(Span(start, node.span.end), space + self._format_inline(value, in_flow, node))]
        assert isinstance(node, (Mapping, Sequence))
        if document.source[node.span.start : node.span.start + 1] == b"&":
            raise CannotEdit("its value has an anchor")
        start = node.span.start if node.is_flow else after
        self._refuse_comments(Span(start, node.span.end))
        text = self._format_inline(value, True, None) if node.is_flow else self._format_block(value, column)
        return [Edit(Span(start, node.span.end), text)]

    def _insert(self, mapping: Mapping, route: Route, key: str, value: Any, beside: tuple[str, ...]) -> list[Edit]:
        document = self.document
        remaining = [entry for entry in mapping.entries if (*route, entry.name or "") not in self.deleted_routes]
        if mapping.entries and not remaining:
            raise CannotEdit("all other keys of its section are removed")
        anchor = next(
            (entry for name in beside for entry in remaining if entry.name == name),
            remaining[-1] if remaining else None,
        )
        if mapping.is_flow:
            spans = [entry.span for entry in mapping.entries]
            after = mapping.entries.index(anchor) if anchor is not None else -1
            text = f"{self._format_key(key, True)}: {self._format_inline(value, True, None)}"
            return flow.insert(document, mapping.span, spans, after, text, self.record_insertion(mapping.span, after))
        assert anchor is not None
        column = self._get_column(mapping.entries[0].key)
        at = document.find_line_end(anchor.span.end)
        text = self._format_entry((*route, key), value, column)
        return [Edit(Span(at, at), document.newline + text)]

    def _insert_first_entry(self, key: str, value: Any) -> Edit:
        document = self.document
        end = len(document.source)
        lead = "" if end == 0 or document.source.endswith((b"\n", BOM)) else document.newline
        return Edit(Span(end, end), lead + self._format_entry((key,), value, 0) + document.newline)

    def append(self, change: Append) -> list[Edit]:
        """Return the edits that add an item to an existing list."""
        document = self.document
        node = document.find_node(change.route)
        if not isinstance(node, Sequence):
            raise CannotEdit("its value is not a list")
        if node.is_flow:
            text = self._format_inline(change.value, True, None)
            items = [item.span for item in node.items]
            last = len(items) - 1
            return flow.insert(document, node.span, items, last, text, self.record_insertion(node.span, last))
        column = self._get_column(node)
        at = document.find_line_end(node.span.end)
        item = self._format_inline(change.value, False, None)
        return [Edit(Span(at, at), f"{document.newline}{' ' * column}- {item}")]

    def delete(self, route: Route) -> list[Edit]:
        """Return the edits that remove a key or an item."""
        document = self.document
        parent = document.find_node(route[:-1])
        if isinstance(parent, Mapping):
            entries = [entry for entry in parent.entries if entry.name == route[-1]]
            if not entries:
                return []
            if parent.is_flow:
                return [
                    flow.delete(document, [entry.span for entry in parent.entries], parent.entries.index(entry))
                    for entry in entries
                ]
            steps = [entry.name or "" for entry in parent.entries]
            if len(route) > 1 and self._is_emptied(route[:-1], steps):
                empties = route[-1] == steps[0]  # one edit for all keys
                return self._empty(route[:-1], parent, "{}", "it is the only key of a list item") if empties else []
            return [
                self._delete_lines(entry.span, parent.entries.index(entry), [e.span for e in parent.entries])
                for entry in entries
            ]
        if isinstance(parent, Sequence) and isinstance(route[-1], int):
            spans = [item.span for item in parent.items]
            if parent.is_flow:
                return [flow.delete(document, spans, route[-1])]
            if self._is_emptied(route[:-1], range(len(spans))):
                empties = route[-1] == 0  # one edit for all items
                return self._empty(route[:-1], parent, "[]", "the list item would become empty") if empties else []
            spans = [Span(self._find_dash(item), item.span.end) for item in parent.items]
            return [self._delete_lines(spans[route[-1]], route[-1], spans)]
        return []

    def _is_emptied(self, route: Route, steps: Iterable[str | int]) -> bool:
        """Return whether the changes remove all keys or items of a collection."""
        return all((*route, step) in self.deleted_routes for step in steps)

    def _empty(self, route: Route, node: Mapping | Sequence, text: str, refusal: str) -> list[Edit]:
        """Replace a block by the empty collection `text`; raise CannotEdit with `refusal` if no key holds the block."""
        entry = self.document.find_entry(route)
        if entry is None:
            raise CannotEdit(refusal)
        span = Span(self._find_value_start(entry), node.span.end)
        self._refuse_comments(span)
        return [Edit(span, f" {text}")]

    def _find_dash(self, item: Node) -> int:
        """Return the offset of the dash of an item in a block list."""
        return self.document.source.rfind(b"-", 0, item.span.start)

    def _find_value_start(self, entry: Entry) -> int:
        """Return the offset just after the colon of a key."""
        return self.document.source.find(b":", entry.key.span.end) + 1

    def _delete_lines(self, span: Span, index: int, siblings: list[Span]) -> Edit:
        document = self.document
        self._refuse_comments(span)
        line_start = document.source.rfind(b"\n", 0, span.start) + 1
        indent = document.source[line_start : span.start].removeprefix(BOM)
        if indent.strip():
            # This is the first key after "- ", so the next key moves to its place.
            if index + 1 >= len(siblings):
                raise CannotEdit("the list item would become empty")
            self._refuse_comments(Span(span.end, siblings[index + 1].start))
            return Edit(Span(span.start, siblings[index + 1].start), "")
        start = span.start - len(indent)
        end = document.find_line_end(span.end)
        if end < len(document.source):
            return Edit(Span(start, document.source.index(b"\n", end) + 1), "")
        while start > 0 and document.source[start - 1 : start] in (b"\n", b"\r"):
            start -= 1
            if document.source[start : start + 1] == b"\n" and document.source[start - 1 : start] != b"\r":
                break
        return Edit(Span(start, end), "")

    def _refuse_comments(self, span: Span) -> None:
        if any(span.start <= comment.span.start < span.end for comment in self.document.list_comments()):
            raise CannotEdit("it contains comments")

    def rename(self, change: Rename) -> list[Edit]:
        """Return the edits that rename a key."""
        parent = self.document.find_node(change.route[:-1])
        if not isinstance(parent, Mapping):
            return []
        edits = []
        for entry in parent.entries:
            if entry.name == change.route[-1] and isinstance(entry.key, Scalar):
                quote = entry.key.style if entry.key.style in ("'", '"') else ""
                text = f"{quote}{change.key}{quote}" if quote else self._format_key(change.key, parent.is_flow)
                edits.append(Edit(entry.key.span, text))
        return edits

    def _get_column(self, node: Node) -> int:
        """Return the number of characters before a node on its line."""
        return self.document.locate(node.span.start).column - 1

    def _format_entry(self, route: Route, value: Any, column: int) -> str:
        """Format a new entry; `column` is the column of its key."""
        head = f"{' ' * column}{self._format_key(str(route[-1]), False)}:"
        if isinstance(value, (dict, list)) and value:
            return head + self._format_block(value, column, route)
        return f"{head} {self._format_inline(value, False, None)}{self._find_moved_comment(route)}"

    def _find_moved_comment(self, route: Route) -> str:
        """Return the comment at the end of the line of the entry that a new one replaces, with the blanks before it."""
        entry = self.document.find_entry(self.moved_routes[route]) if route in self.moved_routes else None
        if entry is None:
            return ""
        end = entry.value.span.end
        line = self.document.source[end : self.document.find_line_end(end)].decode()
        comment = re.fullmatch(r"[ \t}\]]*?([ \t]+#.*)", line)
        return comment[1] if comment is not None else ""

    def _format_block(self, value: Any, column: int, route: Route = ()) -> str:
        """Format the text after `key:` for a value in block style; `column` is the column of the key."""
        newline = self.document.newline
        if isinstance(value, dict) and value:
            deeper = column + self._mapping_step
            return newline + newline.join(
                self._format_entry((*route, str(key)), item, deeper) for key, item in value.items()
            )
        if isinstance(value, list) and value:
            deeper = column + self._sequence_step
            return newline + newline.join(f"{' ' * deeper}- {self._format_inline(item, False, None)}" for item in value)
        return " " + self._format_inline(value, False, None)

    @property
    def _mapping_step(self) -> int:
        for _, mapping in self.document.list_mappings():
            for entry in mapping.entries:
                if (
                    not mapping.is_flow
                    and isinstance(entry.value, Mapping)
                    and entry.value.entries
                    and not entry.value.is_flow
                ):
                    return max(1, self._get_column(entry.value.entries[0].key) - self._get_column(entry.key))
        return 2

    @property
    def _sequence_step(self) -> int:
        for _, mapping in self.document.list_mappings():
            for entry in mapping.entries:
                if not mapping.is_flow and isinstance(entry.value, Sequence) and not entry.value.is_flow:
                    return max(0, self._get_column(entry.value) - self._get_column(entry.key))
        return 2

    def _format_key(self, key: str, in_flow: bool) -> str:
        return self._format_inline(key, in_flow, None)

    def _format_inline(self, value: Any, in_flow: bool, replaced: Scalar | None) -> str:
        """Format a value on one line; a string keeps the quotes of the scalar that it replaces."""
        if isinstance(value, dict):
            pairs = (
                f"{self._format_inline(str(key), True, None)}: {self._format_inline(item, True, None)}"
                for key, item in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(self._format_inline(item, True, None) for item in value) + "]"
        moved = None if replaced is not None else self._find_moved_text(value, in_flow)
        if moved is not None:
            return moved
        if isinstance(value, str):
            if replaced is not None and replaced.style == "'" and value.isprintable():
                return "'" + value.replace("'", "''") + "'"
            if replaced is not None and replaced.style == '"':
                return _quote_double(value)
            if not self._is_safe_plain(value, in_flow):
                return _quote_double(value)
            return value
        if type(value) in (bool, int):
            return str(value).lower()
        text: str = yaml.safe_dump(value, width=float("inf")).split("\n")[0]
        return text

    def _find_moved_text(self, value: Any, in_flow: bool) -> str | None:
        """Return the text of a deleted scalar with the same value, which keeps its quotes at the new place, or None."""
        deleted = (self.document.find_node(route) for route in sorted(self.deleted_routes, key=str))
        for node in (scalar for removed in deleted for scalar in list_scalars(removed)):
            if node.tag is None and not node.is_anchored and is_identical(self.document.build_value(node), value):
                text = self.document.get_text(node.span)
                if text and text.isprintable() and not (in_flow and not node.style and re.search(r"[,?\[\]{}]", text)):
                    return text
        return None

    def _is_safe_plain(self, text: str, in_flow: bool) -> bool:
        """Return whether both dialects read `text` as the same string if it is written without quotes."""
        if not text or not text.isprintable() or text != text.strip() or text[0] in "-?:,[]{}#&*!|>'\"%@`=<~":
            return False
        if ": " in text or " #" in text or text.endswith(":") or (in_flow and re.search(r"[,?\[\]{}]", text)):
            return False
        return all(
            construct_scalar(Scalar(Span(0, 0), text), dialect) == text for dialect in (PYYAML, get_omegaconf_dialect())
        )


def _quote_double(text: str) -> str:
    """Return the text as a double-quoted YAML scalar on one line."""
    dumped: str = yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True)
    return dumped.rstrip("\n")
