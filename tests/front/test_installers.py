"""Installation from a git repository with uv and pipx, as documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cfglint_train.version import VERSION
from tests.support.configs import REMOTE_CODE
from tests.support.upstream import clone_repository, find_program, run_git

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    """Return the URL of the committed working tree, for git."""
    return f"git+{clone_repository(tmp_path_factory.mktemp('upstream') / 'cfglint').as_uri()}"


@pytest.fixture
def here(tmp_path) -> Path:
    """Create a repository with one configuration."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "config.yaml").write_text(REMOTE_CODE)
    return folder


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """Return environment variables that keep the programs' data in the test's folder and select the running Python."""
    places = {
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "bin",
        "UV_CACHE_DIR": "uv-cache",
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "PIPX_MAN_DIR": "man",
    }
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    interpreter = {"UV_PYTHON": sys.executable, "PIPX_DEFAULT_PYTHON": sys.executable}
    return {**inherited, **interpreter, **{key: str(tmp_path / name) for key, name in places.items()}}


def run(here: Path, environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)


def test_uvx_runs_it_without_an_installation(address, here, environment):
    uvx = [find_program("uv"), "tool", "run", "--from", address, "cfglint"]
    process = run(here, environment, *uvx, "--version")
    assert (process.returncode, process.stdout) == (0, f"cfglint {VERSION}\n"), process.stderr
    process = run(here, environment, *uvx, "--isolated", "--select", "SEC", "--fail-on", "info")
    assert process.returncode == 1, process.stderr
    assert "SEC001" in process.stdout


@pytest.mark.parametrize("installer", ["uv", "pipx"])
def test_a_tool_of_its_own(address, here, environment, installer, tmp_path):
    install = [find_program("uv"), "tool", "install"] if installer == "uv" else [find_program("pipx"), "install"]
    process = run(here, environment, *install, address)
    assert process.returncode == 0, process.stdout + process.stderr
    cfglint = str(tmp_path / "bin" / "cfglint")
    process = run(here, environment, cfglint, "--isolated", "--select", "SEC", "--fail-on", "info")
    assert process.returncode == 1, process.stderr
    assert "SEC001" in process.stdout
    # Both record the source as a local folder, which `init` never writes.
    process = run(here, environment, cfglint, "init", "--diff")
    assert process.returncode == 1, process.stderr
    assert ".pre-commit-config.yaml:8: replace SOURCE with an address" in process.stderr
    assert address.removeprefix("git+") not in process.stdout
    # pipx's environments contain pip, and uv checks its own: a source that cannot be installed is rejected.
    with_installer = {**environment, "PATH": f"{Path(find_program(installer)).parent}{os.pathsep}{environment['PATH']}"}
    process = run(
        here, with_installer, cfglint, "init", "--yes", "--source", "git+https://localhost:1/nowhere/cfglint@v1"
    )
    assert process.returncode == 2
    assert "nowhere/cfglint@v1: cannot be installed: " in process.stderr
    assert sorted(path.name for path in here.iterdir()) == [".git", "config.yaml"]


def test_the_command_of_the_readme_in_a_bare_environment(tmp_path):
    """Install from a clone with only Python, then show findings, fixes, an estimate and a fit."""
    clone = clone_repository(tmp_path / "cfglint")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    (command,) = re.findall(
        r"<!-- main command -->\n```sh\n(.*?)\n```", (clone / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    process = run(clone, {**bare, "PATH": path}, "bash", "-c", command)
    assert process.returncode == 0, process.stderr
    for shown in ("error CKP001", "+gradient_checkpointing: true", "one GPU of 79.1 GiB", "smallest change that fits"):
        assert shown in process.stdout
    assert run_git(clone, "status", "--porcelain") == ""
