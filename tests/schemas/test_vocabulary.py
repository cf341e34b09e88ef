"""Reader of vocabularies: statuses, renames and their chains, gates, free mappings, kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.schemas import patch
from tools.schemas.fold import fold

from cfglint_schemas import form
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.kinds import ValueKind, list_kinds
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.status import UNKNOWN, Context, Route, Status, ValueCase, is_loaded, split_route
from cfglint_schemas.vocabulary import Vocabulary, list_vocabularies, load

MAPPINGS = "message_property_mappings"
MODULE = "TransformerTrainModuleConfig"
NO_PLUGINS = Context(plugins=())
LIGER = "axolotl.integrations.liger.LigerPlugin"


def get_fact(framework: str, route: str, release: str, context: Context = UNKNOWN) -> KeyFact:
    fact = load(framework).find_fact(split_route(route), release, context)
    assert fact is not None, (framework, route, release)
    return fact


def get_status(framework: str, route: str, release: str, context: Context = UNKNOWN) -> Status:
    return get_fact(framework, route, release, context).resolve_status()


def test_present_says_since_when() -> None:
    assert get_status("axolotl", "context_parallel_size", "0.21.0") == Status("present", "0.12.0")


def test_not_yet_says_which_release_brings_it() -> None:
    assert get_status("axolotl", "fp8_config", "0.18.0") == Status("not yet", "0.19.0", effect="dropped")
    assert get_status("openrlhf", "--actor.max_norm", "0.9.0", Context(entry="train_ppo_ray")) == Status(
        "not yet", "0.10.2", effect="error"
    )


def test_removed_says_since_when_and_what_the_framework_does() -> None:
    assert get_status("axolotl", "flash_attn_fuse_qkv", "0.12.2") == Status("removed", "0.12.0", effect="dropped")
    assert get_status("axolotl", "fsdp", "0.21.0") == Status("removed", "0.20.0", ("fsdp_config",), "error")
    assert get_status("deepspeed", "sparse_attention", "0.19.8") == Status("removed", "0.19.7", effect="error")
    assert get_status("deepspeed", "zero_optimization.mics_shard_size", "0.19.8").kind == "removed"
    assert get_status("deepspeed", "zero_optimization.mics_shard_size", "0.19.6").kind == "present"


def test_unknown_to_every_release_is_no_fact() -> None:
    for framework in list_vocabularies():
        vocabulary = load(framework)
        if framework != "olmo_core":
            assert vocabulary.find_fact(("no_such_setting",), vocabulary.releases[-1]) is None
    assert load("olmo_core").find_fact(("TrainerConfig", "no_such_setting"), "3.0.0") is None
    assert load("axolotl").find_fact(("fsdp_config", "no_such_setting"), "0.21.0") is None
    assert load("axolotl").find_fact((), "0.21.0") is None


def test_a_name_below_a_setting_that_takes_no_mapping_is_no_fact() -> None:
    assert load("axolotl").find_fact(("tokens", "bos_token"), "0.21.0") is None
    assert load("axolotl").list_names(("tokens",), "0.21.0") == []
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
    result = get_status(framework, route, release)
    assert (result.kind, result.new_names, result.effect) == ("renamed", to, effect)


def test_one_name_becomes_several_and_depends_on_the_entry_point() -> None:
    ppo = get_status("openrlhf", "--max_norm", "0.11.2", Context(entry="train_ppo_ray"))
    assert ppo.new_names == ("--actor.max_norm", "--critic.max_norm")
    assert get_status("openrlhf", "--max_norm", "0.11.2", Context(entry="train_sft")).kind == "present"
    assert get_status("openrlhf", "--aux_loss_coef", "0.11.2", Context(entry="train_sft")).new_names == (
        "--model.aux_loss_coef",
    )
    assert get_status("openrlhf", "--aux_loss_coef", "0.11.2", Context(entry="train_ppo_ray")).new_names == (
        "--actor.aux_loss_coef",
    )


def test_a_rename_is_followed_through_later_ones() -> None:
    context = Context(entry="train_ppo_ray")
    assert get_status("openrlhf", "--bf16", "0.9.4", context).new_names == ("--param_dtype",)
    assert get_status("openrlhf", "--bf16", "0.11.2", context).new_names == ("--ds.param_dtype",)
    icepop = get_status("openrlhf", "--use_icepop", "0.11.2", context)
    assert icepop.cases == (
        ValueCase(
            True,
            {"--algo.advantage.is_correction_level": "token", "--algo.advantage.is_correction_mode": "mask"},
        ),
    )
    old_type = get_status("openrlhf", "--vllm_is_correction_type", "0.11.2", context)
    assert {case.old_value for case in old_type.cases} == {"tis", "icepop", "seq-mask-tis"}


def test_sums_and_companion_settings() -> None:
    total = get_status("openrlhf", "--prompt_max_len", "0.9.8", Context(entry="train_ppo_ray"))
    assert (total.new_names, total.addends) == (("--max_len",), ("--prompt_max_len", "--generate_max_len"))
    assert get_status("axolotl", "relora_steps", "0.21.0").required_values == {"relora": True}


def test_values_of_renamed_settings() -> None:
    flash = get_status("axolotl", "flash_attention", "0.18.0")
    assert flash.cases[0] == ValueCase(True, {"attn_implementation": "flash_attention_2"})
    offload = get_status("deepspeed", "zero_optimization.cpu_offload", "0.19.8")
    assert offload.cases[0] == ValueCase(True, {"zero_optimization.offload_optimizer.device": "cpu"})


def test_gated_by_a_plugin() -> None:
    assert get_status("axolotl", "liger_rope", "0.21.0", NO_PLUGINS) == Status(
        "gated", "0.5.2", effect="dropped", plugins=(LIGER,)
    )
    assert get_status("axolotl", "liger_rope", "0.21.0", Context(plugins=(LIGER,))).kind == "present"
    # Unknown plugins: the setting may well exist.
    assert get_status("axolotl", "liger_rope", "0.21.0") == Status("present", "0.5.2", plugins=(LIGER,))
    assert "liger_rope" not in load("axolotl").list_names((), "0.21.0", NO_PLUGINS)
    assert "liger_rope" in load("axolotl").list_names((), "0.21.0", Context(plugins=(LIGER,)))


def test_a_plugin_that_became_part_of_the_framework() -> None:
    assert get_status("axolotl", "expert_parallel_size", "0.20.0", NO_PLUGINS).kind == "gated"
    assert get_status("axolotl", "expert_parallel_size", "0.21.0", NO_PLUGINS).kind == "present"


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
    assert LIGER in load("axolotl").list_plugins("0.21.0")
    assert "axolotl.integrations.expert_parallel.ExpertParallelPlugin" not in load("axolotl").list_plugins("0.21.0")


def test_gated_by_another_setting() -> None:
    def get_galore_status(settings: dict[str, Any] | None) -> Status:
        return get_status("llamafactory", "galore_rank", "0.9.5", Context(settings=settings))

    assert get_galore_status({"use_galore": True}).kind == "present"
    assert get_galore_status({}) == Status("gated", "0.7.1", effect="nothing", needs={"use_galore": True})
    assert get_galore_status({"use_galore": False}).kind == "gated"
    assert get_galore_status(None).kind == "present"
    lora = Context(settings={})
    # finetuning_type defaults to lora.
    assert get_status("llamafactory", "lora_rank", "0.9.5", lora).kind == "present"
    assert get_status("llamafactory", "freeze_trainable_modules", "0.9.5", lora).kind == "gated"


def test_ignored() -> None:
    result = get_status("axolotl", "lr_div_factor", "0.21.0")
    assert (result.kind, result.effect, result.reason) == ("ignored", "nothing", "it is never read")
    assert get_status("axolotl", "ring_attn_func", "0.19.0").kind == "present"
    assert get_status("axolotl", "ring_attn_func", "0.20.0").kind == "ignored"
    assert get_status("olmo", "new_style_checkpoints", "0.6.0").kind == "ignored"


def test_deprecated_settings_are_present() -> None:
    assert get_fact("axolotl", "batch_size", "0.21.0").is_deprecated
    assert get_status("axolotl", "batch_size", "0.21.0").new_names == ("gradient_accumulation_steps",)
    assert get_fact("axolotl", "fsdp", "0.19.0").is_deprecated
    assert not get_fact("axolotl", "fsdp", "0.11.0").is_deprecated
    assert not get_fact("axolotl", "micro_batch_size", "0.21.0").is_deprecated


def test_a_free_mapping_that_became_typed() -> None:
    vocabulary = load("axolotl")
    assert vocabulary.is_open(("fsdp_config",), "0.12.2")
    assert get_fact("axolotl", "fsdp_config.anything", "0.12.2").is_open
    assert not vocabulary.is_open(("fsdp_config",), "0.13.1")
    assert get_status("axolotl", "fsdp_config.fsdp_sharding_strategy", "0.12.2").kind == "present"
    assert get_status("axolotl", "fsdp_config.fsdp_sharding_strategy", "0.19.0") == Status(
        "removed", "0.13.1", effect="dropped"
    )
    refused = get_status("axolotl", "fsdp_config.sharding_strategy", "0.20.0")
    assert (refused.kind, refused.new_names) == ("renamed", ("fsdp_config.reshard_after_forward",))


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
    fact = vocabulary.find_fact(split_route(route), vocabulary.releases[-1])
    assert fact is not None
    assert fact.is_open
    assert fact.resolve_status() == Status("present")
    assert fact.list_kinds() == (ValueKind("any"),)


def test_prefixes_and_aliases() -> None:
    assert get_fact("axolotl", "model_type", "0.21.0").name == "type_of_model"
    assert get_fact("axolotl", "fsdp_config.fsdp_offload_params", "0.21.0").name == "offload_params"
    assert load("axolotl").find_fact(("fsdp_config", "fsdp_no_such"), "0.21.0") is None
    assert "fsdp_offload_params" in load("axolotl").list_names(("fsdp_config",), "0.21.0")
    assert get_fact("deepspeed", "zero_optimization.max_live_parameters", "0.19.8").name == "stage3_max_live_parameters"
    assert get_fact("accelerate", "fsdp_config.offload_params", "1.15.0").name == "fsdp_offload_params"


def test_effect_of_an_unknown_name() -> None:
    assert load("axolotl").find_effect((), "0.21.0") == "dropped"
    assert load("axolotl").find_effect(("fp8_config",), "0.21.0") == "error"
    assert load("axolotl").find_effect(("gradient_checkpointing_kwargs",), "0.21.0") == "kept"
    assert load("deepspeed").find_effect((), "0.19.8") == "dropped"
    assert load("deepspeed").find_effect(("bf16",), "0.17.0") == "dropped"
    assert load("deepspeed").find_effect(("bf16",), "0.19.8") == "error"
    assert load("openrlhf").find_effect((), "0.11.2") == "error"
    assert load("olmo").find_effect(("optimizer",), "0.6.0") == "error"
    assert load("llamafactory").find_effect((), "0.9.5") == "error"
    assert load("llamafactory").find_effect((), "0.9.5", Context(entry="mca")) == "kept"
    assert load("accelerate").find_effect((), "1.15.0") == "error"
    assert load("accelerate").find_effect(("fsdp_config",), "1.15.0") == "dropped"


def test_settings_of_another_package_follow_its_release() -> None:
    def get_status_with(transformers: str | None, key: str) -> Status:
        releases = {} if transformers is None else {"transformers": transformers}
        return get_status("llamafactory", key, "0.9.5", Context(releases=releases))

    assert get_status_with("4.57.6", "save_safetensors").kind == "present"
    assert get_status_with("5.0.0", "save_safetensors") == Status("removed", "5.0.0", effect="error")
    assert get_status_with("4.55.0", "train_sampling_strategy") == Status("not yet", "5.2.0", effect="error")
    # Unknown release of transformers.
    assert get_status_with(None, "save_safetensors").kind == "present"
    assert get_status_with(None, "train_sampling_strategy").kind == "present"
    assert get_fact("llamafactory", "save_safetensors", "0.9.5").package == "transformers"
    assert get_fact("llamafactory", "cutoff_len", "0.9.5").package == "llamafactory"
    # LLaMA-Factory still supports this key, although transformers dropped it.
    assert get_status_with("5.0.0", "overwrite_output_dir").kind == "present"
    newer = Context(releases={"transformers": "5.0.0"})
    assert get_status("llamafactory", "overwrite_output_dir", "0.9.2", newer).kind == "removed"


def test_group_by_length_keeps_its_meaning() -> None:
    result = get_status("llamafactory", "group_by_length", "0.9.5", Context(releases={"transformers": "5.6.0"}))
    assert result.cases[0] == ValueCase(True, {"train_sampling_strategy": "group_by_length"})


def test_types_defaults_and_enumerations_by_release() -> None:
    checkpointing = get_fact("axolotl", "gradient_checkpointing", "0.7.0")
    assert ValueKind("enum", ("unsloth",)) in checkpointing.list_kinds()
    assert (
        ValueKind("enum", ("offload", "offload_disk"))
        in get_fact("axolotl", "gradient_checkpointing", "0.21.0").list_kinds()
    )
    assert get_fact("llamafactory", "cutoff_len", "0.9.0").get_default() == 1024
    assert get_fact("llamafactory", "cutoff_len", "0.9.1").get_default() == 2048
    assert get_fact("axolotl", "vllm.gpu_memory_utilization", "0.20.0").get_default() == 0.9
    assert get_fact("axolotl", "vllm.gpu_memory_utilization", "0.21.0").get_default() is None
    with pytest.raises(KeyError):
        get_fact("axolotl", "learning_rate", "0.21.0").get_default()
    strategies = get_fact("olmo", "fsdp.sharding_strategy", "0.6.0").list_kinds()
    assert strategies[0].name == "enum"
    assert "HYBRID_SHARD" in strategies[0].values
    legacy = get_fact("olmo", "activation_checkpointing", "0.6.0").list_kinds()
    assert {True, "whole_layer"} <= set(legacy[0].values)


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "integer"}, (ValueKind("int"),)),
        ({"type": ["number", "null"]}, (ValueKind("float"), ValueKind("null"))),
        ({"enum": ["a", None]}, (ValueKind("enum", ("a",)), ValueKind("null"))),
        ({"enum": ["a"]}, (ValueKind("enum", ("a",)),)),
        ({"type": "array", "items": {"type": "string"}}, (ValueKind("list", (), (ValueKind("str"),)),)),
        ({"type": "array"}, (ValueKind("list"),)),
        (
            {"anyOf": [{"$ref": "#/$defs/X"}, {"type": ["boolean", "null"]}]},
            (ValueKind("dict"), ValueKind("bool"), ValueKind("null")),
        ),
        ({"x-external": "torch.dtype"}, (ValueKind("any"),)),
        ({}, (ValueKind("any"),)),
    ],
)
def test_kinds(schema: dict[str, Any], kinds: tuple[ValueKind, ...]) -> None:
    assert list_kinds(schema) == kinds


def test_releases_between_and_beyond_the_known_ones() -> None:
    # 0.13.0 was never released; 0.12.2 is the newest before it.
    assert get_fact("axolotl", "fsdp_config.x", "0.13.0").is_open
    assert get_status("axolotl", "fp8_config", "99.0").kind == "present"
    assert get_status("axolotl", "micro_batch_size", "0.0.1").kind == "present"
    with pytest.raises(ValueError, match="not a release"):
        load("axolotl").find_fact(("micro_batch_size",), "latest")


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
    # A dead entry point still lists its former flags as removed.
    assert get_status("openrlhf", "--bf16", "0.9.6", Context(entry="train_ppo")).kind == "removed"


def test_list_items_and_unions_of_models() -> None:
    for index in (0, 7, "*"):
        path_fact = load("axolotl").find_fact(("datasets", index, "path"), "0.21.0")
        assert path_fact is not None
        assert path_fact.resolve_status().kind == "present"
    assert load("axolotl").find_fact(("datasets", "path"), "0.21.0") is None
    # A mapping for supervised data sets, a string for preference data sets.
    assert {ValueKind("dict"), ValueKind("str")} <= set(get_fact("axolotl", "datasets.0.type", "0.21.0").list_kinds())
    names = load("axolotl").list_names(("datasets", 0), "0.21.0")
    # Keys of supervised, preference and stepwise data sets.
    assert {"message_property_mappings", "data_files", "step_separator"} <= set(names)


def test_another_setting_chooses_what_the_items_of_a_list_are() -> None:
    axolotl = load("axolotl")
    key = ("datasets", 0, "roles_to_train")

    def has_key(release: str, **settings: str) -> bool:
        return axolotl.find_fact(key, release, Context(plugins=(), settings=settings)) is not None

    assert not has_key("0.21.0", rl="dpo")
    assert not has_key("0.21.0", rl="kto")
    assert has_key("0.21.0", rl="grpo")
    assert has_key("0.21.0")
    assert has_key("0.12.2", rl="ipo")  # chosen since 0.18.0
    assert axolotl.find_selection(("datasets", 0), "0.21.0", Context(settings={"rl": "dpo"})) == {"rl": "dpo"}
    assert (
        axolotl.find_fact(("test_datasets", 0, "roles_to_train"), "0.21.0", Context(settings={"rl": "dpo"})) is not None
    )


def test_walk_gives_each_setting_once() -> None:
    routes = [fact.route for fact in load("axolotl").iterate_keys("0.21.0")]
    assert len(routes) == len(set(routes))
    assert ("datasets", "*", "path") in routes
    assert ("fsdp_config", "offload_params") in routes
    assert ("fsdp",) not in routes


def build_vocabulary(patches: dict[str, Any], **keys: list[str]) -> Vocabulary:
    """Build a vocabulary of flat string settings, each with the releases that have it."""
    releases = sorted({release for having in keys.values() for release in having})
    tables = {
        release: ReleaseTable(
            {
                "Root": Definition(
                    {key: TableKey({"type": "string"}) for key, having in keys.items() if release in having}, "dropped"
                )
            },
            {"train": ("Root",)},
        )
        for release in releases
    }
    return Vocabulary("sample", form.format_schema(patch.apply_patches(fold({"main": tables}, "sample"), patches)))


def get_route_status(vocabulary: Vocabulary, route: Route, release: str) -> Status:
    fact = vocabulary.find_fact(route, release)
    assert fact is not None
    return fact.resolve_status()


def test_a_key_that_came_back() -> None:
    vocabulary = build_vocabulary({}, a=["1.0", "3.0"], b=["1.0", "2.0", "3.0"])
    assert get_route_status(vocabulary, ("a",), "1.0") == Status("present", "1.0")
    assert get_route_status(vocabulary, ("a",), "2.0") == Status("removed", "2.0", effect="dropped")
    assert get_route_status(vocabulary, ("a",), "3.5") == Status("present", "1.0")


def test_a_status_ends_with_its_last_release() -> None:
    patches = {
        "status": [
            {"keys": ["Root/a"], "kind": "ignored", "since": "1.5", "last": "2.5", "effect": "nothing", "source": "x"},
            {"keys": ["Root/a"], "kind": "renamed", "since": "3.0", "to": ["b"], "effect": "mapped", "source": "x"},
        ]
    }
    vocabulary = build_vocabulary(patches, a=["1.0", "2.0", "3.0"], b=["1.0", "2.0", "3.0"])
    assert [get_route_status(vocabulary, ("a",), release).kind for release in ("1.0", "1.5", "2.5", "2.6", "3.0")] == [
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
    vocabulary = build_vocabulary(patches, a=["1.0", "2.0"])
    assert get_route_status(vocabulary, ("late",), "1.0").kind == "not yet"
    assert get_route_status(vocabulary, ("late",), "2.0").kind == "present"
    assert get_route_status(vocabulary, ("never",), "2.0").effect == "error"
    assert json.dumps(dict(vocabulary.find_fact(("never",), "2.0").get_schema()))  # type: ignore[union-attr]
    assert "late" in vocabulary.list_names((), "2.0")
    assert "never" not in vocabulary.list_names((), "2.0")
