"""Model of an OLMo-core run: a preset with changes, or explicit dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config, Triple
from cfglint_train.frameworks.lens_types import Custom, StatedValue, refuse_write
from cfglint_train.frameworks.olmo_core.settings import find

# Model keys that affect neither the parameters nor the activations that layers keep.
_IRRELEVANT_KEYS: Final = frozenset(
    (
        "_CLASS_", "_FACTORY_", "attn_backend", "use_flash", "fused_ops", "rope_theta", "rope_type", "rope_scaling",
        "rope_full_precision", "layer_norm_eps", "layer_norm_name", "init_method", "init_seed", "init_std",
        "embedding_init_std", "sliding_window", "dtype", "freeze_params", "compile", "dp_config", "ac_config",
        "float8_config", "tp_config", "lb_loss_weight", "z_loss_weight",
    )
)  # fmt: skip

# Nested model keys that a script may set and that affect neither parameters nor kept activations.
_IRRELEVANT_NESTED_KEYS: Final = frozenset(
    ("loss_implementation", "backend", "use_flash", "rope", "init_method", "sliding_window")
)


def _read_model(config: Config) -> Iterator[Triple]:
    """Yield the preset's name with its changed dimensions, or the dimensions themselves."""
    factory = config.get_value("model", "_FACTORY_")
    node = config.document.find_node((*config.root, "model"))
    if not isinstance(node, MappingNode):
        return
    origin = config.get_origin("model")
    if factory is MISSING:
        dimensions = _read_dimensions(config)
        if dimensions is not None:
            origin = origin._replace(kind="inferred", note="the model section")
            yield "model.architecture", dimensions, origin
        return
    stated_factory = find(config, ("model", "_FACTORY_"))
    if isinstance(stated_factory, StatedValue):
        origin = stated_factory.origin
    overrides = []
    for name in node.index:
        if name in _IRRELEVANT_KEYS:
            continue
        value = config.get_value("model", name)
        if isinstance(value, dict) and _is_irrelevant(value):
            continue
        if isinstance(value, (dict, list)) or type(value).__name__ == "Unknown":
            yield "model.id", None, origin._replace(note=f"{name} of the preset {factory} is changed")
            return
        overrides.append((name, value))
    if getattr(node, "open", ""):
        return
    yield "model.id", f"olmo_core:{factory}", origin
    yield "model.overrides", tuple(overrides), origin._replace(kind="inferred")


def _is_irrelevant(value: Mapping[str, Any]) -> bool:
    """Return whether attributes that are set below a preset leave the model's shape unchanged."""
    return all(
        key in _IRRELEVANT_NESTED_KEYS or (isinstance(item, dict) and _is_irrelevant(item))
        for key, item in value.items()
    )


def _read_dimensions(config: Config) -> tuple[tuple[str, Any], ...] | None:
    """Return the dimensions of a dense decoder under OLMo (v1) names, or None for any other model.

    OLMo (v1) computes sizes in the same way.
    """
    block = config.get_value("model", "block")
    if not isinstance(block, dict):
        return None
    mixer = block.get("sequence_mixer", block.get("attention"))
    forward, head = block.get("feed_forward"), config.get_value("model", "lm_head")
    if not isinstance(mixer, dict) or not isinstance(forward, dict) or block.get("feed_forward_moe") is not None:
        return None
    kind = block.get("name", "default")
    if kind not in ("default", "reordered_norm") or config.get("model", "block_pattern") is not None:
        return None
    block_overrides = config.get("model", "block_overrides") or {}
    if not isinstance(block_overrides, dict) or config.get("model", "embedding_norm"):
        return None
    if any(_strip_rotary(override) != _strip_rotary(block) for override in block_overrides.values()):
        return None
    if mixer.get("use_head_qk_norm") or mixer.get("head_dim") or mixer.get("gate") or mixer.get("bias", True):
        return None
    if forward.get("bias", True) or not isinstance(head, dict) or head.get("bias", True):
        return None
    numbers = {
        "d_model": config.get("model", "d_model"),
        "n_layers": config.get("model", "n_layers"),
        "vocab_size": config.get("model", "vocab_size"),
        "n_heads": mixer.get("n_heads"),
        "hidden": forward.get("hidden_size"),
    }
    if not all(type(number) is int and number > 0 for number in numbers.values()):
        return None
    return (
        ("d_model", numbers["d_model"]),
        ("n_heads", numbers["n_heads"]),
        ("n_kv_heads", mixer.get("n_kv_heads")),
        ("n_layers", numbers["n_layers"]),
        # OLMo (v1) counts the gate and the up projection together.
        ("mlp_hidden_size", 2 * numbers["hidden"]),
        ("activation_type", "swiglu"),
        ("block_type", "sequential"),
        ("rope", True),
        ("attention_layer_norm", mixer.get("qk_norm") is not None),
        ("attention_layer_norm_with_affine", True),
        ("layer_norm_type", "rms"),
        ("layer_norm_with_affine", True),
        ("include_bias", False),
        ("bias_for_layer_norm", False),
        ("vocab_size", numbers["vocab_size"]),
        ("embedding_size", numbers["vocab_size"]),
        ("weight_tying", config.get("model", "tie_word_embeddings") is True),
        ("norm_after", kind == "reordered_norm"),
    )


def _strip_rotary(block: Any) -> Any:
    """Return a block without its rotary embedding settings, which have no parameters."""
    if not isinstance(block, dict):
        return block
    return {key: _strip_rotary(value) for key, value in block.items() if key != "rope"}


MODEL: Final = Custom(
    dict.fromkeys(("model.id", "model.overrides", "model.architecture"), (("model",),)), _read_model, refuse_write
)
