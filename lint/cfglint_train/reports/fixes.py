"""Fixes as reports show them: edits, unless an edit contains a credential, and the lines that change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document, Edit
from cfglint_train.findings.finding import Applicability, FileEdit, Finding, Remedy
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact


class DisplayedFix(Frozen):
    """A fix that is safe to show; without edits it is advice."""

    applicability: Applicability
    message: str
    edits: tuple[FileEdit, ...] = ()


def mask_fix(remedy: Remedy, redact: Redact) -> DisplayedFix:
    """Return a fix without credentials.

    The edits are omitted, with the reason in the message, if one of them contains a credential or cannot be applied.
    """
    if any(redact(edit.edit.text) != edit.edit.text for edit in remedy.edits):
        return DisplayedFix(
            "display", redact(f"{remedy.message} (not shown because it contains a credential; --fix writes it)")
        )
    if remedy.refused is not None:
        return DisplayedFix(
            remedy.applicability, redact(f"{remedy.message} (not applied automatically: {remedy.refused})")
        )
    return DisplayedFix(remedy.applicability, redact(remedy.message), remedy.edits)


def list_own_edits(finding: Finding, findings: Iterable[Finding]) -> tuple[tuple[FileEdit, ...], tuple[str, ...]]:
    """Return the edits of a fix that are its own, and the codes of the vocabulary findings that have the others.

    A fix that changes plan fields also renames the misspelled keys of its run (`findings.draft`), because without them
    the run is another one. Each of these keys has a finding, which shows its rename.
    """
    edits = () if finding.fix is None else finding.fix.edits
    shared: dict[FileEdit, str] = {}
    for other in findings:
        renames = () if other is finding or other.fix is None or other.code[:3] != "KEY" else other.fix.edits
        if len(renames) < len(edits) and set(renames) <= set(edits):
            shared |= dict.fromkeys(renames, other.code)
    return tuple([edit for edit in edits if edit not in shared]), tuple(dict.fromkeys(shared.values()))


class Hunk(Frozen):
    """Whole lines that a fix replaces, including their line endings."""

    path: str
    line: int
    """Number of the first old line, or, if there are no old lines, of the line after the inserted lines."""
    before: tuple[str, ...]
    after: tuple[str, ...]

    def list_changed_lines(self) -> Iterator[tuple[str, str]]:
        """Yield `-` or `+` and the text of each line that changes, in order; a line that stays is not listed."""
        from difflib import SequenceMatcher

        for tag, begin, end, new_begin, new_end in SequenceMatcher(None, self.before, self.after).get_opcodes():
            if tag != "equal":
                yield from (("-", line) for line in self.before[begin:end])
                yield from (("+", line) for line in self.after[new_begin:new_end])


def build_hunks(edits: Iterable[FileEdit], documents: Mapping[str, Document]) -> Iterator[Hunk]:
    """Yield the hunks of the edits, file by file; edits of files that are not in `documents` are skipped."""
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit.edit)
    for path, file_edits in by_path.items():
        if path in documents:
            yield from _build_document_hunks(documents[path], file_edits)


def _build_document_hunks(document: Document, edits: list[Edit]) -> Iterator[Hunk]:
    """Yield the hunks of one document; edits on the same or adjacent lines share a hunk."""
    groups: list[tuple[int, int, list[Edit]]] = []
    for edit in sorted(edits, key=lambda edit: edit.span):
        begin, end = _find_line_span(document, edit)
        if groups and begin <= groups[-1][1]:
            first, last, group = groups[-1]
            groups[-1] = (first, max(last, end), [*group, edit])
        else:
            groups.append((begin, end, [edit]))
    for begin, end, group in groups:
        text = document.source[begin:end]
        for edit in reversed(group):
            text = (
                text[: edit.span.start - begin] + edit.text.encode("utf-8", "replace") + text[edit.span.end - begin :]
            )
        line = document.locate(begin).line
        yield Hunk(document.path, line, _split_lines(document.source[begin:end]), _split_lines(text))


def _find_line_span(document: Document, edit: Edit) -> tuple[int, int]:
    """Return the byte span of the lines that an edit touches, which is empty if it only inserts whole lines."""
    source, (start, end) = document.source, edit.span
    begin = source.rfind(b"\n", 0, start) + 1
    if start == begin and (source[end - 1 : end] == b"\n" if end > start else edit.text.endswith("\n")):
        return begin, end
    newline = source.find(b"\n", end)
    return begin, newline + 1 if newline >= 0 else len(source)


def _split_lines(text: bytes) -> tuple[str, ...]:
    *whole, last = text.decode("utf-8-sig", "replace").split("\n")
    return (*(f"{line}\n" for line in whole), *([last] if last else []))
