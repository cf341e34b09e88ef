"""HST002 too-many-loaders: the data loaders of a node are more processes than it can run at once.

## What it does
Multiplies the stated workers per rank by the ranks of a node, and reports more than 384 processes: more than any usual
node of eight GPUs has hardware threads.

## Why is this bad?
Workers are started by every rank. Sixty-four of them on eight ranks are 512 processes that import torch and take 50 to
400 MB each of the host, and wait for each other's CPU time: the node swaps or a process is killed, at the start or
hours later (hiyouga/LLaMA-Factory#9531, axolotl-ai-cloud/axolotl#3069).

## Example
    dataloader_num_workers: 64        # on a node of 8 GPUs

## Use instead
    dataloader_num_workers: 8

torch itself warns where the workers of one process are more than the node has CPUs ("might get DataLoader running slow
or even freeze"), but each rank counts its own alone.

## When it does not apply
Silent up to 384 processes per node, which is a margin: no file states how many CPUs a node has. DGX H100 has 224
hardware threads, DGX A100 256, AWS p5.48xlarge 192, Google a3-highgpu-8g 208; two processors of 96 cores have 384.
Where the host's memory is stated and too small for so many workers, but not for 8 per rank, HST001 reports it alone;
where it is only tight because of them, this rule does.

## References
docs/memory/host.md; transformers 5.23.0 `trainer.py` (get_train_dataloader); torch 2.13
`utils/data/dataloader.py` (check_worker_number_rationality).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.host.host_memory import ALWAYS_REPORTED_PHASES
from cfglint_rules.host.workers import USUAL_WORKERS, has_too_many_workers, is_caused_by_workers
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.calibration import load_table
from cfglint_train.runs.run import Run

RULE: Final = Rule("HST002", "too-many-loaders", "warning", needs={"data.workers": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the stated workers of all ranks are too many."""
    if not has_too_many_workers(run):
        return
    judgement = judge(run, "host", ALWAYS_REPORTED_PHASES)
    if judgement is not None and judgement.verdict == "does not fit" and is_caused_by_workers(judgement):
        return  # HST001 reports it
    worker_bytes, workers, ranks = (
        load_table().coefficients["worker"],
        run.plan.data.workers,
        run.plan.launch.gpus_per_node,
    )
    count, capacity = (workers or 0) * (ranks or 0), run.hardware.get_capacity("host")
    available = f", {format_gib(capacity)} available" if capacity is not None else ""
    yield Report(
        f"`{run.spell_key('data.workers')}` is {workers}: {count} processes load data on each node of {ranks} ranks, "
        "with "
        f"{format_gib(count * worker_bytes.low)} to {format_gib(count * worker_bytes.high)} of host memory{available}",
        run.find_place("data.workers"),
        help=f"workers are started by every rank; {USUAL_WORKERS} are usually enough",
    )
