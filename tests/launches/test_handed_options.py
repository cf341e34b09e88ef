"""Options that a launch lays over a file: under conditions, with defaults, and as arguments of the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, lint, list_runs

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
output_dir: out
per_device_train_batch_size: 64
"""


def read_micro_batch(root: Path, text: str, scripts: dict[str, str]) -> tuple[object, str]:
    """Return the micro batch of a file next to some scripts, and the assumption behind it."""
    (root / ".git").mkdir(exist_ok=True)
    for name, content in {"run.yaml": text, **scripts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    [run] = list_runs(root)
    origin = run.get_origin("batch.micro")
    assert origin is not None
    return run.plan.batch.micro, origin.assumption


@pytest.mark.parametrize(
    ("script", "size"),
    [
        ("EXTRA=''\nif [ $1 ]; then EXTRA='--micro-batch-size 7'; fi\naxolotl train run.yaml $EXTRA\n", None),
        (
            "if [ $1 ]; then E='--micro-batch-size 7'; else E='--micro_batch_size=9'; fi\naxolotl train run.yaml $E\n",
            None,
        ),
        ("E=()\n[ $1 ] && E+=(--micro-batch-size 7)\naxolotl train run.yaml ${E[@]}\n", None),
        ("E=()\n[ $1 ] && E+=(--micro-batch-size 7)\naxolotl train run.yaml ${E[@]} --micro-batch-size 5\n", 5),
        ("E=()\n[ $1 ] && E+=(--lora-r 7)\naxolotl train run.yaml ${E[@]} --micro-batch-size 5\n", 5),
        ("if true; then E='--micro-batch-size 7'; fi\naxolotl train run.yaml $E\n", 7),
    ],
)
def test_an_option_that_is_given_under_a_condition_leaves_the_setting_unknown(
    tmp_path: Path, script: str, size: int | None
) -> None:
    assert read_micro_batch(tmp_path, AXOLOTL, {"run.sh": script})[0] == size


def test_settings_under_a_condition(tmp_path: Path) -> None:
    script = "E=\n[ $1 ] && E='per_device_train_batch_size=1'\nllamafactory-cli train run.yaml $E\n"
    assert read_micro_batch(tmp_path, LLAMAFACTORY, {"run.sh": script})[0] is None


@pytest.mark.parametrize("option", ["--micro-batch-size ${MB:-64}", "--micro_batch_size=${MB:-64}"])
def test_the_default_of_an_option_is_assumed(tmp_path: Path, option: str) -> None:
    size, note = read_micro_batch(tmp_path, AXOLOTL, {"run.sh": f"axolotl train run.yaml {option}\n"})
    assert size == 64
    assert "MB" in note


WRAPPER = 'export FORCE_TORCHRUN=1\nllamafactory-cli train run.yaml "$@"\n'


@pytest.mark.parametrize(
    ("callers", "size"),
    [
        ({}, 64),
        ({"sweep.sh": "bash run.sh per_device_train_batch_size=1\n"}, 1),
        ({"sweep.sh": "sbatch -N 2 run.sh learning_rate=1e-5 per_device_train_batch_size=1\n"}, 1),
        ({"sweep.sh": "for lr in 1 2; do ./run.sh learning_rate=$lr per_device_train_batch_size=2; done\n"}, 2),
        ({"a.sh": "bash run.sh per_device_train_batch_size=1\n", "b.sh": "bash run.sh\n"}, 64),
        (
            {
                "a.sh": "bash run.sh per_device_train_batch_size=1\n",
                "b/b.sh": "../run.sh per_device_train_batch_size=2\n",
            },
            None,
        ),
        ({"sweep.sh": "bash other.sh per_device_train_batch_size=1\n"}, 64),
    ],
)
def test_arguments_of_a_script_that_hands_them_on(tmp_path: Path, callers: dict[str, str], size: int | None) -> None:
    assert read_micro_batch(tmp_path, LLAMAFACTORY, {"run.sh": WRAPPER, **callers})[0] == size


def test_arguments_of_a_script_that_does_not_hand_them_on(tmp_path: Path) -> None:
    scripts = {"run.sh": WRAPPER.replace(' "$@"', ""), "sweep.sh": "bash run.sh per_device_train_batch_size=1\n"}
    assert read_micro_batch(tmp_path, LLAMAFACTORY, scripts)[0] == 64


OPENRLHF = """\
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --dataset x/y --train_batch_size 128 \\
   --micro_train_batch_size 64 "$@"
"""
COMMAND = """\
llamafactory-cli train --stage sft --do_train --model_name_or_path Qwen/Qwen2.5-7B --dataset identity \\
   --template qwen --finetuning_type lora --output_dir out --per_device_train_batch_size 64 "$@"
"""
SCRIPT_CONFIGS = [(OPENRLHF, "--micro_train_batch_size"), (COMMAND, "--per_device_train_batch_size")]


@pytest.mark.parametrize(("text", "option"), SCRIPT_CONFIGS, ids=["openrlhf", "llamafactory"])
@pytest.mark.parametrize(
    ("callers", "size"),
    [
        ({}, 64),
        ({"sweep.sh": "bash run.sh OPTION 1\n"}, 1),
        ({"sweep.sh": "bash run.sh OPTION=1\n"}, 1),
        ({"sweep.sh": "sbatch -N 2 run.sh --learning_rate 1e-5 OPTION 1\n"}, 1),
        ({"sweep.sh": "for size in 1 2; do ./run.sh OPTION $size; done\n"}, None),
        ({"a.sh": "bash run.sh OPTION 1\n", "b.sh": "bash run.sh\n"}, 64),
        ({"a.sh": "bash run.sh OPTION 1\n", "b/b.sh": "../run.sh OPTION 2\n"}, None),
        ({"sweep.sh": "bash other.sh OPTION 1\n"}, 64),
    ],
)
def test_what_callers_add_to_a_script_that_is_the_configuration(
    tmp_path: Path, text: str, option: str, callers: dict[str, str], size: int | None
) -> None:
    scripts = {name: content.replace("OPTION", option) for name, content in callers.items()}
    assert read_script_micro_batch(tmp_path, text, scripts) == size


@pytest.mark.parametrize(("text", "option"), SCRIPT_CONFIGS, ids=["openrlhf", "llamafactory"])
def test_arguments_that_the_command_does_not_get(tmp_path: Path, text: str, option: str) -> None:
    scripts = {"sweep.sh": f"bash run.sh {option} 1\n"}
    assert read_script_micro_batch(tmp_path / "a", text.replace(' "$@"', ""), scripts) == 64
    launched = "torchrun $@ " + text.replace(' "$@"', "").replace("deepspeed --module", "-m")
    assert read_script_micro_batch(tmp_path / "b", launched, scripts) == 64


def read_script_micro_batch(root: Path, text: str, scripts: dict[str, str]) -> object:
    """Return the micro batch of a script that is itself the configuration."""
    (root / ".git").mkdir(parents=True)
    for name, content in {"run.sh": text, **scripts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    [run] = list_runs(root)
    return run.plan.batch.micro


def test_what_the_command_line_states_wins_over_a_caller(tmp_path: Path) -> None:
    read_script_micro_batch(tmp_path, OPENRLHF, {"sweep.sh": "bash run.sh --micro_train_batch_size 1\n"})
    command_line = build_options().command_line._replace(settings=("micro_train_batch_size=2",))
    chosen = build_options()._replace(command_line=command_line)
    [run] = lint(tmp_path, chosen).runs
    assert run.plan.batch.micro == 2


@pytest.mark.parametrize(
    ("scripts", "where"),
    [
        ({"run.sh": "axolotl train run.yaml --micro-batch-size $MB\n"}, "run.sh"),
        (
            {f"{name}.sh": f"axolotl train run.yaml --micro-batch-size {len(name)}\n" for name in ("a", "bb")},
            "a.sh and bb.sh differ",
        ),
        (
            {f"{name}/go.sh": f"axolotl train ../run.yaml --micro-batch-size {len(name)}\n" for name in ("a", "bb")},
            "launches in go.sh differ",
        ),
    ],
)
def test_a_value_that_is_open_in_the_launch_is_said_there(tmp_path: Path, scripts: dict[str, str], where: str) -> None:
    assert read_micro_batch(tmp_path, AXOLOTL, scripts)[0] is None
    (finding,) = [item for item in lint(tmp_path).findings if item.code == "CHK001"]
    assert finding.message.endswith(f"the value of `micro_batch_size` in the launch ({where}) cannot be determined")
    assert finding.help == "write a plain value there, or pass `--set micro_batch_size=VALUE`"


@pytest.mark.parametrize(
    "script",
    [
        "llamafactory-cli train run.yaml deepspeed=$DS learning_rate=$LR\n",
        "declare -A DS=([a]=x)\nllamafactory-cli train run.yaml deepspeed=${DS[$1]}\n",
    ],
)
def test_a_companion_that_is_open_in_the_launch_is_said_there(tmp_path: Path, script: str) -> None:
    read_micro_batch(tmp_path, LLAMAFACTORY, {"run.sh": f"export FORCE_TORCHRUN=1\n{script}"})
    (finding,) = [item for item in lint(tmp_path).findings if item.code == "CHK001"]
    assert finding.message.endswith("the file of `deepspeed` in the launch (run.sh) cannot be determined")
    assert finding.help == "write its path there, or pass `--set deepspeed=FILE`"
