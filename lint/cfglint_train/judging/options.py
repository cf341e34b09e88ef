"""Options of a lint call except its files: selected rules, facts from the command line, number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """True to enable the rules that report unchecked runs (CHK), regardless of the selected rules.

    None to follow the settings of each file.
    """
    command_line: CommandLine = CommandLine()
    settings: Settings | None = None
    """Settings for every file (`--config`, `--isolated`), or None to use the nearest settings of each file."""
    settings_files: Files = DISK
    """Source of the settings files."""
    jobs: int = 1
    """Number of processes among which the files are divided, or 0 for one per core.

    With more than one process, findings have edits but no runs.
    """
    budget: Budget = Budget()
    """CPU-time budget of the whole call."""
    suppressions: bool = True
    """True to apply the suppression comments in the files."""
    baseline: Baseline | None = None
    """Findings that the repository has accepted: they are neither reported nor fixed."""
    folders: tuple[str, ...] = ()
    """Absolute paths of the folders that are checked completely; only baseline entries below them can be stale."""
    digest: Callable[[Sequence[Run]], Sequence[Any]] | None = None
    """Function that computes the digests of runs, in the process that assembled them. A digest must be picklable."""
