"""verl: words of Hydra, the tree that they compose, and what becomes of it in the plan."""

from __future__ import annotations

import json
import lzma
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Unknown
from cfglint_train.frameworks.verl import names
from cfglint_train.frameworks.verl.overrides import parse_head, parse_value
from cfglint_train.judging import dispatch
from tests.support.bash import needs_bash
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, change_directory, fix, lint, list_runs, read_contents

WORDS = REPOSITORY / "tests" / "oracles" / "hydra_words.json.xz"
"""Random words with the type and the value that hydra-core 1.3.2 gives them, or null if it refuses them.

`python tests/oracles/hydra_words.py` writes them.
"""
ACCEPTANCE = REPOSITORY / "fixtures" / "acceptance" / "verl"
SIGNS = {"": "CHANGE", "+": "ADD", "++": "FORCE_ADD", "~": "DEL"}
BASE = (
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    "trainer.save_freq=20",
)

KL_LOSS = "actor_rollout_ref.actor.use_kl_loss=True"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=True"
OPTIMIZER = "actor_rollout_ref.actor.optim"
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"


def write_command(folder: Path, *words: str, release: str = "0.9.1", program: str = "verl.trainer.main_ppo") -> Path:
    lines = " \\\n    ".join((f"python3 -m {program}", *BASE, *words))
    (folder / "run.sh").write_text(f"# cfglint: verl={release}\n{lines}\n")
    return folder / "run.sh"


def list_messages(folder: Path, *codes: str) -> list[str]:
    return [finding.message for finding in lint(folder, build_options(select=[*codes])).findings]


def to_plain(value: object) -> object:
    """Return a value as the recorded answers have it: JSON does not distinguish 1 from 1.0."""
    if isinstance(value, Unknown):
        return {"unknown": 1}
    if isinstance(value, dict):
        return {"d": [[to_plain(key), to_plain(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    return {"f": repr(value)} if isinstance(value, float) else value


def read_word(word: str) -> list[object] | None:
    head = parse_head(word)
    if head is None:
        return None
    try:
        value = to_plain(parse_value(word[head.value_offset :])) if head.value_offset else None
    except ValueError:
        return None
    return [SIGNS[head.sign], value]


def test_words_are_typed_and_refused_as_hydra_does():
    answers = json.loads(lzma.decompress(WORDS.read_bytes()))
    assert len(answers) > 2000
    assert 0.2 < sum(answer is not None for _, answer in answers) / len(answers) < 0.8
    assert [(word, answer, read_word(word)) for word, answer in answers if read_word(word) != answer] == []


def test_names_of_settings_are_in_a_tree_of_some_release():
    stated = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, tuple)]
    for name in {name for group in stated for name in group}:
        routes = [
            vocabulary.find_fact(tuple(name.split(".")), release, Context(entry=entry))
            for vocabulary in (load("verl"), load("easyr1"))
            for entry in vocabulary.entries
            for release in vocabulary.releases
        ]
        assert any(routes), name


@for_each(("words", "release", "code", "expected"), [
    (("trainer.save_frequency=20",), "0.9.1", "KEY001", "it is refused; did you mean `trainer.save_freq`"),
    (("+trainer.save_frequency=20",), "0.9.1", "KEY001", "silently ignored; did you mean `trainer.save_freq`"),
    (("+actor_rollout_ref.actor.clip_grad_norm=1.0",), "0.9.1", "KEY001", "it is refused"),
    (("+trainer.val_before_train=False",), "0.9.1", "KEY006", "adds a setting that already exists"),
    (("+trainer.val_before_train=False",), "0.3.0.post1", "KEY006", None),
    (("++trainer.val_before_train=False",), "0.9.1", "KEY", None),
    (("'~actor_rollout_ref.rollout.chat_scheduler'",), "0.6.1", "KEY006", "deletes a setting that does not exist"),
    (("'~actor_rollout_ref.rollout.chat_scheduler'",), "0.4.0", "KEY006", "deletes a setting that does not exist"),
    (("'~trainer.critic_warmup'",), "0.9.1", "KEY006", None),
    (("trainer.save_freq=4", "'~trainer.save_freq'"), "0.9.1", "KEY", None),
    (("'~trainer.save_freq'", "trainer.save_freq=4"), "0.9.1", "KEY006", "an earlier word deletes it"),
    (("'~actor_rollout_ref.actor.optim'", "actor_rollout_ref.actor.optim.lr=1"), "0.9.1", "KEY006", "deletes it"),
    (("'~trainer.save_freq'", "+trainer.save_freq=4", "trainer.save_freq=5"), "0.9.1", "KEY", None),
    (("actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1",), "0.9.1", "KEY006", "is not in the composed tree"),
    (("+actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1",), "0.9.1", "KEY", None),
    (("trainer.experiment_name=a;b",), "0.9.1", "KEY006", "Hydra cannot read the value"),
    (("critic.model.fsdp_config.param_offload=True",), "0.8.0", "KEY002", "it is refused"),
    (("critic.model.fsdp_config.param_offload=True",), "0.7.1", "KEY", None),
    (("+data.stranger_key=content",), "0.7.0", "KEY001", "silently ignored"),
    (("hydra.run.dir=out", "model_engine=dp"), "0.9.1", "KEY", None),
    (("hydra.searchpath=[pkg://mine]", "trainer.stranger=1"), "0.9.1", "KEY", None),
    (("model_engine=mine", "trainer.stranger=1"), "0.9.1", "KEY", None),
    (("actor@actor_rollout_ref.actor=veomni_actor", "actor_rollout_ref.actor.stranger=1"), "0.9.1", "KEY", None),
    (("actor@actor_rollout_ref.actor=mine",), "0.9.1", "KEY006", "the config group `actor` has no `mine`: it is"),
    (("actor@actor_rollout_ref.actor=mine", "hydra.searchpath=[pkg://mine]"), "0.9.1", "KEY", None),
    (("+model_engine=megatron",), "0.9.1", "KEY006", "adds a config group that is selected anyway: it is refused"),
    (("+model_engine=megatron",), "0.6.0", "KEY006", None),
    (("model_engine=megatrn",), "0.9.1", "KEY004", "`model_engine` must be one of"),
    (("--config-nme=foo",), "0.9.1", "KEY001", "has no `--config-nme`: it is refused; did you mean `--config-name`?"),
    (("--config-nam", "x", "data.bogus=1"), "0.9.1", "KEY001", None),
    (("--config-path=/srv/conf", "data.bogus=1"), "0.9.1", "KEY001", None),
    (("--config-path=config", "data.bogus=1"), "0.9.1", "KEY001", "it is refused"),
    (("-cjob", "data.bogus=1"), "0.9.1", "KEY001", "it is refused"),
    (("--multirun", "trainer.seed=1"), "0.9.1", "KEY006", "reads no overrides after `--multirun`"),
])  # fmt: skip
def test_a_word_is_judged_by_its_form_and_release(words, release, code, expected, tmp_path):
    quoted = [word if word.startswith("'") else f"'{word}'" for word in words]
    write_command(tmp_path, *quoted, release=release)
    messages = list_messages(tmp_path, *(("KEY001", "KEY002", "KEY006") if code == "KEY" else (code,)))
    assert (messages == []) if expected is None else any(expected in message for message in messages)


@for_each(("words", "release", "expected"), [
    (("algorithm.adv_estimator=grop",), "0.9.1", "`algorithm.adv_estimator` must be a known value such as \"grpo\""),
    (("algorithm.adv_estimator=grop",), "0.3.0.post1", "`algorithm.adv_estimator` must be one of"),
    (("algorithm.adv_estimator=gdpo",), "0.7.0", "`algorithm.adv_estimator` must be"),
    (("algorithm.adv_estimator=gdpo",), "0.7.1", None),
    (("algorithm.adv_estimator=grop", "trainer.val_only=True"), "0.9.1", None),
    (("algorithm.adv_estimator=grop", "custom_reward_function.path=mine.py"), "0.6.1", None),
    (("algorithm.adv_estimator=${oc.env:ESTIMATOR}",), "0.9.1", None),
    (("actor_rollout_ref.actor.strategy=fsdp3",), "0.9.1", "`actor_rollout_ref.actor.strategy` must be one of"),
    (("actor_rollout_ref.actor.strategy=fsdp2",), "0.3.0.post1", "must be one of \"fsdp\", \"megatron\""),
    (("actor_rollout_ref.actor.strategy=automodel",), "0.8.0", None),
    (("actor_rollout_ref.rollout.name=vlm",), "0.5.0", "must be one of \"hf\", \"vllm\", \"sglang\""),
    (("actor_rollout_ref.rollout.name=hf",), "0.6.0", "must be one of \"vllm\", \"sglang\""),
    ((KL_LOSS, "actor_rollout_ref.actor.kl_loss_type=low_var"), "0.9.1", "kl_loss_type` must be a known value"),
    ((KL_LOSS, "actor_rollout_ref.actor.kl_loss_type=k3+"), "0.7.1", "kl_loss_type` must be"),
    ((KL_LOSS, "actor_rollout_ref.actor.kl_loss_type=k3+"), "0.8.0", None),
    (("actor_rollout_ref.actor.kl_loss_type=low_var",), "0.9.1", None),
    (("algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.type=fix"), "0.9.1", "`algorithm.kl_ctrl.type` must be"),
    (("actor_rollout_ref.actor.loss_agg_mode=tokenmean",), "0.9.1", "loss_agg_mode` must be one of"),
    (("critic.optim.lr_scheduler_type=linear",), "0.9.1", None),  # GRPO builds no critic
    (("critic.optim.lr_scheduler_type=linear", "algorithm.adv_estimator=gae"), "0.9.1", "`critic.optim.lr_scheduler"),
    ((f"{OPTIMIZER}.lr_scheduler_type=linear",), "0.7.1", "lr_scheduler_type` must be one of"),
    ((f"{OPTIMIZER}.lr_scheduler_type=linear", f"{OPTIMIZER}.warmup_style=cosine"), "0.7.1", None),  # replaces it
    (("reward.reward_manager.name=prime",), "0.9.1", "`reward.reward_manager.name` must be one of"),
    (("reward.reward_manager.name=Own", "reward.reward_manager.source=importlib"), "0.9.1", None),
    (("reward_model.reward_manager=naiv",), "0.5.0", "`reward_model.reward_manager` must be one of"),
    (("reward_model.reward_manager=gdpo",), "0.7.1", None),
    (("reward_model.reward_manager=Own", "reward_model.reward_loop_source=importlib"), "0.7.1", None),
    (("trainer.logger=[console,wand]",), "0.9.1", "not \"wand\""),
    (("trainer.logger=console",), "0.9.1", None),
    (("data.truncation=cut",), "0.6.1", "`data.truncation` must be"),
    (("actor_rollout_ref.actor.fsdp_config.model_dtype=half",), "0.9.1", "model_dtype` must be"),
    (("actor_rollout_ref.actor.fsdp_config.model_dtype=bf16",), "0.9.1", None),
    (("actor_rollout_ref.actor.fsdp_config.model_dtype=16",), "0.6.0", None),
    (("trainer.resume_mode=never",), "0.9.1", "`trainer.resume_mode` must be one of"),
    (("trainer.resume_mode=never", "trainer.use_v1=False"), "0.9.1", None),
    (("trainer.resume_mode=never",), "0.8.0", None),
    (("actor_rollout_ref.rollout.name=vllm", f"{SHARE}=null"), "0.4.0", "must be a number, not null"),
    (("actor_rollout_ref.rollout.name=hf", f"{SHARE}=null"), "0.4.0", None),
    (("actor_rollout_ref.rollout.name=sglang", f"{SHARE}=null"), "0.9.1", None),
    (("trainer.nnodes=one",), "0.3.0.post1", "`trainer.nnodes` must be an integer, not \"one\""),
    (("trainer.save_freq=null",), "0.9.1", "`trainer.save_freq` must be an integer, not null"),
    (("trainer.save_freq=0.5",), "0.9.1", None),
    (("actor_rollout_ref.actor.optim.lr=1e-6a",), "0.9.1", "must be a number, not \"1e-6a\""),
    (("actor_rollout_ref.actor.optim.lr=1e-6",), "0.9.1", None),
    (("data.train_batch_size=1e3", "data.max_prompt_length=1_000", "trainer.nnodes=$NODES"), "0.9.1", None),
    (("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=few",), "0.9.1", "must be an integer or null"),
    (("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=many",), "0.9.1", None),
    (("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=many", DYNAMIC), "0.9.1", "must be an integer, not \"many\""),
])  # fmt: skip
def test_values_that_the_code_refuses_are_errors(words, release, expected, tmp_path):
    write_command(tmp_path, *(f"'{word}'" if "$N" not in word else word for word in words), release=release)
    messages = list_messages(tmp_path, "KEY004")
    assert messages == [] if expected is None else [message for message in messages if expected in message]


def test_words_of_a_known_later_release_or_without_a_pin_are_no_errors(tmp_path):
    write_command(tmp_path, "algorithm.adv_estimator=gdpo", "actor_rollout_ref.rollout.name=vlm")
    text = (tmp_path / "run.sh").read_text()
    (tmp_path / "run.sh").write_text(text.partition("\n")[2])
    [finding] = lint(tmp_path, build_options(select=["KEY004"])).findings
    assert finding.severity == "warning"
    assert "no known release of verl has it" in finding.message


def test_user_modules_may_register_words(tmp_path):
    write_command(tmp_path, "algorithm.adv_estimator=grop")
    text = (tmp_path / "run.sh").read_text()
    (tmp_path / "run.sh").write_text(text.replace("python3", "VERL_USE_EXTERNAL_MODULES=mine python3"))
    assert list_messages(tmp_path, "KEY004") == []


@for_each(("words", "expected"), [
    (("data.train_batch_size=1024",), 256),  # verl's default: not the prompts of a step
    (("actor_rollout_ref.actor.ppo_mini_batch_size=64", "actor_rollout_ref.rollout.n=4"), 256),
])  # fmt: skip
def test_an_optimizer_step_has_a_mini_batch(words, expected, tmp_path):
    write_command(tmp_path, *words)
    [run] = list_runs(tmp_path)
    assert run.plan.batch.global_ == expected


@for_each(("word", "field", "expected"), [
    ("actor_rollout_ref.actor.strategy=fsdp2", "parallel.strategy", "fsdp1"),  # verl's default
    ("trainer.n_gpus_per_node=16", "launch.gpus_per_node", 4),
    ("data.max_response_length=9000", "sequence.length", 1024),
])  # fmt: skip
@pytest.mark.parametrize("is_added", [True, False])
def test_defaults_of_variables_leave_words_out(is_added, word, field, expected, tmp_path):
    file = write_command(tmp_path, "trainer.n_gpus_per_node=4", '"${EXTRA[@]}"')
    choice = f'D=${{D:-{"npu" if is_added else "gpu"}}}\nEXTRA=()\nif [ "$D" = npu ]; then EXTRA+=({word}); fi\n'
    file.write_text(choice + file.read_text())
    [run] = list_runs(tmp_path)
    assert (run.plan.get(field) != expected) is is_added
    assert "`$D` is" in run.resolved_plan.get_origin(field).assumption


@for_each(("text", "expected"), [
    ("OUT=${OUT:-~/runs/a}\n", []),
    ("OUT=~/runs/a\n", []),
    ("OUT='runs/~a'\n", ["Hydra cannot read the value of `trainer.default_local_dir`: it is refused"]),
])  # fmt: skip
def test_bash_expands_the_home_folder_of_a_variable(text, expected, tmp_path):
    file = write_command(tmp_path, 'trainer.default_local_dir="$OUT"')
    file.write_text(text + file.read_text())
    assert list_messages(tmp_path, "KEY006") == expected


@for_each(("words", "expected"), [("trainer.nnodes=1 $@", None), ("$1 trainer.nnodes=1", 2)])
def test_a_command_of_settings_does_not_start_another_file(words, expected, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(YAML)
    (tmp_path / "run.sh").write_text(f"CUDA_VISIBLE_DEVICES=0,1 python3 -m verl.trainer.main_ppo {words}\n")
    [run] = [run for run in list_runs(tmp_path) if run.main.document.syntax == "yaml"]
    assert run.plan.launch.visible_gpus == expected


@for_each(("backend", "words", "strategy", "count"), [
    ("fsdp", "engine=$backend engine.tensor_model_parallel_size=2", "fsdp2", 0),
    ("fsdp", "engine.tensor_model_parallel_size=2", "fsdp2", 1),
    ("megatron", "engine=$backend engine.tensor_model_parallel_size=2", None, 0),
])  # fmt: skip
def test_defaults_of_variables_choose_the_tree(backend, words, strategy, count, tmp_path):
    (tmp_path / "run.sh").write_text(
        f"backend=${{BACKEND:-{backend}}}\n"
        'FSDP="engine=$backend optim=$backend engine.strategy=fsdp2"\n'
        f'MEGATRON="{words}"\n'
        'if [ "$backend" = fsdp ]; then ENGINE="$FSDP"; else ENGINE="$MEGATRON"; fi\n'
        "torchrun --nproc-per-node=8 -m verl.trainer.sft_trainer model.path=Qwen/Qwen2.5-0.5B $ENGINE"
    )
    [run] = list_runs(tmp_path)
    assert run.plan.parallel.strategy == strategy
    assert len(list_messages(tmp_path, "KEY001")) == count


@for_each(("words", "expected"), [
    (("trainer.save_freq=4",), 4),
    (("trainer.save_freq=4", "'~trainer.save_freq'"), None),
    (("'~trainer.save_freq'", "+trainer.save_freq=5"), 5),
    (("'~trainer'",), None),
])  # fmt: skip
def test_words_apply_in_order(words, expected, tmp_path):
    write_command(tmp_path, *words)
    [run] = list_runs(tmp_path)
    assert run.plan.checkpoint.interval == expected
    assert (run.plan.checkpoint.strategy is None) is (expected is None)  # not verl's default


@for_each(("words", "release", "expected"), [
    (("data.train_batch_size=100", "actor_rollout_ref.rollout.n=3"), "0.9.1", "100 x `rollout.n` 3 = 300 is not"),
    (("data.train_batch_size=100", "actor_rollout_ref.rollout.n=4"), "0.9.1", ""),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=36",), "0.8.0", "36 x `rollout.n` 1"),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=36",), "0.7.1", ""),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=24",), "0.9.1", "24 x 1 / 8 = 3 answers"),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=24",), "0.4.0", "verl refuses to start"),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=24",), "0.3.0.post1", ""),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=24", "actor_rollout_ref.actor.use_dynamic_bsz=True"), "0.9.1", ""),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=24", "actor_rollout_ref.rollout.n=2"), "0.9.1", ""),
    (("data.train_batch_size=100", "actor_rollout_ref.actor.use_dynamic_bsz=True"), "0.5.0", "verl refuses to start"),
    (("data.train_batch_size=100", "actor_rollout_ref.actor.use_dynamic_bsz=True"), "0.6.1", ""),
    (("actor_rollout_ref.actor.ppo_mini_batch_size=36", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
      "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3"), "0.9.1", ""),
])  # fmt: skip
def test_batches_divide_among_the_gpus(words, release, expected, tmp_path):
    write_command(tmp_path, "trainer.n_gpus_per_node=8", *words, release=release)
    messages = list_messages(tmp_path, "BAT002")
    assert any(expected in message for message in messages) if expected else messages == []


@for_each(("word", "release", "certainty"), [
    ("actor_rollout_ref.rollout.n=${N:-3}", "0.9.1", ("warning", "assumed")),
    ("actor_rollout_ref.actor.use_dynamic_bsz=${D:-False}", "0.9.1", ("warning", "assumed")),
    ("actor_rollout_ref.actor.use_dynamic_bsz=${D:-False}", "0.5.0", ("error", "followed")),  # checked either way
    ("actor_rollout_ref.actor.use_dynamic_bsz=False", "0.9.1", ("error", "followed")),
])  # fmt: skip
def test_a_batch_rests_on_the_default_of_a_variable(word, release, certainty, tmp_path):
    write_command(tmp_path, "trainer.n_gpus_per_node=8", "data.train_batch_size=100", word, release=release)
    findings = lint(tmp_path, build_options(select=["BAT002"])).findings
    assert {(finding.severity, finding.certainty) for finding in findings} == {certainty}


@for_each(("before", "after"), [
    ("actor_rollout_ref.actor.ppo_minibatch_size=64", "actor_rollout_ref.actor.ppo_mini_batch_size=64"),
    ("+trainer.val_before_train=False", "trainer.val_before_train=False"),
    ("actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1", "+actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1"),
    ("data.train_batch_size=100 actor_rollout_ref.actor.ppo_mini_batch_size=64", "data.train_batch_size=96"),
    ("actor_rollout_ref.actor.ppo_mini_batch_size=24", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"),
])  # fmt: skip
def test_fixes_rewrite_the_word(before, after, tmp_path):
    write_command(tmp_path, *before.split(), "trainer.n_gpus_per_node=8")
    fix(tmp_path, build_options(select=["KEY", "BAT002"]), unsafe=True)
    text = read_contents(tmp_path)["run.sh"].decode()
    assert after in text.split()


@for_each("place", ["command", "file"])
def test_a_mapping_in_a_word_is_merged(place, tmp_path):
    words = "data.train_batch_size=104 'data={max_prompt_length: 64, max_response_length: 100}'"
    if place == "command":
        write_command(tmp_path, words, "data.max_response_length=32")
    else:
        (tmp_path / "run.yaml").write_text(YAML)
        command = 'python3 -m verl.trainer.main_ppo --config-path="$PWD" --config-name=run'
        (tmp_path / "run.sh").write_text(f"{command} {words} data.max_response_length=32\n")
    (run,) = list_runs(tmp_path)
    assert (run.plan.rollout.batch, run.plan.sequence.length) == (104, 96)


def test_values_follow_interpolations_and_the_defaults_of_the_release(tmp_path):
    write_command(
        tmp_path,
        "'data.max_response_length=${data.max_prompt_length}'",
        "data.max_prompt_length=2048",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
        "actor_rollout_ref.rollout.n=4",
        "trainer.nnodes=2",
    )
    (run,) = list_runs(tmp_path)
    plan = run.plan
    assert plan.sequence.length == 4096
    assert (plan.batch.global_, plan.batch.micro, plan.batch.tokens_per_gpu) == (256 * 4, None, 16384)
    assert plan.rollout.tokens_per_gpu == 8192  # as the actor; a rank scores its share of the sequences
    assert (plan.launch.nodes, plan.launch.gpus_per_node) == (2, 8)
    assert (plan.precision.params, plan.precision.compute) == ("fp32", "bf16")
    assert [role.name for role in plan.model.roles or ()] == ["actor"]


OPTIMIZER = "actor_rollout_ref.actor.optim.optimizer"
BF16 = "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16"


@for_each(("words", "release", "expected", "state"), [
    ((), "0.9.1", ("adamw", "foreach", False), 8),
    ((), "0.5.0", ("adamw", "foreach", False), 8),  # fixed: no setting until 0.6.1
    ((f"+{OPTIMIZER}=SGD", BF16), "0.5.0", ("adamw", "foreach", False), 4),
    ((f"{OPTIMIZER}=Adam", BF16), "0.6.1", ("adam", "foreach", False), 4),
    ((f"{OPTIMIZER}=AdamW8bit", f"{OPTIMIZER}_impl=torchao.optim"), "0.6.1", ("adamw", "torchao", False), 2.03125),
    ((f"{OPTIMIZER}_impl=torchao.optim", f"{OPTIMIZER}=_AdamW", BF16), "0.9.1", ("adamw", "torchao", False), 4),
    ((f"{OPTIMIZER}_impl=bitsandbytes.optim", BF16), "0.9.1", ("adamw", "bitsandbytes", False), 8),
    ((f"{OPTIMIZER}_impl=bitsandbytes.optim", f"'{OPTIMIZER}=PagedAdamW8bit'"), "0.7.1",
     ("adamw", "bitsandbytes", True), 2.03125),
    ((f"{OPTIMIZER}_impl=bitsandbytes.optim", f"{OPTIMIZER}=Lion"), "0.9.1", (None, None, None), None),
    ((f"{OPTIMIZER}_impl=$MODULE",), "0.9.1", (None, None, None), None),
])  # fmt: skip
def test_a_module_and_a_class_name_the_optimizer(words, release, expected, state, tmp_path):
    write_command(tmp_path, *words, release=release)
    (run,) = list_runs(tmp_path)
    optimizer = run.plan.optimizer
    assert (optimizer.name, optimizer.implementation, optimizer.paged) == expected
    phase = run.estimate.find_phase("rollout")
    held = [size for part, size in phase.gpu.sizes if "optimizer state" in part.name] if state else [None]
    assert [share and share * 8 / run.architecture.parameters for share in held] == [state and pytest.approx(state)]
    assert (state is None) == bool(run.estimate.missing)


@for_each(("words", "expected"), [
    ((), ["actor"]),
    (("algorithm.adv_estimator=gae",), ["actor", "critic"]),
    (("actor_rollout_ref.actor.use_kl_loss=True",), ["actor", "reference"]),
    (("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.model.lora_rank=8"), ["actor"]),
])  # fmt: skip
def test_roles_follow_the_algorithm(words, expected, tmp_path):
    write_command(tmp_path, *words)
    (run,) = list_runs(tmp_path)
    assert [role.name for role in run.plan.model.roles or ()] == expected


@for_each(("words", "release", "expected"), [
    ((), "0.9.1", True),
    ((), "0.8.0", True),
    ((), "0.7.1", False),
    (("actor_rollout_ref.ref.fsdp_config.fsdp_size=-1",), "0.9.1", True),
    (("actor_rollout_ref.ref.fsdp_config.fsdp_size=4",), "0.9.1", False),
])  # fmt: skip
def test_a_reference_keeps_its_root_on_the_gpu(words, release, expected, tmp_path):
    write_command(tmp_path, "actor_rollout_ref.actor.use_kl_loss=True", *words, release=release)
    (run,) = list_runs(tmp_path)
    assert run.plan.model.roles[1].keeps_root is expected


@for_each(("words", "release", "expected"), [
    ((), "0.9.1", "policy_padded"),
    ((), "0.8.0", "policy_padded"),
    ((), "0.7.1", "policy_scaled"),
    (("actor_rollout_ref.actor.entropy_coeff=0.01",), "0.9.1", "policy_entropy_eager"),
    (("actor_rollout_ref.actor.entropy_coeff=0.01",), "0.7.1", "policy_entropy"),
    (("actor_rollout_ref.model.use_fused_kernels=True",), "0.9.1", "policy_fused"),
])  # fmt: skip
def test_log_probabilities_of_padded_sequences(words, release, expected, tmp_path):
    write_command(tmp_path, "actor_rollout_ref.model.use_remove_padding=False", *words, release=release)
    (run,) = list_runs(tmp_path)
    assert run.plan.activations.fused_loss == expected


YAML = """\
defaults:
  - ppo_trainer
  - _self_
data:
  train_batch_size: 100
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B-Instruct}
  actor: {ppo_mini_batch_size: 50, ppo_micro_batch_size_per_gpu: 2}
  rollout: {name: vllm, n: 3, log_prob_micro_batch_size_per_gpu: 4}
algorithm: {adv_estimator: grpo}
trainer: {nnodes: 1, n_gpus_per_node: 8, save_freq: 20}
"""


@for_each(("command", "expected"), [
    ('--config-path="$PWD/conf" --config-name=run', ["conf/run.yaml"]),
    ('--config-path "$PWD/conf" --config-name run.yaml actor_rollout_ref.rollout.n=3', ["conf/run.yaml"]),
    ('--config-path="$PWD/conf" --config-name=run data.train_batch_size=104', []),
    ('-cp "$PWD/conf" -cn run data.train_batch_size=104', []),
    ('--config-path="$PWD/conf" --config-name=other', []),
])  # fmt: skip
def test_a_yaml_file_is_the_run_of_the_command_that_composes_it(command, expected, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "run.yaml").write_text(f"# cfglint: verl=0.7.1\n{YAML}")
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.main_ppo {command}\n")
    findings = lint(tmp_path, build_options(select=["BAT002"])).findings
    assert [finding.path for finding in findings] == expected


@for_each(("options", "file", "expected"), [
    ("--config-name=mine", "verl/trainer/config/mine.yaml", ("verl/trainer/config/mine.yaml", "BAT002")),
    ('--config-path="$PWD/conf" --config-name=mine', "conf/mine.yaml", ("conf/mine.yaml", "BAT002")),
    ("--config-name=mine", "conf/other.yaml", ("run.sh", "CHK004")),
    ("--config-name=ppo_megatron_trainer trainer.val_only=True", "conf/other.yaml", ()),
])  # fmt: skip
def test_a_script_alone_leads_to_the_file_that_it_composes(options, file, expected, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"# cfglint: verl=0.7.1\n{YAML}")
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.main_ppo {options}\n")
    lint_options = build_options(select=["BAT002", "CHK004"])
    with change_directory(tmp_path):
        workspace = dispatch.open_workspace(lint_options)
        findings = dispatch.lint(workspace, workspace.collect(["run.sh"]), lint_options).findings
    assert [(Path(finding.path).as_posix(), finding.code) for finding in findings] == ([expected] if expected else [])


def test_records_of_hydra_are_no_runs(tmp_path):
    (tmp_path / "outputs" / ".hydra").mkdir(parents=True)
    (tmp_path / "outputs" / ".hydra" / "config.yaml").write_text(YAML)
    assert not list_runs(tmp_path)
    (tmp_path / "outputs" / "config.yaml").write_text(YAML)
    assert len(list_runs(tmp_path)) == 1


@for_each("program", ["verl.trainer.main_generation_server", "verl.trainer.main_validate", "app.serve_main"])
def test_other_programs_are_no_runs(program, tmp_path):
    write_command(tmp_path, "trainer.stranger=1", program=program)
    assert not list_runs(tmp_path)


def test_words_for_another_script_are_settings_of_its_run(tmp_path):
    write_command(tmp_path, '"$@"')
    (tmp_path / "sweep.sh").write_text(
        "for lr in 1e-6 3e-6; do\n"
        "  sbatch run.sh data.train_batch_size=100 actor_rollout_ref.actor.optim.lr=$lr trainer.experiment_name=lr$lr\n"
        "done\n"
    )
    findings = lint(tmp_path, build_options(select=["BAT002", "CKP007", "CKP009"])).findings
    assert [(finding.path, finding.code) for finding in findings] == [("sweep.sh", "BAT002")]
    (run,) = list_runs(tmp_path)
    assert (run.main.document.path, run.plan.rollout.batch, run.plan.checkpoint.path) == ("run.sh", 100, None)


def test_a_finding_marks_each_setting_once(tmp_path):
    write_command(tmp_path, "data.train_batch_size=64", "actor_rollout_ref.actor.ppo_mini_batch_size=128")
    (finding,) = lint(tmp_path, build_options(select=["KEY006"])).findings
    marked = [finding.place, *(related.place for related in finding.related)]
    assert [place.document.get_text(place.span).partition("=")[0] for place in marked] == [
        "data.train_batch_size",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
    ]


def test_keys_of_a_recipe_are_its_own(tmp_path):
    write_command(tmp_path, "data.oversample_factor=4", "data.train_batch_size=100", program="recipe.prime.main_prime")
    assert list_messages(tmp_path, "KEY", "BAT002") == []
    (run,) = list_runs(tmp_path)
    assert run.estimate.has_step


@for_each(("words", "certainty"), [((), "assumed"), (("trainer.save_freq=20",), "")])
def test_a_recipe_is_only_assumed_to_save_nothing_by_default(words, certainty, tmp_path):
    command = " ".join(("python3 -m recipe.prime.main_prime", *BASE[:-1], *words))
    (tmp_path / "run.sh").write_text(f"# cfglint: verl=0.9.1\n{command}\n")
    findings = lint(tmp_path, build_options(select=["CKP009"])).findings
    assert [finding.certainty for finding in findings] == [certainty] * bool(certainty)


@for_each(("mini", "severity"), [(256, "info"), (2048, "warning")])
def test_a_token_budget_is_filled_as_far_as_a_rank_has_sequences(mini, severity, tmp_path):
    """Qwen2-72B on 32 H800 ran with 40 answers per rank: verl 0.4.1 docs/perf/device_tuning.rst."""
    words = (
        "data.train_batch_size=2048", f"actor_rollout_ref.actor.ppo_mini_batch_size={mini}", "trainer.nnodes=4",
        "actor_rollout_ref.actor.use_dynamic_bsz=True", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000",
        "actor_rollout_ref.rollout.n=5", "actor_rollout_ref.rollout.tensor_model_parallel_size=16",
        "actor_rollout_ref.model.use_remove_padding=True", "actor_rollout_ref.model.path=Qwen/Qwen2-72B-Instruct",
        "actor_rollout_ref.actor.fsdp_config.param_offload=True",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", "actor_rollout_ref.actor.entropy_coeff=0",
    )  # fmt: skip
    write_command(tmp_path, *words, release="0.4.1")
    (finding,) = lint(tmp_path, build_options(select=["MEM001"])).findings
    assert finding.severity == severity
    assert any("40 sequences of a rank's update" in note for note in finding.notes) is (severity == "info")


@for_each(("expert", "count"), [(1, 1), (128, 0)])
def test_expert_parallelism_divides_the_experts_among_all_ranks_of_an_engine(expert, count, tmp_path):
    words = (
        "actor_rollout_ref.model.path=Qwen/Qwen3-235B-A22B", "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.7", "actor_rollout_ref.rollout.data_parallel_size=32",
        f"actor_rollout_ref.rollout.expert_parallel_size={expert}", "trainer.nnodes=16", "trainer.n_gpus_per_node=8",
    )  # fmt: skip
    write_command(tmp_path, *words)
    assert len(list_messages(tmp_path, "MEM008")) == count


@for_each(("program", "words", "mode", "roles"), [
    ("verl.trainer.main_ppo", (), "colocate", ("actor", "critic")),
    ("recipe.own.main_own", (), "colocate", None),
    ("recipe.own.main_own", ("algorithm.adv_estimator=rloo",), "colocate", ("actor",)),
    ("recipe.own.main_own", ("rollout.n_gpus_per_node=4",), "pool", None),
    ("recipe.own.main_own", ("actor_rollout_ref.hybrid_engine=False",), "pool", None),
])  # fmt: skip
def test_the_tree_of_another_program_may_have_no_critic_and_an_engine_of_its_own(program, words, mode, roles, tmp_path):
    path = write_command(tmp_path, *words, program=program)
    path.write_text(path.read_text().replace("    algorithm.adv_estimator=grpo \\\n", "", 1))
    (run,) = list_runs(tmp_path)
    assert run.plan.rollout.mode == mode
    assert (run.plan.model.roles and tuple(role.name for role in run.plan.model.roles)) == roles


@for_each(("word", "title"), [
    ("model_engine=megatron", "Megatron"),
    ("actor_rollout_ref.actor.strategy=megatron", "Megatron"),
    ("actor@actor_rollout_ref.actor=mine_actor", "mine"),
    ("model_engine=$ENGINE", "the chosen engine"),
])  # fmt: skip
def test_other_engines_are_named_and_not_estimated(word, title, tmp_path):
    write_command(tmp_path, word)
    (message,) = list_messages(tmp_path, "CHK001")
    assert f"how {title} divides the model" in message


@for_each(("release", "pin", "expected"), [
    ("0.3.0.post1", "", True),
    ("0.4.1", "vllm==0.8.5", True),
    ("0.3.0.post1", "vllm==0.6.3", False),
    ("0.3.0.post1", "vllm<=0.6.3", True),
    ("0.5.0", "", False),
])  # fmt: skip
def test_older_releases_put_the_engine_to_sleep_whatever_the_setting_says(release, pin, expected, tmp_path):
    (tmp_path / "requirements.txt").write_text(f"{pin}\n")
    write_command(tmp_path, "actor_rollout_ref.rollout.free_cache_engine=False", release=release)
    (run,) = list_runs(tmp_path)
    assert run.plan.rollout.sleep is expected


@for_each(("model", "is_packed", "expected"), [
    ("Qwen/Qwen2.5-VL-7B-Instruct", True, "flash"),
    ("Qwen/Qwen2.5-VL-7B-Instruct", False, "eager"),
    ("Qwen/Qwen2.5-7B-Instruct", True, "eager"),
])  # fmt: skip
def test_verl_replaces_the_attention_of_some_models(model, is_packed, expected, tmp_path):
    attention = "+actor_rollout_ref.model.override_config.attn_implementation=eager"
    padding = f"actor_rollout_ref.model.use_remove_padding={is_packed}"
    write_command(tmp_path, f"actor_rollout_ref.model.path={model}", attention, padding)
    (run,) = list_runs(tmp_path)
    assert run.plan.activations.attention == expected


@for_each(("mode", "expected"), [("True", True), ("config.free_cache_engine", False)])
def test_a_copy_of_an_older_release_may_read_whether_the_engine_sleeps(mode, expected, tmp_path):
    shutil.copytree(ACCEPTANCE / "vendored-copy-with-a-key-of-its-own-near-miss" / "verl", tmp_path / "verl")
    (tmp_path / "verl" / "version" / "version").write_text("0.4.1.dev\n")
    (tmp_path / "verl" / "trainer" / "rollout.py").write_text(
        f"class Rollout:\n    def __init__(self, config):\n        self.engine = LLM(enable_sleep_mode={mode})\n"
    )
    tree = tmp_path / "verl" / "trainer" / "config" / "ppo_trainer.yaml"
    tree.write_text(tree.read_text().replace("  rollout:\n", "  rollout:\n    free_cache_engine: True\n"))
    (tmp_path / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.free_cache_engine=False trainer.save_freq=1\n"
    )
    (run,) = list_runs(tmp_path)
    assert run.plan.rollout.sleep is expected


@for_each(("program", "count"), [("verl.trainer.main_ppo", 1), ("recipe.flowrl.main_flowrl", 0)])
def test_only_the_loss_of_verl_ignores_a_reference_without_a_coefficient(program, count, tmp_path):
    words = ("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.actor.kl_loss_coef=0")
    write_command(tmp_path, *words, program=program)
    assert len(list_messages(tmp_path, "MEM010")) == count


def copy_verl(folder: Path) -> None:
    """Write a copy of verl whose actor has a setting of its own."""
    shutil.copytree(ACCEPTANCE / "vendored-copy-with-a-key-of-its-own-near-miss" / "verl", folder / "verl")
    tree = folder / "verl" / "trainer" / "config" / "ppo_trainer.yaml"
    tree.write_text(tree.read_text().replace("tool_penalty: 0.0", f"{OTHER_KEYS}tool_penalty: 0.0"))


OTHER_KEYS = "use_dynamic_bsz: False\n    ppo_micro_batch_size: null\n    "
CHECK = "assert config.data.train_batch_size >= config.actor.ppo_mini_batch_size"
OTHER_CHECKS = """\
if not config.actor.use_dynamic_bsz:
        assert config.data.train_batch_size >= config.critic.ppo_mini_batch_size
        assert config.actor.ppo_mini_batch_size % config.trainer.nnodes == 0
"""


@for_each(("code", "expected"), [
    (f"{OTHER_CHECKS}        {CHECK}", "error"),
    (f"{OTHER_CHECKS}        # {CHECK}", ""),
    ("config.update()", "error"),
])  # fmt: skip
def test_a_copy_that_checks_a_setting_otherwise_accepts_what_upstream_refuses(code, expected, tmp_path):
    copy_verl(tmp_path)
    (tmp_path / "verl" / "trainer" / "ray_trainer.py").write_text(f"def validate(config):\n    {code}\n")
    words = (
        "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=32",
        "actor_rollout_ref.actor.tool_penalty=1",
    )
    (tmp_path / "run.sh").write_text(" ".join(("python3 -m verl.trainer.main_ppo", *BASE, *words)))
    findings = lint(tmp_path, build_options(select=["KEY006"])).findings
    assert [finding.severity for finding in findings] == [expected] * bool(expected)


def test_what_a_broken_line_cuts_off_is_not_called_missing(tmp_path):
    words = " ".join(word for word in BASE if not word.startswith("trainer"))
    command = f"python3 -m verl.trainer.main_ppo {words} \\ \n    trainer.save_freq=20\n"
    (tmp_path / "run.sh").write_text(f"# cfglint: verl=0.9.1\n{command}")
    assert [finding.code for finding in lint(tmp_path).findings if finding.severity != "info"] == ["SYN007"]


OWN_FILE = "defaults: [{bases}]\ndata: {{train_batch_size: 256}}\nextra: {{path: a}}\n"


@for_each(("words", "bases", "refused"), [
    ("data.train_batch_sizes=4", "ppo_trainer, _self_", ["data.train_batch_sizes"]),
    ("+data.train_batch_sizes=4", "ppo_trainer, _self_", []),
    ("data.train_batch_size=4 extra.path=b", "ppo_trainer, _self_", []),
    ("data.train_batch_sizes=4", "ppo_trainer, other, _self_", []),
    ("data.train_batch_sizes=4", "beside_ppo_trainer, _self_", []),
])  # fmt: skip
def test_words_over_a_file_are_checked_in_every_launch(words, bases, refused, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "ours.yaml").write_text(OWN_FILE.format(bases=bases.replace("beside_", "")))
    if bases.startswith("beside_"):
        (tmp_path / "config" / "ppo_trainer.yaml").write_text("data: {train_batch_size: 1}\n")
    command = " ".join(("python3 -m verl.trainer.main_ppo --config-path $PWD/config --config-name ours", *BASE))
    (tmp_path / "run.sh").write_text(f"{command} trainer.nnodes=2\n{command} {words}\n")
    (tmp_path / "requirements.txt").write_text("verl==0.5.0\n")
    messages = [message for message in list_messages(tmp_path, "KEY001") if "it is refused" in message]
    assert [name for name in refused if f"`{name}`" in " ".join(messages)] == refused
    assert len(messages) == len(refused)


@for_each(("word", "is_estimated"), [("", True), ("model_engine=megatron", False), ("model_engine=dp", True)])
def test_an_engine_that_a_launch_chooses_over_a_file_is_not_taken_for_fsdp(word, is_estimated, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "ours.yaml").write_text("defaults: [ppo_trainer, _self_]\ndata: {train_batch_size: 256}\n")
    command = "python3 -m verl.trainer.main_ppo --config-path $PWD/config --config-name ours"
    (tmp_path / "run.sh").write_text(f"{' '.join((command, *BASE))} trainer.nnodes=1 {word}\n")
    (tmp_path / "requirements.txt").write_text("verl==0.9.0\n")
    assert (list_messages(tmp_path, "CHK001") == []) is is_estimated


@for_each(("word", "count"), [("trainer.save_freq=20", 1), ("trainer.save_freq=-1", 0)])
def test_runs_that_save_nothing_do_not_overwrite_each_other(word, count, tmp_path):
    words = (other for other in BASE if not other.startswith("trainer.save_freq"))
    command = " ".join(("python3 -m verl.trainer.main_ppo trainer.resume_mode=disable", *words, word))
    (tmp_path / "run.sh").write_text(f"# cfglint: verl=0.9.1\n{command}\n{command} data.seed=2\n")
    assert len(list_messages(tmp_path, "CKP007")) == count


@for_each(("guard", "count"), [("if True:", 1), ("if self.use_reference_policy:", 0)])
def test_a_copy_may_ask_for_the_batch_of_the_reference_only_if_it_has_one(guard, count, tmp_path):
    copy_verl(tmp_path)
    (tmp_path / "verl" / "version" / "version").write_text("0.3.0.post1\n")
    tree = tmp_path / "verl" / "trainer" / "config" / "ppo_trainer.yaml"
    batches = "{log_prob_micro_batch_size: null, log_prob_micro_batch_size_per_gpu: null}"
    text = tree.read_text().replace("  actor:", f"  ref: {batches}\n  actor:\n    use_kl_loss: False")
    tree.write_text(text.replace("algorithm:", "algorithm:\n  use_kl_in_reward: False"))
    function = "def refuse(size, other):\n    raise ValueError\n"
    call = "refuse(config.ref.log_prob_micro_batch_size, config.ref.log_prob_micro_batch_size_per_gpu)"
    trainer = f"{function}\ndef validate(self, config):\n    {guard}\n        {call}\n"
    (tmp_path / "verl" / "trainer" / "ray_trainer.py").write_text(trainer)
    words = (word for word in BASE if not word.startswith("actor_rollout_ref.ref"))
    (tmp_path / "run.sh").write_text(" ".join(("python3 -m verl.trainer.main_ppo", *words)))
    assert sum("even without a reference" in message for message in list_messages(tmp_path, "KEY006")) == count


@for_each(("word", "severity"), [
    ("", "warning"),
    ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", "info"),
])  # fmt: skip
def test_a_copy_with_settings_of_its_own_may_set_a_value_that_is_null(word, severity, tmp_path):
    copy_verl(tmp_path)
    with open(tmp_path / "verl" / "trainer" / "config" / "ppo_trainer.yaml", "a") as tree:
        tree.write("agents: []\n")
    base = [other for other in BASE if "ppo_micro_batch_size" not in other]
    command = ("python3 -m verl.trainer.main_ppo", *base, "actor_rollout_ref.actor.tool_penalty=1", word)
    (tmp_path / "run.sh").write_text(" ".join(command))
    findings = lint(tmp_path, build_options(select=["KEY006"])).findings
    assert [finding.severity for finding in findings] == [severity]


@needs_bash
@pytest.mark.parametrize("program", ["verl.trainer.main_ppo", "recipe.dapo.main_dapo"])
@pytest.mark.parametrize("between", [
    " \\\n", " \\ \n", "\n", " \\\n    # a comment\n", " \\\n    # a comment \\\n\n", " \\\n\n", " \\\\\n",
])  # fmt: skip
@pytest.mark.parametrize("word", ["data.train_batch_size=512", "+data.train_batch_size=512"])
def test_words_that_bash_cuts_off_are_reported(program, between, word, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m {program} \\\n    actor_rollout_ref.model.path=q{between}    {word} \\\n    a.b=1\n")
    stub = f"python3() {{ printf '%s\\n' \"$@\"; }}; . {shlex.quote(str(script))} 2>/dev/null"
    passed = subprocess.run(["bash", "-c", stub], capture_output=True, text=True, check=False).stdout.split("\n")
    assert bool(list_messages(tmp_path, "SYN007")) is (word not in passed)


RECIPE = """\
hydra:
  searchpath:
    - file://verl/trainer/config
defaults:
  - ppo_trainer
  - _self_
data:
  extra: 1
"""
RECIPE_MAIN = '@hydra.main(config_path="config", config_name="mine", version_base=None)\ndef main(config): ...\n'


@for_each(("word", "codes"), [
    ("data.extra=2", []),
    ("data.other=2", ["KEY001"]),
    ("+data.other=2", []),  # a warning: nothing reads it
    ("+data.extra=2", ["KEY006"]),
    ("--config-name=mine data.other=2", []),
    ("--config-path=/conf data.other=2", []),
    ("data@data=mine data.other=2", []),
])  # fmt: skip
@pytest.mark.parametrize("is_module", [True, False])
def test_a_recipe_beside_a_copy_composes_its_tree(is_module, word, codes, tmp_path):
    copy_verl(tmp_path)
    (tmp_path / "recipe" / "mine" / "config").mkdir(parents=True)
    (tmp_path / "recipe" / "mine" / "config" / "mine.yaml").write_text(RECIPE)
    (tmp_path / "recipe" / "mine" / "main_mine.py").write_text(f"import hydra\n{RECIPE_MAIN}")
    words = (*BASE[1:3], "trainer.save_freq=1", word)
    script, program = ("run.sh", "-m recipe.mine.main_mine") if is_module else ("recipe/mine/run.sh", "main_mine.py")
    (tmp_path / script).write_text(" ".join((f"python3 {program}", *words)))
    findings = lint(tmp_path, build_options(select=["KEY"])).findings
    assert [finding.code for finding in findings if finding.severity == "error"] == codes


@for_each(("word", "code", "count"), [
    ("+data.other=2", "", 1),
    ("+data.other=2", "config.data.other", 0),
    ("+data.other=2", "import helpers", 0),
    ("+data.other=2", "other", 0),
    ("+data.others=2", "import helpers", 1),
])  # fmt: skip
def test_code_of_a_recipe_may_read_what_a_word_adds(word, code, count, tmp_path):
    copy_verl(tmp_path)
    (tmp_path / "helpers.py").write_text("other = 1\n")
    (tmp_path / "recipe" / "mine" / "config").mkdir(parents=True)
    (tmp_path / "recipe" / "mine" / "config" / "mine.yaml").write_text(RECIPE)
    (tmp_path / "recipe" / "mine" / "main_mine.py").write_text(f"import hydra\n{RECIPE_MAIN}{code}\n")
    (tmp_path / "run.sh").write_text(" ".join(("python3 -m recipe.mine.main_mine", *BASE[1:3], word)))
    assert len(list_messages(tmp_path, "KEY001")) == count


@for_each(("name", "codes"), [("ppo_trainer", ["KEY001"]), ("mine", [])])
def test_the_program_of_a_copy_names_its_tree(name, codes, tmp_path):
    copy_verl(tmp_path)
    trainer = tmp_path / "verl" / "trainer"
    (trainer / "config" / "mine.yaml").write_text(RECIPE)
    (trainer / "main_ppo.py").write_text(RECIPE_MAIN.replace("mine", name))
    command = ("python3 -m verl.trainer.main_ppo", *BASE[1:3], "trainer.save_freq=1", "data.extra=2")
    (tmp_path / "run.sh").write_text(" ".join(command))
    findings = lint(tmp_path, build_options(select=["KEY001"])).findings
    assert [finding.code for finding in findings] == codes


@for_each(("package", "read", "count"), [
    ("agents", "config.algorithm.penalty", 0),
    ("agents", 'config.algorithm.get("penalty")', 0),
    ("agents", 'config["algorithm"]["penalty"]', 0),
    ("agents", "penalty", 1),
    ("others", "config.algorithm.penalty", 1),
    ("verl/trainer", "config.penalty", 0),
    ("verl/trainer", "config.actor.penalty", 1),
])  # fmt: skip
def test_code_of_a_copy_and_of_a_package_beside_it_may_read_what_a_word_adds(package, read, count, tmp_path):
    copy_verl(tmp_path)
    (tmp_path / "verl" / "trainer" / "main_ppo.py").write_text("from agents.loop import run\n")
    (tmp_path / package).mkdir(exist_ok=True)
    (tmp_path / package / "loop.py").write_text(f"def run(config):\n    return {read}\n")
    command = ("python3 -m verl.trainer.main_ppo", "+algorithm.penalty=0.1", "trainer.save_freq=1")
    (tmp_path / "run.sh").write_text(" ".join(command))
    assert len(list_messages(tmp_path, "KEY001")) == count


def test_each_command_that_composes_a_file_is_a_run(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "run.yaml").write_text(f"# cfglint: verl=0.7.1\n{YAML}")
    command = 'python3 -m verl.trainer.main_ppo --config-path="$PWD/conf" --config-name=run data.train_batch_size'
    for batch in (104, 125):
        (tmp_path / f"run{batch}.sh").write_text(f"{command}={batch} trainer.nnodes=1 trainer.val_only=False\n")
    (tmp_path / "again.sh").write_text(f"{command}=104 trainer.val_only=False trainer.nnodes=1\n")
    findings = lint(tmp_path, build_options(select=["BAT002"])).findings
    assert [finding.path for finding in findings] == ["run125.sh"]
    assert sorted(run.plan.rollout.batch for run in list_runs(tmp_path)) == [104, 125]


def test_a_program_that_the_release_lacks_is_one_finding(tmp_path):
    (tmp_path / "sft.sh").write_text(
        "# cfglint: verl=0.9.1\ntorchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer "
        "data.max_length=2048 model.partial_pretrain=Qwen/Qwen2.5-0.5B trainer.total_epochs=1\n"
    )
    (message,) = list_messages(tmp_path, "KEY")
    assert "0.7.0" in message


def test_words_of_another_engine_are_not_judged(tmp_path):
    (tmp_path / "sft.sh").write_text(
        "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer engine=megatron optim=megatron "
        "model.path=Qwen/Qwen2.5-0.5B engine.tensor_model_parallel_size=2 optim.min_lr=1e-6\n"
    )
    assert list_messages(tmp_path, "KEY") == []
    (message,) = list_messages(tmp_path, "CHK001")
    assert "Megatron" in message


def test_ulysses_may_stand_in_the_engine(tmp_path):
    words = ("actor_rollout_ref.actor.use_dynamic_bsz=True", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=768")
    write_command(tmp_path, *words, "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2")
    (run,) = list_runs(tmp_path)
    assert (run.plan.parallel.context, run.plan.batch.tokens_per_gpu) == (2, 1536)
    assert list_messages(tmp_path, "KEY006") == []


def test_a_word_that_a_condition_adds_is_no_duplicate(tmp_path):
    base = " ".join(BASE)
    (tmp_path / "run.sh").write_text(
        f'WORDS=({base} trainer.test_freq=5)\nif [ -n "$FAST" ]; then WORDS+=(trainer.test_freq=50); fi\n'
        'python3 -m verl.trainer.main_ppo "${WORDS[@]}"\n'
    )
    assert list_messages(tmp_path, "SYN003") == []


@for_each(("release", "transformers", "count"), [
    ("0.9.0", "4.51.3", 1), ("0.9.0", "5.6.0", 1), ("0.9.0", "5.7.0", 0), ("0.9.1", "5.11.0", 1),
    ("0.8.0", "4.51.3", 0),
])  # fmt: skip
def test_a_release_excludes_what_its_wheel_does_not_allow(release, transformers, count, tmp_path):
    (tmp_path / "requirements.txt").write_text(f"verl=={release}\ntransformers=={transformers}\n")
    (tmp_path / "run.sh").write_text(" ".join(("python3 -m verl.trainer.main_ppo", *BASE)))
    assert len(list_messages(tmp_path, "REL003")) == count
