"""What TRL keeps of a forward pass: checkpointing, offloading, the loss."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set, Unknown
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.fsdp import fsdp_flag
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.losses import loss_of
from cfglint_train.frameworks.trl.settings import default_of, on, stated, trainer_of
from cfglint_train.plan.origin import Origin

ATTENTION: Final = {
    "sdpa": "sdpa",
    "eager": "eager",
    "flash_attention_2": "flash",
    "kernels-community/flash-attn2": "flash",
    "kernels-community/flash-attn": "flash",
    "flash_attention_3": "flash3",
    "kernels-community/flash-attn3": "flash3",
    "kernels-community/vllm-flash-attn3": "flash3",
}


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    asked = stated(config, "gradient_checkpointing", "boolean")
    origin = origin_of(config, "gradient_checkpointing")
    enabled = config.get("_CHECKPOINTING_")
    if enabled is True and not asked:
        place = config.origin("_CHECKPOINTING_").place
        called = Origin("inferred", place, "the script switches it on at the model", "gradient_checkpointing")
        yield "activations.checkpointing", "full", called
    elif isinstance(enabled, Unknown) and not asked:
        yield "activations.checkpointing", None, origin
    elif asked is False and fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", config.origin("fsdp_config")
    else:
        yield "activations.checkpointing", None if asked is None else "full" if asked else "none", origin
    extra = config.get("gradient_checkpointing_kwargs")
    given = extra.get("use_reentrant") if isinstance(extra, dict) else None
    if isinstance(given, bool):
        yield "activations.reentrant", given, config.origin("gradient_checkpointing_kwargs")
    elif extra is None:
        # transformers 4 asks torch for its older way (modeling_utils.py, gradient_checkpointing_enable).
        transformers = config.releases.at_least("transformers", "5.0")
        known = None if transformers is None else not transformers
        yield "activations.reentrant", known, origin_of(config, "gradient_checkpointing_kwargs")
    else:
        yield "activations.reentrant", None, config.origin("gradient_checkpointing_kwargs")
    offload = on(config, "activation_offloading")
    yield "activations.offload", "cpu" if offload else "none", origin_of(config, "activation_offloading")


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        if default_of(config, "activation_offloading") is None:
            raise CannotEdit("this trainer has no activation_offloading")
        refuse_override(config, ("activation_offloading",))
        return [Set((*config.root, "activation_offloading"), True, ("gradient_checkpointing",))]
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("TRL has no single key for that")
    if changes["activations.checkpointing"] == "none" and fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config switches it on as well")
    refuse_override(config, ("gradient_checkpointing",))
    value = changes["activations.checkpointing"] == "full"
    beside = ("gradient_accumulation_steps", "per_device_train_batch_size", "bf16")
    return [Set((*config.root, "gradient_checkpointing"), value, beside)]


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": names("gradient_checkpointing"),
        "activations.offload": names("activation_offloading"),
        "activations.reentrant": names("gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    also=names("fsdp_config"),
)


def _liger(config: Config) -> str | None:
    """The key that makes Liger compute the loss of a trainer."""
    trainer = trainer_of(config)
    candidates = ("use_liger_kernel", "use_liger") if trainer == "sft" else ("use_liger_loss", "use_liger_kernel")
    return next((one for one in candidates if on(config, one)), None)


def _read_loss(config: Config) -> Iterator[Triple]:
    trainer, key = trainer_of(config), _liger(config)
    layers = next((one for one in ("use_liger_kernel", "use_liger") if on(config, one)), None)
    yield "activations.liger_layers", layers is not None, origin_of(config, layers or "use_liger_kernel")
    if trainer is None:
        return
    # `use_liger_kernel` stands for the loss, too, in the trainers of preferences from 0.25 on.
    counts = key is not None and (trainer == "sft" or key == "use_liger_loss" or not before(config, "0.25"))
    yield "activations.fused_loss", loss_of(config, counts), origin_of(config, key or "use_liger_kernel")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.liger_layers": True} and not before(config, "1.15"):
        refuse_override(config, ("use_liger_kernel",))
        return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]
    if trainer_of(config) != "sft" or changes.get("activations.fused_loss") != "liger" or not before(config, "1.15"):
        raise CannotEdit("only SFT's loss is written automatically, and TRL has its own from 1.15 on")
    if before(config, "0.17") or not changes.get("activations.liger_layers", True):
        raise CannotEdit("use_liger_kernel is read from 0.17 on")
    if "activations.liger_layers" not in changes and not on(config, "use_liger_kernel"):
        raise CannotEdit("one key switches Liger's loss and its layers on")
    refuse_override(config, ("use_liger_kernel",))
    return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]


LIGER: Final = Custom(
    dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), names("use_liger_kernel")),
    _read_loss,
    _write_loss,
    also=names("use_liger", "use_liger_loss"),
)
