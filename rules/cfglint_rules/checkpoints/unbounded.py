"""CKP004 checkpoints-exceed-disk: the checkpoints that are kept do not fit the disk.

## What it does
Compares the checkpoints that are kept (all of them, where nothing limits them, plus the one being written) with the
stated space, and says after how many saves it is used up. Where the best checkpoint is loaded at the end,
a limit of one keeps two: the best and the last. Of OLMo's ephemeral checkpoints there is one beside those that are
kept. A critic that is trained has checkpoints of its own, which count.

## Why is this bad?
A full checkpoint has 14 bytes per parameter: 7B is 91 GiB, 72B is 940 GiB. A save that runs out of space loses the
run, and often the previous checkpoint with it.

## Example
    # cfglint: disk=2TB
    save_steps: 500
    # save_total_limit is not set: LLaMA-Factory keeps every checkpoint

## Use instead
    save_total_limit: 2

## Fix safety
Unsafe: older checkpoints are deleted during training.

## When it does not apply
Silent unless the disk is stated (`--disk`, `# cfglint: disk=...`, settings), and where the run saves no more
checkpoints than the disk holds: its steps, tokens, epochs or a limit of samples say how many there are at most. Where
the length is unknown, a disk for 50 checkpoints is enough: of LLaMA-Factory's 50 examples of known length that keep
all, one writes more.

## References
transformers 4.46.3 `trainer.py` (_rotate_checkpoints); OpenRLHF 0.11.2 `trainer/ray/ppo_critic.py` (save_checkpoint);
modelscope/ms-swift#6392; ai2-olmo 0.6.0 `train.py` (save_ephemeral_checkpoint, fit); ai2-olmo-core 3.0.0
`train/callbacks/checkpointer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from cfglint_rules.checkpoints.size import ENOUGH, one_save
from cfglint_rules.length import LENGTH_FIELDS, most_steps
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.save import ephemeral, limits, writes_shards
from cfglint_train.plan.fields import Plan
from cfglint_train.project.run import Run

RULE: Final = Rule(
    "CKP004",
    "checkpoints-exceed-disk",
    "warning",
    fix="unsafe",
    reads=(
        "checkpoint.strategy",
        "checkpoint.keep",
        "checkpoint.keep_unsharded",
        "checkpoint.interval",
        "checkpoint.interval_unsharded",
        "checkpoint.at_start",
        "checkpoint.load_best_at_end",
        "checkpoint.per_epoch",
        "checkpoint.rotates_first",
        *LENGTH_FIELDS,
    ),
    writes=("checkpoint.keep", "checkpoint.keep_unsharded"),
    estimates=("disk",),
)


def check(run: Run) -> Iterator[Report]:
    """One report where the disk fills up."""
    checkpoint, capacity = run.plan.checkpoint, run.hardware.capacity("disk")
    field = limits(run.plan)[0]
    limit = run.plan.get(field)
    if capacity is None or checkpoint.strategy == "no" or limit is None:
        return
    save = one_save(run)
    if save is None or save.disk is None:
        return
    each = save.disk.expected
    fitting = int(capacity // each) if each else 0
    most = most_saves(run.plan)
    if fitting >= (ENOUGH if most is None else most):
        return
    passing = ephemeral(run.plan)
    written = passing + (0 if checkpoint.rotates_first else 1)
    if limit == "all":
        message = f"every checkpoint of {gib(each)} is kept: {gib(capacity)} of disk are full after {fitting} of them"
    else:
        best = limit == 1 and bool(checkpoint.load_best_at_end)
        kept = 2 if best else limit
        if (kept + written) * each <= capacity:
            return
        beside = (", an ephemeral one" if passing else "") + (" and the one being written" if written > passing else "")
        message = (
            f"{kept} kept checkpoints{' (the best and the last)' * best}{beside} need "
            f"{gib((kept + written) * each)} ({gib(each)} each); the disk has {gib(capacity)}"
        )
    keep = min(2, fitting - written)
    fix = (
        Fix("unsafe", f"{worded(run, {field: keep})}; older checkpoints are deleted", {field: keep})
        if keep >= 1 and keep != limit
        else None
    )
    severity: Severity = "error" if fitting < 1 else "warning"
    yield Report(message, run.place(field, "checkpoint.interval", "checkpoint.strategy"), severity, fix)


def most_saves(plan: Plan) -> int | None:
    """Checkpoints that are on disk at the end of a run that deletes none, at most; None where no limit is stated.

    The last one counts, also where it is a model alone. OLMo and OLMo-core write none at the end of a run that ends
    with all of its intervals, but one before the first step, and ephemeral ones, of which one is beside the others.
    """
    saved, epochs, steps = plan.checkpoint, plan.batch.epochs, most_steps(plan)
    if saved.strategy == "steps" and saved.interval and steps is not None:
        intervals = [saved.interval] if writes_shards(plan) else []
        intervals += [saved.interval_unsharded] if saved.interval_unsharded else []
        ends = saved.at_start is not None and all(steps % interval == 0 for interval in intervals)
        count = sum(steps // interval for interval in intervals) + (0 if ends else 1)
        return count + (1 if saved.at_start else 0) + ephemeral(plan)
    if saved.strategy == "epoch" and epochs is not None and plan.batch.steps is None:
        return ceil(epochs * (saved.per_epoch or 1))
    return None
