"""Fixes over a whole lint: shown with their edits, or applied until nothing is left to apply."""

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

# Each pass lints anew; real files settle in two or three. Fixes inside one list or section take a pass each.
MAX_PASSES: Final = 100

PrepareRun = Callable[[Run, Mapping[Field, Any]], Run]
"""The run as it is to be rewritten, of one and the changes that are to be made."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One fix that was made."""

    path: str
    code: str
    message: str
    files: tuple[str, ...]
    """The files that it changed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One fix that was asked for and not made."""

    path: str
    code: str
    reason: str


class FixOutcome(Frozen):
    """The outcome of fixing: new contents by path (of files that differ), and the lint of what they are then."""

    sources: Mapping[str, bytes]
    originals: Mapping[str, bytes]
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    result: Result


def fix_all(paths: list[str], options: LintOptions, is_unsafe: bool, sources: Mapping[str, bytes]) -> FixOutcome:
    """Apply every fix that may be applied, pass by pass. Nothing is written to disk.

    Within a pass each fix is written against the text that the fixes before it left, and read back before it counts; a
    fix of a field which the pass already changed, or which another fix is about to change, waits for the
    next one, and so does one that counts a misspelt key as what it is meant to be. A fix that brings a certain finding
    as grave as its own is not made. Where `sources` are given (a standard input), no other file is changed. Files
    whose fixes never settle are left as they were, and are a trouble.
    """
    workspace = dispatch.open_workspace(options, sources)
    fixer = _Fixer({"safe", "unsafe"} if is_unsafe else {"safe"}, sources)
    originals, applied = fixer.originals, fixer.applied
    states = {_hash_sources(workspace): 0}
    unsettled: list[Applied] = []
    is_patient = True
    last_pass: tuple[Workspace, Result] | None = None
    """Before the last pass, in which something was done."""
    first: Result | None = None
    for _ in range(MAX_PASSES):
        result = dispatch.lint(workspace, paths, options)
        first = first or result
        if result.is_cut_short:
            return build_unchanged(first, result)
        if last_pass is not None and fixer.detect_harm(last_pass[1], result):
            del states[_hash_sources(workspace)]
            workspace, result = last_pass  # take the pass back
        last_pass = workspace, result
        workspace, waiting = fixer.run_pass(workspace, result, is_patient)
        unsettled = applied[len(applied) - len(fixer.made_findings) :]
        if not unsettled:
            last_pass = None
        if not unsettled and waiting:
            is_patient = False  # what they wait for cannot be made
            continue
        if not unsettled:
            break
        is_patient = True
        state = _hash_sources(workspace)
        if state in states:
            unsettled = applied[states[state] :]  # since then everything was done to be undone
            break
        states[state] = len(applied)
    if unsettled:
        # They go in a circle, or have not come to an end: none of them can be trusted.
        codes = ", ".join(sorted({item.code for item in unsettled}))
        reverted = find_changed_together({path for item in unsettled for path in item.files}, applied)
        workspace = workspace.replace_files({path: originals[path] for path in reverted})
        message = f"the fixes of {codes} do not settle (please report it); the file is left as it was"
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
    """The passes of one `--fix`: what they did, and what they refused to do."""

    def __init__(self, applicabilities: Collection[str], sources: Mapping[str, bytes]) -> None:
        self.applicabilities = applicabilities
        self.sources = sources
        self.originals: dict[str, bytes] = {}
        self.applied: list[Applied] = []
        self.refused: dict[tuple[str, str, str], Refused] = {}
        self.made_findings: list[Finding] = []
        """The findings whose fixes the last pass made."""
        self._harmful_findings: set[tuple[str, str, str]] = set()
        """Findings whose fixes bring others."""
        self._suspect_findings: set[tuple[str, str, str]] = set()
        """Findings whose fixes were made together when one of them brought others: each has a pass of its own."""

    def run_pass(self, workspace: Workspace, result: Result, is_patient: bool) -> tuple[Workspace, bool]:
        """Make the fixes of one pass. Return the workspace then, and whether a fix waits for another."""
        self.made_findings = []
        touched: set[tuple[str, str]] = set()
        requested = [
            (candidate, fix)
            for candidate in result.findings
            if (fix := candidate.intent) and fix.applicability in self.applicabilities
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
                sources = "it changes another file, and only standard input is rewritten"
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
        """Return whether the last pass brought a certain finding as grave as one that it settled.

        It is forgotten then. Of the fixes in the runs of such a finding, a single one is never made again, and of
        several each is made in a pass of its own.
        """
        new_findings = list(_find_new_findings(before, after, self.made_findings, self.applicabilities))
        for new_finding in new_findings:
            suspects = [
                finding for finding in self.made_findings if _list_run_files(new_finding) & _list_run_files(finding)
            ] or self.made_findings
            if len(suspects) == 1 or self._suspect_findings.issuperset(map(_get_identity, suspects)):
                for finding in suspects:
                    self._refuse(finding, f"it would bring {new_finding.code}: {new_finding.message}")
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
    """Return the paths of the files of a finding's run, its scripts among them."""
    run = finding.run
    documents = () if run is None else (*(config.document for config in run.configs), *run.inputs.scripts)
    return {finding.path} | {document.path for document in documents}


def _find_new_findings(
    before: Result, after: Result, fixed: Collection[Finding], applicabilities: Collection[str]
) -> Iterator[Finding]:
    """Return the certain findings that were not there before, as grave as one of the settled ones.

    One with figures that differ is the same, and one that another fix settles counts when that is not made. What is
    left where an estimate was worse is none: a run that did not fit and is tight now, or whose evaluation is.
    """
    if not fixed:
        return
    mildest = max(_get_severity_rank(finding) for finding in fixed)
    known_kinds = {_get_kind(finding) for finding in before.findings}
    expected_counts = Counter((finding.path, finding.code) for finding in before.findings)
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
    """Return whether two findings judge the same estimate of a run, and the one that is gone was as grave."""
    shared_estimates = set(registry.RULES[finding.code].estimates) & set(registry.RULES[removed.code].estimates)
    return bool(shared_estimates and _list_run_files(finding) & _list_run_files(removed)) and _get_severity_rank(
        finding
    ) >= _get_severity_rank(removed)


def _get_kind(finding: Finding) -> tuple[str, str, str]:
    """Return what a finding is about, without its figures."""
    return finding.path, finding.code, re.sub(r"[0-9][0-9.,]*", "0", finding.message)


def make_fixes(
    workspace: Workspace,
    paths: list[str],
    options: LintOptions,
    requested: Iterable[tuple[Run, Fix]],
    code: str,
    prepare: PrepareRun,
) -> FixOutcome:
    """Make one fix of each run, all of it or nothing; read back like any other. Nothing is written to disk. `prepared`:
    the run as it is to be rewritten; it raises CannotEdit where it is not.
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
    """Return the outcome if the time of the run was used up before its changes were checked: there are none."""
    return FixOutcome({}, {}, (), (), before._replace(troubles=after.troubles))


def _get_text_order(fix: Fix) -> int:
    """Edits of text come first, the last one of a file before those above it: so each is where it was found."""
    return -max((edit.span.start for _, edit in fix.texts), default=-1)


def _hash_sources(workspace: Workspace) -> int:
    return hash(frozenset(workspace.sources.texts.items()))


def find_changed_together(paths: Collection[str], applied: Iterable[Applied]) -> frozenset[str]:
    """These files, and all that some fix changed together with one of them."""
    files = frozenset(paths)
    groups = [frozenset(fix.files) for fix in applied]
    while True:
        extended = files.union(*(group for group in groups if group & files))
        if extended == files:
            return files
        files = extended


def _list_writes(finding: Finding, fix: Fix) -> set[tuple[str, str]]:
    """What a fix changes, so that two of them do not change the same thing in one pass."""
    keys: set[tuple[str, str]] = {(_get_main_path(finding), field) for field in fix.changes}
    for config, changes in fix.keys:
        for change in changes:
            # Positions in a list move when one of its items does.
            name = str(next((step for step in change.route if isinstance(step, str)), ""))
            keys.add((config.document.path, name))
            if isinstance(change, Rename):
                keys.add((config.document.path, change.key))
    for document, edit in fix.texts:
        keys.add((document.path, f"text in line {document.locate(edit.span.end).line}"))
    return keys


def _list_reads(finding: Finding) -> set[tuple[str, str]]:
    """The plan fields from which a rule makes its fix."""
    return {(_get_main_path(finding), field) for field in finding.fields_read}


def _needs_to_wait(finding: Finding, fix: Fix, others: Iterable[tuple[Finding, Fix]]) -> bool:
    """Whether another fix of the run changes a field from which this one is made, or a setting that its finding names
    as the reason, and not the other way round.
    """
    reads, writes = _list_reads(finding), _list_writes(finding, fix)
    return any(
        ((_list_writes(other, other_fix) - writes) & reads or _is_named_reason(finding, other, other_fix))
        and not writes & _list_reads(other)
        for other, other_fix in others
        if other is not finding and other_fix.changes
    )


def _is_named_reason(finding: Finding, other: Finding, fix: Fix) -> bool:
    """Whether a fix changes a setting at which a finding points beside its own."""
    assert other.run is not None  # the fields are those of its plan
    places = [
        origin.place for field in fix.changes if (origin := other.run.get_origin(field)) is not None and origin.place
    ]
    changed_places = {(place.document.path, place.span.start) for place in places}
    return any((related.place.document.path, related.place.span.start) in changed_places for related in finding.related)


def _get_main_path(finding: Finding) -> str:
    """The file of a finding's run."""
    return finding.path if finding.run is None else finding.run.main.document.path


def _apply_fix(
    workspace: Workspace, stale: Run | None, fix: Fix, prepare: PrepareRun | None = None
) -> draft.WrittenFix | str:
    """The edits that a fix makes, read back and compared with what was meant; or why there are none."""
    try:
        run = None if stale is None else _rebuild_run(workspace, stale.main)
        run = run if run is None or prepare is None else prepare(run, fix.changes)
        if stale is not None and run is None:
            return "its configuration is no longer recognised"

        def read_document(path: str) -> Document | None:  # a script that starts something has no keys of a framework
            return workspace.documents.read_document(path) or workspace.scripts.read_script(path, path)

        current_fix = draft.rebind_fix(fix, lambda path, root: _find_config(workspace, run, path, root), read_document)
        if current_fix is None:
            return "its configuration is no longer recognised"
        written_fix = draft.write_fix(run, current_fix)
        sources = written_fix.render_sources()
        if run is not None and fix.changes and sources:
            edited_run = _rebuild_run(workspace.replace_files(sources), run.main)
            if edited_run is None or not draft.is_intended(run, edited_run, fix.changes):
                return "the plan read back would not be the intended one"
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
