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

from cfglint_rules.checkpoints.size import ENOUGH, one_save
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.checkpoint_retention import copies_of, ephemeral, limits, most_saves
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP004",
    "checkpoints-exceed-disk",
    "warning",
    fix="unsafe",
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
        count = copies_of(run.plan, (field,))
        if count * each <= capacity:
            return
        best = limit == 1 and bool(checkpoint.load_best_at_end)
        kept = 2 if best else limit
        beside = (", an ephemeral one" if passing else "") + (" and the one being written" if written > passing else "")
        what = f"{kept} kept checkpoints{' (the best and the last)' * best}{beside}"
        if count == most and count < kept + written:
            what = f"all checkpoints that the run writes ({count})"
        message = f"{what} need {gib(count * each)} ({gib(each)} each); the disk has {gib(capacity)}"
    keep = min(2, fitting - written)
    fix = (
        Fix("unsafe", f"{worded(run, {field: keep})}; older checkpoints are deleted", {field: keep})
        if keep >= 1 and keep != limit
        else None
    )
    severity: Severity = "error" if fitting < 1 else "warning"
    yield Report(message, run.place(field, "checkpoint.interval", "checkpoint.strategy"), severity, fix)
