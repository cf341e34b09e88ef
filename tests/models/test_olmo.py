"""OLMo v1 settings: the published models, and OLMo's own class if it is installed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.models import lookup
from cfglint_train.models.olmo import DEFAULTS, build_olmo

OLMO2 = {
    "activation_type": "swiglu",
    "attention_layer_norm": True,
    "attention_layer_norm_with_affine": True,
    "block_type": "sequential",
    "embedding_size": 100352,
    "vocab_size": 100278,
    "include_bias": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "norm_after": True,
    "rope": True,
    "weight_tying": False,
    "max_sequence_length": 4096,
}
OLMO1 = {
    "activation_type": "swiglu",
    "block_type": "sequential",
    "embedding_size": 50304,
    "vocab_size": 50280,
    "include_bias": False,
    "layer_norm_type": "default",
    "layer_norm_with_affine": False,
    "rope": True,
    "weight_tying": False,
    "max_sequence_length": 2048,
}


@pytest.mark.parametrize(
    ("model", "parameters", "tensors", "family"),
    [
        # as OLMo 0.6.0 counts them
        ({**OLMO2, "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016}, 7298617344, 259, "olmo2"),
        (
            {**OLMO2, "d_model": 5120, "n_heads": 40, "n_layers": 40, "mlp_hidden_size": 27648},
            13716198400,
            323,
            "olmo2",
        ),
        ({**OLMO2, "d_model": 2048, "n_heads": 16, "n_layers": 16, "mlp_ratio": 8}, 1484916736, 131, "olmo2"),
        ({**OLMO1, "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016}, 6888095744, 130, "olmo"),
    ],
    ids=["OLMo2-7B", "OLMo2-13B", "OLMo2-1B", "OLMo-7B"],
)
def test_published_models(model, parameters, tensors, family):
    architecture = build_olmo(model)
    assert (architecture.parameters, architecture.tensors, architecture.model_type) == (parameters, tensors, family)


def test_agrees_with_the_converted_model():
    """Count as many parameters as for the model in transformers' layout, in fewer tensors (fused projections)."""
    model = build_olmo({**OLMO2, "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016})
    converted = lookup.find_entry("allenai/OLMo-2-1124-7B")
    for name in ("parameters", "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "intermediate", "tied"):
        assert getattr(model, name) == getattr(converted, name), name
    assert model.tensors < converted.tensors


def test_defaults_describe_a_model():
    assert build_olmo({}).hidden == DEFAULTS["d_model"]


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": "${width}"},
        {"d_model": None},
        {"n_layers": 0},
        {"n_heads": -4},
        {"n_heads": 7},
        {"mlp_ratio": 2.5},
        {"n_kv_heads": "8"},
        {"embedding_size": True},
        {"block_type": "moe"},
    ],
)
def test_what_cannot_be_told_is_unknown(change):
    assert build_olmo({"d_model": 64, "n_heads": 4, **change}) is None


@given(st.dictionaries(st.sampled_from(sorted(DEFAULTS)), st.none() | st.booleans() | st.integers() | st.text()))
def test_no_settings_break_the_reader(model):
    architecture = build_olmo(model)
    assert architecture is None or architecture.parameters > 0


@st.composite
def draw_small(draw: Any) -> dict[str, Any]:
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    model: dict[str, Any] = {
        "d_model": heads * draw(st.sampled_from([8, 16])),
        "n_heads": heads,
        "n_layers": draw(st.integers(1, 3)),
        "mlp_ratio": draw(st.sampled_from([2, 4, 8])),
        "vocab_size": draw(st.sampled_from([100, 500])),
        "embedding_size": draw(st.sampled_from([None, 512])),
        "max_sequence_length": draw(st.sampled_from([16, 32])),
        "activation_type": draw(st.sampled_from(["swiglu", "gelu", "relu"])),
        "block_type": draw(st.sampled_from(["sequential", "llama"])),
        "layer_norm_type": draw(st.sampled_from(["default", "low_precision", "rms"])),
        "bias_for_layer_norm": draw(st.sampled_from([None, True, False])),
        "clip_qkv": draw(st.sampled_from([None, 8.0])),
    }
    switches = ("weight_tying", "include_bias", "layer_norm_with_affine", "attention_layer_norm", "norm_after")
    switches += ("attention_layer_norm_with_affine", "embedding_layer_norm")
    model.update({name: draw(st.booleans()) for name in switches})
    queries = draw(st.sampled_from(["all", "one", "some"]))
    if queries == "some":
        model["n_kv_heads"] = draw(st.sampled_from([n for n in (1, 2, 4, 8) if heads % n == 0]))
    if queries == "one":
        model["multi_query_attention"] = draw(st.booleans())
    if draw(st.booleans()):
        model["mlp_hidden_size"] = draw(st.sampled_from([64, 96]))
    positions = draw(st.sampled_from(["rope", "alibi", "learned"]))
    if positions != "learned":
        model[positions] = True
    return model


@pytest.mark.oracle
@settings(max_examples=150, deadline=None)
@given(draw_small())
def test_counts_what_the_class_of_olmo_holds(model):
    pytest.importorskip("torch")
    olmo = pytest.importorskip("olmo.model", reason="held to OLMo's own class (pip install ai2-olmo==0.6.0)")
    from olmo.config import ModelConfig
    from olmo.exceptions import OLMoConfigurationError

    try:
        built = olmo.OLMo(ModelConfig(**model, init_device="meta"), init_params=False)
    except OLMoConfigurationError:
        return
    sizes = [parameter.numel() for parameter in built.parameters()]
    layer = max(sum(parameter.numel() for parameter in block.parameters()) for block in built.transformer.blocks)
    architecture = build_olmo(model)
    assert architecture is not None
    assert (architecture.parameters, architecture.tensors, architecture.largest_tensor) == (
        sum(sizes),
        len(sizes),
        max(sizes),
    )
    assert architecture.layer_parameters == layer
