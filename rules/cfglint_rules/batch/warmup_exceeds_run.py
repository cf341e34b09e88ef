"""BAT003 warmup-exceeds-run: the warm-up has more steps than the run.

## What it does
Compares the steps of the warm-up with those that the run has at most: as stated, by its tokens, or by a limit of
samples.

## Why is this bad?
The run ends before the learning rate is reached: it trains at a fraction of the rate, and the schedule behind the
warm-up never starts. A number from another configuration, whose run was longer, is the usual cause.

## Example
    warmup_steps: 500
    max_steps: 200

## Use instead
    warmup_steps: 20
    max_steps: 200

## When it does not apply
Silent for a constant schedule, which takes no warm-up (KEY005), for a trial of at most 20 steps, and where OLMo before
0.6.0 counts the steps of the checkpoint that it loads (`restore_dataloader: false`). Ignore it for a run that is
stopped early on purpose and continued later.

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
"""Steps of a run that only tests whether the job starts: such tests in public repositories have 4 to 20 steps, the
shortest training there has 100.
"""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the warm-up is longer than the run."""
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
        f"`{key}` is {warmup:,}, but the run has {prefix}{steps:,} steps (`{limit_key}`): the run ends at "
        f"{100 * steps / warmup:.0f} % of its warm-up",
        run.find_place("optimizer.warmup_steps", limit),
        related=(Related(run.find_place(limit), "the run's steps"),),
        help=f"warm up for 1 to 10 % of the run, such as `{key}: {max(1, steps // 20)}`",
    )
