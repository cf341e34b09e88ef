"""A contributor adds a rule with a fix: only the files of docs/contributing/rule.md, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY

PAGE = REPOSITORY / "docs" / "contributing" / "rule.md"
MOST_FILES = 8
"""Maximum number of files in a change that adds a rule, with the changelog's line."""
COPIED = ("rules", "tests/rules", "tests/support")
"""Folders that the rule or its tests share; the rest of the tree is linked."""
OF_EVERY_RULE = {
    "test_fires_where_it_must",
    "test_stays_silent_where_it_must",
    "test_fix_writes_exactly_the_fixed_files_and_nothing_twice",
    "test_a_rule_writes_the_fields_that_it_names",
    "test_a_changed_field_flips_what_a_rule_says_and_an_unchanged_plan_does_not",
}
"""Tests of every rule with a fix, by its code."""
FIRES = "fixtures/rules/PRF900/fires/llamafactory.yaml"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Return the files that the page shows, by path."""
    blocks = re.findall(
        r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


@pytest.fixture(scope="module")
def copy(files, tmp_path_factory) -> Path:
    """Copy the tree and add the files of the page."""
    root = tmp_path_factory.mktemp("copy")
    link(REPOSITORY, root, {*COPIED, *(str(Path(path).parent) for path in files)})
    for path, text in files.items():
        assert not (root / path).exists(), path
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def link(source: Path, target: Path, copied: set[str]) -> None:
    """Link the content of `source`, but copy `COPIED` and create the folders that contain a copied path."""
    for path in source.iterdir():
        name = path.relative_to(REPOSITORY).as_posix()
        if name in COPIED:
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_dir() and any(copied_path.startswith(f"{name}/") for copied_path in copied):
            (target / path.name).mkdir()
            link(path, target / path.name, copied)
        elif not path.name.startswith("."):
            (target / path.name).symlink_to(path)


def run(copy: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(copy), *(str(copy / root) for root in ("lint", "rules", "schemas"))])
    environment = {**os.environ, "PYTHONPATH": path, "CFGLINT_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_few_files_are_needed_and_none_is_generated(files):
    assert len(files) + len(["CHANGELOG.md"]) <= MOST_FILES
    assert any(path.startswith("rules/") for path in files)


def test_the_rule_is_found_explained_and_fixed(copy, files, tmp_path):
    (tmp_path / ".git").mkdir()
    config = tmp_path / "llamafactory.yaml"
    config.write_text(files[FIRES])
    process = run(copy, tmp_path, "cfglint_train", "--output-format", "concise", "--select", "no-data-workers", ".")
    assert "llamafactory.yaml:7:1: warning PRF900" in process.stdout, process.stdout + process.stderr
    assert run(copy, tmp_path, "cfglint_train", "rule", "PRF900").stdout.startswith("PRF900 no-data-workers: ")
    assert " no-data-workers " in run(copy, tmp_path, "cfglint_train", "rules").stdout
    run(copy, tmp_path, "cfglint_train", "--fix", "--unsafe-fixes", "--select", "PRF900", ".")
    assert config.read_text() == files[FIRES.replace("fires", "fixed")]


def test_the_tests_of_the_rule_pass(copy):
    words = ("pytest", "-v", "-p", "no:cacheprovider", "-n", "0", "tests/rules", "-m", "not slow", "-k", "PRF900")
    process = run(copy, copy, *words)
    assert process.returncode == 0, process.stdout + process.stderr
    assert set(re.findall(r"::(\w+)\[PRF900\] PASSED", process.stdout)) >= OF_EVERY_RULE, process.stdout
