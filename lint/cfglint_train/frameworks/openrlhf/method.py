"""Training method and number formats of an OpenRLHF run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.codec import build_choice
from cfglint_train.frameworks.lens import Changes, Config, Triple, select_pending
from cfglint_train.frameworks.lens_types import refuse_write
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import (
    ENTRIES,
    build_default_origin,
    find_default,
    find_name,
    get_invocation,
    get_value,
    read_usage,
)
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    STRING,
    build_custom,
    build_routes,
    find_origin,
    is_before,
    is_on,
    put_flag,
    read_setting,
)
from cfglint_train.plan.origin import Origin

# Advantage estimator -> stage (trainer/ppo_utils/experience_maker.py), by the common name of the method.
_ESTIMATORS: Final[Mapping[str, str]] = {
    "gae": "ppo",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce",
    "flash_reinforce": "reinforce",
    "rloo": "rloo",
    "group_norm": "grpo",
    "dr_grpo": "grpo",
    "grpo": "grpo",  # forks' name of group_norm; upstream rejects it
}


_DTYPES: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
}


def _read_stage(config: Config) -> Iterator[Triple]:
    flag_usage = read_usage(config)
    stage = ENTRIES[flag_usage.entry]
    document = config.document
    origin = Origin("explicit", config.find_top(), key=flag_usage.entry, framework="openrlhf")
    if stage == "ppo" and find_name(config, flag.ESTIMATOR) is not None:
        estimator = read_setting(config, flag.ESTIMATOR, STRING)
        yield "method.stage", _ESTIMATORS.get(str(estimator)), find_origin(config, flag.ESTIMATOR)
        return
    for expected, names, plan_value in (
        ("sft", flag.PRETRAIN_MODE, "pretrain"),
        ("dpo", flag.IPO, "ipo"),
    ):
        if stage == expected and is_on(config, names):
            yield "method.stage", plan_value, find_origin(config, names)
            return
    invocation = get_invocation(document, config.root)
    if stage and invocation is not None:
        yield "method.stage", stage, origin


def _read_tuning(config: Config) -> Iterator[Triple]:
    rank = read_setting(config, flag.LORA_RANK, INTEGER)
    if rank is not None:
        yield "method.tuning", "lora" if rank > 0 else "full", find_origin(config, flag.LORA_RANK)
        if rank > 0:
            yield "method.lora_rank", rank, find_origin(config, flag.LORA_RANK)
            yield "method.lora_targets", _read_targets(config), find_origin(config, flag.LORA_TARGETS)


def _write_tuning(config: Config, changes: Changes) -> list[Change]:
    rank = changes.get("method.lora_rank")
    if set(changes) != {"method.lora_rank"} or not isinstance(rank, int) or rank < 1:
        raise CannotEdit("fixes only change the rank of existing adapters")
    if (read_setting(config, flag.LORA_RANK, INTEGER) or 0) < 1:
        raise CannotEdit("the run trains no adapter")
    return put_flag(config, flag.LORA_RANK, str(rank))


def _read_targets(config: Config) -> tuple[str, ...] | None:
    value = get_value(config, flag.LORA_TARGETS)
    if value is MISSING:
        value = find_default(config, flag.LORA_TARGETS)
    targets = [value] if isinstance(value, str) else value
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        return None
    return tuple(targets)


def _read_quantization(config: Config) -> Iterator[Triple]:
    is_four_bit = is_on(config, flag.FOUR_BITS)
    if is_four_bit is not None:
        origin = find_origin(config, flag.FOUR_BITS)
        yield "method.quantization", "nf4" if is_four_bit else "none", origin
        yield "method.double_quantization", True, build_default_origin(config, flag.FOUR_BITS)


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    wanted = select_pending(QUANTIZATION, config, changes)
    if not wanted:
        return []
    if wanted != {"method.quantization": "nf4"} or not has_adapter(config):
        raise CannotEdit("only base weights under an adapter are quantised, to 4 bits")
    return put_flag(config, flag.FOUR_BITS, True)


def _read_compute(config: Config) -> Iterator[Triple]:
    if find_name(config, flag.DTYPE) is not None:
        value = read_setting(config, flag.DTYPE, build_choice({"bf16": "bf16", "fp16": "fp16"}))
        yield "precision.compute", value, find_origin(config, flag.DTYPE)
    elif is_on(config, flag.BF16):
        yield "precision.compute", "bf16", find_origin(config, flag.BF16)
    else:
        # Without --bf16 the weights keep the format of their files, and DeepSpeed does not change it.
        yield "precision.compute", None, find_origin(config, flag.BF16)


def _write_compute(config: Config, changes: Changes) -> list[Change]:
    value = changes["precision.compute"]
    if find_name(config, flag.DTYPE) is not None:
        if value not in ("bf16", "fp16"):
            raise CannotEdit("OpenRLHF trains in bf16 or fp16")
        return put_flag(config, flag.DTYPE, value)
    if value == "bf16":
        return put_flag(config, flag.BF16, True)
    raise CannotEdit(f"OpenRLHF {read_usage(config).release} has only bf16")


def _read_accumulation(config: Config) -> Iterator[Triple]:
    value = get_value(config, flag.GRADIENT_DTYPE)
    if value is not MISSING:
        yield (
            "precision.accumulation",
            build_choice(_DTYPES).read_or_none(value),
            find_origin(config, flag.GRADIENT_DTYPE),
        )
    elif not read_usage(config).has_hidden_flags and is_before(config, "0.5.4"):
        # utils/deepspeed_utils.py up to 0.5.3: fp32 unless the flag states another format.
        yield "precision.accumulation", "fp32", build_default_origin(config, flag.GRADIENT_DTYPE)


def _write_accumulation(config: Config, changes: Changes) -> list[Change]:
    value = changes["precision.accumulation"]
    if value not in ("bf16", "fp16", "fp32"):
        raise CannotEdit("gradients are accumulated in bf16, fp16 or fp32")
    return put_flag(config, flag.GRADIENT_DTYPE, value)


def has_adapter(config: Config) -> bool:
    """Return whether the run trains a LoRA adapter: its rank is above 0."""
    return (read_setting(config, flag.LORA_RANK, INTEGER) or 0) > 0


STAGE: Final = build_custom(
    {"method.stage": build_routes(flag.ESTIMATOR, flag.IPO, flag.PRETRAIN_MODE)}, _read_stage, refuse_write
)
TUNING: Final = build_custom(
    {
        "method.tuning": build_routes(flag.LORA_RANK),
        "method.lora_rank": build_routes(flag.LORA_RANK),
        "method.lora_targets": build_routes(flag.LORA_TARGETS),
    },
    _read_tuning,
    _write_tuning,
)
QUANTIZATION: Final = build_custom(
    dict.fromkeys(("method.quantization", "method.double_quantization"), build_routes(flag.FOUR_BITS)),
    _read_quantization,
    _write_quantization,
)
COMPUTE: Final = build_custom({"precision.compute": build_routes(flag.DTYPE, flag.BF16)}, _read_compute, _write_compute)
ACCUMULATION: Final = build_custom(
    {"precision.accumulation": build_routes(flag.GRADIENT_DTYPE)}, _read_accumulation, _write_accumulation
)
