"""axolotl lenses for activations: checkpointing, attention and loss."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Append, CannotEdit, Change, Set
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.axolotl.settings import (
    LIGER_PLUGIN,
    get_fsdp_setting,
    has_plugin,
    read_bool,
    read_integer,
)
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import Custom, refuse_write
from cfglint_train.plan.origin import Origin

if TYPE_CHECKING:
    from cfglint_train.frameworks.hf_trainer.trl_losses import TrlLoss


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    stated = config.get("gradient_checkpointing")
    origin = find_origin(config, "gradient_checkpointing")
    offload, offload_origin = "none", find_origin(config, "activation_offloading")
    is_enabled = stated in ("offload", "offload_disk") or bool(read_bool(config, "gradient_checkpointing"))
    fsdp_checkpointing = get_fsdp_setting(config, "activation_checkpointing")
    if stated in ("offload", "offload_disk"):
        offload, offload_origin = ("disk" if stated == "offload_disk" else "cpu"), origin
    elif config.get("activation_offloading") not in (None, False):
        # "disk" is documented, but the code never matches it and offloads to the CPU (loaders/patch_manager.py).
        offload = "cpu"
    if is_enabled and config.get("selective_checkpointing") not in (None, False):
        yield "activations.checkpointing", "selective", config.get_origin("selective_checkpointing")
    elif is_enabled:
        yield "activations.checkpointing", "full", origin
    elif fsdp_checkpointing is True:
        yield "activations.checkpointing", "full", config.get_origin("fsdp_config")
    elif fsdp_checkpointing in (None, False) and (
        stated is None or read_bool(config, "gradient_checkpointing") is False
    ):
        yield "activations.checkpointing", "none", origin
    yield "activations.offload", offload, offload_origin
    checkpointing_kwargs = config.get("gradient_checkpointing_kwargs")
    if isinstance(checkpointing_kwargs, dict) and isinstance(checkpointing_kwargs.get("use_reentrant"), bool):
        yield (
            "activations.reentrant",
            checkpointing_kwargs["use_reentrant"],
            config.get_origin("gradient_checkpointing_kwargs"),
        )
    elif is_enabled:
        reentrant = config.get("rl") is None and not config.get("unfrozen_parameters")
        if not is_before(config, "0.21.0"):
            reentrant = False
        yield "activations.reentrant", reentrant, Origin("inferred", note="axolotl's default when checkpointing is on")


def _write_offload(config: Config) -> list[Change]:
    """Return the change that offloads the inputs of checkpointed layers to the host.

    It sets `activation_offloading: hidden_states` (axolotl 0.18.0 monkeypatch/checkpoint_activation_offload.py). Other
    values select TRL's offloader, which replaces checkpointing if an adapter is trained. Raise `CannotEdit` if axolotl
    does not support it with the other settings.
    """
    if is_before(config, "0.18.0"):
        raise CannotEdit("hidden_states requires axolotl 0.18.0 or newer")
    if config.get("rl") is not None:
        raise CannotEdit("axolotl's preference trainers do not offload activations")
    if config.get("gradient_checkpointing") is not True:
        raise CannotEdit("axolotl only offloads layer inputs with gradient_checkpointing: true")
    if config.get("activation_offloading") not in (None, False):
        raise CannotEdit("activation_offloading already sets how activations are offloaded")
    checkpointing_kwargs = config.get("gradient_checkpointing_kwargs")
    if isinstance(checkpointing_kwargs, dict) and checkpointing_kwargs.get("use_reentrant"):
        raise CannotEdit("reentrant checkpointing offloads differently")
    refuse_override(config, ("activation_offloading",))
    return [Set((*config.root, "activation_offloading"), "hidden_states", ("gradient_checkpointing",))]


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) == {"activations.offload": "cpu"}:
        return _write_offload(config)
    if set(changes) != {"activations.checkpointing"} or changes["activations.checkpointing"] not in ("full", "none"):
        raise CannotEdit("axolotl has no single key for that")
    if config.get("gradient_checkpointing") in ("offload", "offload_disk"):
        raise CannotEdit("gradient_checkpointing also sets how activations are offloaded")
    if config.get("selective_checkpointing") not in (None, False):
        raise CannotEdit("selective_checkpointing sets what is recomputed")
    if changes["activations.checkpointing"] == "none" and config.get("activation_offloading") not in (None, False):
        raise CannotEdit("axolotl rejects activation_offloading without gradient_checkpointing")
    if changes["activations.checkpointing"] == "none" and get_fsdp_setting(config, "activation_checkpointing") is True:
        raise CannotEdit("fsdp_config turns on FSDP's own activation_checkpointing")
    model = str(config.get("base_model", default="")).lower()
    if changes["activations.checkpointing"] == "full":
        if "mpt" in model:
            raise CannotEdit("axolotl rejects gradient_checkpointing for MPT models")
        if "nemotron-h" in model and not read_bool(config, "sample_packing"):
            raise CannotEdit("axolotl rejects gradient_checkpointing for nemotron-h without sample_packing")
        if config.get("rl") == "ebft" and read_bool(config, "torch_compile"):
            raise CannotEdit("axolotl rejects gradient_checkpointing with torch_compile in EBFT")
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
        yield "activations.attention", _ATTENTION.get(stated, kernel), config.get_origin("attn_implementation")
        return
    for key, attention in _LEGACY_ATTENTION.items():
        if read_bool(config, key):
            yield "activations.attention", attention, config.get_origin(key)
            return
    yield "activations.attention", "sdpa", build_default_origin(config, ("attn_implementation",))


def _find_preference_loss(config: Config) -> tuple[str, str]:
    """Return the loss of a TRL trainer and the key that selects it (axolotl 0.18.0 core/trainers/dpo and grpo)."""
    trl_loss, has_tiles = (
        find_pinned_trl_loss(config).loss,
        not is_before(config, "0.21.0"),
    )  # TRL 1.14 computes the Liger loss in tiles
    if config.get("rl") in ("dpo", "ipo"):
        liger = "tiles" if has_tiles else "liger_pairs"
        return (liger if read_bool(config, "dpo_use_liger_kernel") else trl_loss), "dpo_use_liger_kernel"
    if config.get("rl") in ("grpo", "gdpo"):
        liger = "tiles" if has_tiles else "liger_policy"
        return (liger if read_bool(config, "trl", "use_liger_loss") else trl_loss), "trl.use_liger_loss"
    return trl_loss, "rl"


# The TRL release that each axolotl release pins (`requires.json`).
_TRL_RELEASES: Final = ValueByRelease(
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
_TRL_TRAINERS: Final = {"dpo": "dpo", "ipo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "cpo", "grpo": "grpo",
                    "gdpo": "grpo"}  # fmt: skip
"""TRL trainer for each value of `rl` (axolotl core/builders/rl.py)."""


def find_pinned_trl_loss(config: Config) -> TrlLoss:
    """Return the loss of the config's trainer in the TRL release that its axolotl release pins."""
    from cfglint_train.frameworks.hf_trainer.trl_losses import find_trl_loss  # needed only for `rl`

    rl = config.get("rl")
    return find_trl_loss(_TRL_TRAINERS.get(rl, "") if isinstance(rl, str) else "", _TRL_RELEASES.get_at(config.release))


# Each kernel is replaced only if its key is true (integrations/liger, 0.5.2 to 0.21.0). The rotary embedding's saves
# nothing and counts only beside another.
_LIGER_PARTS: Final = {
    "norm": ("liger_rms_norm",), "rotary": ("liger_rope",), "mlp": ("liger_glu_activation", "liger_swiglu"),
}  # fmt: skip


def _read_loss(config: Config) -> Iterator[Triple]:
    has_liger, has_cce = has_plugin(config, "liger"), has_plugin(config, "cut_cross_entropy")
    if config.get("rl") is not None:  # TRL's trainers pass no labels to the model, because they need its logits
        loss, key = _find_preference_loss(config)
        yield "activations.fused_loss", loss, find_origin(config, key, "rl")
    elif has_plugin(config, "kd") and read_bool(config, "kd_trainer") and not is_before(config, "0.18.0"):
        # integrations/kd/trainer.py: the model computes logits of one token, and the loss those of 1,024 at a time.
        yield "activations.fused_loss", "liger_distilled", config.get_origin("kd_trainer")
    elif has_cce and config.get("cut_cross_entropy", default=True) is not False:
        yield "activations.fused_loss", "cce", find_origin(config, "cut_cross_entropy", "plugins")
    elif has_liger and read_bool(config, "liger_fused_linear_cross_entropy"):
        yield "activations.fused_loss", "liger", config.get_origin("liger_fused_linear_cross_entropy")
    elif read_bool(config, "chunked_cross_entropy"):
        yield "activations.fused_loss", "chunked", config.get_origin("chunked_cross_entropy")
    else:
        yield "activations.fused_loss", "none", find_origin(config, "plugins")
    parts = tuple(part for part, keys in _LIGER_PARTS.items() if any(read_bool(config, key) for key in keys))
    has_layers = has_liger and parts not in ((), ("rotary",))
    yield "activations.liger_layers", has_layers, find_origin(config, "liger_rms_norm", "plugins")
    if has_layers:
        yield "activations.liger_parts", parts, find_origin(config, "liger_rms_norm", "plugins")


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if set(changes) != {"activations.fused_loss"}:
        raise CannotEdit("axolotl has no single key for that")
    if has_plugin(config, "cut_cross_entropy") and config.get("cut_cross_entropy", default=True) is not False:
        raise CannotEdit("Cut Cross Entropy is already loaded; axolotl allows only one fused loss")
    if changes["activations.fused_loss"] == "liger":
        if (read_integer(config, "tensor_parallel_size") or 1) > 1:
            raise CannotEdit("axolotl rejects Liger's loss under tensor parallelism")
        if config.get("rl") is not None:
            raise CannotEdit("axolotl's preference trainers ignore the Liger key for the loss")
        if read_bool(config, "chunked_cross_entropy") or read_bool(config, "liger_cross_entropy"):
            raise CannotEdit("another cross-entropy is turned on; axolotl allows only one")
        edits: list[Change] = []
        if not has_plugin(config, "liger"):
            edits.append(Append((*config.root, "plugins"), LIGER_PLUGIN, ("base_model",)))
        key = (*config.root, "liger_fused_linear_cross_entropy")
        return [*edits, Set(key, True, ("liger_glu_activation", "liger_rms_norm", "plugins", "base_model"))]
    raise CannotEdit("only Liger's loss is written automatically")


CHECKPOINTING: Final = Custom(
    {
        "activations.checkpointing": parse_routes("gradient_checkpointing"),
        "activations.offload": parse_routes("activation_offloading"),
        "activations.reentrant": parse_routes("gradient_checkpointing_kwargs"),
    },
    _read_checkpointing,
    _write_checkpointing,
    other_keys=parse_routes("selective_checkpointing"),
)
ATTENTION: Final = Custom(
    {"activations.attention": parse_routes("attn_implementation", *_LEGACY_ATTENTION)}, _read_attention, refuse_write
)
LOSS: Final = Custom(
    {
        "activations.fused_loss": parse_routes("liger_fused_linear_cross_entropy"),
        "activations.liger_layers": parse_routes("plugins"),
        "activations.liger_parts": parse_routes("liger_rms_norm"),
    },
    _read_loss,
    _write_loss,
    other_keys=parse_routes(
        "cut_cross_entropy", "chunked_cross_entropy", "dpo_use_liger_kernel", "trl.use_liger_loss", "kd_trainer"
    ),
)
