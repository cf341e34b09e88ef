"""Notebooks as Python documents."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.documents.document import CannotEdit, Change, DocumentError, Edit, decode
from cfglint_train.documents.notebooks import CodePlaces, Notebook, parse_notebook
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.foundation.python_grammar import parse_python


class NotebookDocument(PythonDocument):
    """The Python code of a notebook's cells as one script, in the lines of the file. It cannot be edited."""

    def __init__(self, path: str, source: bytes) -> None:
        """Parse the cells, without those that are no Python. Raise `DocumentError` if the text is not a notebook."""
        notebook = parse_notebook(decode(source))
        if notebook is None:
            raise DocumentError("not a notebook")
        self.commands = notebook.commands
        try:
            super().__init__(path, notebook.python.encode())
        except DocumentError:
            super().__init__(path, _drop_broken_cells(notebook).encode())

    def find_offset(self, text: str, offset: int) -> int:
        """Return the number of bytes of code before a character of the file's text."""
        start = text.rfind("\n", 0, offset) + 1
        return CodePlaces(text, decode(self.source)).find_offset(text.count("\n", 0, offset), offset - start)

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raise `CannotEdit`, because the offsets are those of the code and not of the file."""
        raise CannotEdit("cfglint does not edit notebooks")


def _drop_broken_cells(notebook: Notebook) -> str:
    """Return the Python code without the cells that do not parse."""
    lines = notebook.python.split("\n")
    for start, end in notebook.cells:
        try:
            parse_python("\n".join(lines[start:end]))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            lines[start:end] = [""] * len(lines[start:end])
    return "\n".join(lines)
