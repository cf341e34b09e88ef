"""A second `cfglint fit --write` changes nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.fitting.alternatives import Goal
from tests.fitting.test_search import write_run

ALONE = api.Options(isolated=True)
GOALS: tuple[Goal, ...] = ("default", "throughput", "smallest-edit", "memory")


def count_changes(folder: Path, seeds: range) -> int:
    """Write the proposed change of each drawn run, and count the changed runs.

    No other change is proposed afterwards, and the changed files need what was promised.
    """
    changed = 0
    for seed in seeds:
        run, goal = folder / str(seed), GOALS[seed % len(GOALS)]
        run.mkdir()
        write_run(run, random.Random(seed))
        first = api.fit(run, ALONE, goal=goal, write=True)
        changed += bool(first.sources)
        again = api.fit(run, ALONE, goal=goal, change=True)
        assert again.sources == {}, (seed, goal, again.diff())
        for before, after in zip(first.runs, again.runs):
            if first.sources and before.solution is not None:
                assert (after.expected, after.verdict) == (before.solution.expected, before.solution.verdict)
    return changed


def test_nothing_changes_the_second_time(tmp_path: Path) -> None:
    assert count_changes(tmp_path, range(2000, 2012)) >= 4


@pytest.mark.slow
def test_nothing_changes_the_second_time_on_many_runs(tmp_path: Path) -> None:
    assert count_changes(tmp_path, range(2000, 2100)) >= 30
