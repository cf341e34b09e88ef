"""PAR005 invisible-gpus: a launch starts more processes per node than the job can see GPUs.

## What it does
Compares the processes that the launcher starts on each node with the GPUs that Slurm grants (`--gres`,
`--gpus-per-node`, `--gpus`) or `CUDA_VISIBLE_DEVICES` lists.

## Why is this bad?
Each process takes the GPU of its local rank. A rank without a GPU fails with `invalid device ordinal`, and the launcher
stops the job after it has waited in the queue.

## Example
    #SBATCH --gres=gpu:4
    torchrun --nproc_per_node 8 scripts/train.py config.yaml

## Use instead
    #SBATCH --gres=gpu:8
    torchrun --nproc_per_node 8 scripts/train.py config.yaml

## When it does not apply
The rule is silent for jobs that Ray places, and for `CUDA_VISIBLE_DEVICES` under DeepSpeed's launcher, which ignores
the variable beside `--num_gpus`. A request of a SkyPilot or Kubernetes file counts for its own job only.

## References
The manuals of sbatch and srun; torch 2.13 `distributed/run.py` (LOCAL_RANK), `cuda/__init__.py` (set_device);
DeepSpeed 0.19.8 `launcher/runner.py` (main: VISIBLE_DEVICES).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.runs.run import Run

RULE: Final = Rule("PAR005", "invisible-gpus", "error", needs={"launch.visible_gpus": (), "launch.gpus_per_node": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if some processes of a node have no GPU."""
    visible, processes = run.plan.launch.visible_gpus, run.plan.launch.gpus_per_node
    origin = run.get_origin("launch.gpus_per_node")
    if not visible or not processes or processes <= visible or origin is None or origin.place is None:
        return
    if not origin.key:  # a pragma describes the cluster, not the launch
        return
    granted = run.get_origin("launch.visible_gpus")
    source = f" (`{granted.key}`)" if granted is not None and granted.key else ""
    yield Report(
        f"{processes} processes per node start, but {format_count(visible, 'GPU')} of a node are visible{source}: "
        "the others fail with `invalid device ordinal`",
        run.find_place("launch.gpus_per_node"),
        help=f"request {processes} GPUs per node, or start {visible} per node",
    )
