"""Options of a lint besides its files: rules, facts from the command line, processes."""

from __future__ import annotations

from collections.abc import Callable

from cfglint_train.foundation.budget import Budget
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import CommandLine
from cfglint_train.settings.files import DISK, Files
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_train.judging.baseline import Baseline


class LintOptions(Frozen):
    """Options of the command line, which override the settings."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    require_checked: bool | None = None
    """Keep the rules that report unchecked runs (CHK) on, whatever is selected; None: as the settings of each file
    say.
    """
    command_line: CommandLine = CommandLine()
    settings: Settings | None = None
    """Settings for every file (`--config`, `--isolated`); None: the nearest ones for each file."""
    settings_files: Files = DISK
    """Source of the settings files."""
    jobs: int = 1
    """Processes among which many files are shared. With more than one, findings have their edits but no runs."""
    budget: Budget = Budget()
    """CPU time of the whole call."""
    suppressions: bool = True
    """Apply the suppression comments in the files."""
    baseline: Baseline | None = None
    """Findings that the repository has accepted: they are neither reported nor fixed."""
    folders: tuple[str, ...] = ()
    """Absolute paths of folders that are checked completely: only entries of the baseline below them can be stale."""
    digest: Callable[[Run], Any] | None = None
    """Computes a digest of every run, in the process that assembled it; the digest must be picklable."""
