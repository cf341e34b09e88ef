"""Commands of cfglint that a report shows, for copying."""

from __future__ import annotations

import shlex

from cfglint_train.foundation.credentials import mask
from cfglint_train.reports.style import Style


def spell_command(command: str, path: str, style: Style, *words: str) -> str:
    """Return a command about the run in a file, with the facts that the command of the report states.

    `command`: the subcommand with its own flags. `words`: flags that take the rest of the line.
    """
    subject = (path,) if style.subject is None else style.subject
    return mask(shlex.join(("cfglint", *command.split(), *subject, *style.flags, *words)))
