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
from cfglint_train.judging.remedies import internal
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace

# Each pass lints anew; real files settle in two or three. Fixes inside one list or section take a pass each.
MAX_PASSES: Final = 100

Prepared = Callable[[Run, Mapping[Field, Any]], Run]
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


class Fixed(Frozen):
    """The outcome of fixing: new contents by path (of files that differ), and the lint of what they are then."""

    sources: Mapping[str, bytes]
    originals: Mapping[str, bytes]
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    result: Result


def fix_all(paths: list[str], options: LintOptions, unsafe: bool, sources: Mapping[str, bytes]) -> Fixed:
    """Apply every fix that may be applied, pass by pass. Nothing is written to disk.

    Within a pass each fix is written against the text that the fixes before it left, and read back before it counts; a
    fix of a field which the pass already changed, or which another fix is about to change, waits for the
    next one, and so does one that counts a misspelt key as what it is meant to be. A fix that brings a certain finding
    as grave as its own is not made. Where `sources` are given (a standard input), no other file is changed. Files
    whose fixes never settle are left as they were, and are a trouble.
    """
    workspace = dispatch.workspace_for(options, sources)
    fixer = _Fixer({"safe", "unsafe"} if unsafe else {"safe"}, sources)
    originals, applied = fixer.originals, fixer.applied
    states = {_state(workspace): 0}
    unsettled: list[Applied] = []
    patient = True
    before: tuple[Workspace, Result] | None = None
    """Before the last pass, in which something was done."""
    first: Result | None = None
    for _ in range(MAX_PASSES):
        result = dispatch.lint(workspace, paths, options)
        first = first or result
        if result.is_cut_short:
            return unchanged(first, result)
        if before is not None and fixer.did_harm(before[1], result):
            del states[_state(workspace)]
            workspace, result = before  # take the pass back
        before = workspace, result
        workspace, waiting = fixer.fix(workspace, result, patient)
        unsettled = applied[len(applied) - len(fixer.settled) :]
        if not unsettled:
            before = None
        if not unsettled and waiting:
            patient = False  # what they wait for cannot be made
            continue
        if not unsettled:
            break
        patient = True
        state = _state(workspace)
        if state in states:
            unsettled = applied[states[state] :]  # since then everything was done to be undone
            break
        states[state] = len(applied)
    if unsettled:
        # They go in a circle, or have not come to an end: none of them can be trusted.
        codes = ", ".join(sorted({one.code for one in unsettled}))
        back = together({path for one in unsettled for path in one.files}, applied)
        workspace = workspace.updated({path: originals[path] for path in back})
        message = f"the fixes of {codes} do not settle (please report it); the file is left as it was"
        troubles = [Trouble(path, message, ours=True) for path in sorted(back)]
        applied = [one for one in applied if back.isdisjoint(one.files)]
        result = dispatch.lint(workspace, paths, options)
        if result.is_cut_short:
            return unchanged(first or result, result)
        result = result._replace(troubles=(*result.troubles, *troubles))
    current = workspace.sources.texts
    changed = {path: source for path, source in current.items() if path in originals and source != originals[path]}
    left = {(finding.path, finding.code) for finding in result.findings}
    kept = tuple(one for key, one in fixer.refused.items() if key[:2] in left)
    return Fixed(changed, originals, tuple(applied), kept, result)


class _Fixer:
    """The passes of one `--fix`: what they did, and what they refused to do."""

    def __init__(self, wanted: Collection[str], sources: Mapping[str, bytes]) -> None:
        self.wanted = wanted
        self.sources = sources
        self.originals: dict[str, bytes] = {}
        self.applied: list[Applied] = []
        self.refused: dict[tuple[str, str, str], Refused] = {}
        self.settled: list[Finding] = []
        """The findings whose fixes the last pass made."""
        self._harmful: set[tuple[str, str, str]] = set()
        """Findings whose fixes bring others."""
        self._suspects: set[tuple[str, str, str]] = set()
        """Findings whose fixes were made together when one of them brought others: each has a pass of its own."""

    def fix(self, workspace: Workspace, result: Result, patient: bool) -> tuple[Workspace, bool]:
        """Make the fixes of one pass. Return the workspace then, and whether a fix waits for another."""
        self.settled = []
        touched: set[tuple[str, str]] = set()
        asked = [(one, fix) for one in result.findings if (fix := one.intent) and fix.applicability in self.wanted]
        asked = [pair for pair in asked if _name(pair[0]) not in self._harmful]
        asked.sort(key=lambda pair: _of_text(pair[1]))
        waiting = False
        changed: set[str] = set()
        alone: set[str] = set()
        for finding, fix in asked:
            is_suspect, around = _name(finding) in self._suspects, _files(finding)
            if around & (changed if is_suspect else alone):
                continue
            keys = _touches(finding, fix)
            early = finding.run is not None and bool(finding.run.parts.meant)
            if early or (keys | _reads(finding)) & touched:
                continue
            if patient and _waits(finding, fix, asked):
                waiting = True
                continue
            made = _apply(workspace, finding.run, fix)
            written = made if isinstance(made, str) else made.sources()
            if not isinstance(written, str) and self.sources and not written.keys() <= self.sources.keys():
                written = "it changes another file, and only standard input is rewritten"
            if isinstance(written, str):
                self._refuse(finding, written)
                continue
            for path in written:
                self.originals.setdefault(path, workspace.sources.read(path))
            if written and not isinstance(made, str) and not made.touched & touched:
                workspace = workspace.updated(written)
                self.applied.append(Applied(finding.path, finding.code, fix.message, tuple(sorted(written))))
                self.settled.append(finding)
                touched |= keys | made.touched
                changed |= around
                alone |= around if is_suspect else set()
        return workspace, waiting

    def did_harm(self, before: Result, after: Result) -> bool:
        """Return whether the last pass brought a certain finding as grave as one that it settled.

        It is forgotten then. Of the fixes in the runs of such a finding, a single one is never made again, and of
        several each is made in a pass of its own.
        """
        brought = list(_brought(before, after, self.settled, self.wanted))
        for worse in brought:
            near = [one for one in self.settled if _files(worse) & _files(one)] or self.settled
            if len(near) == 1 or self._suspects.issuperset(map(_name, near)):
                for one in near:
                    self._refuse(one, f"it would bring {worse.code}: {worse.message}")
                    self._harmful.add(_name(one))
            else:
                self._suspects |= {_name(one) for one in near}
        if brought:
            del self.applied[len(self.applied) - len(self.settled) :]
        return bool(brought)

    def _refuse(self, finding: Finding, reason: str) -> None:
        self.refused[(finding.path, finding.code, reason)] = Refused(finding.path, finding.code, reason)


def _name(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.code, finding.message


def _files(finding: Finding) -> set[str]:
    """Return the paths of the files of a finding's run, its scripts among them."""
    run = finding.run
    documents = () if run is None else (*(config.document for config in run.configs), *run.parts.scripts)
    return {finding.path} | {document.path for document in documents}


def _brought(before: Result, after: Result, settled: Collection[Finding], wanted: Collection[str]) -> Iterator[Finding]:
    """Return the certain findings that were not there before, as grave as one of the settled ones.

    One with figures that differ is the same, and one that another fix settles counts when that is not made. What is
    left where an estimate was worse is none: a run that did not fit and is tight now, or whose evaluation is.
    """
    if not settled:
        return
    mildest = max(_gravity(one) for one in settled)
    known = {_kind(one) for one in before.findings}
    count = Counter((one.path, one.code) for one in before.findings)
    count.subtract((one.path, one.code) for one in settled)
    now = Counter((one.path, one.code) for one in after.findings)
    left = {_kind(one) for one in after.findings}
    gone = [one for one in before.findings if _kind(one) not in left]
    for one in after.findings:
        if (
            one.certainty in ("stated", "followed")
            and _gravity(one) <= min(mildest, SEVERITIES.index("warning"))
            and _kind(one) not in known
            and now[one.path, one.code] > count[one.path, one.code]
            and not (one.intent is not None and one.intent.applicability in wanted)
            and not any(_is_rest(one, other) for other in gone)
        ):
            yield one


def _gravity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _is_rest(finding: Finding, gone: Finding) -> bool:
    """Return whether two findings judge the same estimate of a run, and the one that is gone was as grave."""
    judged = set(registry.RULES[finding.code].estimates) & set(registry.RULES[gone.code].estimates)
    return bool(judged and _files(finding) & _files(gone)) and _gravity(finding) >= _gravity(gone)


def _kind(finding: Finding) -> tuple[str, str, str]:
    """Return what a finding is about, without its figures."""
    return finding.path, finding.code, re.sub(r"[0-9][0-9.,]*", "0", finding.message)


def make(
    workspace: Workspace,
    paths: list[str],
    options: LintOptions,
    wanted: Iterable[tuple[Run, Fix]],
    code: str,
    prepared: Prepared,
) -> Fixed:
    """Make one fix of each run, all of it or nothing; read back like any other. Nothing is written to disk. `prepared`:
    the run as it is to be rewritten; it raises CannotEdit where it is not.
    """
    originals: dict[str, bytes] = {}
    applied: list[Applied] = []
    refused: list[Refused] = []
    for run, fix in wanted:
        path = run.main.document.path
        made = _apply(workspace, run, fix, prepared)
        if isinstance(made, str):
            refused.append(Refused(path, code, made))
            continue
        written = made.sources()
        for changed in written:
            originals.setdefault(changed, workspace.sources.read(changed))
        workspace = workspace.updated(written)
        applied.append(Applied(path, code, fix.message, tuple(sorted(written))))
    current = workspace.sources.texts
    sources = {path: current[path] for path in originals if current[path] != originals[path]}
    result = dispatch.lint(workspace, paths, options)
    if result.is_cut_short:
        return unchanged(result, result)
    return Fixed(sources, originals, tuple(applied), tuple(refused), result)


def unchanged(before: Result, after: Result) -> Fixed:
    """Return the outcome if the time of the run was used up before its changes were checked: there are none."""
    return Fixed({}, {}, (), (), before._replace(troubles=after.troubles))


def _of_text(fix: Fix) -> int:
    """Edits of text come first, the last one of a file before those above it: so each is where it was found."""
    return -max((edit.span.start for _, edit in fix.texts), default=-1)


def _state(workspace: Workspace) -> int:
    return hash(frozenset(workspace.sources.texts.items()))


def together(paths: Collection[str], applied: Iterable[Applied]) -> frozenset[str]:
    """These files, and all that some fix changed together with one of them."""
    found = frozenset(paths)
    groups = [frozenset(one.files) for one in applied]
    while True:
        grown = found.union(*(group for group in groups if group & found))
        if grown == found:
            return found
        found = grown


def _touches(finding: Finding, fix: Fix) -> set[tuple[str, str]]:
    """What a fix changes, so that two of them do not change the same thing in one pass."""
    keys: set[tuple[str, str]] = {(_home(finding), field) for field in fix.changes}
    for config, changes in fix.keys:
        for change in changes:
            # Positions in a list move when one of its items does.
            named = str(next((step for step in change.route if isinstance(step, str)), ""))
            keys.add((config.document.path, named))
            if isinstance(change, Rename):
                keys.add((config.document.path, change.key))
    for document, edit in fix.texts:
        keys.add((document.path, f"text in line {document.position(edit.span.end).line}"))
    return keys


def _reads(finding: Finding) -> set[tuple[str, str]]:
    """The plan fields from which a rule makes its fix."""
    return {(_home(finding), field) for field in finding.reads}


def _waits(finding: Finding, fix: Fix, others: Iterable[tuple[Finding, Fix]]) -> bool:
    """Whether another fix of the run changes a field from which this one is made, or a setting that its finding names
    as the reason, and not the other way round.
    """
    reads, writes = _reads(finding), _touches(finding, fix)
    return any(
        ((_touches(other, one) - writes) & reads or _is_reason(finding, other, one)) and not writes & _reads(other)
        for other, one in others
        if other is not finding and one.changes
    )


def _is_reason(finding: Finding, other: Finding, fix: Fix) -> bool:
    """Whether a fix changes a setting at which a finding points beside its own."""
    assert other.run is not None  # the fields are those of its plan
    places = [origin.place for field in fix.changes if (origin := other.run.origin(field)) is not None and origin.place]
    changed = {(place.document.path, place.span.start) for place in places}
    return any((one.place.document.path, one.place.span.start) in changed for one in finding.related)


def _home(finding: Finding) -> str:
    """The file of a finding's run."""
    return finding.path if finding.run is None else finding.run.main.document.path


def _apply(workspace: Workspace, stale: Run | None, fix: Fix, prepared: Prepared | None = None) -> draft.Rewrite | str:
    """The edits that a fix makes, read back and compared with what was meant; or why there are none."""
    try:
        run = None if stale is None else _again(workspace, stale.main)
        run = run if run is None or prepared is None else prepared(run, fix.changes)
        if stale is not None and run is None:
            return "its configuration is no longer recognised"

        def read(path: str) -> Document | None:  # a script that starts something has no keys of a framework
            return workspace.documents.document(path) or workspace.scripts.script(path, path)

        now = draft.rebound(fix, lambda path, root: _config(workspace, run, path, root), read)
        if now is None:
            return "its configuration is no longer recognised"
        written = draft.rewrite(run, now)
        sources = written.sources()
        if run is not None and fix.changes and sources:
            after = _again(workspace.updated(sources), run.main)
            if after is None or not draft.intended(run, after, fix.changes):
                return "the plan read back would not be the intended one"
    except (CannotEdit, DocumentError) as error:
        return str(error)
    except Exception as error:
        return internal(error)
    return written


def _again(workspace: Workspace, main: Config) -> Run | None:
    config = _config(workspace, None, main.document.path, main.root)
    return None if config is None else workspace.run(config)


def _config(workspace: Workspace, run: Run | None, path: str, root: Route) -> Config | None:
    candidates: Iterable[Config] = (
        workspace.configs_in(path) if run is None else (*run.configs, *workspace.configs_in(path))
    )
    return next((config for config in candidates if config.document.path == path and config.root == root), None)
