"""Python scripts as documents: read by `script.py`, rewritten by `write.py`."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import Change, Edit
from cfglint_train.documents.python.script import PythonScript


class PythonDocument(PythonScript):
    """A Python script that can be edited."""

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """The edits that make `changes`; CannotEdit names the launch-time override that says the same."""
        from cfglint_train.documents.python.write import PythonWriter

        return PythonWriter(self).write(list(changes))
