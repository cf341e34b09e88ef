from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.models import lookup
from cfglint_train.models.names import get_component, parse_name
from tests.support.cases import for_each


@for_each(
    ("name", "key"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b"),
        ("unsloth/Llama-3.2-1B", "llama-3.2-1b"),
        ("/mnt/models/Llama-3.2-1B/", "llama-3.2-1b"),
        ("./models/Llama_3.2_1B", "llama-3.2-1b"),
        ("C:\\models\\Llama-3.2-1B", "llama-3.2-1b"),
        ("~/hub/models--meta-llama--Llama-3.2-1B/snapshots/4e20de362430cd3b72f300e6b0f18e50e7166e08", "llama-3.2-1b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google/gemma-3-4b-it", "gemma-3-4b"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b-2507"),
        ("vilsonrodrigues/falcon-7b-instruct-sharded", "falcon-7b"),
        ("TinyPixel/Llama-2-7B-bf16-sharded", "llama-2-7b"),
        ("somebody/Qwen2.5-7B-Instruct-abliterated", "qwen2.5-7b"),
        ("gpt2", "gpt2"),
        ("base", "base"),
        ("", ""),
        ("///", ""),
    ],
)
def test_key(name, key):
    assert parse_name(name).key == key


@pytest.mark.parametrize(
    ("name", "key", "quantization", "dtype"),
    [
        ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b", "nf4", None),
        ("unsloth/llama-3-8b-Instruct-unsloth-bnb-4bit", "llama-3-8b", "nf4", None),
        ("x/llama-3-8b-bnb-8bit", "llama-3-8b", "int8", None),
        ("TheBloke/Llama-2-7B-GPTQ", "llama-2-7b", "gptq", None),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq", None),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", "awq", None),
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b", "fp8", None),
        ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", None, "bf16"),
        (
            "axolotl-quants/Llama-4-Scout-17B-16E-Linearized-bnb-nf4-bf16",
            "llama-4-scout-17b-16e-linearized",
            "nf4",
            "bf16",
        ),
        ("BlackBeenie/Llama-2-7b-4bit-instruct", "llama-2-7b", None, None),
        ("bf16", "bf16", None, None),
    ],
)
def test_number_formats(name, key, quantization, dtype):
    parsed = parse_name(name)
    assert (parsed.key, parsed.quantization, parsed.dtype) == (key, quantization, dtype)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-14B"),
        ("Qwen/Qwen2-7B", "Qwen/Qwen2.5-7B"),
        ("mistralai/Magistral-Small-2506", "mistralai/Magistral-Small-2509"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Qwen/Qwen2.5-Math-7B", "Qwen/Qwen2.5-7B"),
        ("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x22B-v0.1"),
    ],
)
def test_what_changes_the_shape_stays_in_the_key(one, other):
    assert parse_name(one).key != parse_name(other).key


names = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["org", "/", "-", "_", "Llama", "3", "8b", "instruct", "base", "bnb", "4bit", "bf16", "GPTQ"]),
        max_size=12,
    ).map("".join),
)


@given(names)
def test_a_key_is_its_own_key(name):
    key = parse_name(name).key
    assert parse_name(key).key == key


@given(names)
def test_organisation_and_folder_do_not_matter(name):
    if get_component(name):
        assert parse_name(f"/data/org/{name}").key == parse_name(name).key == parse_name(f"{name}/").key


@given(names)
def test_no_name_breaks_the_lookup(name):
    match = lookup.match_name(name)
    assert match is None or match.kind in ("id", "name")


def test_a_quantised_copy_says_so():
    assert lookup.find_entry("unsloth/Llama-3.2-1B-bnb-4bit").quantization == "nf4"
    assert lookup.find_entry("openai/gpt-oss-20b").quantization == "mxfp4"
    assert lookup.find_entry("unsloth/gpt-oss-20b-BF16").quantization is None


def test_near_names():
    assert "Qwen/Qwen3-8B" in lookup.suggest_ids("Qwen/Qwen3-8b-intruct")
    assert lookup.suggest_ids("meta-llama/Llama-3.2-1") != []
    assert lookup.suggest_ids("zzzzzzzz") == []
