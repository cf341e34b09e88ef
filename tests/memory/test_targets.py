"""Matrices that get an adapter, compared with PEFT on models that transformers builds."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.hf_config import parse_config
from cfglint_train.models.modules import get_module_paths
from tests.memory.jobs import make_plan

COMMON = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32,
    "intermediate_size": 24, "pad_token_id": 0, "head_dim": 8,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "gemma2": {},
    "phi3": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "mlp_only_layers": [0]},
    "deepseek_v3": {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "num_key_value_heads": 2,
    },
    "gpt_neox": {"num_key_value_heads": 2},
}  # fmt: skip


@cache
def make_config(model_type: str) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoConfig.for_model(model_type, **{**COMMON, **MODELS[model_type]})


def count_by_peft(model_type: str, targets: Any) -> int | None:
    """Count the trained elements, or return None if PEFT raises an error."""
    torch, transformers, peft = (pytest.importorskip(name) for name in ("torch", "transformers", "peft"))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(make_config(model_type))
    try:
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=targets))
    except ValueError:
        return None
    return int(model.get_nb_trainable_parameters()[0])


def count_trained(architecture: Architecture, targets: Any) -> int | None:
    """Count the trained elements, or return None if the run is not estimated, which names the field."""
    is_pattern = isinstance(targets, str)
    job = make_plan(
        method__tuning="lora", method__lora_rank=4, method__lora_targets=() if is_pattern else tuple(targets),
        method__lora_target_pattern=targets if is_pattern else None, precision__adapter="fp32",
    )  # fmt: skip
    setup, reader = read_setup(job, architecture)
    if setup is None:
        assert reader.missing == ["method.lora_target_pattern" if is_pattern else "method.lora_targets"]
        assert not estimate(job, architecture).phases
        return None
    return setup.weights.trained


TARGETS = [
    ["q_proj", "v_proj"],
    ["self_attn.q_proj"],
    ["self_attn.q_proj", "o_proj"],
    ["attn.q_proj"],
    ["proj"],
    ["query_key_value", "attention.dense"],
    ["lm_head"],
    ["model.layers.0.self_attn.q_proj"],
    r"model\.layers\.\d+\.(mlp|self_attn)\.(up|down|gate|q|k|v|o)_proj",
    r"model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj",
    r".*\.self_attn\..*_proj",
    r".*\.(q_proj|v_proj)",
    r".*\.layers\.1\.self_attn\.q_proj",
    r".*\.layers\.[01]\.self_attn\.q_proj",
    r".*self_attn\.(q_a_proj|kv_b_proj)",
    r".*\.attention\.(query_key_value|dense)",
    r".*\.shared_experts\.up_proj",
    r"(?!.*lm_head).*_proj",
    "q_proj",
    "lm_head",
    "self_attn.q_proj",
]
SOME_LAYERS = (r".*\.layers\.1\.self_attn\.q_proj", ["model.layers.0.self_attn.q_proj"])
"""Valid for PEFT, and for only some layers."""


@pytest.mark.oracle
@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.parametrize("model_type", MODELS)
def test_an_estimate_counts_the_adapters_that_peft_makes_or_there_is_none(model_type: str, targets: Any) -> None:
    architecture = parse_config(make_config(model_type).to_dict())
    assert architecture is not None
    count = count_trained(architecture, targets)
    assert count in (None, count_by_peft(model_type, targets))


@pytest.mark.oracle
@pytest.mark.parametrize("targets", TARGETS, ids=str)
def test_what_chooses_whole_layers_of_a_plain_model_is_counted(targets: Any) -> None:
    architecture = parse_config(make_config("llama").to_dict())
    assert architecture is not None
    counted = count_trained(architecture, targets)
    if targets in SOME_LAYERS or "(?!" in targets:
        assert counted is None
        return
    assert counted == count_by_peft("llama", targets)


SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]


@pytest.mark.parametrize("root", ["model.language_model", "language_model.model"])
def test_a_pattern_finds_the_decoder_beside_a_tower_in_any_release(root: str) -> None:
    model = lookup.find_entry("google/gemma-3-12b-it")
    assert model is not None
    pattern = root + r".layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj"
    assert count_trained(model, pattern) == count_trained(model, SEVEN)
    assert count_trained(model, "model.layers.*self_attn.q_proj") is None


def test_nearly_every_catalogued_model_has_its_paths() -> None:
    """Find no paths for families with their own code; a model with other paths is not determined."""
    without = set()
    for name in lookup.list_ids():
        model = lookup.find_entry(name)
        assert model is not None
        paths = get_module_paths(model.outer_type)
        leaves = {path.removesuffix(".*").rpartition(".")[2] for path in paths or ()}
        if not {item.name for item in model.list_linear_modules(parts=("decoder", "head", "embedding"))} <= leaves:
            without.add(model.model_type)
            assert count_trained(model, r".*self_attn\..*") is None
    assert "llama" not in without
    assert len(without) <= 20, sorted(without)
