"""CKP004 checkpoints-exceed-disk: the checkpoints that are kept do not fit on the disk.

## What it does
Compares the checkpoints that are kept with the stated disk space, and reports after how many saves the disk is full.
Without a limit, or with a limit above 50 in a run of unknown length, the run keeps every checkpoint. The checkpoint
being written counts too.

With `load_best_model_at_end`, a limit of one keeps two checkpoints: the best and the last. OLMo keeps one ephemeral
checkpoint in addition to the others. A trained critic writes its own checkpoints, which count as well.

## Why is this bad?
A full checkpoint has 14 bytes per parameter: 91 GiB for 7B, 940 GiB for 72B. A save that runs out of space ends the
run, and often destroys the previous checkpoint too.

## Symptoms
No space left on device, disk full, disk quota exceeded.

## Example
    # cfglint: disk=2TB
    save_steps: 500
    # save_total_limit is not set: LLaMA-Factory keeps every checkpoint

## Use instead
    save_total_limit: 2

## Fix safety
Unsafe: older checkpoints are deleted during training.

## When it does not apply
Silent unless the disk is stated (`--disk`, `# cfglint: disk=...`, settings). Silent if the disk holds all checkpoints
that the run can write, given its steps, tokens, epochs or sample limit.

If the run's length is unknown, the rule expects at most 50 checkpoints. LLaMA-Factory has 50 examples with a known
length that keep every checkpoint, and only one of them writes more than 50.

## References
transformers 4.46.3 `trainer.py` (_rotate_checkpoints); OpenRLHF 0.11.2 `trainer/ray/ppo_critic.py` (save_checkpoint);
modelscope/ms-swift#6392; ai2-olmo 0.6.0 `train.py` (save_ephemeral_checkpoint, fit); ai2-olmo-core 3.0.0
`train/callbacks/checkpointer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.size import MAX_EXPECTED_CHECKPOINTS, estimate_save, is_no_limit, spell_limit
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.checkpoint_retention import count_copies, count_ephemeral, count_saves, list_limits
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP004",
    "checkpoints-exceed-disk",
    "warning",
    fix="unsafe",
    writes=("checkpoint.keep", "checkpoint.keep_unsharded"),
    estimates=("disk",),
    capacities=("disk",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the checkpoints that are kept do not fit on the disk."""
    checkpoint, capacity = run.plan.checkpoint, run.hardware.get_capacity("disk")
    field = list_limits(run.plan)[0]
    limit = run.plan.get(field)
    if capacity is None or checkpoint.strategy == "no" or limit is None:
        return
    save = estimate_save(run)
    if save is None or save.disk is None:
        return
    size = save.disk.expected
    fitting_count = int(capacity // size) if size else 0
    save_count = count_saves(run.plan)
    if fitting_count >= (MAX_EXPECTED_CHECKPOINTS if save_count is None else save_count):
        return
    is_unlimited = is_no_limit(limit, save_count)
    ephemeral_count = count_ephemeral(run.plan)
    extra_count = ephemeral_count + (0 if checkpoint.rotates_first else 1)
    if is_unlimited:
        outcome = f"is full after {fitting_count}" if fitting_count else "is too small for one"
        message = (
            f"`{spell_limit(run, field)}` sets no limit: all checkpoints of {format_gib(size)} are kept, "
            f"and the disk ({format_gib(capacity)}) {outcome}"
        )
    else:
        count = count_copies(run.plan, (field,))
        if count * size <= capacity:
            return
        keeps_best = limit == 1 and bool(checkpoint.load_best_at_end)
        kept_count = 2 if keeps_best else limit
        additions = (", an ephemeral one" if ephemeral_count else "") + (
            " and the one being written" if extra_count > ephemeral_count else ""
        )
        subject = f"{kept_count} kept checkpoints{' (the best and the last)' * keeps_best}{additions}"
        if count == save_count and count < kept_count + extra_count:
            subject = f"all {count} checkpoints of the run"
        message = (
            f"{subject} need {format_gib(count * size)} ({format_gib(size)} each); the disk has {format_gib(capacity)}"
        )
    keep = min(2, fitting_count - extra_count)
    fix = (
        Fix("unsafe", f"{format_changes(run, {field: keep})}; older checkpoints are deleted", {field: keep})
        if keep >= 1 and keep != limit
        else None
    )
    severity: Severity = "error" if fitting_count < 1 else "warning"
    yield Report(message, run.find_place(field, "checkpoint.interval", "checkpoint.strategy"), severity, fix)
