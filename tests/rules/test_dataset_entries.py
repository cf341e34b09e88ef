"""Dataset files: every clause holds for its example and not for the corrected entry, and the samples beside the file.

LLaMA-Factory 0.9.5's own loader refuses each example, or drops its sample, and accepts each corrected entry.
"""

from __future__ import annotations

import json

import pytest

from cfglint_rules.vocabulary.dataset_entries import load_dataset_table
from cfglint_rules.vocabulary.operators import OPERATORS, RELATIONS, WORDS
from tests.support.linting import build_options, lint

TABLE = load_dataset_table("llamafactory")
CLAUSES = {row["name"]: row for row in TABLE["clauses"]}

CHAT = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
PAIRS = {"ranking": True, "columns": {"prompt": "q", "chosen": "c", "rejected": "r"}}
ACCEPTED = {
    "data-set-without-source": {"@entry": {"file_name": "a.json"}},
    "file-type-of-data-set": {"@entry": {"file_name": "train.jsonl"}},
    "pairs-outside-preference-stages": {"@entry": PAIRS, "stage": "dpo"},
    "preference-stage-without-pairs": {"@entry": PAIRS, "stage": "rm"},
    "pairs-without-columns": {"@entry": PAIRS, "stage": "dpo"},
    "kto-without-tag": {
        "@entry": {"columns": {"prompt": "q", "response": "a", "kto_tag": "good"}},
        "stage": "kto",
    },
    "unknown-formatting": {"@entry": {"formatting": "alpaca"}},
    "formatting-before-openai": {"@entry": {"formatting": "sharegpt"}},
    "tags-without-role-and-content": {"@entry": {"formatting": "sharegpt", "tags": CHAT}},
    "tags-without-speakers": {"@entry": {"formatting": "sharegpt", "tags": CHAT}},
    "chat-without-messages": {"@entry": {"formatting": "sharegpt", "columns": {"messages": "m"}}},
    "messages-without-formatting": {"@entry": {"formatting": "sharegpt", "columns": {"messages": "m"}}},
    "instructions-without-response": {"@entry": {"columns": {"prompt": "q"}}, "stage": "pt"},
    "images-of-a-text-template": {
        "@entry": {"formatting": "sharegpt", "columns": {"messages": "m", "images": "i"}},
        "template": "qwen2_vl",
    },
    "split-of-file": {"@entry": {"file_name": "a.json", "split": "train[:10%]"}},
}


def write_run(folder, info, **settings):
    """Write a configuration and the file that describes its data set."""
    base = {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "template": "qwen",
        "dataset": "mine",
        "dataset_dir": "data",
        "do_train": True,
        "output_dir": "out",
        "finetuning_type": "lora",
        **settings,
    }
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "train.yaml").write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in base.items()))
    text = info if isinstance(info, str) else json.dumps(info, indent=2)
    (folder / "data" / "dataset_info.json").write_text(text)


def find(folder, code="KEY006", **releases):
    """Return the severity, file and message of each finding."""
    findings = lint(folder, build_options(select=[code], **{"llamafactory": "0.9.5", **releases})).findings
    return [(finding.severity, finding.path.rpartition("/")[2], finding.message) for finding in findings]


def write_example(folder, example):
    entry = dict(example["@entry"])
    if example is not CLAUSES["data-set-without-source"]["example"]:
        entry.setdefault("file_name", "elsewhere.json")
    write_run(folder, {"mine": entry}, **{name: value for name, value in example.items() if name != "@entry"})


@pytest.mark.parametrize("name", CLAUSES)
def test_a_clause_holds_for_its_example_only(name, tmp_path):
    row = CLAUSES[name]
    release = {"llamafactory": "0.9.3"} if row.get("before") else {}
    write_example(tmp_path, row["example"])
    (severity, file, message), *others = find(tmp_path, **release)
    assert (severity, file, others) == ("error", "dataset_info.json", [])
    assert len(message) <= 120
    write_example(tmp_path, ACCEPTED[name])
    assert find(tmp_path, **release) == []


def test_clauses_use_words_and_operators_that_exist():
    known = {*WORDS, *OPERATORS, *RELATIONS}
    for row in TABLE["clauses"]:
        for tests in (row["when"], *row.get("either", ())):
            for test in tests.values():
                assert {test} <= known if isinstance(test, str) else test.keys() <= known
    assert set(ACCEPTED) == set(CLAUSES)


def test_an_undefined_data_set_stops_the_run(tmp_path):
    write_run(tmp_path, {"my_data": {"file_name": "a.json"}}, dataset="my_dta,my_set,identity")
    ((severity, file, message),) = find(tmp_path)
    assert (severity, file) == ("error", "train.yaml")
    assert "`my_dta`, `my_set`, which" in message  # LLaMA-Factory's own file has `identity`
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "dataset_info.json").write_text('{"my_dta": {"file_name": "b.json"}}')
    assert "`my_set`, which" in find(tmp_path)[0][2]
    (tmp_path / "more" / "dataset_info.json").unlink()
    write_run(tmp_path, {"my_data": {"file_name": "a.json"}}, dataset="my_dta")
    assert [finding[0] for finding in find(tmp_path)] == ["error"]
    (tmp_path / "prepare.py").write_text("open('data/dataset_info.json', 'w')")
    assert find(tmp_path) == []
    (tmp_path / "prepare.py").unlink()
    for over in ({"dataset": "my_data"}, {"dataset_dir": "ONLINE"}, {"tokenized_path": "cache"}, {"dataset": "${SET}"}):
        write_run(tmp_path, {"my_data": {"file_name": "a.json"}}, **{"dataset": "my_dta", **over})
        assert find(tmp_path) == []


def test_the_default_folder_is_an_assumption(tmp_path):
    write_run(tmp_path, {"my_data": {"file_name": "a.json"}}, dataset="my_dta", dataset_dir=None)
    text = (tmp_path / "train.yaml").read_text().replace("dataset_dir: null\n", "")
    (tmp_path / "train.yaml").write_text(text)
    assert [finding[0] for finding in find(tmp_path)] == ["warning"]


def test_a_dataset_file_that_is_no_json(tmp_path):
    write_run(tmp_path, '{"mine": {"file_name": "a.json"},}')
    ((severity, file, message),) = find(tmp_path)
    assert (severity, file) == ("error", "train.yaml")
    assert "not valid JSON" in message


SAMPLES = {"instruction": "a", "input": "", "output": "b"}


def build_chat(*roles):
    return {"conversations": [{"from": role, "value": "x"} for role in roles]}


@pytest.mark.parametrize(
    ("entry", "samples", "found"),
    [
        ({}, [SAMPLES], None),
        ({}, [{"instruction": "a", "output": "b"}], ("error", "`input`")),
        ({"columns": {"prompt": "q", "response": "output"}}, [SAMPLES], ("error", "`q`")),
        ({"columns": {"prompt": "instruction", "response": "output"}}, [{"instruction": "a", "output": "b"}], None),
        ({"formatting": "sharegpt"}, [build_chat("human", "gpt")], None),
        ({"formatting": "sharegpt"}, [build_chat("system", "human", "function_call", "observation", "gpt")], None),
        ({"formatting": "sharegpt"}, [build_chat("user", "assistant")], ("error", "every sample")),
        ({"formatting": "sharegpt"}, [build_chat("human", "gpt"), build_chat("human")], ("warning", "1 of 2 samples")),
        ({"formatting": "sharegpt"}, [{"conversations": [{"role": "user", "value": "x"}]}], ("error", "no `from`")),
        ({"formatting": "sharegpt"}, [{"messages": []}], ("error", "`conversations`")),
        (
            {"formatting": "sharegpt", "columns": {"messages": "m"}, "tags": CHAT},
            [{"m": [{"role": role, "content": "x"} for role in ("system", "user", "assistant")]}],
            ("error", "every sample"),
        ),
    ],
)
@pytest.mark.parametrize("is_list", [True, False])
def test_samples_beside_the_file(entry, samples, found, is_list, tmp_path):
    name = "a.json" if is_list else "a.jsonl"
    write_run(tmp_path, {"mine": {"file_name": name, **entry}})
    lines = json.dumps(samples) if is_list else "\n".join(map(json.dumps, samples))
    (tmp_path / "data" / name).write_text(lines)
    findings = find(tmp_path)
    assert [finding[0] for finding in findings] == ([found[0]] if found else [])
    assert not found or found[1] in findings[0][2]


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"format": "sharegpt"}, "format"),
        ({"messages": "m"}, "messages"),
        ({"columns": {"role_tag": "r", "response": "a"}}, "columns.role_tag"),
        ({"columns": {"promt": "q", "response": "a"}}, "columns.promt"),
        ({"description": "text", "license": "MIT"}, ""),
    ],
)
def test_fields_that_nothing_reads(entry, field, tmp_path):
    write_run(tmp_path, {"mine": {"file_name": "elsewhere.json", **entry}})
    findings = find(tmp_path, "KEY005")
    assert [message.split("`")[1] for *_, message in findings] == ([field] if field else [])


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": None},
        {"columns": {"messages": ["conversations"]}},
        {"tags": None},
        {"tags": {**CHAT, "role_tag": ["from"]}},
        {"formatting": ["sharegpt"]},
    ],
    ids=str,
)
def test_fields_of_other_types_keep_the_samples_from_being_read(fields, tmp_path):
    write_run(tmp_path, {"mine": {"file_name": "a.json", "formatting": "sharegpt", **fields}})
    (tmp_path / "data" / "a.json").write_text(json.dumps([build_chat("user")]))
    assert [finding for finding in find(tmp_path, llamafactory="0.9.1") if "a.json" in finding[2]] == []
