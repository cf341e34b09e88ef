"""Components are in one row each, and the arithmetic that is shown comes to the bytes that are shown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from cfglint_train.api import estimate as estimate_files
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.components import COMPONENTS
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain, sizes_of
from tests.memory.generated import budgets, estimates
from tests.memory.jobs import LLAMA_8B, zero
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import runs_of_fixtures

# Words that are names of components, too, in other senses: file -> literals.
OTHER_SENSES = {
    "lint/cfglint_train/calibration/subject.py": {"weights"},  # a field
    "lint/cfglint_train/reports/estimate.py": {"parameters"},
    "lint/cfglint_train/memory/component.py": {"weights"},  # a slot
    "lint/cfglint_train/memory/explanation.py": {"parameters"},  # a field
}


def multiplied_out(shown: str) -> float:
    """The value of shown arithmetic: Python's own, on numbers and signs."""
    signs = {"x": "*", "/": "/", "+": "+", "-": "-"}
    tokens = [signs.get(token, token.replace(",", "")) for token in shown.partition(";")[0].split()]
    kept = [token for token in tokens if token in signs.values() or re.fullmatch(r"-?\d+(\.\d+)?", token)]
    return float(eval(" ".join(kept)))  # numbers and signs only


def check(budget: Budget) -> None:
    """The computation that is shown has the value that the estimate has, and the text multiplies out to it."""
    sizes = sizes_of(budget)
    for part in explain(budget):
        shown = part.formula
        assert shown
        if part.component.kind == "runtime":
            assert shown == part.component.words
        else:
            assert int(sizes[part.component]) == part.bytes, (part.name, shown)
            assert multiplied_out(shown) == pytest.approx(part.bytes, rel=1e-5, abs=8), (part.name, shown)


def test_shown_arithmetic_is_the_computation():
    for found in estimates(600):
        for budget in budgets(found):
            check(budget)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["fixtures", pytest.param(CORPUS, marks=needs_corpus)])
def test_shown_arithmetic_of_configurations_is_the_computation(folder):
    runs = runs_of_fixtures() if folder == "fixtures" else estimate_files(str(folder)).raw.runs
    assert runs
    for run in runs:
        for budget in budgets(run.estimate):
            check(budget)


def test_sizes_are_not_cached():
    """What is explained leaves plain numbers in all that later estimates share."""
    explained, after = (estimate(zero(3, 8), LLAMA_8B) for _ in range(2))
    for budget in budgets(explained):
        check(budget)
    again = estimate(zero(3, 8), LLAMA_8B)
    assert again == after
    assert all(type(size) is int for budget in budgets(again) for _, size in budget.sizes)


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
        assert all(each.formula.startswith(shown) for each in explain(phase.disk))
