"""The engine judges rules by their attributes, never by their codes: a new family or rule needs no edit there."""

from __future__ import annotations

import re

import pytest

from cfglint_rules.registry import RULES
from tests.support.corpus import REPOSITORY

FAMILIES = "|".join(sorted({code[:3] for code in RULES}))
CODE = re.compile(rf"\b(?:{FAMILIES})[0-9]{{3}}\b|[\"'](?:{FAMILIES})[\"']")
MODULES = sorted((REPOSITORY / "lint" / "cfglint_train" / "judging").glob("*.py"))


def test_the_engine_names_no_rule() -> None:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CODE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("line", ['code.startswith("KEY")', "RULES['SYN006']", "# BAT002 reports it"])
def test_a_code_or_a_family_is_noticed(line: str) -> None:
    assert CODE.search(line)
