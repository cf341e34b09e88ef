"""MEM011 evaluation-exceeds-gpu: the training step fits a GPU, and an evaluation does not.

## What it does
Estimates the loss of one evaluation batch beside the training states, where the run evaluates while it trains or when
it has trained (LLaMA-Factory's `do_eval`), and compares it with the GPU's memory. Where the training step does not fit
either, MEM001 reports that alone.

## Why is this bad?
The job trains well and dies of CUDA out of memory at its first evaluation, after hours with `eval_strategy: epoch`. An
evaluation keeps no activations, but its batch has a size of its own (8 by default in the HF Trainer), and its logits
are whole in 16 bits and in fp32 where training has a fused loss: Liger's makes none while the model trains only. 8
sequences of 8,192 tokens over a vocabulary of 152,064 are 93 GiB.

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
An evaluation gives the same loss in smaller batches: the largest half, quarter and so on that fits like the training
step is written; where no batch is stated, the training batch or the largest half of that. Safe where no batch is
stated, and where the stated one cannot work on the stated hardware; unsafe where that is assumed. Where no smaller
batch fits, or none counts (axolotl's packs of an evaluation have `micro_batch_size`), the fix is the smallest change
with which training and evaluation fit: a shorter `eval_sequence_len`, unsafe because longer samples are no longer
evaluated whole, or a change of training. What is tight is changed only where it fits afterwards.

## When it does not apply
Silent where the files do not say that the run evaluates (`eval_delay` above `max_steps` is one such case), for
reinforcement learning and reward models, and with losses that make no whole logits in an evaluation (Cut Cross-Entropy,
TRL's and Liger's chunked losses). Generation and metrics of the user's own, which keep all predictions until
`eval_accumulation_steps`, are not estimated. Where samples are neither packed nor padded to the limit, that one has the
full length is an assumption, as in MEM001.

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
from cfglint_train.findings.verdicts import (
    EVALUATION_PHASE,
    STEP_PHASES,
    describe_verdict,
    find_worse_evaluation,
    format_breakdown,
    format_size,
    judge,
)
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "MEM011", "evaluation-exceeds-gpu", "error", fix="safe", needs={"eval.enabled": (True,)}, estimates=("gpu",)
)

_FIELD: Final[Field] = "batch.eval_micro"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if an evaluation fits worse than the training step, which is expected to fit."""
    judgement, step = find_worse_evaluation(run), judge(run, "gpu", STEP_PHASES)
    if judgement is None or step is None or step.budget.expected > step.capacity:
        return  # MEM001 reports it if training does not fit
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
            f"the training step itself needs {format_size(step.budget)}",
            *((origin.note,) if origin is not None and is_inferred and origin.note else ()),
        ),
        min_certainty=judgement.min_certainty,
        find_remedy=partial(_find_remedy, run),
        grounds=judgement.grounds,
    )


def _find_remedy(run: Run) -> tuple[Fix | None, str | None]:
    """Return a smaller evaluation batch, else the smallest change of training with which both fit."""
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
