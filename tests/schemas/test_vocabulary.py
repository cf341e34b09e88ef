"""What the reader says of settings: statuses, renames and their chains, gates, free mappings, kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.schemas import patch
from tools.schemas.fold import fold

from cfglint_schemas import form
from cfglint_schemas.fact import Fact
from cfglint_schemas.kinds import Kind, kinds_of
from cfglint_schemas.readers.table import Definition, Key, Table
from cfglint_schemas.status import UNKNOWN, Case, Context, Route, Status, is_loaded, parts_of
from cfglint_schemas.vocabulary import Vocabulary, load, vocabularies

MAPPINGS = "message_property_mappings"
MODULE = "TransformerTrainModuleConfig"
NO_PLUGINS = Context(plugins=())
LIGER = "axolotl.integrations.liger.LigerPlugin"


def fact(framework: str, route: str, release: str, context: Context = UNKNOWN) -> Fact:
    found = load(framework).fact(parts_of(route), release, context)
    assert found is not None, (framework, route, release)
    return found


def status(framework: str, route: str, release: str, context: Context = UNKNOWN) -> Status:
    return fact(framework, route, release, context).status()


def test_present_says_since_when() -> None:
    assert status("axolotl", "context_parallel_size", "0.21.0") == Status("present", "0.12.0")


def test_not_yet_says_which_release_brings_it() -> None:
    assert status("axolotl", "fp8_config", "0.18.0") == Status("not yet", "0.19.0", effect="dropped")
    assert status("openrlhf", "--actor.max_norm", "0.9.0", Context(entry="train_ppo_ray")) == Status(
        "not yet", "0.10.2", effect="error"
    )


def test_removed_says_since_when_and_what_the_framework_does() -> None:
    assert status("axolotl", "flash_attn_fuse_qkv", "0.12.2") == Status("removed", "0.12.0", effect="dropped")
    assert status("axolotl", "fsdp", "0.21.0") == Status("removed", "0.20.0", ("fsdp_config",), "error")
    assert status("deepspeed", "sparse_attention", "0.19.8") == Status("removed", "0.19.7", effect="error")
    assert status("deepspeed", "zero_optimization.mics_shard_size", "0.19.8").kind == "removed"
    assert status("deepspeed", "zero_optimization.mics_shard_size", "0.19.6").kind == "present"


def test_unknown_to_every_release_is_no_fact() -> None:
    for framework in vocabularies():
        vocabulary = load(framework)
        if framework != "olmo_core":
            assert vocabulary.fact(("no_such_setting",), vocabulary.releases[-1]) is None
    assert load("olmo_core").fact(("TrainerConfig", "no_such_setting"), "3.0.0") is None
    assert load("axolotl").fact(("fsdp_config", "no_such_setting"), "0.21.0") is None
    assert load("axolotl").fact((), "0.21.0") is None


def test_a_name_below_a_setting_that_takes_no_mapping_is_no_fact() -> None:
    assert load("axolotl").fact(("tokens", "bos_token"), "0.21.0") is None
    assert load("axolotl").names(("tokens",), "0.21.0") == []
    assert not load("axolotl").is_open(("tokens",), "0.21.0")


@pytest.mark.parametrize(
    ("framework", "route", "release", "to", "effect"),
    [
        ("axolotl", "sequence_parallel_degree", "0.21.0", ("context_parallel_size",), "mapped"),
        ("axolotl", "gc_steps", "0.18.0", ("torch_empty_cache_steps", "gc_collect_steps"), "mapped"),
        ("axolotl", "fsdp_final_state_dict_type", "0.12.2", ("fsdp_config.final_state_dict_type",), "nothing"),
        ("axolotl", "dpo_beta", "0.21.0", ("rl_beta",), "mapped"),
        ("axolotl", "trl.vllm_device", "0.8.0", ("vllm.device",), "dropped"),
        ("axolotl", "datasets.3.message_field_role", "0.21.0", (f"datasets.3.{MAPPINGS}.role",), "mapped"),
        ("llamafactory", "dpo_beta", "0.9.5", ("pref_beta",), "error"),
        ("deepspeed", "bfloat16", "0.19.8", ("bf16",), "mapped"),
        ("olmo_core", "TrainerConfig.autocast_precision", "2.0.0", (f"{MODULE}.autocast_precision",), "error"),
        ("accelerate", "dynamo_backend", "1.15.0", ("dynamo_config.dynamo_backend",), "mapped"),
    ],
)
def test_renamed(framework: str, route: str, release: str, to: tuple[str, ...], effect: str) -> None:
    found = status(framework, route, release)
    assert (found.kind, found.to, found.effect) == ("renamed", to, effect)


def test_one_name_becomes_several_and_depends_on_the_entry_point() -> None:
    ppo = status("openrlhf", "--max_norm", "0.11.2", Context(entry="train_ppo_ray"))
    assert ppo.to == ("--actor.max_norm", "--critic.max_norm")
    assert status("openrlhf", "--max_norm", "0.11.2", Context(entry="train_sft")).kind == "present"
    assert status("openrlhf", "--aux_loss_coef", "0.11.2", Context(entry="train_sft")).to == ("--model.aux_loss_coef",)
    assert status("openrlhf", "--aux_loss_coef", "0.11.2", Context(entry="train_ppo_ray")).to == (
        "--actor.aux_loss_coef",
    )


def test_a_rename_is_followed_through_later_ones() -> None:
    context = Context(entry="train_ppo_ray")
    assert status("openrlhf", "--bf16", "0.9.4", context).to == ("--param_dtype",)
    assert status("openrlhf", "--bf16", "0.11.2", context).to == ("--ds.param_dtype",)
    icepop = status("openrlhf", "--use_icepop", "0.11.2", context)
    assert icepop.cases == (
        Case(
            True,
            {"--algo.advantage.is_correction_level": "token", "--algo.advantage.is_correction_mode": "mask"},
        ),
    )
    old_type = status("openrlhf", "--vllm_is_correction_type", "0.11.2", context)
    assert {case.when for case in old_type.cases} == {"tis", "icepop", "seq-mask-tis"}


def test_sums_and_companion_settings() -> None:
    total = status("openrlhf", "--prompt_max_len", "0.9.8", Context(entry="train_ppo_ray"))
    assert (total.to, total.sums) == (("--max_len",), ("--prompt_max_len", "--generate_max_len"))
    assert status("axolotl", "relora_steps", "0.21.0").also == {"relora": True}


def test_values_of_renamed_settings() -> None:
    flash = status("axolotl", "flash_attention", "0.18.0")
    assert flash.cases[0] == Case(True, {"attn_implementation": "flash_attention_2"})
    offload = status("deepspeed", "zero_optimization.cpu_offload", "0.19.8")
    assert offload.cases[0] == Case(True, {"zero_optimization.offload_optimizer.device": "cpu"})


def test_gated_by_a_plugin() -> None:
    assert status("axolotl", "liger_rope", "0.21.0", NO_PLUGINS) == Status(
        "gated", "0.5.2", effect="dropped", plugins=(LIGER,)
    )
    assert status("axolotl", "liger_rope", "0.21.0", Context(plugins=(LIGER,))).kind == "present"
    # The loaded plugins are unknown: the setting may well exist.
    assert status("axolotl", "liger_rope", "0.21.0") == Status("present", "0.5.2", plugins=(LIGER,))
    assert "liger_rope" not in load("axolotl").names((), "0.21.0", NO_PLUGINS)
    assert "liger_rope" in load("axolotl").names((), "0.21.0", Context(plugins=(LIGER,)))


def test_a_plugin_that_became_part_of_the_framework() -> None:
    assert status("axolotl", "expert_parallel_size", "0.20.0", NO_PLUGINS).kind == "gated"
    assert status("axolotl", "expert_parallel_size", "0.21.0", NO_PLUGINS).kind == "present"


@pytest.mark.parametrize(
    ("listed", "loaded"),
    [
        (LIGER, True),
        ("axolotl.integrations.liger.plugin.LigerPlugin", True),
        ("liger.LigerPlugin", True),
        ("axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin", False),
        ("my_company.liger.OtherPlugin", False),
        ("LigerPlugin", False),
    ],
)
def test_spellings_of_plugins(listed: str, loaded: bool) -> None:
    assert is_loaded((listed,), (LIGER,)) is loaded


def test_plugins_that_bring_settings() -> None:
    assert LIGER in load("axolotl").plugins("0.21.0")
    assert "axolotl.integrations.expert_parallel.ExpertParallelPlugin" not in load("axolotl").plugins("0.21.0")


def test_gated_by_another_setting() -> None:
    def galore(settings: dict[str, Any] | None) -> Status:
        return status("llamafactory", "galore_rank", "0.9.5", Context(settings=settings))

    assert galore({"use_galore": True}).kind == "present"
    assert galore({}) == Status("gated", "0.7.1", effect="nothing", needs={"use_galore": True})
    assert galore({"use_galore": False}).kind == "gated"
    assert galore(None).kind == "present"
    lora = Context(settings={})
    # finetuning_type is lora unless the configuration says otherwise.
    assert status("llamafactory", "lora_rank", "0.9.5", lora).kind == "present"
    assert status("llamafactory", "freeze_trainable_modules", "0.9.5", lora).kind == "gated"


def test_ignored() -> None:
    found = status("axolotl", "lr_div_factor", "0.21.0")
    assert (found.kind, found.effect, found.because) == ("ignored", "nothing", "it is never read")
    assert status("axolotl", "ring_attn_func", "0.19.0").kind == "present"
    assert status("axolotl", "ring_attn_func", "0.20.0").kind == "ignored"
    assert status("olmo", "new_style_checkpoints", "0.6.0").kind == "ignored"


def test_deprecated_settings_are_present() -> None:
    assert fact("axolotl", "batch_size", "0.21.0").deprecated
    assert status("axolotl", "batch_size", "0.21.0").to == ("gradient_accumulation_steps",)
    assert fact("axolotl", "fsdp", "0.19.0").deprecated
    assert not fact("axolotl", "fsdp", "0.11.0").deprecated
    assert not fact("axolotl", "micro_batch_size", "0.21.0").deprecated


def test_a_free_mapping_that_became_typed() -> None:
    vocabulary = load("axolotl")
    assert vocabulary.is_open(("fsdp_config",), "0.12.2")
    assert fact("axolotl", "fsdp_config.anything", "0.12.2").open
    assert not vocabulary.is_open(("fsdp_config",), "0.13.1")
    assert status("axolotl", "fsdp_config.fsdp_sharding_strategy", "0.12.2").kind == "present"
    assert status("axolotl", "fsdp_config.fsdp_sharding_strategy", "0.19.0") == Status(
        "removed", "0.13.1", effect="dropped"
    )
    refused = status("axolotl", "fsdp_config.sharding_strategy", "0.20.0")
    assert (refused.kind, refused.to) == ("renamed", ("fsdp_config.reshard_after_forward",))


@pytest.mark.parametrize(
    ("framework", "route"),
    [
        ("axolotl", "gradient_checkpointing_kwargs.use_reentrant"),
        ("axolotl", "overrides_of_model_config.rope_scaling.type.deeper"),
        ("llamafactory", "fsdp_config.transformer_layer_cls_to_wrap"),
        ("deepspeed", "optimizer.params.betas"),
        ("deepspeed", "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.x"),
        ("olmo_core", "SomebodysOwnConfig.field"),
    ],
)
def test_nothing_below_a_free_mapping_is_unknown(framework: str, route: str) -> None:
    vocabulary = load(framework)
    found = vocabulary.fact(parts_of(route), vocabulary.releases[-1])
    assert found is not None
    assert found.open
    assert found.status() == Status("present")
    assert found.kinds() == (Kind("any"),)


def test_prefixes_and_aliases() -> None:
    assert fact("axolotl", "model_type", "0.21.0").name == "type_of_model"
    assert fact("axolotl", "fsdp_config.fsdp_offload_params", "0.21.0").name == "offload_params"
    assert load("axolotl").fact(("fsdp_config", "fsdp_no_such"), "0.21.0") is None
    assert "fsdp_offload_params" in load("axolotl").names(("fsdp_config",), "0.21.0")
    assert fact("deepspeed", "zero_optimization.max_live_parameters", "0.19.8").name == "stage3_max_live_parameters"
    assert fact("accelerate", "fsdp_config.offload_params", "1.15.0").name == "fsdp_offload_params"


def test_effect_of_an_unknown_name() -> None:
    assert load("axolotl").effect((), "0.21.0") == "dropped"
    assert load("axolotl").effect(("fp8_config",), "0.21.0") == "error"
    assert load("axolotl").effect(("gradient_checkpointing_kwargs",), "0.21.0") == "kept"
    assert load("deepspeed").effect((), "0.19.8") == "dropped"
    assert load("deepspeed").effect(("bf16",), "0.17.0") == "dropped"
    assert load("deepspeed").effect(("bf16",), "0.19.8") == "error"
    assert load("openrlhf").effect((), "0.11.2") == "error"
    assert load("olmo").effect(("optimizer",), "0.6.0") == "error"
    assert load("llamafactory").effect((), "0.9.5") == "error"
    assert load("llamafactory").effect((), "0.9.5", Context(entry="mca")) == "kept"
    assert load("accelerate").effect((), "1.15.0") == "error"
    assert load("accelerate").effect(("fsdp_config",), "1.15.0") == "dropped"


def test_settings_of_another_package_follow_its_release() -> None:
    def at(transformers: str | None, key: str) -> Status:
        releases = {} if transformers is None else {"transformers": transformers}
        return status("llamafactory", key, "0.9.5", Context(releases=releases))

    assert at("4.57.6", "save_safetensors").kind == "present"
    assert at("5.0.0", "save_safetensors") == Status("removed", "5.0.0", effect="error")
    assert at("4.55.0", "train_sampling_strategy") == Status("not yet", "5.2.0", effect="error")
    # The release of transformers is unknown.
    assert at(None, "save_safetensors").kind == "present"
    assert at(None, "train_sampling_strategy").kind == "present"
    assert fact("llamafactory", "save_safetensors", "0.9.5").package == "transformers"
    assert fact("llamafactory", "cutoff_len", "0.9.5").package == "llamafactory"
    # LLaMA-Factory keeps this one alive where transformers dropped it.
    assert at("5.0.0", "overwrite_output_dir").kind == "present"
    newer = Context(releases={"transformers": "5.0.0"})
    assert status("llamafactory", "overwrite_output_dir", "0.9.2", newer).kind == "removed"


def test_group_by_length_keeps_its_meaning() -> None:
    found = status("llamafactory", "group_by_length", "0.9.5", Context(releases={"transformers": "5.6.0"}))
    assert found.cases[0] == Case(True, {"train_sampling_strategy": "group_by_length"})


def test_types_defaults_and_enumerations_by_release() -> None:
    checkpointing = fact("axolotl", "gradient_checkpointing", "0.7.0")
    assert Kind("enum", ("unsloth",)) in checkpointing.kinds()
    assert Kind("enum", ("offload", "offload_disk")) in fact("axolotl", "gradient_checkpointing", "0.21.0").kinds()
    assert fact("llamafactory", "cutoff_len", "0.9.0").default() == 1024
    assert fact("llamafactory", "cutoff_len", "0.9.1").default() == 2048
    assert fact("axolotl", "vllm.gpu_memory_utilization", "0.20.0").default() == 0.9
    assert fact("axolotl", "vllm.gpu_memory_utilization", "0.21.0").default() is None
    with pytest.raises(KeyError):
        fact("axolotl", "learning_rate", "0.21.0").default()
    strategies = fact("olmo", "fsdp.sharding_strategy", "0.6.0").kinds()
    assert strategies[0].name == "enum"
    assert "HYBRID_SHARD" in strategies[0].values
    legacy = fact("olmo", "activation_checkpointing", "0.6.0").kinds()
    assert {True, "whole_layer"} <= set(legacy[0].values)


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "integer"}, (Kind("int"),)),
        ({"type": ["number", "null"]}, (Kind("float"), Kind("null"))),
        ({"enum": ["a", None]}, (Kind("enum", ("a",)), Kind("null"))),
        ({"enum": ["a"]}, (Kind("enum", ("a",)),)),
        ({"type": "array", "items": {"type": "string"}}, (Kind("list", (), (Kind("str"),)),)),
        ({"type": "array"}, (Kind("list"),)),
        ({"anyOf": [{"$ref": "#/$defs/X"}, {"type": ["boolean", "null"]}]}, (Kind("dict"), Kind("bool"), Kind("null"))),
        ({"x-external": "torch.dtype"}, (Kind("any"),)),
        ({}, (Kind("any"),)),
    ],
)
def test_kinds(schema: dict[str, Any], kinds: tuple[Kind, ...]) -> None:
    assert kinds_of(schema) == kinds


def test_releases_between_and_beyond_the_known_ones() -> None:
    # 0.13.0 never came out; 0.12.2 is the newest before it.
    assert fact("axolotl", "fsdp_config.x", "0.13.0").open
    assert status("axolotl", "fp8_config", "99.0").kind == "present"
    assert status("axolotl", "micro_batch_size", "0.0.1").kind == "present"
    with pytest.raises(ValueError, match="not a release"):
        load("axolotl").fact(("micro_batch_size",), "latest")


def test_newest_release_that_is_out() -> None:
    assert load("llamafactory").newest == "0.9.5"
    assert load("llamafactory").releases[-1] == "0.9.6.dev0"
    assert load("axolotl").newest == "0.21.0"


def test_entry_points_by_release() -> None:
    vocabulary = load("openrlhf")
    assert vocabulary.has_entry("train_ppo", "0.6.1.post1")
    assert not vocabulary.has_entry("train_ppo", "0.6.2")
    assert not vocabulary.has_entry("train_grpo", "0.11.2")
    assert not load("llamafactory").has_entry("v1", "0.9.3")
    # A dead entry point still lists what its flags were, and that they are gone.
    assert status("openrlhf", "--bf16", "0.9.6", Context(entry="train_ppo")).kind == "removed"


def test_list_items_and_unions_of_models() -> None:
    for index in (0, 7, "*"):
        found = load("axolotl").fact(("datasets", index, "path"), "0.21.0")
        assert found is not None
        assert found.status().kind == "present"
    assert load("axolotl").fact(("datasets", "path"), "0.21.0") is None
    # A mapping of supervised data sets, a string of preference data sets.
    assert {Kind("dict"), Kind("str")} <= set(fact("axolotl", "datasets.0.type", "0.21.0").kinds())
    names = load("axolotl").names(("datasets", 0), "0.21.0")
    # Of supervised, of preference and of stepwise data sets.
    assert {"message_property_mappings", "data_files", "step_separator"} <= set(names)


def test_another_setting_chooses_what_the_items_of_a_list_are() -> None:
    axolotl = load("axolotl")
    key = ("datasets", 0, "roles_to_train")

    def known(release: str, **settings: str) -> bool:
        return axolotl.fact(key, release, Context(plugins=(), settings=settings)) is not None

    assert not known("0.21.0", rl="dpo")
    assert not known("0.21.0", rl="kto")
    assert known("0.21.0", rl="grpo")
    assert known("0.21.0")
    assert known("0.12.2", rl="ipo")  # chosen since 0.18.0
    assert axolotl.chosen(("datasets", 0), "0.21.0", Context(settings={"rl": "dpo"})) == {"rl": "dpo"}
    assert axolotl.fact(("test_datasets", 0, "roles_to_train"), "0.21.0", Context(settings={"rl": "dpo"})) is not None


def test_walk_gives_each_setting_once() -> None:
    routes = [found.route for found in load("axolotl").walk("0.21.0")]
    assert len(routes) == len(set(routes))
    assert ("datasets", "*", "path") in routes
    assert ("fsdp_config", "offload_params") in routes
    assert ("fsdp",) not in routes


def small(patches: dict[str, Any], **keys: list[str]) -> Vocabulary:
    """A vocabulary of flat string settings, each with the releases that have it."""
    releases = sorted({release for of in keys.values() for release in of})
    tables = {
        release: Table(
            {
                "Root": Definition(
                    {key: Key({"type": "string"}) for key, of in keys.items() if release in of}, "dropped"
                )
            },
            {"train": ("Root",)},
        )
        for release in releases
    }
    return Vocabulary("sample", form.text(patch.apply(fold({"main": tables}, "sample"), patches)))


def route_status(vocabulary: Vocabulary, route: Route, release: str) -> Status:
    found = vocabulary.fact(route, release)
    assert found is not None
    return found.status()


def test_a_key_that_came_back() -> None:
    vocabulary = small({}, a=["1.0", "3.0"], b=["1.0", "2.0", "3.0"])
    assert route_status(vocabulary, ("a",), "1.0") == Status("present", "1.0")
    assert route_status(vocabulary, ("a",), "2.0") == Status("removed", "2.0", effect="dropped")
    assert route_status(vocabulary, ("a",), "3.5") == Status("present", "1.0")


def test_a_status_ends_with_its_last_release() -> None:
    patches = {
        "status": [
            {"keys": ["Root/a"], "kind": "ignored", "since": "1.5", "last": "2.5", "effect": "nothing", "source": "x"},
            {"keys": ["Root/a"], "kind": "renamed", "since": "3.0", "to": ["b"], "effect": "mapped", "source": "x"},
        ]
    }
    vocabulary = small(patches, a=["1.0", "2.0", "3.0"], b=["1.0", "2.0", "3.0"])
    assert [route_status(vocabulary, ("a",), release).kind for release in ("1.0", "1.5", "2.5", "2.6", "3.0")] == [
        "present",
        "ignored",
        "ignored",
        "present",
        "renamed",
    ]


def test_a_patch_can_name_a_setting_that_no_definition_declares() -> None:
    patches = {
        "keys": [{"keys": ["Root/late"], "since": "2.0", "schema": {"type": "boolean"}, "source": "x"}],
        "status": [{"keys": ["Root/never"], "kind": "removed", "since": "2.0", "effect": "error", "source": "x"}],
    }
    vocabulary = small(patches, a=["1.0", "2.0"])
    assert route_status(vocabulary, ("late",), "1.0").kind == "not yet"
    assert route_status(vocabulary, ("late",), "2.0").kind == "present"
    assert route_status(vocabulary, ("never",), "2.0").effect == "error"
    assert json.dumps(dict(vocabulary.fact(("never",), "2.0").schema()))  # type: ignore[union-attr]
    assert "late" in vocabulary.names((), "2.0")
    assert "never" not in vocabulary.names((), "2.0")
