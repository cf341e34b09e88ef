"""accelerate's launch files: recognition, reading and writing, checked against accelerate's own launcher (slow)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.frameworks.accelerate.recognise import list_references, recognise
from cfglint_train.frameworks.deepspeed import lenses as deepspeed
from cfglint_train.frameworks.hf_trainer import fsdp
from cfglint_train.frameworks.lens import Config
from tests.support import laws
from tests.support.cases import for_each
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_job, build_job_plan
from tests.support.skips import skip_inapplicable

FIXTURES = sorted((REPOSITORY / "fixtures" / "accelerate").glob("*.yaml"))
EXAMPLE_FOLDERS = ("accelerate", "llamafactory/examples/accelerate", "llamafactory/examples/ktransformers/accelerate")
UPSTREAM = [path for folder in EXAMPLE_FOLDERS for path in list_corpus_files(".yaml", ".yml", under=folder)]


def parse_config(source: str | bytes | dict[str, Any], role: str = "companion", **stated: str) -> Config:
    text = yaml.safe_dump(source, sort_keys=False) if isinstance(source, dict) else source
    return laws.build_config("accelerate", text, role=role, **stated)


def read_value(source: dict[str, Any], field: str, **stated: str) -> Any:
    return laws.read_plan(parse_config(source, **stated)).get(field)


FSDP = {"distributed_type": "FSDP", "num_processes": 8}
DEEPSPEED = {"distributed_type": "DEEPSPEED", "num_processes": 8}

# --- recognising -----------------------------------------------------------------------------------------------------


@needs_corpus
def test_recognises_the_corpus_and_nothing_else():
    assert len(UPSTREAM) == 18
    for path in list_corpus_files(".yaml", ".yml"):
        configs = recognise(laws.parse_document(path.read_bytes(), "yaml", str(path)))
        assert bool(configs) == (path in UPSTREAM), path


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_recognises_fixtures(path):
    assert recognise(laws.parse_document(path.read_bytes(), "yaml"))


@pytest.mark.parametrize(
    "source",
    [
        "- distributed_type: FSDP\n",
        "distributed_type: FSDP\n",
        "distributed_type: sideways\nnum_processes: 8\n",
        "distributed_type: [FSDP]\nnum_processes: 8\n",
        "mixed_precision: bf16\nnum_processes: 8\n",
        # axolotl and LLaMA-Factory have an fsdp_config too
        "base_model: x\nfsdp_config: {}\ndatasets: []\n",
        "distributed_type: FSDP\nmixed_precision: bf16\nmodel: x\ndata: y\noptimizer: z\nlr: 1\nseed: 2\n",
        "",
    ],
)
def test_leaves_look_alikes_alone(source):
    assert not recognise(laws.parse_document(source, "yaml"))


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "nodes", "gpus"),
    [
        ({"distributed_type": "MULTI_GPU", "num_machines": 2, "num_processes": 16}, 2, 8),
        ({"distributed_type": "MULTI_GPU", "num_processes": "8"}, 1, 8),
        ({"distributed_type": "MULTI_GPU", "num_machines": 2, "num_processes": 9}, 2, None),
        ({"distributed_type": "MULTI_GPU", "num_machines": 2, "num_processes": -1}, 2, None),
        ({"distributed_type": "NO", "mixed_precision": "bf16"}, 1, 1),
        ({"distributed_type": "MULTI_GPU", "num_machines": 0, "num_processes": 8}, None, None),
        ({"distributed_type": "XLA", "num_processes": 8}, None, None),
        ({"distributed_type": "MULTI_CPU", "num_processes": 8}, None, None),
    ],
)
def test_cluster(source, nodes, gpus):
    reading = laws.read_plan(parse_config(source))
    assert (reading.get("launch.nodes"), reading.get("launch.gpus_per_node")) == (nodes, gpus)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("MULTI_GPU", "ddp"), ("MULTI_XPU", "ddp"), ("NO", "none"), ("DEEPSPEED", "zero"), ("MEGATRON_LM", None)],
)
def test_strategy(kind, expected):
    assert read_value({"distributed_type": kind, "num_processes": 8}, "parallel.strategy") == expected


def test_unquoted_no_is_a_boolean_and_still_means_no():
    assert (
        laws.read_plan(parse_config("distributed_type: NO\nmixed_precision: bf16\n")).get("parallel.strategy") == "none"
    )


@for_each(
    ("stated", "field", "expected"),
    [
        ({}, "parallel.strategy", "fsdp1"),
        ({"fsdp_version": 2}, "parallel.strategy", "fsdp2"),
        ({"fsdp_version": "2"}, "parallel.strategy", "fsdp2"),
        ({"version": 2}, "parallel.strategy", "fsdp2"),
        ({"fsdp_version": 3}, "parallel.strategy", None),
        ({}, "parallel.sharding", "full_shard"),
        ({"fsdp_sharding_strategy": 2}, "parallel.sharding", "shard_grad_op"),
        ({"fsdp_sharding_strategy": "5"}, "parallel.sharding", "hybrid_shard_zero2"),
        ({"sharding_strategy": "NO_SHARD"}, "parallel.sharding", "no_shard"),
        ({"fsdp_sharding_strategy": 9}, "parallel.sharding", None),
        # The launcher always passes a strategy at version 1, so this key has no effect.
        ({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"}, "parallel.sharding", "full_shard"),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, "parallel.sharding", "shard_grad_op"),
        ({"fsdp_version": 2, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}, "parallel.sharding", "full_shard"),
        ({}, "parallel.wrapping", "root"),
        ({"fsdp_auto_wrap_policy": "NO_WRAP"}, "parallel.wrapping", "root"),
        ({"fsdp_auto_wrap_policy": "transformer_based_wrap"}, "parallel.wrapping", "block"),
        ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, "parallel.wrapping", "size"),
        ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 0}, "parallel.wrapping", "root"),
        ({"fsdp_auto_wrap_policy": "EVERYTHING"}, "parallel.wrapping", None),
        ({}, "checkpoint.state_dict", "full"),
        ({"fsdp_version": 2}, "checkpoint.state_dict", "sharded"),
        ({"fsdp_state_dict_type": "3"}, "checkpoint.state_dict", "sharded"),
        ({"fsdp_state_dict_type": 2}, "checkpoint.state_dict", "local"),
        ({"state_dict_type": "full_state_dict"}, "checkpoint.state_dict", "full"),
        ({"fsdp_state_dict_type": "WHOLE"}, "checkpoint.state_dict", None),
        ({}, "parallel.cpu_efficient_loading", True),
        ({"fsdp_cpu_ram_efficient_loading": "false"}, "parallel.cpu_efficient_loading", False),
        ({}, "parallel.offload_params", "none"),
        ({"fsdp_offload_params": "true"}, "parallel.offload_optimizer", "cpu"),
        ({"fsdp_activation_checkpointing": True}, "activations.checkpointing", "full"),
        ({}, "activations.checkpointing", None),
    ],
)
def test_fsdp(stated, field, expected):
    assert read_value({**FSDP, "fsdp_config": stated}, field) == expected


def test_ranks_of_a_mesh():
    plan = build_job_plan(
        parse_config((REPOSITORY / "fixtures/accelerate/fsdp2_ranks.yaml").read_bytes()), nodes=None, gpus=None
    )
    parallel = plan.parallel
    assert (parallel.shard_size, parallel.replicas, parallel.tensor) == (4, 2, 2)
    assert plan.world_size == 16
    assert plan.activations.compile is True


@for_each(
    ("stated", "field", "expected"),
    [
        ({}, "parallel.zero_stage", 2),
        ({"zero_stage": "3"}, "parallel.zero_stage", 3),
        ({"zero_stage": 7}, "parallel.zero_stage", None),
        ({"offload_optimizer_device": "CPU"}, "parallel.offload_optimizer", "cpu"),
        ({"offload_param_device": "moon"}, "parallel.offload_params", None),
        ({"zero3_save_16bit_model": "true"}, "checkpoint.gather", True),
        ({}, "checkpoint.gather", False),
        ({"gradient_accumulation_steps": 4}, "batch.accumulation", 4),
        ({"gradient_clipping": "0.5"}, "optimizer.clipping", 0.5),
        ({"gradient_clipping": "much"}, "optimizer.clipping", None),
        # The generated file omits the bucket size: DeepSpeed's default applies, not the Trainer's hidden size squared.
        ({}, "parallel.reduce_bucket", 500_000_000),
        ({"deepspeed_moe_layer_cls_names": "MixtralSparseMoeBlock"}, "parallel.leaf_modules", True),
        ({"deepspeed_config_file": "ds.json"}, "parallel.zero_stage", None),
        ({"deepspeed_config_file": "ds.json"}, "parallel.strategy", "zero"),
    ],
)
def test_deepspeed_settings_of_its_own(stated, field, expected):
    assert read_value({**DEEPSPEED, "deepspeed_config": stated}, field) == expected


def test_names_a_deepspeed_file():
    (reference,) = list_references(parse_config({**DEEPSPEED, "deepspeed_config": {"deepspeed_config_file": "a.json"}}))
    assert (reference.framework, reference.path) == ("deepspeed", "a.json")
    assert not list_references(parse_config({**FSDP, "deepspeed_config": {"deepspeed_config_file": "a.json"}}))


HOST = "model_name_or_path: x/y\nstage: sft\nfinetuning_type: full\ndataset: d\ntemplate: t\n"


@pytest.mark.parametrize(
    ("host", "mixed", "compute", "autocast"),
    [("", "bf16", "bf16", True), ("fp16: true\n", "bf16", "fp16", True), ("", "no", "fp32", False)],
)
def test_mixed_precision_of_the_launch_fills_the_trainers_gap(host, mixed, compute, autocast):
    main = laws.build_config("llamafactory", HOST + host)
    plan = build_job_plan(main, {"accelerate": parse_config({**FSDP, "mixed_precision": mixed})})
    assert (plan.precision.compute, plan.precision.autocast) == (compute, autocast)
    assert plan.parallel.strategy == "fsdp1"


def test_the_trainers_own_fsdp_settings_win():
    main = laws.build_config("llamafactory", HOST + "fsdp: shard_grad_op\n")
    launch = {**FSDP, "fsdp_config": {"fsdp_version": 2, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}}
    plan = build_job_plan(main, {"accelerate": parse_config(launch)})
    assert (plan.parallel.strategy, plan.parallel.sharding) == ("fsdp1", "shard_grad_op")
    assert plan.checkpoint.state_dict == "full"


@pytest.mark.parametrize(
    ("host", "launch", "expected"),
    [
        ("fsdp: full_shard\n", {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}, "block"),
        ("fsdp: full_shard\n", {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, "size"),
        ("fsdp: full_shard\n", {}, "root"),
        ("fsdp: full_shard\n", None, "root"),
        ("fsdp: full_shard auto_wrap\n", {"fsdp_auto_wrap_policy": "NO_WRAP"}, "block"),
    ],
)
def test_the_policy_of_the_launch_fills_the_trainers_gap(host, launch, expected):
    companions = {} if launch is None else {"accelerate": parse_config({**FSDP, "fsdp_config": launch})}
    main = laws.build_config("llamafactory", HOST + host, transformers="4.52.3")
    assert build_job_plan(main, companions).parallel.wrapping == expected


def test_alone_it_is_a_run_as_far_as_it_goes():
    fixture = REPOSITORY / "fixtures/accelerate/deepspeed_inline.yaml"
    plan = build_job_plan(parse_config(fixture.read_bytes()), nodes=None, gpus=None)
    assert (plan.launch.nodes, plan.launch.gpus_per_node) == (2, 8)
    assert (plan.precision.params, plan.precision.master) == ("bf16", "fp32")
    assert (plan.parallel.overlap_comm, plan.parallel.offload_optimizer) == (True, "cpu")


# --- laws ------------------------------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"checkpoint.state_dict": "full"},
    {"checkpoint.state_dict": "sharded"},
    {"checkpoint.state_dict": "local"},
    {"parallel.offload_params": "cpu"},
    {"parallel.offload_params": "none"},
    {"parallel.offload_optimizer": "cpu"},
    {"parallel.sharding": "hybrid_shard"},
    {"parallel.reshard_after_forward": False},
    {"parallel.wrapping": "block"},
    {"parallel.cpu_efficient_loading": False},
    {"parallel.use_orig_params": False},
    {"parallel.zero_stage": 3},
    {"checkpoint.gather": True},
    {"batch.accumulation": 2},
    {"optimizer.clipping": 0.25},
    {"launch.nodes": 4},
    {"precision.compute": "fp16"},
]


@needs_corpus
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: str(path.relative_to(CORPUS)))
def test_laws_over_the_corpus(path):
    before = parse_config(path.read_bytes())
    assert laws.check_get_put(before) >= 3
    for changes in CHANGES:
        laws.check_put_get(before, changes)
    build_job(before)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_laws_over_fixtures(path):
    before = parse_config(path.read_bytes())
    laws.check_get_put(before)
    assert sum(laws.check_put_get(before, changes) is not None for changes in CHANGES) >= 5


WORDS = st.sampled_from(["true", "false", "NO", "FSDP", "DEEPSPEED", "MULTI_GPU", "bf16", "2", "3", "cpu", "x", ""])
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**6), st.floats(), WORDS, st.builds(list), st.builds(dict, a=st.just(1))
)  # fmt: skip
INNER = st.sampled_from([
    "fsdp_version", "version", "fsdp_sharding_strategy", "fsdp_state_dict_type", "fsdp_offload_params",
    "fsdp_reshard_after_forward", "fsdp_auto_wrap_policy", "zero_stage", "offload_optimizer_device",
    "gradient_clipping", "gradient_accumulation_steps", "zero3_save_16bit_model", "deepspeed_config_file",
])  # fmt: skip
SECTIONS = st.one_of(ODD, st.dictionaries(INNER, ODD, max_size=5))


@settings(max_examples=250, deadline=None)
@given(
    kind=st.sampled_from(["FSDP", "DEEPSPEED", "MULTI_GPU", "NO"]) | ODD,
    rest=st.dictionaries(st.sampled_from(["num_machines", "num_processes", "mixed_precision", "use_cpu"]), ODD),
    fsdp=SECTIONS,
    ds=SECTIONS,
    changes=st.sampled_from(CHANGES),
    crlf=st.booleans(),
)
def test_laws_over_odd_files(kind, rest, fsdp, ds, changes, crlf):
    text = yaml.safe_dump({"distributed_type": kind, **rest, "fsdp_config": fsdp, "deepspeed_config": ds})
    before = parse_config(text.replace("\n", "\r\n") if crlf else text)
    laws.check_get_put(before)
    laws.check_put_get(before, changes)
    build_job(before)


def test_a_write_keeps_key_style_and_comments():
    source = "distributed_type: FSDP  # all\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT # one\nnum_processes: 8\n"
    after = laws.write_fields(parse_config(source), {"checkpoint.state_dict": "sharded"})
    assert after.document.source.decode() == source.replace("FULL_", "SHARDED_")


@pytest.mark.parametrize(
    ("source", "changes", "reason"),
    [
        (
            {**DEEPSPEED, "deepspeed_config": {"deepspeed_config_file": "x.json"}},
            {"parallel.zero_stage": 3},
            "are in",
        ),
        ({**DEEPSPEED, "deepspeed_config": {}}, {"parallel.reduce_bucket": 1}, "deepspeed_config_file"),
        ({**DEEPSPEED, "deepspeed_config": {}}, {"parallel.offload_params": "nvme"}, "path"),
        ({**FSDP, "fsdp_config": {"fsdp_version": 2}}, {"checkpoint.state_dict": "local"}, "FSDP2"),
        ({**FSDP, "fsdp_config": {}}, {"parallel.zero_stage": 3}, "single key"),
        ({"distributed_type": "MULTI_GPU", "num_processes": 8}, {"parallel.zero_stage": 3}, "MULTI_GPU"),
        ({"distributed_type": "MULTI_GPU", "num_processes": 8}, {"launch.nodes": 3}, "automatically"),
    ],
)
def test_refusals_say_why(source, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config(source), changes)


# --- accelerate as the judge -----------------------------------------------------------------------------------------

_FORMS = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded", "LOCAL_STATE_DICT": "local"}


@pytest.fixture(scope="module")
def launched():
    pytest.importorskip("torch")
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    def build_environment(path: Any) -> dict[str, str]:
        """Return the environment variables that the launcher sets for the training processes."""
        arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        arguments, _, _ = launch._validate_launch_command(arguments)
        arguments.main_process_port = 0 if arguments.num_machines in (None, 1) else arguments.main_process_port
        if arguments.use_deepspeed:
            arguments.deepspeed_fields_from_accelerate_config = ""
            return dict(prepare_deepspeed_cmd_env(arguments)[1])
        return dict(prepare_multi_gpu_env(arguments))

    return build_environment


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", [*UPSTREAM, *FIXTURES], ids=lambda path: path.name)
def test_the_launcher_says_the_same(launched, monkeypatch, path):
    before = parse_config(path.read_bytes(), accelerate=__import__("accelerate").__version__)
    reading = laws.read_plan(before)
    if reading.get("precision.compute") == "fp8":
        skip_inapplicable("accelerate asks for an FP8 library")
    environment = launched(path)
    if environment.get("ACCELERATE_USE_FSDP") == "true":
        assert reading.get("parallel.strategy") == f"fsdp{environment['FSDP_VERSION']}"
        assert (reading.get("parallel.offload_params") == "cpu") == (environment["FSDP_OFFLOAD_PARAMS"] == "true")
        loads = environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] in ("true", "1")
        assert reading.get("parallel.cpu_efficient_loading") is loads
        if environment["FSDP_VERSION"] == "1":
            sharding = environment["FSDP_SHARDING_STRATEGY"].lower()
            names = fsdp.SHARDING_STRATEGIES
            assert reading.get("parallel.sharding") == (names[int(sharding) - 1] if sharding.isdigit() else sharding)
            assert reading.get("parallel.use_orig_params") is (environment["FSDP_USE_ORIG_PARAMS"] == "true")
        else:
            resharding = environment["FSDP_RESHARD_AFTER_FORWARD"] == "true"
            assert reading.get("parallel.reshard_after_forward") is resharding
        form = environment.get("FSDP_STATE_DICT_TYPE")
        expected = "sharded" if form == "3" else _FORMS[form] if form else None
        assert expected is None or reading.get("checkpoint.state_dict") == expected
    elif (
        environment.get("ACCELERATE_USE_DEEPSPEED") == "true" and "ACCELERATE_DEEPSPEED_CONFIG_FILE" not in environment
    ):
        plugin_config = _build_plugin_config(environment, monkeypatch)
        zero = plugin_config["zero_optimization"]
        assert reading.get("parallel.zero_stage") == zero["stage"]
        assert reading.get("parallel.offload_optimizer") == zero["offload_optimizer"]["device"]
        assert reading.get("parallel.offload_params") == zero["offload_param"]["device"]
        assert reading.get("checkpoint.gather") == zero["stage3_gather_16bit_weights_on_model_save"]
        assert reading.get("batch.accumulation") == plugin_config["gradient_accumulation_steps"]
        assert reading.get("optimizer.clipping") == plugin_config["gradient_clipping"]
        assert not set(zero) & {
            key[-1] for lens in deepspeed.LENSES for key in laws.list_routes(lens) if "bucket" in key[-1]
        }
    else:
        assert reading.get("parallel.strategy") in ("ddp", "none", "zero")
    if reading.get("precision.compute"):
        assert environment["ACCELERATE_MIXED_PRECISION"] == reading.get("precision.compute")


def _build_plugin_config(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the DeepSpeed configuration that accelerate builds from the environment."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed")
    from accelerate.utils import DeepSpeedPlugin

    for key, text in environment.items():
        if key.startswith("ACCELERATE_"):
            monkeypatch.setenv(key, text)
    config: dict[str, Any] = DeepSpeedPlugin().deepspeed_config
    return config
