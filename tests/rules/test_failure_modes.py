"""Rows of `docs/build/failure_modes.json`: each is reported on the frameworks that it names, or has its reason."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from cfglint_rules import registry
from cfglint_rules.vocabulary.table import load_table
from cfglint_train.frameworks.registry import list_frameworks
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY, SHARED
from tests.support.linting import copy_folder, lint
from tests.support.skips import NO_DATA

MODES: list[dict[str, Any]] = json.loads((REPOSITORY / "docs" / "build" / "failure_modes.json").read_text())["modes"]
NOT_RULES = (REPOSITORY / "docs" / "not-rules.md").read_text(encoding="utf-8")
LISTED = SHARED / "reference" / "threads.md"
NAMED = [
    pytest.param(mode, framework, name, id=f"{mode['number']}-{framework}-{name}")
    for mode in MODES
    for framework, names in mode.get("rules", {}).items()
    for name in names
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Return a function that lists the codes of a folder's findings, each with the framework of its run."""

    @cache
    def list_codes(folder: str) -> frozenset[tuple[str, str]]:
        root = tmp_path_factory.mktemp("modes")
        (root / ".git").mkdir()
        findings = lint(copy_folder(REPOSITORY / "fixtures" / folder, root / "work")).findings
        return frozenset((finding.code, finding.run.main.framework) for finding in findings if finding.run is not None)

    return list_codes


def test_twenty_eight_of_thirty_two_are_reported():
    assert [mode["number"] for mode in MODES] == list(range(1, 33))
    assert sum("rules" in mode for mode in MODES) >= 28


@pytest.mark.skipif(not LISTED.is_file(), reason=f"{NO_DATA}no list of failures at {LISTED}")
def test_every_listed_failure_has_a_row():
    rows = re.findall(r"^\| (\d+) \| .* \| (?:y|p|p \(.*\)) \|$", LISTED.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(map(int, rows)) == [mode["number"] for mode in MODES]


@for_each("mode", MODES, ids=lambda mode: mode["number"])
def test_a_failure_has_rules_or_its_reason_stands_on_the_page(mode):
    assert ("rules" in mode) != ("reason" in mode)
    assert set(mode.get("rules", {})) <= set(list_frameworks())
    assert "reason" not in mode or f"| {mode['reason']} |" in NOT_RULES


@pytest.mark.parametrize(("mode", "framework", "name"), NAMED)
def test_a_named_rule_reports_it_on_the_framework(mode, framework, name, reported):
    """Lint a fixture of the rule; for a clause, find its example, which the tests of the vocabulary check."""
    if name in registry.RULES:
        folders = [f"rules/{name}/fires", *([mode["fixtures"]] if "fixtures" in mode else [])]
        assert any((name, framework) in reported(folder) for folder in folders)
    else:
        assert name in {row["name"] for kind in ("refusals", "idle") for row in load_table(framework, kind).rows}
