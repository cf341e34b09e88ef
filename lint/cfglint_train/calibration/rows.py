"""Published rows: one JSON object per line, one measurement or outcome each. `data/row.schema.json` has the fields.

A row states whose measurement it is (`id`, `source`, `group`, `quality`), what ran, in the source's words (`framework`,
`model`, `method`, ...), what was seen (`metric`, `measured_gib`, `outcome`), and the same job as fields that the memory
model reads (`plan`, `shape`, `setup`, ...; see `subject.py`). What a source does not state is absent or null; a field
of another type than the schema's counts as absent, so that no row can stop a report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
"""Part of the repository, not of the wheel."""

PACKAGED: Final = os.path.join(FOLDER, "published.jsonl")

MEASURED: Final = os.path.join(FOLDER, "measured")

KINDS: Final = ("measured", "published", "traced", "derived")
"""measured (our harness on a real GPU), published (measurements of others), traced (autograd of the real model code on
fake tensors), derived (a calculation or a CPU experiment); never mixed."""


class Row(Frozen):
    """One row, with values of another type than the schema's taken as absent."""

    id: str
    content: Mapping[str, Any]

    def text(self, field: str) -> str:
        """A string; empty where absent."""
        value = self.content.get(field)
        return value if isinstance(value, str) else ""

    def number(self, field: str) -> float | None:
        """A finite number."""
        value = self.content.get(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value) if value == value and abs(value) != float("inf") else None

    def size(self, field: str) -> float | None:
        """A number above zero: nothing else is a measurement."""
        value = self.number(field)
        return value if value is not None and value > 0 else None

    def whole(self, field: str) -> int | None:
        """A positive whole number."""
        value = self.number(field)
        return int(value) if value is not None and value > 0 and value == int(value) else None

    def table(self, field: str) -> Mapping[str, Any]:
        """An object; empty where absent."""
        value = self.content.get(field)
        return value if isinstance(value, dict) else {}

    def words(self, field: str) -> tuple[str, ...]:
        """A list of strings, or one string."""
        value = self.content.get(field)
        if isinstance(value, str):
            return (value,)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


class Unreadable(Frozen):
    """A line that is no row."""

    line: int
    reason: str


def parse(lines: Iterable[str]) -> Iterator[Row | Unreadable]:
    """The rows of JSON lines; blank lines are skipped."""
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


def read(path: str = PACKAGED) -> list[Row | Unreadable]:
    """The rows of a file, up to a size; what is not UTF-8 becomes a replacement character. Raises OSError."""
    return list(parse(regular_files.read_anywhere(path).decode("utf-8", "replace").splitlines()))


def filed(folder: str = MEASURED) -> list[Row]:
    """Every measured row of the package; of a case that was measured twice the later one."""
    if not os.path.isdir(folder):
        return []
    names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    found: dict[tuple[Any, ...], Row] = {}
    for name in names:
        for row in read(os.path.join(folder, name)):
            if not isinstance(row, Unreadable):
                found[name, row.id, row.content.get("rank"), row.content.get("world")] = row
    return list(found.values())


def evidence(kind: str) -> list[dict[str, Any]]:
    """The evidence rows of one kind. Raises ValueError for a name that is no kind."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of evidence; known are {', '.join(KINDS)}")
    if kind == "measured":
        return [dict(row.content) for row in filed()]
    path = os.path.join(FOLDER, f"{kind}.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]
