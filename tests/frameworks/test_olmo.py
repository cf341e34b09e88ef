"""OLMo v1 configurations: recognition, reading and writing, checked against OmegaConf and (slow) OLMo's TrainConfig."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit
from cfglint_train.documents.writer import is_identical
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import registry
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.olmo import framework as olmo_framework
from cfglint_train.frameworks.olmo import lenses as olmo
from cfglint_train.frameworks.olmo.defaults import DEFAULTS
from cfglint_train.plan.origin import Origin
from tests.support import laws
from tests.support.cases import for_each
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.jobs import build_job_plan
from tests.support.skips import skip_inapplicable

EXAMPLES = list_corpus_files(".yaml", under="olmo")
FIXTURES = sorted((REPOSITORY / "fixtures" / "olmo").glob("*.yaml"))
CASES = sorted((REPOSITORY / "fixtures" / "cases").glob("*-olmo-*/*.yaml"))
EVERY = [*FIXTURES, *CASES]

MINIMAL: dict[str, Any] = {
    "run_name": "r",
    "model": {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_sequence_length": 128},
    "optimizer": {"name": "adamw"},
    "tokenizer": {"identifier": "gpt2"},
    "precision": "amp_bf16",
    "save_folder": "out",
}


def build_minimal(**keys: Any) -> dict[str, Any]:
    """Return the minimal configuration with more keys; `model__d_model` is a key of the section `model`."""
    content = {name: dict(value) if isinstance(value, dict) else value for name, value in MINIMAL.items()}
    for name, value in keys.items():
        section, _, inner = name.rpartition("__")
        if section:
            content.setdefault(section, {})[inner] = value
        else:
            content[name] = value
    return content


def parse_config(source: str | bytes | dict[str, Any], overrides: Any = None, **stated: str) -> Config:
    text = yaml.safe_dump(source, sort_keys=False) if isinstance(source, dict) else source
    parsed = laws.build_config("olmo", text, **stated)
    parsed.overrides = {r: Override(v, Origin("user", note="--set")) for r, v in (overrides or {}).items()}
    return parsed


def read_value(field: str, release: str = olmo_framework.NEWEST, **keys: Any) -> Any:
    return laws.read_plan(parse_config(build_minimal(**keys), olmo=release)).get(field)


def recognise_source(source: str | bytes) -> list[frameworks.RecognisedConfig]:
    return frameworks.recognise("olmo", laws.parse_document(source, "yaml"))


# --- recognising -----------------------------------------------------------------------------------------------------


@needs_corpus
def test_recognises_the_corpus_and_nothing_else():
    assert len(EXAMPLES) == 57
    for path in list_corpus_files(".yaml", ".yml"):
        if "olmo" not in registry.find_candidates(path.read_bytes(), "yaml"):
            assert path not in EXAMPLES
            continue
        assert bool(recognise_source(path.read_bytes())) == (path in EXAMPLES), path


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_recognises_fixtures(path):
    assert recognise_source(path.read_bytes())


@pytest.mark.parametrize(
    "source",
    [
        "",
        "- model: {d_model: 1, n_layers: 1}\n",
        "model: x\nprecision: amp_bf16\nsave_folder: a\ndata: {}\noptimizer: {}\n",
        "model: {d_model: 1, n_layers: 2}\n",
        # llm-foundry, whose keys OLMo shares
        "model: {name: mpt_causal_lm, d_model: 768, n_heads: 12, n_layers: 12}\nmax_seq_len: 2048\n"
        "tokenizer: {name: t}\nprecision: amp_bf16\nglobal_train_batch_size: 64\ndevice_train_microbatch_size: 4\n"
        "max_duration: 10ba\neval_interval: 1\nsave_folder: x\noptimizer: {name: a}\ntrain_loader: {}\n",
        # OLMo-core
        "model: {d_model: 1, n_layers: 2, n_heads: 1}\ntrain_module: {}\ntrainer: {}\ndata_loader: {}\noptimizer: {}\n"
        "data: {}\ntokenizer: {}\nprecision: x\n",
        # NeMo, torchtitan and similar tools
        "model: {hidden_size: 1, num_layers: 2}\ntrainer: {}\nprecision: bf16\ndata: {}\noptimizer: {}\n",
    ],
)
def test_leaves_look_alikes_alone(source):
    assert not recognise_source(source)


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_values_are_omegaconfs(path):
    omegaconf = pytest.importorskip("omegaconf")
    expected = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(path))
    assert is_identical(parse_config(path.read_bytes()).document.get_value(), expected)


# --- defaults --------------------------------------------------------------------------------------------------------


@for_each(
    ("field", "release", "expected"),
    [
        ("batch.micro", "0.6.0", 16),
        ("batch.global_", "0.6.0", 512),
        ("batch.eval_micro", "0.6.0", 16),
        ("batch.steps", "0.6.0", 10000),
        ("checkpoint.checkpointer", "0.6.0", "torch_legacy"),
        ("checkpoint.load_checkpointer", "0.6.0", "torch_legacy"),
        ("checkpoint.interval", "0.6.0", 1000),
        ("checkpoint.interval_unsharded", "0.6.0", 0),
        ("checkpoint.keep", "0.6.0", "all"),
        ("checkpoint.at_start", "0.6.0", True),
        ("checkpoint.overwrite", "0.6.0", False),
        ("parallel.strategy", "0.3.0", "fsdp1"),
        ("parallel.strategy", "0.4.0", None),
        ("parallel.strategy", "0.5.0", "fsdp1"),
        ("parallel.sharding", "0.6.0", "full_shard"),
        ("parallel.wrapping", "0.6.0", "root"),
        ("model.init_device", "0.6.0", "cpu"),
        ("optimizer.stated_name", "0.6.0", "adamw"),
        ("activations.checkpointing", "0.6.0", "none"),
        ("activations.dropout", "0.6.0", 0.1),
        ("activations.fused_loss", "0.6.0", "none"),
        ("logging.metrics_interval", "0.6.0", 1),
        ("logging.metrics_enabled", "0.6.0", False),
        ("logging.cancel_check_interval", "0.6.0", 50),
        ("logging.gc_interval", "0.6.0", 1),
        ("data.workers", "0.6.0", 0),
        ("data.token_dtype", "0.6.0", "uint16"),
    ],
)
def test_defaults(field, release, expected):
    assert read_value(field, release) == expected


def test_without_a_name_the_optimizer_is_lion():
    assert read_value("optimizer.name", optimizer={}) == "lion"


def test_pins_are_the_releases_that_are_allowed():
    assert olmo_framework.FRAMEWORK.list_installed("0.6.0") == {"olmo_core": "0.1.0"}
    assert olmo_framework.FRAMEWORK.list_installed("0.5.1")["torch"] == "2.4.1"
    assert olmo_framework.FRAMEWORK.list_installed("0.4.0")["torch"] == "2.3.1"
    assert olmo_framework.FRAMEWORK.list_installed("0.3.0") == {"torch": "2.2.2"}


# --- reading ---------------------------------------------------------------------------------------------------------


@for_each(
    ("keys", "field", "expected"),
    [
        ({"precision": "amp_fp16"}, "precision.compute", "fp16"),
        ({"precision": "fp32"}, "precision.compute", "fp32"),
        ({"precision": "bf16"}, "precision.compute", None),
        ({"precision": None}, "precision.compute", None),
        ({"device_train_microbatch_size": "2"}, "batch.micro", 2),
        ({"device_train_microbatch_size": 2.5}, "batch.micro", None),
        ({"device_train_microbatch_size": True}, "batch.micro", None),
        ({"device_train_microbatch_size": [2]}, "batch.micro", None),
        ({"activation_checkpointing": "whole_layer"}, "activations.checkpointing", "full"),
        ({"activation_checkpointing": True}, "activations.checkpointing", "full"),
        ({"activation_checkpointing": False}, "activations.checkpointing", "none"),
        ({"activation_checkpointing": None}, "activations.checkpointing", "none"),
        ({"activation_checkpointing": "two_in_three"}, "activations.every", 3),
        ({"activation_checkpointing": "two_in_three"}, "activations.of", 2),
        ({"activation_checkpointing": "one_in_eight"}, "activations.every", 8),
        ({"activation_checkpointing": "fine_grained"}, "activations.checkpointing", "fine_grained"),
        ({"activation_checkpointing": "sometimes"}, "activations.checkpointing", None),
        ({"activation_checkpointing": 3}, "activations.checkpointing", None),
        ({"fsdp__sharding_strategy": "HYBRID_SHARD"}, "parallel.sharding", "hybrid_shard"),
        ({"fsdp__sharding_strategy": "ShardingStrategy.NO_SHARD"}, "parallel.sharding", "no_shard"),
        ({"fsdp__sharding_strategy": 2}, "parallel.sharding", "shard_grad_op"),
        ({"fsdp__sharding_strategy": "hybrid_shard"}, "parallel.sharding", None),
        ({"fsdp__wrapping_strategy": "by_block"}, "parallel.wrapping", "block"),
        ({"fsdp__wrapping_strategy": None}, "parallel.wrapping", "root"),
        ({"fsdp__wrapping_strategy": "one_in_two"}, "parallel.wrapping", None),
        ({"fsdp__precision": "mixed"}, "parallel.communication", "fp32"),
        ({"fsdp__precision": "pure"}, "parallel.communication", "bf16"),
        ({"fsdp__precision": None}, "parallel.communication", "fp32"),
        ({"fsdp": {}}, "parallel.communication", "bf16"),
        ({"distributed_strategy": "ddp", "ddp": {}}, "parallel.strategy", "ddp"),
        ({"distributed_strategy": "ddp", "ddp": {}}, "parallel.sharding", None),
        ({"distributed_strategy": "single"}, "parallel.strategy", "none"),
        ({"distributed_strategy": None}, "parallel.strategy", None),
        ({"model__flash_attention": True}, "activations.attention", "flash"),
        ({"model__flash_attention": True, "model__alibi": True}, "activations.attention", "sdpa"),
        ({"model__flash_attention": True, "data__generate_attention_mask": True}, "activations.attention", "sdpa"),
        ({"model__residual_dropout": 0.0, "model__attention_dropout": 0}, "activations.dropout", 0.1),
        ({"compile": {}}, "activations.compile", True),
        ({"compile": None}, "activations.compile", False),
        ({"fused_loss": True}, "activations.fused_loss", "triton"),
        ({"fused_loss": "off"}, "activations.fused_loss", "none"),
        ({"model__init_device": "cuda:0"}, "model.init_device", "cuda"),
        ({"model__block_group_size": 4}, "parallel.wrapping_group", 4),
        ({"optimizer__name": "lionw"}, "optimizer.name", "lion"),
        ({"optimizer__name": "decoupled_lionw"}, "optimizer.name", "lion"),
        ({"optimizer__selective_updates": True}, "optimizer.implementation", "single"),
        ({"optimizer__name": "sgd"}, "optimizer.name", None),
        ({"sharded_checkpointer": "local"}, "checkpoint.checkpointer", "local"),
        ({"sharded_checkpointer": "olmocore"}, "checkpoint.checkpointer", None),
        ({"load_path_sharded_checkpointer": "local"}, "checkpoint.load_checkpointer", "local"),
        ({"save_num_checkpoints_to_keep": 0}, "checkpoint.keep", 0),
        ({"max_duration": 739328}, "batch.steps", 739328),
        ({"max_duration": "20000"}, "batch.steps", 20000),
        ({"max_duration": "2e12T"}, "batch.steps", None),
        ({"max_duration": "1ep"}, "batch.steps", None),
        ({"save_interval": None}, "checkpoint.interval", 0),
        ({"save_interval": None}, "checkpoint.strategy", "no"),
        ({"save_interval": 5, "save_num_checkpoints_to_keep": 0}, "checkpoint.strategy", "no"),
        ({"save_num_checkpoints_to_keep": 0, "save_interval_unsharded": 5}, "checkpoint.strategy", "steps"),
        ({"save_num_checkpoints_to_keep": 0, "save_interval_ephemeral": 5}, "checkpoint.strategy", "steps"),
        ({"no_pre_train_checkpoint": True}, "checkpoint.at_start", False),
        ({"load_path": "/a/step1"}, "checkpoint.at_start", False),
        ({"reset_optimizer_state": True}, "checkpoint.load_optimizer", False),
        ({"remote_save_folder": "s3://x"}, "checkpoint.remote", True),
        ({"remote_save_folder": "${oc.env:X}"}, "checkpoint.remote", True),
        ({"evaluators": [{"label": "a"}]}, "eval.enabled", True),
        ({"evaluators": []}, "eval.enabled", False),
        ({"evaluators": [{"label": "a", "device_eval_batch_size": 99}]}, "batch.eval_micro", 99),
        ({"evaluators": [{"label": "a", "device_eval_batch_size": "9"}, 4]}, "batch.eval_micro", 16),
        (
            {"evaluators": [{"label": "a"}, {"label": "b", "type": "downstream", "device_eval_batch_size": 99}]},
            "batch.eval_micro",
            16,
        ),
        ({"evaluators": [{"label": "piqa", "type": "downstream"}]}, "batch.eval_micro", None),
        ({"wandb": {"log_interval": 20}}, "logging.metrics_interval", 20),
        ({"wandb": {}, "optimizer__metrics_log_interval": 10}, "logging.metrics_interval", 10),
        ({"wandb": {"log_interval": 20}, "optimizer__metrics_log_interval": 10}, "logging.metrics_interval", 20),
        ({"wandb": None}, "logging.metrics_enabled", False),
        ({"gen1_gc_interval": None}, "logging.gc_interval", 0),
        ({"torch_profiling": True}, "logging.profiler", True),
        ({"data__prefetch_factor": None}, "data.prefetch", 2),
        ({"data__num_workers": "four"}, "data.workers", None),
    ],
)
def test_reads(keys, field, expected):
    assert read_value(field, **keys) == expected


def test_the_architecture_is_the_model_section_with_its_defaults():
    shape = dict(read_value("model.architecture", model__weight_tying=False, model__vocab_size="100"))
    assert shape["d_model"] == 64
    assert shape["vocab_size"] == 100
    assert shape["weight_tying"] is False
    assert shape["mlp_ratio"] == 4
    assert shape["n_kv_heads"] is None
    assert read_value("model.architecture", model__n_layers="${oc.env:LAYERS}") is None
    assert read_value("model.architecture", model__n_layers=2.5) is None


def test_old_releases_share_keys_only_when_told():
    assert dict(read_value("model.architecture", "0.2.5"))["multi_query_attention"] is False


def test_origins_point_to_the_setting():
    reading = laws.read_plan(
        parse_config("# c\n" + yaml.safe_dump(build_minimal(device_train_microbatch_size=2), sort_keys=False))
    )
    origin = reading.get_origin("batch.micro")
    assert origin is not None
    assert origin.place is not None
    assert origin.place.document.get_text(origin.place.span) == "device_train_microbatch_size: 2"
    default = reading.get_origin("batch.global_")
    assert default is not None
    assert (default.kind, default.note, default.key) == ("default", "olmo 0.6.0", "global_train_batch_size")


# --- interpolation and overrides -------------------------------------------------------------------------------------


def parse_interpolated() -> Config:
    return parse_config((REPOSITORY / "fixtures" / "olmo" / "interpolated.yaml").read_bytes())


@pytest.mark.parametrize(
    ("field", "expected", "kind"),
    [
        ("batch.micro", 4, "inferred"),
        ("batch.eval_micro", 4, "inferred"),
        ("checkpoint.interval", 200, "inferred"),
        ("logging.metrics_interval", 200, "inferred"),
        ("sequence.length", 2048, "inferred"),
        ("checkpoint.path", "/runs/fern/fern-6198", "inferred"),
        ("checkpoint.load_path", None, "explicit"),
        ("data.workers", None, "explicit"),
        ("data.prefetch", None, "explicit"),
        ("parallel.wrapping", "block", "explicit"),
        ("checkpoint.remote", True, "explicit"),
        ("checkpoint.at_start", False, "default"),
    ],
)
def test_interpolations(field, expected, kind):
    reading = laws.read_plan(parse_interpolated())
    assert reading.get(field) == expected
    assert reading.values[field].origin.kind == kind


def test_overrides_come_before_interpolation():
    parsed = parse_config(
        build_minimal(device_eval_batch_size="${device_train_microbatch_size}"), {("device_train_microbatch_size",): 1}
    )
    reading = laws.read_plan(parsed)
    assert reading.get("batch.micro") == reading.get("batch.eval_micro") == 1
    assert reading.values["batch.micro"].origin.kind == "user"
    with pytest.raises(CannotEdit, match="at launch"):
        laws.write_fields(parsed, {"batch.micro": 2})


def test_an_override_switches_a_section_on_and_off():
    assert (
        laws.read_plan(parse_config(build_minimal(), {("wandb", "log_interval"): 7})).get("logging.metrics_enabled")
        is True
    )
    off = laws.read_plan(parse_config(build_minimal(wandb={"log_interval": 7}), {("wandb",): None}))
    assert off.get("logging.metrics_enabled") is False
    assert off.get("logging.metrics_interval") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--save-overwrite"], {("save_overwrite",): True}),
        (["--save_overwrite=false"], {("save_overwrite",): False}),
        (["--fsdp.sharding-strategy=HYBRID_SHARD"], {("fsdp", "sharding_strategy"): "HYBRID_SHARD"}),
        (["--optimizer.eps=1e-8"], {("optimizer", "eps"): 1e-8}),
        (["--run_name=a-b", "--run_name=c"], {("run_name",): "c"}),
        (["--fsdp={precision: mixed}"], {("fsdp", "precision"): "mixed"}),
        (["--load_path=${path.last_checkpoint:s3://x}"], {("load_path",): "${path.last_checkpoint:s3://x}"}),
        (["--wandb=null"], {("wandb",): None}),
        (["-x=1"], {("x",): 1}),
        ([], {}),
    ],
)
def test_parses_the_words_of_the_launch(words, expected):
    assert olmo_framework.parse_overrides(words) == expected


def test_words_that_are_no_settings():
    for word in ("--=1", "--a=[1"):
        with pytest.raises(ValueError, match=r"."):
            olmo_framework.parse_overrides([word])


# --- plans -----------------------------------------------------------------------------------------------------------


def build_plan(nodes: int = 1, gpus: int = 8, **keys: Any) -> Any:
    return build_job_plan(parse_config(build_minimal(**keys)), nodes=nodes, gpus=gpus)


def test_formats():
    job_plan = build_plan(fsdp={"precision": "mixed"})
    assert job_plan.precision[:7] == ("bf16", True, "fp32", None, "fp32", None, "none")
    assert job_plan.optimizer.state_bits == 32
    assert build_plan(precision="fp32").precision.autocast is False
    assert build_plan(distributed_strategy="ddp").parallel.communication == "fp32"


@pytest.mark.parametrize(
    ("strategy", "replicas", "expected"),
    [
        ("FULL_SHARD", None, (1, 32, True)),
        ("SHARD_GRAD_OP", None, (1, 32, False)),
        ("NO_SHARD", None, (32, 1, False)),
        ("HYBRID_SHARD", None, (4, 8, True)),
        ("HYBRID_SHARD", 2, (2, 16, True)),
        ("_HYBRID_SHARD_ZERO2", 8, (8, 4, False)),
        ("FULL_SHARD", 2, (1, 32, True)),
    ],
)
def test_shard_groups(strategy, replicas, expected):
    parallel = build_plan(
        4, fsdp={"sharding_strategy": strategy, "hybrid_sharding_num_model_replicas": replicas}
    ).parallel
    assert (parallel.replicas, parallel.shard_size, parallel.reshard_after_forward) == expected


def test_the_micro_batch_is_no_larger_than_what_a_rank_gets():
    """Limit the micro batch to one: 512 sequences on 512 ranks leave one for each (allenai/OLMo#788)."""
    batch = build_plan(64, device_train_microbatch_size=2, global_train_batch_size=512).batch
    assert (batch.micro, batch.accumulation, batch.global_) == (1, 1, 512)
    batch = build_plan(1, device_train_microbatch_size=3, global_train_batch_size=64).batch
    assert (batch.micro, batch.accumulation) == (3, 3)
    assert build_plan(64, global_train_batch_size=8).batch.accumulation is None


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("1-olmo-64-nodes/olmo-7b.yaml", 7_298_617_344),
        ("4-olmo-syncs/olmo-7b.yaml", 7_298_617_344),
    ],
)
def test_the_cases_are_the_models_that_they_say(name, parameters):
    from cfglint_train.models.olmo import build_olmo

    resolved = laws.read_plan(parse_config((REPOSITORY / "fixtures" / "cases" / name).read_bytes()))
    architecture = build_olmo(dict(resolved.get("model.architecture")))
    assert architecture is not None
    assert architecture.parameters == parameters
    assert architecture.tensors == 259


def test_case_1():
    resolved = laws.read_plan(parse_config((REPOSITORY / "fixtures/cases/1-olmo-64-nodes/olmo-7b.yaml").read_bytes()))
    expected = {
        "checkpoint.checkpointer": "olmo_core",
        "checkpoint.interval": 50,
        "checkpoint.at_start": False,
        "parallel.wrapping": "block_and_size",
        "parallel.sharding": "full_shard",
        "batch.global_": 512,
    }
    assert {field: resolved.get(field) for field in expected} == expected


# --- writing ---------------------------------------------------------------------------------------------------------

WRITES: tuple[dict[str, Any], ...] = (
    {"batch.micro": 1},
    {"batch.eval_micro": 1},
    {"checkpoint.checkpointer": "torch_legacy"},
    {"checkpoint.checkpointer": "local"},
    {"checkpoint.load_checkpointer": "local"},
    {"parallel.wrapping": "block_and_size"},
    {"parallel.wrapping": "root"},
    {"parallel.sharding": "hybrid_shard"},
    {"parallel.replicas": 4},
    {"activations.checkpointing": "full"},
    {"activations.checkpointing": "none"},
    {"activations.checkpointing": "every_n", "activations.every": 3, "activations.of": 2},
    {"activations.fused_loss": "triton"},
    {"activations.attention": "flash"},
    {"logging.metrics_interval": 10},
    {"logging.cancel_check_interval": 100},
    {"checkpoint.keep": 3},
    {"checkpoint.keep": "all"},
    {"checkpoint.interval": 123},
    {"checkpoint.interval_unsharded": 0},
    {"checkpoint.overwrite": True},
    {"model.init_device": "meta"},
    {"data.workers": 5},
    {"precision.compute": "bf16"},
)
# One key sets all shares of `every_n`; the fields that follow from it are no separate changes.
SINGLE = [changes for changes in WRITES if len(changes) == 1]


@needs_corpus
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_laws_over_the_corpus(path):
    parsed = parse_config(path.read_bytes())
    assert laws.check_get_put(parsed) > 40
    # A few writes per file: together, the files cover them all.
    start = EXAMPLES.index(path)
    for step in range(4):
        laws.check_put_get(parsed, SINGLE[(start * 4 + step) % len(SINGLE)])


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
@pytest.mark.parametrize("shape", ["plain", "crlf", "bom"])
def test_laws_over_fixtures(path, shape):
    source = path.read_bytes()
    source = source.replace(b"\n", b"\r\n") if shape == "crlf" else source
    source = b"\xef\xbb\xbf" + source if shape == "bom" else source
    parsed = parse_config(source)
    laws.check_get_put(parsed)
    for changes in SINGLE:
        laws.check_put_get(parsed, changes)


def test_shares_of_blocks_are_one_word():
    after = laws.write_fields(parse_config(build_minimal()), WRITES[11])
    assert laws.read_plan(after).get("activations.of") == 2
    assert "activation_checkpointing: two_in_three" in after.document.source.decode()


KEYS = (
    *("/".join(route) for route in DEFAULTS if len(route) == 1),
    "fsdp/sharding_strategy", "fsdp/wrapping_strategy", "fsdp/precision", "model/init_device", "model/flash_attention",
    "model/max_sequence_length", "optimizer/name", "optimizer/metrics_log_interval", "data/num_workers", "evaluators",
    "wandb/log_interval", "wandb", "fsdp", "data", "compile",
)  # fmt: skip
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4096),
    st.floats(allow_nan=False),
    st.sampled_from(["x", "", "2", "by_block", "HYBRID_SHARD", "olmo_core", "whole_layer", "adamw", "ddp", "amp_bf16"]),
    st.sampled_from(["${device_train_microbatch_size}", "${save_interval}", "${oc.env:X,4}", "${missing}"]),
    st.sampled_from(["a${run_name}b", "${", "meta"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["precision", "log_interval", "num_workers", "label"]), st.integers(), max_size=2),
)  # fmt: skip


@st.composite
def draw_odd_file(draw: st.DrawFn) -> str:
    content = build_minimal()
    for name in draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=True)):
        *sections, key = name.split("/")
        target: Any = content
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                break
        else:
            target[key] = draw(ODD)
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=draw(st.sampled_from([None, False])))


@settings(max_examples=150, deadline=None)
@given(draw_odd_file(), st.sampled_from(SINGLE), st.sampled_from(["0.2.5", "0.4.0", "0.6.0"]))
def test_laws_over_odd_files(text, changes, release):
    parsed = parse_config(text, olmo=release)
    laws.check_get_put(parsed)
    laws.check_put_get(parsed, changes)


def test_a_new_value_replaces_the_interpolation():
    text = "device_train_microbatch_size: 4\ndevice_eval_batch_size: ${device_train_microbatch_size}  # follows\n"
    text = yaml.safe_dump(build_minimal(), sort_keys=False) + text
    after = laws.write_fields(parse_config(text), {"batch.eval_micro": 2}).document.source.decode()
    assert after == text.replace("${device_train_microbatch_size}", "2")
    assert laws.write_fields(parse_config(text), {"batch.eval_micro": 4}).document.source.decode() == text


def test_the_old_checkpointer_still_reads_its_checkpoint():
    def change_checkpointer(**keys: Any) -> str:
        parsed = parse_config(build_minimal(sharded_checkpointer="olmo_core", **keys))
        return laws.write_fields(parsed, {"checkpoint.checkpointer": "torch_legacy"}).document.source.decode()

    assert "load_path_sharded_checkpointer: olmo_core" in change_checkpointer(load_path="/runs/a/step100")
    assert "load_path_sharded_checkpointer: olmo_core" in change_checkpointer(
        load_path="${path.last_checkpoint:/runs/a}"
    )
    for keys in ({}, {"load_path": None}, {"load_path": "/runs/a/step100-unsharded/"}):
        assert "load_path_sharded_checkpointer" not in change_checkpointer(**keys)
    source = change_checkpointer(load_path="/runs/a/step100", load_path_sharded_checkpointer="local")
    assert "load_path_sharded_checkpointer: local" in source


def test_writes_where_people_would_look():
    text = (REPOSITORY / "fixtures/cases/1-olmo-64-nodes/olmo-7b.yaml").read_text()
    after = laws.write_fields(
        parse_config(text),
        {
            "checkpoint.checkpointer": "torch_legacy",
            "activations.checkpointing": "full",
            "parallel.sharding": "hybrid_shard",
            "batch.micro": 1,
        },
    ).document.source.decode()
    changed = [line for line in after.splitlines() if line not in text.splitlines()]
    assert changed == [
        "activation_checkpointing: whole_layer",
        "sharded_checkpointer: torch_legacy",
        "load_path_sharded_checkpointer: olmo_core",
        "device_train_microbatch_size: 1",
        "  sharding_strategy: HYBRID_SHARD",
    ]
    lines = after.splitlines()
    assert (
        lines.index("load_path_sharded_checkpointer: olmo_core")
        == lines.index("load_path: /scratch/garden-7B/step928646") + 1
    )


@for_each(
    ("keys", "changes", "reason"),
    [
        ({}, {"sequence.length": 256}, "change both together"),
        ({}, {"method.tuning": "lora"}, "cannot be written"),
        ({"distributed_strategy": "ddp"}, {"parallel.wrapping": "block"}, "has no effect in this run"),
        ({"wandb": {"log_interval": 50}}, {"logging.metrics_interval": 10}, "log_interval is larger"),
        ({"wandb": {}}, {"logging.metrics_enabled": False}, "own section"),
        ({"evaluators": [{"label": "a", "device_eval_batch_size": 8}]}, {"batch.eval_micro": 2}, "its own"),
        ({"model__alibi": True}, {"activations.attention": "flash"}, "bias"),
        ({}, {"activations.attention": "eager"}, "no attention"),
        ({}, {"activations.fused_loss": "liger"}, "no value for"),
        ({}, {"checkpoint.checkpointer": "dcp"}, "no value for"),
        ({}, {"precision.compute": "fp8"}, "no value for"),
        ({}, {"activations.checkpointing": "budget"}, "no checkpointing strategy for that share"),
    ],
)
def test_refusals_say_why(keys, changes, reason):
    with pytest.raises(CannotEdit, match=reason):
        laws.write_fields(parse_config(build_minimal(**keys)), changes)


def test_every_key_is_documented():
    text = (REPOSITORY / "docs" / "frameworks" / "olmo.md").read_text()
    for lens in olmo.LENSES:
        for route in laws.list_routes(lens):
            assert route[0] == "model" or f"`{'.'.join(map(str, route))}`" in text, route


# --- OLMo itself -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def train_config():
    """Return OLMo's own dataclass; requires ai2-olmo 0.6.0 with a CPU build of torch."""
    return pytest.importorskip("olmo.config", reason="ai2-olmo is not installed").TrainConfig


@pytest.mark.oracle
def test_the_defaults_are_olmos(train_config):
    import enum

    omegaconf = pytest.importorskip("omegaconf").OmegaConf
    structured = omegaconf.to_container(omegaconf.structured(train_config))
    for route, ours in DEFAULTS.items():
        theirs: Any = structured
        for step in route:
            theirs = theirs[step]
        theirs = theirs.name if isinstance(theirs, enum.Enum) else theirs
        assert (ours.get_at("0.6.0") if isinstance(ours, ValueByRelease) else ours) == theirs, route


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_olmo_reads_the_same(train_config, path, monkeypatch):
    """Compare every known setting of a file with OLMo's own loader, including interpolations and defaults."""
    if path.name == "custom_dataset_example.yaml":
        skip_inapplicable("it uses a key (data.custom_dataset) that no release has yet")
    monkeypatch.setenv("CHECKPOINTS_PATH", "/checkpoints")
    loaded = train_config.load(str(path), validate_paths=False)
    parsed = parse_config(path.read_bytes())
    checked = 0
    for route, default in DEFAULTS.items():
        setting = olmo.find(parsed, route)
        theirs: Any = loaded
        for step in route:
            theirs = getattr(theirs, step, None)
        if setting is olmo.NOT_STATED:
            ours = default.get_at("0.6.0") if isinstance(default, ValueByRelease) else default
        elif isinstance(setting, olmo.StatedValue):
            ours = setting.value
        else:
            continue
        if route == ("activation_checkpointing",) and isinstance(ours, bool):
            continue
        theirs = getattr(theirs, "name", theirs) if not isinstance(theirs, (str, int, float)) else theirs
        if isinstance(ours, (dict, list)) or hasattr(theirs, "__dataclass_fields__"):
            continue
        assert ours == theirs or str(ours) == str(theirs), (route, ours, theirs)
        checked += 1
    assert checked > 100


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("changes", WRITES, ids=str)
def test_olmo_accepts_what_is_written(train_config, changes, tmp_path, monkeypatch):
    """Load a file with OLMo after a fix and find the intended value (law 5)."""
    monkeypatch.setenv("CHECKPOINTS_PATH", "/checkpoints")
    for path in [CORPUS / "olmo/configs/official-1124/OLMo2-7B-stage1.yaml", *CASES, FIXTURES[-1]]:
        parsed = parse_config(path.read_bytes())
        try:
            after = laws.write_fields(parsed, changes)
        except CannotEdit:
            continue
        file = tmp_path / "x.yaml"
        file.write_bytes(after.document.source)
        train_config.load(str(file), validate_paths=False)
