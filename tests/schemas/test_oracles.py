"""Vocabularies against the frameworks' own recorded verdicts, parsers and field lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import parse_release
from tests.support.corpus import CORPUS, SHARED, needs_corpus

DATA = SHARED / "data"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no shared data: nothing at {DATA} (set CFGLINT_SHARED)")


def load_record(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def is_rejected(context: Context, key: str, release: str) -> bool:
    """Return whether the vocabulary says that axolotl does not accept the key as it is."""
    fact = load("axolotl").find_fact((key,), release, context)
    if fact is None or fact.name != key:
        # An alias does not survive validation under its own name, and is no loss.
        return fact is None
    status = fact.resolve_status()
    return status.kind != "present" and status.effect != "mapped"


@needs_data
@needs_corpus
@pytest.mark.parametrize(("release", "file"), [("0.18.0", "0.18"), ("0.21.0", "0.21")])
def test_axolotl_drops_what_the_vocabulary_does_not_know_and_keeps_what_it_does(release: str, file: str) -> None:
    vocabulary = load("axolotl")
    checked = dropped_keys = 0
    for name, verdict in load_record(f"axolotl_validation_{file}.json").items():
        if not verdict["ok"]:
            continue
        config = yaml.safe_load((CORPUS / "axolotl" / "examples" / name).read_text(encoding="utf-8"))
        context = Context(plugins=tuple(config.get("plugins") or ()))
        unloadable = "plugin_err" in verdict or any("Could not load plugin" in warning for warning in verdict["warn"])
        for key, value in config.items():
            if value is None or value == []:
                # The dump omits null values, whether the key exists or not.
                continue
            fact = vocabulary.find_fact((key,), release, context)
            status = None if fact is None else fact.resolve_status()
            checked += 1
            if key in verdict["dropped"]:
                dropped_keys += 1
                was_renamed = status is not None and (
                    status.effect == "mapped" or (fact is not None and fact.name != key)
                )
                is_gated = unloadable and status is not None and bool(status.plugins)
                assert status is None or status.kind != "present" or was_renamed or is_gated, (name, key)
            else:
                assert not is_rejected(context, key, release), (name, key, status)
    assert checked > 4000
    assert dropped_keys > 80


@needs_data
def test_axolotl_keys_exist_when_the_recorded_history_says_so() -> None:
    vocabulary = load("axolotl")
    history = load_record("axolotl_keys_by_version.json")
    releases = sorted({change[0] for key in history.values() for change in key["history"]}, key=parse_release)
    assert len(releases) == 17
    for path, record in history.items():
        name = path.rpartition(".")[2]
        definition = record["scope"] if not record["scope"].startswith(("top", "plugin:")) else "AxolotlInputConfig"
        if path in ("plugin:llm_compressor.recipe", "plugin:llm_compressor.save_compressed"):
            # The record calls them settings of the plugin; they are keys of its mapping `llmcompressor`.
            definition = "CompressionArgs"
        facts = {fact.name: fact for fact in vocabulary.list_facts(definition, releases[-1])}
        assert name in facts, name
        spans = [(release, facts[name]._find_span(release)) for release in releases]
        # A setting that began in a plugin belongs to the root from the release that no longer needs the plugin.
        present = [release for release, span in spans if span and not (record["scope"] == "top" and "gate" in span)]
        assert present, name
        assert (present[0], present[-1]) == (record["first"], record["last"]), name


@needs_data
def test_axolotl_defaults_and_deprecations_agree_with_the_recorded_schema() -> None:
    vocabulary = load("axolotl")
    checked = 0
    for name, field in load_record("axolotl_schema_0.18.json")["top"].items():
        fact = vocabulary.find_fact((name,), "0.18.0")
        assert fact is not None, name
        schema = fact.get_schema()
        if field["default"] in ("None", "True", "False") and not str(field["default"]).startswith("<"):
            checked += 1
            assert schema["default"] is {"None": None, "True": True, "False": False}[field["default"]], name
        assert bool(field["deprecated"]) == bool(schema.get("deprecated")), name
    assert checked > 300


# Recorded from the `add_argument` calls. Until 0.7.0 this call follows `parse_args`, so the parser rejects the flag.
TOO_LATE = ("train_kto", "--use_ms", "0.7.0")


@needs_data
def test_openrlhf_flags_agree_with_the_recorded_parsers() -> None:
    vocabulary = load("openrlhf")
    flags = load_record("openrlhf_flags.json")
    pairs = 0
    for entry, record in flags.items():
        for release in vocabulary.releases:
            release_order = parse_release(release)
            expected = {
                flag
                for flag, facts in record["flags"].items()
                if any(parse_release(first) <= release_order <= parse_release(last) for first, last in facts["in"])
                and not ((entry, flag) == TOO_LATE[:2] and release_order < parse_release(TOO_LATE[2]))
            }
            context = Context(entry=entry)
            assert vocabulary.has_entry(entry, release) == bool(expected), (entry, release)
            if expected:
                pairs += 1
                assert set(vocabulary.list_names((), release, context)) == expected, (entry, release)
    assert set(vocabulary.entries) == set(flags)
    assert pairs > 700


@needs_data
def test_openrlhf_defaults_and_choices_agree_with_the_recorded_parsers() -> None:
    vocabulary = load("openrlhf")
    checked = 0
    for entry, record in load_record("openrlhf_flags.json").items():
        for flag, facts in record["flags"].items():
            for spec in facts["spec"]:
                if parse_release(spec["since"]) < parse_release("0.3.0"):
                    continue
                fact = vocabulary.find_fact((flag,), spec["since"], Context(entry=entry))
                assert fact is not None
                schema = fact.get_schema()
                checked += 1
                if spec["action"] in ("store_true", "store_false"):
                    assert schema.get("x-flag"), (entry, flag)
                    continue
                if spec["choices"]:
                    assert (schema.get("items") or schema)["enum"] == spec["choices"], (entry, flag)
                if "default" in schema and not isinstance(spec["default"], str):
                    assert schema["default"] == spec["default"], (entry, flag)
    assert checked > 800


@needs_data
def test_openrlhf_renames_agree_with_the_recorded_map() -> None:
    vocabulary = load("openrlhf")
    release = "0.10.2"
    for entry, renames in load_record("openrlhf_rename_map.json").items():
        context = Context(entry=entry)
        for old, new in renames.items():
            fact = vocabulary.find_fact((old,), release, context)
            assert fact is not None, (entry, old)
            status = fact.resolve_status()
            if old in new:
                assert status.kind == "present"
            elif new:
                assert (status.kind, status.since, list(status.new_names)) == ("renamed", release, new), (entry, old)
                assert status.effect == "error"
            else:
                assert (status.kind, status.since) == ("removed", release), (entry, old)
            assert fact.resolve_status("0.10.1.post2").kind == "present", (entry, old)


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys that DeepSpeedConfig 0.19.8 looked up when it ran on a mapping that records its accesses.
DEEPSPEED_0_19_8 = split_words("""
activation_checkpointing aio autotuning bf16 bfloat16 checkpoint comet comms_logger communication_data_type compile
csv_monitor data_efficiency data_types dataloader_drop_last datastates_ckpt disable_allgather disable_python_gc
dump_state expert_parallel flops_profiler fp16 gradient_accumulation_steps gradient_allreduce_op gradient_clipping
gradient_predivide_factor hybrid_engine log_level managed_gradient_accumulation memory_breakdown optimizer pipeline
prescale_gradients scheduler seq_parallel_communication_data_type steps_per_print tensor_parallel tensorboard timers
torch_autocast train_batch_size train_micro_batch_size_per_gpu use_data_before_expert_parallelism vocabulary_size
wall_clock_breakdown wandb weight_quantization zero_allow_untested_optimizer zero_force_ds_cpu_optimizer
zero_optimization sequence_parallel_size
""")
DEEPSPEED_REFUSED = split_words("""
amp compression_training curriculum_learning eigenvalue elasticity graph_harvesting nebula progressive_layer_drop
quantize_training sparse_attention sparse_gradients
""")


def test_deepspeed_keys_are_those_that_its_reader_looks_up() -> None:
    vocabulary = load("deepspeed")
    accepted = set()
    refused = set()
    for fact in vocabulary.list_facts("DeepSpeedConfig", "0.19.8"):
        status = fact.resolve_status()
        if status.effect == "error":
            refused.add(fact.name)
        elif fact._find_span("0.19.8") is not None:
            accepted.add(fact.name)
    # allgather_size is looked up only if zero_optimization is a boolean.
    assert accepted - {"allgather_size"} == DEEPSPEED_0_19_8
    assert refused == DEEPSPEED_REFUSED


@pytest.mark.parametrize(
    ("route", "release", "default"),
    [
        (("gradient_clipping",), "0.19.2", 0.0),
        (("gradient_clipping",), "0.19.3", 1.0),
        (("bf16", "check_grad_overflow"), "0.19.2", False),
        (("bf16", "check_grad_overflow"), "0.19.3", True),
        (("zero_optimization", "offload_optimizer", "pin_memory"), "0.19.4", False),
        (("zero_optimization", "offload_optimizer", "pin_memory"), "0.19.5", True),
        (("zero_optimization", "reduce_bucket_size"), "0.19.8", 500_000_000),
        (("zero_optimization", "sub_group_size"), "0.19.8", 1_000_000_000),
        (("zero_optimization", "stage3_prefetch_bucket_size"), "0.19.8", 50_000_000),
    ],
)
def test_deepspeed_defaults_by_release(route: tuple[str, ...], release: str, default: object) -> None:
    fact = load("deepspeed").find_fact(route, release)
    assert fact is not None
    assert fact.get_default() == default
    assert type(fact.get_default()) is type(default)


# LLaMA-Factory's dataclasses and transformers' training arguments, counted at the pairs that each release allows:
# release, transformers, number of keys.
COUNTS = [("0.8.0", "4.41.0", 257), ("0.9.0", "4.45.0", 276), ("0.9.2", "4.49.0", 311), ("0.9.5", "5.6.0", 346)]


@pytest.mark.parametrize(("release", "transformers", "total"), COUNTS)
def test_llamafactory_accepts_as_many_keys_as_were_counted(release: str, transformers: str, total: int) -> None:
    vocabulary = load("llamafactory")
    context = Context(entry="train", releases={"transformers": transformers})
    accepted = set()
    for definition in vocabulary.list_definitions((), release, context):
        accepted |= {
            fact.name for fact in vocabulary.list_facts(definition, release, context) if fact._find_span(release)
        }
    assert len(accepted) == total
