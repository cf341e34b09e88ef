"""OLMo-core presets: the recorded counts, and OLMo-core's own classes if they are installed."""

from __future__ import annotations

import json

import pytest

from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import FUSED_PARTS, Mode
from cfglint_train.models.olmo_core import OTHER_ARGUMENTS, SHAPE_ARGUMENTS, build_preset, load_presets
from tests.support.cases import for_each
from tests.support.corpus import SHARED
from tests.support.skips import skip_inapplicable

CLOSED = [name for name, preset in load_presets().items() if "family" in preset]
OPEN = [name for name, preset in load_presets().items() if "family" not in preset]
RECORDED = SHARED / "data" / "olmo_core_presets.json"


@for_each("name", CLOSED)
def test_closed_forms_give_the_recorded_counts(name):
    architecture, preset = build_preset(name), load_presets()[name]
    assert architecture is not None
    assert architecture.parameters == preset["params"]
    assert (architecture.layers, architecture.hidden, architecture.heads) == (
        preset["n_layers"],
        preset["d_model"],
        preset["n_heads"],
    )
    if "active" in preset:
        assert architecture.active_parameters == preset["active"]


@for_each("name", [*OPEN, "no_such_preset", ""])
def test_presets_without_a_formula_are_unknown(name):
    assert build_preset(name) is None


@pytest.mark.skipif(not RECORDED.is_file(), reason=f"no shared data: no record of the presets at {RECORDED}")
def test_the_data_are_those_that_were_recorded():
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert load_presets().keys() == recorded.keys()
    for name, preset in load_presets().items():
        for key in ("params", "d_model", "n_layers", "n_heads", "n_kv_heads", "ffn"):
            if key in preset and key in recorded[name]:
                assert preset[key] == recorded[name][key], (name, key)


def test_arguments():
    base = build_preset("olmo2_7B")
    fewer = build_preset("olmo2_7B", {"n_layers": 16, "vocab_size": 50304, "rope_theta": 10000})
    assert base.parameters - fewer.parameters == 16 * base.layer_parameters + 2 * (100352 - 50304) * 4096
    tied = build_preset("olmo2_7B", {"tie_word_embeddings": True})
    assert (base.parameters - tied.parameters, tied.tied) == (100352 * 4096, True)
    assert build_preset("olmo2_7B", {"n_kv_heads": 8}).parameters < base.parameters


@pytest.mark.parametrize(
    "arguments", [{"block_name": "moe"}, {"n_layers": "32"}, {"d_model": 0}, {"vocab_size": None}, {"feed_forward": {}}]
)
def test_arguments_that_cannot_be_told_are_unknown(arguments):
    assert build_preset("olmo2_7B", arguments) is None


def test_every_argument_is_of_one_kind():
    assert not SHAPE_ARGUMENTS & OTHER_ARGUMENTS


def test_windows_of_olmo3():
    olmo3 = build_preset("olmo3_7B")
    assert (olmo3.window, olmo3.full_attention_layers) == (4096, 8)
    assert build_preset("olmo2_7B").window is None


# --- OLMo-core's own classes -----------------------------------------------------------------------------------------

VARIANTS = [
    {"n_layers": 2, "vocab_size": 256},
    {"n_layers": 3, "vocab_size": 512, "n_kv_heads": 2, "n_heads": 4, "d_model": 512},
    {"n_layers": 2, "vocab_size": 256, "qk_norm": False},
    {"n_layers": 2, "vocab_size": 256, "qk_norm": True},
    {"n_layers": 2, "vocab_size": 256, "d_model": 384, "n_heads": 6, "n_kv_heads": 6},
    {"n_layers": 2, "vocab_size": 256, "hidden_size_multiplier": 1.7, "hidden_size_multiple_of": 512},
]


@pytest.mark.oracle
@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("arguments", VARIANTS, ids=str)
def test_counts_what_the_class_of_olmo_core_holds(name, arguments):
    pytest.importorskip("torch")
    transformer = pytest.importorskip(
        "olmo_core.nn.transformer", reason="held to OLMo-core's own class (pip install ai2-olmo-core)"
    )
    try:
        built = getattr(transformer.TransformerConfig, name)(**arguments).build(init_device="meta")
    except TypeError:
        skip_inapplicable("this preset does not take these arguments")
    sizes = [parameter.numel() for parameter in built.parameters()]
    layer = max(sum(parameter.numel() for parameter in block.parameters()) for block in built.blocks.values())
    architecture = build_preset(name, arguments)
    if architecture is None:
        assert "experts" in load_presets()[name]
        assert "d_model" in arguments
        return
    assert (architecture.parameters, architecture.tensors, architecture.largest_tensor) == (
        sum(sizes),
        len(sizes),
        max(sizes),
    )
    assert architecture.layer_parameters == layer


@pytest.mark.parametrize("preset", ["olmo2_7B", "olmo3_7B"])
def test_layers_without_a_norm_of_queries_and_keys_keep_no_outputs_of_one(preset: str):
    shapes = [build_preset(preset, {"qk_norm": has_norm}) for has_norm in (True, False)]
    usual, plain = (compute_layer_cost(shape, Mode(liger=FUSED_PARTS)) for shape in shapes if shape is not None)
    assert usual is not None
    assert plain is not None
    assert shapes[0] is not None
    # Queries and keys before their norms in 16 bits, and one number per token for each norm.
    assert usual.saved - plain.saved == 2 * (2 * shapes[0].hidden + 4)
