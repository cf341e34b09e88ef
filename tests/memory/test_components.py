"""Components are in one row each, and the arithmetic that is shown comes to the bytes that are shown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from cfglint_train.api import estimate as estimate_files
from cfglint_train.memory.budget import Part
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import COMPONENTS
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.formulas import formula, value
from tests.memory.generated import budgets, estimates
from tests.memory.jobs import LLAMA_8B, gpu, zero
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import runs_of_fixtures

# Words that are names of components, too, in other senses: file -> literals.
OTHER_SENSES = {
    "lint/cfglint_train/reports/estimate.py": {"parameters"},
    "lint/cfglint_train/memory/component.py": {"weights"},  # a slot
}


def multiplied_out(shown: str) -> float:
    """The value of shown arithmetic, by another way than `formulas.value`: Python's own, on numbers and signs."""
    signs = {"x": "*", "/": "/", "+": "+"}
    tokens = [signs.get(token, token.replace(",", "")) for token in shown.partition(";")[0].split()]
    kept = [token for token in tokens if token in signs.values() or re.fullmatch(r"\d+(\.\d+)?", token)]
    return float(eval(" ".join(kept)))  # numbers and signs only


def is_arithmetic(shown: str) -> bool:
    return re.search(r"\d B\b", shown) is not None


def check(part: Part) -> None:
    shown = part.formula
    assert shown
    if is_arithmetic(shown):
        assert multiplied_out(shown) == pytest.approx(part.bytes, rel=1e-5, abs=8), (part.name, shown)
    else:
        assert not re.search(r" [x/+] ", shown), (part.name, shown)


def test_shown_arithmetic_comes_to_the_bytes():
    for found in estimates(600):
        for budget in budgets(found):
            for part in budget.components:
                check(part)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["fixtures", pytest.param(CORPUS, marks=needs_corpus)])
def test_shown_arithmetic_of_configurations_comes_to_the_bytes(folder):
    runs = runs_of_fixtures() if folder == "fixtures" else estimate_files(str(folder)).raw.runs
    assert runs
    for run in runs:
        for budget in budgets(run.estimate):
            for part in budget.components:
                check(part)


@pytest.mark.slow
def test_no_formula_is_idle():
    """Each formula of each row is what some plan shows."""
    idle = {(row, template) for row in COMPONENTS for template in row.formulas}
    for found in estimates(12_000):  # the rarest is met at 11,000
        for budget in budgets(found):
            for part in budget.components:
                if part.bytes:
                    idle.discard((part.component, shown_formula(part)))
    assert idle == set()


def shown_formula(part: Part) -> str | None:
    """The first formula of the row that comes to the bytes."""
    row = part.component
    for template in row.formulas:
        alone = Component(row.name, row.kind, row.words, template)
        if is_arithmetic(formula(alone, part.bytes, part.quantities)):
            return template
    return None


def test_every_placeholder_has_a_quantity():
    quantities = gpu(estimate(zero(3, 8), LLAMA_8B), "load").components[0].quantities
    for row in COMPONENTS:
        for template in (row.words, *row.formulas):
            assert "{" not in template.format_map(quantities)


def test_arithmetic_that_does_not_come_to_the_bytes_is_not_shown():
    parts = gpu(estimate(zero(3, 8), LLAMA_8B), "load").components
    part = next(part for part in parts if is_arithmetic(part.formula))
    assert value(part.formula) == pytest.approx(part.bytes)
    assert not is_arithmetic(formula(part.component, part.bytes + 10**6, part.quantities))


def test_names_are_unique_at_their_place():
    places = Counter((row.kind if row.kind in ("host", "disk") else "gpu", row.name) for row in COMPONENTS)
    assert max(places.values()) == 1


def literals(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_a_component_is_named_in_its_row_only():
    names = {row.name for row in COMPONENTS}
    home = REPOSITORY / "lint" / "cfglint_train" / "memory" / "components.py"
    named = {}
    for root in ("lint", "rules"):
        for path in (REPOSITORY / root).rglob("*.py"):
            relative = path.relative_to(REPOSITORY).as_posix()
            found = literals(path) & names - OTHER_SENSES.get(relative, set())
            if path != home and found:
                named[relative] = found
    assert named == {}


def test_a_disk_shows_its_copies() -> None:
    for keep, shown in ((None, "1 checkpoint x "), (3, "4 checkpoints x ")):
        phase = estimate(zero(3, 8, checkpoint__gather=True, checkpoint__keep=keep), LLAMA_8B).phase("save")
        assert phase is not None
        assert phase.disk is not None
        assert all(each.formula.startswith(shown) for each in phase.disk.components)
