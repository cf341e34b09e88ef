"""Wall and CPU time of whole commands: cfglint, yamllint and check-jsonschema, interleaved in the same run.

    python benchmarks/lint.py [--corpus DIR] [--runs N]

Prints the median wall time of each command, the minimum user time of its processes, and their ratios to yamllint, then
the cost of the vocabulary and of each output format in a lint of the whole corpus. benchmarks/README.md explains the
output and states the targets.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cfglint_train.settings.settings import FORMATS

SMALL = 20_000
_SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def find_command(name: str) -> str:
    """Return the path of a command, next to the Python interpreter or else on PATH."""
    sibling = Path(sys.executable).parent / name
    path = str(sibling) if sibling.exists() else shutil.which(name)
    if not path:
        raise SystemExit(f"{name} is not installed")
    return path


def read_user_time() -> float:
    """Return the user time of this process's finished children, in seconds."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


Times = tuple[float, float]
"""Median wall time and minimum user time."""


def measure_commands(commands: dict[str, list[str]], runs: int, folder: str) -> dict[str, Times]:
    """Return the times of each command; the commands take turns, so that a busy moment affects all of them.

    They run in a folder without their settings. A command that fails (exit code other than 0, or 1 for findings) ends
    the measurement.
    """
    times: dict[str, list[Times]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, argv in commands.items():
            start, user_before = time.perf_counter(), read_user_time()
            code = subprocess.run(argv, **_SILENT, cwd=folder, check=False).returncode
            times[name].append((time.perf_counter() - start, read_user_time() - user_before))
            if code not in (0, 1):
                raise SystemExit(f"exit code {code}: {' '.join(argv[:8])} ...")
    walls = {name: [wall for wall, _ in samples[1:]] for name, samples in times.items()}
    return {name: (statistics.median(walls[name]), min(user for _, user in times[name][1:])) for name in commands}


def print_times(title: str, times: dict[str, Times], base: str, bar: str) -> None:
    """Print the times of commands and their ratios to `base`."""
    print(title)
    for name, (wall, user) in times.items():
        by_wall, by_user = wall / times[base][0], user / times[base][1]
        print(f"  {name:<18} {wall * 1e3:8.1f} ms {by_wall:5.2f} x {base}   user {user * 1e3:8.1f} ms {by_user:5.2f} x")
    print(f"  bar: {bar}")


def main() -> None:
    """Measure all commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("CFGLINT_CORPUS", Path(__file__).resolve().parents[2] / "shared" / "corpus"))
    parser.add_argument("--corpus", type=Path, default=default)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    options.corpus = options.corpus.resolve()
    files = sorted(
        path for path in options.corpus.rglob("*") if path.suffix in (".yaml", ".yml") and path.stat().st_size <= SMALL
    )
    if not files:
        raise SystemExit(f"no YAML files below {options.corpus}")
    sample = next((path for path in files if path.name == "fft-8b.yaml"), files[0])
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "any.json"
        schema.write_text(json.dumps({}))
        check = [find_command("check-jsonschema"), "--schemafile", str(schema)]

        def build_commands(paths: list[Path]) -> dict[str, list[str]]:
            names = [str(path) for path in paths]
            return {
                "yamllint": [find_command("yamllint"), *names],
                "cfglint": [find_command("cfglint"), *names],
                "check-jsonschema": [*check, *names],
            }

        few_runs = max(3, options.runs // 3)
        print_times(
            f"one file ({sample.name})",
            measure_commands(build_commands([sample]), options.runs, folder),
            "yamllint",
            "cfglint <= 0.8 x yamllint",
        )
        title = f"{len(files)} files of at most {SMALL} bytes"
        print_times(
            title, measure_commands(build_commands(files), few_runs, folder), "yamllint", "cfglint <= 0.25 x yamllint"
        )
        formats = {
            form: [find_command("cfglint"), "--isolated", "--exit-zero", "--output-format", form, str(options.corpus)]
            for form in ("json", *(form for form in FORMATS if form != "json"))
        }
        alone = [find_command("cfglint"), "--isolated", "--exit-zero", "--jobs", "1", str(options.corpus)]
        rules = {"without KEY": [*alone, "--ignore", "KEY"], "all rules": alone}
        title = "the vocabulary, over the whole corpus"
        print_times(
            title, measure_commands(rules, options.runs, folder), "without KEY", "all rules <= 1.25 x without KEY"
        )
        print_times(
            "formats, over the whole corpus",
            measure_commands(formats, few_runs, folder),
            "json",
            "github, sarif and html <= 1.2 x json",
        )


if __name__ == "__main__":
    main()
