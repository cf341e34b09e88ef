"""What a lint is asked for beside files: rules, facts of the command line, processes."""

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
    """What the command line adds to the settings."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    require_checked: bool | None = None
    """The rules that report what could not be checked are on, whatever is selected; None: as the settings of each file
    have it."""
    command_line: CommandLine = CommandLine()
    settings: Settings | None = None
    """The settings for every file (`--config`, `--isolated`); None: those nearest to each file."""
    settings_files: Files = DISK
    """Where the nearest settings are looked for."""
    jobs: int = 1
    """Processes to share many files among. With more than one, findings have their fixes but no runs."""
    budget: Budget = Budget()
    """The processor time of the whole run."""
    suppressions: bool = True
    """Comments in the files silence findings."""
    baseline: Baseline | None = None
    """The findings that the repository has accepted: they are neither reported nor fixed."""
    folders: tuple[str, ...] = ()
    """The folders that are checked as a whole, absolute: only below them an entry of the baseline can be stale."""
    digest: Callable[[Run], Any] | None = None
    """What to keep of every run, wherever it was assembled; it has to be something that processes can exchange."""
