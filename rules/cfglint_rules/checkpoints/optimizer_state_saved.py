"""CKP002 optimizer-state-saved: every checkpoint of a sharded full fine-tune carries the optimizer state.

## What it does
Says what `save_only_model` (left off) costs on a full fine-tune under ZeRO-3 or FSDP: bytes on disk per checkpoint
and, where the full state is gathered, bytes on the host of rank 0.

## Why is this bad?
The optimizer state is six times the 16-bit weights. Fine-tunes are seldom resumed, and by default nothing is
deleted: hiyouga/LLaMA-Factory#1014 filled a terabyte. Under FSDP with FULL_STATE_DICT the state is gathered on rank
0's host.

## Example
    deepspeed: ds_z3_config.json
    finetuning_type: full
    save_steps: 500

## Use instead
    save_only_model: true

## Fix safety
It gives up resuming from a checkpoint. Safe where the stated host memory or disk cannot hold a checkpoint with the
optimizer state, and where the settings say `resumable = false`. Elsewhere unsafe: `--fix` prints it as a decision that
is pending, unless the settings say `resumable = true`. Unsafe, too, where the key is explicitly false, or where the run
resumes from another run's checkpoint. Not offered where it is asked to resume from its own, nor where the Trainer
refuses the combination: sharded state dicts, `load_best_model_at_end`; nor under ZeRO-3 without
`stage3_gather_16bit_weights_on_model_save`, where the whole checkpoint is written anyway; nor where the host may
not hold that gather, as CKP003 then proposes to leave it out.

## What it does not do
Under ZeRO-3 it lowers neither the GPU's nor the host's peak at save: the weights are gathered in any case.

## References
transformers 5.8.0 `trainer.py` (`_save_checkpoint`, `_save_optimizer_and_scheduler`), `training_args.py`;
hiyouga/LLaMA-Factory#7532.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.resuming import resumed_by
from cfglint_rules.checkpoints.size import one_save
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import Resource
from cfglint_train.plan.choices import FSDP
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP002",
    "optimizer-state-saved",
    "info",
    fix="safe",
    needs={"checkpoint.model_only": (False,), "method.tuning": ("full",)},
    writes=("checkpoint.model_only",),
    estimates=("host", "disk"),
)

_FIELD: Final = "checkpoint.model_only"
_DECISION: Final = "set `resumable = false` if runs are never resumed, or `true` to keep the optimizer state"


def check(run: Run) -> Iterator[Report]:
    """One report where the optimizer state is saved and need not be."""
    plan = run.plan
    if plan.checkpoint.strategy == "no":
        return
    zero3 = plan.parallel.strategy == "zero" and plan.parallel.zero_stage == 3
    fsdp = plan.parallel.strategy in FSDP
    if not (zero3 or fsdp) or (zero3 and plan.checkpoint.gather is False):
        return
    if (fsdp and plan.checkpoint.state_dict != "full") or plan.checkpoint.load_best_at_end:
        return
    before, after = one_save(run), one_save(run, {_FIELD: True})
    if before is None or after is None or before.disk is None or after.disk is None:
        return
    saved = before.disk.expected - after.disk.expected
    if saved <= 0:
        return
    message = f"each checkpoint holds {gib(saved)} of optimizer state"
    if before.host is not None and after.host is not None and before.host.expected > after.host.expected:
        message += f", and saving it takes {gib(before.host.expected - after.host.expected)} of host memory on rank 0"
    host = judge(run, "host", ("save",))
    dangerous = host is not None and host.verdict == "does not fit"
    resumes = bool(plan.checkpoint.load_path or plan.checkpoint.resume_latest)
    bound = resumes or run.stated(_FIELD)
    gathering_fails = zero3 and host is not None and host.verdict != "fits"
    free = run.parts.resumable is False or _is_impossible(run)
    undecided = run.parts.resumable is None and not bound and not free
    yield Report(
        message,
        run.place(_FIELD, "checkpoint.strategy", "checkpoint.path"),
        "warning" if dangerous else "info",
        None
        if gathering_fails or resumed_by(run) is not None
        else Fix(
            "safe" if free and not bound else "unsafe",
            f"{worded(run, {_FIELD: True})}; the run can then no longer be resumed from its checkpoints",
            {_FIELD: True},
            decision=_DECISION if undecided else "",
        ),
    )


def _is_impossible(run: Run) -> bool:
    """Whether the stated host memory or disk holds no checkpoint with the optimizer state, and one without it."""
    places: tuple[Resource, ...] = ("host", "disk")
    stated = [place for place in places if run.hardware.capacity(place) is not None]
    if not stated:
        return False
    one = run.changed({"checkpoint.keep": "all"})
    without = one.changed({_FIELD: True})
    for place in stated:
        now, then = judge(one, place, ("save",)), judge(without, place, ("save",))
        if now is not None and now.verdict == "does not fit" and then is not None and then.verdict == "fits":
            return True
    return False
