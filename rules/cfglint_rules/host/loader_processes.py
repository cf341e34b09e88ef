"""HST002 too-many-loaders: a node runs more data loader processes than a large node has hardware threads.

## What it does
Multiplies the stated workers per rank by the ranks of a node, and reports more than 384 processes. No common node with
eight GPUs has that many hardware threads.

## Why is this bad?
Every rank starts its own workers. With 64 workers on each of eight ranks, 512 processes import torch and wait for CPU
time. Each takes 50 to 400 MB of host memory. The node swaps, or a process is killed, at startup or hours later
(hiyouga/LLaMA-Factory#9531, axolotl-ai-cloud/axolotl#3069).

## Example
    dataloader_num_workers: 64        # on a node of 8 GPUs

## Use instead
    dataloader_num_workers: 8

torch warns if one process has more workers than the node has CPUs ("might get DataLoader running slow or even freeze").
It does not count the workers of other ranks.

## When it does not apply
Silent up to 384 processes per node. This limit leaves a margin because no file states how many CPUs a node has. A DGX
H100 has 224 hardware threads, a DGX A100 256, an AWS p5.48xlarge 192, and a Google a3-highgpu-8g 208. Two processors
with 96 cores each have 384.

If the stated host memory is too small for the workers but enough for 8 per rank, the finding is a part of that of
HST001. If the workers only make host memory tight, HST001's finding is a part of this one.

## References
docs/memory/host.md; transformers 5.23.0 `trainer.py` (get_train_dataloader); torch 2.13
`utils/data/dataloader.py` (check_worker_number_rationality).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.host.workers import USUAL_WORKERS, has_too_many_workers, is_caused_by_workers
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import HOST_PHASES, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.calibration import load_table
from cfglint_train.runs.run import Run

RULE: Final = Rule("HST002", "too-many-loaders", "warning", needs={"data.workers": ()})


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the ranks of a node start too many workers."""
    if not has_too_many_workers(run):
        return
    judgement = judge(run, "host", HOST_PHASES)
    is_left = judgement is not None and judgement.verdict == "does not fit" and is_caused_by_workers(judgement)
    worker_bytes, workers, ranks = (
        load_table().coefficients["worker"],
        run.plan.data.workers,
        run.plan.launch.gpus_per_node,
    )
    count, capacity = (workers or 0) * (ranks or 0), run.hardware.get_capacity("host")
    available = f", of {format_gib(capacity)}" if capacity is not None else ""
    yield Report(
        f"`{run.spell_key('data.workers')}: {workers}` starts {count} processes on each node of {ranks} ranks; "
        f"they need {format_gib(count * worker_bytes.low)} to {format_gib(count * worker_bytes.high)}{available}",
        run.find_place("data.workers"),
        help=f"set `{run.spell_key('data.workers')}` to {USUAL_WORKERS}, which is usually enough: every rank starts "
        "its own workers",
        left_to="HST001" if is_left else "",
    )
