"""CPU time that a framework's source in a repository adds to the lint of one file.

    python -m pip download --no-deps axolotl==0.19.0     # and unpack the wheels into one folder
    python benchmarks/vendored.py FOLDER [--runs N]

For each framework whose package is in FOLDER, prints milliseconds of CPU time: of a lint without the copy, and of
reading the copy for the first time and from the cache. The target for the first time is 300 ms.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cfglint_train.frameworks.registry import list_frameworks

AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B
datasets:
  - path: d.jsonl
    type: alpaca
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 1
num_epochs: 1
learning_rate: 1e-5
output_dir: out
"""
LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
dataset: d
template: qwen
output_dir: out
"""
OLMO = """\
run_name: r
model:
  d_model: 4096
  n_layers: 32
optimizer:
  name: adamw
save_folder: out
max_duration: 9ep
"""
OPENRLHF = """\
deepspeed --module openrlhf.cli.train_sft --zero_stage 3 --max_len 2048
"""
FILES = {
    "axolotl": ("train-7b.yaml", AXOLOTL),
    "llamafactory": ("train-7b.yaml", LLAMAFACTORY),
    "olmo": ("train-7b.yaml", OLMO),
    "openrlhf": ("train-7b.sh", OPENRLHF),
}
"""Framework -> name and text of a small file."""


def measure_lint(root: Path, file: str, cache: Path | None, runs: int) -> float:
    """Return the minimum CPU time of a lint in milliseconds; the first run is not counted."""
    cache_options = ["--no-cache"] if cache is None else ["--cache-dir", str(cache)]
    command = [sys.executable, "-m", "cfglint_train", "--isolated", *cache_options, file]
    times = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
        if code not in (0, 1):
            raise SystemExit(f"exit code {code}: {' '.join(command)}")
    return min(times[1:])


def print_times(name: str, package: Path, runs: int) -> None:
    """Print the times of one framework."""
    file, text = FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "repository", Path(folder) / "cache"
        (root / ".git").mkdir(parents=True)
        (root / file).write_text(text)
        baseline = measure_lint(root, file, None, runs)
        shutil.copytree(package, root / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        first_time = measure_lint(root, file, None, runs) - baseline
        cached = measure_lint(root, file, cache, runs) - baseline
        if not os.path.isdir(cache):
            raise SystemExit(f"{package} was not read as a copy of {name}")
    print(
        f"{name:<14} without {baseline:6.0f} ms, the first time {first_time:+6.0f} ms, from the cache {cached:+6.0f} ms"
    )


def main() -> None:
    """Measure the frameworks of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the packages lie, such as a site-packages")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    for name in FILES:
        tree = list_frameworks()[name].layout
        assert tree is not None
        package = arguments.folder / tree.parts[0].partition("/")[0]
        if package.is_dir():
            print_times(name, package, arguments.runs)
    print("bar: 300 ms the first time")


if __name__ == "__main__":
    main()
