"""`cfglint demo`: write the founding cases into a new folder, then lint, fix, estimate and fit them."""

from __future__ import annotations

import shutil

import pytest

from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY
from tests.support.linting import read_contents

CASES = REPOSITORY / "fixtures" / "cases"


def test_it_shows_what_the_commands_show(tmp_path):
    outcome = run_cfglint("demo", cwd=tmp_path)
    assert outcome.code == 0
    commands = [line for line in outcome.lines if line.startswith("$ ")]
    assert len(commands) == 4
    for line in commands:
        shown = run_cfglint(*line.removeprefix("$ cfglint ").split(), cwd=tmp_path)
        assert f"{line}\n{shown.out}" in outcome.out
    for text in ("error CKP001", "+gradient_checkpointing: true", "does not fit", "smallest change that fits"):
        assert text in outcome.out
    for advice in ("cfglint .", "cfglint --diff .", "cfglint estimate FILE", "cfglint fit FILE", "cfglint init"):
        assert f"\n{advice} " in outcome.out


def test_the_folder_holds_the_inputs_of_the_cases(tmp_path):
    assert run_cfglint("demo", "here it is", cwd=tmp_path).code == 0
    ignored = shutil.ignore_patterns("fixed", "expected.txt")
    expected = shutil.copytree(CASES, tmp_path / "expected", ignore=ignored)
    assert read_contents(tmp_path / "here it is") == read_contents(expected)


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_nothing_is_overwritten(tmp_path, kind):
    target = tmp_path / "cfglint-demo"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    outcome = run_cfglint("demo", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "cfglint: cfglint-demo already exists; name a new folder: cfglint demo FOLDER\n"
    assert [path.name for path in tmp_path.iterdir()] == ["cfglint-demo"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    outcome = run_cfglint("demo", "no/such/place", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "cfglint: no/such/place: No such file or directory\n"


def test_a_copy_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail_with_full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device", "disk")

    monkeypatch.setattr(shutil, "copyfile", fail_with_full_disk)
    assert run_cfglint("demo", cwd=tmp_path).code == 2
    assert list(tmp_path.iterdir()) == []


def test_it_is_the_same_in_any_repository(tmp_path):
    """Ignore the settings of parent folders, and whether git ignores the folder."""
    alone, repository = tmp_path / "alone", tmp_path / "repository"
    for folder in (alone, repository):
        folder.mkdir()
    (repository / ".git").mkdir()
    (repository / ".gitignore").write_text("cfglint-demo/\n")
    (repository / "cfglint.toml").write_text('ignore = ["ALL"]\nexclude = ["*"]\n')
    assert run_cfglint("demo", cwd=repository) == run_cfglint("demo", cwd=alone)


def test_a_checkout_is_linted_like_the_same_files_elsewhere(tmp_path):
    """Ignore cfglint's own tests and fixtures as evidence about each other."""
    ignored = shutil.ignore_patterns("fixed", "expected.txt")
    shutil.copytree(CASES, tmp_path / "fixtures" / "cases", ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)  # evidence about releases
    here = run_cfglint("fixtures/cases", cwd=REPOSITORY)
    assert here.code == 1
    assert here == run_cfglint("fixtures/cases", cwd=tmp_path)
