"""Python scripts as documents: read by `script.py`, edited by `write.py`."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Change, Edit
from cfglint_train.documents.python.script import PythonScript


class PythonDocument(PythonScript):
    """A Python script that can be edited."""

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Return the edits that make `changes`.

        Raise `CannotEdit` if a change cannot be written; its message names the launch override with the same effect.
        """
        from cfglint_train.documents.python.write import PythonWriter

        return PythonWriter(self).write(list(changes))
