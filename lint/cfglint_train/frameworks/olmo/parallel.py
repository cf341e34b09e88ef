"""Parallelism lenses of OLMo: the strategy, and the section `fsdp`."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.codec import Codec, build_choice, build_enumeration
from cfglint_train.frameworks.lens import Config, Triple
from cfglint_train.frameworks.lens_types import Custom, refuse_write
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import build_key, is_resolved, read_value

PRECISION_CODEC: Final = build_choice({"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"})

STRATEGY_CODEC: Final = build_enumeration({"fsdp": "fsdp1", "ddp": "ddp", "single": "none"}, "DistributedStrategy")

_SHARDING: Final = {
    "FULL_SHARD": "full_shard",
    "SHARD_GRAD_OP": "shard_grad_op",
    "NO_SHARD": "no_shard",
    "HYBRID_SHARD": "hybrid_shard",
    "_HYBRID_SHARD_ZERO2": "hybrid_shard_zero2",
}

# one_in_two to one_in_five wrap some blocks and leave the rest in the root, which the plan cannot express.
_WRAPPING: Final = {
    "by_block_and_size": "block_and_size",
    "by_block": "block",
    "by_block_group": "group",
    "by_block_group_and_size": "group",
    "size_based": "size",
}


_WRAPPING_CODEC: Final = build_enumeration(_WRAPPING, "FSDPWrapStrategy")

_REDUCTION_CODEC: Final = build_enumeration({"pure": "pure", "mixed": "mixed"}, "FSDPPrecision")


def is_fsdp(config: Config) -> bool:
    """Return whether FSDP is the strategy; the keys of `fsdp` apply only then."""
    strategy, _ = read_value(config, "distributed_strategy", STRATEGY_CODEC)
    return strategy is not None and strategy == "fsdp1"


def _read_wrapping_group(config: Config) -> Iterator[Triple]:
    size, origin = read_value(config, "model.block_group_size", OMEGACONF.integer)
    if size is not None and size > 1:
        yield "parallel.wrapping_group", size, origin


def _read_communication(config: Config) -> Iterator[Triple]:
    """Yield FSDP's reduction format: `pure` is the compute format, `mixed` and null are fp32.

    Source: config.fsdp_precision.
    """
    if not is_fsdp(config) or not is_resolved(config, "fsdp.precision"):
        return
    reduction, origin = read_value(config, "fsdp.precision", _REDUCTION_CODEC)
    if reduction == "pure":
        compute = read_value(config, "precision", PRECISION_CODEC)[0]
        yield "parallel.communication", compute, origin._replace(kind="inferred", note="pure: the compute dtype")
    elif reduction == "mixed" or (reduction is None and config.has("fsdp", "precision")):
        yield "parallel.communication", "fp32", origin


LENSES: Final = (
    build_key("parallel.strategy", "distributed_strategy", STRATEGY_CODEC, null=None),
    build_key(
        "parallel.sharding",
        "fsdp.sharding_strategy",
        build_enumeration(_SHARDING, "ShardingStrategy", tuple(_SHARDING)),
        beside=("wrapping_strategy",),
        applies=is_fsdp,
    ),
    build_key(
        "parallel.replicas",
        "fsdp.hybrid_sharding_num_model_replicas",
        OMEGACONF.integer,
        beside=("sharding_strategy",),
        applies=is_fsdp,
    ),
    build_key(
        "parallel.wrapping",
        "fsdp.wrapping_strategy",
        Codec(_WRAPPING_CODEC.read, lambda value: None if value == "root" else _WRAPPING_CODEC.write(value)),
        null="root",
        beside=("sharding_strategy", "use_orig_params"),
        applies=is_fsdp,
    ),
    Custom({"parallel.wrapping_group": (("model", "block_group_size"),)}, _read_wrapping_group, refuse_write),
    build_key("parallel.use_orig_params", "fsdp.use_orig_params", OMEGACONF.boolean, applies=is_fsdp),
    Custom({"parallel.communication": (("fsdp", "precision"),)}, _read_communication, refuse_write),
)
