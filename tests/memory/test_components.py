"""Components: each is defined in one row, and the displayed arithmetic evaluates to the displayed bytes."""

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
from cfglint_train.memory.explanation import compute_sizes, explain
from tests.memory.generated import list_budgets, make_estimates
from tests.memory.jobs import LLAMA_8B, make_zero
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import list_fixture_runs

# Words that are also names of components, used in other senses: file -> literals.
OTHER_SENSES = {
    "lint/cfglint_train/calibration/subject.py": {"weights"},  # a field
    "lint/cfglint_train/reports/estimate.py": {"parameters"},
    "lint/cfglint_train/memory/component.py": {"weights"},  # a slot
    "lint/cfglint_train/settings/own_runs.py": {"parameters"},  # a dimension
    "lint/cfglint_train/memory/explanation.py": {"parameters"},  # a field
    "lint/cfglint_train/reports/timeline.py": {"activations", "gradients", "weights"},  # kinds of memory
    "lint/cfglint_train/postmortem/diagnosis.py": {"gradients", "weights"},  # parts of a step
    "lint/cfglint_train/postmortem/tensors.py": {"gradients", "weights"},
    "lint/cfglint_train/postmortem/tracebacks.py": {"gradients", "weights"},
}


def evaluate(shown: str) -> float:
    """Evaluate the displayed arithmetic: numbers and signs only, by Python's rules."""
    signs = {"x": "*", "/": "/", "+": "+", "-": "-"}
    tokens = [signs.get(token, token.replace(",", "")) for token in shown.partition(";")[0].split()]
    terms = [token for token in tokens if token in signs.values() or re.fullmatch(r"-?\d+(\.\d+)?", token)]
    return float(eval(" ".join(terms)))


def check_budget(budget: Budget) -> None:
    """Assert that the displayed computation has the estimate's value and that its text evaluates to it."""
    sizes = compute_sizes(budget)
    for part in explain(budget):
        shown = part.formula
        assert shown
        if part.component.kind == "runtime":
            assert shown == part.component.words
        else:
            assert int(sizes[part.component]) == part.bytes, (part.name, shown)
            assert evaluate(shown) == pytest.approx(part.bytes, rel=1e-5, abs=8), (part.name, shown)


def test_shown_arithmetic_is_the_computation():
    for result in make_estimates(600):
        for budget in list_budgets(result):
            check_budget(budget)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["fixtures", pytest.param(CORPUS, marks=needs_corpus)])
def test_shown_arithmetic_of_configurations_is_the_computation(folder):
    runs = list_fixture_runs() if folder == "fixtures" else estimate_files(str(folder)).raw.runs
    assert runs
    for run in runs:
        for budget in list_budgets(run.estimate):
            check_budget(budget)


def test_sizes_are_not_cached():
    """Leave plain numbers in all values that later estimates share."""
    explained, after = (estimate(make_zero(3, 8), LLAMA_8B) for _ in range(2))
    for budget in list_budgets(explained):
        check_budget(budget)
    later = estimate(make_zero(3, 8), LLAMA_8B)
    assert later == after
    assert all(type(size) is int for budget in list_budgets(later) for _, size in budget.sizes)


def test_names_are_unique_at_their_place():
    places = Counter((row.kind if row.kind in ("host", "disk") else "gpu", row.name) for row in COMPONENTS)
    assert max(places.values()) == 1


def find_literals(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_a_component_is_named_in_its_row_only():
    names = {row.name for row in COMPONENTS}
    home = REPOSITORY / "lint" / "cfglint_train" / "memory" / "components.py"
    names_by_file = {}
    for root in ("lint", "rules"):
        for path in (REPOSITORY / root).rglob("*.py"):
            relative = path.relative_to(REPOSITORY).as_posix()
            names_in_file = find_literals(path) & names - OTHER_SENSES.get(relative, set())
            if path != home and names_in_file:
                names_by_file[relative] = names_in_file
    assert names_by_file == {}


def test_a_disk_shows_its_copies() -> None:
    for keep, shown in ((None, "1 checkpoint x "), (3, "4 checkpoints x ")):
        phase = estimate(make_zero(3, 8, checkpoint__gather=True, checkpoint__keep=keep), LLAMA_8B).find_phase("save")
        assert phase is not None
        assert phase.disk is not None
        assert all(part.formula.startswith(shown) for part in explain(phase.disk))
