"""Activation lenses of LLaMA-Factory: checkpointing, loss, packing."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.fsdp import read_fsdp_flag
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, is_before, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.llamafactory.settings import get_stage, is_megatron, is_on


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    is_disabled, is_requested = is_on(config, "disable_gradient_checkpointing"), is_on(config, "gradient_checkpointing")
    origin = find_origin(config, "disable_gradient_checkpointing")
    if is_megatron(config):
        granularity = config.get("recompute_granularity")
        modes = {None: "none", "full": "full", "selective": "selective"}
        checkpointing = modes.get(granularity) if granularity is None or isinstance(granularity, str) else None
        yield "activations.checkpointing", checkpointing, find_origin(config, "recompute_granularity")
        return
    uses_unsloth = is_on(config, "use_unsloth")
    if uses_unsloth or not is_disabled:
        yield "activations.checkpointing", "full", config.get_origin("use_unsloth") if uses_unsloth else origin
    elif is_requested:
        # LLaMA-Factory turns checkpointing off, then the Trainer turns it on again.
        yield "activations.checkpointing", "full", config.get_origin("gradient_checkpointing")
    elif read_fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", config.get_origin("fsdp_config")
    else:
        yield "activations.checkpointing", "none", origin
    if uses_unsloth or (is_on(config, "use_unsloth_gc") and not is_disabled):
        yield "activations.offload", "cpu", config.get_origin("use_unsloth" if uses_unsloth else "use_unsloth_gc")
    else:
        yield "activations.offload", "none", find_origin(config, "use_unsloth_gc")
    checkpointing_kwargs = config.get("gradient_checkpointing_kwargs")
    use_reentrant = checkpointing_kwargs.get("use_reentrant") if isinstance(checkpointing_kwargs, dict) else None
    if is_requested and isinstance(use_reentrant, bool):
        yield "activations.reentrant", use_reentrant, config.get_origin("gradient_checkpointing_kwargs")
    elif is_requested:
        # The Trainer calls LLaMA-Factory's own `gradient_checkpointing_enable` again, without arguments.
        yield "activations.reentrant", True, config.get_origin("gradient_checkpointing")
    else:
        value = config.get("use_reentrant_gc", default=True)
        yield (
            "activations.reentrant",
            value if isinstance(value, bool) else None,
            find_origin(config, "use_reentrant_gc"),
        )


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        return _write_offload(config)
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory has no single key for that")
    if is_megatron(config):
        raise CannotEdit("Megatron's recomputation is not rewritten automatically")
    key = "disable_gradient_checkpointing"
    refuse_override(config, (key,))
    if changes["activations.checkpointing"] == "full":
        if is_on(config, "use_unsloth_gc"):
            raise CannotEdit("use_unsloth_gc would also offload kept activations")
        return [Set((*config.root, key), False)]
    for other_key in ("use_unsloth", "use_unsloth_gc", "gradient_checkpointing"):
        if is_on(config, other_key):
            raise CannotEdit(f"{other_key} also sets gradient checkpointing")
    if read_fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config also turns it on")
    return [Set((*config.root, key), True, ("flash_attn", "finetuning_type", "stage"))]


def _write_offload(config: Config) -> list[Change]:
    """Return the change that keeps layer checkpoints on the host.

    Source: model/model_utils/checkpointing.py, UnslothGradientCheckpointing.
    """
    key = "use_unsloth_gc"
    if is_megatron(config) or is_before(config, "0.9.0"):
        raise CannotEdit(f"{key} has no effect there")
    for other_key in ("disable_gradient_checkpointing", "gradient_checkpointing"):
        if is_on(config, other_key):
            raise CannotEdit(f"{other_key} also sets gradient checkpointing")
    if read_fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config has its own layer checkpointing")
    refuse_override(config, (key,))
    return [Set((*config.root, key), True, ("flash_attn", "finetuning_type", "stage"))]


ATTENTION: Final = {"auto": "sdpa", "disabled": "eager", "sdpa": "sdpa", "fa2": "flash"}


def find_liger_key(config: Config) -> str | None:
    """Return the key that selects Liger's loss, or None if the loss is not fused (loader.py: pt and sft only)."""
    if get_stage(config) not in ("pt", "sft"):
        return None
    # These losses need the logits.
    if any(is_on(config, f"use_{loss}_loss") for loss in ("dft", "eaft", "asft")):
        return None
    return next((key for key in ("enable_liger_kernel", "use_liger_kernel") if is_on(config, key)), None)


def _read_loss(config: Config) -> Iterator[Triple]:
    key = find_liger_key(config)
    fused_loss = "none" if key is None else "liger"
    yield "activations.fused_loss", fused_loss, find_origin(config, key or "enable_liger_kernel")
    layers_key = next((key for key in ("enable_liger_kernel", "use_liger_kernel") if is_on(config, key)), None)
    yield "activations.liger_layers", layers_key is not None, find_origin(config, layers_key or "enable_liger_kernel")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if changes.get("activations.fused_loss") != "liger" or not changes.get("activations.liger_layers", True):
        raise CannotEdit("only Liger's loss is written automatically")
    if is_before(config, "0.9.0"):
        raise CannotEdit("enable_liger_kernel requires LLaMA-Factory 0.9.0 or newer")
    if get_stage(config) not in ("pt", "sft"):
        raise CannotEdit("LLaMA-Factory uses Liger's loss only for pt and sft")
    for loss in ("dft", "eaft", "asft"):
        if is_on(config, f"use_{loss}_loss"):
            raise CannotEdit(f"use_{loss}_loss needs the logits")
    if "activations.liger_layers" not in changes and not is_on(config, "enable_liger_kernel"):
        raise CannotEdit("one key turns on both Liger's loss and its layers")
    refuse_override(config, ("enable_liger_kernel",))
    beside = ("flash_attn", "trust_remote_code", "model_name_or_path")
    return [Set((*config.root, "enable_liger_kernel"), True, beside)]


def _read_packing(config: Config) -> Iterator[Triple]:
    is_neat, packing = is_on(config, "neat_packing"), config.get("packing")
    if is_neat:
        yield "sequence.packing", True, config.get_origin("neat_packing")
    elif packing is not None:
        yield "sequence.packing", packing if isinstance(packing, bool) else None, config.get_origin("packing")
    else:
        yield "sequence.packing", get_stage(config) == "pt", find_origin(config, "stage")


def _write_packing(config: Config, changes: Changes) -> list[Change]:
    if is_on(config, "neat_packing"):
        raise CannotEdit("neat_packing also sets packing")
    refuse_override(config, ("packing",))
    return [Set((*config.root, "packing"), changes["sequence.packing"], ("cutoff_len",))]


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": parse_routes("disable_gradient_checkpointing"),
        "activations.offload": parse_routes("use_unsloth_gc"),
        "activations.reentrant": parse_routes("use_reentrant_gc", "gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    other_keys=parse_routes("gradient_checkpointing", "recompute_granularity"),
)
LIGER: Final = Custom(
    dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), parse_routes("enable_liger_kernel")),
    _read_loss,
    _write_loss,
    other_keys=parse_routes("use_liger_kernel"),
)
PACKING: Final = Custom(
    {"sequence.packing": parse_routes("packing")},
    _read_packing,
    _write_packing,
    other_keys=parse_routes("neat_packing"),
)
