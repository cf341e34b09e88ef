"""A plain lint imports no heavy module: a commit hook pays only for the interpreter, PyYAML and cfglint."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.configs import CONTRADICTED, DEEPSPEED, REMOTE_CODE, TWICE
from tests.support.corpus import REPOSITORY

HEAVY = (
    "ast", "asyncio", "concurrent.futures", "contextlib", "dataclasses", "deepspeed", "difflib", "importlib.metadata",
    "importlib.resources", "inspect", "jsonschema", "libcst", "logging", "multiprocessing", "pathlib", "pydantic",
    "ruamel", "shutil", "subprocess", "tempfile", "torch", "transformers", "tree_sitter", "tree_sitter_bash", "typing",
    "unittest",
)  # fmt: skip

PROBE = """
import sys
sys.path[:0] = {path!r}
from cfglint_train.front.cli import main
code = main(sys.argv[1:])
import json
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def path() -> list[str]:
    """Return the source roots and the installed packages."""
    roots = [str(REPOSITORY / root) for root in ("lint", "rules", "schemas")]
    return [*roots, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]


def run_command(path: list[str], folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """Return the exit code of a command and the modules that it imported."""
    # Prevent imports by the site's .pth files (-S) and the user's environment (-I).
    command = [sys.executable, "-I", "-S", "-c", PROBE.format(path=path), *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    code, modules = json.loads(process.stderr.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize("arguments", [("check", "--force-exclude"), ("check", "--force-exclude", "--fix")])
def test_what_a_hook_runs_imports_no_parser_of_arguments(path, tmp_path, arguments):
    (tmp_path / "config.yaml").write_text(REMOTE_CODE)
    code, modules = run_command(path, tmp_path, *arguments, "config.yaml")
    assert code == 0
    assert sorted(modules & {"argparse", "gettext", "locale"}) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("config.yaml", TWICE, 1, id="yaml with a finding"),
        pytest.param("config.yaml", REMOTE_CODE, 0, id="yaml with a fix"),
        pytest.param("ds.json", DEEPSPEED, 1, id="json"),
        pytest.param("pyproject.toml", "[project]\nname = 'x'\n", 0, id="settings of others"),
        pytest.param("notes.yaml", "title: none of ours\n", 0, id="nothing to check"),
    ],
)
@pytest.mark.parametrize("form", ["text", "concise", "json", "github"])
def test_a_plain_lint_imports_nothing_heavy(path, tmp_path, name, text, expected, form):
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    code, modules = run_command(path, tmp_path, "--output-format", form, "--select", "SYN,BAT,SEC", ".")
    assert code == expected
    assert sorted(modules & set(HEAVY)) == []
    assert any(module.startswith("cfglint_rules.") for module in modules)
    # Only the syntax that is present is imported.
    assert ("cfglint_train.documents.shell.document" in modules) is False


def test_all_rules_over_the_shipped_configurations(path, tmp_path):
    """Lint a run with a companion with every rule and the memory model."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(TWICE + "deepspeed: ds.json\n")
    (tmp_path / "ds.json").write_text(CONTRADICTED)
    code, modules = run_command(path, tmp_path, ".")
    assert code == 1
    assert sorted(modules & set(HEAVY)) == []
    assert "cfglint_train.memory.estimate" in modules


def test_a_question_imports_hardly_more_than_an_estimate_of_its_file(path, tmp_path):
    command = ("estimate", "--model", "meta-llama/Llama-3.1-8B", "--output-file", "page.txt")
    code, modules = run_command(path, tmp_path, *command)
    assert run_command(path, tmp_path, *command, "--write", "axolotl=asked.yaml")[0] == code == 0
    _, of_file = run_command(path, tmp_path, "estimate", "asked.yaml", "--output-file", "page.txt")
    assert sorted(modules & set(HEAVY) - of_file) == []
    assert not any("shell" in module or "python" in module.split(".") for module in modules)
    assert len(modules - of_file) < 20


def test_a_version_costs_next_to_nothing(path, tmp_path):
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROBE.format(path=path), "--version"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0
    assert process.stdout.startswith("cfglint 0.")
