"""Files in, findings out: assembles the runs of some files, checks them, and shares many files among processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Document
from cfglint_train.findings.finding import Finding, Report
from cfglint_train.foundation import deadline
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, TypeVar
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging.checking import MAX_FINDINGS, check
from cfglint_train.judging.collector import Ledger
from cfglint_train.judging.finding_builder import signed
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.result import CheckedFile, Result, Trouble, trouble_of
from cfglint_train.judging.selection import Selection, settings_resolver
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import pragmas
from cfglint_train.settings.error import SettingsError

if TYPE_CHECKING:
    from cfglint_train.judging.baseline import Baseline, Split

MALFORMED_PRAGMA: Final = registry.OF_ENGINE["pragma"]
SECRETS: Final = registry.OF_ENGINE["secret"]

# Fewer files are not worth a process: copying one and reading its answer takes as long as some dozen of them.
FILES_PER_JOB: Final = 32
MOST_ALONE: Final = 8
"""Files that one process checks before others are started: so many hold a run, or few of them do."""

MAX_SECONDS: Final = 10.0
"""Processor time for one file. The slowest file of the corpus takes under two seconds."""
MAX_CONFIGS: Final = 100
"""Configurations of one file, or launches of one script."""
MAX_SUPPRESSIONS: Final = 200
"""Comments of one file that silence findings."""

Part = TypeVar("Part")
Made = TypeVar("Made")


def workspace_for(options: LintOptions, sources: Mapping[str, bytes] | None = None) -> Workspace:
    """A workspace that follows the options."""
    return Workspace(settings_resolver(options.settings, options.settings_files), options.command_line, sources)


def enabled(workspace: Workspace, path: str, options: LintOptions) -> Mapping[str, Rule]:
    """The rules that are on for a file, by their codes."""
    return Selection(workspace.settings_for, options).enabled(path)


def lint(workspace: Workspace, paths: Iterable[str], options: LintOptions) -> Result:
    """Check the files. Nothing is written."""
    whole = Lint(workspace, options)
    turns = list(enumerate(paths))
    jobs = _jobs(options.jobs, len(turns) // FILES_PER_JOB)
    if jobs < 2:
        whole.runs_of(turns)
    else:
        from cfglint_train.foundation import pool
        from cfglint_train.repository.scheduling import neighbours

        def share(part: Iterator[tuple[int, str]]) -> Ledger:
            options.budget.take_part()
            one = Lint(workspace, options)
            one.runs_of(part)
            return one.share()

        order = neighbours(turns, workspace.repositories)
        alone = 0
        while alone < min(MOST_ALONE, len(order)) and not whole.ledger.runs:
            whole.runs_of(order[alone : alone + 1])  # what a run needs is imported and read once, for all processes
            alone += 1
        options.budget.divide()
        for found in pool.gather(share, order[alone:], jobs):
            whole.ledger.absorb(found)
        options.budget.unite()
        whole.ledger.digests.sort(key=lambda pair: pair[0])
    whole.companions_alone()
    result = whole.result()
    return result._replace(looked_at=len(turns), runs=result.runs if jobs < 2 else ())


def _jobs(wanted: int, useful: int) -> int:
    """How many processes share the files."""
    if useful < 2 or wanted == 1:
        return 1
    from cfglint_train.foundation import pool

    return min(wanted or pool.processors(), useful) if pool.can_copy() else 1


class Lint:
    """The lint of some files: which configurations and runs are checked, each once."""

    def __init__(self, workspace: Workspace, options: LintOptions) -> None:
        self.workspace = workspace
        self.options = options
        self.selection = Selection(workspace.settings_for, options)
        self.ledger = Ledger()
        self.runs: list[Run] = []
        self._met: set[str] = set()
        self._left: dict[str, float] = {}
        """Files -> the seconds that are left for them; nothing more is done for those that have none."""

    def runs_of(self, turns: Iterable[tuple[int, str]]) -> None:
        """Check the main configurations among some files, with what they name."""
        for turn, path in turns:
            runs: list[tuple[int, Run]] = []
            configs = self._configs(path)
            if len(configs) > MAX_CONFIGS:
                self._stop(path, f"more than {MAX_CONFIGS} configurations; those after them were not checked")
            for config in configs[:MAX_CONFIGS]:
                if config.role == "main":
                    runs += [(turn, run) for run in self._assembled(config)]
                else:
                    self.ledger.companions[path] = turn
            self._examine(runs)

    def companions_alone(self) -> None:
        """Check companions that no main configuration names: each is a run of its own, as far as it goes."""
        runs = [
            (turn, run)
            for path, turn in sorted(self.ledger.companions.items(), key=lambda item: item[1])
            for config in self._configs(path)
            if config.role != "main" and (config.document.path, config.root) not in self.ledger.named
            for run in self._assembled(config)
        ]
        # One may name another, as accelerate's file names DeepSpeed's.
        named = {(config.document.path, config.root) for _, run in runs for config in run.companions}
        self._examine([(turn, run) for turn, run in runs if (run.main.document.path, run.main.root) not in named])

    def share(self) -> Ledger:
        """What was found so far. Fixes are written out, since runs stay where they are."""
        from cfglint_train.judging.remedies import settled

        self._conclude()
        self.ledger.skipped += self.workspace.documents.skipped
        self.ledger.change(lambda _: True, settled)
        return self.ledger

    def result(self) -> Result:
        """The findings that nothing silences, in order."""
        self._conclude()
        ledger = self.ledger
        if ledger.unread:
            from cfglint_train.judging.unread import note_budget

            note_budget(sorted(ledger.unread), self.options.budget, self.selection, ledger)
        for root, bound in sorted(ledger.cut):
            from cfglint_train.judging.unread import note_bound

            within = (path for path, _ in ledger.checked if self.workspace.repositories.index(path).root == root)
            note_bound(min(within, default=root), bound, self.selection, ledger)
        for path in ledger.paths():
            self._hear(path, 0)
        found = sorted(ledger.findings(), key=lambda finding: finding.order)
        if ledger.silencers and self.options.suppressions:
            from cfglint_train.judging.suppressions import unsuppressed

            found = unsuppressed(found, ledger, self.selection)
        accepted = None if self.options.baseline is None else self._accepted(self.options.baseline, found)
        return Result(
            files=tuple(sorted(ledger.checked.values())),
            findings=tuple(found) if accepted is None else accepted.new,
            accepted=accepted,
            troubles=tuple(sorted(set(ledger.troubles), key=lambda trouble: (trouble[:2], trouble.rule or ""))),
            skipped=tuple(dict.fromkeys((*ledger.skipped, *self.workspace.documents.skipped))),
            runs=tuple(self.runs),
            runs_met=ledger.runs,
            secrets=frozenset(ledger.secrets),
            digests=tuple(one for _, one in ledger.digests),
        )

    def _accepted(self, baseline: Baseline, found: list[Finding]) -> Split:
        """The findings compared with the baseline."""
        from cfglint_train.foundation.regular_files import is_below
        from cfglint_train.judging.baseline import held_against

        troubled = {os.path.abspath(trouble.path) for trouble in self.ledger.troubles}

        def judged(path: str, code: str) -> bool:
            below = any(is_below(path, folder) for folder in self.options.folders)
            read = path not in troubled and not self.ledger.unread  # of a folder that was not walked, nothing is known
            return below and read and code in self.selection.enabled(os.path.relpath(path))

        return held_against(found, baseline, self.ledger.secrets, judged)

    def _configs(self, path: str) -> list[Config]:
        """The configurations in a file."""
        return self._tried(path, self.workspace.configs_in, path) or []

    def _assembled(self, config: Config) -> list[Run]:
        """The run of a configuration, if it can be assembled."""
        run = self._tried(config.document.path, self.workspace.run, config)
        if run is None:
            return []
        run.parts = run.parts._replace(refusals=partial(_refusals, self.workspace))
        return [run]

    def _tried(self, path: str, work: Callable[[Part], Made], part: Part) -> Made | None:
        """What some work on a file makes; whatever goes wrong with the file stays with it."""
        left = self._left.setdefault(path, MAX_SECONDS)
        if left <= 0 or self._is_spent(path):
            return None
        budget, clock = self.options.budget, deadline.clock
        end = clock() + left
        try:
            return deadline.within(lambda: min(end - clock(), budget.left()), work, part)
        except SettingsError:
            raise
        except deadline.OutOfTime:
            if not self._is_spent(path):
                self._stop(path, f"not checked to its end: it takes more than {MAX_SECONDS:.0f} seconds")
            return None
        except Exception as error:
            self.ledger.troubles.append(trouble_of(path, error))
            return None
        finally:
            self._left[path] = end - clock()

    def _is_spent(self, path: str) -> bool:
        """Return whether the time of the whole run is used up; a file is then noted as not read."""
        spent = self.options.budget.left() <= 0
        if spent:
            self.ledger.unread.add(path)
        return spent

    def _stop(self, path: str, reason: str) -> None:
        """Note that a file goes beyond a limit; nothing more is done for it where its time is up."""
        from cfglint_train.judging.unread import note_limit

        note_limit(path, reason, self.selection, self.ledger)

    def _examine(self, runs: list[tuple[int, Run]]) -> None:
        """Check runs and the configurations in them."""
        runs = [(turn, run) for turn, run in runs if not self._is_spent(run.main.document.path)]
        for turn, run in runs:
            for config in run.configs:
                key = (config.document.path, config.root)
                if key not in self.ledger.named:
                    self.ledger.named.add(key)
                    checked = CheckedFile(config.document.path, config.framework, config.role)
                    self.ledger.checked.setdefault((checked.path, checked.framework), checked)
                    self._meet(config.document, turn)
                    self._check(config, turn)
            for script in run.parts.scripts:
                self._meet(script, turn)
                self.ledger.add(self._said(SECRETS, registry.module(SECRETS).reports(script)), turn)
        for turn, run in runs:
            self._check(run, turn)
            if run.problem is not None:
                place = run.place("model.id")
                position = place.document.position(place.span.start)
                self.ledger.troubles.append(Trouble(place.document.path, run.problem, position))
            self.runs.append(run)
            self.ledger.name(run)
            if self.options.digest is not None:
                self.ledger.digests.append((turn, self.options.digest(run)))

    def _check(self, subject: Config | Run, turn: int) -> None:
        """Note what the rules say of a configuration or a run."""
        path = (subject if isinstance(subject, Config) else subject.main).document.path
        found = self._tried(path, partial(check, selection=self.selection), subject)
        if found is None:
            return
        if found.more:
            self._stop(path, f"more than {MAX_FINDINGS} findings; the others are not shown")
        for finding in found.findings:
            if finding.place is not None:
                self._meet(finding.place.document, turn)
        self.ledger.add(found.findings, turn)
        self.ledger.troubles += found.troubles
        self.ledger.secrets |= found.secrets

    def _meet(self, document: Document, turn: int) -> None:
        """Note what a document holds beside settings: credentials, and comments that address cfglint."""
        if document.path in self._met:
            return
        self._met.add(document.path)
        self.ledger.secrets.update(registry.module(SECRETS).values(document))
        self._hear(document.path, turn)

    def _hear(self, path: str, turn: int) -> None:
        """Note the comments of a file that address cfglint. They are read from its own text: a finding may point into
        the commands of a Makefile or a read-me file.
        """
        if path in self.ledger.heard:
            return
        self.ledger.heard.add(path)
        document = self.workspace.documents.commented(path, pragmas.MARK)
        if document is None:
            return
        self.ledger.add(self._said(MALFORMED_PRAGMA, registry.checker(MALFORMED_PRAGMA)(document)), turn)
        suppressions = pragmas.pragmas(document).suppressions
        if len(suppressions) > MAX_SUPPRESSIONS:
            self._stop(path, f"more than {MAX_SUPPRESSIONS} suppressions; those after them do nothing")
            suppressions = suppressions[:MAX_SUPPRESSIONS]
        if suppressions:
            self.ledger.silencers[path] = document, suppressions

    def _is_silenced(self, finding: Finding) -> bool:
        """Return whether a comment silences a finding."""
        _, suppressions = self.ledger.silencers.get(finding.path, (None, ()))
        return self.options.suppressions and any(
            pragmas.silencing(one, finding.code, finding.name, finding.start, finding.end) for one in suppressions
        )

    def _said(self, rule: Rule, reports: Iterable[Report]) -> list[Finding]:
        """The findings of a rule that reads a text alone."""
        found = (signed(rule, report, self.selection) for report in reports)
        return [finding for finding in found if finding is not None]

    def _conclude(self) -> None:
        """Note the files that could not be read, and keep fixes from being applied where the framework would refuse
        the fixed file, or another fix undoes them.
        """
        self.ledger.cut.update(self.workspace.repositories.cut())
        if self.workspace.documents.unread:
            from cfglint_train.judging.unread import note_unread

            note_unread(self.workspace.documents, self.selection, self.ledger)
        self.ledger.change(lambda finding: finding.intent is not None and bool(finding.intent.keys), self._guarded)
        self.ledger.change(lambda finding: finding.intent is not None and not self._is_silenced(finding), _apart)

    def _guarded(self, findings: list[Finding]) -> list[Finding]:
        """The findings, those that would be refused for display only; no fix is kept that could not be looked at."""
        from cfglint_train.judging.fix_preconditions import guarded

        of_files: dict[str, list[int]] = {}
        for number, finding in enumerate(findings):
            if finding.intent is not None:
                of_files.setdefault(finding.intent.keys[0][0].document.path, []).append(number)
        for path, numbers in of_files.items():
            found = [findings[number] for number in numbers]
            in_time = self.options.budget.left() > 0
            kept = self._tried(path, guarded, found) if in_time else None
            for number, finding in zip(numbers, kept or (one._replace(intent=None) for one in found)):
                findings[number] = finding
        return findings


def _refusals(workspace: Workspace, run: Run, texts: Mapping[str, bytes]) -> frozenset[str]:
    from cfglint_train.judging.fix_preconditions import refusals

    return refusals(workspace, run, texts)


def _apart(findings: Iterable[Finding]) -> list[Finding]:
    from cfglint_train.judging.fix_preconditions import apart

    return apart(findings)
