"""Releases from install commands: scripts, jobs, read-me files, notebooks and Modal images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import lint, list_runs

MODAL = """\
import modal

VERSION = "0.9.2"
serving = modal.Image.debian_slim().pip_install("vllm==0.5.1", "torch==2.3.0")
image = (
    modal.Image.from_registry("nvidia/cuda:12.4.1-devel-ubuntu22.04", add_python="3.11")
    .apt_install("git")
    .pip_install(f"axolotl[deepspeed]=={VERSION}", "transformers==4.51.3")
    .run_commands("pip install peft==0.15.2")
)
"""
NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "source": ["%%capture\n", "!pip install axolotl==0.9.2\n"]}]}, indent=1
)
TEXTS = {
    "Modal": ("run.py", MODAL, "0.9.2", "run.py:8"),
    "Modal's commands": (
        "run.py",
        'image = Image.micromamba().run_commands("git clone -b v0.9.2 https://github.com/axolotl-ai-cloud/axolotl")\n',
        "0.9.2",
        "run.py:1",
    ),
    "Modal's image": ("a.py", 'i = m.Image.from_registry("axolotlai/axolotl:0.16.1")\n', "0.16.1", "a.py:1"),
    "shell": ("install.sh", "set -e\nuv pip install 'axolotl[flash-attn]==0.9.2'\n", "0.9.2", "install.sh:2"),
    "a script without an extension": (
        "install_prereqs",
        "#!/bin/bash -l\npip install --no-cache-dir \\\n  torch==2.6.0 axolotl==0.9.2\n",
        "0.9.2",
        "install_prereqs:2",
    ),
    "a checkout of a tag": (
        "setup.sh",
        "git clone https://github.com/axolotl-ai-cloud/axolotl\ncd axolotl && git checkout v0.9.2 && pip install .\n",
        "0.9.2",
        "setup.sh:2",
    ),
    "a container": ("train.sh", "docker run --gpus all axolotlai/axolotl:0.16.1 bash\n", "0.16.1", "train.sh:1"),
    "read-me": ("README.md", "# Setup\n\n```\npip install axolotl==0.9.2 torch==2.6.0\n```\n", "0.9.2", "README.md:4"),
    "a script elsewhere that names the file": (
        "jobs/a.sh",
        "pip install axolotl==0.9.2\naxolotl train config.yaml\n",
        "0.9.2",
        "a.sh:1",
    ),
    "notebook": ("colab.ipynb", NOTEBOOK, "0.9.2", "colab.ipynb:"),
}


def write_repository(folder: Path, **files: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    for name, text in {"config.yaml": AXOLOTL, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def get_release(folder: Path, package: str = "axolotl") -> tuple[str, str]:
    resolved = list_runs(folder)[0].main.releases.by_package[package]
    return resolved.version, resolved.origin.note


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_command_installs_is_the_release(tmp_path: Path, name: str) -> None:
    path, text, version, place = TEXTS[name]
    resolved, note = get_release(write_repository(tmp_path / "x", **{path: text}))
    assert resolved == version
    assert place in note


def test_an_image_counts_as_a_whole_and_alone(tmp_path: Path) -> None:
    """Ignore the pins of the serving image, which are no evidence for the training image."""
    folder = write_repository(tmp_path / "x", **{"run.py": MODAL})
    assert get_release(folder, "transformers")[0] == "4.51.3"
    assert get_release(folder, "peft")[0] == "0.15.2"
    assert "torch" not in list_runs(folder)[0].main.releases.by_package


IMAGES = {
    "between two releases": ("winglian/axolotl:main-20241018-py3.11-cu124-2.4.1", "0.5.2", "<0.5.2"),
    "after a release": ("axolotlai/axolotl-cloud:main-20250701-py3.11-cu124-2.6.0", "0.11.0", ">=0.10.0,<=0.11.0"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_the_day_of_an_image_tells_the_releases_next_to_it(tmp_path: Path, name: str) -> None:
    image, version, bounds = IMAGES[name]
    folder = write_repository(tmp_path / "x", **{"train.sh": f"docker run {image} axolotl train config.yaml\n"})
    resolved, note = get_release(folder)
    assert resolved == version
    assert f"train.sh:1 ({bounds})" in note
    assert get_release(folder, "torch")[0] in ("2.4.1", "2.6.0")
    (folder / "Dockerfile").write_text(f"FROM {image}\n")
    assert f"Dockerfile:1 ({bounds})" in get_release(folder)[1]


def test_a_digest_is_the_tag_that_its_comment_names(tmp_path: Path) -> None:
    text = '# corresponds to main-20240705-py3.11-cu121-2.3.0\nSHA = "9578"\n'
    folder = write_repository(
        tmp_path / "x", **{"run.py": text + 'x = Image.from_registry(f"winglian/axolotl@sha256:{SHA}")\n'}
    )
    assert get_release(folder)[0] == "0.5.2"
    assert [finding.code for finding in lint(folder).findings if finding.code == "CHK003"] == ["CHK003"]
    (folder / "run.py").write_text(
        text.replace("main", "see main of") + 'x = from_registry(f"winglian/axolotl@{SHA}")\n'
    )
    assert "run.py" not in get_release(folder)[1]


PLACES = {
    "a job of SkyPilot": {
        "sky.yaml": "setup: |\n  pip install 'axolotl[deepspeed]==0.9.2'\nrun: axolotl train config.yaml\n"
    },
    "an image of SkyPilot": {"sky.yaml": "resources:\n  image_id: docker:axolotlai/axolotl-cloud:0.9.2\n"},
    "an image of compose": {"compose.yml": "services:\n  train:\n    image: 'axolotlai/axolotl:0.9.2'\n"},
    "a command of compose": {
        "compose.yml": "services:\n  train:\n    image: hub/x:1\n    command: pip install axolotl==0.9.2\n"
    },
    "a justfile": {"justfile": "setup:\n    uv pip install axolotl==0.9.2\n"},
    "a Makefile": {"Makefile": "install:\n\tpip install axolotl==0.9.2\n"},
    "a workflow that trains": {
        ".github/workflows/ci.yml": "steps:\n  - run: pip install axolotl==0.9.2 && axolotl train config.yaml\n"
    },
    "uv run": {"run.sh": "uv run --with 'axolotl==0.9.2' axolotl train config.yaml\n"},
    "uvx": {"run.sh": "uvx --from=axolotl==0.9.2 axolotl train config.yaml\n"},
    "several that agree": {"a.sh": "pip install axolotl==0.9.2\n", "sky.yaml": "setup: pip install axolotl==0.9.2\n"},
}


@pytest.mark.parametrize("name", PLACES)
def test_where_commands_may_be(tmp_path: Path, name: str) -> None:
    assert get_release(write_repository(tmp_path / "x", **PLACES[name]))[0] == "0.9.2"


BETWEEN = {
    "releases": ("axolotl==0.9.2", "axolotl==0.10.0", ">=0.9.2,<=0.10.0"),
    "a series": ("axolotl==0.9.*", "axolotl==0.10.1", ">=0.9,<=0.10.1"),
    "a release and what is below another": ("axolotl==0.11.0", "axolotl<0.10", "<=0.11.0"),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_of_commands_that_disagree_any_may_be_the_trainings(tmp_path: Path, name: str) -> None:
    first, second, between = BETWEEN[name]
    files = {"a.sh": f"pip install '{first}'\n", "sky.yaml": f"setup: pip install '{second}'\n"}
    assert f"({between})" in get_release(write_repository(tmp_path / "x", **files))[1]


NOTHING = {
    "a requirement counts more": {"requirements.txt": "axolotl==0.21.0\n", "a.sh": "pip install axolotl==0.9.2\n"},
    "a read-me of another folder": {"demo/README.md": "pip3 install axolotl==0.9.2\n"},
    "a script of another folder": {"demo/a.sh": "pip install axolotl==0.9.2\n"},
    "a workflow that names no configuration": {
        ".github/workflows/train.yml": "jobs:\n  a:\n    steps:\n      - run: pip install axolotl==0.9.2\n"
    },
    "a text in Python": {"a.py": 'HELP = "pip install axolotl==0.9.2 for config.yaml"\n'},
    "a comment": {"a.sh": "# pip install axolotl==0.9.2\n"},
    "no release": {"a.sh": "pip install axolotl\n"},
    "a variable": {"a.sh": "pip install axolotl==$VERSION\n"},
    "an argument in Python": {"a.py": "def f(v):\n    i = Image.pip_install(f'axolotl=={v}')\n"},
    "another image": {"a.py": 'i = Image.from_registry("lab/axolotl-data:0.9.2")\n'},
    "broken Python": {"a.py": 'i = Image.pip_install("axolotl==0.9.2"\n'},
    "a comment of a job": {"sky.yaml": "setup: |\n  # pip install axolotl==0.9.2\n"},
    "tests of a repository with requirements": {
        "requirements.txt": "axolotl==0.21.0\n",
        ".github/workflows/test.yml": "steps:\n  - run: pip install axolotl==0.9.2\n",
    },
    "a workflow of tests": {".github/workflows/ci.yml": "steps:\n  - run: pip install axolotl==0.9.2 && pytest\n"},
    "requirements of tests": {
        "requirements-test.txt": "pytest\naxolotl==0.9.2\n",
        "requirements.txt": "axolotl==0.21.0\n",
    },
    "a training without the framework": {"a.sh": "pip install transformers==4.51.3\n"},
    "a text without an extension": {"INSTALL": "pip install axolotl==0.9.2\n"},
    "text": {"notes.txt": "pip install axolotl==0.9.2\n"},
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_tells_no_release(tmp_path: Path, name: str) -> None:
    folder = write_repository(tmp_path / "x", **NOTHING[name])
    assert get_release(folder)[0] == "0.21.0"
    assert get_release(folder, "transformers")[0] != "4.51.3"


def test_the_nearest_installation_counts(tmp_path: Path) -> None:
    files = {
        f"{folder_name}/setup.sh": f"pip install axolotl==0.{number}.0\n"
        for number, folder_name in ((9, "a"), (10, "b"))
    }
    folder = write_repository(tmp_path / "x", **files, **{"a/config.yaml": AXOLOTL, "b/runs/config.yaml": AXOLOTL})
    (folder / "config.yaml").unlink()
    assert [run.main.releases.by_package["axolotl"].version for run in list_runs(folder)] == ["0.9.0", "0.10.0"]
