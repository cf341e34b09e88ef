"""CKP009 interval-exceeds-run: the run ends before its first checkpoint.

## What it does
Compares the checkpoint interval with the maximum number of steps of the run (rollouts for PPO). The rule applies to
frameworks that write no checkpoint at the end.

It also reports runs that save nothing at all because the interval is unset (verl), and, as info, a test interval
above the number of steps.

## Why is this bad?
OpenRLHF saves a checkpoint every `--ckpt.save_steps` steps. After training it saves only the weights. If the interval
is longer than the run, there is nothing to resume from: a job that crashes or is stopped starts over. verl's
`trainer.save_freq` is -1 unless set: then not even the last step is saved.

## Example
    --ckpt.save_steps 1000 --data.max_samples 20000 --train.batch_size 128   # 156 steps

## Use instead
    --ckpt.save_steps 50

## When it does not apply
Silent for the HF Trainer, OLMo and OLMo-core, which write a checkpoint at the end. Silent for runs of unknown length,
and for trials of fewer than ten steps. cfglint does not count the samples of a data set, so it misses a run that ends
early because its data set is small.

Silent if the setting that saves nothing is written out (`trainer.save_freq=-1`).

Some people set an interval of more than ten times the run's length to save only at the end. That is reported as info.
With `--ckpt.disable_ds`, the run writes no checkpoints at all. If `--ckpt.save_hf` is set, the rule then reports as
info that no weights are exported before the end. Without `--ckpt.save_hf`, it is silent.

## References
OpenRLHF 0.11.2 `trainer/sft_trainer.py`, `trainer/ppo_trainer.py` (save_logs_and_checkpoints), `cli/train_sft.py`
(max_samples); verl 0.9.1 `trainer/ppo/ray_trainer.py` (fit); transformers 5.23.0 `trainer_callback.py`
(DefaultFlowCallback); ai2-olmo 0.6.0 `olmo/train.py` (fit).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.length import compute_max_steps, get_length_field
from cfglint_train.runs.run import Run

RULE: Final = Rule("CKP009", "interval-exceeds-run", "warning", needs={"checkpoint.strategy": ("no", "steps")})

_PROPOSED_CHECKPOINTS: Final = 10
"""Number of checkpoints that the help proposes; a run with fewer steps is a trial."""
_DELIBERATE_FACTOR: Final = 10
"""Multiple of the run's length above which an interval is a deliberate request to save only at the end."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run ends before its first checkpoint, or before its first test."""
    yield from _check_tests(run)
    checkpoint = run.plan.checkpoint
    if checkpoint.strategy == "no":
        yield from _check_saving(run)
        return
    if checkpoint.final_path is None or not checkpoint.interval:
        return
    steps = compute_max_steps(run.plan)
    if not steps or steps < _PROPOSED_CHECKPOINTS or checkpoint.interval <= steps:
        return
    if checkpoint.deepspeed_checkpoint is False and not checkpoint.hf_export:
        return  # the run requests no checkpoints at any interval
    limit, key = get_length_field(run.plan), run.spell_key("checkpoint.interval")
    unit = "steps" if run.plan.rollout.batch is None else "rollouts"
    missing = "checkpoint is written to resume from"
    if checkpoint.deepspeed_checkpoint is False:
        missing = "weights are exported before the end"
    is_deliberate = checkpoint.deepspeed_checkpoint is False or checkpoint.interval > _DELIBERATE_FACTOR * steps
    yield Report(
        f"`{key}` is {checkpoint.interval:,}, but the run has at most {steps:,} {unit} "
        f"(`{run.spell_key(limit)}`): no {missing}",
        run.find_place("checkpoint.interval"),
        "info" if is_deliberate else None,
        related=(Related(run.find_place(limit), "limits the run"),) if run.is_stated(limit) else (),
        help=f"save more often, for example `{key} {steps // _PROPOSED_CHECKPOINTS}`",
    )


def _check_saving(run: Run) -> Iterator[Report]:
    """Yield a report if nothing is saved, not even at the end, because no file says when."""
    origin, steps = run.get_origin("checkpoint.strategy"), compute_max_steps(run.plan)
    is_unsaid = origin is not None and origin.kind == "default" and run.main.document.is_complete(run.main.root)
    if (
        run.plan.checkpoint.final is not False
        or not is_unsaid
        or (steps or _PROPOSED_CHECKPOINTS) < _PROPOSED_CHECKPOINTS
    ):
        return
    key = run.spell_key("checkpoint.interval")
    yield Report(
        f"`{key}` is not set: the run saves nothing, not even at the end",
        run.find_place("checkpoint.strategy"),
        help=f"set `{key}`, for example to {max(1, (steps or 200) // _PROPOSED_CHECKPOINTS)}",
    )


def _check_tests(run: Run) -> Iterator[Report]:
    """Yield a report if the run has fewer steps than its test interval."""
    interval, steps = run.plan.eval.interval, compute_max_steps(run.plan)
    if not run.plan.eval.enabled or not interval or not steps or steps < _PROPOSED_CHECKPOINTS or interval <= steps:
        return
    limit, key = get_length_field(run.plan), run.spell_key("eval.interval")
    yield Report(
        f"`{key}` is {interval:,}, but the run has at most {steps:,} steps (`{run.spell_key(limit)}`): no test before "
        "the end",
        run.find_place("eval.interval"),
        "info",
        related=(Related(run.find_place(limit), "limits the run"),) if run.is_stated(limit) else (),
    )
