"""Savings that `cfglint fit` reports for a change, compared with traced steps of the real model code: within 1 %.

CFGLINT_TRACE_ALL=1 traces all of them again and writes `fixes.jsonl`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.memory import fixes

PROGRAM = Path(__file__).parents[1] / "oracles" / "trace_fixes.py"
LACKING = [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]
if shutil.which("c++") is None and shutil.which("g++") is None:
    LACKING.append("a C++ compiler")


@cache
def list_changes() -> list[fixes.Change]:
    return list(fixes.list_changes())


def test_there_are_twenty_and_more() -> None:
    assert len(list_changes()) >= 20
    assert len({change.settings[0].partition(":")[0] for change in list_changes()}) >= 6


def test_a_change_saves_what_the_trace_says() -> None:
    traces = fixes.read_traces()
    wrong = {}
    for change in list_changes():
        before, after = (
            traces[fixes.make_key(change.model, fixes.describe_step(run.plan))] for run in (change.before, change.after)
        )
        claimed = fixes.sum_allocated(change.before) - fixes.sum_allocated(change.after)
        if claimed != pytest.approx(before - after, rel=0.01):
            wrong[change.model, change.settings, fixes.make_key("", fixes.describe_step(change.before.plan))] = (
                claimed / (before - after)
            )
    assert wrong == {}


def list_steps() -> list[dict[str, Any]]:
    """List each step once."""
    rows = {}
    for change in list_changes():
        for run in (change.before, change.after):
            step = fixes.describe_step(run.plan)
            rows[fixes.make_key(change.model, step)] = {"model": change.model, "step": step}
    return list(rows.values())


@pytest.mark.oracle
@pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}")
def test_the_traces_are_what_the_model_code_does() -> None:
    trace_all = bool(os.environ.get("CFGLINT_TRACE_ALL"))
    requests = list_steps() if trace_all else list_steps()[::15]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)],
        input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(requests)
    if trace_all:
        fixes.TRACED.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    traces = fixes.read_traces()
    for row in map(json.loads, lines):
        assert row["peak"] == pytest.approx(traces[fixes.make_key(row["model"], row["step"])], rel=0.001), row
