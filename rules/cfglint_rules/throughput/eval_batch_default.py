"""PRF002 eval-batch-default: evaluation runs with a larger batch than training because it is not set.

## What it does
Fires where evaluation is on, its batch size is the framework's default (8 for the Hugging Face Trainer), and that
is larger than the training micro batch. A warning where the evaluation then does not fit the GPU or is tight, else
information.

## Why is this bad?
The evaluation forward pass materialises full logits: 8 sequences of 8,192 tokens over a vocabulary of 152,064 are
56 GiB. A run that trains well dies at its first evaluation.

## Example
    per_device_train_batch_size: 1
    eval_strategy: steps
    val_size: 0.1

## Use instead
    per_device_eval_batch_size: 1

## Fix safety
Safe: evaluation gives the same loss in smaller batches. The fix takes the training batch, or half of it and so on where
an evaluation is not expected to fit with that.

## References
transformers 5.8.0 `training_args.py` (per_device_eval_batch_size defaults to 8).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.project.run import Run

RULE: Final = Rule(
    "PRF002",
    "eval-batch-default",
    "warning",
    fix="safe",
    needs={"eval.enabled": (True,)},
    reads=("eval.enabled", "batch.eval_micro", "batch.micro"),
    writes=("batch.eval_micro",),
    estimates=("gpu",),
)

_FIELD: Final = "batch.eval_micro"
# An evaluation batch as large as the training batch costs nothing, whatever the hardware and the samples are.
_HARMLESS: Final = frozenset(("gpu", "launch.nodes", "launch.gpus_per_node", "parallel.strategy", "sequence.length"))


def check(run: Run) -> Iterator[Report]:
    """One report where the default is larger than the training batch."""
    plan, origin = run.plan, run.origin(_FIELD)
    if not plan.eval.enabled or origin is None or origin.kind != "default":
        return
    evaluation, micro = plan.batch.eval_micro, plan.batch.micro
    if evaluation is None or micro is None or evaluation <= micro:
        return
    judgement = judge(run, "gpu", ("eval",))
    size = f": it needs {gib(judgement.budget.expected)} per GPU" if judgement is not None else ""
    fitting = _fitting(run, micro)
    why = "as in training" if fitting == micro else "which fits"
    grave = judgement is not None and judgement.verdict == "does not fit"
    yield Report(
        f"evaluation defaults to {evaluation} sequences at a time, and training has {micro}{size}",
        run.place("eval.strategy", "batch.micro"),
        judgement.severity if grave and judgement is not None else "info",
        Fix("safe", f"{worded(run, {_FIELD: fitting})}, {why}", {_FIELD: fitting}, despite=_HARMLESS),
    )


def _fitting(run: Run, micro: int) -> int:
    """The training batch, halved until an evaluation is expected to fit."""
    while micro > 1:
        judged = judge(run.changed({_FIELD: micro}), "gpu", ("eval",))
        if judged is None or judged.budget.expected <= judged.capacity:
            break
        micro //= 2
    return micro
