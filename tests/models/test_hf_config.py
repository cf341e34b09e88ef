"""`config.json` to architecture: closed forms compared with transformers' own classes, and with the catalogue."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.models import lookup
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.hf_config import get_dtype, get_quantization, parse_config
from cfglint_train.models.lookup import _load_data
from tests.models.test_catalogue import ENTRIES, RECORDS
from tests.support.cases import for_each
from tests.support.skips import skip_inapplicable

COUNTS = ("parameters", "tensors", "largest_tensor", "layer_parameters", "expert_parameters", "tied")
WRITTEN = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate",
    "experts",
    "latent",
    "window",
    "full_attention_layers",
)
OWN_CLASS = [name for name, family in FAMILIES.items() if not family.remote]

# --- against the classes of transformers, on random configurations ---------------------------------------------------

# Keys that a family's class requires in addition to the common ones. `w` is the random generator of a configuration.
EXPERTS = {"num_experts_per_tok": 2}
SPECIAL: dict[str, Any] = {
    "qwen2_moe": lambda w: {
        "num_experts": 4, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80, **EXPERTS,
        "decoder_sparse_step": w.choice([1, 2]), "mlp_only_layers": w.choice([[], [0]]),
    },
    "mixtral": lambda w: {"num_local_experts": 4, **EXPERTS},
    "granitemoe": lambda w: {"num_local_experts": 4, **EXPERTS},
    "gpt_oss": lambda w: {"num_local_experts": 4, **EXPERTS},
    "minimax_m2": lambda w: {"num_local_experts": 4, **EXPERTS},
    "phimoe": lambda w: {"num_local_experts": 4, **EXPERTS, "lm_head_bias": w.choice([True, False])},
    "olmoe": lambda w: {"num_experts": 4, **EXPERTS},
    "ernie4_5_moe": lambda w: {
        "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 48, "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1,
    },
    "deepseek_v2": lambda w: {
        "q_lora_rank": w.choice([None, 24]), "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 24, "n_routed_experts": 4, "moe_intermediate_size": 48, "n_shared_experts": w.choice([1, 2]),
        "first_k_dense_replace": w.choice([0, 1]), "n_group": 1, "topk_group": 1, **EXPERTS,
    },
    "glm4_moe": lambda w: {
        "n_routed_experts": 4, "moe_intermediate_size": 48, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": w.choice([0, 1]), **EXPERTS,
    },
    "stablelm": lambda w: {"use_qkv_bias": w.choice([True, False]), "use_parallel_residual": w.choice([True, False])},
    "falcon": lambda w: {
        "bias": w.choice([True, False]), "parallel_attn": w.choice([True, False]),
        "multi_query": w.choice([True, False]), "new_decoder_architecture": w.choice([True, False]),
    },
    "seed_oss": lambda w: {"attention_out_bias": w.choice([True, False])},
    "hunyuan_v1_dense": lambda w: {"rope_scaling": None},
}  # fmt: skip
SPECIAL["qwen3_moe"] = SPECIAL["qwen2_moe"]
SPECIAL["deepseek_v3"] = SPECIAL["deepseek_v2"]
SPECIAL["glm4_moe_lite"] = lambda w: {**SPECIAL["deepseek_v2"](w), "q_lora_rank": 24, "first_k_dense_replace": 1}

# Families whose heads divide the width; the others accept any `head_dim`.
DIVIDED = """
olmo olmo2 olmo3 olmoe cohere granite granitemoe stablelm starcoder2 phi gpt_neox phi3 apertus smollm3 phimoe qwen2_moe
exaone4 qwen2 ernie4_5_moe gpt2 gpt_bigcode gptj bloom opt falcon mpt deepseek_v2 deepseek_v3 glm4_moe_lite
""".split()
# Families that accept `"sliding_window": null` for full attention everywhere.
NO_WINDOW = frozenset({"mistral", "ministral", "ministral3", "mixtral", "starcoder2", "phi3", "qwen2", "qwen3"})
OPTIONAL = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "use_qk_norm")


def draw_config(model_type: str, kind: str, generator: random.Random) -> dict[str, Any]:
    """Draw a small configuration of a family."""
    head_dim, kv_heads = generator.choice([8, 16, 32]), generator.choice([1, 2, 4])
    heads = kv_heads * generator.choice([1, 2, 3])
    config: dict[str, Any] = {
        "model_type": model_type,
        "architectures": [kind],
        "hidden_size": heads * head_dim,
        "num_hidden_layers": generator.choice([2, 4, 6]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": generator.choice([64, 96, 160]),
        "vocab_size": generator.choice([128, 512]),
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        **{name: generator.choice([True, False]) for name in OPTIONAL if generator.random() > 0.15},
    }
    if model_type not in DIVIDED:
        config["head_dim"] = head_dim
        config["hidden_size"] += generator.choice([0, 8 * heads])
    if model_type.startswith("qwen"):
        config.update(
            use_sliding_window=generator.choice([True, False]), max_window_layers=generator.choice([0, 1, 2, 9])
        )
    if generator.random() < 0.5:
        config["sliding_window"] = generator.choice([16, None]) if model_type in NO_WINDOW else 16
    config.update(SPECIAL.get(model_type, lambda generator: {})(generator))
    if "kv_lora_rank" in config:
        config["num_key_value_heads"] = heads
    return rename_keys(config, generator)


def rename_keys(config: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """Rename the keys as the older families do."""
    model_type, take = config["model_type"], config.pop
    if model_type in ("gpt2", "gptj", "bloom", "gpt_bigcode"):
        take("num_key_value_heads"), take("max_position_embeddings")
        config.update(n_embd=take("hidden_size"), n_layer=take("num_hidden_layers"), n_positions=64, rotary_dim=8)
        config.update(n_head=take("num_attention_heads"))
        width = take("intermediate_size")
        if model_type in ("gpt2", "gpt_bigcode"):
            config["n_inner"] = generator.choice([None, width])
        if model_type == "gpt_bigcode":
            config["multi_query"] = generator.choice([True, False])
        if model_type == "bloom":
            config["hidden_size"] = config.pop("n_embd")
    elif model_type == "mpt":
        for name in ("num_key_value_heads", "intermediate_size", "max_position_embeddings"):
            take(name)
        config.update(d_model=take("hidden_size"), n_heads=take("num_attention_heads"))
        config.update(n_layers=take("num_hidden_layers"), expansion_ratio=generator.choice([2, 4]))
    elif model_type == "opt":
        take("num_key_value_heads")
        config.update(ffn_dim=take("intermediate_size"), word_embed_proj_dim=config["hidden_size"])
    elif model_type == "falcon":
        config.update(num_kv_heads=take("num_key_value_heads"), ffn_hidden_size=take("intermediate_size"))
        if generator.random() < 0.5:
            take("ffn_hidden_size")
    elif model_type == "gpt_neox":
        take("num_key_value_heads")
    return config


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", OWN_CLASS)
@pytest.mark.parametrize("scores", [False, True], ids=["causal", "classifier"])
def test_closed_forms_count_what_the_class_holds(model_type, scores):
    pytest.importorskip("torch", reason="closed forms are held to the model classes (pip install torch transformers)")
    transformers = pytest.importorskip("transformers", minversion="5.0")
    from tools.models.measure import build_config, build_model, count_model
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    table = "SEQUENCE_CLASSIFICATION" if scores else "CAUSAL_LM"
    kind = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES").get(model_type)
    if kind is None:
        assert scores, "every family of the table has a causal model"
        skip_inapplicable("transformers has no classifier of this family")
    for seed in range(4 if scores else 8):
        config = draw_config(model_type, kind, random.Random(f"{model_type} {seed}"))
        if scores:
            config["num_labels"] = 1 + seed % 3
        built, parsed = count_model(build_model(config)), parse_config(config)
        assert parsed is not None, config
        assert {name: getattr(parsed, name) for name in COUNTS} == {name: getattr(built, name) for name in COUNTS}, (
            config
        )
        assert sorted(parsed.linears) == sorted(built.linears), config
        completed = parse_config(build_config(config).to_dict())  # every default of the class written out
        assert completed is not None
        assert {name: getattr(parsed, name) for name in WRITTEN} == {
            name: getattr(completed, name) for name in WRITTEN
        }, config


# --- against the catalogue -------------------------------------------------------------------------------------------

# Copies whose layers differ from the class (`split_experts`, `split_linears`), and counts completed from elsewhere.
PLAIN = [m for m, entry in ENTRIES.items() if not {"split_experts", "split_linears", "rest"} & entry.keys()]
# OPT-350M has projections around its layers, StableLM 2 12B norms of query and key for every head: the closed form does
# not cover them.
OUTSIDE = ("facebook/opt-350m", "stabilityai/stablelm-2-12b")
CLOSED = [m for m in PLAIN if ENTRIES[m]["config"]["model_type"] in FAMILIES and m not in OUTSIDE]


@for_each("model", CLOSED)
def test_the_published_configuration_gives_the_catalogue_entry(model):
    parsed, record = parse_config(ENTRIES[model]["config"], model), RECORDS[model]
    assert parsed is not None
    for name in (*COUNTS, "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "intermediate", "experts"):
        assert getattr(parsed, name) == getattr(record, name), name
    for name in ("latent", "window", "full_attention_layers", "model_type", "gated", "active_parameters"):
        assert getattr(parsed, name) == getattr(record, name), name
    assert sorted(parsed.linears) == sorted(record.linears)
    assert parsed.counted == "formula"


@pytest.mark.oracle
@pytest.mark.parametrize("place", _load_data("shapes.json").values(), ids=lambda place: place[1])
def test_a_model_without_a_formula_is_recognised_by_its_shape(place):
    pytest.importorskip("torch", reason="the full configuration comes from transformers")
    pytest.importorskip("transformers", minversion="5.0")
    from tools.models.measure import add_defaults

    model = place[1]
    config = add_defaults(ENTRIES[model]["config"])
    parsed = parse_config(config, "local")
    assert parsed is not None
    assert (parsed.id, parsed.parameters, parsed.linears) == (
        "local",
        RECORDS[model].parameters,
        RECORDS[model].linears,
    )
    inner = next((config[name] for name in ("text_config", "llm_config") if isinstance(config.get(name), dict)), config)
    inner["vocab_size"] += 64
    larger = parse_config(config)
    assert larger is not None
    rows = 1 if larger.tied else 2
    assert larger.parameters == parsed.parameters + 64 * larger.hidden * rows
    inner["num_hidden_layers"] = 1
    for name in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        inner.pop(name, None)
    assert parse_config(config) is None


# --- what a configuration says beside its shape ----------------------------------------------------------------------

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("stated", "word"),
    [
        ({"torch_dtype": "float16"}, "fp16"),
        ({"dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "torch.float32"}, "fp32"),
        ({"text_config": {"torch_dtype": "bfloat16", "hidden_size": 8}}, "bf16"),
        ({"torch_dtype": "complex64"}, None),
        ({}, None),
    ],
)
def test_dtype(stated, word):
    assert get_dtype(stated) == word


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (None, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"),
        ({"load_in_8bit": True}, "int8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ("none", None),
    ],
)
def test_quantization(settings, word):
    assert get_quantization({"quantization_config": settings}) == word
    assert parse_config({**LLAMA, "quantization_config": settings}).quantization == word


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_missing_dimension_makes_it_unknown(missing):
    assert parse_config({key: value for key, value in LLAMA.items() if key != missing}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "no_such_family"},
        {"model_type": None},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 10**8},
        {"vocab_size": "32000"},
        {"hidden_size": float("nan")},
        {"intermediate_size": [64, 128]},  # layers of different widths: no closed form
        {"vision_config": {"hidden_size": 8}},
    ],
)
def test_what_the_formula_does_not_cover_is_unknown(change):
    assert parse_config({**LLAMA, **change}) is None


def test_a_sliding_window_is_read():
    mistral = parse_config({**LLAMA, "model_type": "mistral", "sliding_window": 4096})
    assert (mistral.window, mistral.full_attention_layers) == (4096, 0)
    qwen = parse_config({**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False})
    assert (qwen.window, qwen.full_attention_layers) == (None, None)


JUNK = st.sampled_from(
    [None, True, False, -1, 0, 1, 2, 3.5, float("inf"), float("nan"), 10**30, "", "x", [], ["x"], {}, {"a": 1}, [1, 2]]
)
KEYS = sorted(
    {key for entry in ENTRIES.values() for key in entry["config"]}
    | {"attn_config", "norm_type", "quantization_config", "num_labels", "id2label", "attn_layer_period", "moe_layers"}
    | {
        "expert_layer_offset",
        "sliding_window",
        "_sliding_window_pattern",
        "torch_dtype",
        "vision_config",
        "num_experts",
    }
)


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(ENTRIES)),
    st.dictionaries(st.sampled_from(KEYS), JUNK, min_size=1, max_size=4),
    st.booleans(),
)
def test_no_configuration_breaks_the_reader(model, junk, inside):
    config = copy.deepcopy(ENTRIES[model]["config"])
    inner = config.get("text_config")
    (inner if inside and isinstance(inner, dict) else config).update(copy.deepcopy(junk))
    parsed = parse_config(config)
    assert parsed is None or parsed.parameters > 0
    json.dumps(parsed)


def test_the_shapes_lead_to_entries():
    files = _load_data("index.json")["files"]
    for file, model in _load_data("shapes.json").values():
        assert lookup.load_entry(files[file], model).id == model
