"""What a lint has found so far, each thing once: processes that share files exchange their ledgers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.typed import Any
from cfglint_train.judging.result import CheckedFile, Trouble
from cfglint_train.judging.sharing import Job, Occurrence, changed_by, is_of_one_run, job_of, merged, sparing
from cfglint_train.repository.documents import SkippedFile
from cfglint_train.runs.not_estimated import trains
from cfglint_train.runs.run import Run
from cfglint_train.settings import pragmas

_Key = tuple[Any, ...]


class Ledger:
    """Findings and what goes with them. A **turn** is the number of the file whose run came first."""

    def __init__(self) -> None:
        self.checked: dict[tuple[str, str], CheckedFile] = {}
        self._sightings: dict[_Key, dict[Job, Occurrence]] = {}
        """What makes findings one -> the finding of each job."""
        self._naming: dict[str, set[Job]] = {}
        """Companions -> the jobs that they shape."""
        self.troubles: list[Trouble] = []
        self.unread: set[str] = set()
        """Files that were not read, or not to their end, when the time of the run was used up."""
        self.cut: set[tuple[str, str]] = set()
        """The roots of repositories of which not all was looked at, with the bound that was met."""
        self.skipped: list[SkippedFile] = []
        self.secrets: set[str] = set()
        self.silencers: dict[str, tuple[Document, tuple[pragmas.Suppression, ...]]] = {}
        """Documents with comments that silence findings."""
        self.heard: set[str] = set()
        """Files whose comments were read."""
        self.companions: dict[str, int] = {}
        """Files with configurations that are no main ones, and their turns."""
        self.named: set[_Key] = set()
        """The configurations that belong to some run."""
        self.runs = 0
        """How many training runs were met; a companion that no configuration names is none."""
        self.digests: list[tuple[int, Any]] = []
        """What is kept of the runs, with the turns of their files."""

    def add(self, findings: Iterable[Finding], turn: int) -> None:
        """Note the findings of one subject, unless they are known."""
        met: dict[_Key, int] = {}
        for finding in findings:
            key, job = identity(finding), job_of(finding.run)
            if is_shared(finding):
                key = key[:-1]
                met[key] = number = met.get(key, 0) + 1
                key = (*key, number)
            self._sightings.setdefault(key, {}).setdefault(job, Occurrence(turn, finding))

    def name(self, run: Run) -> None:
        """Note a run, and the companions that shape it."""
        self.runs += trains(run)
        for companion in run.companions:
            self._naming.setdefault(companion.document.path, set()).add(job_of(run))

    def paths(self) -> list[str]:
        """Return the files that findings point into."""
        return sorted({key[0] for key in self._sightings})

    def findings(self) -> Iterator[Finding]:
        """Every finding once; one of several runs has the grade of the worst. A fix spares the files of other runs."""
        shared = {path: jobs for path, jobs in self._naming.items() if len(jobs) > 1}
        agreeing = self._agreeing(shared) if shared else {}
        for sightings in self._sightings.values():
            naming = self._naming.get(next(iter(sightings.values())).finding.path, ())
            found = merged(sightings, naming)
            for path in changed_by(found).intersection(shared):
                others = shared[path] - agreeing.get((found.code, path), set())
                found = sparing(found, path, len(shared[path]) - 1 if is_of_one_run(found) else len(others))
            yield found

    def _agreeing(self, shared: Mapping[str, set[Job]]) -> dict[tuple[str, str], set[Job]]:
        """The runs for which a rule would change a file that several of them name."""
        found: dict[tuple[str, str], set[Job]] = {}
        for sightings in self._sightings.values():
            for job, sighting in sightings.items():
                for path in changed_by(sighting.finding).intersection(shared):
                    found.setdefault((sighting.finding.code, path), set()).add(job)
        return found

    def change(self, wanted: Callable[[Finding], bool], changed: Callable[[list[Finding]], Iterable[Finding]]) -> None:
        """Put others in the place of some findings."""
        places = [
            (sightings, job)
            for sightings in self._sightings.values()
            for job, sighting in sightings.items()
            if wanted(sighting.finding)
        ]
        if places:
            for (sightings, job), finding in zip(places, changed([at[job].finding for at, job in places])):
                sightings[job] = sightings[job]._replace(finding=finding)

    def absorb(self, other: Ledger) -> None:
        """Take over what was found elsewhere."""
        self.checked.update(other.checked)
        for key, sightings in other._sightings.items():
            ours = self._sightings.setdefault(key, {})
            for job, sighting in sightings.items():
                if job not in ours or sighting.turn < ours[job].turn:
                    ours[job] = sighting
        for path, jobs in other._naming.items():
            self._naming.setdefault(path, set()).update(jobs)
        self.troubles += other.troubles
        self.unread |= other.unread
        self.cut |= other.cut
        self.skipped += other.skipped
        self.secrets |= other.secrets
        self.silencers.update(other.silencers)
        self.heard |= other.heard
        self.companions.update(other.companions)
        self.named |= other.named
        self.runs += other.runs
        self.digests += other.digests


def identity(finding: Finding) -> _Key:
    """What makes two findings one: place, rule and message."""
    return finding.path, finding.start, finding.end, finding.code, finding.message


def is_shared(finding: Finding) -> bool:
    """Whether a finding about a run points into a companion, which other runs may name as well."""
    return finding.run is not None and finding.path != finding.run.main.document.path
