"""How OLMo spreads the model: the strategy, and the section `fsdp`."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.codec import Codec, choice, enumeration
from cfglint_train.frameworks.lens import Config, Triple
from cfglint_train.frameworks.lens_types import Custom, read_only
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import is_known, setting, value_of

PRECISION: Final = choice({"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"})

STRATEGY: Final = enumeration({"fsdp": "fsdp1", "ddp": "ddp", "single": "none"}, "DistributedStrategy")

_SHARDING: Final = {
    "FULL_SHARD": "full_shard",
    "SHARD_GRAD_OP": "shard_grad_op",
    "NO_SHARD": "no_shard",
    "HYBRID_SHARD": "hybrid_shard",
    "_HYBRID_SHARD_ZERO2": "hybrid_shard_zero2",
}

# one_in_two to one_in_five wrap some blocks and leave the others in the root; the plan has no value for that.
_WRAPPING: Final = {
    "by_block_and_size": "block_and_size",
    "by_block": "block",
    "by_block_group": "group",
    "by_block_group_and_size": "group",
    "size_based": "size",
}


_WRAPPING_CODEC: Final = enumeration(_WRAPPING, "FSDPWrapStrategy")

_REDUCTION: Final = enumeration({"pure": "pure", "mixed": "mixed"}, "FSDPPrecision")


def is_fsdp(config: Config) -> bool:
    """Whether FSDP is the strategy: the keys of `fsdp` count only then."""
    strategy, _ = value_of(config, "distributed_strategy", STRATEGY)
    return strategy is not None and strategy == "fsdp1"


def _read_wrapping_group(config: Config) -> Iterator[Triple]:
    size, origin = value_of(config, "model.block_group_size", OMEGACONF.integer)
    if size is not None and size > 1:
        yield "parallel.wrapping_group", size, origin


def _read_communication(config: Config) -> Iterator[Triple]:
    """FSDP's reduce format: `pure` is the compute format, `mixed` is fp32 (config.fsdp_precision)."""
    if not is_fsdp(config) or not is_known(config, "fsdp.precision"):
        return
    kind, origin = value_of(config, "fsdp.precision", _REDUCTION)
    if kind == "pure":
        compute = value_of(config, "precision", PRECISION)[0]
        yield "parallel.communication", compute, origin._replace(kind="inferred", note="pure: the compute format")
    elif kind == "mixed" or (kind is None and config.has("fsdp", "precision")):
        yield "parallel.communication", "fp32", origin


LENSES: Final = (
    setting("parallel.strategy", "distributed_strategy", STRATEGY, null=None),
    setting(
        "parallel.sharding",
        "fsdp.sharding_strategy",
        enumeration(_SHARDING, "ShardingStrategy", tuple(_SHARDING)),
        beside=("wrapping_strategy",),
        applies=is_fsdp,
    ),
    setting(
        "parallel.replicas",
        "fsdp.hybrid_sharding_num_model_replicas",
        OMEGACONF.integer,
        beside=("sharding_strategy",),
        applies=is_fsdp,
    ),
    setting(
        "parallel.wrapping",
        "fsdp.wrapping_strategy",
        Codec(_WRAPPING_CODEC.read, lambda value: None if value == "root" else _WRAPPING_CODEC.write(value)),
        null="root",
        beside=("sharding_strategy", "use_orig_params"),
        applies=is_fsdp,
    ),
    Custom({"parallel.wrapping_group": (("model", "block_group_size"),)}, _read_wrapping_group, read_only),
    setting("parallel.use_orig_params", "fsdp.use_orig_params", OMEGACONF.boolean, applies=is_fsdp),
    Custom({"parallel.communication": (("fsdp", "precision"),)}, _read_communication, read_only),
)
