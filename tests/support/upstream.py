"""The repository as others install it: a clone of the working tree with everything committed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from os import environ, pathsep
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY

IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
TAG = "v0.test"


def run_git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_tree(*folders: str) -> list[str]:
    """Return the files of the working tree that git tracks or would add."""
    listed = run_git(REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders)
    return sorted(name for name in listed.split("\0") if name and (REPOSITORY / name).is_file())


def clone_repository(folder: Path) -> Path:
    """Return a tagged clone that includes uncommitted changes, as a release of the working tree would be."""
    run_git(REPOSITORY, "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(folder))
    for name in run_git(folder, "ls-files").splitlines():
        (folder / name).unlink()
    for name in list_tree():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--allow-empty", "--message", "as it is")
    run_git(folder, "tag", TAG)
    return folder


def find_program(name: str) -> str:
    """Return the path of a program of the test environment or the machine; skip the test if it is not installed."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}{pathsep}{environ['PATH']}")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path
