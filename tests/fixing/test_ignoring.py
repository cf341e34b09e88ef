"""`--add-ignore`: a comment at every finding, in each syntax, that silences it and changes nothing else."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cfglint_train.repository.files import detect_syntax, parse_commented
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, TWICE
from tests.support.corpus import REPOSITORY

RULES = REPOSITORY / "fixtures" / "rules"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def lint_to_json(here: Path, *flags: str) -> tuple[int, list[tuple[str, str, str]], str]:
    """Return the exit code, the findings with their parts, and standard error."""
    outcome = run_cfglint("--output-format", "json", *flags, cwd=here)
    findings = [
        (finding["path"], code, finding["message"])
        for finding in json.loads(outcome.out)["findings"]
        for code in (finding["code"], *finding["also"])
    ]
    return outcome.code, findings, outcome.err


def read_files(here: Path) -> dict[str, bytes]:
    return {str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()}


COMMENT = re.compile(
    rb"(?m)^[ \t]*(?:# |<!-- )cfglint: (?:file-)?ignore\[[^\]]*\](?: -->)?\r?\n|  # cfglint: ignore\[[^\]]*\](?=\r?$)"
)


def add_ignores_twice(here: Path, *flags: str) -> list[tuple[str, str, str]]:
    """Ignore all findings twice, check the laws, and return the findings that remain.

    The second time leaves the same findings as the first, and only comments change.
    """
    before = read_files(here)
    code, remaining, _ = lint_to_json(here, "--add-ignore", *flags)
    after = read_files(here)
    assert {path: COMMENT.sub(b"", text) for path, text in after.items()} == {
        path: COMMENT.sub(b"", text) for path, text in before.items()
    }
    assert lint_to_json(here, "--add-ignore", *flags)[:2] == (code, remaining)
    assert read_files(here) == after
    return remaining


@pytest.mark.parametrize("name", sorted(path.name for path in RULES.iterdir()))
def test_what_fires_is_silent_afterwards(here, name):
    """Silence every rule; if no comment can, the printed settings do."""
    shutil.copytree(RULES / name / "fires", here, dirs_exist_ok=True)
    assert name in {code for _, code, _ in lint_to_json(here)[1]} or name in ("HSE001",)
    remaining = add_ignores_twice(here)
    open_ = [item for item in remaining if item[1] != "SYN005"]
    unreadable = [item for item in open_ if not item[0].endswith(".json")]
    assert {code for _, code, _ in unreadable} <= {"SYN001", "SYN002", "SYN008", "KEY006"}  # KEY006 may cover CHK001
    if open_:
        lines = lint_to_json(here, "--add-ignore")[2].splitlines()
        table = lines[lines.index("[per-file-ignores]") :]
        settings = here / "cfglint.toml"
        settings.write_text((settings.read_text() if settings.exists() else "") + "\n".join(table) + "\n")
        code, remaining, output = lint_to_json(here)
        for path, revealed, _ in remaining:  # a finding that the silenced one covered
            if revealed in ("CKP003", "CHK001"):
                settings.write_text(settings.read_text().replace(f'"{path}" = [', f'"{path}" = ["{revealed}", '))
                code, remaining, output = lint_to_json(here)
        assert [item for item in remaining if item[1] != "SYN005"] == []
        assert code == (1 if remaining else 0), output


CONFIG = "configs/run.yaml"
MISSING = "axolotl train cfg/gone.yaml"
OWN = "deepspeed own.py --model_name_or_path m --learning_rate 1e-5"
SERVED = "accelerate launch --num_processes 4 -m axolotl.cli.train configs/gone.yaml"
PINNED = "trl==0.12.0\ntransformers==4.40.0"
KINDS = {
    "shell": ("run.sh", f"#!/bin/bash\nset -e\n{MISSING} \\\n  --x 1\n"),
    "shell, first line": ("run.sh", f"{OWN}\n"),
    "shell, no line end": ("run.sh", f"#!/bin/bash\n{OWN}"),
    "shell, a job": ("run.sbatch", f"#!/bin/bash\n#SBATCH --nodes=2\n{OWN}\n"),
    "shell, Windows": ("run.sh", f"#!/bin/bash\r\n{OWN}\r\n"),
    "Makefile": ("Makefile", f"N = 4\n\ntrain: data\n\t@echo a\n\t{OWN} \\\n\t  --x 1\n\ndata:\n\techo b\n"),
    "Makefile to include": ("train.mk", f"train:\n\t{MISSING}\n"),
    "justfile": ("justfile", f"n := '4'\n\ntrain:\n    echo a\n    {OWN}\n"),
    "SkyPilot": ("sky.yaml", f"resources:\n  accelerators: A100:4\nrun: |\n  echo a\n  {OWN}\n"),
    "SkyPilot, folded": ("sky.yaml", f"resources:\n  accelerators: A100:4\nrun: >-\n  {OWN}\n"),
    "dstack": ("task.dstack.yml", f"type: task\ncommands:\n  - pip install x\n  - {OWN}\n"),
    "Kubernetes": (
        "k8s/job.yaml",
        f"kind: ConfigMap\n---\nkind: Job\nspec:\n  - command: [bash, -c]\n    args:\n      - |\n        {OWN}\n",
    ),
    "Python": ("start.py", f'import subprocess\nsubprocess.run("{OWN}".split())\n'),
    "Python, a text": ("start.py", f'import subprocess\nsubprocess.run("""\necho a\n{OWN}\n""", shell=True)\n'),
    "Python, an encoding": (
        "start.py",
        f'#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nimport os\nos.system("{OWN}")\n',
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_not_read_is_silent_in_every_kind_of_file(here, kind):
    name, text = KINDS[kind]
    (here / name).parent.mkdir(exist_ok=True)
    (here / name).write_bytes(text.encode())
    (here / "own.py").write_text("import mine\nmine.train()\n")
    assert {(path, code[:3]) for path, code, _ in lint_to_json(here)[1]} == {(name, "CHK")}
    assert add_ignores_twice(here) == []
    syntax = detect_syntax(name, text.encode())
    if syntax == "python":
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse((here / name).read_bytes()))
    if syntax == "yaml":
        assert list(yaml.safe_load_all(text)) == list(yaml.safe_load_all((here / name).read_bytes()))
    if name in ("Makefile", "train.mk"):
        plans = [
            subprocess.run(
                ["make", "-n", "-f", "-", "train"], input=source, capture_output=True, cwd=here, check=True
            ).stdout
            for source in (text.encode(), (here / name).read_bytes())
        ]
        assert plans[0] == plans[1]


def test_a_makefile_comment_may_be_written_by_hand(here):
    (here / "own.py").write_text("import mine\nmine.train()\n")
    (here / "Makefile").write_text(f"train:\n\t{OWN}  # cfglint: ignore[CHK005]\n")
    assert lint_to_json(here)[:2] == (0, [])


def test_a_notebook_has_no_comments(here):
    cell = {"cell_type": "code", "source": [f"!{MISSING}"], "outputs": []}
    (here / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    before = read_files(here)
    code, remaining, output = lint_to_json(here, "--add-ignore")
    assert [(path, code) for path, code, _ in remaining] == [("a.ipynb", "CHK004")]
    assert output.splitlines() == [
        "a notebook has no comments: to ignore these findings, add to cfglint.toml "
        "(in pyproject.toml: [tool.cfglint.per-file-ignores]):",
        "[per-file-ignores]",
        '"a.ipynb" = ["CHK004"]',
    ]
    assert (code, read_files(here)) == (lint_to_json(here)[0], before)
    (here / "cfglint.toml").write_text("\n".join(output.splitlines()[1:]) + "\n")
    assert lint_to_json(here)[:2] == (0, [])


A, B = "llamafactory==0.9.5", "transformers==4.45.2"
PINS = {
    "requirements.txt": f"# pins\n{A}\n{B} \\\n  --hash=sha256:0\n",
    "pyproject.toml": f'[project]\nname = "x"\nversion = "1"\ndependencies = [\n  "{A}",\n  "{B}",\n]\n',
    "setup.cfg": f"[options]\ninstall_requires =\n    {A}\n    {B}\n",
    "setup.py": f'from setuptools import setup\nsetup(install_requires=["{A}",\n  "{B}"])\n',
    "environment.yml": f"dependencies:\n  - pip:\n      - {A}\n      - {B}\n",
    "Dockerfile": f"# syntax=docker/dockerfile:1\nFROM x\nRUN pip install \\\n  {A} {B}\n",
}


@pytest.mark.parametrize("name", PINS)
def test_requirement_files_of_every_kind(here, name):
    shutil.copyfile(RULES / "REL003" / "fires" / "exact" / "sft.yaml", here / "sft.yaml")
    (here / name).write_text(PINS[name])
    paths = [path for path, code, _ in lint_to_json(here, "--select", "REL003")[1] if code == "REL003"]
    assert paths == [name]
    assert add_ignores_twice(here, "--select", "REL003") == []


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "pylock.gpu.toml", "conda-lock.yml", "requirements.lock"])
def test_lock_files_are_written_by_programs(name):
    assert parse_commented(name, b"a: 1\n") is None


def test_a_read_me_file_gets_a_comment_above_its_block(here):
    case = REPOSITORY / "fixtures/acceptance/launchers/job-script-beside-another-example"
    shutil.copytree(case, here, dirs_exist_ok=True)
    assert "README.md" in {path for path, _, _ in lint_to_json(here)[1]}
    assert add_ignores_twice(here) == []
    assert "<!-- cfglint: ignore[KEY006] -->\n```sh\naccelerate launch" in (here / "README.md").read_text()


def test_more_lines_than_comments_that_count(here):
    from cfglint_train.judging.dispatch import MAX_SUPPRESSIONS

    runs = [
        f"deepspeed own{number}.py --model_name_or_path m --learning_rate 1e-5\n"
        for number in range(MAX_SUPPRESSIONS + 1)
    ]
    (here / "run.sh").write_text("#!/bin/bash\n" + "".join(runs))
    assert len(lint_to_json(here)[1]) == len(runs)
    assert add_ignores_twice(here) == []
    assert (here / "run.sh").read_text() == "#!/bin/bash\n# cfglint: file-ignore[CHK005]\n" + "".join(runs)


def test_a_limit_can_be_ignored_by_comment_and_by_settings(here):
    from cfglint_train.judging.dispatch import MAX_SUPPRESSIONS

    idle = "".join(f"# cfglint: ignore[SEC001] {number}\n" for number in range(MAX_SUPPRESSIONS + 1))
    (here / "config.yaml").write_text(AXOLOTL + idle)
    assert lint_to_json(here, "--select", "SYN008")[0] == 2
    (here / "config.yaml").write_text("# cfglint: file-ignore[SYN008]\n" + AXOLOTL + idle)
    assert lint_to_json(here, "--select", "SYN008")[:2] == (0, [])
    (here / "config.yaml").write_text(AXOLOTL + idle)
    (here / "cfglint.toml").write_text('[per-file-ignores]\n"config.yaml" = ["SYN008"]\n')
    assert lint_to_json(here, "--select", "SYN008")[:2] == (0, [])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_stay(here, ending, mark):
    text = mark + TWICE.replace("\n", ending)
    (here / "config.yaml").write_bytes(text.encode())
    assert run_cfglint("--select", "SYN003", "--add-ignore", cwd=here).code == 0
    after = (here / "config.yaml").read_bytes().decode()
    assert after.replace(f"# cfglint: ignore[SYN003]{ending}", "") == text


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_comment_above_a_last_line_without_an_end_takes_the_end_of_the_first(here, ending):
    first, last = "{base_model: x, datasets: [{path: a.jsonl, type: alpaca}], lora_r: 1,", "lora_r: 2}"
    (here / "config.yaml").write_bytes(f"{first}{ending}{last}".encode())
    run_cfglint("--select", "SYN003", "--add-ignore", cwd=here)
    expected = f"{first}{ending}# cfglint: ignore[SYN003]{ending}{last}"
    assert (here / "config.yaml").read_bytes() == expected.encode()


def test_a_comment_above_the_only_line_ends_as_lines_do(here):
    source = b"{base_model: x, datasets: [{path: a.jsonl, type: alpaca}], lora_r: 1, lora_r: 2}"
    (here / "config.yaml").write_bytes(source)
    run_cfglint("--select", "SYN003", "--add-ignore", cwd=here)
    assert (here / "config.yaml").read_bytes() == b"# cfglint: ignore[SYN003]\n" + source


def test_a_command_over_several_lines_gets_its_comment_above(here):
    for path in (path for path in RULES.glob("*/fires/*.sh") if b"\\\n" in path.read_bytes()):
        shutil.copyfile(path, here / f"{path.parents[1].name}-{path.name}")
    run_cfglint("--add-ignore", cwd=here)
    texts = [path.read_text() for path in here.glob("*.sh")]
    scripts = [text.splitlines() for text in texts if "cfglint: ignore" in text]
    assert len(scripts) > 2
    for lines in scripts:
        for before, line in zip(lines, lines[1:]):
            assert not ("cfglint: ignore" in line and before.endswith("\\"))


def test_json_is_ignored_in_the_settings(here):
    (here / "config.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (here / "ds.json").write_text(CONTRADICTED)
    outcome = run_cfglint("--select", "XFL001", "--add-ignore", cwd=here)
    assert outcome.code == 1
    assert (here / "ds.json").read_text() == CONTRADICTED
    lines = outcome.err.splitlines()
    table = lines[lines.index("[per-file-ignores]") :]
    assert table[1] == '"ds.json" = ["XFL001"]'
    (here / "cfglint.toml").write_text("\n".join(table))
    assert run_cfglint("--select", "XFL001", cwd=here).code == 0


@pytest.mark.parametrize("flags", [("--fix",), ("--diff",), ("--stdin-filename", "x.yaml"), ("-",)])
def test_it_only_writes_files_and_comments(here, flags):
    outcome = run_cfglint("--add-ignore", *flags, cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--add-ignore cannot be used with" in outcome.err


def test_a_script_that_names_its_interpreter_keeps_doing_so(here):
    (here / "own.py").write_text("import mine\nmine.train()\n")
    (here / "run.sh").write_text(f"#!/bin/bash\n{OWN}\n")
    add_ignores_twice(here)
    assert (here / "run.sh").read_text() == f"#!/bin/bash\n# cfglint: ignore[CHK005]\n{OWN}\n"


def test_quiet_leaves_out_the_summary_alone(here):
    (here / "config.yaml").write_text(TWICE)
    loud, quiet = (run_cfglint(*flags, "--select", "SYN003", cwd=here) for flags in ((), ("-q",)))
    assert quiet.code == loud.code == 1
    assert loud.out == quiet.out + "".join(f"{line}\n" for line in loud.lines[-2:])
