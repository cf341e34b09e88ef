"""Hostile inputs: each is handled within two seconds of CPU time and 500 MB, by a finding rather than a crash.

The data is next to the checkout: minimal reproductions of past failures (`inputs`), and a generator of inputs for the
readers (`gen.py`), which runs here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.growth import SERIES

from cfglint_train.foundation.pool import count_processors
from tests.support.corpus import SHARED
from tests.support.limited import CPU_SECONDS, MEMORY, MeasuredOutcome, run_limited

HOSTILE = SHARED / "hostile"
INPUTS = sorted(path.name for path in (HOSTILE / "inputs").glob("*"))
GENERATOR = HOSTILE / "gen.py"

needs_inputs = pytest.mark.skipif(not INPUTS, reason=f"no shared data: no hostile inputs at {HOSTILE}")
CRASH_SIGNS = ("Traceback (most recent call last)", "please report it")


def check_handled(outcome: MeasuredOutcome) -> None:
    assert outcome.code in (0, 1, 2), outcome.err[-2000:]
    assert not any(sign in outcome.out + outcome.err for sign in CRASH_SIGNS), outcome.out + outcome.err
    assert outcome.seconds <= CPU_SECONDS
    assert outcome.memory <= MEMORY


@needs_inputs
@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_a_smallest_input_is_answered(name: str, tmp_path: Path) -> None:
    shutil.copy(HOSTILE / "inputs" / name, tmp_path / name)
    check_handled(run_limited("--isolated", name, cwd=tmp_path))


@needs_inputs
@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_fixing_a_smallest_input_is_answered(name: str, tmp_path: Path) -> None:
    shutil.copy(HOSTILE / "inputs" / name, tmp_path / name)
    check_handled(run_limited("--isolated", "--fix", "--unsafe-fixes", name, cwd=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name], "a temporary file is left"


@pytest.mark.slow
@pytest.mark.parametrize("name", SERIES)
def test_what_is_just_below_a_limit_is_answered(name: str, tmp_path: Path) -> None:
    make, sizes = SERIES[name]
    (tmp_path / ".git").mkdir()
    for file, text in make(sizes[-1]).items():
        (tmp_path / file).write_text(text)
    outcome = run_limited("--no-cache", ".", cwd=tmp_path)
    check_handled(outcome)
    assert "SYN008" not in outcome.out or "more than 200 findings" in outcome.out


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, str(GENERATOR)], cwd=folder, check=True, timeout=300)
    return folder / "inputs-generated"


@needs_inputs
@pytest.mark.slow
def test_every_generated_input_is_answered(generated: Path) -> None:
    names = sorted(path.name for path in generated.iterdir())
    assert len(names) > 100
    with ThreadPoolExecutor(min(2, count_processors())) as pool:
        answers = list(pool.map(lambda name: (name, run_limited("--isolated", name, cwd=generated)), names))
    failed = []
    for name, outcome in answers:
        try:
            check_handled(outcome)
        except AssertionError as error:
            failed.append(f"{name}: {error}")
    assert failed == []
