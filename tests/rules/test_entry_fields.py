"""Tables of entry fields: their values and fields exist in the vocabulary, and each field has a known reader."""

from __future__ import annotations

import pytest

from cfglint_rules.vocabulary.entry_fields import load_entry_table
from cfglint_schemas.vocabulary import load
from cfglint_train.frameworks.registry import list_frameworks
from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, lint

TABLES = {name: table for name in list_frameworks() if (table := load_entry_table(name)) is not None}


@pytest.mark.parametrize("framework", TABLES)
def test_tables_name_what_exists(framework):
    table = TABLES[framework]
    vocabulary = load(list_frameworks()[framework].vocabulary)
    for name, readers in table["fields"].items():
        assert set(readers) <= set(table["values"])
        for section in table["sections"]:
            routes = [vocabulary.find_fact((section, 0, name), release) for release in vocabulary.releases]
            assert any(fact is not None for fact in routes), (section, name)
    assert table["mapping"] in table["values"]
    assert set(table["overrides"]) <= set(table["fields"])


@pytest.mark.parametrize(
    ("kind", "more", "reported"),
    [
        ("alpaca", "", True),
        ("alpaca_chat.load_qa", "", True),
        ("chat_template", "", False),
        ("chat_template", "train_on_inputs: false\n", False),
        ("chat_template", "train_on_inputs: true\n", True),
        ("own.prompts", "", False),
        ("alpaca", "processor_type: AutoProcessor\n", False),
        ("{field_instruction: question}", "", True),
    ],
)
def test_a_field_that_the_prompt_type_does_not_read(kind, more, reported, tmp_path):
    text = AXOLOTL.replace("type: alpaca", f"type: {kind}\n    roles_to_train: [assistant]")
    assert "roles_to_train" in text
    (tmp_path / "config.yaml").write_text(text + more)
    findings = lint(tmp_path, build_options(select=["KEY005"], axolotl="0.18.0")).findings
    assert any("`roles_to_train`" in finding.message for finding in findings) == reported
