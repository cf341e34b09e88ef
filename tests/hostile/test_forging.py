"""No text of a file becomes a command of a CI system, judged by small ports of their parsers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfglint_train.settings.settings import FORMATS
from tests.support import runner
from tests.support.command import run_cfglint
from tests.support.hostile import write_hostile_folder

# microsoft/azure-pipelines-agent Command.cs (TryParse: IndexOf, ordinal-ignore-case) and the log's own `##[`.
_AZURE = re.compile(r"##vso\[|^\s*##\[", re.I)
# JetBrains ServiceMessage: anywhere in a line.
_TEAMCITY = re.compile(r"##teamcity\[")
# gitlab lib/gitlab/regex.rb build_trace_section_regex.
_GITLAB = re.compile(r"section_(?:start|end):\d+:[a-zA-Z0-9_.-]+(?:\[[^\]]*\])?\r\x1b\[0K")


def find_forged_commands(text: str) -> list[str]:
    commands = [line for line in runner.split_lines(text) if _AZURE.search(line) or _TEAMCITY.search(line)]
    return commands + _GITLAB.findall(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = write_hostile_folder(tmp_path_factory.mktemp("hostile"))
    names = ["##vso[task.setvariable variable=a]b.yaml", "##teamcity[x].yaml", "a ##[x].json"]
    for name in names:
        (files / name).write_text("base_model: x\ndatasets:\n  - path: x\n##vso[x]y: *a\n")
    return files


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [*(("--output-format", form) for form in FORMATS), ("--diff",), ("--show-files",), ("estimate", ".")]
)
def test_no_output_is_a_command(folder: Path, words: tuple[str, ...]) -> None:
    outcome = run_cfglint(*words, cwd=folder)
    assert find_forged_commands(outcome.out) == []
    assert find_forged_commands(outcome.err) == []


@pytest.mark.parametrize("text", ["##vso[task.complete]", "##[error]x", "##teamcity[x]"])
def test_no_error_is_a_command(tmp_path: Path, text: str) -> None:
    for words in ((text,), ("--select", text), ("--config", text), ("--gpu", text), (f"--{text}",)):
        outcome = run_cfglint(*words, cwd=tmp_path)
        assert find_forged_commands(outcome.out + outcome.err) == []


def test_the_judges_know_a_command() -> None:
    assert find_forged_commands("a ##VSO[task.complete]") == ["a ##VSO[task.complete]"]
    assert find_forged_commands("##teamcity[x]")
    assert find_forged_commands("section_start:1:x\r\x1b[0K")
