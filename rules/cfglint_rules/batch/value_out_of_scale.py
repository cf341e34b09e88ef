"""BAT004 value-out-of-scale: a value is far outside the range in which it works, as if a digit or unit were lost.

## What it does
Compares the values that the configuration states with a table of ranges:

| value | reported | usual |
|---|---|---|
| learning rate, full fine-tuning with an Adam-type optimizer | from 1e-3 on | 1e-6 to 2e-5 |
| learning rate, LoRA with an Adam-type optimizer | from 1e-2 on | 5e-5 to 5e-4 |
| maximum gradient norm | above 0 and below 1e-3, or from 100 on | 0.1 to 10, most often 1.0 |
| epochs | 0 or less, or from 100 on | 1 to 5 |
| steps of the run | above 1e8 | up to a few million |
| share of the data held out for evaluation | from 0.5 on | 0.01 to 0.1 |
| LoRA rank | above 2048 | 8 to 256 |
| LoRA dropout | from 0.8 on | 0 to 0.1 |

The learning rate, and 100 or more epochs, are checked for supervised fine-tuning and preference losses (DPO, KTO, ORPO,
...). Epochs of 0 or less are checked for every run.

## Why is this bad?
The run works, but not as intended, and nothing warns. In each step, Adam changes every weight by about the learning
rate, however small the gradient is. Most weights of a language model have a magnitude of about 0.02. A rate near that
value destroys what the model has learned within a few steps. A tiny gradient norm pushes the gradients below Adam's
epsilon, and a huge one never clips. The usual cause is a lost exponent (`1e-5` became `1.0`), or a number in another
unit, such as tokens where steps are expected.

## Example
    finetuning_type: full
    learning_rate: 1.0

## Use instead
    learning_rate: 1.0e-5

## When it does not apply
The rule is silent about learning rates and many epochs:

- for pretraining, for randomly initialized models, and for models with fewer than 1e9 parameters, which are often tuned
  at higher rates and for longer
- for optimizers whose learning rate has another meaning (SGD, Adafactor, Prodigy, Muon)
- for adapters that need high rates (prompt tuning, VeRA)

An unknown model may be small or randomly initialized, so its limit is 0.1, and its many epochs are not reported. Epochs
are not checked at all if the number of steps is stated. A maximum gradient norm of 0 is not reported, because most
frameworks then do not clip.

## References
Kingma and Ba, arXiv:1412.6980, section 2.1 (the effective step is bounded by the learning rate, and epsilon); the
initial standard deviation of 0.02 is `initializer_range` in transformers' configurations of Llama, Qwen and Mistral.
Muennighoff et al., arXiv:2305.16264 (data repeated more than about 40 times adds nothing). Hu et al., arXiv:2106.09685
(ranks from 1 to 64 suffice). Pascanu et al., arXiv:1211.5063 (clipping). The longest public run in ai2-olmo and
ai2-olmo-core has fewer than 2e6 steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule("BAT004", "value-out-of-scale", "warning", depends_on_unseen_flags=True)


class Range(Frozen):
    """A range of values of a plan field that can be reported, with the effect and the remedy."""

    field: Field
    lower: float
    upper: float
    """The range includes both ends."""
    effect: str
    remedy: str


_INFINITY: Final = float("inf")
_RANGES: Final = (
    Range("optimizer.clipping", 1e-30, 0.000999, "it scales the gradients down to Adam's epsilon", "use 1.0"),
    Range("optimizer.clipping", 100, _INFINITY, "no gradient is ever clipped", "use 1.0"),
    Range(
        "batch.steps",
        1e8 + 1,
        _INFINITY,
        "the run never ends",
        "state the number of optimizer steps; if tokens are meant, use the setting or suffix for tokens",
    ),
    Range("data.held_out", 0.5, 0.999999, "half of the data or more is not trained on", "use a share such as 0.05"),
    Range("method.lora_rank", 2049, _INFINITY, "the adapter is as large as the matrices it adapts", "use 8 to 256"),
    Range("method.lora_dropout", 0.8, 1, "almost nothing passes through the adapter", "use 0 to 0.1"),
)
_NO_EPOCHS: Final = Range("batch.epochs", -_INFINITY, 0, "the run ends without training", "use 1 or more")
_MANY_EPOCHS: Final = Range("batch.epochs", 100, _INFINITY, "data repeated this often adds nothing", "use 1 to 5")

_RATE_LIMITS: Final[Mapping[str, float]] = {"full": 1e-3, "freeze": 1e-3, "lora": 1e-2}
_USUAL_RATES: Final[Mapping[str, str]] = {"full": "1e-6 to 2e-5", "freeze": "1e-6 to 2e-5", "lora": "5e-5 to 5e-4"}
_STAGES: Final = frozenset(("sft", "dpo", "ipo", "kto", "orpo", "simpo"))
_ADAM: Final = frozenset(("adam", "adamw"))
_MAX_SMALL_PARAMETERS: Final = 10**9
_LIMIT_FOR_UNKNOWN_MODEL: Final = 0.1
"""Limit for unknown models, above the learning rates used for small and randomly initialized models.

Public recipes for 20M to 600M parameters use 0.004 to 0.008.
"""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every stated value in one of the ranges, and for a learning rate above its limit."""
    plan, model = run.plan, run.architecture
    is_small = plan.model.from_scratch or (model is not None and model.parameters < _MAX_SMALL_PARAMETERS)
    is_tuned = plan.method.stage in _STAGES and not is_small
    ranges: tuple[Range, ...] = _RANGES
    if plan.batch.steps is None:
        ranges += (_NO_EPOCHS, _MANY_EPOCHS) if is_tuned and model is not None else (_NO_EPOCHS,)
    for values in ranges:
        value = plan.get(values.field)
        if value is not None and values.lower <= value <= values.upper and run.is_stated(values.field):
            yield Report(
                f"`{run.spell_key(values.field)}` is {value:g}, far outside its usual range: {values.effect}",
                run.find_place(values.field),
                help=values.remedy,
            )
    if is_tuned:
        yield from _check_learning_rate(run)


def _check_learning_rate(run: Run) -> Iterator[Report]:
    plan, tuning = run.plan, run.plan.method.tuning
    rate = plan.optimizer.learning_rate
    if rate is None or tuning is None or tuning not in _RATE_LIMITS or plan.optimizer.name not in _ADAM:
        return
    if rate < (_RATE_LIMITS[tuning] if run.architecture is not None else _LIMIT_FOR_UNKNOWN_MODEL):
        return
    if not run.is_stated("optimizer.learning_rate"):
        return
    key = run.spell_key("optimizer.learning_rate")
    method = "LoRA" if tuning == "lora" else "full fine-tuning"
    yield Report(
        f"`{key}` is {rate:g}, far above the usual range for {method}: a few steps overwrite the weights",
        run.find_place("optimizer.learning_rate"),
        notes=("AdamW changes each weight by about the learning rate per step; weights are on the order of 0.02",),
        help=f"use {_USUAL_RATES[tuning]}, the usual range for {method}",
    )
