"""BAT004 learning-rate-out-of-scale: the learning rate is so high that a few Adam steps overwrite the weights.

## What it does
Reports a learning rate of 1e-3 or more for full fine-tuning of a pretrained model with an Adam-type optimizer. For LoRA
the limit is 1e-2. The rule covers supervised fine-tuning and preference losses (DPO, KTO, ORPO, ...).

## Why is this bad?
In each step, Adam changes every weight by about the learning rate, however small the gradient is. Most weights of a
language model have a magnitude of about 0.02. A learning rate near that value destroys what the model has learned
within a few steps. The usual cause is a lost exponent: `1e-5` became `1.0`.

## Example
    finetuning_type: full
    learning_rate: 1.0

## Use instead
    learning_rate: 1.0e-5

## When it does not apply
The rule is silent:

- for pretraining, for randomly initialized models, and for models with fewer than 1e9 parameters, which are often tuned
  at higher rates
- for optimizers whose learning rate has another meaning (SGD, Adafactor, Prodigy, Muon)
- for adapters that need high rates (prompt tuning, VeRA)

An unknown model may be small or randomly initialized, so its limit is 0.1.

## References
Kingma and Ba, arXiv:1412.6980, section 2.1 (the effective step is bounded by the learning rate); the initial standard
deviation of 0.02 is `initializer_range` in transformers' configurations of Llama, Qwen and Mistral.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("BAT004", "learning-rate-out-of-scale", "warning", depends_on_unseen_flags=True)

_LIMITS: Final[Mapping[str, float]] = {"full": 1e-3, "freeze": 1e-3, "lora": 1e-2}
_USUAL_RANGES: Final[Mapping[str, str]] = {"full": "1e-6 to 2e-5", "freeze": "1e-6 to 2e-5", "lora": "5e-5 to 5e-4"}
_STAGES: Final = frozenset(("sft", "dpo", "ipo", "kto", "orpo", "simpo"))
_ADAM: Final = frozenset(("adam", "adamw"))
_MAX_SMALL_PARAMETERS: Final = 10**9
_LIMIT_FOR_UNKNOWN_MODEL: Final = 0.1
"""Limit for unknown models, above the learning rates used for small and randomly initialized models.

Public recipes for 20M to 600M parameters use 0.004 to 0.008.
"""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the learning rate is at or above the limit for the method."""
    plan, model = run.plan, run.architecture
    rate, tuning = plan.optimizer.learning_rate, plan.method.tuning
    if (
        rate is None
        or tuning is None
        or tuning not in _LIMITS
        or plan.optimizer.name not in _ADAM
        or plan.method.stage not in _STAGES
    ):
        return
    if plan.model.from_scratch or (model is not None and model.parameters < _MAX_SMALL_PARAMETERS):
        return
    if rate < (_LIMITS[tuning] if model is not None else _LIMIT_FOR_UNKNOWN_MODEL):
        return
    if not run.is_stated("optimizer.learning_rate"):
        return
    key = run.spell_key("optimizer.learning_rate")
    method = "LoRA" if tuning == "lora" else "full fine-tuning"
    yield Report(
        f"`{key}` is {rate:g}, far above the usual range for {method}: a few steps overwrite the weights",
        run.find_place("optimizer.learning_rate"),
        notes=("AdamW changes each weight by about the learning rate per step; weights are on the order of 0.02",),
        help=f"use {_USUAL_RANGES[tuning]}, the usual range for {method}",
    )
