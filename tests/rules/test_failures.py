"""Rules and clauses that `docs/failures.md` names for a framework."""

from __future__ import annotations

import re

import pytest

from cfglint_rules import registry
from cfglint_rules.vocabulary.table import load_table
from cfglint_train.frameworks.registry import list_frameworks
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

PAGE = (REPOSITORY / "docs" / "failures.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
HEAD = ROWS[0]
CELLS = [
    pytest.param(framework, cell, id=f"{row[0]}-{framework}")
    for row in ROWS
    if row != HEAD
    for framework, cell in zip(HEAD[1:], row[1:], strict=True)
]
NAMES = {one.title: name for name, one in list_frameworks().items()}


def test_the_tables_have_every_bullet_of_both_kinds():
    failures = [row[0] for row in ROWS if row != HEAD]
    assert len(failures) == len(set(failures)) == 37


@for_each(("framework", "cell"), CELLS)
def test_what_a_cell_names_exists(framework, cell):
    name = NAMES.get(framework, framework.lower().replace("-", "_"))
    clauses = {row["name"] for kind in ("refusals", "idle") for row in load_table(name, kind).rows}
    codes = set(re.findall(r"\b[A-Z]{3}\d{3}\b", cell))
    clause_names = set(re.findall(r"`([^`]+)`", cell))
    assert codes <= set(registry.RULES)
    assert clause_names <= clauses
    assert codes or clause_names or cell in ("-", "*not provable*", "*not read*")
