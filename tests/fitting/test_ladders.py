"""Alternatives of `cfglint fit` for runs of 0.5B to 405B parameters on 1 to 512 GPUs, reviewed by hand."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.reports import fit as report
from cfglint_train.reports.style import PLAIN
from tests.support.corpus import REPOSITORY
from tests.support.linting import change_directory, copy_folder

FOLDER = REPOSITORY / "fixtures" / "fit"
EXPECTED = FOLDER / "expected"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".sh", ".py"))
UPDATE = bool(os.environ.get("CFGLINT_UPDATE"))
ALONE = api.Options(isolated=True)


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files away from the repository, whose other files would affect them."""
    return copy_folder(FOLDER, tmp_path_factory.mktemp("fit") / "runs")


@cache
def run_fit(folder: Path, name: str) -> api.FitResult:
    with change_directory(folder):
        return api.fit(name, ALONE, change=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_ladder_is_the_expected_one(path: Path, here: Path) -> None:
    lines = "".join(f"{line}\n" for line in report.render_text(run_fit(here, path.name).ladders))
    target = EXPECTED / f"{path.stem}.txt"
    if UPDATE:
        EXPECTED.mkdir(exist_ok=True)
        target.write_text(lines)
    assert lines == target.read_text()


@pytest.mark.parametrize("width", [50, 80])
def test_the_report_is_no_wider_than_the_terminal(width: int, here: Path) -> None:
    style = PLAIN._replace(width=width)
    for path in FILES:
        for line in report.render_text(run_fit(here, path.name).ladders, style):
            assert len(line) <= max(width, *map(len, line.split()), 0) + len(line) - len(line.lstrip())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_written_fits(path: Path, here: Path) -> None:
    """Write the whole change or nothing, keep the effective batch, and change nothing the second time."""
    result = run_fit(here, path.name)
    assert result.refused == ()
    [alternatives] = result.ladders
    if alternatives.solution is None:
        assert result.sources == {}
        return
    assert result.fixed is not None
    [after] = result.fixed.result.runs
    assert alternatives.solution.after.budget.expected <= alternatives.solution.after.capacity
    assert after.estimate.find_peak("gpu").gpu.expected <= after.hardware.get_capacity("gpu")
    batch, before = after.plan.batch, alternatives.run.plan.batch
    assert batch.micro * batch.accumulation == before.micro * before.accumulation
    with change_directory(here):
        again = api.fit(path.name, ALONE, {**read_sources(), **result.sources}, change=True)
    settings = {setting.partition(":")[0] for setting in alternatives.solution.settings}
    assert len(settings) == len(alternatives.solution.settings)  # each key once
    assert not again.needs_change
    assert again.sources == {}


def read_sources() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}


def test_there_is_an_expectation_for_each_run_and_no_other() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {path.stem for path in FILES}
    assert len(FILES) >= 40
