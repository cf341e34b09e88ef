"""`cfglint migrate`: arguments, exit codes, output and written files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

OLD = AXOLOTL + "flash_attention: true\n"
NEW = AXOLOTL + "attn_implementation: flash_attention_2\n"
WITH_UNKNOWN_KEY = OLD + "unsloth_rope: true\n"
TO = ("migrate", "--isolated", "--to", "axolotl=0.21.0")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(OLD)
    return tmp_path


def test_files_are_rewritten_in_place(here: Path) -> None:
    os.chmod(here / "config.yaml", 0o640)
    outcome = run_cfglint(*TO, ".", cwd=here)
    assert (outcome.code, outcome.err) == (0, "")
    assert (here / "config.yaml").read_text() == NEW
    assert (here / "config.yaml").stat().st_mode & 0o777 == 0o640
    assert outcome.lines[0].startswith(
        "config.yaml:10:1: changed: KEY002 rename flash_attention to attn_implementation"
    )
    assert outcome.lines[-1] == "1 of 1 files rewritten for axolotl 0.21.0; 1 changed."
    again = run_cfglint(*TO, ".", cwd=here)
    assert (again.code, again.lines) == (0, ["0 of 1 files rewritten for axolotl 0.21.0."])


def test_what_needs_a_human_is_the_exit_code(here: Path) -> None:
    (here / "config.yaml").write_text(WITH_UNKNOWN_KEY)
    outcome = run_cfglint(*TO, "config.yaml", cwd=here)
    assert outcome.code == 1
    human = next(line for line in outcome.lines if ": human: " in line)
    assert human.startswith("config.yaml:11:1: human: KEY002 `unsloth_rope`")
    assert outcome.lines[-1].endswith("1 left for you.")


def test_a_pin_to_another_release_needs_a_human(here: Path) -> None:
    (here / "requirements.txt").write_text("axolotl==0.16.1\n")
    outcome = run_cfglint(*TO, ".", cwd=here)
    assert outcome.code == 1
    assert "human: requirements.txt:1 states axolotl 0.16.1, but the files are now for 0.21.0" in outcome.lines


@pytest.mark.parametrize("flag", ["--check", "--diff"])
def test_nothing_is_written_where_only_the_outcome_is_asked_for(here: Path, flag: str) -> None:
    outcome = run_cfglint(*TO, flag, "config.yaml", cwd=here)
    assert outcome.code == 1
    assert (here / "config.yaml").read_text() == OLD
    (here / "config.yaml").write_text(NEW)
    assert run_cfglint(*TO, flag, "config.yaml", cwd=here).code == 0


def test_the_diff_is_one_that_patch_takes(here: Path) -> None:
    outcome = run_cfglint(*TO, "--diff", "config.yaml", cwd=here)
    assert "-flash_attention: true\n+attn_implementation: flash_attention_2\n" in outcome.out
    assert outcome.out.startswith("--- config.yaml\n+++ config.yaml\n@@ ")
    assert "1 of 1 files would change for axolotl 0.21.0; 1 changed." in outcome.err


def test_json_for_programs(here: Path) -> None:
    (here / "config.yaml").write_text(WITH_UNKNOWN_KEY)
    outcome = run_cfglint(*TO, "--output-format", "json", "--check", ".", cwd=here)
    report = json.loads(outcome.out)
    assert (report["version"], report["to"], report["written"], report["hints"]) == (
        1,
        {"axolotl": "0.21.0"},
        False,
        [],
    )
    (file,) = report["files"]
    assert (file["path"], file["framework"], file["changes"]) == ("config.yaml", "axolotl", True)
    assert [(item["kind"], item["code"], item["place"]) for item in file["items"]] == [
        ("changed", "KEY002", {"line": 10, "column": 1}),
        ("human", "KEY002", {"line": 11, "column": 1}),
    ]


def test_wrong_usage(here: Path) -> None:
    for arguments in (
        ("migrate", "config.yaml"),
        ("migrate", "--to", "axolotl=0.21.0"),
        ("migrate", "--to", "tensorflow=2", "config.yaml"),
        (*TO, "--diff", "--output-format", "json", "config.yaml"),
        (*TO, "--config", "missing.toml", "config.yaml"),
    ):
        outcome = run_cfglint(*arguments, cwd=here)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err
    assert (here / "config.yaml").read_text() == OLD


def test_files_that_cannot_be_read_or_are_of_another_framework(here: Path) -> None:
    assert run_cfglint(*TO, "missing.yaml", cwd=here).code == 2
    (here / "other.yaml").write_text("a: 1\n")
    outcome = run_cfglint(*TO, "other.yaml", cwd=here)
    assert (outcome.code, outcome.err) == (2, "no configuration of these frameworks in the given paths\n")
    (here / "broken.yaml").write_text(AXOLOTL + "fsdp: [\n")
    outcome = run_cfglint(*TO, ".", cwd=here)
    assert outcome.code == 2
    assert "error: broken.yaml:" in outcome.err
    assert (here / "config.yaml").read_text() == NEW


def test_a_file_that_cannot_be_written_is_left_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cfglint_train.foundation import atomic

    def fail_with_full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "stage", fail_with_full_disk)
    outcome = run_cfglint(*TO, "config.yaml", cwd=here)
    assert outcome.code == 2
    assert "error: config.yaml: not written: No space left on device" in outcome.err
    assert (here / "config.yaml").read_text() == OLD


def test_hostile_names_and_values_do_not_reach_the_terminal(here: Path) -> None:
    name = "::error file=x::a\x1b[31m.yaml"
    (here / name).write_text(OLD.replace("./out", "hf_" + "a" * 34) + "unsloth_rope: true\n")
    (here / "config.yaml").unlink()
    for flag in ("--check", "--diff"):
        outcome = run_cfglint(*TO, flag, ".", cwd=here)
        printed = outcome.out + outcome.err
        assert "\x1b" not in printed
        assert not any(line.lstrip().startswith("::") for line in printed.splitlines())


def test_the_settings_tell_what_is_excluded(here: Path) -> None:
    (here / "cfglint.toml").write_text('exclude = ["old"]\n')
    (here / "old").mkdir()
    (here / "old" / "config.yaml").write_text(OLD)
    assert run_cfglint("migrate", "--to", "axolotl=0.21.0", ".", cwd=here).code == 0
    assert (here / "old" / "config.yaml").read_text() == OLD
    assert (here / "config.yaml").read_text() == NEW
