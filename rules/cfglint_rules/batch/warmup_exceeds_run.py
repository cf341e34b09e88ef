"""BAT003 warmup-exceeds-run: the warmup is longer than the run, which never reaches the full learning rate.

## What it does
Compares the warmup steps with the maximum number of steps of the run. That number is stated, or follows from a limit on
tokens or samples.

## Why is this bad?
The run ends before it reaches the configured learning rate. It trains at a fraction of that rate throughout, and the
schedule after the warmup never starts. The usual cause is a number copied from the configuration of a longer run.

## Example
    warmup_steps: 500
    max_steps: 200

## Use instead
    warmup_steps: 20
    max_steps: 200

## When it does not apply
Silent for a constant schedule, which ignores the warmup (KEY005), and for trials of at most 20 steps. Silent for OLMo
before 0.6.0 with `restore_dataloader: false`, because OLMo then keeps counting from the step of the loaded checkpoint.
Ignore the rule if you stop a run early on purpose and continue it later.

## References
transformers 5.8.0 `optimization.py` (get_cosine_schedule_with_warmup); ai2-olmo 0.6.0 `olmo/optim.py`
(CosWithWarmup), and 0.5.1 `olmo/train.py` (max_steps, load_trainer_state_dict).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.length import compute_max_steps, get_length_field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "BAT003", "warmup-exceeds-run", "warning", needs={"optimizer.warmup_steps": ()}, depends_on_unseen_flags=True
)

_MAX_TRIAL_STEPS: Final = 20
"""Maximum number of steps of a trial, which only tests that the job starts.

Trials in public repositories have 4 to 20 steps; the shortest real training run there has 100.
"""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the warmup is longer than the run."""
    warmup, steps = run.plan.optimizer.warmup_steps, compute_max_steps(run.plan)
    if warmup is None or not steps or warmup <= steps or steps <= _MAX_TRIAL_STEPS:
        return
    limit = get_length_field(run.plan)
    if not run.is_stated(limit):
        return
    if run.plan.optimizer.scheduler == "constant":
        return
    key, limit_key = run.spell_key("optimizer.warmup_steps"), run.spell_key(limit)
    prefix = "" if limit == "batch.steps" else "at most "
    yield Report(
        f"`{key}` is {warmup:,}, but the run has {prefix}{steps:,} steps (`{limit_key}`): it ends at "
        f"{100 * steps / warmup:.0f} % of the warmup",
        run.find_place("optimizer.warmup_steps", limit),
        related=(Related(run.find_place(limit), "the run's steps"),),
        help=f"warm up for 1 to 10 % of the run, for example `{key}: {max(1, steps // 20)}`",
    )
