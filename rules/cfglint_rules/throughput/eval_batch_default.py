"""PRF002 eval-batch-default: the evaluation batch size is not set, and its default is larger than the training batch.

## What it does
Reports a run that evaluates with the framework's default batch size (8 for the HF Trainer) if that is larger than the
training micro batch. If the evaluation does not fit on the GPU, MEM011 reports that as well.

## Why is this bad?
An evaluation holds full logits in 16 bits, their fp32 copy and their log-softmax: 93 GiB for 8 sequences of 8,192
tokens and a vocabulary of 152,064. Training runs well, then the job fails at its first evaluation.

## Example
    per_device_train_batch_size: 1
    eval_strategy: steps
    val_size: 0.1

## Use instead
    per_device_eval_batch_size: 1

## Fix safety
Safe: evaluation gives the same loss with smaller batches. The fix starts from the training batch and halves it until an
evaluation fits as well as the training step. If no batch fits, there is no fix.

## References
transformers 5.8.0 `training_args.py` (per_device_eval_batch_size defaults to 8).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import EVALUATION_PHASE, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF002",
    "eval-batch-default",
    "info",
    fix="safe",
    needs={"eval.enabled": (True,)},
    writes=("batch.eval_micro",),
    estimates=("gpu",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the default evaluation batch is larger than the training batch."""
    plan, origin = run.plan, run.get_origin("batch.eval_micro")
    if origin is None or origin.kind != "default":
        return
    evaluation, micro = plan.batch.eval_micro, plan.batch.micro
    if evaluation is None or micro is None or evaluation <= micro:
        return
    judgement = judge(run, "gpu", (EVALUATION_PHASE,))
    size = f": evaluation needs {format_gib(judgement.budget.expected)} per GPU" if judgement is not None else ""
    yield Report(
        f"`{run.spell_key('batch.eval_micro')}` defaults to {evaluation}, but the training batch is {micro}{size}",
        run.find_place("eval.strategy", "batch.micro"),
        find_remedy=partial(_find_remedy, run),
    )


def _find_remedy(run: Run) -> tuple[Fix | None, str | None]:
    """Return the fix that sets the evaluation batch to the training batch, halved until the evaluation fits."""
    from cfglint_train.fitting.evaluation import (
        find_smaller_batch,
    )  # imports the fixer, needed only if something is wrong

    return find_smaller_batch(run), None
