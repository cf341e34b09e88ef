"""Requirement files of every kind, and the pins that the files of one folder give together."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from cfglint_train.foundation.roots import Roots
from cfglint_train.releases.pins.search import ResolvedPin, read_folder_pins
from cfglint_train.releases.requirements import Requirements


def write_files(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")


def list_pins(folder: Path) -> dict[str, str]:
    return {
        package: format_pin(pin, folder) for package, pin in read_folder_pins(str(folder), os.listdir(folder)).items()
    }


def format_pin(resolved: ResolvedPin, folder: Path) -> str:
    places = ", ".join(f"{Path(pin.path).relative_to(folder)}:{pin.line}" for pin in resolved.pins)
    return f"{resolved.constraint if resolved.is_consistent else '?'} ({places})"


def test_requirements_with_options_hashes_and_includes(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "requirements.txt": """\
                # what the cluster has
                --extra-index-url https://example.org/whl
                -r base/common.txt
                torch==2.6.0 --hash=sha256:00 \\
                    --hash=sha256:11
                transformers>=4.45,<4.53  # newer ones break
                git+https://github.com/hiyouga/LLaMA-Factory.git@v0.9.3#egg=llamafactory
                """,
            "base/common.txt": """\
                -r ../requirements.txt
                deepspeed==0.16.4
                """,
        },
    )
    assert list_pins(tmp_path) == {
        "deepspeed": "==0.16.4 (base/common.txt:2)",
        "llamafactory": "==0.9.3 (requirements.txt:7)",
        "torch": "==2.6.0 (requirements.txt:4)",
        "transformers": ">=4.45,<4.53 (requirements.txt:6)",
    }


def test_pyproject_in_every_dialect(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "pyproject.toml": """\
                [project]
                name = "ours"
                dependencies = [
                  "torch>=2.4",
                  "axolotl[deepspeed]",
                ]
                [project.optional-dependencies]
                train = ["torch<2.7", "trl==0.18.1"]
                [dependency-groups]
                dev = ["peft>=0.14", {include-group = "x"}]
                [tool.uv.sources]
                axolotl = { git = "https://github.com/axolotl-ai-cloud/axolotl", tag = "v0.12.2" }
                [tool.poetry.dependencies]
                python = "^3.11"
                vllm = "^0.8.3"
                accelerate = { version = "~1.6", optional = true }
                openrlhf = { git = "https://github.com/OpenRLHF/OpenRLHF.git", rev = "v0.8.0" }
                """
        },
    )
    assert list_pins(tmp_path) == {
        "accelerate": ">=1.6,<1.7 (pyproject.toml:16)",
        "axolotl": "==0.12.2 (pyproject.toml:12)",
        "openrlhf": "==0.8.0 (pyproject.toml:17)",
        "peft": ">=0.14 (pyproject.toml:10)",
        "torch": ">=2.4 (pyproject.toml:4)",
        "trl": "==0.18.1 (pyproject.toml:8)",
        "vllm": ">=0.8.3,<0.9 (pyproject.toml:15)",
    }


def test_the_frameworks_own_repository_is_its_release(tmp_path: Path) -> None:
    write_files(tmp_path, **{"pyproject.toml": '[project]\nname = "axolotl"\nversion = "0.13.0.dev0"\n'})
    assert list_pins(tmp_path) == {"axolotl": "==0.13.0.dev0 (pyproject.toml:3)"}


LOCK = """\
    version = 1

    [[package]]
    name = "torch"
    version = "2.2.2"
    source = { registry = "https://pypi.org/simple" }
    resolution-markers = [
        "platform_machine == 'x86_64' and sys_platform == 'darwin'",
    ]

    [[package]]
    name = "torch"
    version = "2.6.0+cu124"
    source = { registry = "https://download.pytorch.org/whl/cu124" }
    resolution-markers = [
        "sys_platform == 'linux'",
    ]
    dependencies = [
        { name = "triton", version = "9" },
    ]

    [[package]]
    name = "transformers"
    version = "4.52.4"
    """


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "pylock.train.toml"])
def test_lock_files_settle_what_the_others_allow(tmp_path: Path, name: str) -> None:
    lock = LOCK.replace("[[package]]", "[[packages]]") if name.startswith("pylock") else LOCK
    write_files(
        tmp_path, **{name: lock, "pyproject.toml": '[project]\ndependencies = ["torch>=2.4", "transformers>=4.45"]\n'}
    )
    assert list_pins(tmp_path) == {"torch": f"==2.6.0 ({name}:12)", "transformers": f"==4.52.4 ({name}:23)"}


ENVIRONMENTS = {
    "pixi.lock": """\
        version: 6
        environments:
          default:
            packages:
              linux-64:
              - conda: https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.6.0-cuda126_py312_200.conda
              - pypi: https://files.pythonhosted.org/packages/a/transformers-4.52.4-py3-none-any.whl
        packages:
        - conda: https://conda.anaconda.org/conda-forge/osx-arm64/pytorch-2.2.2-cpu_py312.conda
        - pypi: https://files.pythonhosted.org/packages/a/transformers-4.52.4-py3-none-any.whl
          name: transformers
          version: 4.52.4
        """,
    "conda-lock.yml": """\
        version: 1
        package:
        - name: pytorch
          version: 2.2.2
          manager: conda
          platform: osx-arm64
        - name: pytorch
          version: 2.6.0
          manager: conda
          platform: linux-64
        - name: transformers
          version: 4.52.4
          manager: pip
          platform: linux-64
        """,
    "Pipfile.lock": '{"default": {"torch": {"version": "==2.6.0+cu124"},\n"transformers": {"version": "==4.52.4"}}}',
    "Pipfile": '[packages]\ntorch = "==2.6.0"\ntransformers = {version = "==4.52.4", extras = ["torch"]}\n',
    "pixi.toml": '[dependencies]\npytorch = "==2.6.0"\n[pypi-dependencies]\ntransformers = "==4.52.4"\n',
    "pyproject.toml": """\
        [tool.pixi.dependencies]
        pytorch = "2.6.0"
        [tool.pixi.pypi-dependencies]
        transformers = "==4.52.4"
        """,
    "requirements.lock": "-e file:.\ntorch==2.6.0\n    # via x\ntransformers==4.52.4\n",
    "setup.cfg": """\
        [options]
        install_requires =
            torch==2.6.0
            # the newest
            transformers==4.52.4
        [tool:pytest]
        x =
            torch==1.0.0
        """,
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments_of_other_tools(tmp_path: Path, name: str) -> None:
    """Ignore requirements for other systems and sections about something else."""
    write_files(tmp_path, **{name: ENVIRONMENTS[name]})
    pins = Requirements(Roots()).collect_pins(str(tmp_path / "train.yaml"))
    assert {package: str(pin.constraint) for package, pin in pins.items()} == {
        "torch": "==2.6.0",
        "transformers": "==4.52.4",
    }


FORKED = {
    "pixi.lock": """\
        version: 6
        packages:
        - pypi: git+https://github.com/lab/ax?rev=moe#4f1d2c3
          name: axolotl
          version: 0.9.2
        """,
    "Pipfile": '[packages]\naxolotl = {git = "https://github.com/lab/ax.git", ref = "moe"}\n',
    "pixi.toml": '[feature.train.pypi-dependencies]\naxolotl = { git = "https://github.com/lab/ax", branch = "moe" }\n',
}


@pytest.mark.parametrize("name", FORKED)
def test_forks_in_environments_of_other_tools(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, **{name: FORKED[name]})
    fork = read_folder_pins(str(tmp_path), [name])["axolotl"].fork
    assert fork is not None
    assert fork.fork == "github.com/lab/ax@moe"


def test_poetry_writes_its_markers_as_one_text(tmp_path: Path) -> None:
    lock = """\
        [[package]]
        name = "torch"
        version = "2.2.2"
        markers = "sys_platform == \\"darwin\\""

        [[package]]
        name = "torch"
        version = "2.6.0"
        markers = "sys_platform != \\"darwin\\""
        """
    write_files(tmp_path, **{"poetry.lock": lock})
    assert list_pins(tmp_path) == {"torch": "==2.6.0 (poetry.lock:7)"}


def test_conda_environments(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "environment.yml": """\
                name: train
                channels: [pytorch]
                dependencies:
                  - python=3.11
                  - pytorch::pytorch=2.4  # what the driver takes
                  - "transformers>=4.45,<4.53"
                  - pip
                  - pip:
                    - deepspeed==0.16.4
                    - accelerate
                  - peft=0.15.2
                """
        },
    )
    assert list_pins(tmp_path) == {
        "deepspeed": "==0.16.4 (environment.yml:9)",
        "peft": "==0.15.2 (environment.yml:11)",
        "torch": "==2.4.* (environment.yml:5)",
        "transformers": ">=4.45,<4.53 (environment.yml:6)",
    }


def test_dockerfiles(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "docker/Dockerfile": """\
                # pip install torch==1.0
                ARG DEEPSPEED=0.16.4
                FROM --platform=linux/amd64 pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel
                RUN apt-get update && \\
                    pip3 install --no-cache-dir "transformers>=4.45,<4.53" \\
                        deepspeed==${DEEPSPEED} && echo trl==9.9
                RUN uv pip install 'peft==0.15.2' -r requirements.txt; python -m pip install accelerate==1.6.0
                RUN git clone --depth 1 -b v0.9.3 https://github.com/hiyouga/LLaMA-Factory.git /app
                RUN conda install -y vllm=0.8.3
                """
        },
    )
    assert list_pins(tmp_path) == {
        "accelerate": "==1.6.0 (docker/Dockerfile:7)",
        "deepspeed": "==0.16.4 (docker/Dockerfile:4)",
        "llamafactory": "==0.9.3 (docker/Dockerfile:8)",
        "peft": "==0.15.2 (docker/Dockerfile:7)",
        "torch": "==2.6.0 (docker/Dockerfile:3)",
        "transformers": ">=4.45,<4.53 (docker/Dockerfile:4)",
        "vllm": "==0.8.3 (docker/Dockerfile:9)",
    }


def test_folders_of_an_installation(tmp_path: Path) -> None:
    """Read the folders directly below `installation/`, as in swiss-ai/posttraining; pins there are assumptions."""
    write_files(
        tmp_path,
        **{
            "installation/arm64/requirements-initial.txt": "trl==0.16.0\n",
            "installation/arm64/build/requirements.txt": "peft==0.1.0\n",
            "scripts/arm64/requirements.txt": "torch==2.0.0\n",
        },
    )
    assert list_pins(tmp_path) == {"trl": "==0.16.0 (installation/arm64/requirements-initial.txt:1)"}
    (tmp_path / ".git").mkdir()
    pin = Requirements(Roots()).collect_pins(str(tmp_path / "train.py"))["trl"]
    assert pin.is_optional
    assert pin.pins[0].is_in_subfolder


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("axolotlai/axolotl:0.16.1", {"axolotl": "==0.16.1"}),
        (
            "axolotlai/axolotl-cloud-uv:main-20260315-py3.11-cu128-2.9.1",
            {"axolotl": ">=0.15.0,<=0.18.0", "torch": "==2.9.1"},
        ),
        ("axolotlai/axolotl:main-latest", {}),
        ("docker.io/hiyouga/llamafactory:0.9.4", {"llamafactory": "==0.9.4"}),
        ("hiyouga/llamafactory:latest", {}),
        ("nvcr.io/nvidia/pytorch:25.01-py3", {}),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", {}),
    ],
)
def test_images_whose_tags_are_releases(tmp_path: Path, image: str, expected: dict[str, str]) -> None:
    write_files(tmp_path, Dockerfile=f"FROM {image} AS base\n")
    pins = read_folder_pins(str(tmp_path), os.listdir(tmp_path))
    assert {package: str(pin.constraint) for package, pin in pins.items()} == expected


def test_files_that_disagree_tell_nothing_and_say_so(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "requirements-cu118.txt": "torch==2.4.0\n",
            "requirements-cu124.txt": "torch==2.6.0\ntransformers==4.50.0\n",
        },
    )
    assert list_pins(tmp_path) == {
        "torch": "? (requirements-cu118.txt:1, requirements-cu124.txt:1)",
        "transformers": "==4.50.0 (requirements-cu124.txt:2)",
    }


def test_an_extra_counts_where_nothing_else_speaks(tmp_path: Path) -> None:
    extra = '[project.optional-dependencies]\nold = ["torch<2.3", "peft==0.14.0"]\n'
    text = f'[project]\ndependencies = ["torch>=2.4"]\n{extra}'
    write_files(tmp_path, **{"pyproject.toml": text})
    assert list_pins(tmp_path) == {"torch": ">=2.4 (pyproject.toml:2)", "peft": "==0.14.0 (pyproject.toml:4)"}
    assert [
        settled.is_optional for _, settled in sorted(read_folder_pins(str(tmp_path), ["pyproject.toml"]).items())
    ] == [
        True,
        False,
    ]


def test_files_of_other_kinds_and_broken_ones_tell_nothing(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        **{
            "notes.txt": "torch==1.0\n",
            "pyproject.toml": "dependencies = [ torch\n",
            "Dockerfile.md": "torch",
            "uv.lock": 'torch\n[[package]]\nname = "torch"\n',
            "requirements.txt": "torch==not.a.release\n\x00\n-r /dev/zero\n-r missing.txt\n",
        },
    )
    (tmp_path / "environment.yaml").write_bytes(b"\xff\xfe\x00torch")
    (tmp_path / "constraints.txt").mkdir()
    assert list_pins(tmp_path) == {}


def test_a_long_line_takes_no_long_time(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch" + " " * 300_000 + ">\n" + "torch==" + "1." * 100_000 + "\n")
    (tmp_path / "environment.yml").write_text("dependencies:\n  - torch" + " " * 300_000 + "\n")
    (tmp_path / "Dockerfile").write_text("ARG A=" + "a" * 100_000 + "\nRUN pip install " + "$A" * 100_000 + " torch\n")
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "torch"\nversion = "2.6.0"\n' + "markers\n" * 100_000)
    assert list_pins(tmp_path) == {"torch": "==2.6.0 (uv.lock:2)"}


def test_pins_of_the_working_folder_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is given by its name reads the pins that a check of the folder reads."""
    write_files(tmp_path, **{"requirements.txt": "trl==0.16.0\n", "scripts/run.sh": ""})
    script = str(tmp_path / "scripts/run.sh")
    assert Requirements(Roots()).collect_pins(script) == {}
    monkeypatch.chdir(tmp_path)
    assert list(Requirements(Roots()).collect_pins(script)) == ["trl"]
