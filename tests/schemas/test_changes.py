"""Pull request text for new releases: keys added, removed or changed, and the code that reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.schemas.changes import format_changes, list_keys, list_readers, main

from cfglint_schemas.vocabulary import Vocabulary, find_schema_file, list_vocabularies, load
from tests.support.corpus import REPOSITORY


def edit_vocabulary(name: str, *substitutions: tuple[str, str]) -> Vocabulary:
    """Return a vocabulary whose file has been edited by regular expressions, as an earlier one."""
    text = Path(find_schema_file(name)).read_text(encoding="utf-8")
    for pattern, replacement in substitutions:
        text, count = re.subn(pattern, replacement, text, count=1, flags=re.M)
        assert count == 1, pattern
    return Vocabulary(name, text)


@pytest.mark.parametrize("name", list_vocabularies())
def test_nothing_changes_between_equal_files(name):
    lines = list(format_changes(name, load(name), load(name)))
    assert [line for line in lines if line.startswith("- ")] == []
    assert lines[0] == f"{name} {load(name).newest} to {load(name).newest}; new releases: none."
    assert lines[-1] == "Fields whose lenses to look at: none."


def test_what_came_went_and_changed():
    earlier = edit_vocabulary(
        "olmo",
        (r'^    "backend": \{"type":"string","default":"inductor".*\n', ""),
        (r'^(    "dynamic": .*\n)', r'\1    "earlier": {"type":"integer","x-releases":[{"since":"0.1.0"}]},\n'),
        (r'("global_train_batch_size": \{"type":"integer","default":)512', r"\g<1>256"),
    )
    lines = list(format_changes("olmo", earlier, load("olmo")))
    assert '- `compile.backend`: `{"type": "string", "default": "inductor"}`' in lines
    assert "- `compile.earlier`" in lines
    assert "- `global_train_batch_size`: default `256` -> `512`, read as `batch.global_`" in lines
    assert lines[-1] == "Fields whose lenses to look at: `batch.global_`."


def test_every_key_of_a_lens_is_found_by_its_name():
    fields_by_key = list_readers("axolotl")
    assert fields_by_key["micro_batch_size"] == ("batch.micro",)
    assert len(fields_by_key.keys() & list_keys(load("axolotl")).keys()) > 50


def test_the_command(tmp_path, capsys):
    earlier_file = tmp_path / "before.json"
    earlier_file.write_bytes(Path(find_schema_file("olmo")).read_bytes())
    assert main(["olmo", str(earlier_file)]) == 0
    assert capsys.readouterr().out.startswith("olmo 0.6.0 to 0.6.0; ")


def test_the_workflow_uses_it():
    text = (REPOSITORY / ".github" / "workflows" / "schemas.yml").read_text(encoding="utf-8")
    assert "python -m tools.schemas.changes" in text
    assert text.count("--body-file") == 2
