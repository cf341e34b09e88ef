"""Architectures from an OLMo-core preset (`TransformerConfig.olmo2_7B(...)`) and its keyword arguments.

The presets are data (`olmo_core_presets.json`). The closed form reproduces the recorded parameter count of each preset
that has a `family`. Presets without a family (Gemma-3-like, nGPT, Qwen-3.5-like) have only a recorded count, so their
architectures are unknown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Experts, Linear
from cfglint_train.models.blueprint import Block, Blueprint, Weight

DATA: Final = os.path.join(os.path.dirname(__file__), "olmo_core_presets.json")

SHAPE_ARGUMENTS: Final = frozenset(
    {
        "vocab_size",
        "d_model",
        "n_layers",
        "n_heads",
        "n_kv_heads",
        "head_dim",
        "qk_norm",
        "use_head_qk_norm",
        "tie_word_embeddings",
        "hidden_size_multiplier",
        "hidden_size_multiple_of",
        "sliding_window",
    }
)
"""Keyword arguments that change shapes or the window, and that cfglint can apply."""

OTHER_ARGUMENTS: Final = frozenset(
    {
        "rope_theta",
        "rope_type",
        "rope_full_precision",
        "rope_scaling_factor",
        "layer_norm_eps",
        "dtype",
        "fused_ops",
        "use_flash",
        "attn_backend",
        "init_method",
        "init_seed",
        "init_std",
        "embed_scale",
        "embedding_init_std",
    }
)
"""Keyword arguments that do not change shapes; any argument beyond these sets makes the architecture unknown."""

WINDOW: Final = 4096
FULL_ATTENTION_PERIOD: Final = 4
"""Period of full attention in OLMo-3 presets: every fourth layer and the last one attend to the whole sequence."""


def load_presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the presets by name."""
    loaded: Mapping[str, Mapping[str, Any]] = _load_data()["presets"]
    return loaded


def build_preset(name: str, arguments: Mapping[str, Any] | None = None) -> Architecture | None:
    """Return the architecture of a preset called with `arguments`, or None if its shape cannot be determined.

    `vocab_size` is the embedding's (padded) size and defaults to dolma2's 100,352.
    """
    overrides = dict(arguments or {})
    preset = load_presets().get(name)
    if preset is None or "family" not in preset or not overrides.keys() <= SHAPE_ARGUMENTS | OTHER_ARGUMENTS:
        return None
    family = preset["family"]
    hidden = overrides.get("d_model", preset["d_model"])
    layers, heads = overrides.get("n_layers", preset["n_layers"]), overrides.get("n_heads", preset["n_heads"])
    kv_heads = overrides.get("n_kv_heads", preset.get("n_kv_heads")) or heads
    vocab = overrides.get("vocab_size", _load_data()["vocab"])
    if not all(isinstance(number, int) and number > 0 for number in (hidden, layers, heads, kv_heads, vocab)):
        return None
    if "experts" in preset and hidden != preset["d_model"]:
        return None  # the data do not record how the experts' width depends on it
    head_dim = overrides.get("head_dim") or preset.get("head_dim") or hidden // heads
    width = _compute_width(preset, overrides, hidden)
    tied = bool(overrides.get("tie_word_embeddings", preset.get("tied", False)))
    experts = Experts(*preset["experts"]) if "experts" in preset else None
    plan = _build_blueprint(preset, overrides, hidden, layers, heads, kv_heads, head_dim, vocab, width, tied)
    has_no_query_norm = family in ("olmo2", "olmo3") and not _has_query_norm(preset, overrides)
    windowed = family == "olmo3" and overrides.get("sliding_window", True)
    linears = plan.linears + ((Linear("w_out", hidden, vocab, 1, "head"),) if tied else ())
    return Architecture(
        id=name,
        model_type=family,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=width,
        tied=tied,
        parameters=plan.parameters,
        tensors=plan.tensors,
        largest_tensor=plan.largest_tensor,
        layer_parameters=plan.layer_parameters,
        experts=experts,
        window=WINDOW if windowed else None,
        full_attention_layers=_count_full_attention_layers(layers) if windowed else None,
        linears=linears,
        expert_parameters=plan.expert_parameters,
        active_parameters=plan.parameters
        - plan.expert_parameters
        + plan.expert_parameters * experts.per_token // experts.count
        if experts
        else None,
        source=str(_load_data()["source"]),
        variant="olmo2_without_qk_norm" if has_no_query_norm else "",
    )


def _has_query_norm(preset: Mapping[str, Any], overrides: Mapping[str, Any]) -> bool:
    return bool(overrides.get("qk_norm", preset["family"] != "llama"))


def _compute_width(preset: Mapping[str, Any], overrides: Mapping[str, Any], hidden: int) -> int:
    """Return the MLP's width: the preset's, or the result of `llama_like`'s rule if an argument affects it."""
    touched = {"d_model", "hidden_size_multiplier", "hidden_size_multiple_of"} & overrides.keys()
    if "experts" in preset:
        return int(preset["experts"][2])
    if not touched or "multiple_of" not in preset:
        return int(preset["ffn"])
    width = int(8 * hidden / 3)
    multiplier = overrides.get("hidden_size_multiplier", preset["multiplier"])
    if multiplier is not None:
        width = int(multiplier * width)
    multiple = overrides.get("hidden_size_multiple_of", preset["multiple_of"])
    return int(multiple * -(-width // multiple))


def _build_blueprint(
    preset: Mapping[str, Any],
    overrides: Mapping[str, Any],
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    width: int,
    tied: bool,
) -> Blueprint:
    query, key = heads * head_dim, kv_heads * head_dim
    weights = [
        Weight("w_q", hidden, query),
        Weight("w_k", hidden, key),
        Weight("w_v", hidden, key),
        Weight("w_out", query, hidden),
    ]
    if "experts" in preset:
        count, _, inner, shared = preset["experts"]
        weights.append(Weight("router", hidden, count, linear=False))
        weights += [Weight(name, hidden, inner, experts=count) for name in ("w1", "w2", "w3")]
        width = shared
    if width:
        bias = bool(preset.get("shared_bias"))
        weights += [Weight(name, *sides, bias) for name, sides in _list_mlp_shapes(hidden, width)]
    vectors: tuple[int, ...] = (hidden, hidden)
    if _has_query_norm(preset, overrides):
        per_head = overrides.get("use_head_qk_norm", preset["family"] == "qwen3")
        vectors += (head_dim, head_dim) if per_head else (query, key)
    outer = [Weight("embeddings", vocab, hidden, part="embedding")]
    if not tied:
        outer.append(Weight("w_out", hidden, vocab, part="head"))
    return Blueprint(tuple(outer), (hidden,), (Block(layers, tuple(weights), vectors),))


def _list_mlp_shapes(hidden: int, width: int) -> tuple[tuple[str, tuple[int, int]], ...]:
    return ("w1", (hidden, width)), ("w2", (width, hidden)), ("w3", (hidden, width))


def _count_full_attention_layers(layers: int) -> int:
    return sum((index + 1) % FULL_ATTENTION_PERIOD == 0 or index == layers - 1 for index in range(layers))


_loaded: dict[str, Any] = {}


def _load_data() -> dict[str, Any]:
    if not _loaded:
        with open(DATA, encoding="utf-8") as stream:
            _loaded.update(json.load(stream))
    return _loaded
