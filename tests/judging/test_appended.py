"""Arguments that a launch may add later (`"$@"`, `$EXTRA_ARGS`): findings about missing ones are assumptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.findings.finding import Finding
from tests.support.linting import lint

SFT = (
    "deepspeed --num_nodes 1 --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset x/y "
    "--save_path out --max_len 512 --train_batch_size 100 --micro_train_batch_size 2 {more}\n"
)
BEST = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
template: qwen
dataset: x
output_dir: out
load_best_model_at_end: true
save_strategy: steps
{more}
"""
APPENDED = ['"$@"', '"${@}"', "$EXTRA_ARGS", "$1"]


def lint_scripts(folder: Path, code: str, **scripts: str) -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text("openrlhf==0.8.5\nllamafactory==0.9.3\n", encoding="utf-8")
    for name, text in scripts.items():
        (folder / f"{name}.sh").write_text(text, encoding="utf-8")
    return [finding for finding in lint(folder).findings if finding.code == code]


@pytest.mark.parametrize("more", APPENDED)
def test_numbers_that_do_not_come_out_even_are_an_assumption(tmp_path: Path, more: str) -> None:
    (finding,) = lint_scripts(tmp_path, "BAT002", run=SFT.format(more=more))
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert any("run.sh:1 adds no option that changes this" in note for note in finding.notes)


def test_all_in_sight_is_certain(tmp_path: Path) -> None:
    (finding,) = lint_scripts(tmp_path, "BAT002", run=SFT.format(more=""))
    assert (finding.severity, finding.certainty) == ("error", "followed")


def test_what_another_script_of_the_repository_appends_is_in_sight(tmp_path: Path) -> None:
    calls = "bash run.sh --learning_rate 1e-5\n"
    (finding,) = lint_scripts(tmp_path, "BAT002", run=SFT.format(more='"$@"'), start=calls)
    assert (finding.severity, finding.certainty) == ("error", "followed")


def test_what_is_refused_whatever_follows_stays_an_error(tmp_path: Path) -> None:
    (finding,) = lint_scripts(tmp_path, "KEY001", run=SFT.format(more='--no_such_flag 1 "$@"'))
    assert (finding.severity, finding.certainty) == ("error", "stated")


@pytest.mark.parametrize(("more", "expected"), [("", "error"), (' "$@"', "warning")])
def test_what_is_missing_may_be_appended(tmp_path: Path, more: str, expected: str) -> None:
    (tmp_path / "run.yaml").write_text(BEST.format(more=""), encoding="utf-8")
    (finding,) = lint_scripts(tmp_path, "KEY006", run=f"llamafactory-cli train run.yaml{more}\n")
    assert finding.severity == expected


def test_one_launch_with_all_in_sight_is_enough(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(BEST.format(more=""), encoding="utf-8")
    complete = "llamafactory-cli train run.yaml\n"
    (finding,) = lint_scripts(tmp_path, "KEY006", run=complete, other=f'{complete[:-1]} "$@"\n')
    assert finding.severity == "error"
