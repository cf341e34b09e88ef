"""CPU time for ten times the text, in every syntax up to its limits, and for rejecting 50 MB.

    python benchmarks/growth.py [--runs N] [--series NAME ...]

Each series is linted in sizes that grow tenfold; the start-up time of the command is subtracted. A ratio of 10 is
linear, and one far above it means that a file could stall cfglint: the target is 15. A text above a limit produces one
finding within 2 s.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MAX_SECONDS, MAX_GROWTH = 2.0, 15.0
AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: a\n    type: alpaca\nmicro_batch_size: 1\n"
JOB = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B"
OLMO = "from olmo_core.config import Config\n"


def build_yaml(size: int) -> dict[str, str]:
    """Build a YAML file with `size` unknown keys."""
    return {"a.yaml": AXOLOTL + "unknown:\n" + "".join(f"  k{number}: {number}\n" for number in range(size))}


def build_json(size: int) -> dict[str, str]:
    """Build a JSON file with `size` unknown keys."""
    members = ", ".join(f'"k{number}": {number}' for number in range(size))
    return {"a.json": f'{{"zero_optimization": {{"stage": 2}}, "train_batch_size": 8, "unknown": {{{members}}}}}'}


def build_shell(size: int) -> dict[str, str]:
    """Build a shell script with `size` assignments."""
    return {"a.sh": "".join(f"V{number}=$V{number - 1}x\n" for number in range(size)) + f"{JOB} --zero_stage 2\n"}


def build_python(size: int) -> dict[str, str]:
    """Build a Python script with about `size` assignments."""
    return {"a.py": OLMO + "".join(f"v{number} = {number} + v{number - 1}\n" for number in range(1, size))}


def build_settings(size: int) -> dict[str, str]:
    """Build a settings file with `size` globs."""
    globs = "".join(f'"configs/run-{number}*/**/x{number}.yaml" = ["MEM"]\n' for number in range(size))
    return {"a.yaml": AXOLOTL, "cfglint.toml": f"[per-file-ignores]\n{globs}"}


def build_findings(size: int) -> dict[str, str]:
    """Build a YAML file with `size` findings."""
    return {"a.yaml": AXOLOTL + "".join(f"micro_batch_siz{number}: 1\n" for number in range(size))}


# Name -> builder and sizes: the last size is just below a limit of documents/limits.py, or of the settings.
SERIES: dict[str, tuple[Callable[[int], dict[str, str]], tuple[int, ...]]] = {
    "YAML, keys": (build_yaml, (90, 900, 9_000)),
    "JSON, keys": (build_json, (90, 900, 9_000)),
    "shell, lines": (build_shell, (190, 1_900, 19_000)),
    "Python, lines": (build_python, (190, 1_900, 19_000)),
    "settings, globs": (build_settings, (50, 500, 5_000)),
    "findings": (build_findings, (90, 900, 9_000)),
}
LARGE = {
    "YAML": ("a.yaml", AXOLOTL + "x: |\n", "  text of a value\n"),
    "JSON": ("a.json", '{"zero_optimization": {}, "x": [', "1, 2, 3, 4,\n"),
    "shell": ("a.sh", f"{JOB}\n", "echo a line\n"),
    "Python": ("a.py", OLMO, "x = 'a line'\n"),
    "settings": ("cfglint.toml", "# ", "a comment\n# "),
}


def measure_lint(files: dict[str, str], runs: int) -> float:
    """Return the median CPU time of a lint of some files, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/.git")
        for name, text in files.items():
            Path(folder, name).write_text(text)
        return statistics.median(_measure_once(folder) for _ in range(runs))


def _measure_once(folder: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, "-m", "cfglint_train", "--no-cache", "--output-format", "json", "."],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode not in (0, 1, 2) or b"Traceback" in result.stderr or b"please report it" in result.stdout:
        raise SystemExit(f"a lint failed: {result.stderr.decode()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the times of the series; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--series", nargs="*", default=[*SERIES, "50 MB"])
    options = parser.parse_args()
    is_missed = False
    for name in options.series:
        if name not in SERIES:
            continue
        make, sizes = SERIES[name]
        start = measure_lint(make(1), options.runs)
        times = [measure_lint(make(size), options.runs) for size in sizes]
        # Below 0.01 s, start-up time varies more than the text costs.
        net_times = [max(time - start, 0.01) for time in times]
        ratios = [after / before for before, after in zip(net_times, net_times[1:])]
        is_missed |= max(ratios) > MAX_GROWTH or times[-1] > MAX_SECONDS
        print(f"{name:16} {' '.join(f'{size:>6,}: {time:5.2f} s' for size, time in zip(sizes, times))}"
              f"   ratios {', '.join(f'{ratio:.1f}' for ratio in ratios)}")  # fmt: skip
    for name, (file, head, line) in LARGE.items() if "50 MB" in options.series else ():
        empty = measure_lint({"a.yaml": AXOLOTL}, options.runs)
        large_time = measure_lint({"a.yaml": AXOLOTL, file: head + line * (50 * 10**6 // len(line))}, options.runs)
        is_missed |= large_time > MAX_SECONDS
        print(f"50 MB of {name:8} {large_time:5.2f} s, {large_time - empty:+.2f} s to the start")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
