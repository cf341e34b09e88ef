"""CKP002 optimizer-state-saved: every checkpoint of a sharded full fine-tune includes the optimizer state.

## What it does
Reports the cost of leaving `save_only_model` off in a full fine-tune under ZeRO-3 or FSDP. The message gives the disk
space for the optimizer state per checkpoint. If rank 0 gathers that state, it also gives the host memory needed.

## Why is this bad?
The optimizer state is six times as large as the 16-bit weights. Fine-tunes are rarely resumed, and by default no
checkpoint is deleted: hiyouga/LLaMA-Factory#1014 filled a terabyte. Under FSDP with FULL_STATE_DICT, rank 0 gathers the
state in host memory.

## Example
    deepspeed: ds_z3_config.json
    finetuning_type: full
    save_steps: 500

## Use instead
    save_only_model: true

## Fix safety
With the fix, the run can no longer be resumed from its checkpoints.

- Safe if a checkpoint fits the stated host memory or disk only without the optimizer state, or if the settings say
  `resumable = false`.
- Unsafe otherwise. `--fix` asks you to decide, unless the settings say `resumable = true`.
- Always unsafe if the key is explicitly false, or if the run resumes from another run's checkpoint.

There is no fix if the run is set to resume from its own checkpoints. Under ZeRO-3, there is none either if the host may
be too small to gather the weights: CKP003 then proposes to skip the gather. Otherwise the fix does not lower the peak
of the GPU or the host during a ZeRO-3 save, because the weights are gathered in any case.

## When it does not apply
The rule is silent:
- if the Trainer rejects `save_only_model` (sharded state dicts, `load_best_model_at_end`)
- under ZeRO-3 without `stage3_gather_16bit_weights_on_model_save`, because the whole checkpoint is then written anyway
- if the run writes no checkpoints, or none before its end
- if the release has no `save_only_model` (transformers before 4.36)

## References
transformers 5.8.0 `trainer.py` (`_save_checkpoint`, `_save_optimizer_and_scheduler`), `training_args.py`;
hiyouga/LLaMA-Factory#7532.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.resuming import find_resume_field
from cfglint_rules.checkpoints.size import estimate_save
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.key_availability import is_missing
from cfglint_train.memory.budget import Resource
from cfglint_train.memory.checkpoint_retention import saves_only_at_end
from cfglint_train.plan.choices import FSDP
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP002",
    "optimizer-state-saved",
    "info",
    fix="safe",
    needs={
        "checkpoint.model_only": (False,),
        "method.tuning": ("full",),
        "parallel.strategy": ("zero", "fsdp1", "fsdp2"),
    },
    writes=("checkpoint.model_only",),
    estimates=("host", "disk"),
)

_FIELD: Final = "checkpoint.model_only"
_ADVICE: Final = "set `resumable = false` if runs are never resumed, or `true` to keep the optimizer state"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run saves the optimizer state and could omit it."""
    plan = run.plan
    if plan.checkpoint.strategy == "no" or saves_only_at_end(plan) or not _is_known_to_release(run):
        return
    is_zero3 = plan.parallel.strategy == "zero" and plan.parallel.zero_stage == 3
    is_fsdp = plan.parallel.strategy in FSDP
    if not (is_zero3 or is_fsdp) or (is_zero3 and plan.checkpoint.gather is False):
        return
    if (is_fsdp and plan.checkpoint.state_dict != "full") or plan.checkpoint.load_best_at_end:
        return
    before, after = estimate_save(run), estimate_save(run, {_FIELD: True})
    if before is None or after is None or before.disk is None or after.disk is None:
        return
    optimizer_bytes = before.disk.expected - after.disk.expected
    if optimizer_bytes <= 0:
        return
    message = f"`{run.spell_key(_FIELD)}` is off: each checkpoint has {format_gib(optimizer_bytes)} of optimizer state"
    if before.host is not None and after.host is not None and before.host.expected > after.host.expected:
        message += f", which needs {format_gib(before.host.expected - after.host.expected)} of host memory to save"
    host = judge(run, "host", ("save",))
    exceeds_host = host is not None and host.verdict == "does not fit"
    is_resuming = bool(plan.checkpoint.load_path or plan.checkpoint.resume_latest)
    needs_state = is_resuming or run.is_stated(_FIELD)
    is_gathering_unsafe = is_zero3 and host is not None and host.verdict != "fits"
    is_unneeded = run.inputs.is_resumable is False or _is_only_possible_without_state(run)
    is_undecided = run.inputs.is_resumable is None and not needs_state and not is_unneeded
    yield Report(
        message,
        run.find_place(_FIELD, "checkpoint.strategy", "checkpoint.path"),
        "warning" if exceeds_host else "info",
        None
        if is_gathering_unsafe or find_resume_field(run) is not None
        else Fix(
            "safe" if is_unneeded and not needs_state else "unsafe",
            f"{format_changes(run, {_FIELD: True})}; the run can no longer resume from its checkpoints",
            {_FIELD: True},
            advice=_ADVICE if is_undecided else "",
        ),
        quantity="" if host is None or host.verdict == "fits" else host.quantity,
    )


def _is_known_to_release(run: Run) -> bool:
    """Return whether the effective release has the key that omits the optimizer state."""
    owner = run.find_owner(_FIELD)
    if owner is None or run.is_stated(_FIELD):
        return True
    config, lens = owner
    return not any(is_missing(config, route) for route in lens.find_keys(config, _FIELD))


def _is_only_possible_without_state(run: Run) -> bool:
    """Return whether the stated host memory or disk fits a checkpoint only without the optimizer state."""
    resources: tuple[Resource, ...] = ("host", "disk")
    stated_resources = [resource for resource in resources if run.hardware.get_capacity(resource) is not None]
    if not stated_resources:
        return False
    unlimited = run.replace_fields({"checkpoint.keep": "all"})
    without_state = unlimited.replace_fields({_FIELD: True})
    for resource in stated_resources:
        verdict_with, verdict_without = (
            judge(unlimited, resource, ("save",)),
            judge(without_state, resource, ("save",)),
        )
        if (
            verdict_with is not None
            and verdict_with.verdict == "does not fit"
            and verdict_without is not None
            and verdict_without.verdict == "fits"
        ):
            return True
    return False
