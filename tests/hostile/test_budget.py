"""CPU time of a run: the limit holds across files and processes, and an unchecked file never passes."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from cfglint_train import api, request
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.foundation.budget import Budget
from cfglint_train.settings.settings import FORMATS
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

WRONG = AXOLOTL + "lora_rr: 8\n"
FILES = 40
NONE = "0.000001"
"""CPU limit in seconds that is reached before the first file."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    for number in range(FILES):
        (tmp_path / f"{number:02}.yaml").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def limit_ticks(monkeypatch: pytest.MonkeyPatch, ticks: int) -> None:
    """Let the CPU time of a run end after the clock was read `ticks` times."""
    clock = count().__next__
    monkeypatch.setattr(request, "_build_budget", lambda *_: Budget(ticks, clock))


def count_unread(errors: tuple[api.Failure, ...]) -> int:
    (error,) = errors
    return int(error.message.partition(" ")[0])


@pytest.mark.parametrize("flags", [(), ("--ignore", "SYN"), ("--exit-zero",), ("--fix",), ("--diff",)])
def test_what_is_not_checked_in_time_is_one_error(here: Path, flags: tuple[str, ...]) -> None:
    outcome = run_cfglint("--max-cpu-seconds", NONE, *flags, "00.yaml", "01.yaml", "02.yaml", "03.yaml", cwd=here)
    message = (
        "4 files not fully checked within 1e-06 s of CPU time in total: `00.yaml`, `01.yaml`, `02.yaml` and 1 more"
    )
    assert outcome.code == 2
    assert (outcome.out + outcome.err).count(message) == 1
    assert "00.yaml:1:1: " in outcome.out + outcome.err
    assert (here / "00.yaml").read_text() == WRONG


def test_a_folder_that_is_not_walked_in_time_is_named(here: Path) -> None:
    outcome = run_cfglint("--max-cpu-seconds", NONE, ".", cwd=here)
    assert outcome.code == 2
    assert "not fully checked within" in outcome.out


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_passes_what_was_not_checked(here: Path, form: str) -> None:
    (here / "cfglint.toml").write_text(f"max-cpu-seconds = {NONE}\nignore = ['SYN008']\n")
    outcome = run_cfglint("--output-format", form, "00.yaml", cwd=here)
    assert outcome.code == 2
    assert "not fully checked" in outcome.out + outcome.err


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_checked_in_time_is_reported(here: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    # Two jobs require 64 files.
    for number in range(FILES, 80):
        (here / f"{number:02}.yaml").write_text(WRONG)
    whole = api.lint(".", api.Options(jobs=jobs))
    limit_ticks(monkeypatch, 150)
    cut = api.lint(".", api.Options(jobs=jobs))
    assert 0 < count_unread(cut.errors) < 80
    findings = {(item.path, item.line, item.code, item.message) for item in cut.findings if item.code != "SYN008"}
    assert findings
    assert findings <= {(item.path, item.line, item.code, item.message) for item in whole.findings}
    # The file that a process is checking when time runs out counts as unread, but its findings so far are reported.
    assert 80 <= len({path for path, *_ in findings}) + count_unread(cut.errors) <= 80 + jobs
    assert [finding.code for finding in cut.findings].count("SYN008") == 1


def test_nothing_is_fixed_that_was_not_checked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ticks in (10, 250, 400):
        limit_ticks(monkeypatch, ticks)
        fixed = api.fix(".", unsafe=True, write=True)
        if fixed.lint.errors:
            assert not fixed.applied
            assert {path.read_text() for path in here.glob("*.yaml")} == {WRONG}
    limit_ticks(monkeypatch, 10**9)
    assert api.fix(".", unsafe=True).applied


def test_a_baseline_keeps_what_was_not_checked(here: Path) -> None:
    assert run_cfglint("--write-baseline", cwd=here).code == 0
    before = (here / "cfglint-baseline.json").read_bytes()
    limit = ("--max-cpu-seconds", NONE, "--baseline", "cfglint-baseline.json")
    assert run_cfglint(*limit, "--write-baseline", cwd=here).code == 2
    assert (here / "cfglint-baseline.json").read_bytes() == before


def test_processes_share_a_budget() -> None:
    now = [0.0]
    budget = Budget(10, lambda: now[0])
    now[0] = 2
    budget.divide()
    used = 0.0
    for _ in range(3):  # copies, whose clocks start at 0
        now[0] = 0
        budget.take_part()
        while budget.compute_seconds_left() > 0 and now[0] < 2:
            now[0] += 0.004
            used += 0.004
    now[0] = 0
    budget.take_part()
    budget.unite()
    assert used + budget.compute_seconds_left() == pytest.approx(8, abs=0.1)
    now[0] = 9
    assert budget.compute_seconds_left() < 0


def test_copies_of_a_process_share_a_budget() -> None:
    budget = Budget(0.3)
    budget.divide()
    process = os.fork()
    budget.take_part()
    while budget.compute_seconds_left() > 0:
        pass
    if not process:
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    budget.unite()
    assert budget.compute_seconds_left() <= 0


@pytest.mark.parametrize("copies", [1, 10, 100])
def test_a_walk_grows_no_faster_than_its_text(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(x): return f(x) + f(x)\na = f(1)\n" * copies
    steps = [0]

    def count_steps(walk: Walk, number: int = 1) -> None:
        steps[0] += number
        original(walk, number)

    original = Walk.spend_steps
    monkeypatch.setattr(Walk, "spend_steps", count_steps)
    walk = Walk(PythonScript("a.py", text.encode()), {}, {}, {})
    walk.run()
    assert walk.is_exhausted
    assert steps[0] <= 2_001 + 2 * len(text)
