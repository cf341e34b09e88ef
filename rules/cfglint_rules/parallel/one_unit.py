"""PAR004 one-fsdp-unit: FSDP has no wrap policy, so it gathers the whole model at once.

## What it does
Reports sharded FSDP runs of the HF Trainer without a wrap policy: neither accelerate's `fsdp_auto_wrap_policy` nor
`auto_wrap` among the options of `fsdp`. The message gives the memory per GPU with and without the policy.

## Why is this bad?
accelerate's default is NO_WRAP: the whole model is one FSDP unit. Each GPU gathers all weights for the forward and the
backward pass, and holds all gradients until the backward pass ends. Sharding then saves only optimizer states.

With an adapter under FSDP1, the Trainer replaces the policy by PEFT's before it trains. PEFT's policy wraps each layer,
so the memory of the training is not at stake. Evaluation without training, and a later full fine-tune, use one unit.

## Example
    distributed_type: FSDP
    fsdp_config:
      fsdp_sharding_strategy: FULL_SHARD

## Use instead
    distributed_type: FSDP
    fsdp_config:
      fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
      fsdp_sharding_strategy: FULL_SHARD

## Fix safety
Safe if no policy is stated: wrapping changes when weights are gathered, not what is computed. Unsafe if NO_WRAP is
stated.

## When it does not apply
Silent without sharding (one rank, NO_SHARD), and for transformers 5.10 and newer if the Trainer's own `fsdp` turns FSDP
on, because its default policy wraps each layer. Silent if wrapping saves less than 4 GiB per GPU.

## References
accelerate 1.15.0 `utils/dataclasses.py` (FullyShardedDataParallelPlugin); transformers 4.57.6 `trainer.py`
(_fsdp_qlora_plugin_updates), 5.9.0 and 5.10.1 `training_args.py` (_process_fsdp_args); PEFT 0.21.2 `utils/other.py`
(fsdp_auto_wrap_policy).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import name_quantity
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PAR004",
    "one-fsdp-unit",
    "warning",
    fix="safe",
    needs={"parallel.wrapping": ("root",), "parallel.strategy": ("fsdp1", "fsdp2")},
    writes=("parallel.wrapping",),
    estimates=("gpu",),
)

_CHANGES: Final[dict[Field, Any]] = {"parallel.wrapping": "block"}
_MIN_GATHERED: Final = 4 * 2**30
"""Smallest amount of memory that is reported: 5 % of a GPU of 80 GB."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if FSDP shards the model as one unit."""
    parallel = run.plan.parallel
    if not run.framework.traits.runs_trainer or parallel.sharding == "no_shard" or parallel.shard_size in (None, 1):
        return
    is_stated = run.is_stated("parallel.wrapping")
    quantity, notes = "", tuple[str, ...]()
    cause = "NO_WRAP is set" if is_stated else "no FSDP wrap policy is set"
    before, after = _find_step_peak(run), _find_step_peak(run.replace_fields(_CHANGES))
    if parallel.strategy == "fsdp1" and run.plan.method.tuning == "lora":
        if run.architecture is not None and 2 * run.architecture.parameters < _MIN_GATHERED:
            return
        effect = "training uses PEFT's policy, but evaluation alone puts the whole model on each GPU"
        notes = ("PEFT's policy wraps each layer, so the memory of the training is not at stake",)
    elif before is None or after is None:
        effect = "every GPU gathers the whole model at once"
    elif before - after < _MIN_GATHERED:
        return
    else:
        effect = f"each GPU gathers the whole model, and needs {format_gib(before)} instead of {format_gib(after)}"
        quantity = name_quantity("gpu", STEP_PHASES)
    yield Report(
        f"{cause}: {effect}",
        run.find_place("parallel.wrapping", "parallel.sharding", "parallel.strategy"),
        fix=Fix("unsafe" if is_stated else "safe", format_changes(run, _CHANGES), _CHANGES),
        notes=notes,
        quantity=quantity,
    )


def _find_step_peak(run: Run) -> int | None:
    """Return the bytes that the highest phase of a step needs on a GPU, or None if it is unknown."""
    peaks = [phase.gpu.expected for phase in run.estimate.phases if phase.name in STEP_PHASES and phase.gpu is not None]
    return max(peaks, default=None)
