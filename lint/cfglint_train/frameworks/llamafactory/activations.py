"""What LLaMA-Factory keeps of a forward pass: checkpointing, the loss, compilation, packing."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.fsdp import fsdp_flag
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.llamafactory.settings import is_megatron, on, stage_of


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    disabled, asked = on(config, "disable_gradient_checkpointing"), on(config, "gradient_checkpointing")
    origin = origin_of(config, "disable_gradient_checkpointing")
    if is_megatron(config):
        recomputes = config.get("recompute_granularity")
        mode = {None: "none", "full": "full", "selective": "selective"}
        known = mode.get(recomputes) if recomputes is None or isinstance(recomputes, str) else None
        yield "activations.checkpointing", known, origin_of(config, "recompute_granularity")
        return
    unsloth = on(config, "use_unsloth")
    if unsloth or not disabled:
        yield "activations.checkpointing", "full", config.origin("use_unsloth") if unsloth else origin
    elif asked:
        # Switched off by LLaMA-Factory and on again by the Trainer.
        yield "activations.checkpointing", "full", config.origin("gradient_checkpointing")
    elif fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", config.origin("fsdp_config")
    else:
        yield "activations.checkpointing", "none", origin
    if unsloth or (on(config, "use_unsloth_gc") and not disabled):
        yield "activations.offload", "cpu", config.origin("use_unsloth" if unsloth else "use_unsloth_gc")
    else:
        yield "activations.offload", "none", origin_of(config, "use_unsloth_gc")
    extra = config.get("gradient_checkpointing_kwargs")
    stated = extra.get("use_reentrant") if isinstance(extra, dict) else None
    if asked and isinstance(stated, bool):
        yield "activations.reentrant", stated, config.origin("gradient_checkpointing_kwargs")
    elif asked:
        # The Trainer calls LLaMA-Factory's own switch once more, without arguments.
        yield "activations.reentrant", True, config.origin("gradient_checkpointing")
    else:
        value = config.get("use_reentrant_gc", default=True)
        yield "activations.reentrant", value if isinstance(value, bool) else None, origin_of(config, "use_reentrant_gc")


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        return _offloaded(config)
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("LLaMA-Factory has no single key for that")
    if is_megatron(config):
        raise CannotEdit("Megatron's recomputation is not rewritten automatically")
    key = "disable_gradient_checkpointing"
    refuse_override(config, (key,))
    if changes["activations.checkpointing"] == "full":
        if on(config, "use_unsloth_gc"):
            raise CannotEdit("use_unsloth_gc would offload what is kept, too")
        return [Set((*config.root, key), False)]
    for other in ("use_unsloth", "use_unsloth_gc", "gradient_checkpointing"):
        if on(config, other):
            raise CannotEdit(f"{other} also sets gradient checkpointing")
    if fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config switches it on as well")
    return [Set((*config.root, key), True, ("flash_attn", "finetuning_type", "stage"))]


def _offloaded(config: Config) -> list[Change]:
    """Checkpoints of layers kept on the host (model/model_utils/checkpointing.py, UnslothGradientCheckpointing)."""
    key = "use_unsloth_gc"
    if is_megatron(config) or before(config, "0.9.0"):
        raise CannotEdit(f"{key} has no effect there")
    for other in ("disable_gradient_checkpointing", "gradient_checkpointing"):
        if on(config, other):
            raise CannotEdit(f"{other} also sets gradient checkpointing")
    if fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config checkpoints layers in its own way")
    refuse_override(config, (key,))
    return [Set((*config.root, key), True, ("flash_attn", "finetuning_type", "stage"))]


ATTENTION: Final = {"auto": "sdpa", "disabled": "eager", "sdpa": "sdpa", "fa2": "flash"}


def liger_key(config: Config) -> str | None:
    """The key that makes the loss Liger's; None where the loss is not fused (loader.py: pt and sft only)."""
    if stage_of(config) not in ("pt", "sft"):
        return None
    # These losses want the logits.
    if any(on(config, f"use_{loss}_loss") for loss in ("dft", "eaft", "asft")):
        return None
    return next((key for key in ("enable_liger_kernel", "use_liger_kernel") if on(config, key)), None)


def _read_loss(config: Config) -> Iterator[Triple]:
    key = liger_key(config)
    fused = "none" if key is None else "liger"
    yield "activations.fused_loss", fused, origin_of(config, key or "enable_liger_kernel")
    layers = next((key for key in ("enable_liger_kernel", "use_liger_kernel") if on(config, key)), None)
    yield "activations.liger_layers", layers is not None, origin_of(config, layers or "enable_liger_kernel")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if changes.get("activations.fused_loss") != "liger" or not changes.get("activations.liger_layers", True):
        raise CannotEdit("only Liger's loss is written automatically")
    if before(config, "0.9.0"):
        raise CannotEdit("LLaMA-Factory has enable_liger_kernel from 0.9.0 on")
    if stage_of(config) not in ("pt", "sft"):
        raise CannotEdit("LLaMA-Factory takes Liger's loss for pt and sft only")
    for loss in ("dft", "eaft", "asft"):
        if on(config, f"use_{loss}_loss"):
            raise CannotEdit(f"use_{loss}_loss needs the logits")
    if "activations.liger_layers" not in changes and not on(config, "enable_liger_kernel"):
        raise CannotEdit("one key switches Liger's loss and its layers on")
    refuse_override(config, ("enable_liger_kernel",))
    beside = ("flash_attn", "trust_remote_code", "model_name_or_path")
    return [Set((*config.root, "enable_liger_kernel"), True, beside)]


def _read_packing(config: Config) -> Iterator[Triple]:
    neat, packing = on(config, "neat_packing"), config.get("packing")
    if neat:
        yield "sequence.packing", True, config.origin("neat_packing")
    elif packing is not None:
        yield "sequence.packing", packing if isinstance(packing, bool) else None, config.origin("packing")
    else:
        yield "sequence.packing", stage_of(config) == "pt", origin_of(config, "stage")


def _write_packing(config: Config, changes: Changes) -> list[Change]:
    if on(config, "neat_packing"):
        raise CannotEdit("neat_packing settles packing as well")
    refuse_override(config, ("packing",))
    return [Set((*config.root, "packing"), changes["sequence.packing"], ("cutoff_len",))]


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": names("disable_gradient_checkpointing"),
        "activations.offload": names("use_unsloth_gc"),
        "activations.reentrant": names("use_reentrant_gc", "gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    also=names("gradient_checkpointing", "recompute_granularity"),
)
LIGER: Final = Custom(
    dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), names("enable_liger_kernel")),
    _read_loss,
    _write_loss,
    also=names("use_liger_kernel"),
)
PACKING: Final = Custom(
    {"sequence.packing": names("packing")}, _read_packing, _write_packing, also=names("neat_packing")
)
