"""Requirements in a `setup.py`, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.releases.pins.setup_py import find_requirements
from tests.support.configs import AXOLOTL
from tests.support.linting import list_runs

TABLE = """\
import re
from setuptools import find_packages, setup

_deps = ["axolotl==0.9.2", "torch>=2.1", "ruff"]
deps = {b: a for a, b in (re.findall(r"^(([^!=<>]+).*)$", x)[0] for x in _deps)}


def deps_list(*packages):
    return [deps[package] for package in packages]


extras = {}
extras["quality"] = deps_list("ruff")
setup(name="mine", install_requires=[deps["axolotl"], deps["torch"]], extras_require=extras)
"""
FILES = {
    "a list": ('from setuptools import setup\nsetup(install_requires=["axolotl==0.9.2"])\n', 2),
    "a name": ('import setuptools\nREQUIRED = ["axolotl==0.9.2"]\nsetuptools.setup(install_requires=REQUIRED)\n', 2),
    "a sum": ('A = ["numpy"]\nB = A + ["axolotl==0.9.2"]\nsetup(install_requires=[*B])\n', 2),
    "a table": (TABLE, 4),
    "a dictionary": ('D = {"a": "axolotl==0.9.2"}\nsetup(install_requires=[D["a"]])\n', 1),
    "an extra": ('setup(extras_require={"train": ["axolotl==0.9.2"]})\n', 1),
}


@pytest.mark.parametrize(("text", "line"), FILES.values(), ids=FILES)
def test_a_setup_file_pins_the_release(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "setup.py").write_text(text)
    (tmp_path / "run.yaml").write_text(AXOLOTL)
    (run,) = list_runs(tmp_path)
    release = run.main.releases.by_package["axolotl"]
    assert (release.version, release.origin.note.endswith(f"setup.py:{line}")) == ("0.9.2", True), release.origin.note


@pytest.mark.parametrize(
    "text",
    [
        "setup(",
        "setup(install_requires=read('requirements.txt'))",
        "A = B\nB = A\nsetup(install_requires=A)",
        "setup(install_requires=[line for line in open('a')])",
        "A = " + "[" * 150 + "]" * 150 + "\nsetup(install_requires=A)",
    ],
)
def test_what_is_not_written_there_is_not_known(text: str) -> None:
    assert list(find_requirements(text)) == []


def test_the_table_gives_each_requirement_once() -> None:
    requirements = [(requirement.text, requirement.is_optional) for requirement in find_requirements(TABLE)]
    assert requirements == [("axolotl==0.9.2", False), ("torch>=2.1", False), ("ruff", True)]


def test_lists_of_a_table_are_followed_once() -> None:
    """Expand each list once, because lists of hundreds of packages by table (as in open-r1) would never end."""
    names = [f"package-{number}" for number in range(300)]
    text = "\n".join((
        f"_deps = {[f'{name}=={number}.0' for number, name in enumerate(names)]!r}",
        "deps = {b: a for a, b in (split(x) for x in _deps)}",
        "core = [" + ", ".join(f'deps["{name}"]' for name in names) + "]",
        "more = [" + ", ".join(["*core"] * 50) + "]",
        "most = [" + ", ".join(["*more"] * 50) + "]",
        "setup(install_requires=most)",
    ))  # fmt: skip
    assert [requirement.text for requirement in find_requirements(text)] == [
        f"{name}=={number}.0" for number, name in enumerate(names)
    ]
