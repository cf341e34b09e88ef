"""cfglint in a separate process under time and memory limits, with its measured use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.corpus import REPOSITORY
from tests.support.pace import measure_slowness

CPU_SECONDS = 2.0
MEMORY = 500 * 2**20

_MEASURING_PROGRAM = """
import json, os, resource, subprocess, sys
seconds, memory, report = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
code = subprocess.run([sys.executable, "-m", "cfglint_train", *sys.argv[4:]], timeout=300).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(report, "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
"""
"""A small intermediate process: the peak memory reported for a child includes the memory of its parent process."""


class MeasuredOutcome(NamedTuple):
    """Exit code, output and resource use of a command."""

    code: int
    out: str
    err: str
    seconds: float
    """Processor seconds, at the pace of the reference machine."""
    memory: int
    """Peak memory in bytes."""


def run_limited(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> MeasuredOutcome:
    """Run cfglint; kill it at ten times the time limit and after five minutes, so that a hang ends."""
    paths = os.pathsep.join(str(REPOSITORY / root) for root in ("lint", "rules", "schemas"))
    before = measure_slowness()
    variables = {**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1", **(environment or {})}
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder) / name for name in ("out", "err", "used")]
        with open(reports[0], "wb") as out, open(reports[1], "wb") as err:
            subprocess.run(
                [
                    sys.executable, "-S", "-c", _MEASURING_PROGRAM, f"{10 * CPU_SECONDS:.0f}", str(4 * MEMORY),
                    reports[2], *arguments,
                ],
                cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=True,
            )  # fmt: skip
        texts = [stream.read_bytes().decode("utf-8", "replace") for stream in reports[:2]]
        code, seconds, memory = json.loads(reports[2].read_text())
    return MeasuredOutcome(code, *texts, seconds / max(before, measure_slowness()), memory)
