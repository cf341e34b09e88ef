"""Clauses as data: `refusals.json` and `idle.json` in the folder of a framework.

A file is parsed when a configuration of its framework is first met. `clauses.schema.json` beside the folders describes
the files.
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
    """What settles a clause: new values of settings, and settings that go."""

    applicability: Applicability
    message: str
    values: Mapping[str, Any]
    removed: tuple[str, ...]


class Clause(Frozen):
    """One statement about several settings."""

    name: str
    message: str
    when: Mapping[str, Test]
    """Setting -> what its value must pass; the finding points at the first one that the file gives, or at `at`."""
    either: tuple[Mapping[str, Test], ...]
    """One of these must hold as well, where there are any; the finding does not point at their settings."""
    each: tuple[str, ...]
    """One of these must be given, where there are any; one finding names all that are."""
    also: str | None
    """A condition that is code: a function of `conditions.py` in the framework's folder."""
    example: Mapping[str, Any]
    """The settings that it holds for; it holds no more when one of them is taken away. None: not given."""
    source: str
    since: str | None
    """The first release that it holds for; None: all that are known."""
    before: str | None
    package: str | None
    """The package whose releases `since` and `before` are; None: the framework."""
    severity: Severity
    fix: ClauseFix | None
    help: str | None
    at: str | None
    """The setting that the finding points at where its place is known: in a companion, one finding is for all runs."""


Row = Mapping[str, Any]
"""A clause as its file writes it."""


def build_clause(row: Row) -> Clause:
    """A clause with names and types; most rows never hold and are not made into one."""
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
    """The clauses of one file and of those that it includes, in their order."""

    __slots__ = ("_about", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        # No clause holds without its first setting. That setting, or the section that it is in -> numbers of rows.
        self._about: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            name = next(iter(row["when"]))
            self._about.setdefault(name if name[0] == "-" else name.partition(".")[0], []).append(number)

    def list_candidates(self, given_names: Set[str] | None) -> Iterable[Row]:
        """The clauses that can hold where these settings are given at the top level (None: any may be given)."""
        if given_names is None:
            return self.rows
        numbers = [number for name in given_names if name in self._about for number in self._about[name]]
        return [self.rows[number] for number in sorted(numbers)]

    def list_exclusive_settings(self) -> set[str]:
        """The settings that only their clause reports."""
        return {next(iter(row["when"])) for row in self.rows if "sole" in row}


@cache
def load_table(framework: str, kind: TableKind) -> VocabularyTable:
    """The clauses of a framework; there may be none."""
    path = os.path.join(list_frameworks()[framework].folder, f"{kind}.json")
    return VocabularyTable(_load_rows(path) if os.path.exists(path) else [])


def _load_rows(path: str) -> list[Row]:
    """The clauses of a file, then those of the files that it includes."""
    with open(path, encoding="utf-8") as file:
        content = loads(file.read())
    rows: list[Row] = content["clauses"]
    folder = os.path.dirname(path)
    return [*rows, *(row for shared in content.get("include", ()) for row in _load_rows(os.path.join(folder, shared)))]
