"""CKP008 kept-despite-limit: a limit of checkpoints is set, and the run writes others that it does not apply to.

## What it does
Reports checkpoints that the limit does not delete: OLMo's unsharded checkpoints, which `save_num_checkpoints_to_keep`
does not count, and the Hugging Face weights that OpenRLHF exports in PPO, or where it writes no DeepSpeed checkpoints.

## Why is this bad?
They fill the disk although a limit is set. The save that runs out of space loses the run.

## Example
    save_interval: 1000
    save_num_checkpoints_to_keep: 2
    save_interval_unsharded: 1000            # every one of these is kept

## Use instead
    save_num_unsharded_checkpoints_to_keep: 2

## Fix safety
Unsafe: older checkpoints are deleted during training. OpenRLHF has no limit for its exports.

## When it does not apply
Silent where the other kind has a limit of its own or is stated to have none, where neither a limit nor the disk is
stated, and where the disk holds all that the run writes (50 checkpoints, if its length is unknown).

## References
ai2-olmo 0.6.0 `olmo/train.py` (_save_checkpoint: a list and a limit for each kind); OpenRLHF 0.11.2
`trainer/ray/ppo_actor.py` (save_checkpoint: exports lie beside the folder that is cleaned up),
`utils/deepspeed/deepspeed.py` (save_ckpt).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.size import ENOUGH, one_save
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.checkpoint_retention import limits
from cfglint_train.memory.components import DISK_WEIGHTS
from cfglint_train.plan.length import most_steps
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP008",
    "kept-despite-limit",
    "warning",
    fix="unsafe",
    needs={"checkpoint.strategy": ("steps",)},
    writes=("checkpoint.keep_unsharded",),
    estimates=("disk",),
)

_LIMIT: Final[Field] = "checkpoint.keep"


def check(run: Run) -> Iterator[Report]:
    """One report where something accumulates beside what is limited."""
    saved = run.plan.checkpoint
    if not isinstance(saved.keep, int) or not saved.keep:
        return
    exports = bool(saved.hf_export) and (run.plan.rollout.batch is not None or saved.deepspeed_checkpoint is False)
    whole = saved.interval_unsharded and saved.keep_unsharded == "all" and not run.stated("checkpoint.keep_unsharded")
    capacity = run.hardware.capacity("disk")
    if whole and not exports and capacity is not None and _LIMIT not in limits(run.plan):
        return  # no other kind is written, and CKP004 compares its own limit with the disk
    save = one_save(run) if exports or whole else None
    if save is None or save.disk is None:
        return
    what: Field = "checkpoint.hf_export" if exports else "checkpoint.interval_unsharded"
    each = dict(save.disk.sizes).get(DISK_WEIGHTS, 0) if exports else save.disk.expected
    interval, steps = saved.interval if exports else saved.interval_unsharded, most_steps(run.plan)
    most = ENOUGH if steps is None or not interval else steps // interval
    full = capacity is not None and most * each > capacity
    if not each or most <= saved.keep or not (full or (capacity is None and run.stated(_LIMIT))):
        return
    message = f"`{run.spell(_LIMIT)}` does not limit what `{run.spell(what)}` saves: every save of {gib(each)} is kept"
    if capacity is not None:
        message += f", and {gib(capacity)} of disk are full after {int(capacity // each)} of them"
    changes: dict[Field, int] = {"checkpoint.keep_unsharded": saved.keep}
    yield Report(
        message,
        run.place(what),
        "warning" if full else "info",
        None if exports else Fix("unsafe", f"{worded(run, changes)}; older checkpoints are deleted", changes),
        help="delete older exports during the run, or export only at its end" if exports else None,
    )
