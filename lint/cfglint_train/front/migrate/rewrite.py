"""One file after another: what the rules about keys say of it at the goal is applied, read back, and looked at again.

A migration makes the fixes that the rules state, and goes further than `--fix` in two things: where the goal has a
successor of a key that does not mean quite the same, it is written anyway, to be reviewed; and a key that says
what its default was, or that the goal only warns of, is taken out. Any other key without a successor is left for a
human.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfglint_rules.registry import RULES
from cfglint_train.documents.document import CannotEdit, Delete, Document, DocumentError, Edit, Rename, apply, ordered
from cfglint_train.findings import draft
from cfglint_train.findings.finding import Finding, Fix
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.framework import keys_of
from cfglint_train.frameworks.lens import Config
from cfglint_train.front.migrate.goal import Goal
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.result import Result, Trouble
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import cluster_facts, pragmas
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.survey import KeyOccurrence

MAX_PASSES: Final = 100

# A migration lists everything that the goal does not take, also what was suppressed before.
_RULES: Final = LintOptions(
    select=tuple(code for code, rule in RULES.items() if rule.rests_on_vocabulary), suppressions=False
)

# Rules about a key at a release; the others are about its surroundings.
_REMOVED: Final = "KEY002"
_UNKNOWN: Final = "KEY001"


class Item(Frozen):
    """One line of the report."""

    kind: str
    """changed; review (changed, and to be looked at); human (left, and to be done)."""
    message: str
    before: int | None = None
    """The offset in the file as it was; None where the item has no place."""
    after: int | None = None
    """The offset in the file as it is then."""
    code: str | None = None


class Migrated(Frozen):
    """One file."""

    path: str
    framework: str
    start: str
    """The release that it was written for, and why that is thought."""
    original: Document
    source: bytes
    """The content that it has then."""
    items: tuple[Item, ...]

    @property
    def changes(self) -> bool:
        """Whether there is something to write."""
        return self.source != self.original.source


class Outcome(Frozen):
    """A migration of some files."""

    files: tuple[Migrated, ...]
    troubles: tuple[Trouble, ...]
    hints: tuple[str, ...]
    """Where the repository still states other releases."""
    secrets: frozenset[str] = frozenset()


def migrate(paths: Iterable[str], goal: Goal, settings_for: Callable[[str], Settings]) -> Outcome:
    """Rewrite files in memory. Nothing is written to disk."""
    told = _with_rules_only(settings_for)
    start = Workspace(told, CommandLine(goal.start), idle=True, upstream=True)
    target = Workspace(told, CommandLine(goal.to), idle=True, upstream=True)
    files: list[Migrated] = []
    troubles: dict[Trouble, None] = {}
    hints: dict[str, None] = {}
    secrets: set[str] = set()
    for path in paths:
        before = dispatch.lint(start, [path], _RULES)
        troubles.update(dict.fromkeys(before.troubles))
        secrets |= before.secrets
        configs = [config for config in _configs(start, path) if config.framework in goal.frameworks]
        if configs:
            one = _File(path, goal, target, configs, before)
            files.append(one.run())
            troubles.update(dict.fromkeys(one.troubles))
            hints.update(dict.fromkeys(_hints(configs, goal)))
    return Outcome(tuple(files), tuple(troubles), tuple(hints), frozenset(secrets))


def _with_rules_only(settings_for: Callable[[str], Settings]) -> Callable[[str], Settings]:
    """The settings of each file without the selection of rules: a migration selects its own."""

    def settings(path: str) -> Settings:
        own = settings_for(path)
        return own._replace(
            select=("ALL",), ignore=(), fixable=("ALL",), unfixable=(), safe_fixes=(), unsafe_fixes=(),
            per_file_ignores=(), overrides=tuple(one._replace(ignore=()) for one in own.overrides),
        )  # fmt: skip

    return settings


def _configs(workspace: Workspace, path: str) -> list[Config]:
    try:
        return workspace.configs_in(path)
    except (DocumentError, UsageError):
        return []  # reported by the lint


class _File:
    """One file on its way to the goal."""

    def __init__(self, path: str, goal: Goal, workspace: Workspace, configs: list[Config], before: Result) -> None:
        self.path = path
        self.goal = goal
        self.workspace = workspace
        self.configs = configs
        self.original = configs[0].document
        self.before = before
        # What was wrong before is not the migration's doing.
        self.known = {_what(finding) for finding in before.findings}
        self.history: list[list[Edit]] = []
        self.items: list[Item] = []
        self.refused: dict[tuple[str, str], str] = {}
        self.troubles: list[Trouble] = []

    def run(self) -> Migrated:
        """Everything that can be done."""
        self._state_releases()
        result = dispatch.lint(self.workspace, [self.path], _RULES)
        for _ in range(MAX_PASSES):
            chosen = self._chosen(result.findings)
            if not chosen or not self._apply(chosen):
                break
            result = dispatch.lint(self.workspace, [self.path], _RULES)
        self.troubles += result.troubles
        self._leave(result.findings)
        self._compare(result.runs)
        config = self.configs[0]
        package = self.goal.package(config.framework)
        release = config.releases.known.get(package)
        start = "" if release is None else f"{release.version} ({release.origin.note})"
        return Migrated(
            self.path, config.framework, start, self.original, self.workspace.sources.read(self.path), tuple(self.items)
        )

    # --- what is done ------------------------------------------------------------------------------------------------

    def _state_releases(self) -> None:
        """Pragmas that state another release state the goal's."""
        edits = []
        for fact in pragmas.pragmas(self.original).facts:
            package = cluster_facts.canonical(fact.name)
            release = self.goal.to.get(package or "")
            if release is not None and fact.value != release:
                edits.append(Edit(fact.span, f"{fact.name}={release}"))
                message = f"the pragma states {fact.name}={release}"
                self.items.append(Item("changed", message, fact.span.start, fact.span.start))
        if edits:
            self._update(apply(self.original.source, edits), edits)

    def _chosen(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings whose fixes are made in this pass: those that do not touch what another one touches."""
        touched: set[str] = set()
        found = []
        for finding in findings:
            if self._concerns(finding) and _what(finding) not in self.refused and self._kind(finding) is not None:
                touches = _touches(finding.intent)
                if not touches & touched:
                    touched |= touches
                    found.append(finding)
        return found

    def _kind(self, finding: Finding) -> str | None:
        """How the report calls the finding's fix where it is made (changed, review); None where it is not."""
        fix = finding.intent
        if fix is None or fix.applicability == "display":
            return None
        deletes = all(isinstance(change, Delete) for _, changes in fix.keys for change in changes)
        if finding.code == _REMOVED:
            if fix.applicability == "safe" or _says_its_default(finding, fix):
                return "changed"
            return "review" if _has_successor(finding, fix) or _is_idle(finding, fix) else None
        if finding.severity != "error" or _what(finding) in self.known or finding.code == _UNKNOWN:
            return None
        return None if deletes else "changed" if fix.applicability == "safe" else "review"

    def _apply(self, findings: list[Finding]) -> bool:
        """Make some fixes, all at once where that can be written, else one by one. Whether anything was done."""
        try:
            self._make(findings)
            return True
        except (CannotEdit, DocumentError) as refusal:
            if len(findings) == 1:
                self.refused[_what(findings[0])] = str(refusal)
                return True
        for finding in findings:
            try:
                self._make([finding])
                return True  # the others were found in the text before it
            except (CannotEdit, DocumentError) as refusal:
                self.refused[_what(finding)] = str(refusal)
        return True

    def _make(self, findings: list[Finding]) -> None:
        fixes = [finding.intent for finding in findings if finding.intent is not None]
        merged = fixes[0]._replace(keys=tuple(pair for fix in fixes for pair in fix.keys))
        written = draft.rewrite(None, merged)
        sources = written.sources()
        if set(sources) - {self.path}:
            raise CannotEdit("it changes another file")
        edits = [edit for _, edits in written.edits for edit in edits]
        for finding in findings:
            assert finding.intent is not None
            assert finding.place is not None
            self.items.append(
                Item(
                    self._kind(finding) or "changed",
                    finding.intent.message,
                    self._then(finding.place.span.start),
                    None,
                    finding.code,
                )
            )
        self._update(sources.get(self.path, self.workspace.sources.read(self.path)), edits)

    def _update(self, source: bytes, edits: list[Edit]) -> None:
        self.history.append(edits)
        self.workspace = self.workspace.updated({self.path: source})

    def _then(self, offset: int) -> int:
        """The offset in the file as it was, of one in the text as it is now."""
        for edits in reversed(self.history):
            offset = _before(offset, edits)
        return offset

    def _now(self, offset: int) -> int:
        for edits in self.history:
            offset = _after(offset, edits)
        return offset

    # --- what is left ------------------------------------------------------------------------------------------------

    def _leave(self, findings: Iterable[Finding]) -> None:
        """What the goal does not take, and no fix of ours settles."""
        for finding in findings:
            if not self._concerns(finding) or not self._stops(finding) or finding.place is None:
                continue
            at = finding.place.span.start
            why = self.refused.get(_what(finding))
            advice = f" (not written: {why})" if why is not None else self._advice(finding)
            self.items.append(Item("human", finding.message + advice, self._then(at), at, finding.code))
        self._leave_strays()
        self.items = [
            item if item.after is not None or item.before is None else item._replace(after=self._now(item.before))
            for item in self.items
        ]

    def _leave_strays(self) -> None:
        """Words of a command line that no flag takes."""
        for config in self.workspace.configs_in(self.path):
            keys = keys_of(config)
            if keys is None:
                continue
            for word in keys.strays(config):
                at = word.span.start
                message = f"{word.text} is not the value of any flag: {keys.listed.title} refuses it"
                self.items.append(Item("human", message, self._then(at), at))

    def _stops(self, finding: Finding) -> bool:
        if finding.severity == "error":
            return True
        return finding.code == _REMOVED and finding.severity == "warning"

    def _advice(self, finding: Finding) -> str:
        fix = finding.intent
        return "" if fix is None else f" ({fix.message}?)"

    def _compare(self, runs: Iterable[Run]) -> None:
        """What the configuration says otherwise at the goal than it did before."""
        from cfglint_train.front.migrate.meaning import defaults, differences

        after = {run.main.root: run for run in runs if run.main.document.path == self.path}
        for run in self.before.runs:
            now = after.get(run.main.root)
            if run.main.document.path != self.path or now is None:
                continue
            at = run.main.top().span.start
            spoken = set()
            for key, message in differences(run, now):
                spoken.add(key)
                self.items.append(Item("review", message, at, self._now(at)))
            self.items += (Item("review", text) for key, text in defaults(run, now, self.goal) if key not in spoken)

    def _concerns(self, finding: Finding) -> bool:
        return finding.path == self.path and RULES[finding.code].rests_on_vocabulary


def _what(finding: Finding) -> tuple[str, str]:
    """The subject of a finding, at any place."""
    return finding.code, "" if finding.place is None else finding.place.document.text(finding.place.span)


def _touches(fix: Fix | None) -> set[str]:
    """The settings at the top that a fix changes."""
    touched = set()
    for config, changes in fix.keys if fix is not None else ():
        for change in changes:
            route = change.route[len(config.root) :]
            touched.add(f"{config.root}{next((step for step in route if isinstance(step, str)), '')}")
            if isinstance(change, Rename):
                touched.add(f"{config.root}{change.key}")
    return touched


def _says_its_default(finding: Finding, fix: Fix) -> bool:
    """Whether the key has the value that it would have without being there, so that nothing is lost with it."""
    sighting = _sighting(finding, fix)
    if sighting is None or sighting.fact is None:
        return False
    schema, value = sighting.fact.schema(), sighting.value
    if "default" not in schema or "x-computed" in schema:
        return False
    default = schema["default"]
    if isinstance(value, str) and isinstance(default, (int, float)) and not isinstance(default, bool):
        try:
            value = float(value)  # a word of a command line
        except ValueError:
            return False
    return bool(default == value)


def _has_successor(finding: Finding, fix: Fix) -> bool:
    sighting = _sighting(finding, fix)
    return sighting is not None and sighting.status is not None and bool(sighting.status.to)


def _is_idle(finding: Finding, fix: Fix) -> bool:
    """Whether the goal takes the key and does nothing with it, so that it makes no difference there."""
    sighting = _sighting(finding, fix)
    return sighting is not None and sighting.status is not None and sighting.status.effect in ("warning", "nothing")


def _sighting(finding: Finding, fix: Fix) -> KeyOccurrence | None:
    from cfglint_rules.vocabulary.survey import survey

    for config, _ in fix.keys:
        for sighting in survey(config):
            if finding.place is not None and sighting.entry.key.span == finding.place.span:
                return sighting
    return None


def _hints(configs: list[Config], goal: Goal) -> Iterable[str]:
    """Where the repository states another release than the goal's."""
    for config in configs:
        for package, wanted in goal.to.items():
            known, allowed = config.releases.known.get(package), config.releases.ranges.get(package)
            if allowed is not None and not allowed.constraint.allows(wanted):
                yield f"{allowed.origin.note} does not allow {package} {wanted}"
            if known is None or known.origin.kind != "user" or known.origin.note in ("pragma", "command line"):
                continue
            if release_key(known.version) != release_key(wanted):
                yield f"{known.origin.note} states {package} {known.version}, and the files are for {wanted} now"


# --- offsets ---------------------------------------------------------------------------------------------------------


def _before(offset: int, edits: list[Edit]) -> int:
    """An offset in an edited text as one in the text before the edits."""
    moved = 0
    for edit in ordered(edits):
        size = len(edit.text.encode())
        if offset < edit.span.start + moved:
            break
        if offset < edit.span.start + moved + size:
            return edit.span.start
        moved += size - (edit.span.end - edit.span.start)
    return offset - moved


def _after(offset: int, edits: list[Edit]) -> int:
    """An offset in a text as one in the text after the edits."""
    moved = 0
    for edit in ordered(edits):
        if edit.span.start >= offset:
            break
        if edit.span.end > offset:
            return edit.span.start + moved
        moved += len(edit.text.encode()) - (edit.span.end - edit.span.start)
    return offset + moved
