"""Axes of `--what-if`: the GPU as an axis, and files after the axes."""

from __future__ import annotations

import json

import pytest

from tests.support.command import run_cfglint
from tests.support.linting import FIXTURES, isolate_folder

HERE = FIXTURES / "rules" / "MEM001" / "fires"
CONFIG = "axolotl.yaml"


def test_the_gpu_is_an_axis_and_the_file_may_stand_behind_it():
    cells = {}
    for arguments in (("--what-if", "gpu=A100-40GB,H200", CONFIG), (CONFIG, "--what-if", "gpu=A100-40GB,H200")):
        outcome = run_cfglint("estimate", "--format", "json", *arguments, cwd=isolate_folder(HERE))
        assert outcome.code == 0, outcome.err
        (run,) = json.loads(outcome.out)["runs"]
        cells[arguments] = run["what_if"]
    first, second = cells.values()
    assert first == second
    assert [cell["changes"] for cell in first] == [{"gpu": "A100-40GB"}, {"gpu": "H200"}]
    for cell in first:
        single = run_cfglint(
            "estimate", "--format", "json", "--gpu", cell["changes"]["gpu"], CONFIG, cwd=isolate_folder(HERE)
        )
        phases = json.loads(single.out)["runs"][0]["phases"]
        (phase,) = (phase for phase in phases if phase["name"] == cell["phase"])
        assert (phase["gpu"]["expected"], phase["gpu"]["verdict"]) == (cell["expected"], cell["verdict"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gpus=H100", "did you mean gpu?"),
        ("gpu=H1000", "unknown GPU 'H1000'"),
        ("micro_bach=1", "did you mean micro_batch?"),
        ("checkpointing=ful", "activations.checkpointing must be one of none, full, "),
        (
            "attention=flsh,eager",
            "--what-if attention=flsh,eager: unknown value 'flsh' of activations.attention; did you",
        ),
        ("optimizer.name=quux", "unknown value 'quux' of optimizer.name; known: adafactor, adagrad, "),
        ("quantization=nf5", "did you mean nf4?"),
        ("micro_batch=0,1", "--what-if micro_batch=0,1: batch.micro must be at least 1"),
        ("model.id=Qwen/Qwen2.5-7B", "model.id cannot be an axis: it is free text, which does not affect the estimate"),
    ],
)
def test_an_axis_that_is_none(word, said):
    outcome = run_cfglint("estimate", CONFIG, "--what-if", word, cwd=isolate_folder(HERE))
    assert outcome.code == 2
    assert said in outcome.err


def test_words_of_text_fields_that_an_estimate_knows():
    outcome = run_cfglint(
        "estimate", CONFIG, "--what-if", "attention=eager,flash", "method.stage=sft,dpo", cwd=isolate_folder(HERE)
    )
    assert outcome.code == 0, outcome.err
    assert "has no effect" not in outcome.out


def test_an_axis_without_effect_is_named_in_the_page():
    axes = ("data.workers=0,8", "micro_batch=1,2")
    outcome = run_cfglint("estimate", "--format", "html", "--what-if", *axes, CONFIG, cwd=isolate_folder(HERE))
    assert outcome.code == 0, outcome.err
    assert "<code>data.workers</code> has no effect on this estimate." in outcome.out
    assert "<code>micro batch</code> has no effect" not in outcome.out


def test_a_page_has_the_gpu_axis():
    outcome = run_cfglint(
        "estimate",
        "--format",
        "html",
        "--what-if",
        "gpu=80GB,H200",
        "micro_batch=1,2",
        CONFIG,
        cwd=isolate_folder(HERE),
    )
    assert outcome.code == 0, outcome.err


EVALUATES = isolate_folder(FIXTURES / "rules" / "MEM011" / "fires")


def run_grid(*axes: str, file: str = "llamafactory.yaml") -> tuple[list[dict], list[str]]:
    outcome = run_cfglint("estimate", "--gpu", "H100", "--format", "json", "--what-if", *axes, file, cwd=EVALUATES)
    assert outcome.code == 0, outcome.err
    (run,) = json.loads(outcome.out)["runs"]
    return run["what_if"], run["without_effect"]


def test_an_evaluation_that_is_worse_than_the_step_is_in_its_cell():
    cells, idle = run_grid("batch.eval_micro=1,8", "micro_batch=1,2")
    assert idle == []
    assert [cell["phase"] for cell in cells][-2:] == ["eval", "eval"]
    assert cells[-1]["verdict"] == "does not fit"
    text = run_cfglint(
        "estimate", "--gpu", "H100", "--what-if", "micro_batch=1,2", "llamafactory.yaml", cwd=EVALUATES
    ).out
    assert " GiB fits; evaluation " in text
    assert "no effect" not in text


def test_a_run_without_evaluation_has_none_in_its_grid():
    off = "eval.enabled=no"
    _, idle = run_grid(off, "batch.eval_micro=1,8")
    assert idle == ["batch.eval_micro"]
    cells, _ = run_grid(off, "micro_batch=1,2")
    assert {cell["phase"] for cell in cells}.isdisjoint({"eval"})
