"""Time and memory of a lint of a large repository: launch scripts in nested folders, and the configurations they start.

    python benchmarks/repository.py [--scripts N] [--configs N] [--runs N]
    python benchmarks/repository.py --mixed N...
    python benchmarks/repository.py --memory PATH...

Prints the median seconds for the whole repository and for one configuration in it. Every configuration is started by
several scripts that agree on the sharding and differ in the number of GPUs; a tenth of the scripts train without a
configuration. The targets for 2,000 scripts and 500 configurations are 3 s on two cores, and 6 s of processor time.

`--mixed` builds checkouts of N files of all kinds instead, one of them a configuration, and prints the CPU time of its
lint as a multiple of yamllint's: without the cache, and with the cache after the configuration changed. The targets are
2 and 1 for 5,000 files, and 4 and 1.5 for 50,000.

`--memory` prints the peak memory of a lint of files and folders. The target is 60 MB for the corpus.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = """\
model_name_or_path: Qwen/Qwen2.5-{size}B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca
template: qwen
cutoff_len: 2048
output_dir: saves/{number}
per_device_train_batch_size: 1
gradient_accumulation_steps: {number}
bf16: true
"""
ACCELERATE = """\
distributed_type: FSDP
num_machines: 1
num_processes: {gpus}
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
"""
START = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node={gpus}
set -euo pipefail
source "$(dirname "$0")/env.sh"
RUN=${{RUN:-run-{number}}}
ARGS=(logging_steps=10)
if [ -n "${{RESUME:-}}" ]; then
  ARGS+=("resume_from_checkpoint=$RESUME")
fi
cleanup() {{ rm -rf "/tmp/$RUN"; }}
trap cleanup EXIT
accelerate launch --config_file configs/fsdp_{gpus}.yaml src/train.py {config} "${{ARGS[@]}}"
"""
TRAIN = """\
#!/bin/bash
MODEL=${{MODEL:-Qwen/Qwen2.5-7B}}
deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain "$MODEL" --dataset data/d.jsonl \\
  --train_batch_size 64 --micro_train_batch_size 1 --max_len 2048 --zero_stage 3 --bf16 --save_path out/{number}
"""


def build_repository(root: Path, scripts: int, configs: int) -> None:
    """Write the repository: configurations and the scripts that start them."""
    (root / ".git").mkdir()
    for gpus in (4, 8):
        write_file(root / f"configs/fsdp_{gpus}.yaml", ACCELERATE.format(gpus=gpus))
    for number in range(configs):
        write_file(
            root / f"configs/{number % 20}/config_{number}.yaml",
            CONFIG.format(number=number + 1, size=(3, 7)[number % 2]),
        )
    for number in range(scripts):
        folder = root / f"jobs/{number % 40}/{number % 7}"
        write_file(folder / "env.sh", "export TOKENIZERS_PARALLELISM=false\n")
        config = number % configs
        config_path = f"configs/{config % 20}/config_{config}.yaml"
        launch_script = START.format(number=number, gpus=(4, 8)[number // configs % 2], config=config_path)
        write_file(
            folder / f"train_{number}.sbatch", TRAIN.format(number=number) if number % 10 == 0 else launch_script
        )


def write_file(path: Path, text: str) -> None:
    """Write a file and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def measure_lint(root: Path, targets: list[str], runs: int) -> tuple[float, float, float]:
    """Return the median wall time and CPU time of a lint in seconds, and its peak memory in MB.

    The first run is not counted. The memory is that of the largest process.
    """
    measured = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        command = [sys.executable, "-m", "cfglint_train", "--isolated", "--no-cache", *targets]
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
        seconds = usage.ru_utime + usage.ru_stime
        measured.append((time.perf_counter() - start, seconds, usage.ru_maxrss * 1024 / 1e6))
    wall, processor, memory = (statistics.median(values) for values in zip(*measured[1:], strict=True))
    return wall, processor, memory


def build_mixed(root: Path, number: int) -> str:
    """Write a checkout with `number` files of all kinds; return the path of its configuration."""
    generator = random.Random(number)
    suffixes = random.Random(number).choices(tuple(_KINDS), tuple(kind[0] for kind in _KINDS.values()), k=number)
    for index, suffix in enumerate(suffixes):
        lines = "".join(
            _KINDS[suffix][1].format(*generator.choices(_WORDS, k=4)) for _ in range(generator.randrange(5, 90))
        )
        write_file(root / f"part_{index // 400}/module_{index // 13}/file_{index}{suffix}", _KINDS[suffix][2] + lines)
    write_file(root / "configs/run.yaml", CONFIG.format(number=1, size=0.5))
    write_file(root / "scripts/train.sh", "#!/bin/bash\nllamafactory-cli train configs/run.yaml\n")
    write_file(root / "requirements.txt", "llamafactory==0.9.3\n")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return "configs/run.yaml"


_WORDS = tuple(f"{word}{number}" for word in ("model", "data", "loss", "step", "rank") for number in range(500))
_KINDS = {
    ".py": (45, "    {0} = {1}.{2}('{3}')\n", "import os\n\n\ndef run():\n"),
    ".yaml": (15, "{0}: [{1}, {2}]\n", ""),
    ".md": (12, "{0} {1} {2} {3}\n", "# Notes\n\n"),
    ".txt": (10, "{0} {1} {2} {3}\n", ""),
    ".json": (10, "", "[]\n"),
    ".sh": (8, "echo {0} {1}\n", "#!/bin/bash\n"),
}
"""Suffix -> its number among a hundred files, a line with four words, and the head of the file."""


def compare_with_yamllint(root: Path, target: str, runs: int) -> tuple[float, float]:
    """Return the CPU time of a lint as a multiple of yamllint's, without a cache and with a cache.

    The target changes before every run, so that no report is replayed.
    """
    cache = str(root.with_suffix(".cache"))
    commands = (["yamllint"], ["cfglint_train", "--no-cache"], ["cfglint_train", "--cache-dir", cache])
    time.sleep(2.1)  # facts about a file that just changed are not cached
    yamllint, uncached, cached = (measure_cpu_time([*command, target], root, runs) for command in commands)
    return uncached / yamllint, cached / yamllint


def measure_cpu_time(module: list[str], root: Path, runs: int) -> float:
    """Return the median CPU time of a module in seconds; the first two runs, which fill caches, are not counted."""
    times = []
    for number in range(runs + 2):
        with (root / module[-1]).open("a") as file:
            file.write(f"# {number}\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", *module], cwd=root, stdout=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times[2:])


def main() -> None:
    """Build the repository and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scripts", type=int, default=2000)
    parser.add_argument("--configs", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mixed", type=int, nargs="+", metavar="N")
    parser.add_argument("--memory", nargs="+", metavar="PATH")
    arguments = parser.parse_args()
    if arguments.memory:
        targets = [os.path.abspath(path) for path in arguments.memory]
        wall, processor, memory = measure_lint(Path.cwd(), targets, arguments.runs)
        print(f"peak memory {memory:.0f} MB (bar: 60 MB), {processor:.1f} s of processor time, {wall:.1f} s")
    for number in arguments.mixed or ():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "checkout"
            uncached, cached = compare_with_yamllint(root, build_mixed(root, number), arguments.runs)
            print(f"{number:6} files: {uncached:4.1f} times yamllint's processor time, {cached:4.1f} with the cache")
    if arguments.mixed or arguments.memory:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        build_repository(root, arguments.scripts, arguments.configs)
        print(f"{arguments.scripts} scripts, {arguments.configs} configurations")
        for name, target in (("whole repository", "."), ("one configuration", "configs/0/config_0.yaml")):
            wall, processor, memory = measure_lint(root, [target], arguments.runs)
            print(f"  {name:18} {wall:6.2f} s, {processor:6.2f} s of processor time, {memory:4.0f} MB")
        print("  bars for the whole repository: 3 s on two cores, 6 s of processor time")


if __name__ == "__main__":
    main()
