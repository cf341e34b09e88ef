"""DeepSpeed files: recognition, reading and writing, with values checked against DeepSpeed's own classes (slow)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.deepspeed import lenses as deepspeed
from cfglint_train.frameworks.lens import Auto, Config
from tests.support import laws
from tests.support.cases import for_each
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_job, build_job_plan
from tests.support.skips import skip_inapplicable

FIXTURES = REPOSITORY / "fixtures"
OWN_FILES = sorted((FIXTURES / "deepspeed").glob("*.json")) + sorted((FIXTURES / "cases").glob("2-*/*.json"))
UPSTREAM = list_corpus_files(".json")


def parse_config(source: Any, role: str = "companion", syntax: str = "json", **stated: str) -> Config:
    text = json.dumps(source, indent=2) if isinstance(source, dict) else source
    return laws.build_config("deepspeed", text, syntax, role=role, **stated)


def is_recognised(source: Any) -> bool:
    document = laws.parse_document(json.dumps(source) if not isinstance(source, (str, bytes)) else source, "json")
    return bool(frameworks.recognise("deepspeed", document))


def read_value(source: Any, field: str, **stated: str) -> Any:
    return laws.read_plan(parse_config(source, **stated)).get(field)


# --- recognising -----------------------------------------------------------------------------------------------------

# Model and processor configurations next to the DeepSpeed files.
FOREIGN_FOLDERS = {"qwen_clip", "ckpt"}


@needs_corpus
@for_each("path", UPSTREAM, ids=lambda path: str(path.relative_to(CORPUS)))
def test_recognises_the_corpus(path):
    assert is_recognised(path.read_bytes()) == (path.parent.name not in FOREIGN_FOLDERS)


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
def test_recognises_fixtures(path):
    assert is_recognised(path.read_bytes())


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({"gradient-cliping": 1.0}, True),
        ({"grad_clip": 1.0, "micro_batch": 1}, True),
        ({"pipe-parallel-size": 1, "num-layers": 12}, False),
        ({"_comment": "x", "_note": "x", "_more": "x"}, True),
        ({"num_layers": 12, "hidden_size": 768, "data_path": "x"}, False),
    ],
)
def test_a_file_of_which_most_keys_are_another_tools_is_not_deepspeeds(added, expected) -> None:
    section = {"zero_optimization": {"stage": 1}, "train_batch_size": 8}
    assert is_recognised({**section, **added}) is expected


@pytest.mark.parametrize(
    "source",
    [
        {"zero_optimization": {}},
        {"zero_optimization": True},
        {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}},
        {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {}}, "fp16": {"enabled": True}},
    ],
)
def test_recognises(source):
    assert is_recognised(source)


@pytest.mark.parametrize(
    "source",
    [
        [],
        {},
        {"model_type": "llama", "hidden_size": 4096, "torch_dtype": "bfloat16"},
        {"version": "1.0", "truncation": None, "model": {"type": "BPE"}},
        {"name": "x", "scripts": {}, "dependencies": {}},
        {"compilerOptions": {"strict": True}},
        # trainer_state.json and training_args of the HF Trainer
        {"train_batch_size": 8, "global_step": 10, "log_history": []},
        {"gradient_accumulation_steps": 1, "fp16": False, "bf16": True, "deepspeed": None},
        # accelerate's JSON configuration nests the DeepSpeed settings one level deeper
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}, "mixed_precision": "bf16"},
        {"zero_optimization": "yes"},
        {"zero_optimization": [1, 2]},
        {"steps_per_print": 10},
    ],
)
def test_leaves_look_alikes_alone(source):
    assert not is_recognised(source)


# --- defaults and values ---------------------------------------------------------------------------------------------


def test_defaults_of_stage_3():
    reading = laws.read_plan(parse_config({"zero_optimization": {"stage": 3}}))
    assert reading.get("parallel.strategy") == "zero"
    for field, default in deepspeed.ZERO_DEFAULTS.items():
        assert reading.get(field) == default
        assert reading.get_origin(field).kind == "default"
    assert reading.get_origin("parallel.zero_stage").key == "zero_optimization.stage"
    assert {reading.get(f"parallel.offload_{part}") for part in ("optimizer", "params")} == {"none"}


@pytest.mark.parametrize(
    ("field", "release", "expected"),
    [
        ("parallel.pin_memory", "0.19.4", False),
        ("parallel.pin_memory", "0.19.5", True),
        ("optimizer.clipping", "0.19.2", 0.0),
        ("optimizer.clipping", "0.19.3", 1.0),
    ],
)
def test_defaults_change_with_the_release(field, release, expected):
    source = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    assert (
        read_value(source, field, deepspeed=release) is expected
        or read_value(source, field, deepspeed=release) == expected
    )


@for_each(
    ("zero", "field", "expected"),
    [
        ({"stage": "3"}, "parallel.zero_stage", 3),
        ({"stage": True}, "parallel.zero_stage", 1),
        ({"stage": 4}, "parallel.zero_stage", None),
        ({"stage": "auto"}, "parallel.zero_stage", 0),
        (True, "parallel.zero_stage", 1),
        (False, "parallel.zero_stage", 0),
        (None, "parallel.zero_stage", None),
        ({"reduce_bucket_size": 5e8}, "parallel.reduce_bucket", 500_000_000),
        ({"reduce_bucket_size": "500000000"}, "parallel.reduce_bucket", 500_000_000),
        ({"reduce_bucket_size": "5e8"}, "parallel.reduce_bucket", None),
        ({"reduce_bucket_size": 0}, "parallel.reduce_bucket", None),
        ({"reduce_bucket_size": 1.5}, "parallel.reduce_bucket", None),
        ({"reduce_bucket_size": None}, "parallel.reduce_bucket", None),
        ({"prefetch_bucket_size": 7}, "parallel.prefetch_bucket", 7),
        ({"stage3_gather_fp16_weights_on_model_save": True}, "checkpoint.gather", True),
        ({"gather_16bit_weights_on_model_save": "true"}, "checkpoint.gather", True),
        ({"cpu_offload": True}, "parallel.offload_optimizer", "cpu"),
        ({"cpu_offload": False}, "parallel.offload_optimizer", "none"),
        ({"cpu_offload_param": True}, "parallel.offload_params", "cpu"),
        ({"offload_optimizer": None}, "parallel.offload_optimizer", "none"),
        ({"offload_optimizer": "auto"}, "parallel.offload_optimizer", "none"),
        ({"offload_optimizer": "cpu"}, "parallel.offload_optimizer", None),
        ({"offload_optimizer": {"device": "nvme"}}, "parallel.offload_optimizer", "nvme"),
        ({"offload_optimizer": {"device": "disk"}}, "parallel.offload_optimizer", None),
        ({"offload_param": {"pin_memory": True}}, "parallel.offload_params", "none"),
        ({"leaf_module": {"classes": ["MoE"]}}, "parallel.leaf_modules", True),
        ({"zero_hpz_partition_size": 8}, "parallel.secondary_partition", 8),
        ({"zero_quantized_weights": True}, "parallel.quantized_gather", True),
        ({"zero_quantized_nontrainable_weights": True}, "parallel.quantized_frozen", True),
    ],
)
def test_zero_values(zero, field, expected):
    assert read_value({"zero_optimization": zero}, field) == expected


@for_each(
    ("source", "field", "expected"),
    [
        ({"bf16": {"enabled": True}}, "precision.compute", "bf16"),
        ({"bfloat16": {"enabled": True}}, "precision.compute", "bf16"),
        ({"bf16": {}, "bfloat16": {"enabled": True}}, "precision.compute", "fp32"),
        ({"fp16": {"enabled": 1}}, "precision.compute", "fp16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "precision.compute", None),
        ({"fp16": {"enabled": "auto"}}, "precision.compute", Auto("fp32")),
        ({"bfloat16": {"enabled": "auto"}}, "precision.compute", "fp32"),
        ({"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "precision.compute", "bf16"),
        ({"data_types": {"grad_accum_dtype": "torch.float32"}}, "precision.accumulation", "fp32"),
        ({"data_types": {"grad_accum_dtype": "fp31"}}, "precision.accumulation", None),
        ({"communication_data_type": "FP32"}, "parallel.communication", "fp32"),
        ({"communication_data_type": "float32"}, "parallel.communication", None),
        ({"gradient_clipping": 0.5}, "optimizer.clipping", 0.5),
        ({"train_batch_size": "32"}, "batch.global_", None),
        ({"train_batch_size": "auto"}, "batch.global_", Auto(None)),
        ({"train_micro_batch_size_per_gpu": 0}, "batch.micro", None),
        ({"tensor_parallel": {"autotp_size": 4}}, "parallel.tensor", 4),
        ({"sequence_parallel_size": 2}, "parallel.context", 2),
        ({"optimizer": {"type": "Adam"}}, "optimizer.name", "adamw"),
        ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, "optimizer.name", "adam"),
        ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, "optimizer.implementation", "foreach"),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "precision.master", "bf16"),
    ],
)
def test_other_values(source, field, expected):
    assert read_value({"steps_per_print": 1, "zero_optimization": {"stage": 2}, **source}, field) == expected


def test_one_section_that_pins_is_enough():
    zero = {"offload_optimizer": {"device": "cpu", "pin_memory": False}, "offload_param": {"device": "cpu"}}
    assert read_value({"zero_optimization": zero}, "parallel.pin_memory", deepspeed="0.19.5") is True
    assert read_value({"zero_optimization": zero}, "parallel.pin_memory", deepspeed="0.19.4") is False


# --- what follows ----------------------------------------------------------------------------------------------------


def test_loaded_by_deepspeed_itself_auto_is_dropped():
    source = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}}
    plan = build_job_plan(parse_config({**source, "train_micro_batch_size_per_gpu": 2}, role="main"))
    assert plan.parallel.reduce_bucket == 500_000_000
    assert plan.precision.compute == plan.precision.params == "fp32"
    assert plan.precision.master == "fp32"


def test_found_alone_auto_waits_for_a_host():
    source = {
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": "auto"},
        "bf16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
    }
    plan = build_job_plan(parse_config(source))
    assert (plan.parallel.reduce_bucket, plan.precision.compute) == (None, None)
    assert (plan.batch.micro, plan.batch.global_) == (None, None)
    assert plan.parallel.sub_group == 1_000_000_000


@pytest.mark.parametrize(
    ("source", "micro", "accumulation", "whole"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}, 4, 2, 64),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, 4, 2, 64),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, 4, 2, 64),
        ({"train_batch_size": 64}, 8, 1, 64),
        ({"train_micro_batch_size_per_gpu": 4}, 4, 1, 32),
        ({"gradient_accumulation_steps": 4}, None, 4, None),
    ],
)
def test_batch_sizes_follow_from_each_other(source, micro, accumulation, whole):
    batch = build_job_plan(
        parse_config({"zero_optimization": {"stage": 1}, **source}, role="main"), nodes=1, gpus=8
    ).batch
    assert (batch.micro, batch.accumulation, batch.global_) == (micro, accumulation, whole)


@pytest.mark.parametrize(
    ("zero", "field", "expected"),
    [
        ({"stage": 3}, "overlap_comm", True),
        ({"stage": 2}, "overlap_comm", False),
        ({"stage": 2, "overlap_comm": None}, "overlap_comm", False),
        ({"stage": 2, "overlap_comm": True}, "overlap_comm", True),
        ({"stage": 2, "offload_param": {"device": "cpu"}}, "offload_params", "none"),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, "offload_params", "cpu"),
        ({"stage": 1, "offload_optimizer": {"device": "nvme"}}, "offload_optimizer", "cpu"),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, "offload_optimizer", "nvme"),
        ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, "offload_optimizer", "none"),
    ],
)
def test_what_the_engine_makes_of_it(zero, field, expected):
    assert getattr(build_job_plan(parse_config({"zero_optimization": zero}, role="main")).parallel, field) == expected


@pytest.mark.parametrize(
    ("stage", "mode", "held", "master"),
    [
        (3, {"bf16": {"enabled": True}}, "bf16", "fp32"),
        (2, {"fp16": {"enabled": True}}, "fp16", "fp32"),
        (2, {}, "fp32", "fp32"),
        (3, {}, "fp32", "fp32"),
        (3, {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "fp32", "fp32"),
        (3, {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "bf16", "bf16"),
    ],
)
def test_number_formats(stage, mode, held, master):
    precision = build_job_plan(parse_config({"zero_optimization": {"stage": stage}, **mode}, role="main")).precision
    assert precision.params == precision.grads == precision.frozen == held
    assert precision.master == master
    assert precision.autocast is ("torch_autocast" in mode)


def test_its_own_optimizer_moves_to_the_host_with_its_states():
    source = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "optimizer": {"type": "AdamW"}}
    assert build_job_plan(parse_config(source, role="main")).optimizer.implementation == "cpu"


# --- laws ------------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"parallel.offload_optimizer": "cpu"},
    {"parallel.offload_optimizer": "none"},
    {"parallel.offload_params": "cpu"},
    {"parallel.offload_optimizer": "cpu", "parallel.offload_params": "cpu"},
    {"parallel.pin_memory": False},
    {"parallel.pin_memory": True},
    {"parallel.zero_stage": 1},
    {"parallel.zero_stage": 3},
    {"checkpoint.gather": False},
    {"checkpoint.gather": True},
    {"parallel.reduce_bucket": 200_000_000},
    {"parallel.reduce_bucket": 16_777_217},
    {"parallel.sub_group": 1_000_000_000},
    {"parallel.overlap_comm": False},
    {"batch.micro": 3, "batch.accumulation": 5},
    {"precision.compute": "bf16"},
    {"precision.compute": "fp16"},
    {"precision.compute": "fp32"},
    {"optimizer.clipping": 0.5},
]


@needs_corpus
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: str(path.relative_to(CORPUS)))
def test_laws_over_the_corpus(path):
    before = parse_config(path.read_bytes())
    assert laws.check_get_put(before) > 10
    write_count = sum(laws.check_put_get(before, changes) is not None for changes in CHANGES)
    assert write_count >= len(CHANGES) - 3


@pytest.mark.parametrize("path", OWN_FILES, ids=lambda path: path.name)
def test_laws_over_fixtures(path):
    before = parse_config(path.read_bytes())
    laws.check_get_put(before)
    for changes in CHANGES:
        laws.check_put_get(before, changes)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**12),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["auto", "true", "cpu", "nvme", "3", "5e8", "", "none"]),
    st.builds(list),
    st.dictionaries(st.sampled_from(["device", "enabled", "pin_memory", "stage"]), st.booleans(), max_size=2),
)
TOP = sorted({route[0] for lens in deepspeed.LENSES for route in laws.list_routes(lens) if len(route) == 1})
NESTED = sorted({route for lens in deepspeed.LENSES for route in laws.list_routes(lens) if len(route) > 1})


@st.composite
def draw_odd_file(draw) -> dict[str, Any]:
    source: dict[str, Any] = draw(st.dictionaries(st.sampled_from(TOP), ODD, max_size=4))
    for route in draw(st.lists(st.sampled_from(NESTED), max_size=8, unique=True)):
        node = source
        for step in route[:-1]:
            node = node.setdefault(step, {})
            if not isinstance(node, dict):
                break
        else:
            node[route[-1]] = draw(ODD)
    return source


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    source=draw_odd_file(), changes=st.sampled_from(CHANGES), indent=st.sampled_from([2, 4, "\t"]), crlf=st.booleans()
)
def test_laws_over_odd_files(source, changes, indent, crlf):
    text = json.dumps(source, indent=indent)
    before = parse_config(text.replace("\n", "\r\n") if crlf else text)
    laws.check_get_put(before)
    laws.check_put_get(before, changes)
    build_job(before)
    build_job(parse_config(text, role="main"))


def write_file(path: Path, changes: dict[str, Any]) -> tuple[bytes, bytes]:
    before = parse_config(path.read_bytes())
    return before.document.source, laws.write_fields(before, changes).document.source


def test_a_number_keeps_its_spelling():
    before, after = write_file(FIXTURES / "deepspeed" / "zero3_crlf.json", {"parallel.sub_group": 200_000_000})
    assert after == before.replace(b"1e9", b"2e8")
    _, after = write_file(FIXTURES / "deepspeed" / "zero3_crlf.json", {"parallel.sub_group": 123_456_789})
    assert b'"sub_group_size": 123456789' in after


def test_a_new_section_takes_the_pinning_of_its_neighbour():
    _, after = write_file(FIXTURES / "deepspeed" / "zero3_crlf.json", {"parallel.offload_optimizer": "cpu"})
    assert json.loads(after)["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert b"\n" not in after.replace(b"\r\n", b"")
    assert not after.endswith(b"\n")


def test_deprecated_spellings_are_kept():
    before, after = write_file(FIXTURES / "deepspeed" / "zero2_odd.json", {"parallel.offload_optimizer": "none"})
    assert after == before.replace(b'"cpu_offload": true', b'"cpu_offload": false')


def test_the_bare_switch_becomes_a_section():
    after = laws.write_fields(parse_config({"zero_optimization": True}), {"parallel.zero_stage": 3})
    assert after.document.get_value() == {"zero_optimization": {"stage": 3}}


@pytest.mark.parametrize(
    ("source", "changes", "reason"),
    [
        ({"zero_optimization": {}}, {"parallel.offload_params": "nvme"}, "path"),
        ({"zero_optimization": {"compute_grad_norm": False}}, {"parallel.zero_stage": 3}, "compute_grad_norm"),
        ({"zero_optimization": {}}, {"parallel.strategy": "ddp"}, "does not say whether"),
        ({"zero_optimization": {}}, {"parallel.pin_memory": False}, "offload section"),
        ({"zero_optimization": True}, {"parallel.offload_params": "cpu"}, "mapping"),
        ({"bf16": {"enabled": True}}, {"precision.compute": "fp8"}, "fp8"),
    ],
)
def test_refusals_say_why(source, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config({"steps_per_print": 1, **source}), {**changes})


def test_a_mapping_inside_a_yaml_file_has_the_same_lenses():
    source = (FIXTURES / "llamafactory" / "deepspeed_inline.yaml").read_bytes()
    host = laws.build_config("llamafactory", source)
    inner = Config("deepspeed", host.document, host.releases, ("deepspeed",), "companion")
    reading = laws.read_plan(inner)
    assert reading.get("parallel.reduce_bucket") == 500_000_000
    assert reading.get("batch.micro") == Auto(None)
    after = laws.check_put_get(inner, {"parallel.zero_stage": 3})
    assert after is not None
    assert b"    stage: 3\n    reduce_bucket_size: 5e8   # a float" in after.document.source
    # PyYAML reads 5e8 as a string, which DeepSpeed rejects.
    plain = laws.parse_document(source, "yaml")
    assert (
        laws.read_plan(Config("deepspeed", plain, host.releases, ("deepspeed",))).get("parallel.reduce_bucket") is None
    )


# --- DeepSpeed as the judge ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed", minversion=deepspeed.NEWEST)
    from deepspeed.runtime.config import DeepSpeedConfig

    def load_config(source: dict[str, Any]) -> Any:
        """Return DeepSpeed's configuration, or None if it rejects the file.

        Batch sizes are excluded because they depend on the world size.
        """
        batch = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        rest = {key: value for key, value in source.items() if key not in batch}
        try:
            return DeepSpeedConfig({**rest, "train_micro_batch_size_per_gpu": 1})
        except Exception:
            return None

    return load_config


def check_agreement(theirs: Any, plan: Any) -> None:
    zero, parallel = theirs.zero_config, plan.parallel
    assert parallel.zero_stage == int(zero.stage)
    assert parallel.reduce_bucket == zero.reduce_bucket_size
    assert parallel.prefetch_bucket == zero.prefetch_bucket_size
    assert parallel.persistence_threshold == zero.param_persistence_threshold
    assert parallel.max_live_parameters == zero.max_live_parameters
    assert parallel.max_reuse_distance == zero.max_reuse_distance
    assert parallel.sub_group == zero.sub_group_size
    assert parallel.secondary_partition == zero.zero_hpz_partition_size
    assert parallel.overlap_comm == zero.overlap_comm
    assert parallel.contiguous_gradients == zero.contiguous_gradients
    assert parallel.reduce_scatter == zero.reduce_scatter
    assert plan.checkpoint.gather == zero.gather_16bit_weights_on_model_save
    devices = {
        name: getattr(section, "device", None) or "none"
        for name, section in (("offload_optimizer", zero.offload_optimizer), ("offload_params", zero.offload_param))
    }
    if zero.stage == 3:
        assert (parallel.offload_optimizer, parallel.offload_params) == (
            devices["offload_optimizer"],
            devices["offload_params"],
        )
    pins = [section.pin_memory for section in (zero.offload_optimizer, zero.offload_param) if section is not None]
    if pins and not theirs._param_dict.get("zero_optimization", {}).get("cpu_offload"):
        assert parallel.pin_memory == any(pins)
    assert plan.optimizer.clipping == theirs.gradient_clipping
    mode = "bf16" if theirs.bfloat16_config.enabled else "fp16" if theirs.float16_config.enabled else "fp32"
    if not theirs.torch_autocast_enabled:
        assert plan.precision.compute == mode


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: str(path.relative_to(CORPUS)))
def test_deepspeed_reads_the_corpus_alike(judge, path):
    before = parse_config(path.read_bytes(), role="main")
    source = before.document.get_value()
    theirs = judge(source)
    if theirs is None:
        skip_inapplicable("this release refuses the file")
    if source.get("gradient_clipping") == "auto":
        theirs.gradient_clipping = deepspeed.CLIPPING_DEFAULT.get_at("0.19.8")
    check_agreement(theirs, build_job_plan(before))
    for changes in CHANGES:
        after = laws.check_put_get(before, changes)
        assert after is None or judge(after.document.get_value()) is not None, "a fixed file is accepted"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**10), st.floats(-1e12, 1e12),
    st.sampled_from(["auto", "true", "no", "3", " 7 ", "1_000", "5e8", "x", ""]), st.builds(list), st.builds(dict),
)  # fmt: skip
JUDGED = [
    (f"zero_optimization.{name}", field)
    for name, field in (
        ("stage", "parallel.zero_stage"),
        ("reduce_bucket_size", "parallel.reduce_bucket"),
        ("overlap_comm", "parallel.overlap_comm"),
        ("sub_group_size", "parallel.sub_group"),
        ("stage3_max_live_parameters", "parallel.max_live_parameters"),
        ("contiguous_gradients", "parallel.contiguous_gradients"),
        ("stage3_gather_16bit_weights_on_model_save", "checkpoint.gather"),
        ("offload_param.device", "parallel.offload_params"),
        ("offload_param.pin_memory", "parallel.pin_memory"),
    )
]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(JUDGED), stated=VALUES)
def test_deepspeed_takes_and_refuses_the_same_values(judge, key, stated):
    route, field = key
    source: dict[str, Any] = {"zero_optimization": {"stage": 3}}
    node = source
    for step in route.split(".")[:-1]:
        node = node.setdefault(step, {})
    node[route.split(".")[-1]] = stated
    theirs, plan = judge(source), build_job_plan(parse_config(source, role="main"))
    if theirs is None:
        assert plan.get(field) is None
    else:
        check_agreement(theirs, plan)
