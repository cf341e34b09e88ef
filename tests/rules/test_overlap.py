"""Defect of DeepSpeed's overlapped reduction (KEY006): affected settings, releases and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.linting import lint

# Settings beside `overlap_comm: true`, the release, and whether the defect is reported.
SECTIONS = {
    "stage 2": ({"stage": 2}, "0.14.0", True),
    "stage 1": ({"stage": 1}, "0.14.0", True),
    "stage 1 of a release that ignores it": ({"stage": 1}, "0.12.5", False),
    "stage 2 of that release": ({"stage": 2}, "0.12.5", True),
    "mended": ({"stage": 2}, "0.17.5", False),
    "gradients of their own": ({"stage": 2, "contiguous_gradients": False}, "0.14.0", False),
    "offloading, which makes them contiguous": (
        {"stage": 2, "contiguous_gradients": False, "offload_optimizer": {"device": "cpu"}},
        "0.14.0",
        True,
    ),
}


def is_reported(folder: Path, section: dict[str, object], release: str, *programs: str) -> bool:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text(f"deepspeed=={release}\n", encoding="utf-8")
    content = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {**section, "overlap_comm": True}}
    (folder / "ds.json").write_text(json.dumps(content), encoding="utf-8")
    for name in programs:
        (folder / f"run_{name}.sh").write_text(f"deepspeed {name} --deepspeed ds.json\n", encoding="utf-8")
    return any(finding.code == "KEY006" and "overlap_comm" in finding.message for finding in lint(folder).findings)


@pytest.mark.parametrize("name", SECTIONS)
def test_where_the_defect_is(tmp_path: Path, name: str) -> None:
    section, release, expected = SECTIONS[name]
    assert is_reported(tmp_path, section, release, "train.py") is expected


def test_a_file_that_nothing_uses(tmp_path: Path) -> None:
    assert not is_reported(tmp_path, {"stage": 2}, "0.14.0")


@pytest.mark.parametrize(("name", "expected"), [("ds.json", True), ("other.json", False)])
def test_a_file_that_a_program_names(tmp_path: Path, name: str, expected: bool) -> None:
    program = f'import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config="{name}")\n'
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    assert is_reported(tmp_path, {"stage": 2}, "0.14.0") is expected


@pytest.mark.parametrize(
    ("programs", "expected"), [(("evaluate.py",), False), (("train.py",), True), (("evaluate.py", "train.py"), True)]
)
def test_a_file_that_only_programs_are_given_which_evaluate(
    tmp_path: Path, programs: tuple[str, ...], expected: bool
) -> None:
    assert is_reported(tmp_path, {"stage": 2}, "0.14.0", *programs) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("llamafactory-cli train sft.yaml", True),
        ("torchrun src/train.py sft.yaml", True),
        ("llamafactory-cli export sft.yaml", False),
    ],
)
def test_a_file_that_a_framework_has_a_command_for(tmp_path: Path, command: str, expected: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("deepspeed==0.14.0\n", encoding="utf-8")
    recipe = "model_name_or_path: m\nstage: sft\ndo_train: true\ntemplate: qwen\nfinetuning_type: lora\n"
    inline = "deepspeed: {zero_optimization: {stage: 2, overlap_comm: true}}\n"
    (tmp_path / "sft.yaml").write_text(recipe + inline, encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"{command}\n", encoding="utf-8")
    findings = [
        finding for finding in lint(tmp_path).findings if finding.code == "KEY006" and "overlap_comm" in finding.message
    ]
    assert bool(findings) is expected
