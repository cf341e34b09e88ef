"""PRF001 metrics-every-step: collecting metrics too often makes the host wait for the GPU and slows down training.

## What it does
Reports OLMo's `optimizer.metrics_log_interval: 1` (or unset) if W&B is enabled, and OLMo-core's
`metrics_collect_interval` below its default of 5. The message gives the number of host-device synchronizations per
step.

## Why is this bad?
A GPU stays busy as long as the host runs ahead and fills its queue. Every `.item()` makes the host wait until the queue
is empty. OLMo reads 16 statistics per parameter tensor with AdamW, and 8 with LionW. For a 7B model (259 tensors) with
AdamW, that is 4,144 `.item()` calls per step, which takes on the order of 0.1 s. AI2's own launch scripts replace the
default of 1 with 10.

## Example
    optimizer:
      metrics_log_interval: 1
    wandb:
      project: olmo

## Use instead
    optimizer:
      metrics_log_interval: 10

## Fix safety
Safe: training does not change. The statistics are collected every 10 steps with OLMo, and every 5 with OLMo-core.
Unsafe if a comment at the setting or a named constant shows that the interval was chosen on purpose.

## References
ai2-olmo 0.6.0 `train.py`, `optim.py`; ai2-olmo-core 3.0.0 `train/trainer.py` (metrics_collect_interval).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.comments import find_purpose
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF001",
    "metrics-every-step",
    "warning",
    particular=True,
    fix="safe",
    writes=("logging.metrics_interval",),
    folds=True,
)

_FIELD: Final = "logging.metrics_interval"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if metrics are collected more often than necessary."""
    logging, metrics = run.plan.logging, run.framework.traits.metrics_cost
    if metrics is None or logging.metrics_interval is None or logging.metrics_interval >= metrics.negligible_interval:
        return
    if logging.metrics_enabled is False:
        return
    key = run.spell_key(_FIELD)
    frequency = "on every step" if logging.metrics_interval == 1 else f"every {logging.metrics_interval} steps"
    if metrics.synchronizations is None:
        cost = f"`{key}` collects metrics {frequency}: a host-device synchronization each time"
    else:
        syncs_per_tensor = metrics.synchronizations.get(run.plan.optimizer.name or "")
        tensors = run.architecture.tensors if run.architecture is not None else None
        if syncs_per_tensor is None:
            count = "several host-device synchronizations per tensor"
        elif tensors:
            count = f"{syncs_per_tensor * tensors:,} host-device synchronizations"
        else:
            count = f"{syncs_per_tensor} host-device synchronizations per tensor"
        cost = f"`{key}` collects parameter statistics {frequency}: {count} each time"
    changes: dict[Field, Any] = {_FIELD: metrics.suggested_interval}
    place, message = run.find_place(_FIELD), format_changes(run, changes)
    purpose = find_purpose(place) if run.is_stated(_FIELD) else None
    fix = Fix("safe", message, changes)
    if purpose is not None:
        fix = Fix("unsafe", f"{message}; {purpose} may give a reason for the present value", changes)
    yield Report(cost, place, fix=fix)
