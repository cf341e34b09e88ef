"""Suppression comments: addition of comments that suppress the current findings (`--add-ignore`).

Each comment is read back before it is kept: it must parse as a comment and suppress its findings, and the values in the
file must stay the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_rules import registry
from cfglint_train.documents.document import BOM, Document, DocumentError, Position
from cfglint_train.findings.finding import Finding
from cfglint_train.fixing.loop import Applied, FixOutcome, Refused, build_unchanged
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.suppressions import UNUSED_SUPPRESSION
from cfglint_train.repository import files
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import pragmas

_UNUSED: Final = UNUSED_SUPPRESSION.code
"""Code of the rule on unused suppressions; a comment that suppresses it would itself be unused."""
_INLINE: Final = ("python", "shell", "yaml")
"""Syntaxes that allow a comment after other text on the line."""


class _Candidate(Frozen):
    """A text with one more comment, and the number of lines by which the comment shifts the findings."""

    text: bytes
    shift: int


def add_ignores(
    paths: list[str],
    options: LintOptions,
    sources: Mapping[str, bytes] | None = None,
    is_chosen: Callable[[Finding], bool] = lambda _: True,
) -> FixOutcome:
    """Add a comment for every chosen finding that a comment can suppress. Writes nothing to disk.

    `sources`: texts by path that replace the files on disk. A file in which the comments would cause new findings is
    left unchanged.
    """
    workspace = dispatch.open_workspace(options, sources)
    before = dispatch.lint(workspace, paths, options)
    by_path: dict[str, list[Finding]] = {}
    for finding in (atom for item in before.findings if is_chosen(item) for atom in item.atoms):
        by_path.setdefault(finding.path, []).append(finding)
    originals: dict[str, bytes] = {}
    applied: list[Applied] = []
    refused: list[Refused] = []
    for path, findings in by_path.items():
        document = workspace.documents.read_commented(path)
        source, suppressed = (b"", []) if document is None else _add_comments(document, findings, workspace)
        if document is not None and suppressed:
            originals[path] = document.source
            workspace = workspace.replace_files({path: source})
        for finding in findings:
            if finding in suppressed:
                applied.append(Applied(path, finding.code, f"ignored in line {finding.start.line}", (path,)))
            else:
                refused.append(Refused(path, finding.code, _explain_refusal(finding, document)))
    result = dispatch.lint(workspace, paths, options) if originals else before
    known_findings = {(atom.path, atom.code, atom.message) for finding in before.findings for atom in finding.atoms}
    spoilt_paths = {
        item.path for item in result.findings if (item.path, item.code, item.message) not in known_findings
    } & originals.keys()
    if spoilt_paths:
        workspace = workspace.replace_files({path: originals.pop(path) for path in spoilt_paths})
        refused.extend(_list_undone(applied, spoilt_paths))
        applied = [item for item in applied if item.path not in spoilt_paths]
        result = dispatch.lint(workspace, paths, options)
    if result.is_cut_short:
        return build_unchanged(before, result)
    sources = {path: workspace.sources.texts[path] for path in originals}
    return FixOutcome(sources, originals, tuple(applied), tuple(refused), result)


def _list_undone(applied: Iterable[Applied], spoilt_paths: set[str]) -> Iterator[Refused]:
    reason = "the comments would change the findings in this file"
    return (Refused(fix.path, fix.code, reason) for fix in applied if fix.path in spoilt_paths)


def _explain_refusal(finding: Finding, document: Document | None) -> str:
    """Return the reason why no comment can suppress a finding."""
    if finding.code == _UNUSED:
        return "remove the unused comment, or run `cfglint --fix`"
    extension = os.path.splitext(finding.path)[1].lower()
    if files.SYNTAXES.get(extension) == "json" or (document is not None and document.syntax == "json"):
        return "JSON has no comments"
    if extension == ".ipynb":
        return "a notebook has no comments"
    if document is None and finding.place is None:
        return "the file cannot be read, so a comment in it has no effect"
    return "no comment can be written there"


def _add_comments(document: Document, findings: list[Finding], workspace: Workspace) -> tuple[bytes, list[Finding]]:
    """Return the text with comments, and the findings that they suppress.

    Comments go above or at the end of the findings' lines if possible, otherwise to the top of the file.
    """
    source = document.source
    suppressed: list[Finding] = []
    if document.syntax == "json":
        return source, suppressed
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.code != _UNUSED:
            by_line.setdefault(document.find_extent(finding.start.line)[0], []).append(finding)
    remaining: list[Finding] = []
    suppression_count = len(pragmas.read_pragmas(document).suppressions)
    for line in sorted(by_line, reverse=True):  # from the end, so that earlier lines keep their numbers
        line_findings = by_line[line]
        candidates = (
            _list_line_candidates(document, source, line, _list_codes(line_findings))
            if suppression_count + len(by_line) < dispatch.MAX_SUPPRESSIONS
            else ()
        )
        text = next(
            (
                candidate.text
                for candidate in candidates
                if _is_effective(document, source, candidate, line_findings, workspace)
            ),
            None,
        )
        if text is None:
            remaining += line_findings
        else:
            source = text
            suppressed += line_findings
    if remaining:
        file_candidate = _add_file_comment(source, _list_codes(remaining))
        if _is_effective(document, source, file_candidate, remaining, workspace):
            return file_candidate.text, suppressed + remaining
    return source, suppressed


def _list_codes(findings: Iterable[Finding]) -> str:
    return ", ".join(sorted({finding.code for finding in findings}))


def _list_line_candidates(document: Document, source: bytes, line: int, codes: str) -> Iterator[_Candidate]:
    """Yield the text with a comment above a line, then with a comment at its end if the syntax allows that."""
    lines = source.splitlines(keepends=True)
    line_bytes = lines[line - 1] if line <= len(lines) else b""
    bom = BOM if line == 1 and line_bytes.startswith(BOM) else b""
    bare = line_bytes.removeprefix(bom)
    if line == 1 and bare.startswith(b"#!"):
        return  # the first line names the interpreter
    content = bare.rstrip(b"\r\n")
    above, below = b"".join(lines[: line - 1]), b"".join(lines[line:])
    comment = f"# cfglint: ignore[{codes}]"
    if document.syntax == "markdown":
        comment = f"<!-- {comment.removeprefix('# ')} -->"
    # In a Makefile, a comment in the first column does not end a recipe, and one after a tab is echoed.
    indent = b"" if files.is_makefile(document.path) else content[: len(content) - len(content.lstrip())]
    yield _Candidate(b"".join((above, bom, indent, comment.encode(), _find_line_ending(lines, bare), bare, below)), 1)
    if document.syntax in _INLINE:
        yield _Candidate(b"".join((above, bom, content, b"  ", comment.encode(), bare[len(content) :], below)), 0)


def _add_file_comment(source: bytes, codes: str) -> _Candidate:
    """Return the text with a comment for the whole file, below the comments at its top.

    Those comments may name an interpreter or an encoding, or hold scheduler options.
    """
    bom = BOM if source.startswith(BOM) else b""
    lines = source.removeprefix(bom).splitlines(keepends=True)
    head = next((number for number, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    above = b"".join(lines[:head])
    ending = _find_line_ending(lines, b"")
    start = above if not above or above.endswith(b"\n") else above + ending
    comment = f"# cfglint: file-ignore[{codes}]".encode()
    return _Candidate(b"".join((bom, start, comment, ending, *lines[head:])), 1)


def _find_line_ending(lines: list[bytes], line: bytes) -> bytes:
    """Return the line ending of `line` or, if it has none, of the first line; by default a newline."""
    line_ending = line[len(line.rstrip(b"\r\n")) :]
    return line_ending or (lines[0][len(lines[0].rstrip(b"\r\n")) :] if lines else b"") or b"\n"


def _is_effective(
    document: Document, before: bytes, candidate: _Candidate, findings: list[Finding], workspace: Workspace
) -> bool:
    """Return whether the new comment suppresses the findings and leaves the file's values unchanged."""
    load = workspace.sources.build_reader(document.path)
    try:
        old_document = files.parse_commented(document.path, before, load)
        new_document = files.parse_commented(document.path, candidate.text, load)
        if (
            old_document is None
            or new_document is None
            or repr(old_document.get_value()) != repr(new_document.get_value())
        ):
            return False
    except DocumentError:
        return False
    suppressions, former = (
        pragmas.read_pragmas(new_document).suppressions,
        pragmas.read_pragmas(old_document).suppressions,
    )
    if (
        len(new_document.list_comments()) != len(old_document.list_comments()) + 1
        or len(suppressions) != len(former) + 1
    ):
        return False
    return all(
        any(
            pragmas.find_silencing_codes(
                suppression, finding.code, registry.RULES[finding.code].name, *_shift_position(finding, candidate.shift)
            )
            for suppression in suppressions
        )
        for finding in findings
    )


def _shift_position(finding: Finding, lines: int) -> tuple[Position, Position]:
    start, end = finding.start, finding.end
    return start._replace(line=start.line + lines), end._replace(line=end.line + lines)
