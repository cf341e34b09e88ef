"""axolotl configurations: recognition, reading and writing, checked against PyYAML and axolotl's own validation."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.documents.writer import is_identical
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.axolotl import framework as axolotl_framework
from cfglint_train.frameworks.axolotl import settings as axolotl
from cfglint_train.frameworks.lens import Config
from tests.support import laws
from tests.support.axolotl import judge_configs
from tests.support.cases import for_each
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_architecture, build_job, build_job_plan

EXAMPLES = [path for path in list_corpus_files(".yaml", ".yml", under="axolotl/examples") if path.is_file()]
FIXTURES = sorted((REPOSITORY / "fixtures" / "cases").glob("5-*/*.y*ml"))

MINIMAL = {"base_model": "x/y", "datasets": [{"path": "d", "type": "alpaca"}], "micro_batch_size": 2}


def parse_config(source: str | bytes | dict[str, Any], path: str = "x", **stated: str) -> Config:
    text = yaml.safe_dump(source, sort_keys=False) if isinstance(source, dict) else source
    return laws.build_config("axolotl", text, path=path, **stated)


def read_value(field: str, release: str = axolotl_framework.NEWEST, **keys: Any) -> Any:
    return laws.read_plan(parse_config({**MINIMAL, **keys}, axolotl=release)).get(field)


def is_recognised(source: str | bytes) -> bool:
    return bool(frameworks.recognise("axolotl", laws.parse_document(source, "yaml")))


# --- recognising -----------------------------------------------------------------------------------------------------


@needs_corpus
def test_recognises_the_corpus_and_nothing_else():
    assert len(EXAMPLES) == 252
    for path in list_corpus_files(".yaml", ".yml"):
        assert is_recognised(path.read_bytes()) is (path in EXAMPLES and path.parent.name != "cloud"), path


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_recognises_fixtures(path):
    assert is_recognised(path.read_bytes())


@pytest.mark.parametrize(
    "source",
    [
        "",
        "- base_model: x\n",
        "base_model: x\n",
        "base_model: x\ndatasets: []\n",
        # mergekit and hydra
        "base_model: x\nmerge_method: ties\nmodels: []\ndatasets: []\nadapter: lora\n",
        "defaults: [a]\nbase_model: x\ndatasets: []\noptimizer: adam\n",
    ],
)
def test_leaves_look_alikes_alone(source):
    assert not is_recognised(source)


@needs_corpus
@for_each("path", EXAMPLES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_values_are_pyyamls(path):
    assert is_identical(parse_config(path.read_bytes()).document.get_value(), yaml.safe_load(path.read_bytes()))


# --- defaults and reading --------------------------------------------------------------------------------------------


@for_each(
    ("field", "release", "expected"),
    [
        ("sequence.length", "0.21.0", 512),
        ("sequence.packing", "0.21.0", False),
        ("method.stage", "0.21.0", "sft"),
        ("method.tuning", "0.21.0", "full"),
        ("method.quantization", "0.21.0", "none"),
        ("method.lora_dropout", "0.21.0", 0.0),
        ("activations.checkpointing", "0.21.0", "none"),
        ("activations.offload", "0.21.0", "none"),
        ("activations.attention", "0.21.0", "sdpa"),
        ("activations.fused_loss", "0.21.0", "none"),
        ("batch.accumulation", "0.21.0", 1),
        ("checkpoint.keep", "0.21.0", 4),
        ("checkpoint.strategy", "0.21.0", "epoch"),
        ("checkpoint.model_only", "0.21.0", False),
        ("optimizer.stated_name", "0.7.0", "adamw_hf"),
        ("optimizer.stated_name", "0.8.0", "adamw_torch_fused"),
        ("optimizer.clipping", "0.21.0", 1.0),
        ("precision.compute", "0.21.0", "bf16"),
        ("data.prefetch", "0.12.0", 256),
        ("data.workers", "0.11.0", 0),
        ("eval.enabled", "0.21.0", False),
    ],
)
def test_defaults(field, release, expected):
    assert read_value(field, release) == expected
    assert laws.read_plan(parse_config(MINIMAL, axolotl=release)).get_origin(field).kind == "default"


KERNELS = {"plugins": ["axolotl.integrations.kernels.KernelsPlugin"]}


@for_each(
    ("keys", "field", "expected"),
    [
        ({"rl": "dpo"}, "method.stage", "dpo"),
        ({"rl": "gdpo"}, "method.stage", "grpo"),
        ({"rl": "dpo", "plugins": [axolotl.CCE_PLUGIN]}, "activations.fused_loss", "row_kernel"),
        ({"rl": "dpo", "dpo_use_liger_kernel": True}, "activations.fused_loss", "tiles"),
        ({"rl": "grpo", "trl": {"use_liger_loss": True}}, "activations.fused_loss", "tiles"),
        ({"rl": "kto", "dpo_use_liger_kernel": True}, "activations.fused_loss", "row_kernel"),
        (
            {"kd_trainer": True, "plugins": ["axolotl.integrations.kd.KDPlugin"]},
            "activations.fused_loss",
            "liger_distilled",
        ),
        ({"adapter": "lora", "lora_mlp_kernel": False}, "method.lora_kernel_parts", None),
        ({"adapter": "lora", "lora_mlp_kernel": True}, "method.lora_kernel_parts", ("mlp",)),
        ({"rl": "unheard"}, "method.stage", None),
        ({"pretraining_dataset": "d"}, "method.stage", "pretrain"),
        ({"reward_model": True}, "method.stage", "rm"),
        ({"adapter": "qlora"}, "method.tuning", "lora"),
        ({"adapter": "llama-adapter"}, "method.tuning", "llama-adapter"),
        ({"unfrozen_parameters": ["lm_head"]}, "method.tuning", "freeze"),
        ({"unfrozen_parameters": ["lm_head"]}, "method.unfrozen", ("lm_head",)),
        ({"lisa_n_layers": 4, "lisa_step_interval": 20}, "method.active_layers", 4),
        ({"lisa_n_layers": 4}, "method.active_layers", None),
        ({"load_in_4bit": True}, "method.quantization", "nf4"),
        ({"load_in_4bit": "true"}, "method.quantization", "nf4"),
        ({"load_in_8bit": True}, "method.quantization", "int8"),
        (
            {"load_in_4bit": True, "bnb_config_kwargs": {"bnb_4bit_use_double_quant": False}},
            "method.double_quantization",
            False,
        ),
        ({"use_scattermoe": True, **KERNELS}, "method.fuses_experts", True),
        ({"expert_backend": "ScatterMoE", **KERNELS}, "method.fuses_experts", True),
        ({"expert_backend": "eager", **KERNELS}, "method.fuses_experts", False),
        ({"use_sonicmoe": True, **KERNELS}, "method.fuses_experts", False),
        ({"use_scattermoe": True, "experts_implementation": "eager", **KERNELS}, "method.fuses_experts", False),
        # Reset to eager without the flag; never read without the plugin.
        ({"experts_implementation": "scattermoe", **KERNELS}, "method.fuses_experts", False),
        ({"use_scattermoe": True}, "method.fuses_experts", False),
        ({"adapter": "lora", "lora_target_linear": True}, "method.lora_targets", ("all-linear",)),
        ({"adapter": "lora", "lora_target_modules": ["q_proj"]}, "method.lora_targets", ("q_proj",)),
        ({"adapter": "lora", "lora_target_modules": "all-linear"}, "method.lora_targets", ("all-linear",)),
        ({"adapter": "lora", "lora_target_modules": ["q_proj", 1]}, "method.lora_targets", None),
        ({"adapter": "lora", "lora_target_modules": "model.layers.[0-9]+.q_proj"}, "method.lora_targets", ()),
        (
            {"adapter": "lora", "lora_target_modules": "model.layers.[0-9]+.q_proj"},
            "method.lora_target_pattern",
            "model.layers.[0-9]+.q_proj",
        ),
        ({"adapter": "lora", "peft_layers_to_transform": [30, 31]}, "method.lora_targets", None),
        ({"adapter": "lora", "lora_dropout": "0.05"}, "method.lora_dropout", 0.05),
        ({"bf16": False}, "precision.compute", "fp32"),
        ({"bf16": False, "fp16": True}, "precision.compute", "fp16"),
        ({"bf16": False, "load_in_8bit": True}, "precision.compute", "fp16"),
        ({"bf16": "auto"}, "precision.compute", "bf16"),
        ({"sequence_len": "4096"}, "sequence.length", 4096),
        ({"sequence_len": [1]}, "sequence.length", None),
        ({"batch_size": 8}, "batch.accumulation", 4),
        ({"batch_size": 8, "gradient_accumulation_steps": 3}, "batch.accumulation", 3),
        ({"gradient_checkpointing": True}, "activations.checkpointing", "full"),
        ({"gradient_checkpointing": "offload"}, "activations.offload", "cpu"),
        ({"gradient_checkpointing": True, "activation_offloading": "disk"}, "activations.offload", "cpu"),
        ({"gradient_checkpointing": True, "selective_checkpointing": True}, "activations.checkpointing", "selective"),
        ({"fsdp_config": {"activation_checkpointing": True}}, "activations.checkpointing", "full"),
        ({"fsdp_config": {"activation_checkpointing": False}}, "activations.checkpointing", "none"),
        # A value that axolotl rejects is unknown, not "none".
        ({"fsdp_config": {"activation_checkpointing": ["a"]}}, "activations.checkpointing", None),
        ({"gradient_checkpointing": ["a"]}, "activations.checkpointing", None),
        ({"attn_implementation": "flash_attention_2"}, "activations.attention", "flash"),
        ({"flash_attention": True}, "activations.attention", "flash"),
        ({"attn_implementation": "kernels-community/vllm-flash-attn3"}, "activations.attention", "flash"),
        ({"plugins": [axolotl.CCE_PLUGIN]}, "activations.fused_loss", "cce"),
        ({"plugins": [axolotl.CCE_PLUGIN], "cut_cross_entropy": False}, "activations.fused_loss", "none"),
        ({"cut_cross_entropy": True}, "activations.fused_loss", "none"),
        ({"liger_fused_linear_cross_entropy": True}, "activations.fused_loss", "none"),
        (
            {"plugins": [axolotl.LIGER_PLUGIN], "liger_fused_linear_cross_entropy": True},
            "activations.fused_loss",
            "liger",
        ),
        ({"plugins": [axolotl.LIGER_PLUGIN], "liger_rms_norm": True}, "activations.liger_layers", True),
        ({"plugins": [axolotl.LIGER_PLUGIN], "liger_rope": True}, "activations.liger_layers", False),
        ({"plugins": [axolotl.LIGER_PLUGIN], "liger_rms_norm": True}, "activations.liger_parts", ("norm",)),
        (
            {"plugins": [axolotl.LIGER_PLUGIN], "liger_rope": True, "liger_swiglu": True},
            "activations.liger_parts",
            ("rotary", "mlp"),
        ),
        ({"optimizer": "adamw_bnb_8bit"}, "optimizer.state_bits", 8),
        ({"optimizer": "muon"}, "optimizer.name", "muon"),
        ({"optimizer": "unheard_of"}, "optimizer.name", None),
        ({"fsdp": ["full_shard", "auto_wrap"]}, "parallel.wrapping", "block"),
        ({"fsdp_config": {"offload_params": True}}, "parallel.offload_optimizer", "cpu"),
        ({"fsdp_config": {"fsdp_offload_params": True}}, "parallel.offload_params", "cpu"),
        ({"fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}}, "checkpoint.state_dict", "sharded"),
        ({"fsdp_config": {"reshard_after_forward": False}}, "parallel.sharding", "shard_grad_op"),
        ({"max_steps": 2000}, "batch.steps", 2000),
        ({"save_steps": 100}, "checkpoint.interval", 100),
        ({"save_steps": 0.1}, "checkpoint.interval", None),
        ({"save_steps": 100, "save_strategy": "epoch"}, "checkpoint.strategy", "steps"),
        ({"saves_per_epoch": 2}, "checkpoint.strategy", "epoch"),
        ({"save_strategy": False}, "checkpoint.strategy", None),
        ({"save_total_limit": 0}, "checkpoint.keep", 4),
        ({"val_set_size": 0.1, "evals_per_epoch": 1}, "eval.enabled", True),
        ({"val_set_size": 0.1}, "eval.enabled", False),
        ({"dataloader_prefetch_factor": 4}, "data.workers", 0),
        ({"rl": "grpo", "trl": {"use_vllm": True, "vllm_mode": "colocate"}}, "rollout.mode", "colocate"),
    ],
)
def test_reads(keys, field, expected):
    assert read_value(field, **keys) == expected


@pytest.mark.parametrize(("release", "expected"), [("0.18.0", "fsdp1"), ("0.20.0", "fsdp2")])
def test_an_unversioned_fsdp_config_follows_the_release(release, expected):
    keys = {"fsdp_config": {"state_dict_type": "FULL_STATE_DICT"}}
    assert read_value("parallel.strategy", release, **keys) == expected


def test_sharding_strategy_is_read_until_it_is_dropped():
    keys = {"fsdp_version": 1, "fsdp_config": {"sharding_strategy": "HYBRID_SHARD"}}
    assert read_value("parallel.sharding", "0.12.0", **keys) == "hybrid_shard"
    assert read_value("parallel.sharding", "0.13.0", **keys) == "full_shard"


# --- what follows ----------------------------------------------------------------------------------------------------


def test_full_tuning_holds_what_the_backend_holds():
    bf16 = build_architecture("llama")
    single_gpu = build_job_plan(parse_config(MINIMAL), gpus=1, architecture=bf16)
    assert (single_gpu.parallel.strategy, single_gpu.precision.params, single_gpu.precision.master) == (
        "none",
        "bf16",
        "none",
    )
    assert (single_gpu.optimizer.state_bits, single_gpu.model.embeddings_fp32) == (16, True)
    sharded = build_job_plan(parse_config({**MINIMAL, "fsdp_config": {"x": 1}}, axolotl="0.18.0"), architecture=bf16)
    assert (sharded.parallel.strategy, sharded.precision.params, sharded.optimizer.state_bits) == ("fsdp1", "fp32", 32)
    assert sharded.parallel.shard_size == 8
    second = build_job_plan(parse_config({**MINIMAL, "fsdp_config": {"x": 1}}), architecture=bf16)
    assert (second.parallel.strategy, second.precision.params, second.optimizer.state_bits) == ("fsdp2", "bf16", 16)
    assert second.parallel.defers_reduction is True
    each = {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}
    assert build_job_plan(parse_config({**MINIMAL, **each, "fsdp_config": {"x": 1}})).parallel.defers_reduction is False


@pytest.mark.parametrize(
    ("release", "keys", "on"),
    [
        ("0.9.0", {"lora_dropout": 0}, False),
        ("0.9.1", {"lora_dropout": 0}, True),
        ("0.15.0", {}, False),
        ("0.15.0", {"lora_dropout": 0.05}, False),
        ("0.16.0", {}, True),
        ("0.16.0", {"lora_dropout": 0.05}, True),
        ("0.16.0", {"rl": "dpo"}, False),
        ("0.14.0", {"lora_dropout": 0, "trust_remote_code": True}, True),
        ("0.15.0", {"lora_dropout": 0, "trust_remote_code": True}, False),
        ("0.15.0", {"lora_dropout": 0.05, "lora_mlp_kernel": True}, False),
        ("0.16.0", {"lora_dropout": 0.05, "lora_mlp_kernel": True}, True),
    ],
)
def test_lora_kernels_switch_themselves_on_by_release(release, keys, on):
    job_plan = build_job_plan(parse_config({**MINIMAL, "adapter": "lora", **keys}, axolotl=release), gpus=1)
    assert job_plan.method.lora_kernels is on


def test_gradients_of_adapters_have_their_format():
    job_plan = build_job_plan(parse_config({**MINIMAL, "adapter": "qlora", "load_in_4bit": True, "bf16": True}), gpus=1)
    assert (job_plan.precision.adapter, job_plan.precision.grads) == ("fp32", "fp32")
    unconverted = build_job_plan(
        parse_config({**MINIMAL, "adapter": "lora", "peft_autocast_adapter_dtype": False, "bf16": True}), gpus=1
    )
    assert (unconverted.precision.adapter, unconverted.precision.grads) == ("bf16", "bf16")


def test_zero_keeps_an_fp32_master():
    inner = laws.build_config("deepspeed", '{"zero_optimization": {"stage": 3}}', "json", role="companion")
    job_plan = build_job_plan(
        parse_config({**MINIMAL, "deepspeed": "ds.json"}),
        {"deepspeed": inner},
        architecture=build_architecture("llama"),
    )
    assert (job_plan.parallel.strategy, job_plan.parallel.zero_stage, job_plan.precision.master) == ("zero", 3, "fp32")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rl": "dpo"}, "full"),
        ({"rl": "dpo", "adapter": "lora"}, "adapter-off"),
        ({"rl": "orpo"}, "none"),
        ({"rl": "simpo"}, "full"),
        ({}, "none"),
    ],
)
def test_reference_models(keys, expected):
    assert build_job_plan(parse_config({**MINIMAL, **keys})).method.reference_model == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"load_in_4bit": True}, False),
        ({"load_in_4bit": True, "quantize_moe_experts": True}, True),
        ({"quantize_moe_experts": True, "use_scattermoe": True}, True),
        ({"quantize_moe_experts": True, "use_scattermoe": True, **KERNELS}, False),
        ({"quantize_moe_experts": True, "use_sonicmoe": True, **KERNELS}, False),
    ],
)
def test_quantised_experts_are_unpacked_without_a_kernel(keys, expected):
    assert build_job_plan(parse_config({**MINIMAL, **keys})).method.unpacks_experts is expected


def test_published_quantisation_stays():
    quantised = build_architecture("llama", quantization="nvfp4")
    assert build_job_plan(parse_config(MINIMAL), architecture=quantised).method.quantization == "nvfp4"
    options = {"model_quantization_config_kwargs": {"dequantize": True}}
    assert build_job_plan(parse_config({**MINIMAL, **options}), architecture=quantised).method.quantization == "none"


# --- writing ---------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"activations.checkpointing": "full"},
    {"activations.checkpointing": "none"},
    {"activations.fused_loss": "liger"},
    {"batch.micro": 1},
    {"batch.micro": 1, "batch.accumulation": 16},
    {"checkpoint.model_only": True},
    {"checkpoint.keep": 2},
    {"checkpoint.state_dict": "sharded"},
    {"sequence.length": 1024},
    {"model.trust_remote_code": False},
]


def test_a_fused_loss_brings_its_plugin():
    after = laws.check_put_get(parse_config(MINIMAL), {"activations.fused_loss": "liger"})
    assert after is not None
    assert after.get("plugins") == [axolotl.LIGER_PLUGIN]
    assert after.get("liger_fused_linear_cross_entropy") is True


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ({"base_model": "mosaicml/mpt-7b"}, {"activations.checkpointing": "full"}),
        ({"base_model": "nvidia/Nemotron-H-8B"}, {"activations.checkpointing": "full"}),
        ({"rl": "ebft", "torch_compile": True}, {"activations.checkpointing": "full"}),
        ({"plugins": [axolotl.CCE_PLUGIN]}, {"activations.fused_loss": "liger"}),
        ({"tensor_parallel_size": 2}, {"activations.fused_loss": "liger"}),
        ({"rl": "dpo"}, {"activations.fused_loss": "liger"}),
        ({"chunked_cross_entropy": True}, {"activations.fused_loss": "liger"}),
        ({"batch_size": 8}, {"batch.accumulation": 2}),
        ({"fsdp_config": {"x": 1}}, {"parallel.sharding": "no_shard"}),
        ({}, {"parallel.replicas": 2}),  # FSDP, if any, is set up in accelerate's file
    ],
)
def test_refuses_what_axolotl_refuses(keys, changes):
    with pytest.raises(CannotEdit):
        laws.write_fields(parse_config({**MINIMAL, **keys}), changes)


@needs_corpus
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_laws_over_the_corpus(path):
    if path.parent.name == "cloud":
        return
    before = parse_config(path.read_bytes())
    assert laws.check_get_put(before) > 20
    assert sum(laws.check_put_get(before, changes) is not None for changes in CHANGES) >= 5
    build_job(before)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**7),
    st.floats(allow_nan=False),
    st.sampled_from(["", "auto", "true", "no", "8", "8.0", "1e-3", "lora", "qlora", "dpo", "grpo", "offload", "disk"]),
    st.text(max_size=5),
    st.lists(st.sampled_from([axolotl.LIGER_PLUGIN, axolotl.CCE_PLUGIN, "full_shard", "offload", 1]), max_size=3),
    st.dictionaries(
        st.sampled_from(["offload_params", "fsdp_offload_params", "state_dict_type", "fsdp_version", "use_vllm"]),
        st.sampled_from([True, False, None, 2, "FULL_STATE_DICT", "x"]),
        max_size=3,
    ),
)
NAMES = sorted({route[0] for lens in frameworks.load("axolotl").lenses for route in laws.list_routes(lens)})


@settings(max_examples=300, deadline=None)
@given(keys=st.dictionaries(st.sampled_from(NAMES), ODD, max_size=12), changes=st.sampled_from(CHANGES))
def test_laws_over_odd_files(keys, changes):
    before = parse_config({**MINIMAL, **keys})
    laws.check_get_put(before)
    laws.check_put_get(before, changes)
    build_job(before)


# --- axolotl as the judge --------------------------------------------------------------------------------------------


@pytest.mark.recorded
@needs_corpus
def test_axolotl_accepts_what_is_written():
    """Keep configurations that axolotl's validation accepts accepted after a fix, with their keys (law 5)."""
    befores = [parse_config(path.read_bytes(), str(path)) for path in EXAMPLES if path.parent.name != "cloud"]
    accepted = [verdict["accepted"] for verdict in judge_configs([before.document.get_value() for before in befores])]
    assert accepted.count(True) > 200
    written_changes: list[tuple[str, dict[str, Any], set[str]]] = []
    fixed: list[Any] = []
    for before, fine in zip(befores, accepted):
        for changes in CHANGES if fine else ():
            after = laws.check_put_get(before, changes)
            if after is not None and after.document.source != before.document.source:
                new = after.document.get_value().keys() - before.document.get_value().keys()
                written_changes.append((before.document.path, changes, new))
                fixed.append(after.document.get_value())
    assert len(fixed) > 800
    rejected = [
        (path, changes, verdict["why"])
        for (path, changes, new), verdict in zip(written_changes, judge_configs(fixed))
        if not verdict["accepted"] or not new <= set(verdict["kept"])
    ]
    assert not rejected


@pytest.mark.parametrize(
    ("adapter", "release", "kind", "doubled"),
    [
        ("lora", "0.5.2", "fp4", False),
        ("lora", "0.12.2", "fp4", False),
        ("lora", "0.13.1", "none", False),
        ("qlora", "0.12.2", "nf4", True),
        ("qlora", "0.13.1", "nf4", True),
    ],
)
def test_only_qlora_is_quantised_as_in_its_paper(adapter, release, kind, doubled):
    main = parse_config({**MINIMAL, "adapter": adapter, "load_in_4bit": True}, axolotl=release)
    method = build_job_plan(main).method
    assert (method.quantization, method.double_quantization) == (kind, doubled)


@pytest.mark.parametrize("accelerate", ["1.12.0", "1.13.0", "1.14.0"])
def test_no_accelerate_casts_what_axolotl_shards_with_fsdp2(accelerate):
    """Axolotl replaces accelerate's function (monkeypatch/accelerate/fsdp2.py)."""
    fsdp = {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}, "bf16": True}
    main = parse_config({**MINIMAL, **fsdp}, axolotl="0.13.1", accelerate=accelerate)
    plan = build_job_plan(main, gpus=2)
    assert (plan.parallel.strategy, plan.precision.params) == ("fsdp2", "bf16")


@pytest.mark.parametrize(("release", "kept"), [("0.42.0", True), ("0.45.0", None)])
def test_old_bitsandbytes_keeps_inputs(release, kept):
    main = parse_config({**MINIMAL, "adapter": "qlora", "load_in_4bit": True}, axolotl="0.5.0", bitsandbytes=release)
    assert build_job_plan(main).method.keeps_inputs is kept


@pytest.mark.parametrize(
    ("keys", "device"),
    [({"load_in_4bit": True}, "cuda"), ({"load_in_8bit": True}, "cuda"), ({}, None)],
)
def test_a_quantised_model_is_read_onto_every_gpu_under_fsdp(keys, device):
    adapter = "qlora" if "load_in_4bit" in keys else "lora"
    fsdp = {"fsdp_version": 2, "fsdp_config": {"cpu_ram_efficient_loading": False, "reshard_after_forward": True}}
    main = parse_config({**MINIMAL, "adapter": adapter, **keys, **fsdp}, axolotl="0.18.0")
    assert build_job_plan(main, gpus=2).model.init_device == device


@pytest.mark.parametrize(("release", "ahead"), [("5.2.0", True), ("5.4.0", None), ("4.57.0", None)])
def test_transformers_reads_ahead_of_its_quantiser(release, ahead):
    main = parse_config({**MINIMAL, "adapter": "qlora", "load_in_4bit": True}, axolotl="0.15.0", transformers=release)
    assert build_job_plan(main).method.reads_ahead is ahead


@pytest.mark.parametrize(
    ("release", "keys", "batch"),
    [
        ("0.7.1", {"sample_packing": True}, 8),
        ("0.8.0", {"sample_packing": True}, 2),
        ("0.8.0", {"sample_packing": True, "eval_sample_packing": False}, 8),
        ("0.8.0", {"sample_packing": True, "rl": "dpo"}, 8),
        ("0.8.0", {}, 8),
    ],
)
def test_packs_of_an_evaluation_are_as_large_as_in_training(release, keys, batch):
    main = parse_config({**MINIMAL, "micro_batch_size": 2, "eval_batch_size": 8, **keys}, axolotl=release)
    assert build_job_plan(main).batch.eval_micro == batch
