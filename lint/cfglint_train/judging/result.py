"""Result of a lint: findings, and problems that prevented cfglint from checking a file."""

from __future__ import annotations

from cfglint_rules.registry import RULES
from cfglint_train.documents.document import DocumentError, Position
from cfglint_train.findings.finding import Finding, shorten_message
from cfglint_train.foundation.errors import describe_crash
from cfglint_train.foundation.frozen import Frozen, dataclass
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks.lens import Role
from cfglint_train.repository.documents import SkippedFile
from cfglint_train.runs.run import Run
from cfglint_train.settings.cluster_facts import FactError

if TYPE_CHECKING:
    from cfglint_train.judging.baseline import BaselineComparison


class Trouble(Frozen):
    """A problem that prevented a check: an unreadable file, an invalid fact, a crashed rule."""

    path: str
    message: str
    position: Position | None = None
    rule: str | None = None
    """Code of the rule that crashed."""
    is_internal: bool = False
    """True if cfglint itself failed; the file may be fine."""
    is_global: bool = False
    """True if the problem concerns the whole call, not only the file at which it is reported."""


@dataclass(frozen=True, slots=True, order=True)
class CheckedFile:
    """A file with a config: its framework and its role in a run."""

    path: str
    framework: str
    role: Role


@dataclass(frozen=True, slots=True)
class UnsupportedFiles:
    """Files that look like those of a tool that cfglint does not support."""

    framework: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Numbers of training runs, by how far they were checked."""

    checked: int
    """Runs whose memory was checked."""
    memory_not_checked: int
    """Runs that were read, but whose memory could not be checked."""
    not_read: int
    """Runs that cfglint found, for example in a launch script, but could not read."""


class Result(Frozen):
    """The outcome of a lint."""

    files: tuple[CheckedFile, ...]
    findings: tuple[Finding, ...]
    troubles: tuple[Trouble, ...]
    skipped: tuple[SkippedFile, ...]
    runs: tuple[Run, ...]
    """Empty if the runs were assembled in other processes."""
    secrets: frozenset[str] = frozenset()
    """Secrets in the checked files, which no report may show."""
    digests: tuple[Any, ...] = ()
    """Result of `LintOptions.digest` for every run, in the order of `runs`."""
    run_count: int = 0
    """Number of training runs, including those assembled in other processes."""
    file_count: int = 0
    """Number of input files, including files that are not configs."""
    unread_runs: tuple[Trouble, ...] = ()
    """Runs that were found, for example in a launch script, but could not be read."""
    accepted: BaselineComparison | None = None
    """Comparison with the baseline, or None if there is no baseline."""

    @property
    def is_cut_short(self) -> bool:
        """True if files were left unread because the CPU time of the call was used up."""
        return any(trouble.is_global for trouble in self.troubles)

    @property
    def not_checked(self) -> tuple[Finding, ...]:
        """Findings about runs whose memory could not be checked."""
        findings = (finding for item in self.findings for finding in (item, *item.others, *item.parts))
        return tuple([finding for finding in findings if RULES[finding.code].unchecked == "memory"])

    @property
    def run_counts(self) -> RunCounts:
        """Numbers of runs that were checked, checked without their memory, and not read."""
        unread = [finding for finding in self.findings if RULES[finding.code].unchecked == "run"]
        unchecked_count = sum(finding.run_count for finding in self.not_checked)
        return RunCounts(
            max(0, self.run_count - unchecked_count), unchecked_count, sum(finding.run_count for finding in unread)
        )

    @property
    def read_paths(self) -> frozenset[str]:
        """Files that were checked, could not be checked, or start runs that were not read."""
        unread = (finding.path for finding in self.findings if RULES[finding.code].unchecked == "run")
        return frozenset((*(file.path for file in self.files), *(trouble.path for trouble in self.troubles), *unread))

    @property
    def unsupported(self) -> tuple[UnsupportedFiles, ...]:
        """Skipped files that look like a tool's, grouped and sorted by tool."""
        paths_by_tool: dict[str, list[str]] = {}
        for file in self.skipped:
            if file.looks_like:
                paths_by_tool.setdefault(file.looks_like, []).append(file.path)
        return tuple(UnsupportedFiles(name, tuple(sorted(paths))) for name, paths in sorted(paths_by_tool.items()))


def build_trouble(path: str, error: Exception) -> Trouble:
    """Return the trouble for an error in reading a file."""
    if isinstance(error, FactError):
        place = error.origin.place
        position = place.document.locate(place.span.start) if place is not None else None
        source = "" if place is not None else f" ({error.origin.note})"
        path_of_fact = place.document.path if place is not None else path
        return Trouble(path_of_fact, shorten_message(f"{error.message}{source}"), position)
    if isinstance(error, DocumentError):
        return Trouble(path, error.message, error.position)
    return Trouble(path, describe_crash(error), is_internal=True)
