"""Rewriting of files for another release: apply the fixes of the key rules, read the file again, repeat.

A migration applies the fixes of the rules and goes further than `--fix` in two ways. It writes a successor key even if
the meaning differs slightly, and reports it for review. It removes a key that is set to its old default, or that the
target release only warns about. Any other key without a successor is left to a human.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfglint_rules.registry import RULES
from cfglint_train.documents.document import (
    CannotEdit,
    Delete,
    Document,
    DocumentError,
    Edit,
    Rename,
    apply_edits,
    sort_edits,
)
from cfglint_train.findings import draft
from cfglint_train.findings.finding import Finding, Fix
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import get_keys
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

# A migration reports everything that the target release rejects, even if it was suppressed.
_RULES: Final = LintOptions(
    select=tuple(code for code, rule in RULES.items() if rule.rests_on_vocabulary), suppressions=False
)

# Rules about a key that a release lacks; the other vocabulary rules are about a key's context.
_REMOVED: Final = "KEY002"
_UNKNOWN: Final = "KEY001"
_UNREAD: Final = ("ignored", "renamed")
"""Kinds of the status of a key that may exist although nothing reads it."""


class Item(Frozen):
    """An item of the report about a file."""

    kind: str
    """One of changed, review (changed, needs review), and human (not changed, needs a human)."""
    message: str
    before: int | None = None
    """Offset in the original file, or None if the item has no place."""
    after: int | None = None
    """Offset in the rewritten file."""
    code: str | None = None


class MigratedFile(Frozen):
    """A migrated file."""

    path: str
    framework: str
    start: str
    """The release that the file was written for, with the evidence, or an empty string if it is unknown."""
    original: Document
    source: bytes
    """The new content."""
    items: tuple[Item, ...]

    @property
    def has_changes(self) -> bool:
        """True if the content changed."""
        return self.source != self.original.source


class Outcome(Frozen):
    """The result of migrating some files."""

    files: tuple[MigratedFile, ...]
    troubles: tuple[Trouble, ...]
    hints: tuple[str, ...]
    """Sentences about places where the repository still states other releases."""
    secrets: frozenset[str] = frozenset()


def migrate(paths: Iterable[str], goal: Goal, settings_for: Callable[[str], Settings]) -> Outcome:
    """Migrate files in memory. Nothing is written to disk."""
    resolve_settings = _select_all_rules(settings_for)
    start = Workspace(resolve_settings, CommandLine(goal.start), idle=True, upstream=True)
    target = Workspace(resolve_settings, CommandLine(goal.to), idle=True, upstream=True)
    files: list[MigratedFile] = []
    troubles: dict[Trouble, None] = {}
    hints: dict[str, None] = {}
    secrets: set[str] = set()
    for path in paths:
        before = dispatch.lint(start, [path], _RULES)
        troubles.update(dict.fromkeys(before.troubles))
        secrets |= before.secrets
        configs = [config for config in _read_configs(start, path) if config.framework in goal.frameworks]
        if configs:
            migration = _FileMigration(path, goal, target, configs, before)
            files.append(migration.migrate())
            troubles.update(dict.fromkeys(migration.troubles))
            hints.update(dict.fromkeys(_find_release_conflicts(configs, goal)))
    return Outcome(tuple(files), tuple(troubles), tuple(hints), frozenset(secrets))


def _select_all_rules(settings_for: Callable[[str], Settings]) -> Callable[[str], Settings]:
    """Wrap a settings resolver so that the settings enable all rules, because a migration selects its own rules."""

    def resolve(path: str) -> Settings:
        file_settings = settings_for(path)
        return file_settings._replace(
            select=("ALL",), ignore=(), fixable=("ALL",), unfixable=(), safe_fixes=(), unsafe_fixes=(),
            per_file_ignores=(), overrides=tuple(override._replace(ignore=()) for override in file_settings.overrides),
        )  # fmt: skip

    return resolve


def _read_configs(workspace: Workspace, path: str) -> list[Config]:
    try:
        return workspace.read_configs(path)
    except (DocumentError, UsageError):
        return []  # reported by the lint


class _FileMigration:
    """The migration of one file."""

    def __init__(self, path: str, goal: Goal, workspace: Workspace, configs: list[Config], before: Result) -> None:
        """Prepare the migration of a file; `before` is its lint at the start release."""
        self.path = path
        self.goal = goal
        self.workspace = workspace
        self.configs = configs
        self.original = configs[0].document
        self.before = before
        # Problems that existed before the migration.
        self.previous = {_identify(finding) for finding in before.findings}
        self.history: list[list[Edit]] = []
        self.items: list[Item] = []
        self.refused: dict[tuple[str, str], str] = {}
        self.troubles: list[Trouble] = []

    def migrate(self) -> MigratedFile:
        """Apply all possible fixes and report the rest."""
        self._update_pragmas()
        result = dispatch.lint(self.workspace, [self.path], _RULES)
        for _ in range(MAX_PASSES):
            selected = self._choose_findings(result.findings)
            if not selected or not self._apply_fixes(selected):
                break
            result = dispatch.lint(self.workspace, [self.path], _RULES)
        self.troubles += result.troubles
        self._report_remaining(result.findings)
        self._compare_runs(result.runs)
        config = self.configs[0]
        package = self.goal.find_package(config.framework)
        release = config.releases.by_package.get(package)
        start = "" if release is None else f"{release.version} ({release.origin.note})"
        return MigratedFile(
            self.path, config.framework, start, self.original, self.workspace.sources.read(self.path), tuple(self.items)
        )

    # --- what is done ------------------------------------------------------------------------------------------------

    def _update_pragmas(self) -> None:
        """Update pragmas that state another release to the target release."""
        edits = []
        for fact in pragmas.read_pragmas(self.original).facts:
            package = cluster_facts.find_canonical_name(fact.name)
            release = self.goal.to.get(package or "")
            if release is not None and fact.value != release:
                edits.append(Edit(fact.span, f"{fact.name}={release}"))
                message = f"the pragma states {fact.name}={release}"
                self.items.append(Item("changed", message, fact.span.start, fact.span.start))
        if edits:
            self._record_edits(apply_edits(self.original.source, edits), edits)

    def _choose_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings to fix in this pass: those whose fixes do not touch the same settings."""
        touched: set[str] = set()
        chosen = []
        for finding in findings:
            if (
                self._is_relevant(finding)
                and _identify(finding) not in self.refused
                and self._classify_fix(finding) is not None
            ):
                keys = _find_touched_settings(finding.intent)
                if not keys & touched:
                    touched |= keys
                    chosen.append(finding)
        return chosen

    def _classify_fix(self, finding: Finding) -> str | None:
        """Return the kind of a finding's fix in the report (changed, review), or None if it is not applied."""
        fix = finding.intent
        if fix is None or fix.applicability == "display":
            return None
        deletes = all(isinstance(change, Delete) for _, changes in fix.keys for change in changes)
        if finding.code == _REMOVED:
            if fix.applicability == "safe" or _has_default_value(finding, fix):
                return "changed"
            return "review" if _has_successor(finding, fix) or _is_ignored(finding, fix) else None
        if self._is_lost(finding):
            return "changed" if _has_successor(finding, fix) and not deletes else "review"
        if finding.severity != "error" or _identify(finding) in self.previous or finding.code == _UNKNOWN:
            return None
        return "changed" if fix.applicability == "safe" else None if deletes else "review"

    def _is_lost(self, finding: Finding) -> bool:
        """Return whether the target release has a key but never reads it, and the start release reads it."""
        if finding.intent is None or _identify(finding) in self.previous:
            return False
        occurrence = _find_occurrence(finding, finding.intent)
        status = None if occurrence is None else occurrence.status
        return status is not None and status.kind in _UNREAD and status.effect == "nothing"

    def _apply_fixes(self, findings: list[Finding]) -> bool:
        """Apply some fixes, together if possible, or else only the first that can be written.

        Fixes that cannot be written are recorded in `refused`. Always return True, because a fix is applied or refused.
        """
        try:
            self._write_fixes(findings)
            return True
        except (CannotEdit, DocumentError) as refusal:
            if len(findings) == 1:
                self.refused[_identify(findings[0])] = str(refusal)
                return True
        for finding in findings:
            try:
                self._write_fixes([finding])
                return True  # the positions of the other findings are outdated now
            except (CannotEdit, DocumentError) as refusal:
                self.refused[_identify(finding)] = str(refusal)
        return True

    def _write_fixes(self, findings: list[Finding]) -> None:
        fixes = [finding.intent for finding in findings if finding.intent is not None]
        merged = fixes[0]._replace(keys=tuple(pair for fix in fixes for pair in fix.keys))
        rewritten = draft.write_fix(None, merged)
        sources = rewritten.render_sources()
        if set(sources) - {self.path}:
            raise CannotEdit("the fix changes another file")
        edits = [edit for _, edits in rewritten.edits for edit in edits]
        for finding in findings:
            assert finding.intent is not None
            assert finding.place is not None
            self.items.append(
                Item(
                    self._classify_fix(finding) or "changed",
                    finding.intent.message,
                    self._map_to_original(finding.place.span.start),
                    None,
                    finding.code,
                )
            )
        self._record_edits(sources.get(self.path, self.workspace.sources.read(self.path)), edits)

    def _record_edits(self, source: bytes, edits: list[Edit]) -> None:
        self.history.append(edits)
        self.workspace = self.workspace.replace_files({self.path: source})

    def _map_to_original(self, offset: int) -> int:
        """Convert an offset in the current text to one in the original file."""
        for edits in reversed(self.history):
            offset = _map_backward(offset, edits)
        return offset

    def _map_to_current(self, offset: int) -> int:
        for edits in self.history:
            offset = _map_forward(offset, edits)
        return offset

    # --- what is left ------------------------------------------------------------------------------------------------

    def _report_remaining(self, findings: Iterable[Finding]) -> None:
        """Add items for findings at the target release that no fix resolved."""
        for finding in findings:
            if not self._is_relevant(finding) or not self._is_blocking(finding) or finding.place is None:
                continue
            offset = finding.place.span.start
            reason = self.refused.get(_identify(finding))
            advice = f" (not written: {reason})" if reason is not None else self._format_advice(finding)
            self.items.append(
                Item("human", finding.message + advice, self._map_to_original(offset), offset, finding.code)
            )
        self._report_leftovers()
        self.items = [
            item
            if item.after is not None or item.before is None
            else item._replace(after=self._map_to_current(item.before))
            for item in self.items
        ]

    def _report_leftovers(self) -> None:
        """Add items for words of a command line that belong to no flag."""
        for config in self.workspace.read_configs(self.path):
            keys = get_keys(config)
            if keys is None:
                continue
            for word in keys.find_leftovers(config):
                offset = word.span.start
                message = f"{word.text} belongs to no flag: {keys.manifest.title} rejects it"
                self.items.append(Item("human", message, self._map_to_original(offset), offset))

    def _is_blocking(self, finding: Finding) -> bool:
        if finding.severity == "error" or self._is_lost(finding):
            return True
        return finding.code == _REMOVED and finding.severity == "warning"

    def _format_advice(self, finding: Finding) -> str:
        fix = finding.intent
        return "" if fix is None else f" ({fix.message}?)"

    def _compare_runs(self, runs: Iterable[Run]) -> None:
        """Add items for effects of the configuration that differ at the target release."""
        from cfglint_train.front.migrate.meaning import find_changed_defaults, find_differences

        after = {run.main.root: run for run in runs if run.main.document.path == self.path}
        for run in self.before.runs:
            migrated_run = after.get(run.main.root)
            if run.main.document.path != self.path or migrated_run is None:
                continue
            offset = run.main.find_top().span.start
            reported = set()
            for key, message in find_differences(run, migrated_run):
                reported.add(key)
                self.items.append(Item("review", message, offset, self._map_to_current(offset)))
            self.items += (
                Item("review", text)
                for key, text in find_changed_defaults(run, migrated_run, self.goal)
                if key not in reported
            )

    def _is_relevant(self, finding: Finding) -> bool:
        return finding.path == self.path and RULES[finding.code].rests_on_vocabulary


def _identify(finding: Finding) -> tuple[str, str]:
    """Return the code and the marked text of a finding, which identify it independently of its offset."""
    return finding.code, "" if finding.place is None else finding.place.document.get_text(finding.place.span)


def _find_touched_settings(fix: Fix | None) -> set[str]:
    """Return the top-level settings that a fix changes."""
    settings = set()
    for config, changes in fix.keys if fix is not None else ():
        for change in changes:
            route = change.route[len(config.root) :]
            settings.add(f"{config.root}{next((step for step in route if isinstance(step, str)), '')}")
            if isinstance(change, Rename):
                settings.add(f"{config.root}{change.key}")
    return settings


def _has_default_value(finding: Finding, fix: Fix) -> bool:
    """Return whether the key is set to its default, so that removing it changes nothing."""
    occurrence = _find_occurrence(finding, fix)
    if occurrence is None or occurrence.fact is None:
        return False
    schema, value = occurrence.fact.get_schema(), occurrence.value
    if "default" not in schema or "x-computed" in schema:
        return False
    default = schema["default"]
    if isinstance(value, str) and isinstance(default, (int, float)) and not isinstance(default, bool):
        try:
            value = float(value)  # words of a command line are strings
        except ValueError:
            return False
    return bool(default == value)


def _has_successor(finding: Finding, fix: Fix) -> bool:
    occurrence = _find_occurrence(finding, fix)
    return occurrence is not None and occurrence.status is not None and bool(occurrence.status.new_names)


def _is_ignored(finding: Finding, fix: Fix) -> bool:
    """Return whether the target release accepts the key but ignores it."""
    occurrence = _find_occurrence(finding, fix)
    return (
        occurrence is not None and occurrence.status is not None and occurrence.status.effect in ("warning", "nothing")
    )


def _find_occurrence(finding: Finding, fix: Fix) -> KeyOccurrence | None:
    """Return the key that a finding marks; a dotted word marks the sections around the key, too."""
    from cfglint_rules.vocabulary.survey import list_key_occurrences

    span = None if finding.place is None else finding.place.span
    occurrences = (
        occurrence
        for config, _ in fix.keys
        for occurrence in list_key_occurrences(config)
        if occurrence.entry.key.span == span
    )
    return max(occurrences, key=lambda occurrence: len(occurrence.route), default=None)


def _find_release_conflicts(configs: list[Config], goal: Goal) -> Iterable[str]:
    """Yield a sentence for each place where the repository states a release other than the target."""
    for config in configs:
        for package, target in goal.to.items():
            release, allowed = config.releases.by_package.get(package), config.releases.allowed_releases.get(package)
            if allowed is not None and not allowed.constraint.is_satisfied_by(target):
                yield f"{allowed.origin.note} does not allow {package} {target}"
            if release is None or release.origin.kind != "user" or release.origin.note in ("pragma", "command line"):
                continue
            if parse_release(release.version) != parse_release(target):
                yield f"{release.origin.note} states {package} {release.version}, but the files are now for {target}"


# --- offsets ---------------------------------------------------------------------------------------------------------


def _map_backward(offset: int, edits: list[Edit]) -> int:
    """Convert an offset in an edited text to the offset in the text before the edits."""
    shift = 0
    for edit in sort_edits(edits):
        size = len(edit.text.encode())
        if offset < edit.span.start + shift:
            break
        if offset < edit.span.start + shift + size:
            return edit.span.start
        shift += size - (edit.span.end - edit.span.start)
    return offset - shift


def _map_forward(offset: int, edits: list[Edit]) -> int:
    """Convert an offset in a text to the offset in the edited text."""
    shift = 0
    for edit in sort_edits(edits):
        if edit.span.start >= offset:
            break
        if edit.span.end > offset:
            return edit.span.start + shift
        shift += len(edit.text.encode()) - (edit.span.end - edit.span.start)
    return offset + shift
