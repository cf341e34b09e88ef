"""Names of plan fields and their values: the generated list is up to date, and lenses read no other values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.plan_names import TARGET, format_names

from cfglint_train.foundation import typed
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZERS
from cfglint_train.plan import choices as aliases
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.fields import FIELDS, Plan
from tests.support import corpus
from tests.support.linting import list_runs

ROOT = Path(__file__).parents[2]
ENUMERATED = {field: values for field in FIELDS if (values := list_choices(field)) is not None}


def test_the_names_are_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == format_names(), "python -m tools.plan_names"


def test_every_enumeration_belongs_to_a_field() -> None:
    enumerations = {
        name for name, value in vars(aliases).items() if isinstance(value, typed.Literal) and name != "Field"
    }
    used = {
        annotation.removesuffix(" | None")
        for record in Plan._field_defaults.values()
        for annotation in type(record).__annotations__.values()
    }
    assert enumerations <= used
    assert len(ENUMERATED) > 20


def list_folders() -> Iterator[Path]:
    yield ROOT / "fixtures"
    yield from sorted({file.parent for file in corpus.list_corpus_files(".yaml", ".yml", ".json", ".sh", ".py")})


@pytest.mark.slow
def test_lenses_read_the_named_values_only() -> None:
    seen: dict[str, set[str]] = {field: set() for field in ENUMERATED}
    for folder in list_folders():
        for run in list_runs(folder):
            for field in ENUMERATED:
                value = run.resolved_plan.get(field)
                if value is not None:
                    seen[field].add(value)
    unnamed = {field: values - set(ENUMERATED[field]) for field, values in seen.items()}
    assert not {field: values for field, values in unnamed.items() if values}
    assert sum(len(values) > 1 for values in seen.values()) > 15, "the corpus reaches most enumerations"


def test_optimizers_have_named_implementations() -> None:
    built = {row["optimizer.implementation"] for row in OPTIMIZERS.values()}
    assert built <= set(ENUMERATED["optimizer.implementation"])


CLIENT = """\
from cfglint_train.plan.fields import Plan
from cfglint_train.runs.run import Run


def check(run: Run, plan: Plan) -> bool:
    run.find_place("{field}")
    return plan.activations.checkpointing == "{value}"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("logging.count_tokens", "full", None),
        ("logging.count_tokenz", "full", 'Argument 1 to "find_place"'),
        ("logging.count_tokens", "fulll", "Non-overlapping equality check"),
    ],
)
def test_a_mistyped_name_fails_mypy(field: str, value: str, complaint: str | None, tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT.format(field=field, value=value))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(client)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if complaint is None:
        assert checked.returncode == 0, checked.stdout
    else:
        assert checked.returncode == 1
        assert complaint in checked.stdout
