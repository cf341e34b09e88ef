"""What an OpenRLHF run trains, and in which number formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.codec import choice
from cfglint_train.frameworks.lens import Changes, Config, Triple, pending
from cfglint_train.frameworks.lens_types import read_only
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import (
    ENTRIES,
    default_of,
    granted,
    invocation_of,
    name_at,
    usage,
    value_of,
)
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    STRING,
    before,
    custom,
    is_on,
    keys_of,
    origin_of,
    put,
    setting,
)
from cfglint_train.plan.origin import Origin

# advantage estimator -> stage (trainer/ppo_utils/experience_maker.py): what the method is called elsewhere.
_ESTIMATORS: Final[Mapping[str, str]] = {
    "gae": "ppo",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce",
    "flash_reinforce": "reinforce",
    "rloo": "rloo",
    "group_norm": "grpo",
    "dr_grpo": "grpo",
    "grpo": "grpo",  # the name that forks give to group_norm; upstream refuses it
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
    told = usage(config)
    stage = ENTRIES[told.entry]
    document = config.document
    here = Origin("explicit", config.top(), key=told.entry, framework="openrlhf")
    if stage == "ppo" and name_at(config, flag.ESTIMATOR) is not None:
        estimator = setting(config, flag.ESTIMATOR, STRING)
        yield "method.stage", _ESTIMATORS.get(str(estimator)), origin_of(config, flag.ESTIMATOR)
        return
    for expected, names, meaning in (
        ("sft", flag.PRETRAIN, "pretrain"),
        ("dpo", flag.IPO, "ipo"),
    ):
        if stage == expected and is_on(config, names):
            yield "method.stage", meaning, origin_of(config, names)
            return
    invocation = invocation_of(document, config.root)
    if stage and invocation is not None:
        yield "method.stage", stage, here


def _read_tuning(config: Config) -> Iterator[Triple]:
    rank = setting(config, flag.RANK, INTEGER)
    if rank is not None:
        yield "method.tuning", "lora" if rank > 0 else "full", origin_of(config, flag.RANK)
        if rank > 0:
            yield "method.lora_rank", rank, origin_of(config, flag.RANK)
            yield "method.lora_targets", _targets(config), origin_of(config, flag.TARGETS)


def _write_tuning(config: Config, changes: Changes) -> list[Change]:
    rank = changes.get("method.lora_rank")
    if set(changes) != {"method.lora_rank"} or not isinstance(rank, int) or rank < 1:
        raise CannotEdit("only the rank of existing adapters is changed")
    if (setting(config, flag.RANK, INTEGER) or 0) < 1:
        raise CannotEdit("the run trains no adapter")
    return put(config, flag.RANK, str(rank))


def _targets(config: Config) -> tuple[str, ...] | None:
    value = value_of(config, flag.TARGETS)
    if value is MISSING:
        value = default_of(config, flag.TARGETS)
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        return None
    return tuple(named)


def _read_quantization(config: Config) -> Iterator[Triple]:
    four = is_on(config, flag.FOUR_BITS)
    if four is not None:
        origin = origin_of(config, flag.FOUR_BITS)
        yield "method.quantization", "nf4" if four else "none", origin
        yield "method.double_quantization", True, granted(config, flag.FOUR_BITS)


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    wanted = pending(QUANTIZATION, config, changes)
    if not wanted:
        return []
    if wanted != {"method.quantization": "nf4"} or not trains_adapter(config):
        raise CannotEdit("only the weights below an adapter are quantised, to 4 bits")
    return put(config, flag.FOUR_BITS, True)


def _read_compute(config: Config) -> Iterator[Triple]:
    if name_at(config, flag.DTYPE) is not None:
        value = setting(config, flag.DTYPE, choice({"bf16": "bf16", "fp16": "fp16"}))
        yield "precision.compute", value, origin_of(config, flag.DTYPE)
    elif is_on(config, flag.BF16):
        yield "precision.compute", "bf16", origin_of(config, flag.BF16)
    else:
        # Without --bf16 the weights keep the format of their files, and DeepSpeed leaves them so.
        yield "precision.compute", None, origin_of(config, flag.BF16)


def _write_compute(config: Config, changes: Changes) -> list[Change]:
    value = changes["precision.compute"]
    if name_at(config, flag.DTYPE) is not None:
        if value not in ("bf16", "fp16"):
            raise CannotEdit("OpenRLHF trains in bf16 or fp16")
        return put(config, flag.DTYPE, value)
    if value == "bf16":
        return put(config, flag.BF16, True)
    raise CannotEdit(f"OpenRLHF {usage(config).release} has only bf16")


def _read_accumulation(config: Config) -> Iterator[Triple]:
    value = value_of(config, flag.GRADIENTS)
    if value is not MISSING:
        yield "precision.accumulation", choice(_DTYPES).readable(value), origin_of(config, flag.GRADIENTS)
    elif not usage(config).open and before(config, "0.5.4"):
        # utils/deepspeed_utils.py up to 0.5.3: fp32 unless the flag says otherwise.
        yield "precision.accumulation", "fp32", granted(config, flag.GRADIENTS)


def _write_accumulation(config: Config, changes: Changes) -> list[Change]:
    value = changes["precision.accumulation"]
    if value not in ("bf16", "fp16", "fp32"):
        raise CannotEdit("gradients are accumulated in bf16, fp16 or fp32")
    return put(config, flag.GRADIENTS, value)


def trains_adapter(config: Config) -> bool:
    """Whether the run has a LoRA rank above 0."""
    return (setting(config, flag.RANK, INTEGER) or 0) > 0


STAGE: Final = custom({"method.stage": keys_of(flag.ESTIMATOR, flag.IPO, flag.PRETRAIN)}, _read_stage, read_only)
TUNING: Final = custom(
    {
        "method.tuning": keys_of(flag.RANK),
        "method.lora_rank": keys_of(flag.RANK),
        "method.lora_targets": keys_of(flag.TARGETS),
    },
    _read_tuning,
    _write_tuning,
)
QUANTIZATION: Final = custom(
    dict.fromkeys(("method.quantization", "method.double_quantization"), keys_of(flag.FOUR_BITS)),
    _read_quantization,
    _write_quantization,
)
COMPUTE: Final = custom({"precision.compute": keys_of(flag.DTYPE, flag.BF16)}, _read_compute, _write_compute)
ACCUMULATION: Final = custom(
    {"precision.accumulation": keys_of(flag.GRADIENTS)}, _read_accumulation, _write_accumulation
)
