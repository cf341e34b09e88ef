"""OLMo-core: scripts of every style and saved configurations, checked against the library itself (slow)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import registry
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.olmo_core import framework as olmo_core_framework
from cfglint_train.frameworks.olmo_core import lenses as olmo_core
from cfglint_train.models.find import find_plan_model
from cfglint_train.plan.origin import Origin
from tests.support import laws
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_job_plan
from tests.support.linting import lint

FOLDER = REPOSITORY / "fixtures" / "olmo_core"
CASE = REPOSITORY / "fixtures" / "cases" / "4-olmo-syncs" / "olmo_core_7b.py"
STYLES = ("internal", "official", "example", "derivative", "class")
SCRIPTS = [*(FOLDER / f"{style}_style.py" for style in STYLES), CASE]
SAVED = FOLDER / "config.json"


def read_source(style: str) -> str:
    return (FOLDER / f"{style}_style.py").read_text()


def parse_config(text: str | bytes, syntax: str = "python", overrides: Any = None, **stated: str) -> Config:
    parsed = laws.build_config("olmo_core", text, syntax, **stated)
    parsed.overrides = {r: Override(v, Origin("user", note="--set")) for r, v in (overrides or {}).items()}
    return parsed


def read_plan(text: str | bytes, syntax: str = "python", overrides: Any = None, **stated: str) -> Any:
    return laws.read_plan(parse_config(text, syntax, overrides, **stated))


def recognise_source(text: str | bytes, syntax: str = "python") -> list[frameworks.RecognisedConfig]:
    return frameworks.recognise("olmo_core", laws.parse_document(text, syntax))


# A script of one statement for single settings: builders around the sections under test.
SHELL = """
from olmo_core.config import DType
from olmo_core.data import *
from olmo_core.data import NumpyDataLoaderConfig, NumpyFSLDatasetConfig, TokenizerConfig
from olmo_core.distributed.parallel import DataParallelType, PipelineScheduleType
from olmo_core.float8 import Float8Config
from olmo_core.nn.attention import AttentionBackendName
from olmo_core.nn.lm_head import LMLossImplementation
from olmo_core.nn.transformer import TransformerActivationCheckpointingMode, TransformerConfig
from olmo_core.optim import AdamWConfig, DionConfig, LionConfig, MuonConfig, SkipStepAdamWConfig
from olmo_core.script_utils import ExperimentConfig, main
from olmo_core.train import Duration, LoadStrategy, TrainerConfig
from olmo_core.train.callbacks import *
from olmo_core.train.callbacks import (
    CheckpointerCallback, DownstreamEvaluatorCallbackConfig, GarbageCollectorCallback, LMEvaluatorCallbackConfig,
    ProfilerCallback,
)
from olmo_core.train.train_module import (
    TransformerActivationCheckpointingConfig,
    TransformerContextParallelConfig,
    TransformerDataParallelConfig,
    TransformerDataParallelWrappingStrategy,
    TransformerExpertParallelConfig,
    TransformerPipelineParallelConfig,
    TransformerTensorParallelConfig,
    TransformerTrainModuleConfig,
)

def build_config(opts, overrides):
    model = TransformerConfig.{model}
    {extra}
    return ExperimentConfig(
        model=model,
        dataset=NumpyFSLDatasetConfig(paths=[], sequence_length=4096, {dataset}),
        data_loader=NumpyDataLoaderConfig(global_batch_size=64 * 4096, seed=1, {data_loader}),
        train_module=TransformerTrainModuleConfig(
            rank_microbatch_size={tokens},
            max_sequence_length=4096,
            optim={optim},
            {train_module}
        ),
        trainer=TrainerConfig(save_folder="/save", {trainer}){callbacks},
    ).merge(overrides)

main(build_config)
"""


def build_script(**parts: str) -> str:
    sections = {
        "model": "olmo2_7B(vocab_size=100352)",
        "extra": "",
        "dataset": "",
        "data_loader": "",
        "tokens": "2 * 4096",
        "optim": "SkipStepAdamWConfig()",
        "train_module": "",
        "trainer": "",
        "callbacks": "",
    }
    return SHELL.format(**{**sections, **parts})


# --- recognising -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_recognises_every_shape(path):
    assert [recognised.role for recognised in recognise_source(path.read_bytes())] == [None]


def test_a_ladder_is_named_and_left_unread():
    (recognised,) = recognise_source(read_source("ladder"))
    assert recognised.role == "other"
    assert "at run time" in recognised.reason


def test_a_module_of_a_copy_of_the_package_is_no_run(tmp_path):
    package = tmp_path / "src" / "mine"
    (package / "internal").mkdir(parents=True)
    for path in (package / "internal" / "train.py", package / "__init__.py", tmp_path / "train.py"):
        path.write_bytes(SCRIPTS[0].read_bytes() if path.name == "train.py" else b"")
    assert len(lint(tmp_path).files) == 2
    package.rename(tmp_path / "src" / "olmo_core")
    assert [file.path for file in lint(tmp_path).files] == ["train.py"]


def test_recognises_a_saved_configuration():
    assert recognise_source(SAVED.read_bytes(), "json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import olmo_core\n",
        "print('olmo_core')\n",
        (FOLDER / "not_a_run.py").read_text(),
        "def build(model, trainer):\n    return Experiment(model=model, trainer=trainer)\n",
        "from olmo_core.config import Config\ndef f():\n    return Experiment(model=1, trainer=2, train_module=3)\n",
        "from olmo_core_x import TrainerConfig\nx = Experiment(model=1, trainer=TrainerConfig(), train_module=2)\n",
        "from transformers import Trainer\nTrainer(model=1, trainer=TrainerConfig())\n",
    ],
)
def test_leaves_other_scripts_alone(text):
    assert not recognise_source(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        '{"model": {"_CLASS_": "olmo_core.x"}}',
        '{"model": {"_CLASS_": "nemo.Model"}, "trainer": {}}',
        '{"model": 1, "trainer": 2, "note": "olmo_core"}',
        '{"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "trainer": {}, "model": {}}',
    ],
)
def test_leaves_other_json_alone(text):
    assert not recognise_source(text, "json")


@needs_corpus
def test_nothing_else_of_the_corpus_is_one():
    for path in list_corpus_files(".json", ".py"):
        syntax = "json" if path.suffix == ".json" else "python"
        if "olmo_core" in registry.find_candidates(path.read_bytes(), syntax):
            assert not recognise_source(path.read_bytes(), syntax)


def test_clues_let_both_syntaxes_through():
    assert "olmo_core" in registry.find_candidates(SAVED.read_bytes(), "json")
    assert "olmo_core" in registry.find_candidates(read_source("official").encode(), "python")
    assert "olmo_core" not in registry.find_candidates(b"olmo_core", "yaml")
    broken = b"from olmo_core.train import TrainerConfig\nx = (\n"
    assert registry.is_probable_config(broken, "python")
    assert not registry.is_probable_config(b"x = 'olmo_core'\ny = (", "python")


# --- shapes ----------------------------------------------------------------------------------------------------------

EXPECTED: dict[str, dict[str, Any]] = {
    "internal": {
        "model.id": "olmo_core:olmo2_7B",
        "model.overrides": (("vocab_size", 100352),),
        "method.stage": "pretrain",
        "batch.micro": 2,
        "batch.global_": 512,
        "sequence.length": 4096,
        "parallel.strategy": "fsdp2",
        "parallel.sharding": "hybrid_shard",
        "parallel.wrapping": "block",
        "precision.compute": "bf16",
        "activations.checkpointing": "none",
        "activations.compile": True,
        "checkpoint.interval": 10_000,
        "checkpoint.interval_ephemeral": 250,
        "checkpoint.keep": 3,
        "checkpoint.asynchronous": True,
        "logging.metrics_interval": 20,
        "logging.cancel_check_interval": 10,
        "data.workers": 4,
        "launch.nodes": 4,
    },
    "official": {
        "model.id": "olmo_core:olmo3_32B",
        "batch.micro": 1,
        "batch.global_": 128,
        "sequence.length": 65_536,
        "parallel.shard_size": 16,
        "parallel.context": 8,
        "parallel.wrapping": "block_and_size",
        "activations.checkpointing": "budget",
        "activations.budget": 0.3,
        "activations.attention": "flash",
        "activations.fused_loss": "liger",
        "optimizer.name": "adamw",
        "optimizer.implementation": "single",
        "optimizer.state_bits": 16,
        "checkpoint.asynchronous": False,
        "checkpoint.load_path": "/checkpoints/stage2/step100",
        "checkpoint.load_optimizer": False,
        "checkpoint.path": None,
        "eval.enabled": True,
        "eval.interval": 500,
        "data.prefetch": 8,
    },
    "example": {
        "model.id": "olmo_core:llama2_271M",
        "model.overrides": (("vocab_size", 50304),),
        "batch.micro": 8,
        "sequence.length": 2048,
        "parallel.sharding": "full_shard",
        "optimizer.implementation": "fused",
        "checkpoint.interval": 1000,
        "checkpoint.interval_ephemeral": 100,
        "logging.metrics_interval": 5,
        "logging.cancel_check_interval": 25,
        "logging.profiler": False,
        "eval.enabled": False,
    },
    "derivative": {
        "model.id": None,
        "batch.micro": 2,
        "batch.global_": None,
        "sequence.length": 8192,
        "parallel.strategy": None,
        "parallel.shard_size": 32,
        "activations.checkpointing": "budget",
        "activations.budget": 0.85,
        "activations.compile": None,
        "precision.autocast": None,
        "checkpoint.interval": 10_000,
        "checkpoint.keep": None,
        "checkpoint.asynchronous": None,
        "logging.metrics_interval": 50,
        "logging.cancel_check_interval": None,
        "launch.nodes": 16,
    },
    "class": {
        "model.id": "olmo_core:olmo3_7B",
        "method.stage": "sft",
        "batch.micro": 4,
        "batch.global_": 64,
        "sequence.length": 16_384,
        "sequence.dataset_length": 16_384,
        "activations.checkpointing": "fine_grained",
        "checkpoint.interval_ephemeral": 500,
    },
}


@pytest.mark.parametrize("style", STYLES)
def test_shapes(style):
    resolved = read_plan(read_source(style))
    assert {field: resolved.get(field) for field in EXPECTED[style]} == EXPECTED[style]


def test_a_saved_configuration_says_what_its_script_says():
    """Compare with the JSON that the library itself wrote for the official-style fixture."""
    ours, saved = read_plan(read_source("official")), read_plan(SAVED.read_bytes(), "json")
    for field, value in ours:
        if not field.startswith("model.") and value.value is not None:
            assert saved.get(field) == value.value, field
    assert (
        find_plan_model(ours.get, "", None).parameters
        == find_plan_model(saved.get, "", None).parameters
        == 32_234_279_936
    )


def test_conditions_and_options_are_named():
    resolved = read_plan(read_source("internal"))
    origin = resolved.values["batch.micro"].origin
    assert origin.kind == "assumed"
    assert 'all("B200" in kind for kind in kinds)' in origin.note
    assert "--set train_module.rank_microbatch_size=" in origin.note
    assert resolved.values["data.workers"].origin.kind == "default"
    official = read_plan(read_source("official")).values["sequence.length"].origin
    assert (official.kind, official.note) == ("explicit", "unless --sequence-length is given")
    assert official.place.document.get_text(official.place.span) == "max_sequence_length=sequence_length"


def test_the_head_is_the_train_module():
    parsed = parse_config(read_source("official"))
    assert parsed.find_top().document.get_text(parsed.find_top().span).startswith("TransformerTrainModuleConfig(")


def test_case_4():
    resolved = read_plan(CASE.read_bytes())
    assert resolved.get("logging.metrics_interval") == resolved.get("logging.cancel_check_interval") == 1
    assert resolved.get("checkpoint.keep") == "all"
    assert find_plan_model(resolved.get, "", None).parameters == 7_298_617_344


# --- settings --------------------------------------------------------------------------------------------------------

DP = "dp_config=TransformerDataParallelConfig(name=DataParallelType.{}),"


@for_each(
    ("parts", "field", "expected"),
    [
        ({}, "batch.micro", 2),
        ({"tokens": "4096"}, "batch.micro", 1),
        ({"tokens": "4096 * 2 + 1"}, "batch.micro", None),
        ({"tokens": "4"}, "batch.micro", None),
        ({"tokens": "opts.size"}, "batch.micro", None),
        ({"tokens": "'x'"}, "batch.micro", None),
        ({"train_module": DP.format("fsdp")}, "parallel.strategy", "fsdp2"),
        ({"train_module": DP.format("fsdp")}, "parallel.sharding", "full_shard"),
        ({"train_module": DP.format("fsdp")}, "precision.compute", "fp32"),
        ({"train_module": DP.format("hsdp")}, "parallel.sharding", "hybrid_shard"),
        ({"train_module": DP.format("ddp")}, "parallel.strategy", "ddp"),
        ({"train_module": DP.format("ddp")}, "parallel.sharding", None),
        ({"train_module": "dp_config=None,"}, "parallel.strategy", "none"),
        ({}, "parallel.strategy", "none"),
        ({"train_module": "dp_config=opts.dp,"}, "parallel.strategy", None),
        (
            {"train_module": "dp_config=TransformerDataParallelConfig('fsdp', DType.float16),"},
            "precision.compute",
            "fp16",
        ),
        ({"train_module": "autocast_precision=DType.bfloat16,"}, "precision.compute", "bf16"),
        ({"train_module": "autocast_precision=DType.bfloat16,"}, "precision.autocast", True),
        ({"train_module": "float8_config=Float8Config(),"}, "precision.compute", "fp8"),
        ({"train_module": "float8_config=Float8Config(enabled=False),"}, "precision.compute", "fp32"),
        ({"train_module": "tp_config=TransformerTensorParallelConfig(degree=2),"}, "parallel.tensor", 2),
        ({"train_module": "tp_config=TransformerTensorParallelConfig(2),"}, "parallel.tensor", 2),
        ({"train_module": "cp_config=TransformerContextParallelConfig.zig_zag(degree=4),"}, "parallel.context", 4),
        (
            {"train_module": "pp_config=TransformerPipelineParallelConfig(degree=4),"},
            "parallel.schedule",
            "interleaved_1f1b",
        ),
        ({"train_module": "pp_config=TransformerPipelineParallelConfig(degree=4),"}, "parallel.stages", 2),
        (
            {
                "train_module": "pp_config=TransformerPipelineParallelConfig("
                "degree=4, schedule=PipelineScheduleType.single_1F1B),"
            },
            "parallel.schedule",
            "1f1b",
        ),
        (
            {
                "train_module": "pp_config=TransformerPipelineParallelConfig("
                "degree=4, schedule=PipelineScheduleType.single_1F1B),"
            },
            "parallel.stages",
            1,
        ),
        ({"train_module": "ep_config=TransformerExpertParallelConfig(degree=-1),"}, "parallel.expert", None),
        ({}, "parallel.pipeline", 1),
        (
            {"train_module": "ac_config=TransformerActivationCheckpointingConfig(),"},
            "activations.checkpointing",
            "full",
        ),
        ({"train_module": "ac_config=None,"}, "activations.checkpointing", "none"),
        ({"optim": "AdamWConfig(fused=True)"}, "optimizer.implementation", "fused"),
        ({"optim": "AdamWConfig()"}, "optimizer.implementation", "foreach"),
        ({"optim": "SkipStepAdamWConfig(foreach=False)"}, "optimizer.implementation", "single"),
        ({"optim": "LionConfig()"}, "optimizer.name", "lion"),
        ({"optim": "MuonConfig()"}, "optimizer.name", "muon"),
        ({"optim": "Mystery()"}, "optimizer.name", None),
        ({"optim": "SkipStepAdamWConfig(dtype=DType.bfloat16)"}, "optimizer.state_bits", 16),
        (
            {"model": "olmo2_7B(vocab_size=100352, n_layers=4)"},
            "model.overrides",
            (("vocab_size", 100352), ("n_layers", 4)),
        ),
        ({"model": "olmo2_7B(vocab_size=opts.size)"}, "model.id", None),
        ({"model": "olmo2_7B(**opts.more)"}, "model.id", None),
        ({"extra": "model.block.sequence_mixer.n_heads = 4"}, "model.id", None),
        ({"extra": "model.n_layers = 4"}, "model.overrides", (("vocab_size", 100352), ("n_layers", 4))),
        (
            {"extra": "model.block.sequence_mixer.backend = AttentionBackendName.flash_3"},
            "activations.attention",
            "flash3",
        ),
        (
            {"extra": "model.block.sequence_mixer.backend = AttentionBackendName.flash_3"},
            "model.id",
            "olmo_core:olmo2_7B",
        ),
        (
            {"extra": "model.lm_head.loss_implementation = LMLossImplementation.fused_linear"},
            "activations.fused_loss",
            "liger",
        ),
        ({}, "activations.fused_loss", "none"),
        ({}, "activations.attention", "sdpa"),
        ({"model": "olmo3_7B(vocab_size=100352)"}, "activations.attention", "flash"),
        ({"model": "olmo2_7B(vocab_size=100352, use_flash=True)"}, "activations.attention", "flash"),
        ({"model": "olmo2_7B(vocab_size=100352, freeze_params=['embeddings.*'])"}, "method.tuning", None),
        ({"dataset": "label_mask_paths=['x']"}, "method.stage", "sft"),
        ({"trainer": "no_checkpoints=True"}, "checkpoint.strategy", "no"),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(enabled=False))"}, "checkpoint.strategy", "no"),
        ({}, "checkpoint.strategy", "steps"),
        ({}, "checkpoint.interval", 250),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(save_interval=None))"}, "checkpoint.interval", 0),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(9))"}, "checkpoint.interval", 9),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(max_checkpoints=None))"}, "checkpoint.keep", "all"),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(save_async=None))"}, "checkpoint.asynchronous", True),
        (
            {"callbacks": ".with_callback(opts.name, CheckpointerCallback(save_interval=9))"},
            "checkpoint.interval",
            None,
        ),
        ({"callbacks": ".with_callbacks({'c': CheckpointerCallback(save_interval=9)})"}, "checkpoint.interval", 9),
        ({"callbacks": ".with_callbacks(opts.callbacks)"}, "checkpoint.interval", None),
        ({"callbacks": ".with_callback('g', GarbageCollectorCallback(gc_interval=5))"}, "logging.gc_interval", 5),
        ({"callbacks": ".with_callback('p', ProfilerCallback())"}, "logging.profiler", True),
        ({"callbacks": ".with_recommended_evals(1, 2, 3)"}, "eval.interval", 10_000),
        ({"callbacks": ".with_recommended_evals(1, 2, 3, eval_interval=7)"}, "eval.interval", 7),
        ({"callbacks": ".with_callback('e', LMEvaluatorCallbackConfig(enabled=False))"}, "eval.enabled", False),
        ({"callbacks": ".with_callback('e', LMEvaluatorCallbackConfig())"}, "eval.interval", 1000),
        ({"trainer": "no_evals=True", "callbacks": ".with_recommended_evals(1, 2, 3)"}, "eval.enabled", False),
        ({"trainer": "load_strategy=LoadStrategy.never"}, "checkpoint.resume_latest", False),
        ({"trainer": "metrics_collect_interval=1"}, "logging.metrics_interval", 1),
        ({"trainer": "**opts.more"}, "logging.metrics_interval", None),
        ({"data_loader": "num_workers=3"}, "data.workers", 3),
        ({}, "data.workers", 0),
    ],
)
def test_reads(parts, field, expected):
    assert read_plan(build_script(**parts)).get(field) == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("full", ("full", None, None, None)),
        ("selected_ops", ("selective_ops", None, None, None)),
        ("selected_blocks, block_interval=2", ("every_n", 2, 1, None)),
        (
            "selected_modules, modules=['blocks.*.attention', 'blocks.*.feed_forward']",
            ("fine_grained", None, None, None),
        ),
        ("selected_modules, modules=['blocks.*.feed_forward']", (None, None, None, None)),
        ("selected_modules, modules=['blocks.*']", ("full", None, None, None)),
        ("budget, activation_memory_budget=0.25", ("budget", None, None, 0.25)),
        ("budget", (None, None, None, None)),
        ("unheard_of", (None, None, None, None)),
    ],
)
def test_modes_of_checkpointing(mode, expected):
    call = f"TransformerActivationCheckpointingConfig(mode=TransformerActivationCheckpointingMode.{mode})"
    resolved = read_plan(build_script(train_module=f"ac_config={call},"))
    assert (
        tuple(resolved.get(f"activations.{field}") for field in ("checkpointing", "every", "of", "budget")) == expected
    )


@pytest.mark.parametrize(
    ("field", "release", "expected"),
    [
        ("checkpoint.keep", "3.0.0", 3),
        ("checkpoint.keep", "2.6.0", 3),
        ("checkpoint.keep", "2.5.0", "all"),
        ("checkpoint.asynchronous", "1.6.1", True),
        ("checkpoint.asynchronous", "1.6.0", False),
        ("optimizer.implementation", "2.1.0", "single"),
        ("optimizer.implementation", "2.2.0", "foreach"),
        ("activations.attention", "1.9.0", None),
    ],
)
def test_defaults_by_release(field, release, expected):
    assert read_plan(build_script(), olmo_core=release).get(field) == expected


def test_up_to_1_9_the_model_and_the_trainer_took_it_all():
    text = """
from olmo_core.config import DType
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.internal.experiment import CommonComponents, main
from olmo_core.nn.transformer import TransformerConfig, TransformerDataParallelConfig
from olmo_core.optim import AdamWConfig
from olmo_core.train import TrainerConfig
from olmo_core.train.callbacks import CheckpointerCallback

def build_model_config(common: CommonComponents) -> TransformerConfig:
    return TransformerConfig.olmo2_7B(
        vocab_size=common.tokenizer.padded_vocab_size(),
        compile=True,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.fsdp, param_dtype=DType.bfloat16, reduce_dtype=DType.float32
        ),
    )

def build_optim_config(common: CommonComponents) -> AdamWConfig:
    return AdamWConfig(lr=3e-4, fused=True)

def build_trainer_config(common: CommonComponents) -> TrainerConfig:
    return TrainerConfig(
        save_folder=common.save_folder, rank_microbatch_size=2 * 4096, fused_loss=True,
    ).with_callback("checkpointer", CheckpointerCallback(save_interval=10_000))

if __name__ == "__main__":
    main(
        global_batch_size=1024 * 4096,
        model_config_builder=build_model_config,
        optim_config_builder=build_optim_config,
        trainer_config_builder=build_trainer_config,
    )
"""
    assert recognise_source(text)
    resolved = read_plan(text, olmo_core="1.9.0")
    expected = {
        "batch.micro": 2,
        "batch.global_": 1024,
        "sequence.length": 4096,
        "parallel.strategy": "fsdp2",
        "precision.compute": "bf16",
        "optimizer.implementation": "fused",
        "activations.compile": True,
        "activations.fused_loss": "triton",
        "checkpoint.keep": "all",
    }
    assert {field: resolved.get(field) for field in expected} == expected


def test_cookbook_functions():
    text = """
from olmo_core.internal import cookbook
from olmo_core.internal.common import build_launch_config
from olmo_core.internal.experiment import ExperimentConfig, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train import Duration

LENGTH = 8192

def build(context):
    return ExperimentConfig(
        launch=build_launch_config(name="x", cmd=[], cluster="c", num_nodes=16),
        model=TransformerConfig.olmo3_7B(vocab_size=100352),
        train_module=cookbook.configure_train_module(
            max_sequence_length=LENGTH, rank_microbatch_size=LENGTH * 2, learning_rate=1e-4, scheduler=None,
            activation_memory_budget=0.5, dp_shard_degree=8, float8_enabled=True,
        ),
        trainer=cookbook.configure_trainer(
            max_duration=Duration.tokens(1), checkpoint_dir="/c", work_dir="/w",
        ).with_callbacks(cookbook.configure_default_callbacks(run_name="x", wandb_group_name="y")),
    ).merge(context.overrides)

if __name__ == "__main__":
    main(config_builder=build)
"""
    assert recognise_source(text)
    resolved = read_plan(text)
    expected = {
        "batch.micro": 2,
        "activations.checkpointing": "budget",
        "activations.budget": 0.5,
        "parallel.sharding": "hybrid_shard",
        "parallel.shard_size": 8,
        "precision.compute": "fp8",
        "checkpoint.interval": 1000,
        "checkpoint.path": "/c",
        "launch.nodes": 16,
    }
    assert {field: resolved.get(field) for field in expected} == expected
    with pytest.raises(CannotEdit, match=r"--train_module\.compile_model=false"):
        laws.write_fields(parse_config(text), {"activations.compile": False})


# --- overrides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--train_module.rank_microbatch_size=8192"], {("train_module", "rank_microbatch_size"): 8192}),
        (
            ["--train-module.ac-config={mode: budget, activation_memory_budget: 0.9}"],
            {("train_module", "ac_config"): {"mode": "budget", "activation_memory_budget": 0.9}},
        ),
        (["--trainer.callbacks.wandb.enabled=true"], {("trainer", "callbacks", "wandb", "enabled"): True}),
        (["--trainer.no_evals"], {("trainer", "no_evals"): True}),
        (["--x.lr=1e-4"], {("x", "lr"): "1e-4"}),
        (["--a.b=1", "--a={c: 2}"], {("a",): {"c": 2}}),
        (["--a="], {("a",): ""}),
    ],
)  # fmt: skip
def test_parses_the_words_of_the_launch(words, expected):
    assert olmo_core_framework.parse_overrides(words) == expected


def test_words_that_are_no_settings():
    for word in ("--=1", "--a=[1"):
        with pytest.raises(ValueError, match=r"."):
            olmo_core_framework.parse_overrides([word])


def test_overrides_lie_over_the_script():
    words = [
        "--train_module.rank_microbatch_size=4096",
        "--train_module.ac_config={mode: full}",
        "--train_module.dp_config=null",
    ]
    parsed = parse_config(read_source("internal"), overrides=olmo_core_framework.parse_overrides(words))
    plan_after = laws.read_plan(parsed)
    assert plan_after.get("batch.micro") == 1
    assert plan_after.values["batch.micro"].origin.kind == "user"
    assert plan_after.get("activations.checkpointing") == "full"
    assert plan_after.get("parallel.strategy") == "none"
    with pytest.raises(CannotEdit, match="at launch"):
        laws.write_fields(parsed, {"batch.micro": 2})


# --- plans -----------------------------------------------------------------------------------------------------------


def build_plan(nodes: int = 4, **parts: str) -> Any:
    return build_job_plan(parse_config(build_script(**parts)), nodes=nodes, gpus=8)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("name=DataParallelType.fsdp", (1, 32)),
        ("name=DataParallelType.hsdp", (4, 8)),
        ("name=DataParallelType.hsdp, num_replicas=2", (2, 16)),
        ("name=DataParallelType.hsdp, shard_degree=16", (2, 16)),
        ("name=DataParallelType.hsdp, num_replicas=opts.n", (None, None)),
    ],
)
def test_shard_groups(arguments, expected):
    parallel = build_plan(train_module=f"dp_config=TransformerDataParallelConfig({arguments}),").parallel
    assert (parallel.replicas, parallel.shard_size) == expected


def test_formats():
    fsdp = build_plan(train_module="dp_config=TransformerDataParallelConfig(name='fsdp', param_dtype=DType.bfloat16),")
    assert (fsdp.precision.params, fsdp.precision.grads, fsdp.precision.master) == ("fp32", "fp32", "none")
    assert fsdp.optimizer.state_bits == 32
    assert fsdp.parallel.communication == "fp32"
    ddp = build_plan(train_module="dp_config=TransformerDataParallelConfig(name='ddp', param_dtype=DType.bfloat16),")
    assert (ddp.precision.params, ddp.optimizer.state_bits) == ("bf16", 16)


def test_batches():
    batch = build_plan(nodes=1, train_module=DP.format("hsdp")).batch
    assert (batch.micro, batch.global_, batch.accumulation, batch.eval_micro) == (2, 64, 4, 2)
    split = build_plan(
        nodes=1, train_module=DP.format("hsdp") + "cp_config=TransformerContextParallelConfig.llama3(degree=8),"
    )
    assert split.batch.accumulation == 32


# --- writing ---------------------------------------------------------------------------------------------------------

WRITES: tuple[dict[str, Any], ...] = (
    {"batch.micro": 1},
    {"batch.global_": 256},
    {"activations.checkpointing": "full"},
    {"activations.checkpointing": "none"},
    {"activations.checkpointing": "budget", "activations.budget": 0.5},
    {"activations.checkpointing": "every_n", "activations.every": 2, "activations.of": 1},
    {"activations.fused_loss": "liger"},
    {"activations.compile": True},
    {"checkpoint.interval": 77},
    {"checkpoint.interval": 20_000},
    {"checkpoint.interval_ephemeral": 50},
    {"checkpoint.keep": "all"},
    {"checkpoint.keep": 5},
    {"checkpoint.asynchronous": False},
    {"checkpoint.overwrite": True},
    {"logging.metrics_interval": 50},
    {"logging.cancel_check_interval": 100},
    {"logging.gc_interval": 10},
    {"data.workers": 8},
    {"data.prefetch": 4},
    {"parallel.wrapping": "block"},
    {"parallel.shard_size": 4},
    {"sequence.length": 1024},
)


@pytest.mark.parametrize("path", [*SCRIPTS, SAVED], ids=lambda path: path.name)
@pytest.mark.parametrize("shape", ["plain", "crlf", "bom"])
def test_laws_over_fixtures(path, shape):
    text = path.read_bytes()
    if path.suffix == ".json" and shape == "crlf":
        text = json.dumps(json.loads(text), indent=2).encode()
    text = text.replace(b"\n", b"\r\n") if shape == "crlf" else text
    text = b"\xef\xbb\xbf" + text if shape == "bom" else text
    parsed = parse_config(text, "json" if path.suffix == ".json" else "python")
    laws.check_get_put(parsed)
    for changes in WRITES:
        after = laws.check_put_get(parsed, changes)
        if after is not None and path.suffix == ".py":
            ast.parse(after.document.source.decode("utf-8-sig"))


PARTS = {
    "tokens": ["4096", "2 * 4096", "opts.n", "8 * LENGTH", "'x'"],
    "optim": ["AdamWConfig(fused=True)", "LionConfig()", "opts.optim", "SkipStepAdamWConfig(lr=1e-3)"],
    "train_module": [
        "",
        "compile_model=True,",
        DP.format("hsdp"),
        "**opts.more,",
        "ac_config=None,",
        "ac_config=TransformerActivationCheckpointingConfig(TransformerActivationCheckpointingMode.full),",
        "ac_config=opts.ac,  # later\n",
    ],
    "trainer": ["", "metrics_collect_interval=opts.n", "save_overwrite=True,", "**opts.more"],
    "callbacks": [
        "",
        ".with_callback('checkpointer', CheckpointerCallback())",
        ".with_callback('checkpointer', CheckpointerCallback(save_interval=5, save_async=opts.a))",
        ".with_recommended_evals(1, 2, 3)",
        ".with_callbacks(opts.all)",
    ],
    "extra": [
        "",
        "LENGTH = 512",
        "model.lm_head.loss_implementation = LMLossImplementation.default",
        "if opts.x:\n        model.n_layers = 2",
    ],
}  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    st.fixed_dictionaries({part: st.sampled_from(choices) for part, choices in PARTS.items()}),
    st.sampled_from(WRITES),
    st.sampled_from(["1.9.0", "2.4.0", "3.0.0"]),
)
def test_laws_over_many_scripts(parts, changes, release):
    parsed = parse_config(build_script(**parts), olmo_core=release)
    laws.check_get_put(parsed)
    after = laws.check_put_get(parsed, changes)
    if after is not None:
        ast.parse(after.document.source)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_broken_saved_configuration_is_read_without_complaint(data):
    content = json.loads(SAVED.read_text())
    for _ in range(data.draw(st.integers(1, 6))):
        target: Any = content
        while isinstance(target, dict) and target:
            key = data.draw(st.sampled_from(sorted(target)))
            if not isinstance(target[key], dict) or data.draw(st.booleans()):
                target[key] = data.draw(st.sampled_from([None, True, -1, 2.5, "x", "DType.bfloat16", [], {}, [{}]]))
                break
            target = target[key]
    parsed = parse_config(json.dumps(content), "json")
    laws.check_get_put(parsed)
    build_job_plan(parsed)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "lines",
    [
        ["shared = 1"] + ["shared = {'a': shared, 'b': shared}"] * 60 + ["model.shared = shared"],
        ["deep = 1"] + ["deep = [deep]"] * 500 + ["model.deep = deep"],
        ["model.itself = model", "model.all = [model]"],
        ["many = 0"] + ["many = many + 1"] * 40_000,
    ],
    ids=["shared", "deep", "cycle", "long"],
)
def test_what_no_run_has_is_read_without_complaint(lines):
    """Claim nothing, and do not fail, for settings that cannot be followed or are not a tree."""
    text = build_script(extra="\n    ".join(lines))
    parsed = parse_config(text)
    laws.check_get_put(parsed)
    build_job_plan(parsed)
    is_readable = "itself" in text
    assert (read_plan(text).get("batch.micro") == 2) is is_readable


def test_checkpointing_is_added_with_its_imports():
    before = read_source("internal")
    after = laws.write_fields(
        parse_config(before), {"activations.checkpointing": "budget", "activations.budget": 0.5}
    ).document.source.decode()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert added == [
        "from olmo_core.nn.transformer import TransformerActivationCheckpointingMode, TransformerConfig",
        "    TransformerActivationCheckpointingConfig,",
        "        ac_config=TransformerActivationCheckpointingConfig(",
        "            mode=TransformerActivationCheckpointingMode.budget, activation_memory_budget=0.5",
    ]
    ast.parse(after)


def test_tokens_keep_their_factor():
    after = laws.write_fields(parse_config(read_source("example")), {"batch.micro": 2}).document.source.decode()
    assert "rank_microbatch_size=4 * 1024,  # NOTE: tokens, not instances" in after


@pytest.mark.parametrize(
    ("style", "changes", "reason"),
    [
        ("internal", {"batch.micro": 1}, r"depends on a condition .*; pass --train_module\.rank_microbatch_size=4096"),
        ("official", {"batch.micro": 2}, r"computes it .*; pass --train_module\.rank_microbatch_size=131072"),
        ("official", {"activations.checkpointing": "none"}, r"pass --train_module\.ac_config=null"),
        ("example", {"activations.checkpointing": "budget", "activations.budget": 0.5}, "requires compile_model=True"),
        ("example", {"activations.fused_loss": "liger"}, r"--model\.lm_head\.loss_implementation=fused_linear"),
        ("derivative", {"activations.compile": True}, r"pass --train_module\.compile_model=true"),
        (
            "derivative",
            {"checkpoint.asynchronous": False},
            r"pass --trainer\.callbacks\.checkpointer\.save_async=false",
        ),
        ("class", {"batch.micro": 1}, r"pass --train_module\.rank_microbatch_size=16384"),
        ("example", {"sequence.length": 1}, "are in tokens"),
        ("example", {"activations.checkpointing": "selective"}, "no mode for that"),
        ("internal", {"data.workers": 9}, r"library sets it; pass --data_loader\.num_workers=9"),
    ],
)
def test_refusals_name_the_override(style, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config(read_source(style)), changes)


@pytest.mark.parametrize(
    ("parts", "changes", "reason"),
    [
        ({}, {"checkpoint.keep": "all"}, "add one with max_checkpoints"),
        ({"callbacks": ".with_callbacks(opts.all)"}, {"checkpoint.keep": "all"}, "elsewhere"),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(90, 50))"}, {"checkpoint.interval": 50}, "smaller"),
        ({"callbacks": ".with_callback('c', CheckpointerCallback(9))"}, {"checkpoint.interval_ephemeral": 9}, "larger"),
        ({"model": "smallmoe(vocab_size=100352)"}, {"activations.checkpointing": "full"}, "mixture-of-experts"),
        ({"train_module": "**opts.more,"}, {"activations.checkpointing": "full"}, "may|further|ac_config"),
        ({"extra": "TransformerTrainModuleConfig(4)"}, {"activations.checkpointing": "full"}, "several"),
    ],
)  # fmt: skip
def test_refusals_say_why(parts, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config(build_script(**parts)), changes)


def test_checkpointing_in_a_saved_configuration_names_its_class():
    content = json.loads(SAVED.read_text())
    del content["train_module"]["ac_config"]
    after = laws.write_fields(parse_config(json.dumps(content), "json"), {"activations.checkpointing": "full"})
    section = after.get("train_module", "ac_config")
    assert section == {
        "_CLASS_": "olmo_core.train.train_module.transformer.config.TransformerActivationCheckpointingConfig",
        "mode": "full",
    }


def test_every_key_is_documented():
    text = (REPOSITORY / "docs" / "frameworks" / "olmo_core.md").read_text()
    for lens in olmo_core.LENSES:
        for route in laws.list_routes(lens):
            assert route == ("trainer", "callbacks") or any(f"{step}`" in text for step in route), route


# --- OLMo-core itself ------------------------------------------------------------------------------------------------

ORACLE = REPOSITORY / "tests" / "oracles" / "olmo_core_config.py"
RUNNABLE = [*(FOLDER / f"{style}_style.py" for style in ("internal", "official", "example")), CASE]


def load_with_library(*paths: Path) -> list[Any]:
    """Return the library's configurations of scripts, from a separate process with a CPU build of torch."""
    words = [sys.executable, str(ORACLE), *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("olmo_core", reason="ai2-olmo-core is not installed")


@pytest.mark.oracle
@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.name)
def test_the_library_says_the_same(library, path):
    saved = read_plan(json.dumps(load_with_library(path)[0]), "json", olmo_core="3.0.0")
    ours = read_plan(path.read_bytes(), olmo_core="3.0.0")
    compared = 0
    for field, value in ours:
        if field.startswith(("model.", "launch.", "checkpoint.path")) or value.value is None:
            continue
        if field == "checkpoint.keep" and value.value == "all":
            # Null is not saved: a run from the saved file gets the default again.
            continue
        assert saved.get(field) == value.value, field
        compared += 1
    assert compared > 40
    assert find_plan_model(saved.get, "", None).parameters == find_plan_model(ours.get, "", None).parameters


@pytest.mark.oracle
def test_the_library_accepts_what_is_written(library, tmp_path):
    """Verify law 5 and put-get with the library as the reader."""
    expected_by_file: dict[Path, dict[str, Any]] = {}
    for path in RUNNABLE[:3]:
        for number, changes in enumerate(WRITES):
            try:
                after = laws.write_fields(parse_config(path.read_bytes()), changes)
            except CannotEdit:
                continue
            file = tmp_path / f"{path.stem}_{number}.py"
            file.write_bytes(after.document.source)
            expected_by_file[file] = {"checkpoint.keep": 3} if changes == {"checkpoint.keep": "all"} else changes
    assert len(expected_by_file) > 35
    for (file, expected), built_config in zip(expected_by_file.items(), load_with_library(*expected_by_file)):
        assert "error" not in built_config, (file, expected, built_config)
        saved = read_plan(json.dumps(built_config), "json")
        assert {field: saved.get(field) for field in expected} == expected, file


# --- how many ranks there are ----------------------------------------------------------------------------------------

ASKS = (
    "from olmo_core.distributed.utils import get_world_size\nfrom olmo_core.train import prepare_training_environment\n"
)
BY_RANKS = (
    "dp_config=TransformerDataParallelConfig(name=DataParallelType.{one} if {test} else DataParallelType.{other})"
)


def read_strategy(test: str, if_true: str = "fsdp", other: str = "ddp", prepares_environment: bool = False) -> Any:
    """Return the strategy of a script that branches on the number of ranks, and the kind of its origin.

    With `prepares_environment`, the script calls `prepare_training_environment` first.
    """
    text = ASKS + build_script(train_module=BY_RANKS.format(test=test, one=if_true, other=other))
    if prepares_environment:
        text = text.replace("\nmain(build_config)\n", "\nprepare_training_environment()\nbuild_config(None, [])\n")
    parsed = read_plan(text)
    origin = parsed.get_origin("parallel.strategy")
    return parsed.get("parallel.strategy"), None if origin is None else origin.kind


@pytest.mark.parametrize(
    ("test", "one_rank"),
    [
        ("get_world_size() == 1", True),
        ("get_world_size() > 1", False),
        ("get_world_size() >= 2", False),
        ("get_world_size() < 2", True),
        ("get_world_size() != 1", False),
        ("get_world_size() <= 1", True),
    ],
)
def test_the_environment_decides_how_many_ranks_a_script_sees(test, one_rank):
    # script_utils.main builds the configuration first: there is one rank, whatever the launch states.
    assert read_strategy(test) == ("fsdp2" if one_rank else "ddp", "explicit")
    assert read_strategy(test, prepares_environment=True) == ("ddp" if one_rank else "fsdp2", "explicit")


@pytest.mark.parametrize("test", ["get_world_size() == 8", "get_world_size() // 8 > 1", "get_world_size() > 8"])
def test_how_many_ranks_exactly_is_not_known(test):
    assert read_strategy(test, prepares_environment=True)[1] == "assumed"


def test_without_the_librarys_main_nothing_says_whether_there_is_a_group():
    text = ASKS + build_script(train_module=BY_RANKS.format(test="get_world_size() > 1", one="fsdp", other="ddp"))
    resolved = read_plan(text.replace("\nmain(build_config)\n", "\nbuild_config(None, [])\n"))
    assert resolved.get_origin("parallel.strategy").kind == "assumed"
