"""Runs started by Makefiles, justfiles and YAML jobs that cfglint does not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import lint

OPTIONS = "openrlhf.cli.train_sft --pretrain m --zero_stage 3"
UNKNOWN = "the file that axolotl is started with (`{}`) cannot be determined"
STARTS = {
    "Makefile": ("train:\n\taxolotl train $(CONFIG)\n", 2, UNKNOWN.format("${CONFIG}")),
    "rules.mk": ("train:\n\taxolotl train cfg/b.yml\n", 2, "axolotl is started with `cfg/b.yml`, which was not found"),
    "justfile": (
        f"train:\n    deepspeed --module {OPTIONS}\n",
        2,
        "the options of `openrlhf.cli.train_sft` are read in shell scripts only",
    ),
    "sky.yaml": (
        f"resources: {{accelerators: H100:8}}\nrun: |\n  torchrun -m {OPTIONS}\n",
        3,
        "the options of `openrlhf.cli.train_sft` are read in shell scripts only",
    ),
    "job.yaml": (
        'spec:\n  containers:\n  - command: ["bash", "-c"]\n    args: ["axolotl train $CONFIG"]\n',
        4,
        UNKNOWN.format("$CONFIG"),
    ),
    "docker-compose.yml": (
        "services:\n  train:\n    command: deepspeed own.py --model_name_or_path m --learning_rate 1e-5\n",
        3,
        "nothing that cfglint reads is in `own.py`",
    ),
}
OTHERS = {
    "Makefile": "test:\n\tpython plot.py\n\taxolotl inference $(CONFIG)\nhelp:\n\t@echo axolotl\n",
    "job.yaml": "run: |\n  python serve.py --model m\n",
    ".github/workflows/ci.yml": "jobs:\n  a:\n    steps:\n    - run: axolotl train $CONFIG\n",
    "notes.yaml": "text: axolotl train $CONFIG\n",
    "tests/job.yaml": "run: axolotl train $CONFIG\n",
}


@pytest.mark.parametrize("name", STARTS)
def test_a_run_is_named_where_it_is_started(tmp_path: Path, name: str) -> None:
    text, line, message = STARTS[name]
    (tmp_path / ".git").mkdir()
    (tmp_path / "own.py").write_text("import mine\nmine.train()\n")
    (tmp_path / name).write_text(text)
    findings = [(finding.path, finding.start.line, finding.message) for finding in lint(tmp_path).findings]
    assert findings == [(name, line, f"run not checked: {message}")]


@pytest.mark.parametrize("name", OTHERS)
def test_what_trains_nothing_is_not_named(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(OTHERS[name])
    assert not lint(tmp_path).findings


def test_files_of_the_framework_are_checked_themselves(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yml").write_text(AXOLOTL)
    (tmp_path / "Makefile").write_text(STARTS["Makefile"][0])
    assert "CHK005" not in {finding.code for finding in lint(tmp_path).findings}


def test_a_script_without_an_extension_is_one(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train").write_text(f"#!/bin/bash\ndeepspeed --module {OPTIONS}\n")
    assert not [finding for finding in lint(tmp_path).findings if finding.code == "CHK005"]


def test_a_file_of_unknown_name_is_named_once_in_a_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    recipe = "\taxolotl train $(CONFIG)\n\taxolotl train $(OTHER)\n"
    (tmp_path / "Makefile").write_text(f"a:\n{recipe}b:\n{recipe}")
    findings = [(finding.start.line, finding.message) for finding in lint(tmp_path).findings]
    named = ((2, "${CONFIG}"), (3, "${OTHER}"))
    assert findings == [(line, f"run not checked: {UNKNOWN.format(text)}") for line, text in named]
