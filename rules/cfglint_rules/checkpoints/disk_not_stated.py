"""CKP011 disk-not-stated: the checkpoints of a run take terabytes, but the disk is not stated.

## What it does
Reports the disk space of all checkpoints that exist at the same time, if it is 2 TiB or more and no flag, setting or
comment states the disk. If the length of the run is not known and nothing is deleted, it reports checkpoints of
200 GiB or more.

## Why is this bad?
A save that runs out of space ends the run, and often destroys the previous checkpoint too. cfglint cannot check this
without knowing the disk.

## Example
    model_name_or_path: Qwen/Qwen2.5-32B
    finetuning_type: full
    max_steps: 20000
    save_steps: 500          # 40 checkpoints of 427 GiB

## Use instead
    # cfglint: disk=20TB
    save_total_limit: 2

## When it does not apply
Silent if the disk is stated: CKP004 then checks that it is large enough.

## References
docs/memory/host.md; transformers 4.46.3 `trainer.py` (_rotate_checkpoints).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.size import is_no_limit
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.checkpoint_retention import count_copies, count_saves, list_limits
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP011", "disk-not-stated", "info", needs={"checkpoint.strategy": ()}, estimates=("disk",), folds=True
)

_MIN_TOTAL: Final = 2 * 2**40
_MIN_EACH: Final = 200 * 2**30


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the checkpoints need a large disk whose capacity is not stated."""
    field = list_limits(run.plan)[0]
    limit = run.plan.get(field)
    if run.hardware.get_capacity("disk") is not None or run.plan.checkpoint.strategy == "no" or limit is None:
        return
    save = run.estimate.find_phase("save")
    if save is None or save.disk is None:
        return
    total, count, save_count = save.disk.expected, count_copies(run.plan), count_saves(run.plan)
    size = total / count
    if save_count is None and is_no_limit(limit, save_count):
        if size < _MIN_EACH:
            return
        message = f"disk not checked: no checkpoint of {format_gib(size)} is deleted, and the disk is not stated"
    else:
        if total < _MIN_TOTAL:
            return
        message = (
            f"disk not checked: {count} checkpoints of {format_gib(size)} need {format_gib(total)}, "
            "and the disk is not stated"
        )
    yield Report(
        message,
        run.find_place(field, "checkpoint.interval", "checkpoint.strategy"),
        help=f"set `disk` to the free space, or keep fewer checkpoints (`{run.spell_key(field)}`)",
    )
