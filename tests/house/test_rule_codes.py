"""Judging and reports read a rule's attributes, not its code, so a new family or rule requires no edit."""

from __future__ import annotations

import ast
import re

import pytest

from cfglint_rules.registry import RULES
from tests.support.corpus import REPOSITORY

FAMILIES = "|".join(sorted({code[:3] for code in RULES}))
CODE = re.compile(rf"\b(?:{FAMILIES})[0-9]{{3}}\b|[\"'](?:{FAMILIES})[\"']")
ENGINE = REPOSITORY / "lint" / "cfglint_train"
MODULES = sorted((ENGINE / "judging").glob("*.py"))
EXCEPTIONS = {
    "front/commands/check.py": {"KEY001"},  # with its findings, a misspelt key of an explained run counts as meant
    "front/commands/fit.py": {"KEY"},  # not a rule: a placeholder for a key in the help
    "front/migrate/rewrite.py": {"KEY001", "KEY002"},  # keys that the target does not have, and removed keys
    "reports/answer.py": {"MEM001"},  # has already searched for the change with which the run fits
    "reports/fixes.py": {"KEY"},  # other fixes contain the renames of these findings, which show them
    "reports/estimate.py": {"KEY001"},  # knows which key a misspelt key is meant to be
}
"""Modules that name a rule, because they depend on something that is not an attribute of several rules."""


def test_the_engine_names_no_rule() -> None:
    lines = [
        f"{path.name}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CODE.search(line)
    ]
    assert lines == []


def find_named_codes(text: str) -> set[str]:
    """Return the codes and families that are values in a module, not parts of its texts."""
    values = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    return values & (RULES.keys() | {code[:3] for code in RULES})


def test_other_modules_that_name_a_rule_say_why() -> None:
    codes_by_path = {
        path.relative_to(ENGINE).as_posix(): find_named_codes(path.read_text("utf-8")) for path in ENGINE.rglob("*.py")
    }
    assert {path: codes for path, codes in codes_by_path.items() if codes} == EXCEPTIONS


def test_a_code_among_values_is_noticed() -> None:
    assert find_named_codes('"""About KEY006."""\nx = code == "SYN005" or code.startswith(("MEM", 1.5))') == {
        "SYN005",
        "MEM",
    }


@pytest.mark.parametrize("line", ['code.startswith("KEY")', "RULES['SYN006']", "# BAT002 reports it"])
def test_a_code_or_a_family_is_noticed(line: str) -> None:
    assert CODE.search(line)
