"""Traced rows compared with the model code itself: a sample is traced again, all rows with CFGLINT_TRACE_ALL=1.

Needs what `tests/oracles/step_trace.py` needs (torch 2.13.0 CPU, transformers, peft, a C++ compiler); skipped
otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cfglint_train.calibration.rows import read_evidence

ORACLES = Path(__file__).parents[1] / "oracles"
SAMPLE = (
    "llama3.2-1b-512x1",
    "llama3.1-8b-2048x2-lora-16",
    "llama-amp-checkpointed",
    "gemma-eager",
    "qwen3_moe-checkpointed",
    "deepseek_v3-plain",
)

missing = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
if shutil.which("c++") is None and shutil.which("g++") is None:
    missing.append("a C++ compiler")

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from trace_rows import rows, traced
wanted = set(sys.argv[2:])
for row in rows():
    if not wanted or row.id in wanted:
        print(json.dumps(traced(row)), flush=True)
"""


@pytest.mark.oracle
@pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
def test_rows_are_what_the_model_code_does() -> None:
    ids = [] if os.environ.get("CFGLINT_TRACE_ALL") else list(SAMPLE)
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(ORACLES), *ids],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    stored = {row["id"]: row for row in read_evidence("traced")}
    traced = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert len(traced) >= len(ids or SAMPLE)
    for row in traced:
        expected = stored[row["id"]]
        assert row["plan"] == expected["plan"]
        assert row["architecture"] == expected["architecture"]
        for name, size in row["bytes"].items():
            assert size == pytest.approx(expected["bytes"][name], rel=0.001), (row["id"], name)
