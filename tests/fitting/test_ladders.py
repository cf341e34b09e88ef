"""Runs of 0.5B to 405B parameters on 1 to 512 GPUs: the ladder that `cfglint fit` shows of each, reviewed by hand."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.reports import fit as report
from tests.support.corpus import REPOSITORY
from tests.support.linting import copied, working_in

FOLDER = REPOSITORY / "fixtures" / "fit"
EXPECTED = FOLDER / "expected"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".sh", ".py"))
UPDATE = bool(os.environ.get("CFGLINT_UPDATE"))
ALONE = api.Options(isolated=True)


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files away from the repository, whose other files would have a say."""
    return copied(FOLDER, tmp_path_factory.mktemp("fit") / "runs")


@cache
def found(folder: Path, name: str) -> api.FitResult:
    with working_in(folder):
        return api.fit(name, ALONE, change=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_ladder_is_the_expected_one(path: Path, here: Path) -> None:
    lines = "".join(f"{line}\n" for line in report.text(found(here, path.name).ladders))
    target = EXPECTED / f"{path.stem}.txt"
    if UPDATE:
        EXPECTED.mkdir(exist_ok=True)
        target.write_text(lines)
    assert lines == target.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_written_fits(path: Path, here: Path) -> None:
    """All of the change or nothing; the effective batch stays; written twice is written once."""
    result = found(here, path.name)
    assert result.refused == ()
    [ladder] = result.ladders
    if ladder.solution is None:
        assert result.sources == {}
        return
    assert result.fixed is not None
    [after] = result.fixed.result.runs
    assert ladder.solution.after.budget.expected <= ladder.solution.after.capacity
    assert after.estimate.peak("gpu").gpu.expected <= after.hardware.capacity("gpu")
    batch, before = after.plan.batch, ladder.run.plan.batch
    assert batch.micro * batch.accumulation == before.micro * before.accumulation
    with working_in(here):
        again = api.fit(path.name, ALONE, {**sources(), **result.sources}, change=True)
    settings = {setting.partition(":")[0] for setting in ladder.solution.settings}
    assert len(settings) == len(ladder.solution.settings)  # each key once
    assert not again.needs_change
    assert again.sources == {}


def sources() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}


def test_there_is_an_expectation_for_each_run_and_no_other() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {path.stem for path in FILES}
    assert len(FILES) >= 40
