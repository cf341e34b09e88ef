"""Clause files against their schema, and the words and operators that clauses use."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cfglint_rules.vocabulary.operators import OPERATORS, RELATIONS, WORDS, evaluate_test, list_relations
from cfglint_rules.vocabulary.table import INHERITED, TableKind, load_clauses, load_table, rename_settings
from cfglint_train import frameworks
from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.fields import get_field
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint

FOLDER = Path(frameworks.__path__[0])
SCHEMA = json.loads((FOLDER / "clauses.schema.json").read_text(encoding="utf-8"))
FILES = sorted(path for kind in ("refusals", "idle") for path in FOLDER.rglob(f"*{kind}.json"))
KINDS: tuple[TableKind, ...] = ("refusals", "idle")
TABLES = [(framework, kind) for framework in list_frameworks() for kind in KINDS if load_table(framework, kind).rows]
NO_KEYS = (
    "@ranks",
    "@eval_batch",
    "@capability",
    "@cuda",
    "@published",
    "@alone",
    "@heads",
    "@positions",
    "@host",
    "@trainer",
    "@client_optimizer",
    "@client_scheduler",
    "@release",
    "@syntax",
    "@overridden",
    "@names",
    "@command",
    "@trained",
    "@used",
)


def load_clause_file(path: Path) -> dict[str, Any]:
    clauses: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return clauses


def list_tests(row: dict[str, Any]) -> list[tuple[str, Any]]:
    """List the settings of a clause, each with its test."""
    return [entry for tests in (row["when"], *row.get("either", ())) for entry in tests.items()]


def list_conditions(path: Path) -> set[str]:
    """Return the names of the public functions of a module of conditions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_files_follow_the_schema(path):
    rows = load_clause_file(path)
    errors = Draft202012Validator(SCHEMA).iter_errors(rows)
    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []
    assert (path.parent / rows["$schema"]).samefile(FOLDER / "clauses.schema.json")
    names = [row["name"] for row in rows["clauses"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_clauses_are_found_by_the_layout_of_their_file(path):
    file = load_clause_file(path)
    mark = {INHERITED: True} if INHERITED in file else {}
    clauses = load_clauses(str(path))[: len(file["clauses"])]
    assert [clause.read() for clause in clauses] == [row | mark for row in file["clauses"]]
    assert [clause.first for clause in clauses] == [next(iter(row["when"])) for row in file["clauses"]]


def test_every_file_is_loaded():
    included = [(path.parent, shared) for path in FILES for shared in load_clause_file(path).get("include", ())]
    shared = {(folder / (name if isinstance(name, str) else name["file"])).resolve() for folder, name in included}
    loaded = {(FOLDER / framework / f"{kind}.json").resolve() for framework, kind in TABLES}
    assert {path.resolve() for path in FILES} == shared | loaded
    for framework, kind in TABLES:
        names = [row["name"] for row in load_table(framework, kind).rows]
        assert len(names) == len(set(names))


def test_included_clauses_are_renamed_wherever_they_name_a_setting():
    row = {
        "name": "a",
        "message": "`[a]` is `<a>`",
        "when": {"a": {"above": 1, "not-a-multiple-of": "b"}},
        "either": [{"b": "on"}, {"c": "on"}],
        "each": ["b", "c"],
        "at": "b",
        "example": {"a": 3, "b": 2},
        "cure": {"message": "set `[b]`", "set": {"b": 1}, "remove": ["a"]},
    }
    assert rename_settings(row, {"a": "x", "b": "y.z"}) == {
        "name": "a",
        "message": "`[x]` is `<x>`",
        "when": {"x": {"above": 1, "not-a-multiple-of": "y.z"}},
        "either": [{"y.z": "on"}, {"c": "on"}],
        "each": ["y.z", "c"],
        "at": "y.z",
        "example": {"x": 3, "y.z": 2},
        "cure": {"message": "set `[y.z]`", "set": {"y.z": 1}, "remove": ["x"]},
    }


@for_each("part", [
    {"when": {"a": "on"}}, {"either": [{"a": "on"}]}, {"each": ["a"]}, {"at": "a"}, {"when": {"b": {"above": "a"}}},
    {"cure": {"remove": ["a"]}}, {"cure": {"set": {"a": 1}}},
])  # fmt: skip
def test_included_clauses_are_dropped_if_they_need_a_setting_that_the_framework_lacks(part):
    assert rename_settings({"example": {"a": 1}, **part}, {"a": None}) is None


def test_an_included_file_states_whether_its_clauses_hold_for_derived_trainers():
    rows = {row["name"]: row for row in load_table("trl", "refusals").rows}
    assert INHERITED in rows["rank-below-1"]
    assert INHERITED not in rows["sampling-of-vespo"]


@for_each(("releases", "severities"), [
    ({}, ["info"]), ({"transformers": "4.57.1"}, ["error"]), ({"transformers": "5.0.0"}, []),
])  # fmt: skip
def test_a_refusal_before_the_effective_release_is_an_info_unless_a_release_is_pinned(releases, severities, tmp_path):
    source = REPOSITORY / "fixtures" / "rules" / "KEY006" / "silent" / "llamafactory.yaml"
    settings = [
        line for line in source.read_text(encoding="utf-8").splitlines() if not line.startswith(("#", "warmup"))
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.yaml").write_text("\n".join([*settings, "warmup_ratio: 3"]), encoding="utf-8")
    findings = lint(folder, build_options(select=["KEY006"], **releases)).findings
    assert [finding.severity for finding in findings] == severities
    assert all("before transformers 5.0.0" in finding.message for finding in findings if finding.severity == "info")
    assert [finding.fix for finding in findings] == [None] * len(severities)


def test_the_documentation_shows_a_clause_that_is_there():
    page = (REPOSITORY / "docs" / "contributing" / "clause.md").read_text(encoding="utf-8")
    examples = re.findall(r'^```json title="([^"]+)"\n(.+?)^```', page, re.M | re.S)
    assert examples
    for name, text in examples:
        assert json.loads(text) in load_clause_file(REPOSITORY / name)["clauses"]


@for_each("change", [
    {"name": None}, {"source": "axolotl"}, {"sevrity": "info"}, {"severity": "fatal"}, {"when": {}},
    {"when": {"a": "enabled"}}, {"when": {"a": {}}}, {"when": {"a": {"abov": 1}}}, {"when": {"a": {"in": []}}},
    {"when": {"a": {"more-than": "b"}}}, {"also": "some.module"}, {"package": "torch"},
    {"cure": {"applicability": "safe", "message": "nothing"}},
])  # fmt: skip
def test_the_schema_refuses_mistakes(change):
    row = {"name": "n", "message": "m", "when": {"a": "on"}, "example": {"a": 1}, "source": "axolotl 0.21.0 file.py"}
    file = {"$schema": "../clauses.schema.json", "about": "sample"}
    assert Draft202012Validator(SCHEMA).is_valid({**file, "clauses": [row]})
    assert not Draft202012Validator(SCHEMA).is_valid({**file, "clauses": [{**row, **change}]})


def test_the_schema_has_the_words_and_operators_that_are_computed():
    definitions = SCHEMA["$defs"]
    assert {word["const"] for word in definitions["word"]["oneOf"]} == set(WORDS)
    assert set(definitions["operators"]["properties"]) == {*OPERATORS, *RELATIONS}


@pytest.mark.parametrize(("framework", "kind"), TABLES)
def test_clauses_hold_only_where_their_first_setting_is_given(framework, kind):
    """Require it, because the table is searched by the first setting."""
    for row in load_table(framework, kind).rows:
        name, test = next(iter(row["when"].items()))
        assert name[0] not in "@=" or row["each"], row["name"]
        assert name[0] in "@=" or not evaluate_test(test, MISSING), row["name"]


@pytest.mark.parametrize(("framework", "kind"), TABLES)
def test_clauses_name_what_exists(framework, kind):
    for row in load_table(framework, kind).rows:
        names = [
            name for name, test in list_tests(row) for name in (name, *(related for _, related in list_relations(test)))
        ]
        for name in (*names, *re.findall(r"[\[<](@[^\]>]*)[\]>]", row["message"])):
            assert name[0] != "@" or name in NO_KEYS or name.startswith("@main.") or get_field(name[1:])


@pytest.mark.parametrize(("framework", "kind"), TABLES)
def test_brackets_in_texts_hold_the_name_of_one_setting(framework, kind):
    """Allow one name per pair, because `[a, b]` would lose its brackets."""
    for row in load_table(framework, kind).rows:
        for text in (row["message"], row.get("help", ""), row.get("cure", {}).get("message", "")):
            assert [
                name for name in re.findall(r"[\[<]([^\]>]*)[\]>]", text) if not re.fullmatch(r"[\w.@=-]+", name)
            ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_flags_in_texts_take_the_spelling_of_the_script(kind):
    for row in load_table("openrlhf", kind).rows:
        for text in (row["message"], row.get("help", ""), row.get("cure", {}).get("message", "")):
            assert not re.search(r"(?<![\[<])--[a-z]", text), row["name"]


@pytest.mark.parametrize("framework", list_frameworks())
def test_conditions_that_are_code_are_there_and_used(framework):
    used = {row["also"] for kind in KINDS for row in load_table(framework, kind).rows if "also" in row}
    module = FOLDER / framework / "conditions.py"
    assert used == (list_conditions(module) if module.exists() else set())


@pytest.mark.parametrize("framework", list_frameworks())
def test_no_effect_is_no_refusal(framework):
    """Require another level of idle clauses, because a clause is an error unless it states one."""
    assert [row["name"] for row in load_table(framework, "idle").rows if "severity" not in row] == []


def test_nearly_all_clauses_are_data_alone():
    rows = [row for path in FILES for row in load_clause_file(path)["clauses"]]
    coded = [row["name"] for row in rows if "also" in row]
    assert len(rows) >= 347
    assert len(coded) <= 23


@for_each(("test", "good", "bad"), [
    ("known", [MISSING, None, 1], []),
    ("on", [True, 1, "a", [1]], [MISSING, None, False, 0, "", "No", "false", [], {}]),
    ("off", [MISSING, None, False, 0, "", []], [True, 1, "false"]),
    ("given", [False, 0, ""], [MISSING, None]),
    ("absent", [MISSING, None], [False, 0, ""]),
    ("true", [True], [1, "true", MISSING]),
    ("false", [False], [0, "false", MISSING]),
    ("zero", [0, 0.0], [False, None, MISSING, "0"]),
    ("odd", [3, 1.0], [2, "3", MISSING]),
    ("integer", [3], [3.0, "3", MISSING]),
    ("text", ["", "a"], [1, MISSING]),
    ("list", [[]], ["", {}, MISSING]),
    ({"is": "integer", "above": 1}, [2], [1, 2.5, MISSING]),
    ({"in": [1, "a"]}, [1, "a"], [True, 1.0, "1", MISSING]),
    ({"in-any-case": ["adam"]}, ["Adam"], ["adamw", None, MISSING]),
    ({"other-than": ["a"]}, ["b", 0], ["a", None, MISSING]),
    ({"not-in": ["a"]}, ["b", None, MISSING], ["a"]),
    ({"absent-or": ["a"]}, ["a", None, MISSING], ["b"]),
    ({"above": 1}, [2, 1.5], [1, True, "2", MISSING]),
    ({"below": 1}, [0, 0.5], [1, False, "0", MISSING]),
    ({"containing": ["qwen"]}, ["org/Qwen2"], ["llama", 1, MISSING]),
    ({"listing": ["Plugin"]}, [["a.Plugin"]], [["Plugin.b"], "Plugin", [1], MISSING]),
    ({"more-than": 1}, ["a,b", [1, 2]], ["a", [1], 5, MISSING]),
    ({"with-an-item": {"a": "absent", "b": {"not-in": [1]}}}, [[{"b": 2}], ["c", {"a": None}]],
     [[], [{"a": 1, "b": 2}, "c"], [{"b": 1}], [{"b": Unknown("x")}], {"b": 2}, MISSING]),
    ({"naming-more-than": ["a"]}, [{"a": 1, "b": 2}], [{"a": 1}, {}, ["b"], "b", MISSING]),
    ({"not": "false"}, [True, MISSING], [False]),
    ({"any": ["zero", "text"]}, [0, "a"], [1, MISSING]),
    ({"all": ["on", "integer"]}, [1, True], [0, "a", MISSING]),
], ids=str)  # fmt: skip
def test_words_and_operators(test, good, bad):
    assert [value for value in good if not evaluate_test(test, value)] == []
    assert [value for value in bad if evaluate_test(test, value)] == []


@pytest.mark.parametrize(("relation", "good", "bad"), [
    ("above", [(2, 1), (1.5, 1)], [(1, 1), (MISSING, 1), (2, MISSING), ("2", 1), (2, False)]),
    ("below", [(1, 2)], [(1, 1), (MISSING, 1), (1, MISSING)]),
    ("differs-from", [(1, 2), ("a", False)], [(1, 1), (MISSING, 1), (1, MISSING), (None, 1)]),
    ("a-multiple-of", [(4, 2), (2, 2), (1.5, 0.5)], [(3, 2), (0, 2), (3, 0), (MISSING, 2), (3, MISSING)]),
    ("not-a-multiple-of", [(3, 2), (0.5, 2)], [(4, 2), (3, 0), (MISSING, 2), (3, MISSING)]),
    ("not-as-many-as", [("a,b", "a"), ([1], [1, 2])], [("a,b", [1, 2]), (MISSING, "a"), (1, [1, 2])]),
    ("sharing-an-item-with", [("a, b", "b"), (["a"], ["b", "a"])], [("a,b", "c"), (MISSING, "a"), ([1], [1])]),
])  # fmt: skip
def test_relations(relation, good, bad):
    assert list(list_relations({relation: "other"})) == [(relation, "other")]
    assert [pair for pair in good if not RELATIONS[relation](*pair)] == []
    assert [pair for pair in bad if RELATIONS[relation](*pair)] == []
