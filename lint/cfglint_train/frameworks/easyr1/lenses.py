"""Lenses between EasyR1's settings and the plan: those of verl, except where EasyR1 builds otherwise.

Sources: hiyouga/EasyR1 v0.3.0 to v0.3.2 and b44b311 (0.3.3.dev0), `verl/trainer/ray_trainer.py`,
`verl/workers/fsdp_workers.py`, `verl/workers/actor/dp_actor.py`, `verl/utils/checkpoint/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.verl import lenses as verl
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.lenses import (
    DTYPE,
    OPTIMIZER_FIELDS,
    build_custom,
    build_fixed,
    build_key,
    build_product,
    is_dynamic,
)
from cfglint_train.frameworks.verl.settings import find_origin, read
from cfglint_train.plan.names import Field

_OPTIMIZERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "adamw": ("adamw", "fused", False, None),
    "adamw_bf16": ("kahan_adamw", "single", False, 16),
}
"""Values of `OPTIMIZER_FIELDS`; without bits, states have the dtype of the weights (AnyPrecisionAdamW: bf16)."""


def read_length(config: Config) -> int | None:
    """Return the tokens of the longest prompt plus the longest answer, or None if one is unknown."""
    parts = [read(config, verl.COUNT, *names) for names in (key.PROMPT_LENGTH, key.RESPONSE_LENGTH)]
    return None if None in parts else sum(parts)


def _read_optimizer(config: Config) -> Iterator[Triple]:
    choice, origin = read(config, OMEGACONF.string, *key.OPTIMIZER), find_origin(config, *key.OPTIMIZER)
    for field, value in zip(OPTIMIZER_FIELDS, _OPTIMIZERS.get(choice, (None,) * len(OPTIMIZER_FIELDS)), strict=True):
        if value is not None or field == "optimizer.name":
            yield field, value, origin


def _read_tuning(config: Config) -> Iterator[Triple]:
    """Yield the adapter; targets are one word, or names between commas. Releases before 0.3.3 train all weights."""
    rank, origin = read(config, OMEGACONF.integer, *key.LORA_RANK) or 0, find_origin(config, *key.LORA_RANK)
    yield "method.tuning", "lora" if rank > 0 else "full", origin
    if rank > 0:
        yield "method.lora_rank", rank, origin
        targets = read(config, OMEGACONF.string, *key.LORA_TARGETS) or ""
        names = tuple(filter(None, map(str.strip, targets.split(","))))
        yield "method.lora_targets", names or None, find_origin(config, *key.LORA_TARGETS)


def _read_coefficient(config: Config) -> Iterator[Triple]:
    """Yield the coefficient of the KL term; with 0, EasyR1 still logs the KL, for which the reference is needed."""
    is_off, coefficient = (
        read(config, OMEGACONF.boolean, *key.WITHOUT_KL),
        read(config, OMEGACONF.number, *key.KL_COEFFICIENT),
    )
    if is_off:
        yield "rollout.kl_coefficient", 0.0, find_origin(config, *key.WITHOUT_KL)
    elif is_off is False:
        yield "rollout.kl_coefficient", coefficient or None, find_origin(config, *key.KL_COEFFICIENT)


def _write_coefficient(config: Config, changes: Changes) -> list[Change]:
    raise CannotEdit("fixes do not change the loss")


def _read_offload(config: Config) -> Iterator[Triple]:
    """Yield where FSDP1's CPUOffload keeps weights and gradients, so that the optimizer steps there."""
    value, origin = read(config, OMEGACONF.boolean, *key.CPU_OFFLOAD), find_origin(config, *key.CPU_OFFLOAD)
    for field in verl.OFFLOADED:
        yield field, None if value is None else "cpu" if value else "none", origin


def _read_saving(config: Config) -> Iterator[Triple]:
    """Yield when EasyR1 saves: every few steps, and the last step in any case."""
    frequency, origin = read(config, OMEGACONF.integer, *key.SAVE_FREQUENCY), find_origin(config, *key.SAVE_FREQUENCY)
    if frequency is None:
        yield "checkpoint.strategy", None, origin
        return
    yield "checkpoint.strategy", "steps" if frequency > 0 else "no", origin
    if frequency > 0:
        yield "checkpoint.interval", frequency, origin
    yield "checkpoint.final", True, origin._replace(kind="inferred", note="the last step")


_FIXED_VALUES: Final[tuple[tuple[Field, Any], ...]] = (
    ("activations.attention", "flash"),
    ("activations.offload", "none"),
    ("activations.liger_layers", False),
    ("activations.tiled_mlp", False),
    ("parallel.strategy", "fsdp1"),
    ("checkpoint.hf_export", False),
    ("rollout.expert", 1),
    ("rollout.sleep", True),
)
_EASYR1_LENSES: Final[tuple[Lens, ...]] = (
    build_key("model.frozen_vision", key.FROZEN_VISION, OMEGACONF.boolean),
    build_custom(
        {"method.tuning": key.LORA_RANK, "method.lora_rank": key.LORA_RANK, "method.lora_targets": key.LORA_TARGETS},
        _read_tuning,
        verl.write_tuning,
    ),
    build_custom(dict.fromkeys(OPTIMIZER_FIELDS, key.OPTIMIZER), _read_optimizer),
    build_product("batch.tokens_per_gpu", key.MICRO, read_length, is_dynamic),
    *(build_fixed(field, value) for field, value in _FIXED_VALUES),
    build_custom(dict.fromkeys(verl.OFFLOADED, key.CPU_OFFLOAD), _read_offload),
    build_key("parallel.use_orig_params", key.ORIGINAL_PARAMETERS, OMEGACONF.boolean),
    build_key("parallel.communication", key.REDUCE_DTYPE, DTYPE),
    build_custom(
        dict.fromkeys(("checkpoint.strategy", "checkpoint.interval", "checkpoint.final"), key.SAVE_FREQUENCY),
        _read_saving,
        verl.write_saving,
    ),
    build_key("checkpoint.model_only", key.MODEL_ONLY, OMEGACONF.boolean, default=False),
    build_custom({"rollout.kl_coefficient": key.KL_COEFFICIENT}, _read_coefficient, _write_coefficient),
)
_REPLACED: Final = frozenset(
    (
        *(field for lens in _EASYR1_LENSES for field in lens.fields),
        "data.workers",  # the driver has the loaders
        "launch.launcher",
    )
)
LENSES: Final[tuple[Lens, ...]] = (
    *(lens for lens in verl.LENSES if _REPLACED.isdisjoint(lens.fields)),
    *_EASYR1_LENSES,
)
