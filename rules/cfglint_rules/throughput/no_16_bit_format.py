"""PRF010 no-16-bit-format: the run computes in fp32 although the GPU has bf16.

## What it does
Reports runs whose matrix products are in fp32, on a GPU with bf16: neither bf16 nor fp16 is on, neither in the
configuration nor in its launch, and the weights are fp32.

The frameworks get there in different ways. The Trainer leaves `bf16` off. TRL does so before 0.19. Under DeepSpeed, the
Trainer then fills in false for `"enabled": "auto"`, and the weights stay fp32. OLMo computes in fp32 with
`precision: fp32`.

## Why is this bad?
Tensor cores multiply bf16 numbers many times faster than the other units multiply fp32 numbers: 312 against 19.5
TFLOP/s on an A100. Activations and frozen weights take 4 bytes instead of 2.

## Example
    # cfglint: gpu=A100-80GB
    deepspeed: zero3.json       # bf16: {"enabled": "auto"}

## Use instead
    deepspeed: zero3.json
    bf16: true

## Fix safety
Unsafe: bf16 rounds activations to 8 significant bits.

## When it does not apply
The rule is silent:

- for GPUs without bf16, such as V100 and T4. If the GPU is not stated, a file name or comment that names one counts.
- if TF32 is on (`tf32`, `torch_compile`, or in the code of a script), which also uses tensor cores
- for quantized weights, unless the configuration itself turns bf16 off
- for a DeepSpeed file without a known program, which may turn bf16 on

## References
NVIDIA A100 and H100 data sheets (dense TFLOP/s). transformers 4.52.3 `training_args.py` (bf16, tf32, torch_compile);
transformers 4.49.0 `integrations/deepspeed.py` (trainer_config_process, fill_match); DeepSpeed 0.16.4
`runtime/zero/partition_parameters.py` (_set_dtype); trl 0.18.2 and 0.19.1 `trainer/sft_config.py`; ai2-olmo 0.6.0
`config.py` (autocast_precision).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.companions.bf16_cards import build_card_ground, may_lack_bf16
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import list_key_changes
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF010",
    "no-16-bit-format",
    "warning",
    fix="unsafe",
    needs={"precision.compute": ("fp32",)},
    writes=("precision.compute", "precision.autocast"),
)

_COMPUTE: Final[Field] = "precision.compute"
_CHANGES: Final[tuple[dict[Field, Any], ...]] = (
    {_COMPUTE: "bf16", "precision.autocast": True},
    {_COMPUTE: "bf16"},
)
"""Changes that turn bf16 on: some frameworks turn autocast on with the same key."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run computes in fp32 on a GPU with bf16."""
    plan, is_stated = run.plan, run.is_stated(_COMPUTE)
    if plan.precision.tf32 or plan.activations.compile or may_lack_bf16(run):
        return
    if plan.method.quantization not in (None, "none") and not is_stated:
        return
    if _may_keep_16_bits(run):
        return
    key = run.spell_key(_COMPUTE)
    statement = f"`{key}` leaves the step in fp32" if is_stated else f"without `{key}`, the step computes in fp32"
    if key == _COMPUTE:  # the framework has no key for it
        statement = "the step computes in fp32"
    changes = next((changes for changes in _CHANGES if _can_write(run, changes)), None)
    yield Report(
        f"{statement}, at a fraction of the GPU's bf16 rate",
        run.find_place(_COMPUTE),
        fix=None if changes is None else Fix("unsafe", format_changes(run, changes), changes),
        help="train in bf16" if changes is None else None,
        notes=("an A100 computes 19.5 TFLOP/s in fp32 and 312 in bf16; an H100, 67 and 989",),
        grounds=(*build_card_ground(run), *_build_launch_ground(run, is_stated)),
    )


def _may_keep_16_bits(run: Run) -> bool:
    """Return whether a DeepSpeed file without a 16-bit format may train weights that were loaded in 16 bits.

    Below stage 3, the engine keeps the format of the weights. An unknown program may also set the format.
    """
    origin = run.get_origin(_COMPUTE)
    if origin is None or origin.framework != "deepspeed":
        return False
    return run.main.framework == "deepspeed" or (run.plan.parallel.zero_stage != 3 and run.plan.model.dtype != "fp32")


def _build_launch_ground(run: Run, is_stated: bool) -> tuple[Ground, ...]:
    """Return the assumption that an unknown launch does not turn on mixed precision, as `accelerate launch` can."""
    if is_stated or not run.framework.traits.runs_trainer or run.inputs.is_sharding_known is not None:
        return ()
    note = "a launch without `--mixed_precision`; add the launch script to the repository to be sure"
    return (Ground(_COMPUTE, "fp32", "assumed", note),)


def _can_write(run: Run, changes: dict[Field, Any]) -> bool:
    try:
        return bool(list_key_changes(run, changes))
    except CannotEdit:
        return False
