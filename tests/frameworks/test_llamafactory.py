"""LLaMA-Factory v0 and v1: recognition, reading and writing, checked against OmegaConf and (slow) its own parser."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.documents.writer import is_identical
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory import framework as llamafactory_framework
from cfglint_train.frameworks.llamafactory_v1 import framework as llamafactory_v1_framework
from cfglint_train.models import lookup
from cfglint_train.models.architecture import Tower
from tests.support import laws
from tests.support.cases import for_each
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_architecture, build_job, build_job_plan
from tests.support.linting import list_runs

FIXTURES = sorted((REPOSITORY / "fixtures" / "llamafactory").glob("*.yaml"))
CASES = sorted((REPOSITORY / "fixtures" / "cases").glob("2-*/*.yaml"))
EXAMPLES = list_corpus_files(".yaml", under="llamafactory/examples")
V1 = [path for path in EXAMPLES if "v1" in path.parts]
LAUNCH = [path for path in EXAMPLES if path.parent.name == "accelerate"]
OTHER = [
    path
    for path in EXAMPLES
    if path.parent.name in ("inference", "merge_lora") or path.name == "llama3_lora_predict.yaml"
]
TOKENS = [path for path in EXAMPLES if path.name == "tokens_cfg.yaml"]
TRAINING = [path for path in EXAMPLES if path not in {*V1, *LAUNCH, *OTHER, *TOKENS}]

MINIMAL = {"model_name_or_path": "x/y", "dataset": "d", "template": "t", "output_dir": "out", "do_train": True}


def parse_config(source: str | bytes | dict[str, Any], **stated: str) -> Config:
    text = yaml.safe_dump(source, sort_keys=False) if isinstance(source, dict) else source
    return laws.build_config("llamafactory", text, **stated)


def build_minimal(**keys: Any) -> dict[str, Any]:
    return {**MINIMAL, **keys}


def read_value(field: str, release: str = llamafactory_framework.NEWEST, **keys: Any) -> Any:
    return laws.read_plan(parse_config(build_minimal(**keys), llamafactory=release)).get(field)


def recognise_source(source: str | bytes) -> list[frameworks.RecognisedConfig]:
    return frameworks.recognise("llamafactory", laws.parse_document(source, "yaml"))


def test_bitsandbytes_had_another_name():
    method = {"quantization_bit": 4, "quantization_method": "bitsandbytes"}
    assert read_value("method.quantization", "0.9.2", **method) == "nf4"
    assert read_value("method.quantization", "0.9.3", **method) is None
    assert read_value("method.quantization", "0.9.3", **{**method, "quantization_method": "bnb"}) == "nf4"
    assert read_value("method.quantization", "0.9.2", quantization_bit=8) == "int8"


# --- recognising -----------------------------------------------------------------------------------------------------


@needs_corpus
def test_recognises_the_corpus_and_nothing_else():
    assert (len(TRAINING), len(OTHER), len(LAUNCH), len(TOKENS)) == (55, 11, 11, 1)
    for path in list_corpus_files(".yaml", ".yml"):
        recognised = recognise_source(path.read_bytes())
        expected = [None] if path in TRAINING else ["other"] if path in OTHER else []
        assert [config.role for config in recognised] == expected, path


@pytest.mark.parametrize("path", [*FIXTURES, *CASES], ids=lambda path: path.name)
def test_recognises_fixtures(path):
    assert [config.role for config in recognise_source(path.read_bytes())] == [None]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "- model_name_or_path: x\n  stage: sft\n  template: t\n",
        "model_name_or_path: x\n",
        # TRL and alignment-handbook recipes
        "model_name_or_path: x\ntorch_dtype: bfloat16\ndataset_name: d\nlora_r: 8\nlearning_rate: 1.0e-5\n",
        "model_name_or_path: x\nattn_implementation: flash_attention_2\ndataset_mixer: {}\ntemplate: t\nstage: sft\n",
        "model_name_or_path: x\ndataset: d\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\n",
        "base_model: x\nmodel_name_or_path: y\ndatasets: []\ntemplate: t\nstage: sft\n",
    ],
)
def test_leaves_look_alikes_alone(source):
    assert not recognise_source(source)


@pytest.mark.parametrize(
    ("keys", "purpose"),
    [
        ({"template": "t", "infer_backend": "vllm"}, "inference"),
        ({"template": "t", "export_dir": "out"}, "export"),
        ({"stage": "sft", "template": "t", "dataset": "d", "do_predict": True}, "prediction"),
    ],
)
def test_files_that_train_nothing_are_named(keys, purpose):
    (recognised,) = recognise_source(yaml.safe_dump({"model_name_or_path": "x", **keys}))
    assert recognised.role == "other"
    assert purpose in recognised.reason


@needs_corpus
@for_each("path", [*TRAINING, *V1], ids=lambda path: str(path.relative_to(CORPUS)))
def test_values_are_omegaconfs(path):
    omegaconf = pytest.importorskip("omegaconf")
    expected = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(path))
    assert is_identical(parse_config(path.read_bytes()).document.get_value(), expected)


# --- defaults --------------------------------------------------------------------------------------------------------


@for_each(
    ("field", "release", "expected"),
    [
        ("sequence.length", "0.9.0", 1024),
        ("sequence.length", "0.9.1", 2048),
        ("model.trust_remote_code", "0.9.1", True),
        ("model.trust_remote_code", "0.9.2", False),
        ("model.frozen_projector", "0.9.1", False),
        ("model.frozen_projector", "0.9.2", True),
        ("model.frozen_vision", "0.9.5", True),
        ("method.stage", "0.9.5", "sft"),
        ("method.tuning", "0.9.5", "lora"),
        ("method.lora_rank", "0.9.5", 8),
        ("method.lora_targets", "0.9.5", ("all-linear",)),
        ("method.quantization", "0.9.5", "none"),
        ("batch.micro", "0.9.5", 8),
        ("batch.eval_micro", "0.9.5", 8),
        ("batch.accumulation", "0.9.5", 1),
        ("activations.checkpointing", "0.9.5", "full"),
        ("activations.reentrant", "0.9.5", True),
        ("activations.attention", "0.9.5", "sdpa"),
        ("activations.fused_loss", "0.9.5", "none"),
        ("checkpoint.strategy", "0.9.5", "steps"),
        ("checkpoint.interval", "0.9.5", 500),
        ("checkpoint.keep", "0.9.5", "all"),
        ("checkpoint.model_only", "0.9.5", False),
        ("eval.enabled", "0.9.5", False),
        ("optimizer.stated_name", "0.9.5", "adamw_torch_fused"),
        ("optimizer.stated_name", "0.9.3", "adamw_torch"),
        ("optimizer.clipping", "0.9.5", 1.0),
        ("data.workers", "0.9.5", 0),
        ("logging.interval", "0.9.5", 500),
        ("sequence.packing", "0.9.5", False),
    ],
)
def test_defaults(field, release, expected):
    assert read_value(field, release) == expected
    assert laws.read_plan(parse_config(build_minimal(), llamafactory=release)).get_origin(field).kind == "default"


def test_pins_are_the_releases_that_are_allowed():
    assert llamafactory_framework.FRAMEWORK.list_installed("0.9.5")["transformers"] == "5.6.0"
    assert llamafactory_framework.FRAMEWORK.list_installed("0.9.4.post1")["transformers"] == "4.57.1"
    assert llamafactory_framework.FRAMEWORK.list_installed("0.8.3") == {}


# --- reading ---------------------------------------------------------------------------------------------------------


@for_each(
    ("keys", "field", "expected"),
    [
        ({"stage": "pt"}, "method.stage", "pretrain"),
        ({"stage": "dpo"}, "method.stage", "dpo"),
        ({"stage": "dpo", "pref_loss": "simpo"}, "method.stage", "simpo"),
        ({"stage": "dpo", "pref_loss": "odd"}, "method.stage", None),
        ({"stage": "rlhf"}, "method.stage", None),
        ({"stage": "pt"}, "sequence.packing", True),
        ({"stage": "pt", "packing": False}, "sequence.packing", False),
        ({"neat_packing": True}, "sequence.packing", True),
        ({"lora_target": "q_proj, v_proj"}, "method.lora_targets", ("q_proj", "v_proj")),
        ({"lora_target": ["q_proj"]}, "method.lora_targets", ("q_proj",)),
        ({"lora_target": 3}, "method.lora_targets", None),
        ({"finetuning_type": "oft", "oft_target": "q_proj"}, "method.lora_targets", ("q_proj",)),
        ({"finetuning_type": "full"}, "method.lora_targets", ("all-linear",)),
        ({"additional_target": "lm_head"}, "method.lora_modules_to_save", ("lm_head",)),
        ({"resize_vocab": True}, "method.lora_modules_to_save", ("embed_tokens", "lm_head")),
        ({"finetuning_type": "freeze"}, "method.trainable_layers", 2),
        ({"finetuning_type": "freeze", "freeze_trainable_layers": -3}, "method.trainable_layers", 3),
        ({"finetuning_type": "freeze", "freeze_trainable_modules": "mlp"}, "method.trainable_layers", None),
        ({"finetuning_type": "freeze", "freeze_extra_modules": "norm"}, "method.trainable_layers", None),
        ({"quantization_bit": 4}, "method.quantization", "nf4"),
        ({"quantization_bit": 4, "quantization_type": "fp4"}, "method.quantization", "fp4"),
        ({"quantization_bit": 4, "double_quantization": False}, "method.double_quantization", False),
        ({"quantization_bit": 8}, "method.quantization", "int8"),
        ({"quantization_bit": 3, "quantization_method": "hqq"}, "method.quantization", "hqq"),
        ({"quantization_bit": "4"}, "method.quantization", None),
        # Without the number of bits, the other keys have no effect.
        ({"quantization_method": "bnb", "quantization_type": "nf4"}, "method.quantization", "none"),
        ({"bf16": True}, "precision.compute", "bf16"),
        ({"bf16": True}, "precision.autocast", True),
        ({"pure_bf16": True}, "precision.autocast", False),
        ({"fp16": True}, "precision.compute", "fp16"),
        ({"fp8": True, "bf16": True}, "precision.compute", "fp8"),
        ({"fp8": True, "bf16": True, "stage": "dpo"}, "precision.compute", "bf16"),
        ({"bf16": "false"}, "precision.compute", None),
        ({"finetuning_type": "full"}, "precision.compute", "fp32"),
        ({"bf16": None, "finetuning_type": "full"}, "precision.compute", "fp32"),
        ({"gradient_checkpointing": False}, "activations.checkpointing", "full"),
        ({"disable_gradient_checkpointing": True}, "activations.checkpointing", "none"),
        ({"disable_gradient_checkpointing": True, "gradient_checkpointing": True}, "activations.checkpointing", "full"),
        ({"disable_gradient_checkpointing": True, "use_unsloth": True}, "activations.checkpointing", "full"),
        ({"use_unsloth_gc": True}, "activations.offload", "cpu"),
        ({"use_reentrant_gc": False}, "activations.reentrant", False),
        # The Trainer's own switch calls LLaMA-Factory's function again, without its arguments.
        ({"use_reentrant_gc": False, "gradient_checkpointing": True}, "activations.reentrant", True),
        (
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
            "activations.reentrant",
            False,
        ),
        ({"max_steps": 2000}, "batch.steps", 2000),
        ({"max_steps": -1}, "batch.steps", None),
        ({"flash_attn": "fa2"}, "activations.attention", "flash"),
        ({"flash_attn": "disabled"}, "activations.attention", "eager"),
        ({"flash_attn": True}, "activations.attention", None),
        ({"flash_attn": "flash_attention_2"}, "activations.attention", None),
        ({"enable_liger_kernel": True}, "activations.fused_loss", "liger"),
        ({"use_liger_kernel": True}, "activations.fused_loss", "liger"),
        ({"enable_liger_kernel": True, "stage": "dpo"}, "activations.fused_loss", "none"),
        ({"enable_liger_kernel": True, "stage": "dpo"}, "activations.liger_layers", True),
        ({"enable_liger_kernel": True, "use_dft_loss": True}, "activations.fused_loss", "none"),
        ({"torch_compile_backend": "inductor"}, "activations.compile", True),
        ({"optim": "paged_adamw_8bit"}, "optimizer.paged", True),
        ({"optim": "adamw_torch"}, "optimizer.implementation", "foreach"),
        ({"optim": "unheard_of"}, "optimizer.name", None),
        ({"use_galore": True, "galore_layerwise": True}, "optimizer.name", "galore_adamw_layerwise"),
        ({"use_galore": True, "optim": "adamw_8bit"}, "optimizer.state_bits", 8),
        ({"use_galore": True, "optim": "adafactor"}, "optimizer.name", "galore_adafactor"),
        ({"use_galore": True}, "optimizer.rank", 16),
        ({"use_apollo": True, "apollo_rank": 256}, "optimizer.rank", 256),
        ({"use_apollo": True, "apollo_target": "q_proj,v_proj"}, "optimizer.targets", ("q_proj", "v_proj")),
        ({"use_badam": True, "finetuning_type": "full", "badam_mode": "ratio"}, "optimizer.name", "badam_ratio"),
        ({"use_adam_mini": True, "use_muon": True}, "optimizer.name", "adam_mini"),
        ({"use_muon": True, "loraplus_lr_ratio": 16.0}, "optimizer.name", "adamw"),
        ({"save_total_limit": 0}, "checkpoint.keep", "all"),
        ({"save_total_limit": 3}, "checkpoint.keep", 3),
        ({"save_steps": 0.1}, "checkpoint.interval", None),
        ({"save_steps": 100.0}, "checkpoint.interval", 100),
        ({"save_steps": "100"}, "checkpoint.interval", None),
        ({"save_strategy": False}, "checkpoint.strategy", None),
        ({"resume_from_checkpoint": "out/checkpoint-5"}, "checkpoint.load_path", "out/checkpoint-5"),
        ({"resume_from_checkpoint": True}, "checkpoint.resume_latest", True),
        ({"val_size": 0.1}, "eval.enabled", False),
        ({"val_size": 0.1, "eval_strategy": "steps"}, "eval.enabled", True),
        ({"eval_dataset": "e", "evaluation_strategy": "epoch"}, "eval.strategy", "epoch"),
        ({"eval_dataset": "e", "do_eval": True}, "eval.enabled", True),
        ({"eval_strategy": "steps"}, "eval.enabled", False),
        ({"include_num_input_tokens_seen": "all"}, "logging.count_tokens", True),
        ({"per_device_train_batch_size": None}, "batch.micro", None),
        ({"per_device_train_batch_size": "4"}, "batch.micro", None),
        # transformers 4.57.1: per_gpu_train_batch_size or per_device_train_batch_size
        ({"per_gpu_train_batch_size": 16}, "batch.micro", 16),
        ({"per_gpu_train_batch_size": 16, "per_device_train_batch_size": 2}, "batch.micro", 16),
        ({"per_gpu_train_batch_size": None, "per_device_train_batch_size": 2}, "batch.micro", 2),
        ({"per_gpu_train_batch_size": 0}, "batch.micro", 8),
        ({"per_gpu_train_batch_size": "16"}, "batch.micro", None),
        ({"per_gpu_train_batch_size": 16, "stage": "ppo"}, "batch.micro", 8),
        ({"per_gpu_eval_batch_size": 2, "per_device_eval_batch_size": 4}, "batch.eval_micro", 2),
        ({"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2}, "parallel.pipeline", 2),
        ({"tensor_model_parallel_size": 4}, "activations.checkpointing", "none"),
        ({"tensor_model_parallel_size": 4, "recompute_granularity": "full"}, "activations.checkpointing", "full"),
    ],
)
def test_reads(keys, field, expected):
    assert read_value(field, **keys) == expected


def test_before_092_one_key_froze_all_but_the_projector():
    reading = laws.read_plan(parse_config(build_minimal(train_mm_proj_only=True), llamafactory="0.9.1"))
    assert [reading.get(f"model.frozen_{part}") for part in ("vision", "projector", "language")] == [True, False, True]


def test_origins_point_to_the_setting():
    before = parse_config("model_name_or_path: x/y\nstage: pt\ntemplate: t\nsave_steps: 7  # often\n")
    origin = laws.read_plan(before).get_origin("checkpoint.interval")
    assert (origin.kind, origin.key) == ("explicit", "save_steps")
    assert origin.place.document.get_text(origin.place.span) == "save_steps: 7"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, True),
        ({"torch_compile": False}, None),
        ({"stage": "dpo"}, None),
        ({"enable_liger_kernel": True}, None),
        ({"use_dft_loss": True}, None),
        ({"label_smoothing_factor": 0.1}, None),
    ],
)
def test_a_compiled_model_computes_its_own_loss(keys, expected):
    built = build_plan(**{"stage": "sft", "torch_compile": True, **keys})
    assert built.activations.compiled_loss is expected


# --- what follows ----------------------------------------------------------------------------------------------------


def build_plan(
    nodes: int = 1, gpus: int = 8, architecture: Any = None, release: str = llamafactory_framework.NEWEST, **keys: Any
) -> Any:
    return build_job_plan(
        parse_config(build_minimal(**keys), llamafactory=release), nodes=nodes, gpus=gpus, architecture=architecture
    )


BF16 = build_architecture(dtype="bf16")


@pytest.mark.parametrize(
    ("keys", "params", "frozen", "adapter", "state"),
    [
        ({"finetuning_type": "full", "bf16": True}, "fp32", "bf16", None, 32),
        ({"finetuning_type": "full", "pure_bf16": True}, "bf16", "bf16", None, 16),
        ({"finetuning_type": "full"}, "fp32", "bf16", None, 32),
        ({"finetuning_type": "lora", "bf16": True}, "fp32", "bf16", "fp32", 32),
        ({"finetuning_type": "lora", "pure_bf16": True}, "bf16", "bf16", "fp32", 32),
        ({"finetuning_type": "freeze", "bf16": True}, "fp32", "bf16", None, 32),
    ],
)
def test_formats_without_deepspeed(keys, params, frozen, adapter, state):
    job_plan = build_plan(architecture=BF16, **keys)
    precision = job_plan.precision
    assert (precision.params, precision.frozen, precision.adapter) == (params, frozen, adapter)
    assert precision.grads == (adapter or params)
    assert job_plan.optimizer.state_bits == state
    assert job_plan.parallel.strategy == "ddp"


def test_an_fp32_checkpoint_stays_fp32():
    job_plan = build_plan(architecture=build_architecture(dtype="fp32"), finetuning_type="lora", bf16=True)
    assert job_plan.precision.frozen == "fp32"


def test_an_adapter_without_mixed_precision_computes_as_the_checkpoint():
    assert build_plan(architecture=BF16).precision.compute == "bf16"
    assert build_plan().precision.compute is None


def test_one_gpu_is_no_ddp():
    assert build_plan(gpus=1).parallel.strategy == "none"


def test_plain_data_parallelism_is_an_assumption():
    origin = build_job(parse_config(build_minimal())).plan.get_origin("parallel.strategy")
    assert origin.kind == "assumed"
    assert "launch script" in origin.note


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# accelerate launch \\\n#     --config_file a/fsdp.yaml \\\n#     src/train.py x.yaml\n", "a/fsdp.yaml"),
        ("# run: accelerate launch --config_file=b.yaml src/train.py\n", "b.yaml"),
        ("# accelerate launch src/train.py --config_file c.yaml\n", None),
        ("# accelerate launch --config_file\n", None),
        ("# start with accelerate\n", None),
        ("", None),
    ],
)
def test_a_comment_names_the_file_of_the_launch(comment, expected):
    main = parse_config(comment + "model_name_or_path: x\nstage: sft\ntemplate: t\n")
    paths = [
        reference.path
        for reference in llamafactory_framework.list_references(main)
        if reference.framework == "accelerate"
    ]
    assert paths == ([] if expected is None else [expected])


def test_a_deepspeed_file_that_is_missing_leaves_the_formats_unknown():
    job_plan = build_plan(deepspeed="nowhere.json", finetuning_type="full", bf16=True)
    assert (job_plan.parallel.strategy, job_plan.precision.params, job_plan.precision.loaded) == (None, None, None)


def build_zero_plan(stage: int, **keys: Any) -> Any:
    main = parse_config(
        build_minimal(deepspeed={"zero_optimization": {"stage": stage}, "bf16": {"enabled": "auto"}}, **keys)
    )
    (reference,) = llamafactory_framework.list_references(main)
    assert reference.path is None
    inner = Config("deepspeed", main.document, main.releases, reference.route, "companion")
    return build_job_plan(main, {"deepspeed": inner}, architecture=BF16)


@pytest.mark.parametrize(("stage", "loaded"), [(2, "fp32"), (3, "none"), (0, "fp32")])
def test_zero_casts_back_what_was_cast_up_to_load(stage, loaded):
    precision = build_zero_plan(stage, finetuning_type="full", bf16=True).precision
    assert (precision.params, precision.master, precision.autocast) == ("bf16", "fp32", False)
    assert precision.loaded == loaded


def test_adapters_under_zero_are_16_bit():
    assert build_zero_plan(2, finetuning_type="lora", bf16=True).precision.adapter == "bf16"


def test_inline_deepspeed_fixture():
    source = (REPOSITORY / "fixtures/llamafactory/deepspeed_inline.yaml").read_bytes()
    main = parse_config(source)
    inner = Config("deepspeed", main.document, main.releases, ("deepspeed",), "companion")
    job_plan = build_job_plan(main, {"deepspeed": inner}, architecture=BF16)
    assert (job_plan.batch.micro, job_plan.batch.global_, job_plan.optimizer.clipping) == (8, 64, 1.0)
    assert (job_plan.method.stage, job_plan.method.reference_model, job_plan.batch.pairs) == ("dpo", "full", True)
    assert job_plan.optimizer.implementation == "cpu"


def test_fsdp_fixture():
    job_plan = build_job_plan(
        parse_config((REPOSITORY / "fixtures/llamafactory/fsdp_inline.yaml").read_bytes()), architecture=BF16
    )
    assert (job_plan.parallel.strategy, job_plan.parallel.sharding, job_plan.parallel.wrapping) == (
        "fsdp2",
        "shard_grad_op",
        "block",
    )
    assert (job_plan.activations.checkpointing, job_plan.activations.reentrant) == ("full", False)
    assert (job_plan.precision.params, job_plan.precision.loaded) == ("fp32", "none")
    assert (job_plan.parallel.shard_size, job_plan.parallel.offload_optimizer) == (8, "cpu")


@pytest.mark.parametrize(
    ("accelerate", "frozen"), [("1.5.2", "bf16"), ("1.11.0", "fp32"), ("1.13.0", "bf16"), ("1.15.0", "bf16")]
)
def test_accelerate_casts_even_frozen_weights_for_fsdp2(accelerate, frozen):
    keys = build_minimal(bf16=True, fsdp="full_shard", fsdp_config={"version": 2})
    job_plan = build_job_plan(parse_config(keys, accelerate=accelerate), architecture=BF16)
    assert job_plan.precision.frozen == frozen


@pytest.mark.parametrize(("release", "params"), [("0.9.2", "fp32"), ("0.9.3", "fp32")])
def test_fsdp_trains_fp32_in_every_release(release, params):
    keys = build_minimal(
        bf16=True, finetuning_type="full", fsdp="full_shard", fsdp_config={"cpu_ram_efficient_loading": True}
    )
    assert build_job_plan(parse_config(keys, llamafactory=release), architecture=BF16).precision.params == params


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"stage": "dpo", "finetuning_type": "full"}, "full"),
        ({"stage": "dpo", "finetuning_type": "freeze"}, "full"),
        ({"stage": "dpo"}, "adapter-off"),
        ({"stage": "dpo", "ref_model": "x/z"}, "full"),
        ({"stage": "dpo", "ref_model": "x/z", "ref_model_quantization_bit": 4}, None),
        ({"stage": "dpo", "pref_loss": "orpo", "finetuning_type": "full"}, "none"),
        ({"stage": "kto", "finetuning_type": "full"}, "full"),
        ({"stage": "rm", "finetuning_type": "full"}, "none"),
        ({"use_asft_loss": True, "finetuning_type": "full"}, "full"),
        ({}, "none"),
    ],
)
def test_reference_models(keys, expected):
    assert build_plan(**keys).method.reference_model == expected


def test_models_of_ppo():
    job_plan = build_plan(stage="ppo", finetuning_type="full", reward_model="x/r", reward_model_type="full")
    assert [role.name for role in job_plan.model.roles] == ["actor", "reference", "reward"]
    assert job_plan.rollout.engine == "hf"
    assert job_plan.rollout.gathers


@pytest.mark.parametrize(("release", "bits", "ahead"), [("5.2.0", 4, True), ("5.4.0", 4, None), ("5.2.0", None, None)])
def test_transformers_reads_ahead_of_its_quantiser(release, bits, ahead):
    main = parse_config(build_minimal(finetuning_type="lora", quantization_bit=bits), transformers=release)
    assert build_job_plan(main).method.reads_ahead is ahead


def test_layers_of_a_frozen_language_model_are_not_checkpointed():
    source = (REPOSITORY / "fixtures/llamafactory/frozen_language.yaml").read_bytes()
    job = build_job(parse_config(source))
    assert job.plan.get("activations.checkpointing") == "none"
    assert job.plan.get_origin("activations.checkpointing").key == "freeze_language_model"
    assert job.plan.get("activations.tower") is True  # its blocks are trained
    assert build_plan(finetuning_type="full", freeze_language_model=True).activations.checkpointing == "full"
    assert build_plan(freeze_language_model=True, freeze_vision_tower=False).activations.checkpointing == "full"


@pytest.mark.parametrize(
    ("kind", "keys", "field", "expected"),
    [
        ("gpt_oss", {}, "activations.attention", "flash3"),
        ("gemma2", {}, "activations.attention", None),
        ("gemma2", {"flash_attn": "fa2"}, "activations.attention", "flash"),
        ("youtu", {}, "activations.attention", "eager"),
        ("qwen3", {"enable_liger_kernel": True}, "activations.fused_loss", "liger"),
        ("deepseek_v3", {"enable_liger_kernel": True}, "activations.fused_loss", "none"),
        ("deepseek_v3", {"enable_liger_kernel": True}, "activations.liger_layers", False),
        ("gemma3n", {}, "activations.checkpointing", "none"),
    ],
)
def test_some_models_take_something_else(kind, keys, field, expected):
    assert build_plan(architecture=build_architecture(kind), **keys).get(field) == expected


@pytest.mark.parametrize(
    ("model", "fused"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "liger"),  # qwen2_5_vl is in liger_kernel.py, the type of its decoder is not
        ("Qwen/Qwen2-VL-2B-Instruct", "liger"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "liger"),
        ("google/gemma-3-4b-it", "liger"),
        ("Qwen/Qwen3-VL-8B-Instruct", "none"),  # qwen3_vl is not in liger_kernel.py
        ("OpenGVLab/InternVL3_5-8B-HF", "none"),  # nor is internvl, although its decoder is a qwen3
        ("mistralai/Ministral-3-8B-Base-2512", "none"),
    ],
)
def test_liger_goes_by_the_type_of_the_whole_model(model, fused):
    architecture = lookup.find_entry(model)
    assert build_plan(architecture=architecture, enable_liger_kernel=True).activations.fused_loss == fused


@pytest.mark.parametrize(
    ("model", "leaves"),
    [
        ("meta-llama/Llama-4-Scout-17B-16E", True),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", True),
        ("Qwen/Qwen3-30B-A3B", True),
        ("google/gemma-4-26B-A4B", None),
    ],
)
def test_leaf_modules_go_by_the_type_of_the_whole_model(tmp_path, model, leaves):
    (tmp_path / "z3.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}')
    settings = build_minimal(model_name_or_path=model, deepspeed="z3.json")
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(settings))
    (run,) = list_runs(tmp_path)
    assert run.plan.parallel.leaf_modules is leaves


@pytest.mark.parametrize(
    ("keys", "field", "expected"),
    [
        ({"optim": "galore_adamw", "optim_args": "rank=64, proj_type=left"}, "optimizer.rank", 64),
        ({"optim": "galore_adamw", "optim_args": "rank=64, proj_type=left"}, "optimizer.projection", "left"),
        ({"optim": "galore_adamw"}, "optimizer.rank", 128),
        ({"finetuning_type": "oft"}, "method.block_size", 32),
        ({"finetuning_type": "oft", "oft_rank": 4, "oft_block_size": 0}, "method.blocks", 4),
        (
            {"optim": "galore_adamw", "optim_target_modules": "all_linear"},
            "optimizer.targets",
            ("all-linear", "lm_head"),
        ),
        ({"optim": "galore_adamw", "optim_target_modules": ".*mlp.*"}, "optimizer.targets", ("(.*mlp.*)",)),
        ({"optim": "galore_adamw", "optim_target_modules": ["attn"]}, "optimizer.targets", ("attn",)),
        ({"optim": "adamw_8bit", "finetuning_type": "full"}, "optimizer.embedding_bits", 32),
        ({"optim": "adamw_torch", "finetuning_type": "full"}, "optimizer.embedding_bits", None),
    ],
)
def test_infers_what_the_optimizer_keeps(keys, field, expected):
    assert build_plan(**keys).get(field) == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"stage": "dpo"}, 16),
        ({"stage": "dpo", "pref_loss": "orpo"}, None),
        ({"stage": "kto"}, 20),
        ({"stage": "rm", "bf16": True}, 6),
        ({"stage": "sft"}, None),
    ],
)
def test_stages_that_make_logits_beside_those_of_the_loss(keys, expected):
    assert build_plan(**keys).activations.passing_logits == expected


def test_a_reward_model_of_ppo_lies_on_every_gpu():
    job_plan = build_plan(stage="ppo", reward_model="meta-llama/Llama-3.1-8B", reward_model_type="full")
    pools = {role.name: role.pool for role in job_plan.model.roles}
    assert pools == {"actor": "actor", "reward": "actor"}
    assert build_plan(stage="ppo", reward_model="saves/reward").model.roles[0].name == "actor"


def test_fsdp_reduces_in_the_format_of_mixed_precision():
    keys = {"fsdp": "full_shard auto_wrap", "finetuning_type": "full"}
    assert build_plan(**keys, bf16=True).parallel.communication == "bf16"
    assert build_plan(**keys).parallel.communication == "fp32"


def test_a_quantised_checkpoint_is_quantised():
    assert build_plan(architecture=build_architecture(quantization="gptq")).method.quantization == "gptq"


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"use_kt": True}, "parallel.strategy"),
        ({"use_hyper_parallel": True}, "parallel.strategy"),
        ({"tensor_model_parallel_size": 1}, "parallel.strategy"),
    ],
)
def test_what_the_plan_has_no_words_for_is_unknown(keys, field):
    assert build_plan(**keys).get(field) is None


def test_resuming_and_evaluating():
    job_plan = build_plan(eval_dataset="e", eval_strategy="steps", logging_steps=20, dataloader_num_workers=4)
    assert (job_plan.eval.interval, job_plan.data.prefetch, job_plan.checkpoint.resume_latest) == (20, 2, True)
    assert build_plan(overwrite_output_dir=True).checkpoint.resume_latest is False
    assert build_plan(stage="rm", finetuning_type="full").checkpoint.resume_latest is False
    assert job_plan.checkpoint.final is True
    assert job_plan.method.lora_alpha == 16


def test_neat_packing_builds_a_mask_without_flash_attention():
    assert build_plan(neat_packing=True).sequence.block_mask is True
    assert build_plan(neat_packing=True, flash_attn="fa2").sequence.block_mask is False
    assert build_plan().sequence.block_mask is False
    assert build_plan(packing=True).sequence.padding == "max_length"


# --- laws ------------------------------------------------------------------------------------------------------------

EIGHT_BIT = {
    "optimizer.name": "adamw",
    "optimizer.implementation": "bitsandbytes",
    "optimizer.state_bits": 8,
    "optimizer.paged": True,
}
CHANGES: list[dict[str, Any]] = [
    {"activations.checkpointing": "full"},
    {"activations.checkpointing": "none"},
    {"activations.fused_loss": "liger", "activations.liger_layers": True},
    {"activations.attention": "flash"},
    {"activations.compile": True},
    {"batch.micro": 1, "batch.accumulation": 8},
    {"batch.eval_micro": 1},
    {"checkpoint.model_only": True},
    {"checkpoint.keep": 2},
    {"checkpoint.keep": "all"},
    {"checkpoint.interval": 1000},
    {"checkpoint.strategy": "epoch"},
    {"precision.compute": "bf16", "precision.autocast": True},
    {"precision.compute": "fp16", "precision.autocast": True},
    {"sequence.length": 4096},
    {"sequence.packing": True},
    {"method.lora_rank": 32},
    {"method.lora_targets": ("q_proj", "v_proj")},
    {"model.frozen_vision": False, "model.frozen_language": True},
    {"model.trust_remote_code": False},
    {"data.workers": 8},
    {"data.streaming": True},
    {"logging.interval": 50, "logging.count_tokens": True},
    {"optimizer.clipping": 0.5},
    EIGHT_BIT,
]


@needs_corpus
@pytest.mark.parametrize("path", TRAINING, ids=lambda path: str(path.relative_to(CORPUS)))
def test_laws_over_the_corpus(path):
    before = parse_config(path.read_bytes())
    assert laws.check_get_put(before) > 40
    write_count = sum(laws.check_put_get(before, changes) is not None for changes in CHANGES)
    assert write_count >= len(CHANGES) - 6
    build_job(before, architecture=BF16)


@pytest.mark.parametrize("path", [*FIXTURES, *CASES], ids=lambda path: path.name)
def test_laws_over_fixtures(path):
    before = parse_config(path.read_bytes())
    laws.check_get_put(before)
    for changes in CHANGES:
        laws.check_put_get(before, changes)


LENSES = frameworks.load("llamafactory").lenses
KEYS = sorted({route[0] for lens in LENSES for route in lens.keys})
WORDS = st.sampled_from(
    ["true", "no", "sft", "dpo", "full", "lora", "freeze", "auto", "fa2", "steps", "all", "1e-4", "x, y", "", "7"]
)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**7),
    st.floats(),
    WORDS,
    st.builds(list),
    st.lists(st.just("a"), min_size=1, max_size=2),
    st.builds(dict, a=st.just(1)),
)
PLAUSIBLE = {
    "stage": st.sampled_from(["pt", "sft", "rm", "dpo", "kto"]),
    "finetuning_type": st.sampled_from(["lora", "full", "freeze", "oft"]),
    "bf16": st.booleans(),
    "packing": st.booleans(),
    "disable_gradient_checkpointing": st.booleans(),
    "per_device_train_batch_size": st.integers(1, 64),
    "optim": st.sampled_from(["adamw_torch", "paged_adamw_8bit", "adafactor"]),
    "quantization_bit": st.sampled_from([4, 8]),
    "fsdp": st.sampled_from(["full_shard", "shard_grad_op offload"]),
    "save_steps": st.integers(1, 5000),
}


@st.composite
def draw_text(draw, odd: bool) -> str:
    """Draw a file with comments in block style, sometimes with CRLF or a byte-order mark."""
    keys = dict(MINIMAL)
    if odd:
        keys.update(draw(st.dictionaries(st.sampled_from(KEYS), ODD, max_size=12)))
    else:
        for key in draw(st.lists(st.sampled_from(sorted(PLAUSIBLE)), unique=True)):
            keys[key] = draw(PLAUSIBLE[key])
    lines = ["### model"]
    for key, setting in keys.items():
        text = yaml.safe_dump({key: setting}, width=1000)
        lines += [f"{line}  # {key}" if draw(st.booleans()) else line for line in text.rstrip("\n").split("\n")]
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return draw(st.sampled_from(["", "\ufeff"])) + newline.join(lines) + draw(st.sampled_from(["", newline]))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(text=draw_text(odd=True), changes=st.sampled_from(CHANGES), release=st.sampled_from(["0.8.3", "0.9.2", "0.9.5"]))
def test_laws_over_odd_files(text, changes, release):
    before = parse_config(text, llamafactory=release)
    laws.check_get_put(before)
    laws.check_put_get(before, changes)
    build_job(before, architecture=BF16)


@settings(max_examples=200, deadline=None)
@given(text=draw_text(odd=False), changes=st.sampled_from(CHANGES))
def test_laws_over_plausible_files(text, changes):
    before = parse_config(text)
    laws.check_get_put(before)
    laws.check_put_get(before, changes)


def test_writes_where_people_would_look():
    source = (
        "### output\noutput_dir: out\nsave_steps: 500\n\n### train\nbf16: true\nmodel_name_or_path: x\ntemplate: t\n"
    )
    after = laws.write_fields(parse_config(source), {"checkpoint.model_only": True})
    assert after.document.source.decode() == source.replace("500\n", "500\nsave_only_model: true\n")


def test_the_batch_is_written_to_the_key_that_counts():
    source = "model_name_or_path: x\ntemplate: t\nper_device_train_batch_size: 2\nper_gpu_train_batch_size: 16\n"
    after = laws.write_fields(parse_config(source), {"batch.micro": 4})
    assert after.document.source.decode() == source.replace("16", "4")


def test_checkpointing_is_switched_on_by_the_key_that_switches_it_off():
    source = "model_name_or_path: x\ntemplate: t\nstage: sft\ndisable_gradient_checkpointing: true  # why\n"
    after = laws.write_fields(parse_config(source), {"activations.checkpointing": "full"})
    assert after.document.source.decode() == source.replace("true", "false")


@for_each(
    ("keys", "changes", "reason"),
    [
        ({"stage": "dpo"}, {"activations.fused_loss": "liger", "activations.liger_layers": True}, "pt and sft"),
        ({"use_dft_loss": True}, {"activations.fused_loss": "liger", "activations.liger_layers": True}, "logits"),
        ({}, {"activations.fused_loss": "cce"}, "Liger"),
        ({"use_muon": True}, EIGHT_BIT, "use_muon"),
        ({}, {"activations.checkpointing": "selective"}, "single key"),
        ({"use_unsloth_gc": True}, {"activations.checkpointing": "none"}, "use_unsloth_gc"),
        ({"neat_packing": True}, {"sequence.packing": False}, "neat_packing"),
        ({"pure_bf16": True}, {"precision.compute": "fp16", "precision.autocast": True}, "pure_bf16"),
        ({"fsdp": "full_shard"}, {"parallel.sharding": "no_shard"}, "automatically"),
        ({}, {"eval.strategy": "steps"}, "automatically"),
        ({"torch_compile_mode": "max"}, {"activations.compile": False}, "torch_compile_mode"),
        ({"max_samples": 10}, {"data.streaming": True}, "max_samples"),
        ({"val_size": 0.1, "max_steps": 9}, {"data.streaming": True}, "val_size"),
        ({}, {"data.streaming": True}, "max_steps"),
        ({"finetuning_type": "oft"}, {"method.lora_targets": ("q_proj",)}, "LoRA"),
    ],
)
def test_refusals_say_why(keys, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config(build_minimal(**keys)), changes)


# --- v1 --------------------------------------------------------------------------------------------------------------


def parse_v1(source: str | bytes | dict[str, Any]) -> Config:
    text = yaml.safe_dump(source, sort_keys=False) if isinstance(source, dict) else source
    return laws.build_config("llamafactory_v1", text)


def read_v1_value(field: str, **keys: Any) -> Any:
    return laws.read_plan(parse_v1({"model": "x/y", "train_dataset": "d", "micro_batch_size": 1, **keys})).get(field)


@needs_corpus
def test_v1_recognises_the_corpus_and_nothing_else():
    assert len(V1) == 17
    for path in list_corpus_files(".yaml", ".yml"):
        recognised = frameworks.recognise("llamafactory_v1", laws.parse_document(path.read_bytes(), "yaml"))
        expected = [] if path not in V1 else ["other"] if path.name == "export_lora.yaml" else [None]
        assert [config.role for config in recognised] == expected, path


@pytest.mark.parametrize(
    "source", ["model: x\n", "model: {name: x}\nmicro_batch_size: 1\ndist_config: {}\n", "model: x\ndata: y\n"]
)
def test_v1_leaves_look_alikes_alone(source):
    assert not frameworks.recognise("llamafactory_v1", laws.parse_document(source, "yaml"))


@for_each(
    ("keys", "field", "expected"),
    [
        ({}, "method.tuning", "full"),
        ({"peft_config": {"name": "lora", "r": 16}}, "method.lora_rank", 16),
        ({"peft_config": {"name": "lora"}}, "method.lora_alpha", 16.0),
        ({"peft_config": {"name": "lora"}}, "method.lora_targets", ("all-linear",)),
        ({"peft_config": {"name": "freeze"}}, "method.trainable_layers", 2),
        ({"peft_config": {"name": "odd"}}, "method.tuning", None),
        ({"quant_config": {"name": "bnb", "quantization_bit": 4}}, "method.quantization", "nf4"),
        ({"quant_config": {"name": "bnb", "quantization_bit": 8}}, "method.quantization", "int8"),
        ({"quant_config": {"name": "auto"}}, "method.quantization", "none"),
        ({"quant_config": None}, "method.quantization", "none"),
        ({"dist_config": {"name": "fsdp2"}}, "parallel.strategy", "fsdp2"),
        ({"dist_config": {"name": "fsdp2", "reshard_after_forward": False}}, "parallel.sharding", "shard_grad_op"),
        ({"dist_config": {"name": "fsdp2", "offload_params": True}}, "parallel.offload_params", "cpu"),
        ({"dist_config": {"name": "fsdpturbo"}}, "parallel.strategy", None),
        ({"enable_activation_checkpointing": False}, "activations.checkpointing", "none"),
        ({"flash_attn": "flash_attention_2"}, "activations.attention", "flash"),
        # Training requests the logits.
        ({"kernel_config": {"name": "liger_kernel"}}, "activations.fused_loss", "none"),
        ({"kernel_config": {"name": "liger_kernel"}}, "activations.liger_layers", True),
        ({}, "checkpoint.strategy", "no"),
        ({"save_steps": 100}, "checkpoint.interval", 100),
        ({"save_epochs": 1.0}, "checkpoint.strategy", "epoch"),
        ({"resume_from_checkpoint": "auto"}, "checkpoint.resume_latest", True),
        ({"optim_config": {"name": "muon"}}, "optimizer.name", "muon"),
        ({"cp_size": 2}, "parallel.context", 2),
    ],
)
def test_v1_reads(keys, field, expected):
    assert read_v1_value(field, **keys) == expected


def test_v1_plans():
    base = {"model": "x/y", "train_dataset": "d", "micro_batch_size": 2, "global_batch_size": 64}
    sharded = build_job_plan(parse_v1({**base, "dist_config": {"name": "fsdp2"}}), architecture=BF16)
    precision = sharded.precision
    assert (precision.compute, precision.params, precision.autocast) == ("bf16", "fp32", False)
    assert (sharded.batch.accumulation, sharded.parallel.shard_size, sharded.optimizer.state_bits) == (4, 8, 32)
    without_deepspeed = build_job_plan(parse_v1(base), architecture=BF16)
    assert (without_deepspeed.parallel.strategy, without_deepspeed.precision.compute) == ("ddp", "fp32")
    adapter = build_job_plan(parse_v1({**base, "peft_config": {"name": "lora"}}), architecture=BF16)
    assert (adapter.precision.adapter, adapter.precision.frozen) == ("fp32", "bf16")


def test_v1_names_its_deepspeed_file():
    main = parse_v1(
        {"model": "x", "train_dataset": "d", "dist_config": {"name": "deepspeed", "config_file": "ds.json"}}
    )
    (reference,) = llamafactory_v1_framework.list_references(main)
    assert (reference.framework, reference.path) == ("deepspeed", "ds.json")
    source = (
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}'
    )
    inner = laws.build_config("deepspeed", source, "json", role="companion")
    job_plan = build_job_plan(main, {"deepspeed": inner}, architecture=BF16)
    assert (job_plan.parallel.zero_stage, job_plan.precision.params, job_plan.batch.micro) == (3, "bf16", 1)


V1_CHANGES: list[dict[str, Any]] = [
    {"activations.checkpointing": "none"},
    {"activations.checkpointing": "full"},
    {"batch.micro": 4},
    {"batch.global_": 128},
    {"checkpoint.keep": 3},
    {"sequence.length": 512},
    {"activations.attention": "flash"},
    {"parallel.strategy": "ddp"},
]


@needs_corpus
@pytest.mark.parametrize("path", V1, ids=lambda path: path.name)
def test_v1_laws_over_the_corpus(path):
    before = parse_v1(path.read_bytes())
    laws.check_get_put(before)
    assert sum(laws.check_put_get(before, changes) is not None for changes in V1_CHANGES) >= 6
    build_job(before)


SECTION = st.one_of(
    ODD, st.dictionaries(st.sampled_from(["name", "r", "quantization_bit", "cp_size"]), ODD, max_size=4)
)
V1_KEYS = sorted({route[0] for lens in frameworks.load("llamafactory_v1").lenses for route in lens.keys})


@settings(max_examples=150, deadline=None)
@given(keys=st.dictionaries(st.sampled_from(V1_KEYS), SECTION, max_size=10), changes=st.sampled_from(V1_CHANGES))
def test_v1_laws_over_odd_files(keys, changes):
    before = parse_v1({"model": "x", **keys})
    laws.check_get_put(before)
    laws.check_put_get(before, changes)
    build_job(before)


# --- LLaMA-Factory as the judge --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parsed():
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    pytest.importorskip("llamafactory")
    transformers = pytest.importorskip("transformers")
    from llamafactory.hparams.parser import _TRAIN_ARGS

    def parse_arguments(source: dict[str, Any], strict: bool = False) -> Any:
        """Return the arguments, or None if LLaMA-Factory rejects them; GPUs and DeepSpeed are left out."""
        compared = {key: setting for key, setting in source.items() if key not in ("deepspeed", "fsdp", "fsdp_config")}
        parser = transformers.HfArgumentParser(_TRAIN_ARGS)
        try:
            groups = parser.parse_dict({**compared, "use_cpu": True}, allow_extra_keys=not strict)
        except Exception:
            return None
        merged: dict[str, Any] = {}
        for arguments in groups:
            merged.update(vars(arguments))
        return merged

    return parse_arguments


_SAME = {
    "batch.micro": "per_device_train_batch_size",
    "batch.accumulation": "gradient_accumulation_steps",
    "batch.eval_micro": "per_device_eval_batch_size",
    "method.tuning": "finetuning_type",
    "method.lora_rank": "lora_rank",
    "method.lora_dora": "use_dora",
    "model.id": "model_name_or_path",
    "model.revision": "model_revision",
    "model.trust_remote_code": "trust_remote_code",
    "model.frozen_vision": "freeze_vision_tower",
    "model.frozen_projector": "freeze_multi_modal_projector",
    "model.frozen_language": "freeze_language_model",
    "optimizer.clipping": "max_grad_norm",
    "method.lora_dropout": "lora_dropout",
    "checkpoint.interval": "save_steps",
    "checkpoint.strategy": "save_strategy",
    "checkpoint.model_only": "save_only_model",
    "checkpoint.overwrite": "overwrite_output_dir",
    "checkpoint.load_best_at_end": "load_best_model_at_end",
    "eval.strategy": "eval_strategy",
    "logging.interval": "logging_steps",
    "data.workers": "dataloader_num_workers",
    "data.streaming": "streaming",
}


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize(
    "path", [None, *TRAINING, *FIXTURES], ids=lambda path: "minimal" if path is None else path.name
)
def test_the_parser_says_the_same(parsed, path):
    before = parse_config(build_minimal() if path is None else path.read_bytes())
    source = before.document.get_value()
    theirs = parsed(source)
    assert theirs is not None
    reading = laws.read_plan(before)
    for field, name in _SAME.items():
        expected = getattr(theirs[name], "value", theirs[name])
        assert reading.get(field) == expected, field
    assert reading.get("sequence.length") == theirs["cutoff_len"] + (1 if theirs["packing"] else 0)
    assert reading.get("checkpoint.keep") == (theirs["save_total_limit"] or "all")
    assert (reading.get("activations.checkpointing") == "none") is theirs["disable_gradient_checkpointing"] or (
        reading.get("parallel.tensor") is not None or "fsdp_config" in source
    )
    if reading.get("method.tuning") in ("lora", "oft"):
        targets = theirs["lora_target" if reading.get("method.tuning") == "lora" else "oft_target"]
        assert list(reading.get("method.lora_targets")) == (["all-linear"] if targets == ["all"] else targets)
    if "optim" not in source and not any(
        source.get(f"use_{name}") for name in ("galore", "apollo", "badam", "adam_mini", "muon")
    ):
        assert reading.get("optimizer.stated_name") == theirs["optim"].value
    if parsed(source, strict=True) is None:
        return
    for changes in CHANGES:
        after = laws.check_put_get(before, changes)
        if after is not None:
            assert parsed(after.document.get_value(), strict=True) is not None, changes


# --- images ----------------------------------------------------------------------------------------------------------

QWEN_VL = build_architecture("qwen2_5_vl_text", tower=Tower(1, 1, 1, 1, None, "qwen2_5_vl", 1, 1, 4.0, 14))
LLAVA = build_architecture("llama", tower=Tower(1, 1, 1, 1, 576, "clip", 1, 1, 1.0, 14))


@pytest.mark.parametrize(
    ("architecture", "keys", "tokens"),
    [
        (QWEN_VL, {"freeze_vision_tower": False}, 752),  # 768 * 768 / (14 * 14 * 4)
        (QWEN_VL, {"freeze_vision_tower": False, "image_max_pixels": 262144}, 334),
        (QWEN_VL, {"freeze_vision_tower": False, "cutoff_len": 512}, 512),
        (LLAVA, {"freeze_vision_tower": False}, 576),
        (QWEN_VL, {}, None),  # frozen by default
        (build_architecture(), {"freeze_vision_tower": False}, None),
    ],
)
def test_images_of_a_trained_tower_are_as_large_as_they_may_be(architecture, keys, tokens):
    job_plan = build_plan(architecture=architecture, **{"cutoff_len": 2048, **keys})
    assert job_plan.sequence.image_tokens == tokens
