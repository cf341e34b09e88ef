"""Fixes that end resuming: safe only if the settings allow it, or if no other checkpoint can be written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY

FIXTURE = REPOSITORY / "fixtures" / "rules" / "CKP002" / "fires"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    for name in ("zero3.yaml", "ds_z3.json"):
        shutil.copy(FIXTURE / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "flags", "written", "is_undecided"),
    [
        ("", (), False, True),
        ("resumable = true", (), False, False),
        ("resumable = false", (), True, False),
        ("", ("--disk", "50GB"), True, False),
        ("", ("--disk", "5GB"), False, True),
        ("", ("--disk", "10TB"), False, True),
        ("", ("--unsafe-fixes",), True, False),
    ],
)
def test_the_optimizer_state_is_left_out(
    here, settings: str, flags: tuple[str, ...], written: bool, is_undecided: bool
):
    (here / "cfglint.toml").write_text(settings)
    outcome = run_cfglint("--fix", "--select", "CKP002", *flags, cwd=here)
    assert ("save_only_model: true" in (here / "zero3.yaml").read_text()) is written
    assert ("to decide: zero3.yaml: CKP002" in outcome.err) is is_undecided
