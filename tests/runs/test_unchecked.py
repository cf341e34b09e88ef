"""Message of a run whose memory was not checked: the reason, the place and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, lint

KEYS = """\
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca
template: qwen
output_dir: out
per_device_train_batch_size: 2
"""
COMMAND = """\
deepspeed --module openrlhf.cli.train_sft --pretrain {} --dataset d --max_len 2048 --micro_train_batch_size 1 \\
  --train_batch_size 8
"""
CONFIG = "pass `--model-config FILE` with its `config.json`"
FOLDER = f"{CONFIG}, or `--model-folder DIR` with a folder above it"
PLAIN = "to a plain value, or pass `--model-config FILE` with the model's `config.json`"


def explain_unchecked(folder: Path) -> tuple[str, str | None]:
    """Return the message of the only finding and its help."""
    (folder / ".git").mkdir(exist_ok=True)
    [finding] = lint(folder, build_options(("CHK001",))).findings
    return finding.message.removeprefix("memory not checked: "), finding.help


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        *((model, FOLDER) for model in ("/data/m7b", "../m/m7b", "~/m7b")),
        *((model, CONFIG) for model in ("./m7b", "saves/m7b/full/sft", "s3://bucket/m7b", "here/m7b", "D:\\m7b")),
    ],
)
def test_the_hub_is_no_remedy_for_a_path(tmp_path, model, remedy):
    (tmp_path / "here").mkdir()
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: {model}\n{KEYS}")
    assert explain_unchecked(tmp_path) == (
        f"the model `{model}` is a path, but the repository has no `config.json` there",
        remedy,
    )


def test_a_path_in_a_command(tmp_path):
    (tmp_path / "run.sh").write_text(COMMAND.format("/data/m7b"))
    message = "the model `/data/m7b` is a path, but the repository has no `config.json` there"
    assert explain_unchecked(tmp_path) == (message, FOLDER)


@pytest.mark.parametrize(("model", "remedy"), [("acme/Nebula-9B", f"{CONFIG}, or `--online`"), ("Nebula-9B", CONFIG)])
def test_a_name_that_the_catalogue_does_not_have(tmp_path, model, remedy):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: {model}\n{KEYS}")
    assert explain_unchecked(tmp_path) == (f"`{model}` is not in the catalogue of models", remedy)


@pytest.mark.parametrize("model", ["$MODEL", "${MODEL}/7b", "{{ model }}", "<your model>"])
def test_a_model_that_something_replaces(tmp_path, model):
    (tmp_path / "run.yaml").write_text(f'model_name_or_path: "{model}"\n{KEYS}')
    message = f"the value of `model_name_or_path` ({model}) cannot be determined"
    assert explain_unchecked(tmp_path) == (message, f"set `model_name_or_path` {PLAIN}")


def test_a_variable_in_a_command(tmp_path):
    (tmp_path / "run.sh").write_text(COMMAND.format("$ROOT/m7b"))
    assert explain_unchecked(tmp_path) == (
        "the value of `--pretrain` ($ROOT/m7b) cannot be determined",
        f"set `--pretrain` {PLAIN}",
    )


def test_no_model_at_all(tmp_path):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path:\n{KEYS}")
    assert explain_unchecked(tmp_path) == (
        "no file names the model",
        "set `model_name_or_path`, or pass `--model-config FILE`",
    )


@pytest.mark.parametrize(
    ("stated", "message", "remedy"),
    [
        (
            "ds/z3_of_ours.json",
            "this run needs `ds/z3_of_ours.json`, which was not found",
            "commit the file, or name it by its path in the repository",
        ),
        (
            "$DS",
            "the DeepSpeed file of this run (`$DS`) cannot be determined",
            "name it by its path in the repository",
        ),
    ],
)
def test_a_deepspeed_file(tmp_path, stated, message, remedy):
    (tmp_path / "run.yaml").write_text(f'model_name_or_path: Qwen/Qwen2.5-7B\n{KEYS}deepspeed: "{stated}"\n')
    assert explain_unchecked(tmp_path) == (message, remedy)


def test_a_deepspeed_file_that_does_not_parse_is_there(tmp_path):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        (folder / "ds.json").write_text('{"zero_optimization": {"stage": }}')
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: Qwen/Qwen2.5-7B\n{KEYS}deepspeed: ds.json\n")
    message = "this run needs `ds.json`, which cannot be read"
    assert explain_unchecked(tmp_path) == (message, "correct the syntax of the file")


def test_several_files_that_may_be_meant(tmp_path):
    text = f"model_name_or_path: Qwen/Qwen2.5-0.5B\n{KEYS}deepspeed: /workspace/ds.json\n"
    (tmp_path / "run.yaml").write_text(text)
    message, help = explain_unchecked(tmp_path)
    assert message == "this run needs `/workspace/ds.json`, which was not found"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    message, help = explain_unchecked(tmp_path)
    assert message.startswith("this run needs `/workspace/ds.json`, which may be any of 2 files: `")
    assert "a/ds.json` and `" in message
    assert message.endswith("b/ds.json`")
    assert help == "name it by its path in the repository"
    (tmp_path / "b" / "ds.json").unlink()
    assert [finding.code for finding in lint(tmp_path, build_options(("CHK001",))).findings] == []


def test_a_format_that_no_flag_states_is_named_by_the_flag_that_settles_it(tmp_path):
    (tmp_path / "run.sh").write_text(
        COMMAND.format("Qwen/Qwen2.5-0.5B").replace("--train_b", "--param_dtype $DT --train_b")
    )
    message, _ = explain_unchecked(tmp_path)
    assert message.startswith("the value of `--param_dtype` (")
    assert message.endswith(") cannot be determined")


def test_a_number_of_nodes_that_a_case_decides(tmp_path):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: Qwen/Qwen2.5-0.5B\n{KEYS}")
    launch = "FORCE_TORCHRUN=1 NNODES=$N NPROC_PER_NODE=8 llamafactory-cli train run.yaml"
    (tmp_path / "run.sh").write_text(f'case "$1" in\n small) N=1;;\n big) N=4;;\nesac\n{launch}\n')
    message, remedy = explain_unchecked(tmp_path)
    assert message == "the number of nodes cannot be determined"
    assert remedy == "pass `--nodes N`, or write the comment `# cfglint: nodes=N`"


def test_a_file_that_the_launch_names_is_missed_there(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: Qwen/Qwen2.5-0.5B\n{KEYS}")
    (tmp_path / "run.sh").write_text("llamafactory-cli train run.yaml deepspeed=mine/z9.json\n")
    [finding] = lint(tmp_path, build_options(("CHK001",))).findings
    assert (finding.path, finding.start.line) == ("run.sh", 1)
    assert "this run needs `mine/z9.json`, which was not found" in finding.message


LOOP = """\
CONFIGS=(configs/a.yaml configs/b.yaml)
for config in "${{CONFIGS[@]}}"; do
  accelerate launch {} -m axolotl.cli.train "$config"
done
"""


@pytest.mark.parametrize(
    ("options_there", "is_known"), [("--num_processes 8", True), ("--config_file fsdp.yaml", False)]
)
def test_a_loop_over_files_may_shard_each(tmp_path, options_there, is_known):
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs").mkdir()
    for name in ("a", "b"):
        (tmp_path / "configs" / f"{name}.yaml").write_text(AXOLOTL + "sequence_len: 512\noptimizer: adamw_torch\n")
    (tmp_path / "go.sh").write_text(LOOP.format(options_there))
    findings = lint(tmp_path, build_options(("CHK001",))).findings
    assert [finding.path for finding in findings] == ([] if is_known else ["configs/a.yaml", "configs/b.yaml"])
    for finding in findings:
        assert "names it and starts a file named by a variable with a launcher" in finding.message
        assert finding.help == "start it by its path in a script of the repository"


def test_a_file_that_the_launcher_is_given_is_missed_there(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: Qwen/Qwen2.5-0.5B\n{KEYS}")
    (tmp_path / "run.sh").write_text("set -e\naccelerate launch --config_file mine/fsdp.yaml src/train.py run.yaml\n")
    [finding] = lint(tmp_path, build_options(("CHK001",))).findings
    assert (finding.path, finding.start.line) == ("run.sh", 2)
    assert "this run needs `mine/fsdp.yaml`, which was not found" in finding.message


SEVEN = (
    "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 2\nbf16: true\ndatasets: [{path: d, type: a}]\n"
)
"""Config that needs ZeRO-3 on 8 GPUs of 80 GB."""


@pytest.mark.parametrize("by_file", [True, False])
def test_the_stage_of_a_missing_deepspeed_file_that_accelerate_is_given_is_not_0(tmp_path, by_file):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    deepspeed_section = "deepspeed_config:\n  deepspeed_config_file: mine/z3.json\n"
    (tmp_path / "acc.yaml").write_text(
        f"distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n{deepspeed_section}"
    )
    launcher_options = "--config_file acc.yaml" if by_file else "--use_deepspeed --deepspeed_config_file mine/z3.json"
    (tmp_path / "run.sh").write_text(
        f"accelerate launch {launcher_options} --num_processes 8 -m axolotl.cli.train run.yaml\n"
    )
    [finding] = lint(tmp_path, build_options(("CHK001", "MEM"))).findings
    assert finding.code == "CHK001"
    assert "this run needs `mine/z3.json`, which was not found" in finding.message


def test_options_of_a_launcher_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    launch = "accelerate launch --num_processes 8 $ARGS --use_fsdp -m axolotl.cli.train run.yaml\n"
    (tmp_path / "run.sh").write_text(launch)
    message, remedy = explain_unchecked(tmp_path)
    assert message == "how `--use_fsdp` shards the model cannot be determined"
    assert remedy == "pass plain or quoted words to the launcher, or a file of the repository (`--config_file`)"


@pytest.mark.parametrize(
    ("more", "is_known"),
    [
        ("--machine_rank $RANK", True),
        ('--machine_rank "$RANK"', True),
        ("--machine_rank=$RANK", True),
        ("--machine_rank 0 $ARGS", False),
        ("--same_network $ARGS", False),
        ("--machine_rank ${RANKS[@]}", False),
    ],
)
def test_a_variable_behind_an_option_that_takes_a_value_is_that_value(tmp_path, more, is_known):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    (tmp_path / "run.sh").write_text(
        f"accelerate launch --num_machines 2 --num_processes 16 {more} --use_fsdp --fsdp_sharding_strategy FULL_SHARD "
        "-m axolotl.cli.train run.yaml\n"
    )
    findings = lint(tmp_path, build_options(("CHK001",))).findings
    unread = ["memory not checked: how `--use_fsdp` shards the model cannot be determined"]
    assert [finding.message for finding in findings] == ([] if is_known else unread)


@pytest.mark.parametrize(
    ("switches", "refused"),
    [
        ("--multi_gpu --use_fsdp --fsdp_sharding_strategy FULL_SHARD", "`--use_fsdp` together with `--multi_gpu`"),
        ("--use-deepspeed --zero_stage 3 --multi-gpu", "`--multi-gpu` together with `--use-deepspeed`"),
        ("--cpu --use_fsdp", "`--use_fsdp` together with `--cpu`"),
    ],
)
def test_switches_that_accelerate_refuses_together_are_no_plain_data_parallelism(tmp_path, switches, refused):
    """Follow Accelerate 0.20.3 to 1.15.0, where `_validate_launch_command` in commands/launch.py raises ValueError."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    (tmp_path / "run.sh").write_text(f"accelerate launch {switches} --num_processes 8 -m axolotl.cli.train run.yaml\n")
    message, remedy = explain_unchecked(tmp_path)
    assert message == f"accelerate rejects {refused}, and does not start"
    assert remedy == "use only one of them"


@pytest.mark.parametrize("switches", ["--multi_gpu", "--use_fsdp --fsdp_sharding_strategy FULL_SHARD"])
def test_one_such_switch_is_checked(tmp_path, switches):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    (tmp_path / "run.sh").write_text(f"accelerate launch {switches} --num_processes 8 -m axolotl.cli.train run.yaml\n")
    assert lint(tmp_path, build_options(("CHK001",))).findings == ()


def test_a_file_of_fsdp_settings_is_not_an_unknown_value_of_fsdp(tmp_path):
    sharded = "bf16: true\nfsdp: full_shard auto_wrap\nfsdp_config: fsdp.json\n"
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: Qwen/Qwen2.5-0.5B\n{KEYS}{sharded}")
    message, remedy = explain_unchecked(tmp_path)
    assert message == "the file of `fsdp_config` (fsdp_config: fsdp.json) was not found, or is not JSON"
    assert remedy == "commit the file, or write its settings below `fsdp_config`"
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": true}')
    assert lint(tmp_path, build_options(("CHK001",))).findings == ()


@pytest.mark.parametrize(
    ("setting", "message", "remedy"),
    [
        ("", "`auto` in the DeepSpeed file follows `bf16`, which is off", "enable `bf16`"),
        ("bf16: false\n", "`auto` in the DeepSpeed file follows `bf16`, which is off", "enable `bf16`"),
        ("bf16: ${B}\n", "the value of `bf16` (bf16: ${B}) cannot be determined", "set `bf16` to a plain value"),
    ],
)
def test_a_format_that_deepspeed_leaves_to_the_run_is_named_by_the_run_s_key(
    tmp_path: Path, setting: str, message: str, remedy: str
) -> None:
    model = "model_name_or_path: Qwen/Qwen2.5-0.5B\nlora_target: all\ndeepspeed: ds.json\n"
    lora = KEYS.replace("full", "lora")
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}')
    (tmp_path / "run.yaml").write_text(f"{model}{lora}{setting}")
    assert explain_unchecked(tmp_path) == (message, remedy)
    assert lint(tmp_path, build_options(("CHK001",))).findings[0].path == "run.yaml"
    (tmp_path / "run.yaml").write_text(f"{model}{lora}bf16: true\n")
    assert lint(tmp_path, build_options(("CHK001",))).findings == ()


def test_scripts_that_differ_are_named_with_each_fact_and_line(tmp_path):
    """Read the default of `accelerate launch` at the line that starts it."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(SEVEN)
    (tmp_path / "a.sh").write_text("\naccelerate launch --num_processes 8 -m axolotl.cli.train run.yaml\n")
    (tmp_path / "b.sh").write_text("torchrun --nnodes 2 --nproc-per-node 4 -m axolotl.cli.train run.yaml\n")
    message, remedy = explain_unchecked(tmp_path)
    differing_facts = "the number of nodes and the number of GPUs per node"
    assert message == f"a.sh:2 and b.sh:1 differ in {differing_facts}"
    flags, comment = "--nodes N --gpus-per-node N", "# cfglint: nodes=N gpus-per-node=N"
    assert remedy == f"pass `{flags}`, or write the comment `{comment}`"
    (tmp_path / "b.sh").write_text("torchrun --nnodes 2 --nproc-per-node 8 -m axolotl.cli.train run.yaml\n")
    message, remedy = explain_unchecked(tmp_path)
    assert message == "a.sh:2 and b.sh:1 differ in the number of nodes"
    assert remedy == "pass `--nodes N`, or write the comment `# cfglint: nodes=N`"


BCO = """\
from transformers import AutoModelForCausalLM
from trl import {0}Config, {0}Trainer

model = AutoModelForCausalLM.from_pretrained("acme/Nebula-9B"{1})
args = {0}Config(output_dir="out", bf16=True, max_length=1024)
{0}Trainer(model=model, args=args, train_dataset=samples).train()
"""


@pytest.mark.parametrize("more", ["", ', device_map="auto"', ", torch_dtype=dtype"])
@pytest.mark.parametrize("trainer", ["BCO", "GKD", "TPO"])
def test_what_no_formula_covers_comes_before_facts_that_are_missing_too(tmp_path, trainer, more):
    (tmp_path / "train.py").write_text(BCO.format(trainer, more))
    assert explain_unchecked(tmp_path) == (
        "no formula covers the loss of this trainer",
        "measure one step on your own GPU",
    )


def test_of_a_trainer_that_a_formula_covers_the_missing_fact_is_asked_for(tmp_path):
    (tmp_path / "train.py").write_text(BCO.format("DPO", ""))
    assert explain_unchecked(tmp_path) == (
        "`acme/Nebula-9B` is not in the catalogue of models",
        f"{CONFIG}, or `--online`",
    )


@pytest.mark.parametrize("missing", ["", 'deepspeed: "$DS"\n'])
def test_strategies_that_no_formula_covers_come_first(tmp_path, missing):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: acme/Nebula-9B\n{KEYS}use_kt: true\n{missing}")
    assert explain_unchecked(tmp_path) == (
        "KTransformers keeps experts on the host",
        "measure one step on your own GPU",
    )


def test_a_model_that_no_formula_covers_comes_before_a_file_that_is_missing(tmp_path):
    (tmp_path / "run.yaml").write_text(f"model_name_or_path: databricks/dbrx-base\n{KEYS}deepspeed: ds/ours.json\n")
    message, remedy = explain_unchecked(tmp_path)
    assert message.startswith("no formula covers all parts of a ")
    assert remedy == "measure one step on your own GPU"


EXPRESSION = """\
import os

from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", bf16=True, max_length=1024, per_device_train_batch_size=os.cpu_count())
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=samples).train()
"""


def test_an_expression_is_no_value_that_cfglint_does_not_know(tmp_path):
    (tmp_path / "train.py").write_text(EXPRESSION)
    key = "per_device_train_batch_size"
    message = f"the value of `{key}` ({key}=os.cpu_count()) cannot be determined"
    assert explain_unchecked(tmp_path) == (message, f"set `{key}` to a plain value")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("axolotl train $1 --launcher torchrun", "axolotl is started with (`$1`)"),
        ('accelerate launch -m axolotl.cli.train "$DIR/$NAME.yaml"', "axolotl is started with (`$DIR/$NAME.yaml`)"),
        ("FORCE_TORCHRUN=1 llamafactory-cli train $1", "LLaMA-Factory is started with (`$1`)"),
        ('llamafactory-cli train "$@"', "LLaMA-Factory is started with (`$@`)"),
        ('trl sft --config "$CFG" --num_processes 4', "TRL is started with (`$CFG`)"),
        ("trl sft --config=$1", "TRL is started with (`$1`)"),
        ("axolotl inference $1", ""),
        ("llamafactory-cli chat $1", ""),
        ("trl chat --config $1", ""),
    ],
)
def test_a_file_that_only_the_start_names(tmp_path: Path, command: str, named: str) -> None:
    """Report it at the command, unless the repository has files of the framework, which are checked."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
    (tmp_path / "serve.yaml").write_text("base_model: x\nmodel_name_or_path: y\nserver: {port: 1}\n")
    expected = [f"run not checked: the file that {named} cannot be determined"] if named else []
    assert [finding.message for finding in lint(tmp_path).findings] == expected
    if "axolotl" in command:
        (tmp_path / "a.yaml").write_text(AXOLOTL)
        assert "CHK005" not in {finding.code for finding in lint(tmp_path).findings}


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("axolotl train ./Configs/a.yaml", True),
        ("axolotl train configs/a.yaml", False),
        ("mkdir Configs && cp configs/a.yaml Configs && axolotl train Configs/a.yaml", False),
        ("axolotl train /data/a.yaml", False),
    ],
)
def test_a_folder_in_another_case(tmp_path: Path, command: str, named: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").write_text(AXOLOTL)
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
    message = "run not checked: `Configs/a.yaml` was not found; the repository has it as `configs/a.yaml`"
    messages = [finding.message for finding in lint(tmp_path).findings if finding.code == "CHK004"]
    assert messages == ([message] if named else [])


def test_a_program_in_a_folder_of_another_case(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts").mkdir()
    program = "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen2.5-7B', SFTConfig('out'))\n"
    (tmp_path / "scripts/train.py").write_text(program)
    (tmp_path / "scripts/plot.py").write_text("import matplotlib\n")
    (tmp_path / "run.sh").write_text("#!/bin/bash\npython Scripts/plot.py\ntorchrun Scripts/train.py\n")
    message = "run not checked: `Scripts/train.py` was not found; the repository has it as `scripts/train.py`"
    assert [finding.message for finding in lint(tmp_path).findings if finding.code == "CHK004"] == [message]
