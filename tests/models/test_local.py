"""Models on this machine: folders, adapters, the Hugging Face cache, presets and overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.models import local, lookup
from cfglint_train.models.find import find_architecture
from cfglint_train.models.local import UnreadableModelError, find_cached_model, get_hub_cache, read_folder
from cfglint_train.models.overrides import apply_overrides

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
TINY_PARAMETERS = 256 * 64 + 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 2 * 64) + 64
COMMIT = "8c22764a7e3675c50d4c7c9a4edb474456022b16"


def write_folder(path: Path, config: Any, file: str = "config.json") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / file).write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


def write_to_cache(hub: Path, name: str, config: Any, commit: str = COMMIT, ref: str | None = "main") -> None:
    model = hub / f"models--{name.replace('/', '--')}"
    write_folder(model / "snapshots" / commit, config)
    if ref is not None:
        path = model / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder(tmp_path):
    architecture = find_architecture(str(write_folder(tmp_path / "my-model", TINY)))
    assert architecture is not None
    assert (architecture.parameters, architecture.layers, architecture.id) == (
        TINY_PARAMETERS,
        2,
        str(tmp_path / "my-model"),
    )


def test_a_relative_path_starts_where_the_configuration_lies(tmp_path, monkeypatch):
    write_folder(tmp_path / "config" / "models" / "a", TINY)
    write_folder(tmp_path / "work" / "models" / "b", {**TINY, "num_hidden_layers": 3})
    monkeypatch.chdir(tmp_path / "work")
    assert find_architecture("models/a", str(tmp_path / "config")).layers == 2
    assert find_architecture("models/b", str(tmp_path / "config")).layers == 3
    assert find_architecture("models/c", str(tmp_path / "config")) is None


def test_a_byte_order_mark_is_no_error(tmp_path):
    path = write_folder(tmp_path, "﻿" + json.dumps(TINY))
    assert read_folder(str(path)).parameters == TINY_PARAMETERS


def test_what_a_folder_says_wins_over_its_name(tmp_path):
    pruned = write_folder(tmp_path / "Llama-3.2-1B", TINY)
    assert find_architecture(str(pruned)).parameters == TINY_PARAMETERS
    unknown = write_folder(tmp_path / "x" / "Llama-3.2-1B", {**TINY, "model_type": "of_our_own"})
    assert find_architecture(str(unknown)) is None


def test_a_folder_without_a_configuration_is_known_by_its_name(tmp_path):
    (tmp_path / "Llama-3.2-1B").mkdir()
    architecture = find_architecture(str(tmp_path / "Llama-3.2-1B"))
    assert architecture.id == "meta-llama/Llama-3.2-1B"
    assert architecture.context is None  # owners of a copy often raise the number in its `config.json`
    assert find_architecture("meta-llama/Llama-3.2-1B").context == 131072


def test_a_family_without_a_formula_is_known_by_name_if_its_sizes_agree(tmp_path):
    jamba = lookup.find_entry("ai21labs/Jamba-v0.1")
    sizes = {"hidden_size": jamba.hidden, "num_hidden_layers": jamba.layers, "vocab_size": jamba.vocab}
    config = {"model_type": "unheard_of", "_name_or_path": "ai21labs/Jamba-v0.1", **sizes}
    assert read_folder(str(write_folder(tmp_path / "a", config))).parameters == jamba.parameters
    assert read_folder(str(write_folder(tmp_path / "b", {**config, "num_hidden_layers": 4}))) is None


def test_an_adapter_is_its_base_model(tmp_path):
    adapter = write_folder(tmp_path, {"base_model_name_or_path": "Qwen/Qwen3-8B", "r": 8}, "adapter_config.json")
    assert find_architecture(str(adapter)).id == "Qwen/Qwen3-8B"
    adapter = write_folder(tmp_path / "Qwen3-8B", {"base_model_name_or_path": "unheard/of"}, "adapter_config.json")
    assert find_architecture(str(adapter)) is None


@pytest.mark.parametrize("text", ["{", "[]", "null", "\x00", "{" * 100_000, '"' + "x" * (5 << 20) + '"'])
def test_a_broken_configuration_is_named(tmp_path, text):
    broken = write_folder(tmp_path / "m", text)
    with pytest.raises(UnreadableModelError, match=r"config\.json: "):
        find_architecture(str(broken))


def test_a_configuration_in_another_encoding_is_named(tmp_path):
    (tmp_path / "config.json").write_bytes('{"model_type": "é"}'.encode("latin-1"))
    with pytest.raises(UnreadableModelError, match="Hub id of the model"):
        read_folder(str(tmp_path))


@pytest.mark.parametrize("name", ["", ".", "a\0b", "~nobody-of-this-name/x", "x" * 5000, "a/b/c/d", "../../.."])
def test_odd_names_are_unknown(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert find_architecture(name, environment={"HF_HOME": str(tmp_path)}) is None


# --- the Hugging Face cache ------------------------------------------------------------------------------------------


def test_the_cache_by_main(tmp_path):
    environment = {"HF_HOME": str(tmp_path)}
    write_to_cache(tmp_path / "hub", "us/model", {**TINY, "num_hidden_layers": 5}, "a" * 40, ref=None)
    write_to_cache(tmp_path / "hub", "us/model", TINY)
    architecture = find_architecture("us/model", environment=environment)
    assert (architecture.id, architecture.layers, architecture.parameters) == ("us/model", 2, TINY_PARAMETERS)
    assert find_cached_model("us/model", "a" * 40, environment=environment).layers == 5
    assert find_cached_model("us/other", environment=environment) is None
    assert find_cached_model("model", environment=environment) is None


def test_a_branch_with_a_slash(tmp_path):
    write_to_cache(tmp_path, "us/model", TINY, ref="refs/pr/1")
    write_to_cache(tmp_path, "us/model", TINY, "b" * 40, ref=None)
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    assert find_cached_model("us/model", "refs/pr/1", environment=environment).layers == 2
    assert find_cached_model("us/model", "refs/pr/2", environment=environment) is None


def test_the_only_snapshot_serves_for_main(tmp_path):
    write_to_cache(tmp_path, "us/model", TINY, ref=None)
    assert find_cached_model("us/model", environment={"HF_HUB_CACHE": str(tmp_path)}).layers == 2


def test_the_catalogue_comes_before_the_cache(tmp_path):
    write_to_cache(tmp_path, "Qwen/Qwen3-8B", TINY)
    assert find_architecture("Qwen/Qwen3-8B", environment={"HF_HUB_CACHE": str(tmp_path)}).layers == 36


def test_a_broken_snapshot_is_named(tmp_path):
    write_to_cache(tmp_path, "us/model", "{")
    with pytest.raises(UnreadableModelError):
        find_architecture("us/model", environment={"HF_HUB_CACHE": str(tmp_path)})


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({}, str(Path.home() / ".cache" / "huggingface" / "hub")),
    ],
)
def test_where_the_cache_lies(environment, path):
    assert Path(get_hub_cache(environment)) == Path(path)


# --- presets and overrides -------------------------------------------------------------------------------------------


def test_an_olmo_core_preset():
    assert find_architecture("olmo_core:olmo2_7B").parameters == 7_298_617_344
    assert find_architecture("olmo_core:olmo2_7B", overrides={"vocab_size": 50304}).vocab == 50304
    assert find_architecture("olmo_core:no_such_preset") is None


def test_overrides_of_a_folder_are_merged_before_it_is_read(tmp_path):
    path = str(write_folder(tmp_path, TINY))
    assert find_architecture(path, overrides={"num_hidden_layers": 4}).layers == 4
    assert find_architecture(path, overrides={"rope_scaling": {"factor": 2}}).parameters == TINY_PARAMETERS


@pytest.mark.parametrize(
    "overrides",
    [
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"num_hidden_layers": 36},
        {"hidden_dropout": 0.1, "use_cache": False},
    ],
)
def test_overrides_that_change_no_shape_leave_the_entry(overrides):
    assert find_architecture("Qwen/Qwen3-8B", overrides=overrides) == lookup.find_entry("Qwen/Qwen3-8B")


@pytest.mark.parametrize(
    "overrides",
    [
        {"num_hidden_layers": 4},
        {"vocab_size": 200_000},
        {"attention_bias": True},
        {"model_type": "llama"},
        {"text_config": {"hidden_size": 64}},
    ],
)
def test_overrides_that_change_a_shape_make_the_model_unknown(overrides):
    assert find_architecture("Qwen/Qwen3-8B", overrides=overrides) is None


def test_context_and_window_are_taken_over():
    mistral = lookup.find_entry("mistralai/Mistral-7B-v0.1")
    changed = apply_overrides(mistral, {"max_position_embeddings": 65536, "sliding_window": 8192})
    assert (changed.context, changed.window, changed.parameters) == (65536, 8192, mistral.parameters)
    assert apply_overrides(lookup.find_entry("gpt2"), {"n_positions": 4096}) is None  # learned positions are parameters


@pytest.mark.parametrize(
    ("name", "assumed"),
    [
        ("/data/Llama-3.1-8B", True),
        ("./models/Llama-3.1-8B", True),
        ("~/models/Llama-3.1-8B/", True),
        ("C:\\models\\Llama-3.1-8B", True),
        ("shared/models/Llama-3.1-8B", True),
        ("meta-llama/Llama-3.1-8B", False),
        ("unsloth/Meta-Llama-3.1-8B", False),
        ("/hub/models--meta-llama--Llama-3.1-8B/snapshots/0123abcd", False),
    ],
)
def test_a_folder_that_is_not_here_is_taken_for_the_model_of_its_name(tmp_path, name, assumed):
    model = local.find_local_model(name, str(tmp_path), environment={})
    assert model is not None
    assert (model.id, model.folder) == ("meta-llama/Llama-3.1-8B", name if assumed else "")
