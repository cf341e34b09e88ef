"""Measure the search for the smallest change that fits: python benchmarks/fit.py [REPEATS].

Prints milliseconds of CPU time for each run of fixtures/fit that does not fit: the best of some repeats, with files,
models and code already loaded. The target is 20 ms per run on an idle machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cfglint_train import api
from cfglint_train.findings.verdicts import STEP_PHASES
from cfglint_train.fitting.smallest import find_smallest_for

RUNS = Path(__file__).parent.parent / "fixtures" / "fit"
BAR = 20.0


def main(repeats: int) -> None:
    """Print the times, the slowest last."""
    times = []
    for run in api.estimate(RUNS, api.Options(isolated=True)).raw.runs:
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            solution = find_smallest_for(run, STEP_PHASES)
            best = min(best, (time.process_time() - start) * 1e3)
        if solution is not None:
            times.append((best, run.main.document.path))
    for milliseconds, path in sorted(times):
        print(f"{milliseconds:7.1f} ms  {Path(path).name}")
    slowest = max(times)[0]
    median = sorted(times)[len(times) // 2][0]
    print(f"{len(times)} runs: median {median:.1f} ms, slowest {slowest:.1f} ms (the bar is {BAR:.0f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
