"""LLaMA-Factory configurations that a Python program or a notebook builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.findings.finding import Finding
from tests.documents.test_notebooks import build_notebook
from tests.support.linting import build_options, fix, lint

SETTINGS = """\
args = dict(
    stage="sft",
    do_train=True,
    model_name_or_path="Qwen/Qwen2.5-0.5B",
    dataset="identity",
    template="qwen",
    finetuning_type="lora",
    output_dir="out",
    bf16=True,
    save_step=100,
)
"""
WRITES = 'import json\njson.dump(args, open("train.json", "w", encoding="utf-8"), indent=2)\n'
RUNS = "from llamafactory.train.tuner import run_exp\nrun_exp(args)\n"
COMMAND = 'import subprocess\nsubprocess.run(["llamafactory-cli", "train", "train.json"], check=True)\n'


def list_findings(folder: Path, name: str, text: str) -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return list(lint(folder, build_options(select=["KEY", "CHK"])).findings)


@pytest.mark.parametrize(
    "text",
    [
        SETTINGS + RUNS,
        SETTINGS + WRITES + COMMAND,
        "def main():\n    " + (SETTINGS + RUNS).replace("\n", "\n    ") + "\n",
        "import yaml\n" + SETTINGS + 'with open("train.yaml", "w") as file:\n    yaml.dump(args, file)\n'
        'import os\nos.system("llamafactory-cli train train.yaml")\n',
    ],
    ids=["run_exp", "file", "function", "yaml"],
)
def test_a_program_is_checked(tmp_path: Path, text: str) -> None:
    findings = [item for item in list_findings(tmp_path, "run.py", text) if item.code == "KEY001"]
    assert [(item.path, item.severity, item.message[:39]) for item in findings] == [
        ("run.py", "error", "LLaMA-Factory has no `save_step`: it is")
    ]


def test_a_program_that_imports_a_module_of_its_repository_is_checked(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text('MODEL = "Qwen/Qwen2.5-0.5B"\n', encoding="utf-8")
    text = "from common import MODEL\n" + SETTINGS.replace('"Qwen/Qwen2.5-0.5B"', "MODEL") + RUNS
    assert [item.code for item in list_findings(tmp_path, "run.py", text)] == ["KEY001"]


def test_a_key_is_renamed_in_the_program(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.py").write_text(SETTINGS + RUNS, encoding="utf-8")
    outcome = fix(tmp_path, build_options(select=["KEY001"]))
    assert outcome.sources["run.py"].decode() == (SETTINGS + RUNS).replace("save_step=", "save_steps=")


def test_the_cells_of_a_notebook_are_checked(tmp_path: Path) -> None:
    text = build_notebook(
        "!git clone https://github.com/hiyouga/LLaMA-Factory", SETTINGS + WRITES + "!llamafactory-cli train train.json"
    )
    assert [item.code for item in list_findings(tmp_path, "a.ipynb", text)] == ["KEY001"]


def test_results_of_calls_are_unknown(tmp_path: Path) -> None:
    text = "settings = load()\n" + SETTINGS.replace('"qwen"', 'settings.get("template")').replace(
        "save_step=", "save_steps="
    )
    assert [item.code for item in list_findings(tmp_path, "run.py", text + RUNS)] == []


@pytest.mark.parametrize(
    "text",
    [
        SETTINGS + 'args["save_steps"] = args.pop("save_step")\n' + RUNS,
        SETTINGS + "args.update(read_more())\n" + RUNS,
        SETTINGS + WRITES,
        SETTINGS + "print('llamafactory-cli')\n",
    ],
    ids=["renamed", "unknown keys", "not started", "not written"],
)
def test_other_programs_have_no_finding(tmp_path: Path, text: str) -> None:
    assert not list_findings(tmp_path, "run.py", text)
