"""Layer classes compared with models that transformers itself builds."""

from __future__ import annotations

import pytest

from cfglint_train.models import lookup
from cfglint_train.models.blocks import get_layer_classes, is_layer

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mistral", "mixtral", "qwen3_moe", "gemma2", "phi3", "olmo2"])
def test_a_built_model_has_its_layers_and_no_other_familys(model_type):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        model_type, **SMALL, intermediate_size=16, vocab_size=32, pad_token_id=0, head_dim=8
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    names = {type(module).__name__ for module in model.modules()}
    blocks = get_layer_classes(model_type)
    assert blocks is not None
    assert set(blocks.decoder) <= names
    assert {name for name in names if is_layer(name)} <= {*blocks.decoder, *blocks.encoders}
    assert set(model._no_split_modules) <= names


def test_nearly_every_catalogued_model_has_its_layers():
    models = [lookup.find_entry(name) for name in lookup.list_ids()]
    without = {
        model.model_type for model in models if model is not None and get_layer_classes(model.model_type) is None
    }
    assert "llama" not in without
    assert len(without) <= 20, sorted(without)


def test_names_of_other_modules_are_no_layers():
    assert is_layer("LlamaDecoderLayer")
    assert not is_layer("Linear")
    assert not is_layer("LlamaMLP")
    assert get_layer_classes("no-such-family") is None
