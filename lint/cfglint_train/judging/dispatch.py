"""The lint of files: assemble their runs, check them, and divide many files among processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Document
from cfglint_train.findings.finding import Finding, Report
from cfglint_train.foundation import deadline, filesystem
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, TypeVar
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging.checking import MAX_FINDINGS, check
from cfglint_train.judging.collector import Ledger, get_identity
from cfglint_train.judging.one_disease import describe_parts
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.result import CheckedFile, Result, Trouble, build_trouble
from cfglint_train.judging.selection import Selection, build_settings_resolver
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import pragmas
from cfglint_train.settings.error import SettingsError

if TYPE_CHECKING:
    from cfglint_train.judging.baseline import Baseline, BaselineComparison

MALFORMED_PRAGMA: Final = registry.ENGINE_RULES["pragma"]
SECRETS: Final = registry.ENGINE_RULES["secret"]

# Fewer files are not worth a process: copying it and reading its result takes as long as checking a few dozen files.
FILES_PER_JOB: Final = 32
MAX_FILES_BEFORE_FORK: Final = 8
"""Files that the first process checks before it starts others. If none of them has a run, few of the rest do."""

MAX_SECONDS: Final = 10.0
"""Maximum CPU seconds for one file. The slowest file of the corpus takes less than two seconds."""
MAX_CONFIGS: Final = 100
"""Maximum number of configs in one file, or of launches in one script."""
MAX_SUPPRESSIONS: Final = 200
"""Maximum number of suppression comments in one file."""

Subject = TypeVar("Subject")
Product = TypeVar("Product")


def open_workspace(options: LintOptions, sources: Mapping[str, bytes] | None = None) -> Workspace:
    """Return a workspace with the settings, command line and sources of a lint."""
    return Workspace(build_settings_resolver(options.settings, options.settings_files), options.command_line, sources)


def list_enabled_rules(workspace: Workspace, path: str, options: LintOptions) -> Mapping[str, Rule]:
    """Return the rules that are enabled for a file, by code."""
    return Selection(workspace.settings_for, options).list_enabled(path)


def lint(workspace: Workspace, paths: Iterable[str], options: LintOptions) -> Result:
    """Check files and return the result. Nothing is written.

    The result contains the runs only if a single process checked the files.
    """
    lint_run = LintRun(workspace, options)
    numbered_paths = list(enumerate(paths))
    process_count = _count_processes(options.jobs, len(numbered_paths) // FILES_PER_JOB)
    if process_count < 2:
        lint_run.check_files(numbered_paths)
    else:
        from cfglint_train.foundation import pool
        from cfglint_train.repository.scheduling import sort_turns

        def check_part(part: Iterator[tuple[int, str]]) -> Ledger:
            options.budget.take_part()
            part_lint = LintRun(workspace, options)
            part_lint.check_files(part)
            return part_lint.export_ledger()

        order = sort_turns(numbered_paths, workspace.repositories)
        checked = 0
        while checked < min(MAX_FILES_BEFORE_FORK, len(order)) and not lint_run.ledger.run_count:
            lint_run.check_files(
                order[checked : checked + 1]
            )  # load the modules and data of a run once, before the process is forked
            checked += 1
        options.budget.divide()
        for ledger in pool.gather(check_part, order[checked:], process_count):
            lint_run.ledger.absorb(ledger)
        options.budget.unite()
        lint_run.ledger.digests.sort(key=lambda pair: pair[0])
    lint_run.check_unnamed_companions()
    result = lint_run.build_result()
    return result._replace(file_count=len(numbered_paths), runs=result.runs if process_count < 2 else ())


def _count_processes(requested: int, useful: int) -> int:
    """Return the number of processes that share the files."""
    if useful < 2 or requested == 1:
        return 1
    from cfglint_train.foundation import pool

    return min(requested or pool.count_processors(), useful) if pool.can_copy() else 1


class LintRun:
    """The lint of some files, which checks every config and every run once."""

    def __init__(self, workspace: Workspace, options: LintOptions) -> None:
        """Prepare a lint without checking anything yet."""
        self.workspace = workspace
        self.options = options
        self.selection = Selection(workspace.settings_for, options)
        self.ledger = Ledger()
        self.runs: list[Run] = []
        self._turns: list[int] = []
        """Turns of the files of the runs."""
        self._documents_seen: set[str] = set()
        self._seconds_left: dict[str, float] = {}
        """Remaining CPU seconds by file; a file without any left is not processed further."""

    def check_files(self, numbered_paths: Iterable[tuple[int, str]]) -> None:
        """Check the main configs in some files, together with their companions and scripts.

        Other configs wait for `check_unnamed_companions`.
        """
        first = len(self.runs)
        for turn, path in numbered_paths:
            runs: list[tuple[int, Run]] = []
            switched: list[tuple[int, Run, str]] = []
            configs = self._read_configs(path)
            if len(configs) > MAX_CONFIGS:
                self._report_limit(path, f"more than {MAX_CONFIGS} configurations; the rest were not checked")
            for config in configs[:MAX_CONFIGS]:
                if config.role == "main":
                    assembled = self._assemble_run(config)
                    runs += [(turn, run) for run in assembled]
                    switched += [(turn, *item) for run in assembled for item in self._assemble_switched(config, run)]
                else:
                    self.ledger.companion_turns[path] = turn
            self._check_runs(runs)
            for turn, run, assumption in switched:
                self._check_switched(run, assumption, turn)
        self._add_digests(first)

    def check_unnamed_companions(self) -> None:
        """Check companions that no main config names, each as a run of its own."""
        companions = [
            (turn, config)
            for path, turn in sorted(self.ledger.companion_turns.items(), key=lambda item: item[1])
            for config in self._read_configs(path)
            if config.role != "main" and (config.document.path, config.root) not in self.ledger.config_keys
        ]
        for turn, config in companions:
            if not load(config.framework).is_companion:  # the script that reads the file is the run
                self._check_config(config, turn)
        runs = [
            (turn, run)
            for turn, config in companions
            if load(config.framework).is_companion
            for run in self._assemble_run(config)
        ]
        # A companion can name another: accelerate's file names DeepSpeed's.
        config_keys = {(config.document.path, config.root) for _, run in runs for config in run.companions}
        first = len(self.runs)
        self._check_runs(
            [(turn, run) for turn, run in runs if (run.main.document.path, run.main.root) not in config_keys]
        )
        self._add_digests(first)

    def _add_digests(self, first: int) -> None:
        """Add the digests of the runs from number `first` on."""
        if self.options.digest is not None:
            self.ledger.digests += zip(self._turns[first:], self.options.digest(self.runs[first:]))

    def export_ledger(self) -> Ledger:
        """Return the ledger for another process. Fixes are written out as edits, because runs are not sent."""
        from cfglint_train.judging.remedies import detach_findings

        self._finish()
        self.ledger.skipped += self.workspace.documents.skipped
        self.ledger.replace_findings(lambda _: True, detach_findings)
        return self.ledger

    def build_result(self) -> Result:
        """Return the result, with unsuppressed findings in order."""
        self._finish()
        ledger = self.ledger
        if ledger.unread_paths:
            from cfglint_train.judging.unread import report_budget

            report_budget(sorted(ledger.unread_paths), self.options.budget, self.selection, ledger)
        for root, bound in sorted(ledger.incomplete_repositories):
            from cfglint_train.judging.unread import report_bound

            checked_paths = (
                path for path, _ in ledger.checked if self.workspace.repositories.get_index(path).root == root
            )
            report_bound(min(checked_paths, default=root), bound, self.selection, ledger)
        for path in ledger.list_paths():
            self._read_comments(path, 0)
        findings = collected = sorted(ledger.list_findings(), key=lambda finding: finding.sort_key)
        if ledger.suppressions and self.options.suppressions:
            from cfglint_train.judging.suppressions import filter_suppressed

            findings = filter_suppressed(findings, ledger, self.selection)
        comparison = (
            None if self.options.baseline is None else self._compare_with_baseline(self.options.baseline, findings)
        )
        findings = findings if comparison is None else list(comparison.new)
        if {get_identity(finding) for finding in findings} - {get_identity(finding) for finding in collected}:
            findings = _drop_conflicting_fixes(findings)  # parts whose finding is suppressed or accepted
        return Result(
            files=tuple(sorted(ledger.checked.values())),
            findings=tuple([describe_parts(finding) if finding.parts else finding for finding in findings]),
            accepted=comparison,
            troubles=tuple(sorted(set(ledger.troubles), key=lambda trouble: (trouble[:2], trouble.rule or ""))),
            skipped=tuple(dict.fromkeys((*ledger.skipped, *self.workspace.documents.skipped))),
            runs=tuple(self.runs),
            run_count=ledger.run_count,
            unread_runs=tuple(ledger.unread_runs),
            secrets=frozenset(ledger.secrets),
            digests=tuple(digest for _, digest in ledger.digests),
        )

    def _compare_with_baseline(self, baseline: Baseline, findings: list[Finding]) -> BaselineComparison:
        """Compare the findings with the baseline."""
        from cfglint_train.foundation.regular_files import is_below
        from cfglint_train.judging.baseline import compare_with_baseline

        troubled = {os.path.abspath(trouble.path) for trouble in self.ledger.troubles}

        def is_checked(path: str, code: str) -> bool:
            is_in_folder = any(is_below(path, folder) for folder in self.options.folders)
            is_read = path not in troubled and not self.ledger.unread_paths  # unread files may have findings
            return is_in_folder and is_read and code in self.selection.list_enabled(os.path.relpath(path))

        return compare_with_baseline(findings, baseline, self.ledger.secrets, is_checked)

    def _read_configs(self, path: str) -> list[Config]:
        """Return the configs in a file, or none if reading fails."""
        return self._try(path, self.workspace.read_configs, path) or []

    def _assemble_run(self, config: Config) -> list[Run]:
        """Return the runs of a config; none if assembling fails."""
        runs = self._try(config.document.path, self.workspace.resolve_runs, config) or []
        for run in runs:
            run.inputs = run.inputs._replace(find_refusals=partial(_find_refusals, self.workspace))
        return runs

    def _assemble_switched(self, config: Config, run: Run) -> list[tuple[Run, str]]:
        """Return the runs in which only some launches of a config use a further companion, with the assumptions."""
        resolve = partial(self.workspace.resolve_switched_runs, run=run)
        return self._try(config.document.path, resolve, config) or []

    def _check_switched(self, run: Run, assumption: str, turn: int) -> None:
        """Check the companions of a run that only some launches start, without the run's memory.

        Findings are at most warnings if the run rests on an assumption.
        """
        # A companion that is only assumed is checked by itself; only its comparison with the script is added.
        for config in run.companions if not assumption else ():
            if (config.document.path, config.root) not in self.ledger.config_keys:
                self._check_config(config, turn)
        paths = {config.document.path for config in run.companions} - {run.main.document.path}
        origin = run.main.get_origin(load(run.main.framework).launch_interface.companion_setting)
        line = "" if origin.place is None else f":{origin.place.document.locate(origin.place.span.start).line}"
        note = f"assumes {assumption}" if assumption else f"applies to the launch in {origin.note}{line}"

        def convert(finding: Finding) -> Finding | None:
            rule = registry.RULES[finding.code]
            if finding.path not in paths or rule.estimates or rule.unchecked is not None:
                return None
            if assumption and not rule.module.startswith("companions."):
                return None
            finding = finding._replace(notes=tuple(dict.fromkeys((*finding.notes, note))))
            if not assumption or finding.severity != "error":
                return finding
            return finding._replace(severity="warning", certainty="assumed")

        self._check(run, turn, convert)

    def _try(self, path: str, function: Callable[[Subject], Product], argument: Subject) -> Product | None:
        """Call a function on a file within its CPU time; return None and record the trouble if it fails.

        Raise SettingsError, which concerns the whole lint.
        """
        seconds = self._seconds_left.setdefault(path, MAX_SECONDS)
        if seconds <= 0 or self._is_budget_spent(path):
            filesystem.discard_record()
            return None
        budget, clock = self.options.budget, deadline.read_clock
        end = clock() + seconds
        try:
            return deadline.run_within(lambda: min(end - clock(), budget.compute_seconds_left()), function, argument)
        except SettingsError:
            raise
        except deadline.OutOfTime:
            if not self._is_budget_spent(path):
                self._report_limit(path, f"not fully checked: it takes more than {MAX_SECONDS:.0f} seconds")
            return None
        except Exception as error:
            self.ledger.troubles.append(build_trouble(path, error))
            return None
        finally:
            self._seconds_left[path] = end - clock()

    def _is_budget_spent(self, path: str) -> bool:
        """Return whether the CPU time of the whole call is used up; the file is then recorded as unread."""
        spent = self.options.budget.compute_seconds_left() <= 0
        if spent:
            self.ledger.unread_paths.add(path)
        return spent

    def _report_limit(self, path: str, reason: str) -> None:
        """Report that a file exceeds a limit."""
        from cfglint_train.judging.unread import report_limit

        report_limit(path, reason, self.selection, self.ledger)

    def _check_runs(self, runs: list[tuple[int, Run]]) -> None:
        """Check runs and the configs in them."""
        runs = [(turn, run) for turn, run in runs if not self._is_budget_spent(run.main.document.path)]
        for turn, run in runs:
            for config in run.configs:
                if (config.document.path, config.root) not in self.ledger.config_keys:
                    self._check_config(config, turn)
            for script in run.inputs.scripts:
                self._read_document(script, turn)
                self.ledger.add(self._build_findings(SECRETS, registry.load_module(SECRETS).reports(script)), turn)
        for turn, run in runs:
            self._check(run, turn)
            run.forget_variants()
            if run.model_problem is not None:
                place = run.find_place("model.id")
                position = place.document.locate(place.span.start)
                self.ledger.troubles.append(Trouble(place.document.path, run.model_problem, position))
            self.runs.append(run)
            self.ledger.add_run(run)
            self._turns.append(turn)

    def _check_config(self, config: Config, turn: int) -> None:
        """Check a config by itself, without its run."""
        self.ledger.config_keys.add((config.document.path, config.root))
        checked = CheckedFile(config.document.path, config.framework, config.role)
        self.ledger.checked.setdefault((checked.path, checked.framework), checked)
        self._read_document(config.document, turn)
        self._check(config, turn)

    def _check(
        self,
        subject: Config | Run,
        turn: int,
        convert: Callable[[Finding], Finding | None] = lambda finding: finding,
    ) -> None:
        """Run the rules over a config or a run, and collect the findings that `convert` returns."""
        path = (subject if isinstance(subject, Config) else subject.main).document.path
        checked = self._try(path, partial(check, selection=self.selection), subject)
        if checked is None:
            return
        if checked.is_truncated:
            self._report_limit(path, f"more than {MAX_FINDINGS} findings; the others are not shown")
        findings = [item for finding in checked.findings if (item := convert(finding)) is not None]
        for finding in findings:
            if finding.place is not None:
                self._read_document(finding.place.document, turn)
        self.ledger.add(findings, turn)
        self.ledger.troubles += checked.troubles
        self.ledger.secrets |= checked.secrets

    def _read_document(self, document: Document, turn: int) -> None:
        """Collect the secrets in a document and the comments that address cfglint."""
        if document.path in self._documents_seen:
            return
        self._documents_seen.add(document.path)
        self.ledger.secrets.update(registry.load_module(SECRETS).values(document))
        self._read_comments(document.path, turn)

    def _read_comments(self, path: str, turn: int) -> None:
        """Collect the comments of a file that address cfglint.

        They are read from the file's own text, because a finding may point into the commands of a Makefile or README.
        """
        if path in self.ledger.paths_with_comments_read:
            return
        self.ledger.paths_with_comments_read.add(path)
        document = self.workspace.documents.read_commented(path, pragmas.MARK)
        if document is None:
            return
        self.ledger.add(self._build_findings(MALFORMED_PRAGMA, registry.get_checker(MALFORMED_PRAGMA)(document)), turn)
        suppressions = pragmas.read_pragmas(document).suppressions
        if len(suppressions) > MAX_SUPPRESSIONS:
            self._report_limit(path, f"more than {MAX_SUPPRESSIONS} suppressions; the rest have no effect")
            suppressions = suppressions[:MAX_SUPPRESSIONS]
        if suppressions:
            self.ledger.suppressions[path] = document, suppressions

    def _is_suppressed(self, finding: Finding) -> bool:
        """Return whether a comment suppresses a finding."""
        _, suppressions = self.ledger.suppressions.get(finding.path, (None, ()))
        return self.options.suppressions and any(
            pragmas.find_silencing_codes(suppression, finding.code, finding.name, finding.start, finding.end)
            for suppression in suppressions
        )

    def _build_findings(self, rule: Rule, reports: Iterable[Report]) -> list[Finding]:
        """Return the findings of a rule that needs only a document."""
        reports = tuple(reports)
        if not reports:
            return []
        from cfglint_train.judging.finding_builder import build_finding

        findings = (build_finding(rule, report, self.selection) for report in reports)
        return [finding for finding in findings if finding is not None]

    def _finish(self) -> None:
        """Report unread files, and withhold fixes that the framework would reject or that conflict with another fix."""
        self.ledger.incomplete_repositories.update(self.workspace.repositories.list_limits_reached())
        if self.workspace.documents.unread:
            from cfglint_train.judging.unread import report_unread

            report_unread(self.workspace.documents, self.selection, self.ledger)
        self.ledger.replace_findings(
            lambda finding: finding.intent is not None and bool(finding.intent.keys), self._check_fixes
        )
        self.ledger.replace_findings(
            lambda finding: finding.intent is not None and not self._is_suppressed(finding), _drop_conflicting_fixes
        )

    def _check_fixes(self, findings: list[Finding]) -> list[Finding]:
        """Return the findings with the applicability "display" for fixes that the framework would reject.

        A fix that could not be checked in time is removed.
        """
        from cfglint_train.judging.fix_preconditions import drop_rejected_fixes

        numbers_by_path: dict[str, list[int]] = {}
        for number, finding in enumerate(findings):
            if finding.intent is not None:
                numbers_by_path.setdefault(finding.intent.keys[0][0].document.path, []).append(number)
        for path, numbers in numbers_by_path.items():
            file_findings = [findings[number] for number in numbers]
            has_time = self.options.budget.compute_seconds_left() > 0
            checked = self._try(path, drop_rejected_fixes, file_findings) if has_time else None
            for number, finding in zip(
                numbers, checked or (unchecked._replace(intent=None) for unchecked in file_findings)
            ):
                findings[number] = finding
        return findings


def _find_refusals(workspace: Workspace, run: Run, texts: Mapping[str, bytes]) -> frozenset[str]:
    from cfglint_train.judging.fix_preconditions import find_refusals

    return find_refusals(workspace, run, texts)


def _drop_conflicting_fixes(findings: Iterable[Finding]) -> list[Finding]:
    from cfglint_train.judging.fix_preconditions import drop_conflicting_fixes

    return drop_conflicting_fixes(findings)
