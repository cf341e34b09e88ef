"""What axolotl keeps of a forward pass: checkpointing, attention, the loss."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Append, CannotEdit, Change, Set
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.axolotl.settings import LIGER_PLUGIN, fsdp_setting, has_plugin, read_bool, read_integer
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, granted, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom, read_only
from cfglint_train.plan.origin import Origin

if TYPE_CHECKING:
    from cfglint_train.frameworks.hf_trainer.trl_losses import Made


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    stated = config.get("gradient_checkpointing")
    origin = origin_of(config, "gradient_checkpointing")
    offload, offload_origin = "none", origin_of(config, "activation_offloading")
    on = stated in ("offload", "offload_disk") or bool(read_bool(config, "gradient_checkpointing"))
    fsdp = fsdp_setting(config, "activation_checkpointing")
    if stated in ("offload", "offload_disk"):
        offload, offload_origin = ("disk" if stated == "offload_disk" else "cpu"), origin
    elif config.get("activation_offloading") not in (None, False):
        # "disk" is documented, but the comparison misses it and the CPU is used (loaders/patch_manager.py).
        offload = "cpu"
    if on and config.get("selective_checkpointing") not in (None, False):
        yield "activations.checkpointing", "selective", config.origin("selective_checkpointing")
    elif on:
        yield "activations.checkpointing", "full", origin
    elif fsdp is True:
        yield "activations.checkpointing", "full", config.origin("fsdp_config")
    elif fsdp in (None, False) and (stated is None or read_bool(config, "gradient_checkpointing") is False):
        yield "activations.checkpointing", "none", origin
    yield "activations.offload", offload, offload_origin
    extra = config.get("gradient_checkpointing_kwargs")
    if isinstance(extra, dict) and isinstance(extra.get("use_reentrant"), bool):
        yield "activations.reentrant", extra["use_reentrant"], config.origin("gradient_checkpointing_kwargs")
    elif on:
        reentrant = config.get("rl") is None and not config.get("unfrozen_parameters")
        if not before(config, "0.21.0"):
            reentrant = False
        yield "activations.reentrant", reentrant, Origin("inferred", note="axolotl's choice where checkpointing is on")


def _offloaded(config: Config) -> list[Change]:
    """Inputs of checkpointed layers kept on the host (axolotl 0.18.0 monkeypatch/checkpoint_activation_offload.py).

    Other values take TRL's offloader, which replaces checkpointing where an adapter is trained.
    """
    if before(config, "0.18.0"):
        raise CannotEdit("hidden_states came with axolotl 0.18.0")
    if config.get("rl") is not None:
        raise CannotEdit("axolotl's preference trainers do not offload activations")
    if config.get("gradient_checkpointing") is not True:
        raise CannotEdit("axolotl offloads the inputs of layers with gradient_checkpointing: true only")
    if config.get("activation_offloading") not in (None, False):
        raise CannotEdit("activation_offloading already sets how activations are offloaded")
    extra = config.get("gradient_checkpointing_kwargs")
    if isinstance(extra, dict) and extra.get("use_reentrant"):
        raise CannotEdit("reentrant checkpointing offloads in another way")
    refuse_override(config, ("activation_offloading",))
    return [Set((*config.root, "activation_offloading"), "hidden_states", ("gradient_checkpointing",))]


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        return _offloaded(config)
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("axolotl has no single key for that")
    if config.get("gradient_checkpointing") in ("offload", "offload_disk"):
        raise CannotEdit("gradient_checkpointing also sets how activations are offloaded")
    if config.get("selective_checkpointing") not in (None, False):
        raise CannotEdit("selective_checkpointing sets what is recomputed")
    if changes["activations.checkpointing"] == "none" and config.get("activation_offloading") not in (None, False):
        raise CannotEdit("axolotl refuses activation_offloading without gradient_checkpointing")
    if changes["activations.checkpointing"] == "none" and fsdp_setting(config, "activation_checkpointing") is True:
        raise CannotEdit("fsdp_config switches FSDP's own activation_checkpointing on")
    model = str(config.get("base_model", default="")).lower()
    if changes["activations.checkpointing"] == "full":
        if "mpt" in model:
            raise CannotEdit("axolotl refuses gradient_checkpointing for MPT models")
        if "nemotron-h" in model and not read_bool(config, "sample_packing"):
            raise CannotEdit("axolotl refuses gradient_checkpointing for nemotron-h without sample_packing")
        if config.get("rl") == "ebft" and read_bool(config, "torch_compile"):
            raise CannotEdit("axolotl refuses gradient_checkpointing with torch_compile in EBFT")
    refuse_override(config, ("gradient_checkpointing",))
    value = changes["activations.checkpointing"] == "full"
    return [Set((*config.root, "gradient_checkpointing"), value, ("micro_batch_size", "sequence_len"))]


_ATTENTION: Final = {
    "sdpa": "sdpa",
    "eager": "eager",
    "flash_attention_2": "flash",
    "flash_attention_3": "flash3",
    "flash_attention_4": "flash4",
    "flash_attention_torch": "flash",
    "flex_attention": "flex",
    "xformers": "xformers",
    "sage": "sage",
    "fp8": "fp8",
    "varlen": "flash",
}

_LEGACY_ATTENTION: Final = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex",
    "flash_attention": "flash",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}


def _read_attention(config: Config) -> Iterator[Triple]:
    stated = config.get("attn_implementation")
    if isinstance(stated, str):
        kernel = "flash" if "flash-attn" in stated else None
        yield "activations.attention", _ATTENTION.get(stated, kernel), config.origin("attn_implementation")
        return
    for key, meaning in _LEGACY_ATTENTION.items():
        if read_bool(config, key):
            yield "activations.attention", meaning, config.origin(key)
            return
    yield "activations.attention", "sdpa", granted(config, ("attn_implementation",))


def _preference_loss(config: Config) -> tuple[str, str]:
    """The loss of a trainer of trl, and the key that chooses it (0.18.0, core/trainers/dpo and grpo)."""
    plain, tiles = made_by_trl(config).loss, not before(config, "0.21.0")  # trl 1.14 has tiles where Liger is asked for
    if config.get("rl") in ("dpo", "ipo"):
        liger = "tiles" if tiles else "liger_pairs"
        return (liger if read_bool(config, "dpo_use_liger_kernel") else plain), "dpo_use_liger_kernel"
    if config.get("rl") in ("grpo", "gdpo"):
        liger = "tiles" if tiles else "liger_policy"
        return (liger if read_bool(config, "trl", "use_liger_loss") else plain), "trl.use_liger_loss"
    return plain, "rl"


# The trl that a release pins (`requires.json`).
_TRL: Final = Since(
    (
        ("", "0.12.0"),
        ("0.7.0", "0.15.0"),
        ("0.8.0", "0.16.0"),
        ("0.9.0", "0.17.0"),
        ("0.10.0", "0.18.1"),
        ("0.12.0", "0.21.0"),
        ("0.13.0", "0.25.0"),
        ("0.13.2", "0.27.0"),
        ("0.15.0", "0.29.0"),
        ("0.17.0", "1.5.1"),
        ("0.18.0", "1.8.0"),
        ("0.19.0", "1.9.0"),
        ("0.20.0", "1.13.0"),
        ("0.21.0", "1.14.1"),
    )
)
_TRAINERS: Final = {"dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "cpo", "grpo": "grpo",
                    "gdpo": "grpo"}  # fmt: skip
"""`rl` -> the trainer of trl that trains (core/builders/rl.py)."""


def made_by_trl(config: Config) -> Made:
    """How the trainer of the trl that axolotl pins makes its loss."""
    from cfglint_train.frameworks.hf_trainer.trl_losses import made_at  # only for `rl`

    rl = config.get("rl")
    return made_at(_TRAINERS.get(rl, "") if isinstance(rl, str) else "", _TRL.at(config.release))


def _read_loss(config: Config) -> Iterator[Triple]:
    liger, cce = has_plugin(config, "liger"), has_plugin(config, "cut_cross_entropy")
    if config.get("rl") is not None:  # trl's trainers hand the model no labels: they need its logits
        kind, key = _preference_loss(config)
        yield "activations.fused_loss", kind, origin_of(config, key, "rl")
    elif has_plugin(config, "kd") and read_bool(config, "kd_trainer") and not before(config, "0.18.0"):
        # integrations/kd/trainer.py: the model makes one token's logits, the loss 1,024 tokens' at a time.
        yield "activations.fused_loss", "liger_distilled", config.origin("kd_trainer")
    elif cce and config.get("cut_cross_entropy", default=True) is not False:
        yield "activations.fused_loss", "cce", origin_of(config, "cut_cross_entropy", "plugins")
    elif liger and read_bool(config, "liger_fused_linear_cross_entropy"):
        yield "activations.fused_loss", "liger", config.origin("liger_fused_linear_cross_entropy")
    elif read_bool(config, "chunked_cross_entropy"):
        yield "activations.fused_loss", "chunked", config.origin("chunked_cross_entropy")
    else:
        yield "activations.fused_loss", "none", origin_of(config, "plugins")
    layers = liger and any(read_bool(config, f"liger_{part}") for part in ("rms_norm", "glu_activation", "swiglu"))
    yield "activations.liger_layers", layers, origin_of(config, "liger_rms_norm", "plugins")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if set(changes) != {"activations.fused_loss"}:
        raise CannotEdit("axolotl has no single key for that")
    if has_plugin(config, "cut_cross_entropy") and config.get("cut_cross_entropy", default=True) is not False:
        raise CannotEdit("Cut Cross Entropy is already loaded; axolotl takes one fused loss")
    if changes["activations.fused_loss"] == "liger":
        if (read_integer(config, "tensor_parallel_size") or 1) > 1:
            raise CannotEdit("axolotl refuses Liger's loss under tensor parallelism")
        if config.get("rl") is not None:
            raise CannotEdit("axolotl's preference trainers do not take their loss from Liger's key")
        if read_bool(config, "chunked_cross_entropy") or read_bool(config, "liger_cross_entropy"):
            raise CannotEdit("another cross-entropy is switched on; axolotl takes one")
        written: list[Change] = []
        if not has_plugin(config, "liger"):
            written.append(Append((*config.root, "plugins"), LIGER_PLUGIN, ("base_model",)))
        key = (*config.root, "liger_fused_linear_cross_entropy")
        return [*written, Set(key, True, ("liger_glu_activation", "liger_rms_norm", "plugins", "base_model"))]
    raise CannotEdit("only Liger's loss is written automatically")


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": names("gradient_checkpointing"),
        "activations.offload": names("activation_offloading"),
        "activations.reentrant": names("gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    also=names("selective_checkpointing"),
)
ATTENTION: Final = Custom(
    {"activations.attention": names("attn_implementation", *_LEGACY_ATTENTION)}, _read_attention, read_only
)
LOSS: Final = Custom(
    {
        "activations.fused_loss": names("liger_fused_linear_cross_entropy"),
        "activations.liger_layers": names("plugins"),
    },
    _read_loss,
    _write_loss,
    also=names(
        "cut_cross_entropy", "chunked_cross_entropy", "dpo_use_liger_kernel", "trl.use_liger_loss", "kd_trainer"
    ),
)
