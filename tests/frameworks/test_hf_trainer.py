"""Values of "auto" filled in by the Trainer, FSDP settings, replaced optimizers; checked with transformers (slow)."""

from __future__ import annotations

import copy
import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from cfglint_train.frameworks.deepspeed import lenses as deepspeed
from cfglint_train.frameworks.hf_trainer import optimizers
from cfglint_train.frameworks.lens import Config
from tests.support import laws
from tests.support.corpus import REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_architecture, build_job, build_job_plan
from tests.support.skips import skip_inapplicable

HOST = """
model_name_or_path: x/y
stage: sft
do_train: true
finetuning_type: full
dataset: d
template: t
bf16: true
per_device_train_batch_size: 3
gradient_accumulation_steps: 5
max_grad_norm: 0.7
deepspeed: ds.json
"""
AUTO: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": "auto",
        "sub_group_size": "auto",
    },
}


def parse_host(extra: str = "", **stated: str) -> Config:
    return laws.build_config("llamafactory", HOST + extra, **stated)


def parse_companion(source: dict[str, Any], **stated: str) -> Config:
    return laws.build_config("deepspeed", json.dumps(source), "json", role="companion", **stated)


def test_auto_is_what_the_trainer_fills_in():
    plan = build_job_plan(
        parse_host(),
        {"deepspeed": parse_companion(AUTO)},
        nodes=2,
        gpus=8,
        architecture=build_architecture(hidden=4096),
    )
    assert (plan.batch.micro, plan.batch.accumulation, plan.batch.global_) == (3, 5, 240)
    assert plan.optimizer.clipping == 0.7
    assert plan.precision.compute == plan.precision.params == "bf16"
    assert plan.parallel.reduce_bucket == 16_777_216
    assert plan.parallel.prefetch_bucket == 15_099_494
    assert plan.parallel.persistence_threshold == 40_960
    # The Trainer does not fill these: DeepSpeed drops "auto" and uses its default.
    assert plan.parallel.max_live_parameters == plan.parallel.sub_group == 1_000_000_000


def test_below_stage_3_only_the_bucket_depends_on_the_model():
    source = copy.deepcopy(AUTO)
    source["zero_optimization"]["stage"] = 2
    plan = build_job_plan(
        parse_host(), {"deepspeed": parse_companion(source)}, architecture=build_architecture(hidden=4096)
    )
    assert plan.parallel.reduce_bucket == 16_777_216
    assert plan.parallel.prefetch_bucket == 50_000_000


def test_without_the_model_its_buckets_are_unknown():
    job = build_job(parse_host(), {"deepspeed": parse_companion(AUTO)})
    assert job.plan.get("parallel.reduce_bucket") is None
    assert "auto" in job.plan.get_origin("parallel.reduce_bucket").note


def test_what_the_host_states_wins_where_both_speak():
    source = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": False}, "train_micro_batch_size_per_gpu": 9}
    plan = build_job_plan(parse_host(), {"deepspeed": parse_companion(source)})
    assert (plan.precision.compute, plan.batch.micro) == ("bf16", 3)
    # Without gradient_clipping, DeepSpeed's own default applies, and max_grad_norm is ignored.
    assert plan.optimizer.clipping == 1.0
    assert (
        build_job_plan(parse_host(), {"deepspeed": parse_companion(source, deepspeed="0.18.4")}).optimizer.clipping
        == 0.0
    )


@pytest.mark.parametrize(
    ("extra", "file", "expected"),
    [
        ("optim: paged_adamw_8bit\n", {}, ("adamw", "cpu", 32, False)),
        ("optim: adagrad\n", {}, ("adagrad", "cpu", 32, False)),
        ("optim: lion_32bit\n", {}, ("lion", "cpu", 32, False)),
        ("optim: lion_8bit\n", {}, ("adamw", "cpu", 32, False)),
        ("use_muon: true\n", {}, ("adamw", "cpu", 32, False)),
        ("optim: adamw_torch\n", {"zero_force_ds_cpu_optimizer": False}, ("adamw", "foreach", 32, False)),
        ("", {"optimizer": {"type": "Lion"}}, ("lion", "cpu", 32, False)),
    ],
)
def test_offloaded_states_replace_the_optimizer(extra, file, expected):
    source = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, **file}
    optimizer = build_job_plan(parse_host(extra), {"deepspeed": parse_companion(source)}).optimizer
    assert (optimizer.name, optimizer.implementation, optimizer.state_bits, optimizer.paged) == expected


@pytest.mark.parametrize(
    ("transformers", "torch", "expected"),
    [
        ("4.54.1", None, "adamw_torch"),
        ("4.55.0", None, "adamw_torch_fused"),
        ("5.6.0", "2.7.1", "adamw_torch"),
        ("5.6.0", "2.8.0", "adamw_torch_fused"),
    ],
)
def test_the_default_optimizer(transformers, torch, expected):
    releases = {"transformers": transformers, **({"torch": torch} if torch else {})}
    reading = laws.read_plan(parse_host(**releases))
    assert reading.get("optimizer.stated_name") == expected
    assert reading.get_origin("optimizer.name").kind == "default"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fsdp: full_shard\n", ("fsdp1", "full_shard", True, "none", None, "full")),
        ("fsdp: true\n", ("fsdp1", "full_shard", True, "none", None, "full")),
        ("fsdp: [shard_grad_op, auto_wrap, offload]\n", ("fsdp1", "shard_grad_op", False, "cpu", "block", "full")),
        (
            "fsdp: hybrid_shard auto_wrap\nfsdp_config: {fsdp_min_num_params: 2000}\n",
            ("fsdp1", "hybrid_shard", True, "none", "size", "full"),
        ),
        ("fsdp: full_shard\nfsdp_config: {version: 2}\n", ("fsdp2", "full_shard", True, "none", None, "sharded")),
        (
            "fsdp: full_shard\nfsdp_config: {fsdp_version: '2', reshard_after_forward: 'false'}\n",
            ("fsdp2", "shard_grad_op", False, "none", None, "sharded"),
        ),
        (
            "fsdp: shard_grad_op\nfsdp_config: {version: 2}\n",
            ("fsdp2", "shard_grad_op", False, "none", None, "sharded"),
        ),
        ("fsdp: full_shard\nfsdp_config: {version: 3}\n", (None, None, None, None, None, None)),
        ("fsdp: full_shard\nfsdp_config: fsdp.json\n", (None, None, None, None, None, None)),
        ("fsdp: ''\nfsdp_config: {version: 2}\n", (None, None, None, None, None, None)),
    ],
)
def test_fsdp_of_the_training_arguments(text, expected):
    config = laws.build_config("llamafactory", HOST.replace("deepspeed: ds.json\n", "") + text)
    reading = laws.read_plan(config)
    names = ("strategy", "sharding", "reshard_after_forward", "offload_params", "wrapping")
    values = (*(reading.get(f"parallel.{name}") for name in names), reading.get("checkpoint.state_dict"))
    assert values == expected
    laws.check_get_put(config)


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [("full_shard", (16, 1)), ("hybrid_shard", (8, 2)), ("no_shard", (1, 16)), ("shard_grad_op", (16, 1))],
)
def test_shard_groups(sharding, expected):
    config = laws.build_config("llamafactory", HOST.replace("deepspeed: ds.json", f"fsdp: {sharding}"))
    parallel = build_job_plan(config, nodes=2, gpus=8).parallel
    assert (parallel.shard_size, parallel.replicas) == expected


def test_rows_name_every_optimizer_of_the_release():
    for name, row in optimizers.OPTIMIZERS.items():
        assert set(row) <= set(optimizers.OPTIMIZER_FIELDS), name


# --- transformers as the judge ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed")
    integration = pytest.importorskip("transformers.integrations.deepspeed")

    def fill_auto(source: dict[str, Any], hidden: int, world: int) -> dict[str, Any]:
        """Return the file after the Trainer has filled it; values that are checked elsewhere are set to agree."""
        filler = integration.HfTrainerDeepSpeedConfig(copy.deepcopy(source))
        arguments = SimpleNamespace(
            world_size=world, per_device_train_batch_size=3, gradient_accumulation_steps=5, max_grad_norm=0.7,
            learning_rate=1e-5, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.0,
            fp16=False, fp16_full_eval=False, bf16=True, bf16_full_eval=False, save_on_each_node=False,
            get_warmup_steps=lambda steps: 1,
        )  # fmt: skip
        filler.trainer_config_process(arguments)
        filler.mismatches.clear()
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=hidden))
        filler.mismatches.clear()
        filler.trainer_config_finalize(arguments, model, 100)
        return filler.config

    return fill_auto


UPSTREAM = [
    path for path in list_corpus_files(".json") if b'"auto"' in path.read_bytes() and b"${" not in path.read_bytes()
]


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: path.name)
def test_transformers_fills_in_the_same(filled, path):
    source = json.loads(path.read_bytes())
    if "zero_optimization" not in source:
        skip_inapplicable("accelerate asks for zero_optimization")
    # Only "auto" is compared: a value that contradicts the arguments is a separate error.
    theirs = filled(source, hidden=4096, world=16)
    plan = build_job_plan(
        parse_host(),
        {"deepspeed": parse_companion(source)},
        nodes=2,
        gpus=8,
        architecture=build_architecture(hidden=4096),
    )
    compared = 0
    for field in sorted(deepspeed.HOST_FILLED_FIELDS - {"precision.compute"}):
        lens = next(lens for lens in deepspeed.LENSES if field in lens.fields)
        for route in lens.keys[field]:
            node: Any = source
            other: Any = theirs
            for step in route:
                node = node.get(step) if isinstance(node, dict) else None
                other = other.get(step) if isinstance(other, dict) else None
            if node == "auto":
                compared += 1
                expected = deepspeed.ZERO_DEFAULTS.get(field) if other == "auto" else other
                if field == "batch.global_":
                    # The Trainer multiplies by the whole world size, including ranks that see the same sequences.
                    expected //= (plan.parallel.tensor or 1) * (plan.parallel.context or 1)
                assert plan.get(field) == expected, route
    assert compared or "auto" not in json.dumps({k: v for k, v in source.items() if k != "optimizer"})


def test_fixture_of_the_seed_case():
    folder = REPOSITORY / "fixtures" / "cases" / "2-llamafactory-236b"
    releases = {"llamafactory": "0.8.3", "transformers": "4.41.2", "deepspeed": "0.14.4"}
    plans = {}
    for name, file in (("zero3", "ds_z3_config"), ("zero3-offload", "ds_z3_offload_config")):
        main = laws.build_config("llamafactory", (folder / f"{name}.yaml").read_bytes(), **releases)
        source = (folder / f"{file}.json").read_bytes()
        inner = laws.build_config("deepspeed", source, "json", role="companion", deepspeed="0.14.4")
        assert main.get("deepspeed") == f"{file}.json"
        job = build_job(main, {"deepspeed": inner}, nodes=6, gpus=8, architecture=build_architecture(hidden=5120))
        assert not job.plan.is_stated("checkpoint.model_only")
        plans[name] = job.plan.build_plan()
    plain, offloaded = plans["zero3"], plans["zero3-offload"]
    assert (plain.world_size, plain.parallel.zero_stage, plain.parallel.sub_group) == (48, 3, 1_000_000_000)
    assert (plain.checkpoint.gather, plain.checkpoint.model_only, plain.checkpoint.keep) == (True, False, "all")
    precision = plain.precision
    assert (precision.params, precision.grads, precision.master) == ("bf16", "bf16", "fp32")
    assert (plain.optimizer.implementation, plain.optimizer.state_bits) == ("foreach", 32)
    assert (plain.parallel.offload_params, plain.parallel.offload_optimizer) == ("none", "none")
    assert (offloaded.parallel.offload_params, offloaded.parallel.offload_optimizer) == ("cpu", "cpu")
    assert offloaded.optimizer.implementation == "cpu"
    assert offloaded.parallel.pin_memory is True
    assert plain.eval.enabled is True
