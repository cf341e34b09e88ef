"""A plain lint imports no heavy module: a commit hook pays only for the interpreter, PyYAML and cfglint.

`CFGLINT_UPDATE=1 pytest tests/front/test_cold_start.py` rewrites the record of the modules and regular expressions of a
lint; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, REMOTE_CODE, TWICE
from tests.support.corpus import REPOSITORY

HEAVY = (
    "ast", "asyncio", "concurrent.futures", "contextlib", "dataclasses", "deepspeed", "difflib", "importlib.metadata",
    "importlib.resources", "inspect", "jsonschema", "libcst", "logging", "multiprocessing", "pathlib", "pydantic",
    "ruamel", "shutil", "subprocess", "tempfile", "torch", "transformers", "tree_sitter", "tree_sitter_bash", "typing",
    "unittest",
)  # fmt: skip

ONLY_IN_A_CHECKOUT = ("cfglint_rules.catalogue",)
"""Modules whose result is in the wheel."""

RECORD = Path(__file__).with_name("plain_lint.txt")

PROBE = """
import re._compiler
import sys
sys.path[:0] = {path!r}
compile_expression, expressions = re._compiler.compile, []

def record(pattern, flags=0):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in ("re", "cfglint_train.foundation.expressions"):
        frame = frame.f_back
    expressions.append([frame.f_globals["__name__"], str(pattern)])
    return compile_expression(pattern, flags)

re._compiler.compile = record
from cfglint_train.front.cli import main
code = main(sys.argv[1:])
import json
print(json.dumps([code, sorted(sys.modules), expressions]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def path() -> list[str]:
    """Return the source roots and the installed packages."""
    roots = [str(REPOSITORY / root) for root in ("lint", "rules", "schemas")]
    return [*roots, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]


def run_command(path: list[str], folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """Return the exit code of a command and the modules that it imported."""
    code, modules, _ = run_probe(path, folder, *arguments)
    return code, set(modules)


def run_probe(path: list[str], folder: Path, *arguments: str) -> tuple[int, list[str], list[tuple[str, str]]]:
    """Return a command's exit code, its modules, and its regular expressions with the modules that compiled them."""
    # Prevent imports by the site's .pth files (-S) and the user's environment (-I).
    command = [sys.executable, "-I", "-S", "-c", PROBE.format(path=path), *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    code, modules, expressions = json.loads(process.stderr.splitlines()[-1])
    return code, modules, expressions


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


def test_a_lint_of_one_file_imports_and_compiles_what_is_recorded(path, tmp_path):
    """The run probably does not fit on the GPU that is assumed, so nothing is reported and no fix is written."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    text = AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.1-8B") + "gradient_checkpointing: true\n"
    (tmp_path / "config.yaml").write_text(text)
    subprocess.run(["git", "add", "config.yaml"], cwd=tmp_path, check=True)
    code, modules, expressions = run_probe(path, tmp_path, "config.yaml")
    assert code == 0
    own = [name for name in modules if name.startswith("cfglint_") and name not in ONLY_IN_A_CHECKOUT]
    own_expressions = {tuple(item) for item in expressions if item[0] in own}
    record = "".join([*(f"{name}\n" for name in own), *(f"{name} {text}\n" for name, text in sorted(own_expressions))])
    if os.environ.get("CFGLINT_UPDATE"):
        RECORD.write_text(record)
    assert record.splitlines() == RECORD.read_text().splitlines()


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
