"""OpenRLHF: flags as argparse reads them, by release, and the plans they produce."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfglint_schemas.status import Context
from cfglint_train.documents.document import MISSING, CannotEdit, Unknown, apply_edits
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.openrlhf import flags, names
from cfglint_train.frameworks.openrlhf.framework import FRAMEWORK
from cfglint_train.frameworks.openrlhf.recognise import recognise
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.origin import Origin
from tests.support import laws
from tests.support.corpus import CORPUS, REPOSITORY, SHARED, needs_corpus
from tests.support.jobs import build_job
from tests.support.linting import list_runs

FIXTURES = REPOSITORY / "fixtures" / "openrlhf"
CASE = REPOSITORY / "fixtures" / "cases" / "3-openrlhf-16b" / "train_ppo.sh"
NEWEST_FLAT = "0.10.1.post2"


def parse_config(source: str | bytes, number: int = 0, **stated: str) -> Config:
    """Return the configuration of one OpenRLHF invocation in a script."""
    document = laws.parse_document(source, "shell")
    trainings = [recognised for recognised in recognise(document) if recognised.role != "other"]
    return Config("openrlhf", document, laws.build_releases("openrlhf", **stated), trainings[number].root)


def parse_fixture(path: str, number: int = 0, **stated: str) -> Config:
    return parse_config((FIXTURES / f"{path}.sh").read_bytes(), number, **stated)


def parse_sft(arguments: str, entry: str = "train_sft", **stated: str) -> Config:
    return parse_config(f"python3 -m openrlhf.cli.{entry} {arguments}\n", **stated)


def parse_ppo(arguments: str, **stated: str) -> Config:
    return parse_sft(arguments, "train_ppo_ray", **stated)


def build_plan(config: Config, nodes: int | None = None, gpus: int | None = None) -> Plan:
    return build_job(config, nodes=nodes, gpus=gpus).plan.build_plan()


def read_value(config: Config, field: str) -> Any:
    return laws.read_plan(config).get(field)


# --- recognising -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "programs"),
    [
        ("direct", ["openrlhf.cli.train_dpo"]),
        ("heredoc", ["openrlhf.cli.train_sft"]),
        ("slurm", ["openrlhf.cli.train_ppo_ray"]),
        ("shared_heredoc", ["openrlhf.cli.train_rm"]),
        ("control", ["openrlhf.cli.train_dpo", "openrlhf.cli.train_rm"]),
        ("quoted_heredoc", ["openrlhf.cli.train_sft", "openrlhf.cli.train_dpo", "openrlhf.cli.train_rm"]),
        ("launchers", []),
        ("not_a_run", ["openrlhf.cli.lora_combiner", "openrlhf.cli.serve_rm"]),
        ("uv", ["openrlhf.cli.train_sft"]),
    ],
)
def test_invocations_are_found(path, programs):
    document = laws.parse_document((FIXTURES / f"{path}.sh").read_bytes(), "shell")
    recognised = recognise(document)
    assert [document.find_node(config.root).program for config in recognised] == programs
    trains = [config.role for config in recognised]
    assert trains == ["other" if name.endswith(("lora_combiner", "serve_rm")) else None for name in programs]


@pytest.mark.parametrize(
    ("command", "entry"),
    [
        ("deepspeed ../train_sft.py --pretrain a --dataset b --max_len 1 --zero_stage 2 --bf16", "train_sft"),
        ("python openrlhf/cli/train_rm.py --pretrain a", "train_rm"),
        ("python -m lmm_r1.cli.train_ppo_ray --pretrain a --zero_stage 3 --bf16 --init_kl_coef 0 --save_path x --own 1",
         "train_ppo_ray"),
        ("torchrun train_sft.py --model_name_or_path a --dataset b --learning_rate 1 --output_dir c", None),
        ("python -m openrlhf.cli.train_everything --pretrain a", None),
        ("echo python -m openrlhf.cli.train_sft --pretrain a", None),
        ("python -m mine.train_dpo --pretrain a --lr 1 --b 2 --c 3 --d 4 --e 5 --f 6", None),
    ],
)  # fmt: skip
def test_forks_and_old_script_files_are_told_by_their_flags(command, entry):
    document = laws.parse_document(command, "shell")
    assert [flags.find_entry(document.find_node(config.root).program) for config in recognise(document)] == [
        entry
    ] * bool(entry)


def test_dead_entry_points_are_named():
    assert flags.find_release_range(parse_sft("--pretrain a", "train_ppo")) == ("0.3.0", "0.6.1.post1")
    assert flags.find_release_range(parse_sft("--pretrain a", "train_kto")) == ("0.3.0", "0.9.5")
    assert read_value(parse_sft("--pretrain a", "train_kd"), "method.stage") == "kd"


@needs_corpus
def test_nothing_else_is_taken_for_openrlhf():
    for path in CORPUS.rglob("*"):
        if path.is_file() and path.suffix in (".sh", ".bash"):
            document = laws.parse_document(path.read_bytes(), "shell", str(path))
            assert recognise(document) == [], path
    document = laws.parse_document("base_model: x\nopenrlhf: 1\n", "yaml")
    assert recognise(document) == []


# --- flags, as argparse reads them -----------------------------------------------------------------------------------


def build_parser(entry: str, release: str) -> argparse.ArgumentParser:
    """Return the parser of an entry point at a release, built from the vocabulary."""
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    vocabulary = flags.load_vocabulary()
    for fact in vocabulary.list_facts(entry, release, Context(entry=entry)):
        spans = [span for span in fact.spans if vocabulary.is_within(span, "openrlhf", release)]
        if not spans:
            continue
        schema = fact.get_schema(release)
        if schema.get("type") == "boolean":
            parser.add_argument(fact.name, action="store_true")
        elif schema.get("type") == "array":
            parser.add_argument(fact.name, nargs="*")
        else:
            parser.add_argument(fact.name)
    return parser


ENTRIES = st.sampled_from(["train_sft", "train_rm", "train_dpo", "train_ppo_ray"])
RELEASES = st.sampled_from(["0.3.8", "0.5.7", "0.8.9", NEWEST_FLAT, "0.10.2", "0.11.2"])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(entry=ENTRIES, release=RELEASES, data=st.data())
def test_argparse_and_the_lenses_read_alike(entry, release, data):
    parser = build_parser(entry, release)
    actions = {action.option_strings[0]: action for action in parser._actions}
    words: list[str] = []
    for name in data.draw(st.lists(st.sampled_from(sorted(actions)), min_size=1, max_size=8)):
        cut = data.draw(st.integers(3, len(name)))
        spelled = data.draw(st.sampled_from([name, name[:cut]]))
        takes = actions.get(spelled, actions[name]).nargs != 0  # a prefix may be the full name of another flag
        style = data.draw(st.sampled_from(["words", "equals"]))
        if not takes:
            words.append(spelled)
        elif style == "equals":
            words.append(f"{spelled}={data.draw(st.integers(0, 99))}")
        else:
            words += [spelled, str(data.draw(st.integers(-9, 99)))]
    command = parse_sft(" ".join(words), entry, openrlhf=release)
    try:
        parsed = vars(parser.parse_args(words))
    except (argparse.ArgumentError, SystemExit):
        parsed = None
    inferred_release = flags.read_usage(command).release if flags.read_usage(command).release_mask else None
    accepted = bool(flags.read_usage(command).release_mask >> flags.load_vocabulary().releases.index(release) & 1)
    accepted = accepted and not flags.read_usage(command).unknown_flags
    assert accepted == (parsed is not None), words
    if parsed is None:
        return
    assert inferred_release == release
    values = {
        name: flags.get_value(command, (name,)) for name in actions if flags.get_value(command, (name,)) is not MISSING
    }
    expected = {
        action.option_strings[0]: parsed[action.dest]
        for action in parser._actions
        if parsed[action.dest] not in (None, False)
    }
    listed = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in expected.items()
    }
    assert values == listed


def test_no_name_is_a_prefix_in_another_release():
    vocabulary = flags.load_vocabulary()
    for entry in flags.ENTRIES:
        facts = list(vocabulary.list_facts(entry, flags.NEWEST))
        masks = {fact.name: flags.compute_release_mask(entry, fact.name) for fact in facts}
        for name, mask in masks.items():
            longer = [other for other in masks if other != name and other.startswith(name)]
            assert not [other for other in longer if masks[other] & ~mask & flags.compute_entry_mask(entry)], (
                entry,
                name,
            )


@pytest.mark.parametrize(
    ("arguments", "window", "unknown"),
    [
        ("--pretrain a --bf16 --flash_attn", ("0.3.0", "0.8.9.post1"), ()),
        ("--pretrain a --param_dtype bf16", ("0.9.2", NEWEST_FLAT), ()),
        ("--pretrain a --lora_ran 4", ("0.3.0", NEWEST_FLAT), ()),
        ("--ds.zero_stage 3", ("0.10.2", "0.11.2"), ()),
        ("--ds.zero_stage 3 --pretrain a", None, ()),
        ("--pretrain a --my_flag 3 --pretrian b", ("0.3.0", NEWEST_FLAT), ("--my_flag", "--pretrian")),
        ("", ("0.3.0", "0.11.2"), ()),
        ("--max_norm 1", ("0.3.0", "0.11.2"), ()),
    ],
)
def test_the_window_of_releases(arguments, window, unknown):
    parsed = parse_sft(arguments)
    assert flags.find_release_range(parsed) == window
    assert flags.read_usage(parsed).unknown_flags == unknown


def test_the_stated_release_counts_where_it_accepts_the_flags():
    assert flags.read_usage(parse_sft("--pretrain a")).release == NEWEST_FLAT
    assert flags.read_usage(parse_sft("--pretrain a", openrlhf="0.5.4")).release == "0.5.4"
    assert flags.read_usage(parse_sft("--pretrain a", openrlhf="0.11.2")).release == NEWEST_FLAT
    assert flags.read_usage(parse_sft("--ds.zero_stage 3 --pretrain a", openrlhf="0.9.0")).release == "0.9.0"


def test_every_name_in_the_lenses_is_a_flag():
    vocabulary = flags.load_vocabulary()
    flag_names = {fact.name for entry in flags.ENTRIES for fact in vocabulary.list_facts(entry, flags.NEWEST)}
    for lens in FRAMEWORK.lenses:
        for (name,) in laws.list_routes(lens):
            assert name in flag_names, name
    for group in vars(names).values():
        if isinstance(group, tuple) and all(isinstance(item, str) and item.startswith("--") for item in group):
            assert set(group) <= flag_names


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="no shared data: no shared facts")
def test_flat_and_dotted_names_belong_together():
    renames = json.loads((SHARED / "data" / "openrlhf_rename_map.json").read_text())
    pairs = {(old, new) for entry in renames.values() for old, heirs in entry.items() for new in heirs}
    for lens in FRAMEWORK.lenses:
        group = {name for (name,) in laws.list_routes(lens)}
        for old, new in pairs:
            siblings = {other for before, other in pairs if before == old} | {old}
            assert new not in group or group & (siblings - {new}) or old in group, (new, old)
            assert old not in group or group & siblings - {old}, old


def test_every_flag_of_the_lenses_is_documented():
    text = (REPOSITORY / "docs" / "frameworks" / "openrlhf.md").read_text()
    for lens in FRAMEWORK.lenses:
        for (name,) in laws.list_routes(lens):
            assert f"`{name}`" in text, name


# --- defaults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "field", "by_release"),
    [
        ("train_ppo_ray", "batch.micro", {"0.9.0": 4, "0.10.0": 1, "0.11.2": 1}),
        ("train_ppo_ray", "rollout.micro", {"0.9.0": 8, "0.10.0": 1}),
        ("train_ppo_ray", "rollout.batch", {"0.3.5": 512, "0.3.6": 1024}),
        ("train_ppo_ray", "rollout.kl_coefficient", {"0.11.2": 0.01}),
        ("train_ppo_ray", "launch.gpus_per_node", {"0.3.0": 8, "0.11.2": 8}),
        ("train_ppo_ray", "checkpoint.keep", {"0.11.2": 3}),
        ("train_ppo_ray", "rollout.advantage", {"0.3.0": "gae", "0.11.2": "gae"}),
        ("train_sft", "batch.micro", {"0.3.0": 8, "0.11.2": 8}),
        ("train_sft", "batch.global_", {"0.11.2": 128}),
        ("train_sft", "sequence.length", {"0.11.2": 2048}),
        ("train_rm", "sequence.length", {"0.11.2": 512}),
        ("train_sft", "parallel.zero_stage", {"0.3.0": 2, "0.11.2": 2}),
        ("train_sft", "precision.compute", {"0.9.1": None, "0.9.2": "bf16", "0.11.2": "bf16"}),
        ("train_sft", "precision.accumulation", {"0.5.3": "fp32", "0.5.4": None}),
        ("train_sft", "activations.attention", {"0.8.9": "eager", "0.8.10": "flash"}),
        ("train_sft", "activations.checkpointing", {"0.3.0": "none", "0.11.2": "none"}),
        ("train_sft", "checkpoint.strategy", {"0.11.2": "no"}),
        ("train_sft", "checkpoint.path", {"0.11.2": "./ckpt/checkpoints_sft"}),
        ("train_sft", "parallel.reduce_bucket", {"0.11.2": 500_000_000}),
        ("train_sft", "parallel.context", {"0.5.3": 1, "0.11.2": 1}),
        ("train_sft", "optimizer.name", {"0.10.1": "adamw", "0.11.2": "adamw"}),
        ("train_sft", "data.workers", {"0.9.9": 0, "0.11.2": 0}),
        ("train_dpo", "eval.enabled", {"0.6.4": True, "0.11.2": False}),
        ("train_sft", "model.trust_remote_code", {"0.11.2": True}),
    ],
)  # fmt: skip
def test_defaults_by_release(entry, field, by_release):
    for release, expected in by_release.items():
        parsed = parse_sft("", entry, openrlhf=release)
        reading = laws.read_plan(parsed)
        assert reading.get(field) == expected, release
        if expected is not None:
            assert reading.get_origin(field).kind == "default"
            assert reading.get_origin(field).note.startswith(f"openrlhf {release}")


def test_hidden_flags_leave_defaults_unknown():
    assert flags.read_usage(parse_sft("--zero_stage 3 --max_len $LEN")).has_hidden_flags is False
    assert flags.read_usage(parse_sft("--zero_stage 3 --max_len $LEN $EXTRA")).has_hidden_flags
    parsed = parse_sft("$EXTRA --zero_stage 3")
    assert flags.read_usage(parsed).has_hidden_flags
    reading = laws.read_plan(parsed)
    assert reading.get("parallel.zero_stage") == 3
    for field in ("batch.micro", "activations.checkpointing", "parallel.offload_optimizer", "method.tuning"):
        assert reading.get(field) is None, field
    assert flags.read_usage(parse_sft("--zero_stage 3 --bf16 $EXTRA")).has_hidden_flags


def test_the_scripts_own_arguments_are_taken_to_be_none():
    assert read_value(parse_sft('--zero_stage 3 "$@"'), "activations.checkpointing") == "none"


# --- lenses, read and written ----------------------------------------------------------------------------------------

# Field, dotted flags, flat flags, value read, another value, and how that is written in either style.
ROUND_TRIPS = [
    ("batch.micro", "--train.micro_batch_size 4", "--micro_train_batch_size 4", 4, 1),
    ("batch.global_", "--train.batch_size 64", "--train_batch_size 64", 64, 32),
    ("sequence.length", "--data.max_len 4096", "--max_len 4096", 4096, 2048),
    ("sequence.packing", "--ds.packing_samples", "--packing_samples", True, False),
    ("activations.checkpointing", "--model.gradient_checkpointing_enable", "--gradient_checkpointing", "full", "none"),
    ("activations.reentrant", "--model.gradient_checkpointing_reentrant", "--gradient_checkpointing_use_reentrant",
     True, False),
    ("activations.attention", "--ds.attn_implementation sdpa", "--attn_implementation sdpa", "sdpa", "flash"),
    ("activations.liger_layers", "--ds.use_liger_kernel", "--use_liger_kernel", True, False),
    ("activations.compile", "--ds.deepcompile", "--deepcompile", True, False),
    ("parallel.zero_stage", "--ds.zero_stage 3", "--zero_stage 3", 3, 1),
    ("parallel.offload_optimizer", "--ds.adam_offload", "--adam_offload", "cpu", "none"),
    ("parallel.secondary_partition", "--ds.zpg 8", "--zpg 8", 8, 1),
    ("parallel.tensor", "--ds.tensor_parallel_size 2", "--ds_tensor_parallel_size 2", 2, 4),
    ("parallel.context", "--ds.ring_attn_size 2", "--ring_attn_size 2", 2, 4),
    ("parallel.overlap_comm", "--ds.overlap_comm", "--overlap_comm", True, None),
    ("precision.compute", "--ds.param_dtype fp16", "--param_dtype fp16", "fp16", "bf16"),
    ("precision.accumulation", "--ds.grad_accum_dtype fp32", "--grad_accum_dtype fp32", "fp32", "bf16"),
    ("optimizer.clipping", "--max_norm 0.5", "--max_norm 0.5", 0.5, 1.0),
    ("checkpoint.interval", "--ckpt.save_steps 20", "--save_steps 20", 20, 100),
    ("checkpoint.keep", "--ckpt.max_num 5", "--max_ckpt_num 5", 5, 2),
    ("checkpoint.path", "--ckpt.path /a/b", "--ckpt_path /a/b", "/a/b", "/c"),
    ("checkpoint.final_path", "--ckpt.output_dir /f", "--save_path /f", "/f", "/g"),
    ("checkpoint.hf_export", "--ckpt.save_hf", "--save_hf_ckpt", True, False),
    ("checkpoint.deepspeed_checkpoint", "--ckpt.disable_ds", "--disable_ds_ckpt", False, True),
    ("checkpoint.resume_latest", "--ckpt.load_enable", "--load_checkpoint", True, False),
    ("logging.interval", "--logger.logging_steps 5", "--logging_steps 5", 5, 10),
    ("data.workers", "--data.dataloader_num_workers 4", "--dataloader_num_workers 4", 4, 2),
    ("method.lora_rank", "--ds.lora.rank 16", "--lora_rank 16", 16, 8),
    ("method.lora_alpha", "--ds.lora.rank 16 --ds.lora.alpha 32", "--lora_rank 16 --lora_alpha 32", 32.0, 16.0),
    ("method.lora_dropout", "--ds.lora.rank 1 --ds.lora.dropout 0.1", "--lora_rank 1 --lora_dropout 0.1", 0.1, 0.5),
    ("model.id", "--model.model_name_or_path a/b", "--pretrain a/b", "a/b", "c/d"),
]  # fmt: skip
PPO_ROUND_TRIPS = [
    ("activations.checkpointing", "--actor.gradient_checkpointing_enable", "--gradient_checkpointing", "full", "none"),
    ("model.id", "--actor.model_name_or_path a/b", "--pretrain a/b", "a/b", "c/d"),
    ("optimizer.clipping", "--actor.max_norm 0.5", "--max_norm 0.5", 0.5, 1.0),
    ("model.frozen_vision", "--actor.freeze_visual_encoder", "--freeze_visual_encoder", True, False),
    ("batch.tokens_per_gpu", "--train.dynamic_batch_enable --train.max_tokens_per_gpu 8192",
     "--use_dynamic_batch --train_max_tokens_per_gpu 8192", 8192, 4096),
    ("rollout.tokens_per_gpu", "--train.dynamic_batch_enable --rollout.max_tokens_per_gpu 8192",
     "--use_dynamic_batch --rollout_max_tokens_per_gpu 8192", 8192, 4096),
    ("rollout.engines", "--vllm.num_engines 4", "--vllm_num_engines 4", 4, 2),
    ("rollout.tensor", "--vllm.num_engines 4 --vllm.tensor_parallel_size 2",
     "--vllm_num_engines 4 --vllm_tensor_parallel_size 2", 2, 1),
    ("rollout.utilization", "--vllm.num_engines 4 --vllm.gpu_memory_utilization 0.5",
     "--vllm_num_engines 4 --vllm_gpu_memory_utilization 0.5", 0.5, 0.4),
    ("rollout.sleep", "--vllm.enable_sleep", "--vllm_enable_sleep", True, False),
    ("rollout.train_sleep", "--ds.enable_sleep", "--deepspeed_enable_sleep", True, False),
    ("rollout.batch", "--rollout.batch_size 512", "--rollout_batch_size 512", 512, 256),
    ("rollout.micro", "--rollout.micro_batch_size 4", "--micro_rollout_batch_size 4", 4, 1),
    ("rollout.samples_per_prompt", "--rollout.n_samples_per_prompt 8", "--n_samples_per_prompt 8", 8, 4),
    ("rollout.asynchronous", "--train.async_enable", "--async_train", True, False),
    ("rollout.colocate_all", "--train.colocate_all", "--colocate_all_models", True, False),
    ("rollout.enforce_eager", "--vllm.enforce_eager", "--enforce_eager", True, False),
    ("rollout.kl_coefficient", "--algo.kl.init_coef 0.001", "--init_kl_coef 0.001", 0.001, 0.1),
]  # fmt: skip
BASES = {
    "dotted": "--logger.wandb.project x --train.seed 1",
    "flat": "--wandb_project x --seed 1",
}


@pytest.mark.parametrize(
    ("entry", "row"),
    [("train_sft", row) for row in ROUND_TRIPS] + [("train_ppo_ray", row) for row in PPO_ROUND_TRIPS],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
@pytest.mark.parametrize("words", BASES)
def test_each_setting_both_ways(entry, row, words):
    field, dotted, flat, meaning, other = row
    spelled = dotted if words == "dotted" else flat
    parsed = parse_sft(f"{BASES[words]} {spelled}", entry)
    reading = laws.read_plan(parsed)
    assert reading.get(field) == meaning
    assert reading.get_origin(field).kind == "explicit"
    place = reading.get_origin(field).place
    assert spelled.split()[-1] in place.document.get_text(place.span)
    absent = parse_sft(BASES[words], entry)
    if laws.read_plan(absent).get(field) != meaning and not spelled.count(" --"):
        after = laws.check_put_get(absent, {field: meaning})
        if after is not None:
            assert spelled.encode() in after.document.source
    after = laws.check_put_get(parsed, {field: other}) if other is not None else parsed
    assert after is not None
    laws.check_get_put(parsed)
    if isinstance(other, bool) or other == "none":
        assert spelled.encode() not in after.document.source


def test_old_releases_have_words_of_their_own():
    parsed = parse_sft("--pretrain a --bf16 --flash_attn")
    assert (read_value(parsed, "precision.compute"), read_value(parsed, "activations.attention")) == ("bf16", "flash")
    plain = parse_sft("--pretrain a --seed 1", openrlhf="0.8.0")
    assert (read_value(plain, "precision.compute"), read_value(plain, "activations.attention")) == (None, "eager")
    after = laws.check_put_get(plain, {"activations.attention": "flash"})
    assert b"--flash_attn" in after.document.source
    after = laws.check_put_get(plain, {"precision.compute": "bf16"})
    assert b"--bf16" in after.document.source
    assert laws.check_put_get(parsed, {"activations.attention": "sdpa"}) is None
    # Without --flash_attn, nothing else determines the release, and the flags of the script would change their meaning.
    with pytest.raises(CannotEdit, match="release"):
        laws.write_fields(parse_sft("--pretrain a --flash_attn"), {"activations.attention": "eager"})


def test_lengths_of_old_ppo_runs_are_a_sum():
    parsed = parse_ppo("--prompt_max_len 1024 --generate_max_len 512")
    assert (read_value(parsed, "sequence.length"), read_value(parsed, "rollout.new_tokens")) == (1536, 512)
    assert read_value(parse_ppo("--prompt_max_len 1024 --max_len 4096"), "sequence.length") == 4096
    with pytest.raises(CannotEdit, match="prompt_max_len"):
        laws.write_fields(parsed, {"sequence.length": 1024})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("--micro_train_batch_size four", "batch.micro"),
        ("--micro_train_batch_size 4 8", "batch.micro"),
        ("--micro_train_batch_size", "batch.micro"),
        ("--micro_train_batch_size $BATCH", "batch.micro"),
        ("--gradient_checkpointing true", "activations.checkpointing"),
        ("--param_dtype fp8", "precision.compute"),
        ("--save_steps often", "checkpoint.strategy"),
        ("--max_len 4.5", "sequence.length"),
        ("--lora_rank 8 --target_modules $TARGETS", "method.lora_targets"),
    ],
)
def test_what_argparse_refuses_stays_unknown(arguments, field):
    parsed = parse_sft(f"--pretrain a {arguments}")
    reading = laws.read_plan(parsed)
    assert reading.get(field) is None
    build_job(parsed)


def test_refusals_say_why():
    with pytest.raises(CannotEdit, match=r"depends on \$B"):
        laws.write_fields(parse_sft("--pretrain a --train_batch_size $B"), {"batch.global_": 8})
    with pytest.raises(CannotEdit, match=r"no --data\.dataloader_num_workers"):
        laws.write_fields(parse_sft("--pretrain a --bf16"), {"data.workers": 2})
    for field, bad in (("batch.micro", None), ("batch.micro", "many"), ("parallel.offload_optimizer", "nvme"),
                       ("checkpoint.interval", 0), ("precision.compute", "fp8"), ("method.lora_rank", 8),
                       ("parallel.reduce_bucket", 1), ("parallel.strategy", "fsdp2"), ("launch.nodes", 4),
                       ("batch.tokens_per_gpu", 8)):  # fmt: skip
        with pytest.raises(CannotEdit):
            laws.write_fields(parse_sft("--pretrain a --seed 1"), {field: bad})


def test_overrides_are_laid_over_the_flags():
    parsed = parse_sft("--ds.zero_stage 2")
    origin = Origin("user", note="--set")
    for route in (("ds", "zero_stage"), ("ds.zero_stage",), ("--ds.zero_stage",)):
        overridden = Config(
            parsed.framework, parsed.document, parsed.releases, parsed.root, overrides={route: Override(3, origin)}
        )
        assert read_value(overridden, "parallel.zero_stage") == 3
        with pytest.raises(CannotEdit, match="launch"):
            laws.write_fields(overridden, {"parallel.zero_stage": 1})


# --- the laws over scripts -------------------------------------------------------------------------------------------

SCRIPTS = [*sorted(FIXTURES.glob("*.sh")), CASE]
CHANGES = {
    "batch.micro": st.sampled_from([1, 2, 16]),
    "batch.global_": st.sampled_from([8, 512]),
    "activations.checkpointing": st.sampled_from(["full", "none"]),
    "activations.attention": st.sampled_from(["flash", "sdpa", "eager"]),
    "parallel.offload_optimizer": st.sampled_from(["cpu", "none"]),
    "parallel.zero_stage": st.sampled_from([1, 2, 3]),
    "precision.compute": st.sampled_from(["bf16", "fp16"]),
    "sequence.packing": st.booleans(),
    "sequence.length": st.sampled_from([512, 8192]),
    "checkpoint.keep": st.sampled_from([1, 9]),
    "checkpoint.path": st.sampled_from(["/abs/ckpt"]),
    "checkpoint.hf_export": st.booleans(),
    "rollout.sleep": st.booleans(),
    "rollout.train_sleep": st.booleans(),
    "rollout.utilization": st.sampled_from([0.3, 0.85]),
    "rollout.colocate_all": st.booleans(),
    "batch.tokens_per_gpu": st.sampled_from([4096]),
}  # fmt: skip


def parse_configs(path) -> list[Config]:
    document = laws.parse_document(path.read_bytes(), "shell", str(path))
    releases = laws.build_releases("openrlhf")
    return [
        Config("openrlhf", document, releases, recognised.root)
        for recognised in recognise(document)
        if recognised.role != "other"
    ]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_laws_hold_on_every_script(path):
    for parsed in parse_configs(path):
        assert laws.check_get_put(parsed) > 20
        build_job(parsed)
        for field, values in CHANGES.items():
            for element in values.elements if hasattr(values, "elements") else (True, False):
                laws.check_put_get(parsed, {field: element})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from([path for path in SCRIPTS if path.stem not in ("launchers", "not_a_run")]),
    changes=st.fixed_dictionaries({}, optional=CHANGES),
)
def test_several_changes_at_once(path, changes):
    for parsed in parse_configs(path):
        possible = {}
        for field, new in changes.items():
            try:
                laws.write_fields(parsed, {field: new})
            except CannotEdit:
                continue
            possible[field] = new
        laws.check_put_get(parsed, possible)


# --- what follows ----------------------------------------------------------------------------------------------------


def test_accumulation_follows_the_batch():
    parsed = parse_sft("--train.batch_size 128 --train.micro_batch_size 2")
    assert build_plan(parsed, 1, 8).batch.accumulation == 8
    assert (
        build_plan(
            parse_sft("--train.batch_size 128 --train.micro_batch_size 2 --ds.ring_attn_size 4"), 1, 8
        ).batch.accumulation
        == 32
    )
    assert build_plan(parse_sft("--train.batch_size 4 --train.micro_batch_size 2"), 1, 8).batch.accumulation == 1
    assert build_plan(parse_ppo("--train.dynamic_batch_enable")).batch.accumulation is None


def test_its_deepspeed_engine():
    job_plan = build_plan(parse_sft("--ds.zero_stage 3 --ds.adam_offload"), 1, 8)
    assert (job_plan.parallel.strategy, job_plan.parallel.zero_stage) == ("zero", 3)
    assert (job_plan.parallel.reduce_bucket, job_plan.parallel.prefetch_bucket) == (500_000_000, 50_000_000)
    assert (job_plan.parallel.persistence_threshold, job_plan.parallel.sub_group) == (100_000, 1_000_000_000)
    assert (job_plan.parallel.overlap_comm, job_plan.parallel.offload_optimizer, job_plan.parallel.pin_memory) == (
        True,
        "cpu",
        True,
    )
    assert (job_plan.precision.params, job_plan.precision.grads, job_plan.precision.master) == ("bf16", "bf16", "fp32")
    assert (job_plan.optimizer.name, job_plan.optimizer.implementation, job_plan.optimizer.state_bits) == (
        "adamw",
        "cpu",
        32,
    )
    assert job_plan.checkpoint.gather is True
    second = build_plan(parse_sft("--zero_stage 2 --pretrain a", openrlhf="0.5.3"), 1, 8)
    assert (second.parallel.overlap_comm, second.optimizer.implementation) == (False, "deepspeed")
    assert second.precision.accumulation == "fp32"
    untraced = build_plan(parse_sft("--pretrain a --disable_trace_cache --bf16"))
    assert (untraced.parallel.prefetch_bucket, untraced.parallel.max_live_parameters) == (0, 0)


def test_trainers_overrule_flags():
    ring = build_plan(parse_sft("--ds.ring_attn_size 2 --ds.attn_implementation eager"), 1, 8)
    assert (ring.sequence.packing, ring.activations.attention) == (True, "flash")
    for release, kernel in (("0.4.3", "eager"), ("0.4.4", "flash"), ("0.6.1", "flash"), ("0.8.9", "flash")):
        packed = parse_sft("--packing_samples", openrlhf=release)
        assert build_plan(packed).activations.attention == kernel, release
    dynamic = build_plan(parse_ppo("--train.dynamic_batch_enable --train.max_tokens_per_gpu 8192"))
    assert (dynamic.sequence.packing, dynamic.batch.tokens_per_gpu, dynamic.rollout.tokens_per_gpu) == (
        True,
        8192,
        8192,
    )
    assert build_plan(parse_ppo("--vllm.enable_sleep --vllm.num_engines 8")).rollout.sleep is False
    assert build_plan(parse_ppo("--vllm.enable_sleep --vllm.num_engines 8 --train.colocate_all")).rollout.sleep is True
    slept = "--colocate_all_models --vllm_enable_sleep --vllm_num_engines 8"
    for release, awake in (("0.7.1", False), ("0.9.1", False), ("0.9.2", True)):
        assert build_plan(parse_ppo(slept, openrlhf=release)).rollout.awake_at_save is awake, release
    assert build_plan(parse_ppo("--ds.enable_sleep --ds.adam_offload")).rollout.train_sleep is False
    old = parse_ppo("--colocate_all_models --vllm_num_engines 8", openrlhf="0.5.8")
    assert build_plan(old).rollout.utilization == 0.4


def test_stages_and_reference_models():
    assert build_plan(parse_sft("--pretrain_mode")).method.stage == "pretrain"
    dpo = build_plan(parse_sft("--pretrain a", "train_dpo"))
    assert (dpo.method.stage, dpo.method.reference_model, dpo.batch.pairs) == ("dpo", "full", True)
    assert build_plan(parse_sft("--ipo --pretrain a", "train_dpo")).method.stage == "ipo"
    assert build_plan(parse_sft("--pretrain a", "train_rm")).batch.pairs is True
    for estimator, stage in (
        ("gae", "ppo"),
        ("rloo", "rloo"),
        ("group_norm", "grpo"),
        ("reinforce_baseline", "reinforce"),
    ):
        assert build_plan(parse_ppo(f"--algo.advantage.estimator {estimator}")).method.stage == stage
    lora = build_plan(parse_sft("--lora_rank 8 --target_modules q_proj v_proj --load_in_4bit"))
    assert (lora.method.tuning, lora.method.lora_targets, lora.method.quantization) == (
        "lora", ("q_proj", "v_proj"), "nf4",
    )  # fmt: skip


def list_offloads(built: Plan) -> dict[str, bool | None]:
    """Return which models wait on the host; the reference model has its own field, which fixes write."""
    return {role.name: built.method.reference_offload if role.name == "reference" else role.offload
            for role in built.model.roles or ()}  # fmt: skip


def list_roles(parsed: Config) -> dict[str, tuple[Any, ...]]:
    built = build_plan(parsed)
    return {role.name: (role.pool, role.nodes, role.gpus_per_node, role.trained, list_offloads(built)[role.name])
            for role in built.model.roles or ()}  # fmt: skip


def test_roles_and_pools():
    counts = " ".join(f"--{role}.num_gpus_per_node {count}" for role, count in
                      (("actor", 4), ("ref", 4), ("critic", 2), ("reward", 2)))  # fmt: skip
    pools = list_roles(parse_ppo(counts))
    assert pools == {
        "actor": ("actor", 1, 4, True, None),
        "reference": ("reference", 1, 4, False, False),
        "critic": ("critic", 1, 2, True, None),
        "reward": ("reward", 1, 2, False, False),
    }
    shared = list_roles(parse_ppo(f"{counts} --train.colocate_actor_ref --train.colocate_critic_reward"))
    assert {name: role[0] for name, role in shared.items()} == {
        "actor": "actor", "reference": "actor", "critic": "critic", "reward": "critic",
    }  # fmt: skip
    together = list_roles(parse_ppo(f"{counts} --train.colocate_all"))
    assert {role[0] for role in together.values()} == {"actor"}
    split = list_roles(parse_ppo(f"{counts} --train.colocate_all --train.colocate_critic_reward"))
    assert {name: role[0] for name, role in split.items()} == {
        "actor": "actor", "reference": "actor", "critic": "critic", "reward": "critic",
    }  # fmt: skip
    assert set(
        list_roles(parse_ppo("--algo.kl.init_coef 0 --algo.advantage.estimator rloo --reward.remote_url http://x"))
    ) == {"actor"}
    assert set(list_roles(parse_ppo("--train.enable_ema --algo.advantage.estimator rloo --train.agent_func_path "
                                    "a.py"))) == {
        "actor", "reference", "ema",
    }  # fmt: skip
    assert list_roles(parse_ppo("$EXTRA --zero_stage 3")) == {}


def test_offload_of_other_models_needs_stage_3():
    third = list_roles(parse_ppo("--ds.zero_stage 3 --ref.offload --reward.offload"))
    second = list_roles(parse_ppo("--ds.zero_stage 2 --ref.offload --reward.offload"))
    assert [third[name][4] for name in ("reference", "reward")] == [True, True]
    assert [second[name][4] for name in ("reference", "reward")] == [False, False]
    both = list_roles(parse_ppo("--zero_stage 3 --ref_reward_offload"))
    assert [both[name][4] for name in ("reference", "reward")] == [True, True]


def test_models_of_the_roles():
    model_roles = build_plan(parse_ppo("--pretrain a/actor --reward_pretrain a/one,a/two")).model.roles
    assert [(role.name, role.model) for role in model_roles] == [
        ("actor", "a/actor"), ("reference", "a/actor"), ("critic", "a/one"), ("reward", "a/one"), ("reward", "a/two"),
    ]  # fmt: skip
    remote = build_plan(parse_ppo("--pretrain a/actor --remote_rm_url http://x")).model.roles
    assert [(role.name, role.model) for role in remote] == [
        ("actor", "a/actor"), ("reference", "a/actor"), ("critic", "a/actor"),
    ]  # fmt: skip


def test_the_trained_group_is_the_actors(tmp_path):
    (tmp_path / "train.sh").write_text(
        "# cfglint: nodes=1 gpus-per-node=16\npython -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B \\\n"
        "  --actor_num_nodes 2 --actor_num_gpus_per_node 4 --ref_num_nodes 1 --ref_num_gpus_per_node 4\n"
    )
    [run] = list_runs(tmp_path)
    assert (run.cluster, run.plan.launch.nodes, run.plan.launch.gpus_per_node) == ((1, 16), 2, 4)
    assert run.plan.data_parallel == 8
    [actor] = [role for role in run.plan.model.roles if role.name == "actor"]
    assert (actor.nodes, actor.gpus_per_node) == (2, 4)
    more = run.replace_fields({"launch.gpus_per_node": 8}).plan
    assert [role.gpus_per_node for role in more.model.roles if role.name in ("actor", "reference")] == [8, 4]


def test_a_group_without_flags_has_the_default_size(tmp_path):
    (tmp_path / "train.sh").write_text(
        "# cfglint: nodes=4 gpus-per-node=4\npython -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B\n"
    )
    [run] = list_runs(tmp_path)
    assert (run.plan.launch.nodes, run.plan.launch.gpus_per_node) == (1, 8)


def test_launchers_give_the_cluster():
    resolved = laws.read_plan(parse_fixture("shared_heredoc"))
    assert [resolved.get(f"launch.{name}") for name in ("launcher", "nodes", "gpus_per_node")] == ["torchrun", 2, 8]
    resolved = laws.read_plan(parse_fixture("redirects", 2))
    assert [resolved.get(f"launch.{name}") for name in ("launcher", "gpus_per_node")] == ["deepspeed", 3]
    resolved = laws.read_plan(parse_fixture("ray_submit"))
    assert [resolved.get(f"launch.{name}") for name in ("launcher", "nodes", "gpus_per_node")] == ["ray", 1, 8]


def test_what_serves_and_combines_has_no_plan():
    document = laws.parse_document((FIXTURES / "not_a_run.sh").read_bytes(), "shell")
    for recognised in recognise(document):
        parsed = Config("openrlhf", document, laws.build_releases("openrlhf"), recognised.root)
        build_job(parsed)
        assert laws.read_plan(parsed).get("method.stage") is None


# --- releases --------------------------------------------------------------------------------------------------------


def test_pins():
    pins = FRAMEWORK.list_installed
    assert pins("0.3.8") == {"deepspeed": "0.14.4", "transformers": "4.43.1", "vllm": "0.4.2"}
    assert pins("0.9.4") == {"deepspeed": "0.18.6", "vllm": "0.16.0"}
    assert pins("0.11.2")["deepspeed"] == "0.19.6"
    assert pins("0.2.0") == {}


def test_the_newest_release_is_the_vocabularys():
    assert flags.load_vocabulary().releases[-1] == flags.NEWEST == frameworks.load("openrlhf").default_release


# --- seed case 3 -----------------------------------------------------------------------------------------------------


def test_the_16b_case():
    parsed = parse_config(CASE.read_bytes(), openrlhf="0.3.8")
    assert flags.find_release_range(parsed) == ("0.3.0", "0.8.9.post1")
    built = build_plan(parsed)
    assert (built.precision.grads, built.precision.accumulation, built.precision.master) == ("bf16", "fp32", "fp32")
    assert built.activations.attention == "flash"
    assert built.model.id == "deepseek-ai/DeepSeek-V2-Lite"
    assert (built.parallel.zero_stage, built.parallel.offload_optimizer) == (3, "none")
    assert (built.batch.micro, built.batch.global_, built.batch.accumulation) == (4, 16, 1)
    assert (built.sequence.length, built.activations.checkpointing, built.precision.compute) == (2048, "full", "bf16")
    assert (built.launch.nodes, built.launch.gpus_per_node) == (1, 4)
    waits = list_offloads(built)
    assert {role.name: (role.pool, role.gpus_per_node, waits[role.name]) for role in built.model.roles} == {
        "actor": ("actor", 4, None),
        "reference": ("reference", 1, True),
        "critic": ("critic", 2, None),
        "reward": ("critic", 2, True),
    }
    fixed = laws.write_fields(parsed, {"batch.micro": 1, "parallel.offload_optimizer": "cpu"})
    assert b"--micro_train_batch_size 1 \\" in fixed.document.source
    assert b"   --adam_offload \\\n" in fixed.document.source
    after = build_plan(fixed)
    assert (after.batch.global_, after.batch.accumulation, after.optimizer.implementation) == (16, 4, "cpu")


def test_the_same_change_in_dotted_words():
    parsed = parse_fixture("ray_submit")
    changes = {"parallel.offload_optimizer": "cpu", "rollout.utilization": 0.5}
    source = apply_edits(parsed.document.source, parsed.document.build_edits(
        [change for lens in FRAMEWORK.lenses for change in lens.write(parsed, changes)]
    )).decode()  # fmt: skip
    assert "   --ds.zero_stage 3 \\\n   --ds.adam_offload\n" in source
    assert "--vllm.gpu_memory_utilization 0.5 \\" in source
    assert isinstance(parsed.document, ShellDocument)


def test_unknown_values_are_no_strings():
    parsed = parse_sft("--pretrain $MODEL --save_path $1/x")
    assert isinstance(parsed.get_value("--pretrain"), Unknown)
    assert read_value(parsed, "model.id") is None
