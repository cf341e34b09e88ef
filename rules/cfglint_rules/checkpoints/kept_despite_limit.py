"""CKP008 kept-despite-limit: the limit on checkpoints does not cover all checkpoints of the run.

## What it does
Reports checkpoints that are kept whatever the limit is. For OLMo, these are unsharded checkpoints, which
`save_num_checkpoints_to_keep` does not count. For OpenRLHF, they are exported Hugging Face weights, in PPO or if no
DeepSpeed checkpoints are written.

## Why is this bad?
The checkpoints fill the disk although a limit is set. When a save runs out of space, the run fails.

## Example
    save_interval: 1000
    save_num_checkpoints_to_keep: 2
    save_interval_unsharded: 1000            # every one of these is kept

## Use instead
    save_num_unsharded_checkpoints_to_keep: 2

## Fix safety
Unsafe: older checkpoints are deleted during training. There is no fix for OpenRLHF, which has no limit for exports.

## When it does not apply
The rule is silent:

- if OLMo's unsharded checkpoints have their own limit, or are explicitly unlimited
- if neither a limit nor the disk capacity is stated
- if the disk can hold everything that the run writes (50 checkpoints if the run's length is unknown)

## References
ai2-olmo 0.6.0 `olmo/train.py` (_save_checkpoint: a list and a limit for each kind); OpenRLHF 0.11.2
`trainer/ray/ppo_actor.py` (save_checkpoint: exports are written outside the folder that is cleaned up),
`utils/deepspeed/deepspeed.py` (save_ckpt).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.size import MAX_EXPECTED_CHECKPOINTS, estimate_save
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.checkpoint_retention import list_limits
from cfglint_train.memory.components import DISK_WEIGHTS
from cfglint_train.plan.length import compute_max_steps
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

_LIMIT_FIELD: Final[Field] = "checkpoint.keep"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if checkpoints accumulate that the limit does not cover."""
    checkpoint = run.plan.checkpoint
    if not isinstance(checkpoint.keep, int) or not checkpoint.keep:
        return
    is_export = bool(checkpoint.hf_export) and (
        run.plan.rollout.batch is not None or checkpoint.deepspeed_checkpoint is False
    )
    is_unsharded = (
        checkpoint.interval_unsharded
        and checkpoint.keep_unsharded == "all"
        and not run.is_stated("checkpoint.keep_unsharded")
    )
    capacity = run.hardware.get_capacity("disk")
    save = estimate_save(run) if is_export or is_unsharded else None
    if save is None or save.disk is None:
        return
    field: Field = "checkpoint.hf_export" if is_export else "checkpoint.interval_unsharded"
    size = dict(save.disk.sizes).get(DISK_WEIGHTS, 0) if is_export else save.disk.expected
    interval, steps = checkpoint.interval if is_export else checkpoint.interval_unsharded, compute_max_steps(run.plan)
    save_count = MAX_EXPECTED_CHECKPOINTS if steps is None or not interval else steps // interval
    is_full = capacity is not None and save_count * size > capacity
    if not size or save_count <= checkpoint.keep or not (is_full or (capacity is None and run.is_stated(_LIMIT_FIELD))):
        return
    message = (
        f"`{run.spell_key(_LIMIT_FIELD)}` does not apply to `{run.spell_key(field)}`: every save of "
        f"{format_gib(size)} is kept"
    )
    if capacity is not None:
        message += f", and the disk ({format_gib(capacity)}) is full after {int(capacity // size)}"
    changes: dict[Field, int] = {"checkpoint.keep_unsharded": checkpoint.keep}
    yield Report(
        message,
        run.find_place(field),
        "warning" if is_full else "info",
        None if is_export else Fix("unsafe", f"{format_changes(run, changes)}; older checkpoints are deleted", changes),
        help="delete older exports during the run, or export only at its end" if is_export else None,
        left_to="" if is_export or capacity is None or _LIMIT_FIELD in list_limits(run.plan) else "CKP004",
    )
