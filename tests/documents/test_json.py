"""JSON, checked against Python's `json` (strict text) and `hjson`, with which DeepSpeed opens files (lenient text)."""

from __future__ import annotations

import json
from typing import Any

import hjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Delete,
    DocumentError,
    Rename,
    Set,
    apply_edits,
    list_scalars,
)
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.writer import is_identical
from cfglint_train.documents.yaml.document import YamlDocument
from tests.support.cases import for_each
from tests.support.corpus import list_corpus_files, needs_corpus

JSON_FILES = list_corpus_files(".json")


def is_strict(path) -> bool:
    try:
        json.loads(path.read_bytes())
    except json.JSONDecodeError:
        return False
    return True


STRICT_FILES = [path for path in JSON_FILES if is_strict(path)]


def apply_changes(source: bytes, *changes: Any) -> bytes:
    return apply_edits(source, JsonDocument("x.json", source).build_edits(list(changes)))


def list_problem_kinds(source: bytes) -> list[str]:
    return [problem.kind for problem in JsonDocument("x.json", source).problems]


@needs_corpus
@for_each("path", STRICT_FILES, ids=lambda path: path.name)
def test_reads_what_json_reads(path):
    source = path.read_bytes()
    document = JsonDocument(str(path), source)
    assert is_identical(document.get_value(), json.loads(source))
    assert document.problems == []
    for scalar in list_scalars(document.root):
        text = document.get_text(scalar.span)
        assert is_identical(json.loads(text), scalar.value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(value=st.dictionaries(st.text(), JSON_VALUES), indent=st.sampled_from([None, 2, "\t"]), ascii_only=st.booleans())
def test_any_json_reads_as_json_does(value, indent, ascii_only):
    try:
        source = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    assert is_identical(JsonDocument("x", source).get_value(), json.loads(source))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (b'{"a": 1, // one\n "b": 2}', "comment"),
        (b'{"a": 1, # one\n "b": 2}', "comment"),
        (b'{"a": 1, /* one\n more */ "b": 2}', "comment"),
        (b'{"a": 1,\n "b": 2,\n}', "trailing-comma"),
        (b'{"a": [1, 2,]}', "trailing-comma"),
        (b'{"a": 1\n "b": 2}', "missing-comma"),
        (b'{a: 1, b: "x"}', "unquoted-key"),
        (b'{"a": some words\n "b": 2\n}', "unquoted-string"),
        (b"{'a': 'x'}", "single-quotes"),
        (b"{\"a\": '''\n  x\n  y\n  '''\n}", "triple-quotes"),
    ],
)
def test_what_only_hjson_takes_is_read_and_noted(source, kind):
    with pytest.raises(json.JSONDecodeError):
        json.loads(source)
    document = JsonDocument("x", source)
    assert kind in [problem.kind for problem in document.problems]
    if kind != "triple-quotes":  # hjson keeps the indentation below the quotes
        assert is_identical(document.get_value(), dict(hjson.loads(source.decode())))


def test_numbers_keep_their_kind():
    value = JsonDocument("x", b'{"a": 5e8, "b": 500000000, "c": -1.0, "d": 1E-5, "e": NaN, "f": -Infinity}').get_value()
    assert is_identical(
        {key: value[key] for key in "abcdf"}, {"a": 5e8, "b": 500000000, "c": -1.0, "d": 1e-5, "f": float("-inf")}
    )
    assert value["e"] != value["e"]


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        (b"", 1, 1),
        (b"  \n ", 2, 2),
        (b'{"a": }', 1, 7),
        (b'{"a": 1', 1, 8),
        (b'{"a" 1}', 1, 6),
        (b'{"a": "x}', 1, 7),
        (b'{"a": 1}}', 1, 9),
        (b'{"a": [1 2]}', 1, 10),
        (b'{"\xc3\xa9": "\\q"}', 1, 8),
        (b'{"a": 1,,}', 1, 9),
        (b"[" * 5000, 1, 101),
        (b"hello", 1, 1),
    ],
)
def test_bad_text_is_one_error_with_its_place(source, line, column):
    with pytest.raises(DocumentError) as raised:
        JsonDocument("x", source)
    assert raised.value.position == (line, column)
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"{a 1}", "missing colon after the key"),
        (b"{a", "the brace is never closed"),
        (b"{a: 1, :", "a key is missing"),
        (b"{a: 1,", "the brace is never closed"),
        (b"{a: [1", "the bracket is never closed"),
    ],
)
def test_the_message_names_what_is_missing(source, message):
    with pytest.raises(DocumentError, match=message):
        JsonDocument("x", source)


def test_duplicate_keys_are_seen_and_the_last_wins():
    document = JsonDocument("x", b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert document.get_value() == {"a": 3, "b": {"c": 2}}
    assert [(route, entry.name) for route, entry, _ in document.find_duplicate_keys()] == [((), "a"), (("b",), "c")]


CONFIG = b"""{
    "train_batch_size": 16,
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 5e8
    },
    "betas": [0.9, 0.95],
    "fp16": {"enabled": false}
}
"""


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (Set(("train_batch_size",), "auto"), b"16,", b'"auto",'),
        (Set(("zero_optimization", "reduce_bucket_size"), 5e7), b"5e8", b"5e7"),
        (Set(("zero_optimization", "more"), True), b"5e8\n", b'5e8,\n        "more": true\n'),
        (Set(("zero_optimization", "more"), 1, ("stage",)), b"3,\n", b'3,\n        "more": 1,\n'),
        (
            Set(("zero_optimization", "offload_optimizer", "device"), "cpu"),
            b"5e8\n",
            b'5e8,\n        "offload_optimizer": {\n            "device": "cpu"\n        }\n',
        ),
        (Set(("fp16", "x"), None), b"false}", b'false, "x": null}'),
        (Set(("betas",), [1]), b"[0.9, 0.95]", b"[\n        1\n    ]"),
        (Append(("betas",), 0.5), b"0.95]", b"0.95, 0.5]"),
        (Delete(("train_batch_size",)), b'"train_batch_size": 16,\n    ', b""),
        (Delete(("fp16",)), b',\n    "fp16": {"enabled": false}', b""),
        (Delete(("betas", 0)), b"[0.9, 0.95]", b"[0.95]"),
        (Rename(("betas",), "beta"), b'"betas"', b'"beta"'),
    ],
)
@pytest.mark.parametrize("dress", ["plain", "crlf", "tabs", "bom", "no final newline"])
def test_edits_touch_nothing_else(change, old, new, dress):
    before, after = CONFIG, CONFIG.replace(old, new)
    assert before.count(old) == 1
    if dress == "crlf":
        before, after = (text.replace(b"\n", b"\r\n") for text in (before, after))
    elif dress == "tabs":
        before, after = (text.replace(b"    ", b"\t") for text in (before, after))
    elif dress == "bom":
        before, after = (b"\xef\xbb\xbf" + text for text in (before, after))
    elif dress == "no final newline":
        before, after = (text[:-1] for text in (before, after))
    assert apply_changes(before, change) == after


@pytest.mark.parametrize(
    ("source", "changes", "expected"),
    [
        (b"{}", [Set(("a",), 1)], b'{"a": 1}'),
        (b'{"a": 1, // one\n "b": 2}', [Set(("c",), 3, ("a",))], b'{"a": 1, // one\n "c": 3,\n "b": 2}'),
        (b'{"a": 1,\n "b": 2,\n}', [Set(("c",), 3)], b'{"a": 1,\n "b": 2,\n "c": 3,\n}'),
        (b'{"a": 1}', [Delete(("a",))], b"{}"),
        (b'{"a": 1, "b": 2}', [Delete(("a",)), Set(("c",), 3)], b'{"b": 2, "c": 3}'),
        (b"{a: 1}", [Rename(("a",), "b")], b"{b: 1}"),
    ],
)
def test_odd_places(source, changes, expected):
    assert apply_changes(source, *changes) == expected


def test_refuses_to_lose_a_comment():
    source = b'{"a": 1, // why\n "b": 2}'
    with pytest.raises(CannotEdit):
        apply_changes(source, Delete(("a",)))
    with pytest.raises(CannotEdit):
        apply_changes(b'{"a": {"x": 1 // why\n}}', Set(("a",), 1))


@needs_corpus
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_put_get_and_get_put_over_the_corpus(data):
    path = data.draw(st.sampled_from(STRICT_FILES))
    source = path.read_bytes()
    document = JsonDocument(str(path), source)
    tree = json.loads(source)
    if not isinstance(tree, dict):
        return
    route: tuple[Any, ...] = (data.draw(st.sampled_from(sorted(tree) or ["x"])),)
    if isinstance(tree.get(route[0]), dict) and tree[route[0]]:
        route = (*route, data.draw(st.sampled_from(sorted(tree[route[0]]))))
    if document.find_node(route) is not None:
        assert document.build_edits([Set(route, document.get_value(route))]) == []
    if data.draw(st.booleans()):
        route = (*route[:-1], "new_key")
    value = data.draw(JSON_VALUES)
    try:
        new = apply_changes(source, Set(route, value))
    except UnicodeEncodeError:
        return
    parent = tree
    for step in route[:-1]:
        parent = parent[step]
    parent[route[-1]] = value
    assert is_identical(json.loads(new), tree)


@pytest.mark.parametrize(
    "source", [b"{}", b"{ }", b'{"x": 1}', b'{\n  "x": 1  # one\n}', b'{\n  "x": 1,  # one\n}', b'{"x": 1,}']
)
def test_two_insertions_at_one_place_are_two_items(source):
    after = apply_changes(source, Set(("a",), 1, ("x",)), Set(("b",), 2, ("x",)))
    value = JsonDocument("x", after).get_value()
    assert {key: value[key] for key in ("a", "b")} == {"a": 1, "b": 2}
    assert hjson.loads(after.decode()) == value


def test_a_large_float_keeps_every_digit():
    assert apply_changes(b'{"a": 1.0}', Set(("a",), 16777216.0)) == b'{"a": 16777216.0}'
    assert apply_changes(b'{"a": 1.0}', Set(("a",), 5e8)) == b'{"a": 5e8}'


def test_an_item_that_a_list_lacks_is_not_set():
    with pytest.raises(CannotEdit, match="its list is too short"):
        apply_changes(b'{"a": [{"b": 1}], "a": []}', Set(("a", 0, "b"), 2))


@pytest.mark.parametrize(("first", "other"), [("b", "bc"), ("b", "bcd"), ("bc", "bcd"), ("b", "b"), ("bc", "b")])
@pytest.mark.parametrize("document", [JsonDocument("a.json", b'{"a": 1}'), YamlDocument("a.yaml", b"a: 1\n")])
def test_a_key_that_is_made_holds_one_value(document, first, other):
    with pytest.raises(CannotEdit, match="two edits of the same key"):
        document.build_edits([Set(tuple(first), "x"), Set(tuple(other), 1)])


@pytest.mark.parametrize("document", [JsonDocument("a.json", b'{"a": 1}'), YamlDocument("a.yaml", b"a: 1\n")])
def test_a_section_that_is_made_holds_all_that_is_put_in_it(document):
    new_values = {("b", "c", "d"): 1, ("b", "e"): 2, ("b", "c", "f"): [3]}
    added = [Set(route, value) for route, value in new_values.items()]
    after = apply_edits(
        document.source, document.build_edits([*added, Append(("b", "c", "f"), 4), Append(("b", "g"), 5)])
    )
    value = type(document)(document.path, after).get_value()
    assert value == {"a": 1, "b": {"c": {"d": 1, "f": [3, 4]}, "e": 2, "g": [5]}}


@pytest.mark.parametrize(
    "document", [JsonDocument("a.json", b'{"a": 1}'), YamlDocument("a.yaml", b"a: 1\n"), YamlDocument("a", b"{a: 1}\n")]
)
def test_a_key_needs_one_beside_it_that_stays(document):
    with pytest.raises(CannotEdit, match="all other keys of its section are removed"):
        document.build_edits([Delete(("a",)), Set(("b",), 1)])
