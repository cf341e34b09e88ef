"""Architectures from OLMo v1 settings (the `model:` mapping of its YAML).

Defaults, layout and weight names are those of OLMo 0.6.0, `olmo/config.py` (ModelConfig) and `olmo/model.py`. Verified
against the published models: OLMo2-7B has 7,298,617,344 parameters in 259 tensors; OLMo2-13B has 323 tensors, OLMo2-1B
131 and OLMo-7B 130.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.blueprint import Block, Blueprint, Weight
from cfglint_train.models.dimensions import MAX_DIMENSION, MAX_LAYERS

DEFAULTS: Final[Mapping[str, Any]] = {
    "d_model": 768,
    "n_heads": 12,
    "n_kv_heads": None,
    "n_layers": 12,
    "mlp_ratio": 4,
    "mlp_hidden_size": None,
    "activation_type": "swiglu",
    "block_type": "sequential",
    "alibi": False,
    "rope": False,
    "multi_query_attention": None,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "embedding_layer_norm": False,
    "layer_norm_type": "default",
    "layer_norm_with_affine": True,
    "max_sequence_length": 1024,
    "include_bias": True,
    "bias_for_layer_norm": None,
    "vocab_size": 50257,
    "embedding_size": 50304,
    "weight_tying": True,
    "norm_after": False,
}


def build_olmo(settings: Mapping[str, Any], name: str = "") -> Architecture | None:
    """Return the architecture that OLMo v1 builds from `model:` settings, or None if they are invalid or unresolved.

    One dimension that cannot be resolved (an interpolation, a wrong type) makes the whole architecture unknown.
    """
    model = {**DEFAULTS, **settings}
    hidden, heads, layers = model["d_model"], model["n_heads"], model["n_layers"]
    vocab = model["embedding_size"] or model["vocab_size"]
    width = model["mlp_hidden_size"] if model["mlp_hidden_size"] is not None else _multiply(model["mlp_ratio"], hidden)
    kv_heads = _count_kv_heads(model)
    if not all(_is_positive(number) for number in (hidden, heads, layers, vocab, width, kv_heads)) or hidden % heads:
        return None
    if layers > MAX_LAYERS or model["block_type"] not in ("sequential", "llama"):
        return None
    if not (model["rope"] or model["alibi"] or _is_positive(model["max_sequence_length"])):  # learned positions
        return None
    gated = model["activation_type"] == "swiglu"
    down = width // 2 if gated else width
    plan = _build_blueprint(model, hidden, heads, kv_heads, layers, vocab, width, down)
    linears = plan.linears
    if model["weight_tying"]:
        linears += (Linear("ff_out", hidden, vocab, 1, "head"),)
    return Architecture(
        id=name or "OLMo v1",
        model_type=_get_model_type(model),
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate=down,
        tied=bool(model["weight_tying"]),
        parameters=plan.parameters,
        tensors=plan.tensors,
        largest_tensor=plan.largest_tensor,
        layer_parameters=plan.layer_parameters,
        gated=gated,
        context=model["max_sequence_length"] if _is_positive(model["max_sequence_length"]) else None,
        linears=linears,
        source="OLMo 0.6.0 olmo/model.py",
    )


def _build_blueprint(
    model: Mapping[str, Any], hidden: int, heads: int, kv_heads: int, layers: int, vocab: int, width: int, down: int
) -> Blueprint:
    bias = bool(model["include_bias"])
    key = hidden // heads * kv_heads
    if model["block_type"] == "llama":
        # Keys and values have full width, unless multi-query attention reduces them to one head.
        width_kv = hidden // heads if model["multi_query_attention"] else hidden
        attention: tuple[Weight, ...] = (
            Weight("q_proj", hidden, hidden, bias),
            Weight("k_proj", hidden, width_kv, bias),
            Weight("v_proj", hidden, width_kv, bias),
        )
    else:
        attention = (Weight("att_proj", hidden, hidden + 2 * key, bias),)
    weights = (
        *attention,
        Weight("attn_out", hidden, hidden, bias),
        Weight("ff_proj", hidden, width, bias),
        Weight("ff_out", down, hidden, bias),
    )
    vectors = 2 * _list_norm_sizes(model, hidden, model["layer_norm_with_affine"])
    if model["attention_layer_norm"]:
        affine = model["attention_layer_norm_with_affine"]
        vectors += _list_norm_sizes(model, hidden, affine) + _list_norm_sizes(model, key, affine)
    outer = [Weight("wte", vocab, hidden, part="embedding")]
    if not (model["alibi"] or model["rope"]):
        outer.append(Weight("wpe", model["max_sequence_length"], hidden, part="embedding"))
    if not model["weight_tying"]:
        outer.append(Weight("ff_out", hidden, vocab, bias, part="head"))
    outer_vectors = (1 + bool(model["embedding_layer_norm"])) * _list_norm_sizes(
        model, hidden, model["layer_norm_with_affine"]
    )
    return Blueprint(tuple(outer), outer_vectors, (Block(layers, weights, vectors),))


def _list_norm_sizes(model: Mapping[str, Any], size: int, affine: bool) -> tuple[int, ...]:
    """Return the lengths of the parameters of one norm."""
    if not affine:
        return ()
    norm_bias = model["bias_for_layer_norm"]
    return (size, size) if (model["include_bias"] if norm_bias is None else norm_bias) else (size,)


def _count_kv_heads(model: Mapping[str, Any]) -> Any:
    if model["n_kv_heads"] is not None:
        return model["n_kv_heads"]
    return 1 if model["multi_query_attention"] else model["n_heads"]


def _get_model_type(model: Mapping[str, Any]) -> str:
    """Return the transformers family with equivalent layers, or `olmo_v1` if there is none."""
    if model["layer_norm_type"] == "rms":
        if model["norm_after"]:
            return "olmo2" if model["attention_layer_norm"] else "olmo_v1"
        return "olmo_v1" if model["attention_layer_norm"] else "llama"
    return "olmo_v1" if model["layer_norm_with_affine"] or model["attention_layer_norm"] else "olmo"


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_DIMENSION


def _multiply(ratio: Any, hidden: Any) -> Any:
    return ratio * hidden if _is_positive(ratio) and _is_positive(hidden) else None
