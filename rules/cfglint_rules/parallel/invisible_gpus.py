"""PAR005 invisible-gpus: a launch starts more processes per node than the job can see GPUs.

## What it does
Compares the processes that the launcher or accelerate's file (`num_processes`) starts on each node with the GPUs that
Slurm grants (`--gres`, `--gpus-per-node`, `--gpus`) or `CUDA_VISIBLE_DEVICES` lists.

## Why is this bad?
Each process takes the GPU of its local rank. A rank without a GPU fails with `invalid device ordinal`, and the launcher
stops the job after it has waited in the queue. A trainer that takes its GPUs from Ray (verl) does not start.

## Example
    #SBATCH --gres=gpu:4
    torchrun --nproc_per_node 8 scripts/train.py config.yaml

## Use instead
    #SBATCH --gres=gpu:8
    torchrun --nproc_per_node 8 scripts/train.py config.yaml

## When it does not apply
The rule is silent for jobs of `ray job submit`, and for `CUDA_VISIBLE_DEVICES` under DeepSpeed's launcher, which
ignores the variable beside `--num_gpus`. A request of a SkyPilot or Kubernetes file counts for its own job only.
accelerate's file is not compared if Slurm grants another number of nodes than its `num_machines`.

## References
The manuals of sbatch and srun; torch 2.13 `distributed/run.py` (LOCAL_RANK), `cuda/__init__.py` (set_device);
DeepSpeed 0.19.8 `launcher/runner.py` (main: VISIBLE_DEVICES); accelerate 1.15.0 `commands/launch.py`
(_validate_launch_command).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.framework import read_config
from cfglint_train.plan.origin import FieldValue
from cfglint_train.runs.run import Run
from cfglint_train.settings.cluster_facts import VISIBLE_GPU_OPTIONS

RULE: Final = Rule("PAR005", "invisible-gpus", "error", needs={"launch.visible_gpus": (), "launch.gpus_per_node": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if some processes of a node have no GPU."""
    visible, granted = run.plan.launch.visible_gpus, run.get_origin("launch.visible_gpus")
    started = _find_started(run)
    if not visible or started is None or started.value <= visible:
        return
    source = f" (`{granted.key}`)" if granted is not None and granted.key else ""
    shortage = f"but {format_count(visible, 'GPU')} of a node {'is' if visible == 1 else 'are'} visible{source}"
    is_launched = run.framework.launch_interface.uses_all_launched_gpus(run.main)
    yield Report(
        f"{started.value} processes per node start, {shortage}: the others fail with `invalid device ordinal`"
        if is_launched
        else f"the job takes {started.value} GPUs per node from Ray, {shortage}: it does not start",
        started.origin.place or run.main.find_top(),
        help=f"request {started.value} GPUs per node, or {'start' if is_launched else 'take'} {visible} per node",
    )


def _find_started(run: Run) -> FieldValue | None:
    """Return the number of processes that the launch states per node, or None.

    The plan counts only the visible GPUs if accelerate's file asks for more, so the file is read again. A pragma, which
    has no key, describes the cluster and not the launch.
    """
    origin, processes = run.get_origin("launch.gpus_per_node"), run.plan.launch.gpus_per_node
    if origin is None or origin.place is None or not origin.key or not processes:
        return None
    file = run.find_companion("accelerate")
    if file is None or origin.key not in VISIBLE_GPU_OPTIONS:
        return FieldValue(processes, origin)
    reading = read_config(file)
    is_same_job = reading.get("launch.nodes") == run.plan.launch.nodes
    stated = reading.values.get("launch.gpus_per_node") if is_same_job else None
    return stated if stated is not None and stated.value and stated.origin.place is not None else None
