"""Clause tables: `refusals.json` and `idle.json` in the folder of a framework.

A file is read when the first config of its framework is checked; a clause is parsed when it may match.
`clauses.schema.json`, next to the framework folders, describes the format.
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
    guard: tuple[str, ...]
    """Names that one refusal in the code of a copy tests together if the copy accepts the settings."""
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
        tuple(row.get("guard", ())),
        row.get("package"),
        row.get("severity", "error"),
        fix and ClauseFix(fix["applicability"], fix["message"], fix.get("set", {}), tuple(fix.get("remove", ()))),
        row.get("help"),
        row.get("at"),
    )


class _StoredClause:
    """The text of a clause, which is parsed once it may match: a config concerns few of the hundreds of clauses."""

    __slots__ = ("_is_inherited", "_names", "_row", "first", "text")

    def __init__(self, text: str, is_inherited: bool) -> None:
        """Find the clause's first setting."""
        self.text = text
        start = text.index('"', text.index('"when": {') + 9) + 1
        self.first: str | None = text[start : text.index('"', start)]
        """First setting, or None if an including framework lacks it."""
        self._is_inherited = is_inherited
        self._names: tuple[Mapping[str, str | None], ...] = ()
        self._row: Row | None = None

    def rename(self, names: Mapping[str, str | None]) -> None:
        """Use the names of an including framework for the settings."""
        self._names += (names,)
        if self.first is not None:
            self.first = names.get(self.first, self.first)

    def read(self) -> Row | None:
        """Return the clause, or None if it needs a setting that an including framework lacks."""
        if self._row is None:
            row: Row | None = {**loads(self.text), **({INHERITED: True} if self._is_inherited else {})}
            for names in self._names:
                row = None if row is None else rename_settings(row, names)
            self._row = row
        return self._row


class VocabularyTable:
    """The clauses of a file and of the files that it includes, in order."""

    __slots__ = ("_about", "_clauses")

    def __init__(self, clauses: list[_StoredClause]) -> None:
        """Index the clauses by their first setting, or its section."""
        self._clauses = [clause for clause in clauses if clause.first is not None]
        # A clause only matches if its first setting is given; if that is a fact about the run or a value that applies,
        # any setting of `each`.
        # Setting, or its section -> clause numbers.
        self._about: dict[str, list[int]] = {}
        for number, clause in enumerate(self._clauses):
            name = clause.first or ""
            for index in (clause.read() or {"each": ()})["each"] if name[0] in "@=" else (name,):
                self._about.setdefault(index if index[0] == "-" else index.partition(".")[0], []).append(number)

    def __bool__(self) -> bool:
        """Return whether there are clauses."""
        return bool(self._clauses)

    @property
    def rows(self) -> list[Row]:
        """All clauses."""
        return [row for clause in self._clauses if (row := clause.read()) is not None]

    def list_candidates(self, given_names: Set[str] | None) -> Iterable[Row]:
        """Return the clauses that can match if only these top-level names are given (None: any name may be given)."""
        if given_names is None:
            return self.rows
        numbers = {number for name in given_names if name in self._about for number in self._about[name]}
        return [row for number in sorted(numbers) if (row := self._clauses[number].read()) is not None]

    def list_exclusive_settings(self) -> set[str]:
        """Return the settings that are only reported by their clause, not as unread keys."""
        rows = (clause.read() for clause in self._clauses if '"sole"' in clause.text)
        return {next(iter(row["when"])) for row in rows if row is not None and "sole" in row}


@cache
def load_table(framework: str, kind: TableKind) -> VocabularyTable:
    """Return the table of a framework's clauses of one kind; it is empty if there is no file."""
    path = os.path.join(list_frameworks()[framework].folder, f"{kind}.json")
    return VocabularyTable(load_clauses(path) if os.path.exists(path) else [])


_START, _BETWEEN, _END = '"clauses": [\n    {', "\n    },\n    {", "\n    }\n  ]\n}\n"
"""Texts before, between and after the clauses of a file; tests check that every file has this layout."""


def load_clauses(path: str) -> list[_StoredClause]:
    """Return the clauses of a file, then those of the files that it includes."""
    with open(path, encoding="utf-8") as file:
        head, start, body = file.read().partition(_START)
    content = loads(f'{head}"clauses": []}}' if start else head)
    is_inherited, folder = bool(content.get(INHERITED)), os.path.dirname(path)
    texts = body.removesuffix(_END).split(_BETWEEN) if start else []
    clauses = [_StoredClause(f"{{{text}}}", is_inherited) for text in texts]
    for entry in content.get("include", ()):
        clauses += _load_included(entry, folder)
    return clauses


def _load_included(entry: str | Mapping[str, Any], folder: str) -> list[_StoredClause]:
    """Return the clauses of an included file, under the names of the including framework."""
    if isinstance(entry, str):
        return load_clauses(os.path.join(folder, entry))
    clauses = load_clauses(os.path.join(folder, entry["file"]))
    for clause in clauses:
        clause.rename(entry["names"])
    return clauses


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
