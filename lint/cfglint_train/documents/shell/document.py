"""Shell scripts as editable documents: read by `script.py`, rewritten by `write.py`."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Change, Edit
from cfglint_train.documents.shell.script import ShellScript


class ShellDocument(ShellScript):
    """A shell script that can be edited."""

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Return the edits that make the changes.

        Raise `CannotEdit` if no single place in the text determines a value.
        """
        from cfglint_train.documents.shell.write import ShellWriter

        return ShellWriter(self).write(list(changes))
