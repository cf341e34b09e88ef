"""Activation lenses of TRL: checkpointing, offloading, loss."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set, Unknown
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.fsdp import read_fsdp_flag
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, is_before, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.losses import find_loss
from cfglint_train.frameworks.trl.settings import find_default, find_trainer, is_on, read_setting
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
    is_stated_on = read_setting(config, "gradient_checkpointing", "boolean")
    origin = find_origin(config, "gradient_checkpointing")
    enabled = config.get("_CHECKPOINTING_")
    if enabled is True and not is_stated_on:
        place = config.get_origin("_CHECKPOINTING_").place
        origin_of_call = Origin("inferred", place, "the script enables it on the model", "gradient_checkpointing")
        yield "activations.checkpointing", "full", origin_of_call
    elif isinstance(enabled, Unknown) and not is_stated_on:
        yield "activations.checkpointing", None, origin
    elif is_stated_on is False and read_fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", config.get_origin("fsdp_config")
    else:
        yield "activations.checkpointing", None if is_stated_on is None else "full" if is_stated_on else "none", origin
    extra = config.get("gradient_checkpointing_kwargs")
    reentrant = extra.get("use_reentrant") if isinstance(extra, dict) else None
    if isinstance(reentrant, bool):
        yield "activations.reentrant", reentrant, config.get_origin("gradient_checkpointing_kwargs")
    elif extra is None:
        # transformers 4 defaults to torch's reentrant checkpointing (modeling_utils.py, gradient_checkpointing_enable).
        transformers = config.releases.is_at_least("transformers", "5.0")
        default = None if transformers is None else not transformers
        yield "activations.reentrant", default, find_origin(config, "gradient_checkpointing_kwargs")
    else:
        yield "activations.reentrant", None, config.get_origin("gradient_checkpointing_kwargs")
    offload = is_on(config, "activation_offloading")
    yield "activations.offload", "cpu" if offload else "none", find_origin(config, "activation_offloading")


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        if find_default(config, "activation_offloading") is None:
            raise CannotEdit("this trainer has no activation_offloading")
        refuse_override(config, ("activation_offloading",))
        return [Set((*config.root, "activation_offloading"), True, ("gradient_checkpointing",))]
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("no single TRL key makes this change")
    if changes["activations.checkpointing"] == "none" and read_fsdp_flag(config, "activation_checkpointing", False):
        raise CannotEdit("fsdp_config also turns on activation checkpointing")
    refuse_override(config, ("gradient_checkpointing",))
    value = changes["activations.checkpointing"] == "full"
    siblings = ("gradient_accumulation_steps", "per_device_train_batch_size", "bf16")
    return [Set((*config.root, "gradient_checkpointing"), value, siblings)]


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": parse_routes("gradient_checkpointing"),
        "activations.offload": parse_routes("activation_offloading"),
        "activations.reentrant": parse_routes("gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    other_keys=parse_routes("fsdp_config"),
)


def _find_liger_key(config: Config) -> str | None:
    """Return the key that turns on Liger's loss in a trainer, or None."""
    trainer = find_trainer(config)
    candidates = ("use_liger_kernel", "use_liger") if trainer == "sft" else ("use_liger_loss", "use_liger_kernel")
    return next((key for key in candidates if is_on(config, key)), None)


def _read_loss(config: Config) -> Iterator[Triple]:
    trainer, key = find_trainer(config), _find_liger_key(config)
    layers = next((name for name in ("use_liger_kernel", "use_liger") if is_on(config, name)), None)
    yield "activations.liger_layers", layers is not None, find_origin(config, layers or "use_liger_kernel")
    if trainer is None:
        return
    # Since TRL 0.25, `use_liger_kernel` also turns on the loss in the preference trainers.
    is_liger_loss = key is not None and (trainer == "sft" or key == "use_liger_loss" or not is_before(config, "0.25"))
    yield "activations.fused_loss", find_loss(config, is_liger_loss), find_origin(config, key or "use_liger_kernel")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.liger_layers": True} and not is_before(config, "1.15"):
        refuse_override(config, ("use_liger_kernel",))
        return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]
    if (
        find_trainer(config) != "sft"
        or changes.get("activations.fused_loss") != "liger"
        or not is_before(config, "1.15")
    ):
        raise CannotEdit("cfglint turns on a fused loss only for SFT, and only before TRL 1.15, which has its own")
    if is_before(config, "0.17") or not changes.get("activations.liger_layers", True):
        raise CannotEdit("use_liger_kernel requires TRL 0.17 or newer")
    if "activations.liger_layers" not in changes and not is_on(config, "use_liger_kernel"):
        raise CannotEdit("use_liger_kernel turns on Liger's layers as well as its loss")
    refuse_override(config, ("use_liger_kernel",))
    return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]


LIGER: Final = Custom(
    dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), parse_routes("use_liger_kernel")),
    _read_loss,
    _write_loss,
    other_keys=parse_routes("use_liger", "use_liger_loss"),
)
