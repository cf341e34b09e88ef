"""Clause tables: `refusals.json` and `idle.json` in the folder of a framework.

A file is parsed when the first config of its framework is checked. `clauses.schema.json`, next to the folders,
describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from functools import cache
from json import loads

from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Literal
from cfglint_train.frameworks.registry import list_frameworks

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.operators import Test

TableKind = Literal["refusals", "idle"]


class ClauseFix(Frozen):
    """Fix of a clause: settings to set and to remove."""

    applicability: Applicability
    message: str
    values: Mapping[str, Any]
    removed: tuple[str, ...]


class Clause(Frozen):
    """A statement about several settings."""

    name: str
    message: str
    when: Mapping[str, Test]
    """Setting -> test of its value; the finding points at the first setting that the file gives, or at `at`."""
    either: tuple[Mapping[str, Test], ...]
    """If there are any, one of these must hold as well; the finding does not point at their settings."""
    each: tuple[str, ...]
    """If there are any, one of these must be given; one finding names all that are given."""
    also: str | None
    """Condition in code: a function of `conditions.py` in the framework's folder."""
    example: Mapping[str, Any]
    """Settings that match the clause, and no longer do without any of them. None: not given."""
    source: str
    since: str | None
    """First release for which it holds; None: all known ones."""
    before: str | None
    package: str | None
    """Package of the releases `since` and `before`; None: the framework."""
    severity: Severity
    fix: ClauseFix | None
    help: str | None
    at: str | None
    """Setting that the finding points at if its place is known: one in a companion gives one finding for all runs."""


Row = Mapping[str, Any]
"""A clause as written in its file."""


def build_clause(row: Row) -> Clause:
    """Return a row as a `Clause`; most rows never match and are not converted."""
    fix = row.get("cure")
    return Clause(
        row["name"],
        row["message"],
        row["when"],
        tuple(row.get("either", ())),
        tuple(row.get("each", ())),
        row.get("also"),
        row["example"],
        row["source"],
        row.get("since"),
        row.get("before"),
        row.get("package"),
        row.get("severity", "error"),
        fix and ClauseFix(fix["applicability"], fix["message"], fix.get("set", {}), tuple(fix.get("remove", ()))),
        row.get("help"),
        row.get("at"),
    )


class VocabularyTable:
    """Clauses of a file and of those that it includes, in order."""

    __slots__ = ("_about", "rows")

    def __init__(self, rows: list[Row]) -> None:
        """Index the clauses by their first setting."""
        self.rows = rows
        # A clause cannot match without its first setting. Maps that setting, or its section, to row numbers.
        self._about: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            name = next(iter(row["when"]))
            self._about.setdefault(name if name[0] == "-" else name.partition(".")[0], []).append(number)

    def list_candidates(self, given_names: Set[str] | None) -> Iterable[Row]:
        """Return the clauses that can match if these settings are given at the top level (None: any may be given)."""
        if given_names is None:
            return self.rows
        numbers = [number for name in given_names if name in self._about for number in self._about[name]]
        return [self.rows[number] for number in sorted(numbers)]

    def list_exclusive_settings(self) -> set[str]:
        """Return the settings that only their clause reports."""
        return {next(iter(row["when"])) for row in self.rows if "sole" in row}


@cache
def load_table(framework: str, kind: TableKind) -> VocabularyTable:
    """Return the clauses of a framework, possibly none."""
    path = os.path.join(list_frameworks()[framework].folder, f"{kind}.json")
    return VocabularyTable(_load_rows(path) if os.path.exists(path) else [])


def _load_rows(path: str) -> list[Row]:
    """Return the clauses of a file, then those of the files that it includes."""
    with open(path, encoding="utf-8") as file:
        content = loads(file.read())
    rows: list[Row] = content["clauses"]
    folder = os.path.dirname(path)
    return [*rows, *(row for shared in content.get("include", ()) for row in _load_rows(os.path.join(folder, shared)))]
