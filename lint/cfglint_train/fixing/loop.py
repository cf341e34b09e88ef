"""Fix loop: lint and apply fixes, pass by pass, until no fix is left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cfglint_rules import registry
from cfglint_train.documents.document import CannotEdit, Document, DocumentError, Rename, Route
from cfglint_train.findings import draft
from cfglint_train.findings.finding import SEVERITIES, Finding, Fix
from cfglint_train.foundation.frozen import Frozen, dataclass
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.remedies import format_internal_error
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace

# Each pass lints again. Real files need two or three passes; fixes in the same list or section take one pass each.
MAX_PASSES: Final = 100

PrepareRun = Callable[[Run, Mapping[Field, Any]], Run]
"""Function that returns the run to edit, given a run and the intended changes."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was applied."""

    path: str
    code: str
    message: str
    files: tuple[str, ...]
    """Files that the fix changed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A fix that was requested but not applied."""

    path: str
    code: str
    reason: str


class FixOutcome(Frozen):
    """Outcome of fixing: the new and original contents of files, by path, and the lint of the new contents."""

    sources: Mapping[str, bytes]
    originals: Mapping[str, bytes]
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    result: Result


def fix_all(
    paths: list[str],
    options: LintOptions,
    is_unsafe: bool,
    sources: Mapping[str, bytes],
    within: Collection[str] | None = None,
) -> FixOutcome:
    """Apply every applicable fix, pass by pass. Writes nothing to disk.

    Within a pass, each fix edits the text that the earlier fixes left, and is read back before it is kept. A fix waits
    for the next pass if it depends on a field that this pass changed or that another fix is about to change, or if it
    reads a misspelled key as if it were already corrected. A fix is undone if it causes a finding that is at least as
    severe and rests on no assumption. If `sources` are given (standard input), no other file is changed. If `within` is
    given, only the fixes of findings in these files are applied. Files whose fixes do not converge are left unchanged
    and reported as an internal error.
    """
    workspace = dispatch.open_workspace(options, sources)
    fixer = _Fixer({"safe", "unsafe"} if is_unsafe else {"safe"}, sources, within)
    originals, applied = fixer.originals, fixer.applied
    states = {_hash_sources(workspace): 0}
    unsettled: list[Applied] = []
    is_patient = True
    last_pass: tuple[Workspace, Result] | None = None
    """Workspace and lint result before the last pass, if that pass changed something."""
    first: Result | None = None
    for _ in range(MAX_PASSES):
        result = dispatch.lint(workspace, paths, options)
        first = first or result
        if result.is_cut_short:
            return build_unchanged(first, result)
        if last_pass is not None and fixer.detect_harm(last_pass[1], result):
            del states[_hash_sources(workspace)]
            workspace, result = last_pass  # undo the pass
        last_pass = workspace, result
        workspace, waiting = fixer.run_pass(workspace, result, is_patient)
        unsettled = applied[len(applied) - len(fixer.made_findings) :]
        if not unsettled:
            last_pass = None
        if not unsettled and waiting:
            is_patient = False  # the fixes that others wait for cannot be applied
            continue
        if not unsettled:
            break
        is_patient = True
        state = _hash_sources(workspace)
        if state in states:
            unsettled = applied[states[state] :]  # every change since then has been reverted
            break
        states[state] = len(applied)
    if unsettled:
        # The fixes alternate or ran out of passes, so undo all of them.
        codes = ", ".join(sorted({item.code for item in unsettled}))
        reverted = find_changed_together({path for item in unsettled for path in item.files}, applied)
        workspace = workspace.replace_files({path: originals[path] for path in reverted})
        message = f"the fixes of {codes} do not converge (please report it); the file is unchanged"
        troubles = [Trouble(path, message, is_internal=True) for path in sorted(reverted)]
        applied = [item for item in applied if reverted.isdisjoint(item.files)]
        result = dispatch.lint(workspace, paths, options)
        if result.is_cut_short:
            return build_unchanged(first or result, result)
        result = result._replace(troubles=(*result.troubles, *troubles))
    current = workspace.sources.texts
    changed = {path: source for path, source in current.items() if path in originals and source != originals[path]}
    remaining = {(finding.path, finding.code) for finding in result.findings}
    refused = tuple(item for key, item in fixer.refused.items() if key[:2] in remaining)
    return FixOutcome(changed, originals, tuple(applied), refused, result)


class _Fixer:
    """The passes of a `--fix` run, with the applied and refused fixes."""

    def __init__(
        self, applicabilities: Collection[str], sources: Mapping[str, bytes], within: Collection[str] | None
    ) -> None:
        """Create a fixer before its first pass; `within` are the files whose findings it fixes, or None for all."""
        self.within = within
        self.applicabilities = applicabilities
        self.sources = sources
        self.originals: dict[str, bytes] = {}
        self.applied: list[Applied] = []
        self.refused: dict[tuple[str, str, str], Refused] = {}
        self.made_findings: list[Finding] = []
        """Findings whose fixes the last pass applied."""
        self._harmful_findings: set[tuple[str, str, str]] = set()
        """Identities of findings whose fixes cause other findings."""
        self._suspect_findings: set[tuple[str, str, str]] = set()
        """Identities of findings whose fixes were applied in a pass that did harm; each fix now gets its own pass."""

    def run_pass(self, workspace: Workspace, result: Result, is_patient: bool) -> tuple[Workspace, bool]:
        """Apply the fixes of a pass, and return the new workspace and whether a fix waits for another.

        `is_patient`: let a fix wait for the fixes that it depends on.
        """
        self.made_findings = []
        touched: set[tuple[str, str]] = set()
        requested = [
            (candidate, fix)
            for candidate in result.findings
            if (self.within is None or candidate.path in self.within)
            and (fix := candidate.intent)
            and fix.applicability in self.applicabilities
        ]
        requested = [pair for pair in requested if _get_identity(pair[0]) not in self._harmful_findings]
        requested.sort(key=lambda pair: _get_text_order(pair[1]))
        is_waiting = False
        changed_files: set[str] = set()
        isolated: set[str] = set()
        for finding, fix in requested:
            is_suspect, files = _get_identity(finding) in self._suspect_findings, _list_run_files(finding)
            if files & (changed_files if is_suspect else isolated):
                continue
            keys = _list_writes(finding, fix)
            is_too_early = finding.run is not None and bool(finding.run.inputs.corrected_keys)
            if is_too_early or (keys | _list_reads(finding)) & touched:
                continue
            if is_patient and _needs_to_wait(finding, fix, requested):
                is_waiting = True
                continue
            written_fix = _apply_fix(workspace, finding.run, fix)
            sources = written_fix if isinstance(written_fix, str) else written_fix.render_sources()
            if not isinstance(sources, str) and self.sources and not sources.keys() <= self.sources.keys():
                sources = "it changes another file, but only standard input is rewritten"
            if isinstance(sources, str):
                self._refuse(finding, sources)
                continue
            for path in sources:
                self.originals.setdefault(path, workspace.sources.read(path))
            if sources and not isinstance(written_fix, str) and not written_fix.touched_keys & touched:
                workspace = workspace.replace_files(sources)
                self.applied.append(Applied(finding.path, finding.code, fix.message, tuple(sorted(sources))))
                self.made_findings.append(finding)
                touched |= keys | written_fix.touched_keys
                changed_files |= files
                isolated |= files if is_suspect else set()
        return workspace, is_waiting

    def detect_harm(self, before: Result, after: Result) -> bool:
        """Return whether the last pass caused a finding that counts as harm (see `_find_new_findings`).

        If so, drop the fixes of that pass from `applied`. If only one of them affects the run of the new finding, that
        fix is never applied again. If several do, each is retried in its own pass.
        """
        new_findings = list(_find_new_findings(before, after, self.made_findings, self.applicabilities))
        for new_finding in new_findings:
            suspects = [
                finding for finding in self.made_findings if _list_run_files(new_finding) & _list_run_files(finding)
            ] or self.made_findings
            if len(suspects) == 1 or self._suspect_findings.issuperset(map(_get_identity, suspects)):
                for finding in suspects:
                    self._refuse(finding, f"it would cause {new_finding.code}: {new_finding.message}")
                    self._harmful_findings.add(_get_identity(finding))
            else:
                self._suspect_findings |= {_get_identity(finding) for finding in suspects}
        if new_findings:
            del self.applied[len(self.applied) - len(self.made_findings) :]
        return bool(new_findings)

    def _refuse(self, finding: Finding, reason: str) -> None:
        self.refused[(finding.path, finding.code, reason)] = Refused(finding.path, finding.code, reason)


def _get_identity(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.code, finding.message


def _list_run_files(finding: Finding) -> set[str]:
    """Return the paths of a finding's file and of all files of its run, including launch scripts."""
    run = finding.run
    documents = () if run is None else (*(config.document for config in run.configs), *run.inputs.scripts)
    return {finding.path} | {document.path for document in documents}


def _find_new_findings(
    before: Result, after: Result, fixed: Collection[Finding], applicabilities: Collection[str]
) -> Iterator[Finding]:
    """Yield the new findings that count as harm: certain, and at least as severe as the mildest fixed finding.

    Info findings never count. Findings that differ only in figures count as the same, and a finding that a requested
    fix would remove does not count. A finding on an estimate is not new if it replaces a finding that is at
    least as severe: for example, a run that did not fit is now tight.
    """
    if not fixed:
        return
    mildest = max(_get_severity_rank(finding) for finding in fixed)
    former = [atom for finding in before.findings for atom in finding.atoms]
    known_kinds = {_get_kind(finding) for finding in former}
    expected_counts = Counter((finding.path, finding.code) for finding in former)
    expected_counts.subtract((finding.path, finding.code) for finding in fixed)
    new_counts = Counter((finding.path, finding.code) for finding in after.findings)
    remaining_kinds = {_get_kind(finding) for finding in after.findings}
    removed = [finding for finding in before.findings if _get_kind(finding) not in remaining_kinds]
    for finding in after.findings:
        if (
            finding.certainty in ("stated", "followed")
            and _get_severity_rank(finding) <= min(mildest, SEVERITIES.index("warning"))
            and _get_kind(finding) not in known_kinds
            and new_counts[finding.path, finding.code] > expected_counts[finding.path, finding.code]
            and not (finding.intent is not None and finding.intent.applicability in applicabilities)
            and not any(_is_remainder(finding, other) for other in removed)
        ):
            yield finding


def _get_severity_rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _is_remainder(finding: Finding, removed: Finding) -> bool:
    """Return whether both findings judge the same estimate of a run, and the removed finding was at least as severe."""
    shared_estimates = set(registry.RULES[finding.code].estimates) & set(registry.RULES[removed.code].estimates)
    return bool(shared_estimates and _list_run_files(finding) & _list_run_files(removed)) and _get_severity_rank(
        finding
    ) >= _get_severity_rank(removed)


def _get_kind(finding: Finding) -> tuple[str, str, str]:
    """Return the path, code and message of a finding, with figures replaced by 0."""
    return finding.path, finding.code, re.sub(r"[0-9][0-9.,]*", "0", finding.message)


def make_fixes(
    workspace: Workspace,
    paths: list[str],
    options: LintOptions,
    requested: Iterable[tuple[Run, Fix]],
    code: str,
    prepare: PrepareRun,
) -> FixOutcome:
    """Apply each requested fix completely or not at all, and read it back. Writes nothing to disk.

    `prepare` returns the run to edit, or raises `CannotEdit` if it cannot be rewritten.
    """
    originals: dict[str, bytes] = {}
    applied: list[Applied] = []
    refused: list[Refused] = []
    for run, fix in requested:
        path = run.main.document.path
        written_fix = _apply_fix(workspace, run, fix, prepare)
        if isinstance(written_fix, str):
            refused.append(Refused(path, code, written_fix))
            continue
        new_sources = written_fix.render_sources()
        for changed_path in new_sources:
            originals.setdefault(changed_path, workspace.sources.read(changed_path))
        workspace = workspace.replace_files(new_sources)
        applied.append(Applied(path, code, fix.message, tuple(sorted(new_sources))))
    current = workspace.sources.texts
    sources = {path: current[path] for path in originals if current[path] != originals[path]}
    result = dispatch.lint(workspace, paths, options)
    if result.is_cut_short:
        return build_unchanged(result, result)
    return FixOutcome(sources, originals, tuple(applied), tuple(refused), result)


def build_unchanged(before: Result, after: Result) -> FixOutcome:
    """Return an outcome without fixes, for a lint that ran out of CPU time before the changes were checked."""
    return FixOutcome({}, {}, (), (), before._replace(troubles=after.troubles))


def _get_text_order(fix: Fix) -> int:
    """Return a sort key that puts text edits first, from the end of a file to its start.

    Positions of the remaining edits therefore stay valid.
    """
    return -max((edit.span.start for _, edit in fix.texts), default=-1)


def _hash_sources(workspace: Workspace) -> int:
    return hash(frozenset(workspace.sources.texts.items()))


def find_changed_together(paths: Collection[str], applied: Iterable[Applied]) -> frozenset[str]:
    """Return `paths` and all files that fixes changed together with them, directly or through other files."""
    files = frozenset(paths)
    groups = [frozenset(fix.files) for fix in applied]
    while True:
        extended = files.union(*(group for group in groups if group & files))
        if extended == files:
            return files
        files = extended


def _list_writes(finding: Finding, fix: Fix) -> set[tuple[str, str]]:
    """Return the fields, keys and lines that a fix changes, each with its file.

    Two fixes in a pass never change the same field, key or line.
    """
    keys: set[tuple[str, str]] = {(_get_main_path(finding), field) for field in fix.changes}
    for config, changes in fix.keys:
        for change in changes:
            # List indices move when an item is added or removed.
            name = str(next((step for step in change.route if isinstance(step, str)), ""))
            keys.add((config.document.path, name))
            if isinstance(change, Rename):
                keys.add((config.document.path, change.key))
    for document, edit in fix.texts:
        keys.add((document.path, f"text in line {document.locate(edit.span.end).line}"))
    return keys


def _list_reads(finding: Finding) -> set[tuple[str, str]]:
    """Return the plan fields that the rule read for a finding, each with the run's main file."""
    return {(_get_main_path(finding), field) for field in finding.fields_read}


def _needs_to_wait(finding: Finding, fix: Fix, others: Iterable[tuple[Finding, Fix]]) -> bool:
    """Return whether another fix of the run must be made first.

    This is the case if the other fix changes a field that this fix was derived from, or a setting that this finding
    names as its reason, unless this fix changes a field that the other fix was derived from.
    """
    reads, writes = _list_reads(finding), _list_writes(finding, fix)
    return any(
        ((_list_writes(other, other_fix) - writes) & reads or _is_named_reason(finding, other, other_fix))
        and not writes & _list_reads(other)
        for other, other_fix in others
        if other is not finding and other_fix.changes
    )


def _is_named_reason(finding: Finding, other: Finding, fix: Fix) -> bool:
    """Return whether a fix changes a setting that `finding` lists as related."""
    assert other.run is not None  # fixes with changes have a run
    places = [
        origin.place for field in fix.changes if (origin := other.run.get_origin(field)) is not None and origin.place
    ]
    changed_places = {(place.document.path, place.span.start) for place in places}
    return any((related.place.document.path, related.place.span.start) in changed_places for related in finding.related)


def _get_main_path(finding: Finding) -> str:
    """Return the path of the main file of a finding's run, or of the finding itself."""
    return finding.path if finding.run is None else finding.run.main.document.path


def _apply_fix(
    workspace: Workspace, stale: Run | None, fix: Fix, prepare: PrepareRun | None = None
) -> draft.WrittenFix | str:
    """Return the edits of a fix, or the reason why it cannot be applied.

    The fix is bound to the current documents. Its edits are read back, and the plan is compared with the intended plan.
    """
    try:
        run = None if stale is None else _rebuild_run(workspace, stale.main)
        run = run if run is None or prepare is None else prepare(run, fix.changes)
        if stale is not None and run is None:
            return "its configuration would no longer be recognised"

        def read_document(path: str) -> Document | None:  # a launch script has no framework keys
            return workspace.documents.read_document(path) or workspace.scripts.read_script(path, path)

        current_fix = draft.rebind_fix(fix, lambda path, root: _find_config(workspace, run, path, root), read_document)
        if current_fix is None:
            return "its configuration would no longer be recognised"
        written_fix = draft.write_fix(run, current_fix)
        sources = written_fix.render_sources()
        if run is not None and fix.changes and sources:
            edited_run = _rebuild_run(workspace.replace_files(sources), run.main)
            if edited_run is None or not draft.is_intended(run, edited_run, fix.changes):
                return "reading the file back would not give the intended settings"
    except (CannotEdit, DocumentError) as error:
        return str(error)
    except Exception as error:
        return format_internal_error(error)
    return written_fix


def _rebuild_run(workspace: Workspace, main: Config) -> Run | None:
    config = _find_config(workspace, None, main.document.path, main.root)
    return None if config is None else workspace.resolve_run(config)


def _find_config(workspace: Workspace, run: Run | None, path: str, root: Route) -> Config | None:
    candidates: Iterable[Config] = (
        workspace.read_configs(path) if run is None else (*run.configs, *workspace.read_configs(path))
    )
    return next((config for config in candidates if config.document.path == path and config.root == root), None)
