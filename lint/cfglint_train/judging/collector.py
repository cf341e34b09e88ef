"""Collected results of a lint, without duplicates. Worker processes send their ledgers to the first process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.judging.result import CheckedFile, Trouble
from cfglint_train.repository.documents import SkippedFile
from cfglint_train.runs.run import Run
from cfglint_train.settings import pragmas

if TYPE_CHECKING:
    from cfglint_train.judging.sharing import Job, Occurrence

_FindingKey = tuple[Any, ...]


class Ledger:
    """Findings and everything else that a lint collects. A **turn** is the position of a file in the list of paths."""

    def __init__(self) -> None:
        """Start with an empty ledger."""
        self.checked: dict[tuple[str, str], CheckedFile] = {}
        self._occurrences: dict[_FindingKey, dict[Job, Occurrence]] = {}
        """Identity of a finding -> its occurrence in each job."""
        self._jobs_by_companion: dict[str, set[Job]] = {}
        """Path of a companion -> the jobs whose runs read it."""
        self.troubles: list[Trouble] = []
        self.unread_runs: list[Trouble] = []
        """Runs that were found but could not be read."""
        self.unread_paths: set[str] = set()
        """Files that were not read completely before the CPU time of the call was used up."""
        self.incomplete_repositories: set[tuple[str, str]] = set()
        """Roots of repositories that were not searched completely, with the bound that was reached."""
        self.skipped: list[SkippedFile] = []
        self.secrets: set[str] = set()
        self.suppressions: dict[str, tuple[Document, tuple[pragmas.Suppression, ...]]] = {}
        """Documents with suppression comments, by path."""
        self.paths_with_comments_read: set[str] = set()
        """Files whose comments were read."""
        self.companion_turns: dict[str, int] = {}
        """Files with companions (configs other than main configs), and their turns."""
        self.config_keys: set[_FindingKey] = set()
        """Path and root of every config that belongs to a run."""
        self.run_count = 0
        """Number of training runs; a companion that no config names does not count."""
        self.digests: list[tuple[int, Any]] = []
        """Digests of the runs, with the turns of their files."""

    def add(self, findings: Iterable[Finding], turn: int) -> None:
        """Add the findings of one subject, unless they are already collected."""
        findings = tuple(findings)
        if not findings:
            return
        from cfglint_train.judging.sharing import Occurrence, get_job

        occurrence_counts: dict[_FindingKey, int] = {}
        for finding in findings:
            key, job = get_identity(finding), get_job(finding.run)
            if is_in_companion(finding):
                key = key[:-1]
                occurrence_counts[key] = number = occurrence_counts.get(key, 0) + 1
                key = (*key, number)
            self._occurrences.setdefault(key, {}).setdefault(job, Occurrence(turn, finding))

    def add_run(self, run: Run) -> None:
        """Count a run and record the companions that it reads."""
        self.run_count += run.is_training_run
        if not run.companions:
            return
        from cfglint_train.judging.sharing import get_job

        job = get_job(run)
        for companion in run.companions:
            self._jobs_by_companion.setdefault(companion.document.path, set()).add(job)

    def list_paths(self) -> list[str]:
        """Return the files that findings point into, sorted."""
        return sorted({key[0] for key in self._occurrences})

    def list_findings(self) -> Iterator[Finding]:
        """Yield every finding once.

        A finding of several runs gets the grade of the worst run. A fix is demoted if it changes a file of other runs
        that do not need the fix.
        """
        if not self._occurrences:
            return
        from cfglint_train.judging.sharing import (
            is_run_specific,
            list_changed_files,
            merge_occurrences,
            protect_other_runs,
        )

        shared = {path: jobs for path, jobs in self._jobs_by_companion.items() if len(jobs) > 1}
        agreeing_jobs = self._find_agreeing_jobs(shared) if shared else {}
        for occurrences in self._occurrences.values():
            naming_jobs = self._jobs_by_companion.get(next(iter(occurrences.values())).finding.path, ())
            finding = merge_occurrences(occurrences, naming_jobs)
            for path in list_changed_files(finding).intersection(shared):
                others = shared[path] - agreeing_jobs.get((finding.code, path), set())
                finding = protect_other_runs(
                    finding, path, len(shared[path]) - 1 if is_run_specific(finding) else len(others)
                )
            yield finding

    def _find_agreeing_jobs(self, shared: Mapping[str, set[Job]]) -> dict[tuple[str, str], set[Job]]:
        """Return the jobs in which a rule would change a shared file, by rule code and path."""
        from cfglint_train.judging.sharing import list_changed_files

        agreeing_jobs: dict[tuple[str, str], set[Job]] = {}
        for occurrences in self._occurrences.values():
            for job, occurrence in occurrences.items():
                for path in list_changed_files(occurrence.finding).intersection(shared):
                    agreeing_jobs.setdefault((occurrence.finding.code, path), set()).add(job)
        return agreeing_jobs

    def replace_findings(
        self, is_wanted: Callable[[Finding], bool], replace: Callable[[list[Finding]], Iterable[Finding]]
    ) -> None:
        """Replace the findings for which `is_wanted` is true with the results of `replace`."""
        places = [
            (occurrences, job)
            for occurrences in self._occurrences.values()
            for job, occurrence in occurrences.items()
            if is_wanted(occurrence.finding)
        ]
        if places:
            for (occurrences, job), finding in zip(places, replace([by_job[job].finding for by_job, job in places])):
                occurrences[job] = occurrences[job]._replace(finding=finding)

    def absorb(self, other: Ledger) -> None:
        """Merge the results of another process into this ledger."""
        self.checked.update(other.checked)
        for key, occurrences in other._occurrences.items():
            merged = self._occurrences.setdefault(key, {})
            for job, occurrence in occurrences.items():
                if job not in merged or occurrence.turn < merged[job].turn:
                    merged[job] = occurrence
        for path, jobs in other._jobs_by_companion.items():
            self._jobs_by_companion.setdefault(path, set()).update(jobs)
        self.troubles += other.troubles
        self.unread_runs += other.unread_runs
        self.unread_paths |= other.unread_paths
        self.incomplete_repositories |= other.incomplete_repositories
        self.skipped += other.skipped
        self.secrets |= other.secrets
        self.suppressions.update(other.suppressions)
        self.paths_with_comments_read |= other.paths_with_comments_read
        self.companion_turns.update(other.companion_turns)
        self.config_keys |= other.config_keys
        self.run_count += other.run_count
        self.digests += other.digests


def get_identity(finding: Finding) -> _FindingKey:
    """Return the place, code and message of a finding, which identify it."""
    return finding.path, finding.start, finding.end, finding.code, finding.message


def is_in_companion(finding: Finding) -> bool:
    """Return whether a finding about a run points into a companion, which other runs may name as well."""
    return finding.run is not None and finding.path != finding.run.main.document.path
