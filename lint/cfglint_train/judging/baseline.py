"""The baseline: findings that a repository has accepted for now, in a file next to its settings.

An entry matches a finding by rule, file and the text of the line, not by line number, so the line may move within the
file. If the file was renamed, the rule and the text are enough. Rewriting a baseline removes the entries that no
finding matches and adds none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document, DocumentError, Position
from cfglint_train.documents.line_text import get_line_text
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.one_disease import keep
from cfglint_train.settings.files import DISK, Files

_VERSION: Final = 1
_MAX_BYTES: Final = 2**26
_MAX_LINE_CHARACTERS: Final = 120
"""Longer lines are cut; this is enough to recognize the line and keeps the file readable."""

EntryKey = tuple[str, str, str]
"""Path relative to the baseline's folder (with forward slashes), rule code, text of the line."""


class BaselineError(UsageError):
    """An unusable baseline; the message names the file and the place."""


class StaleEntry(Frozen):
    """An entry that accepts more findings than the lint reports."""

    path: str
    code: str
    line: str
    missing: int
    """Number of accepted findings that no longer exist."""


class Baseline(Frozen):
    """Accepted findings, each with its count."""

    path: str
    """Absolute path of the file."""
    accepted: Mapping[EntryKey, int]

    @property
    def root(self) -> str:
        """Base folder of the entries' relative paths."""
        return os.path.dirname(self.path)


class BaselineComparison(Frozen):
    """Findings of a lint, compared with a baseline."""

    new: tuple[Finding, ...]
    accepted: tuple[Finding, ...]
    stale: tuple[StaleEntry, ...]
    entries: Mapping[EntryKey, int]
    """Entries of the baseline without the stale ones, under the current paths."""
    path: str
    """Absolute path of the baseline file."""
    has_renames: bool = False
    """True if files with accepted findings were renamed."""

    @property
    def missing(self) -> int:
        """Number of accepted findings that no longer exist."""
        return sum(entry.missing for entry in self.stale)


def load_baseline(path: str, files: Files = DISK) -> Baseline:
    """Read a baseline through `files`; raise `BaselineError` with the place of the mistake."""
    absolute = os.path.abspath(path)
    path = os.path.relpath(absolute)
    try:
        source = files.read(absolute)
    except FileNotFoundError as error:
        raise BaselineError(f"{path}: {error.strerror or error}; `cfglint --write-baseline` writes it") from None
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None
    if len(source) > _MAX_BYTES:
        raise BaselineError(f"{path}: larger than {_MAX_BYTES >> 20} MiB; this is not a baseline")
    import json

    try:
        stored = json.loads(source)
    except json.JSONDecodeError as error:
        raise BaselineError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path}: not valid JSON: {error}") from None
    if (
        not isinstance(stored, dict)
        or stored.get("version") != _VERSION
        or not isinstance(stored.get("findings"), list)
    ):
        raise BaselineError(f'{path}:1:1: not a baseline; expected {{"version": {_VERSION}, "findings": [...]}}')
    accepted: Counter[EntryKey] = Counter()
    for number, entry in enumerate(stored["findings"]):
        if not _is_entry(entry):
            line, column = _find_entry_position(path, source, number)
            raise BaselineError(
                f'{path}:{line}:{column}: an entry needs the texts "path", "code" and "line" and a "count"'
            )
        accepted[entry["path"], entry["code"], entry["line"]] += entry["count"]
    return Baseline(absolute, accepted)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"path", "code", "line", "count"}:
        return False
    texts = all(isinstance(entry[name], str) for name in ("path", "code", "line"))
    return texts and type(entry["count"]) is int and entry["count"] > 0


def _find_entry_position(path: str, source: bytes, number: int) -> Position:
    """Return the position of an invalid entry, parsing the file a second time."""
    from cfglint_train.documents.json import JsonDocument

    try:
        document: Document = JsonDocument(path, source)
        node = document.find_node(("findings", number))
    except DocumentError:
        return Position(1, 1)
    return Position(1, 1) if node is None else document.locate(node.span.start)


def compare_with_baseline(
    findings: Iterable[Finding],
    baseline: Baseline,
    secrets: Collection[str],
    is_checked: Callable[[str, str], bool],
) -> BaselineComparison:
    """Split findings, and the parts of merged ones, into new and accepted ones.

    `is_checked(path, code)` returns whether this lint would have reported a finding of that rule in an existing file
    (absolute path). Entries for which it returns False are kept.
    """
    redact = build_redaction(secrets)
    unmatched = Counter(baseline.accepted)
    entries: Counter[EntryKey] = Counter()
    new, accepted = [], []
    merged = list(findings)
    for finding in (atom for item in merged for atom in item.atoms):
        key = _build_key(finding, baseline.root, redact)
        if unmatched[key] > 0:
            unmatched[key] -= 1
            entries[key] += 1
            accepted.append(finding)
        else:
            new.append((finding, key))
    renamed_entries = _list_entries_without_file(unmatched, baseline.root)
    unaccepted: set[tuple[Any, ...]] = set()
    has_renames = False
    for finding, key in new:
        candidates = renamed_entries.get(key[1:], [])
        if candidates:
            entry = candidates[-1]
            unmatched[entry] -= 1
            if not unmatched[entry]:
                candidates.pop()
            entries[key] += 1
            accepted.append(finding)
            has_renames = True
        else:
            unaccepted.add(finding.sort_key)
    stale = []
    for key, count in unmatched.items():
        if count > 0:
            path = os.path.join(baseline.root, key[0])
            if is_checked(path, key[1]) or not filesystem.is_present(path):
                stale.append(StaleEntry(*key, count))
            else:
                entries[key] += count
    return BaselineComparison(
        tuple(keep(merged, lambda finding: finding.sort_key in unaccepted)),
        tuple(accepted),
        tuple(sorted(stale)),
        entries,
        baseline.path,
        has_renames,
    )


def _list_entries_without_file(unmatched: Mapping[EntryKey, int], root: str) -> dict[tuple[str, str], list[EntryKey]]:
    """Return the unmatched entries whose file no longer exists, by rule code and text of the line."""
    is_missing: dict[str, bool] = {}
    entries: dict[tuple[str, str], list[EntryKey]] = {}
    for key, count in unmatched.items():
        if count > 0:
            path = key[0]
            if path not in is_missing:
                is_missing[path] = not filesystem.is_present(os.path.join(root, path))
            if is_missing[path]:
                entries.setdefault(key[1:], []).append(key)
    return entries


def _build_key(finding: Finding, root: str, redact: Redact) -> EntryKey:
    path = os.path.relpath(os.path.abspath(finding.path), root).replace(os.sep, "/")
    return path, finding.code, _normalize_line(finding, redact)


def _normalize_line(finding: Finding, redact: Redact) -> str:
    """Return the text of the finding's line, with secrets redacted and white space collapsed."""
    if finding.place is None:
        return ""
    return redact(" ".join(get_line_text(finding.place.document, finding.start.line).split()))[:_MAX_LINE_CHARACTERS]


def accept_all(findings: tuple[Finding, ...], path: str, secrets: Collection[str]) -> BaselineComparison:
    """Return the comparison of findings with a new baseline that accepts them all."""
    absolute = os.path.abspath(path)
    redact = build_redaction(secrets)
    atoms = tuple([atom for finding in findings for atom in finding.atoms])
    entries = Counter(_build_key(atom, os.path.dirname(absolute), redact) for atom in atoms)
    return BaselineComparison((), atoms, (), entries, absolute)


def render_baseline(accepted: Mapping[EntryKey, int]) -> bytes:
    """Render a baseline with sorted entries, one per line, so that changes merge."""
    return "".join(_render_lines(accepted)).encode("utf-8", "backslashreplace")


def _render_lines(accepted: Mapping[EntryKey, int]) -> Iterator[str]:
    import json

    yield f'{{\n  "version": {_VERSION},\n  "findings": ['
    separator = "\n"
    for (path, code, line), count in sorted(accepted.items()):
        if count > 0:
            entry = {"path": path, "code": code, "line": line, "count": count}
            yield f"{separator}    {json.dumps(entry, ensure_ascii=False)}"
            separator = ",\n"
    yield "\n  ]\n}\n"
