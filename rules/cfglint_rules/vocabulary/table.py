"""Clause tables: `refusals.json` and `idle.json` in the folder of a framework.

A file is parsed when the first config of its framework is checked. `clauses.schema.json`, next to the framework
folders, describes the format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from functools import cache
from json import loads

from cfglint_rules.vocabulary.operators import RELATIONS
from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks.registry import list_frameworks

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.operators import Test

TableKind = Literal["refusals", "idle"]

_BRACKETED_NAME: Final = compile_on_use(r"([\[<])([\w.]+)([\]>])")
"""A setting in a message: `[name]` or `<name>`."""


class ClauseFix(Frozen):
    """Fix of a clause: settings to set and to remove."""

    applicability: Applicability
    message: str
    values: Mapping[str, Any]
    removed: tuple[str, ...]


class Clause(Frozen):
    """A condition on several settings, and the finding if it holds."""

    name: str
    message: str
    when: Mapping[str, Test]
    """Setting -> test of its value; the finding points at `at` if it has a place, else at the first given setting."""
    either: tuple[Mapping[str, Test], ...]
    """Alternative conditions; if there are any, one must hold too. The finding does not point at their settings."""
    each: tuple[str, ...]
    """Settings; if there are any, one must be given. A single finding names all that are given."""
    also: str | None
    """Additional condition in code: a function in `conditions.py` of the framework's folder."""
    example: Mapping[str, Any]
    """Minimal settings that match the clause: without any of them, it does not match. None: not given."""
    source: str
    since: str | None
    """First release for which the clause holds; None: from the oldest known release on."""
    ever: bool
    """True if it also holds for the releases before the oldest known one that have these settings."""
    before: str | None
    package: str | None
    """Package whose releases `since` and `before` name; None: the framework."""
    severity: Severity
    fix: ClauseFix | None
    help: str | None
    at: str | None
    """Setting that the finding points at if its place is known; in a companion, all runs then share one finding."""


INHERITED: Final = "inherited"
"""Mark of a file, and of its clauses: they hold for trainers that users derive from the HF Trainer, too."""

Row = Mapping[str, Any]
"""A clause as parsed from its file."""


def build_clause(row: Row) -> Clause:
    """Convert a row to a `Clause`; this is only done for rows that may match."""
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
        "ever" in row,
        row.get("before"),
        row.get("package"),
        row.get("severity", "error"),
        fix and ClauseFix(fix["applicability"], fix["message"], fix.get("set", {}), tuple(fix.get("remove", ()))),
        row.get("help"),
        row.get("at"),
    )


class VocabularyTable:
    """The clauses of a file and of the files that it includes, in order."""

    __slots__ = ("_about", "rows")

    def __init__(self, rows: list[Row]) -> None:
        """Index the clauses by their first setting, or its section."""
        self.rows = rows
        # A clause only matches if its first setting is given; if that is a fact about the run, any setting of `each`.
        # Setting, or its section -> row numbers.
        self._about: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            name = next(iter(row["when"]))
            for index in row["each"] if name[0] == "@" else (name,):
                self._about.setdefault(index if index[0] == "-" else index.partition(".")[0], []).append(number)

    def list_candidates(self, given_names: Set[str] | None) -> Iterable[Row]:
        """Return the clauses that can match if only these top-level names are given (None: any name may be given)."""
        if given_names is None:
            return self.rows
        numbers = {number for name in given_names if name in self._about for number in self._about[name]}
        return [self.rows[number] for number in sorted(numbers)]

    def list_exclusive_settings(self) -> set[str]:
        """Return the settings that are only reported by their clause, not as unread keys."""
        return {next(iter(row["when"])) for row in self.rows if "sole" in row}


@cache
def load_table(framework: str, kind: TableKind) -> VocabularyTable:
    """Return the table of a framework's clauses of one kind; it is empty if there is no file."""
    path = os.path.join(list_frameworks()[framework].folder, f"{kind}.json")
    return VocabularyTable(_load_rows(path) if os.path.exists(path) else [])


def _load_rows(path: str) -> list[Row]:
    """Return the clauses of a file, then those of the files that it includes."""
    with open(path, encoding="utf-8") as file:
        content = loads(file.read())
    folder, mark = os.path.dirname(path), {INHERITED: True} if content.get(INHERITED) else {}
    included_rows = (row for entry in content.get("include", ()) for row in _load_included(entry, folder))
    return [*({**row, **mark} for row in content["clauses"]), *included_rows]


def _load_included(entry: str | Mapping[str, Any], folder: str) -> Iterable[Row]:
    """Return the clauses of an included file, under the names of the including framework."""
    if isinstance(entry, str):
        return _load_rows(os.path.join(folder, entry))
    rows = (rename_settings(row, entry["names"]) for row in _load_rows(os.path.join(folder, entry["file"])))
    return (row for row in rows if row is not None)


def rename_settings(row: Row, names: Mapping[str, str | None]) -> Row | None:
    """Return a clause with other names for its settings, or None if it needs a setting that is renamed to None."""
    needed: set[str | None] = set()

    def rename_setting(name: str) -> Any:
        needed.add(names.get(name, name))
        return names.get(name, name)

    def rename(value: Any, word: str = "") -> Any:
        if isinstance(value, dict):
            return {rename_setting(name): rename(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [rename_setting(item) if word in _NAME_LISTS else rename(item) for item in value]
        if not isinstance(value, str):
            return value
        return rename_setting(value) if word in _NAME_WORDS else _BRACKETED_NAME.sub(_rename_bracketed, value)

    def _rename_bracketed(match: re.Match[str]) -> str:
        return f"{match[1]}{names.get(match[2]) or match[2]}{match[3]}"

    renamed = {word: rename(item, word) for word, item in row.items() if word != "example"}
    return None if None in needed else {**renamed, "example": rename(row["example"])}


_NAME_LISTS: Final = ("each", "remove")
_NAME_WORDS: Final = ("at", *RELATIONS)
"""Words whose value is the name of a setting; relations also take numbers."""
