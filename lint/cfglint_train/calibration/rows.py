"""Evidence rows: one JSON object per line, each a measurement or an outcome.

`data/row.schema.json` describes the fields. A row names its origin (`id`, `source`, `group`, `quality`), the job in the
source's words (`framework`, `model`, `method`, ...), the result (`metric`, `measured_gib`, `outcome`), and the same job
as fields that the memory model reads (`plan`, `shape`, `setup`, ...; see `subject.py`). A fact that the source does not
state is absent or null. A field of the wrong type counts as absent, so that a malformed row cannot crash a report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

DATA_FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
"""Folder of the rows. It is part of the repository, not of the wheel."""

PUBLISHED_ROWS: Final = os.path.join(DATA_FOLDER, "published.jsonl")

MEASURED_FOLDER: Final = os.path.join(DATA_FOLDER, "measured")

EVIDENCE_KINDS: Final = ("measured", "published", "traced", "derived")
"""Kinds of evidence, which are never mixed.

measured (our harness on a real GPU), published (measurements by others), traced (autograd of the real model code on
fake tensors), derived (a calculation or a CPU experiment).
"""


class Row(Frozen):
    """An evidence row. A value whose type differs from the schema counts as absent."""

    id: str
    content: Mapping[str, Any]

    def get_text(self, field: str) -> str:
        """Return the string of a field, or "" if absent."""
        value = self.content.get(field)
        return value if isinstance(value, str) else ""

    def get_number(self, field: str) -> float | None:
        """Return the finite number of a field, or None if absent."""
        value = self.content.get(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if value == value and abs(value) != float("inf") else None

    def get_size(self, field: str) -> float | None:
        """Return the positive number of a field, or None: zero and negative numbers are not measurements."""
        value = self.get_number(field)
        return value if value is not None and value > 0 else None

    def get_count(self, field: str) -> int | None:
        """Return the positive whole number of a field, or None if absent."""
        value = self.get_number(field)
        return int(value) if value is not None and value > 0 and value == int(value) else None

    def get_table(self, field: str) -> Mapping[str, Any]:
        """Return the object of a field, empty if absent."""
        value = self.content.get(field)
        return value if isinstance(value, dict) else {}

    def get_words(self, field: str) -> tuple[str, ...]:
        """Return the strings of a list, or a single string as a tuple; empty if absent."""
        value = self.content.get(field)
        if isinstance(value, str):
            return (value,)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


class Unreadable(Frozen):
    """A line that cannot be read as a row, with the reason."""

    line: int
    reason: str


def parse_rows(lines: Iterable[str]) -> Iterator[Row | Unreadable]:
    """Yield the rows of JSON lines, and an `Unreadable` for each malformed line; blank lines are skipped."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Unreadable(number, f"not valid JSON: {error}")
            continue
        if not isinstance(content, dict):
            yield Unreadable(number, "not a JSON object")
            continue
        name = content.get("id")
        yield Row(name if isinstance(name, str) and name else f"line {number}", content)


def read_rows(path: str = PUBLISHED_ROWS) -> list[Row | Unreadable]:
    """Return the rows of a file; bytes that are not UTF-8 are replaced.

    Raise `OSError` if the file cannot be read.
    """
    return list(parse_rows(regular_files.read_anywhere(path).decode("utf-8", "replace").splitlines()))


def read_measured(folder: str = MEASURED_FOLDER) -> list[Row]:
    """Return every measured row of the repository.

    If a file holds a case (id, rank and world size) more than once, only its last row is returned.
    """
    if not os.path.isdir(folder):
        return []
    names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    rows: dict[tuple[Any, ...], Row] = {}
    for name in names:
        for row in read_rows(os.path.join(folder, name)):
            if not isinstance(row, Unreadable):
                rows[name, row.id, row.content.get("rank"), row.content.get("world")] = row
    return list(rows.values())


def read_evidence(kind: str) -> list[dict[str, Any]]:
    """Return the evidence rows of a kind; empty if their file does not exist.

    Raise `ValueError` for an unknown kind.
    """
    if kind not in EVIDENCE_KINDS:
        raise ValueError(f"{kind!r} is not a kind of evidence; known are {', '.join(EVIDENCE_KINDS)}")
    if kind == "measured":
        return [dict(row.content) for row in read_measured()]
    path = os.path.join(DATA_FOLDER, f"{kind}.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]
