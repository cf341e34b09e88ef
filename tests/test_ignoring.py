"""`--add-ignore`: a comment at every finding, in each syntax, that silences it and changes nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cfglint_train.project.files import parse, syntax_of
from tests.support.command import cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, TWICE
from tests.support.corpus import REPOSITORY

RULES = REPOSITORY / "fixtures" / "rules"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def found(here: Path) -> list[tuple[str, str]]:
    report = json.loads(cfglint("--output-format", "json", cwd=here).out)
    return [(finding["path"], finding["code"]) for finding in report["findings"]]


@pytest.mark.parametrize("name", ["KEY001", "MEM001", "CKP001", "PAR003", "SEC001", "SYN003"])
def test_what_fires_is_silent_afterwards(here, name):
    """Configurations of every syntax: YAML, shell scripts, Python."""
    shutil.copytree(RULES / name / "fires", here, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in here.rglob("*.*") if path.is_file()}
    assert found(here)
    outcome = cfglint("--add-ignore", cwd=here)
    assert "ignored " in outcome.err
    left = found(here)
    assert [path for path, _ in left if not path.endswith(".json")] == []
    for path, source in before.items():
        syntax = syntax_of(str(path), source)
        if syntax is not None:
            value = parse("x", source, syntax).value()
            assert repr(parse("x", path.read_bytes(), syntax).value()) == repr(value)
    again = {path: path.read_bytes() for path in before}
    cfglint("--add-ignore", cwd=here)
    assert {path: path.read_bytes() for path in before} == again


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_stay(here, ending, mark):
    text = mark + TWICE.replace("\n", ending)
    (here / "config.yaml").write_bytes(text.encode())
    assert cfglint("--select", "SYN003", "--add-ignore", cwd=here).code == 0
    after = (here / "config.yaml").read_bytes().decode()
    assert after.replace(f"# cfglint: ignore[SYN003]{ending}", "") == text


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_comment_above_a_last_line_without_an_end_takes_the_end_of_the_first(here, ending):
    first, last = "{base_model: x, datasets: [{path: a.jsonl, type: alpaca}], lora_r: 1,", "lora_r: 2}"
    (here / "config.yaml").write_bytes(f"{first}{ending}{last}".encode())
    cfglint("--select", "SYN003", "--add-ignore", cwd=here)
    expected = f"{first}{ending}# cfglint: ignore[SYN003]{ending}{last}"
    assert (here / "config.yaml").read_bytes() == expected.encode()


def test_a_comment_above_the_only_line_ends_as_lines_do(here):
    source = b"{base_model: x, datasets: [{path: a.jsonl, type: alpaca}], lora_r: 1, lora_r: 2}"
    (here / "config.yaml").write_bytes(source)
    cfglint("--select", "SYN003", "--add-ignore", cwd=here)
    assert (here / "config.yaml").read_bytes() == b"# cfglint: ignore[SYN003]\n" + source


def test_a_command_over_several_lines_gets_its_comment_above(here):
    for path in (path for path in RULES.glob("*/fires/*.sh") if b"\\\n" in path.read_bytes()):
        shutil.copyfile(path, here / f"{path.parents[1].name}-{path.name}")
    cfglint("--add-ignore", cwd=here)
    texts = [path.read_text() for path in here.glob("*.sh")]
    scripts = [text.splitlines() for text in texts if "cfglint: ignore" in text]
    assert len(scripts) > 2
    for lines in scripts:
        for before, line in zip(lines, lines[1:]):
            assert not ("cfglint: ignore" in line and before.endswith("\\"))


def test_json_is_ignored_in_the_settings(here):
    (here / "config.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (here / "ds.json").write_text(CONTRADICTED)
    outcome = cfglint("--select", "XFL001", "--add-ignore", cwd=here)
    assert outcome.code == 1
    assert (here / "ds.json").read_text() == CONTRADICTED
    lines = outcome.err.splitlines()
    table = lines[lines.index("[per-file-ignores]") :]
    assert table[1] == '"ds.json" = ["XFL001"]'
    (here / "cfglint.toml").write_text("\n".join(table))
    assert cfglint("--select", "XFL001", cwd=here).code == 0


@pytest.mark.parametrize("flags", [("--fix",), ("--diff",), ("--stdin-filename", "x.yaml"), ("-",)])
def test_it_only_writes_files_and_comments(here, flags):
    outcome = cfglint("--add-ignore", *flags, cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--add-ignore cannot be used with" in outcome.err


def test_a_script_that_names_its_interpreter_keeps_doing_so(here):
    from cfglint_train.fixing.ignoring import _written

    ((text, shift),) = _written(b"#!/bin/bash\nx\n", 1, "PAR003")
    assert (text, shift) == (b"#!/bin/bash\n# cfglint: file-ignore[PAR003]\nx\n", 0)


def test_quiet_leaves_out_the_summary_alone(here):
    (here / "config.yaml").write_text(TWICE)
    loud, quiet = (cfglint(*flags, "--select", "SYN003", cwd=here) for flags in ((), ("-q",)))
    assert quiet.code == loud.code == 1
    assert loud.out == quiet.out + loud.lines[-1] + "\n"
