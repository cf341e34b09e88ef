"""MEM011 evaluation-exceeds-gpu: the training step fits on the GPU, but an evaluation does not.

## What it does
Estimates the memory of one evaluation batch on top of the training states, and compares it with the GPU's memory. This
covers evaluations during training and after it (LLaMA-Factory's `do_eval`). If MEM001 reports that the training step
does not fit either, the evaluation is part of that finding.

## Why is this bad?
Training runs well, then the job fails with CUDA out of memory at its first evaluation. With `eval_strategy: epoch` that
can be hours later.

An evaluation keeps no activations, but it has its own batch size (8 by default in the HF Trainer). It also holds full
logits in 16 bits, their fp32 copy and their log-softmax. Liger's fused loss avoids them only during training. For 8
sequences of 8,192 tokens and a vocabulary of 152,064, they take 93 GiB.

## Symptoms
CUDA out of memory during evaluation, OOM in eval.

## Example
    # cfglint: gpu=H100
    per_device_train_batch_size: 1
    per_device_eval_batch_size: 8
    enable_liger_kernel: true
    cutoff_len: 8192
    packing: true
    eval_strategy: epoch
    val_size: 0.1

## Use instead
    per_device_eval_batch_size: 2

## Fix safety
A smaller evaluation batch gives the same loss. The fix halves the stated batch until the evaluation fits as well as the
training step. If no batch is stated, it starts from the training batch. The fix is safe if no batch is stated, or if
the stated batch cannot work on the stated hardware. It is unsafe if the hardware is assumed.

If no smaller batch fits, the fix is the smallest change that makes training and evaluation fit. The same applies if the
key has no effect: axolotl evaluates packed samples with `micro_batch_size`. The change may be a shorter
`eval_sequence_len`, which is unsafe because longer samples are then cut, or a change to training. A tight evaluation is
changed only if it fits afterwards.

## When it does not apply
The rule is silent:

- if the files do not show that the run evaluates, for example if `eval_delay` exceeds `max_steps`
- for reinforcement learning and reward models
- for losses that hold no full logits during evaluation: Cut Cross-Entropy, and the chunked losses of TRL and Liger

cfglint does not estimate generation during evaluation or custom metrics, which keep all predictions until
`eval_accumulation_steps`. If samples are neither packed nor padded to the limit, it assumes that one sample has the
full length, as in MEM001.

## References
transformers 5.8.0 `trainer.py` (prediction_step, evaluation_loop), `training_args.py` (per_device_eval_batch_size);
liger-kernel 0.8.5 `transformers/model/llama.py` (skip_logits); axolotl 0.18.0 `core/trainers/base.py`
(_create_multipack_sampler); docs/memory/loss.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import EVALUATION_PHASE, describe_verdict, format_breakdown, format_size, judge
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES, VERDICTS
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "MEM011", "evaluation-exceeds-gpu", "error", fix="safe", needs={"eval.enabled": (True,)}, estimates=("gpu",)
)

_FIELD: Final[Field] = "batch.eval_micro"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if an evaluation does not fit on the GPU or is tight."""
    judgement, step = judge(run, "gpu", (EVALUATION_PHASE,)), judge(run, "gpu", STEP_PHASES)
    if judgement is None or step is None or judgement.verdict == "fits":
        return
    is_worse = VERDICTS.index(judgement.verdict) > VERDICTS.index(step.verdict)
    batch, origin = run.plan.batch.eval_micro, run.get_origin(_FIELD)
    is_inferred = origin is not None and origin.kind == "inferred"
    description = (
        f"with `{run.spell_key(_FIELD)}: {batch}`" if run.is_stated(_FIELD) else f"of {batch} sequences at a time"
    )
    yield Report(
        f"evaluation {description} {describe_verdict(judgement)}",
        run.find_place(_FIELD, "batch.micro" if is_inferred else "eval.strategy", "eval.enabled"),
        judgement.severity,
        notes=(
            format_breakdown(judgement.budget),
            f"the training step needs {format_size(step.budget)}",
            *((origin.note,) if origin is not None and is_inferred and origin.note else ()),
        ),
        min_certainty=judgement.min_certainty,
        assumed_severity=judgement.assumed_severity,
        find_remedy=partial(_find_remedy, run),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
        left_to="" if is_worse and step.budget.expected <= step.capacity else "MEM001",
    )


def _find_remedy(run: Run) -> tuple[Fix | None, str | None]:
    """Return the fix for a smaller evaluation batch, else the smallest change that makes both phases fit."""
    if run.is_scenario:
        return None, None
    from cfglint_train.fitting.evaluation import (
        find_smaller_batch,
    )  # imports the fixer, needed only if something is wrong

    fix = find_smaller_batch(run)
    if fix is not None:
        return fix, None
    from cfglint_train.fitting.smallest import find_smallest_for

    solution = find_smallest_for(run, (*STEP_PHASES, EVALUATION_PHASE))
    return None if solution is None else solution.fix, None
