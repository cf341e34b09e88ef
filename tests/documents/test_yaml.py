"""YAML: positions, values as the frameworks' loaders convert them, and edits that change nothing else.

Each rewrite is checked with ruamel.yaml: a load of the old and of the new text may differ only at the intended route,
and every comment must still be there.
"""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from ruamel.yaml import YAML

from cfglint_train.documents import limits
from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Delete,
    DocumentError,
    Rename,
    Scalar,
    Set,
    apply_edits,
    follow,
    list_scalars,
)
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.document import Sequence as SequenceNode
from cfglint_train.documents.limits import LimitExceeded
from cfglint_train.documents.writer import is_identical
from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from tests.support.cases import for_each
from tests.support.corpus import list_corpus_files, needs_corpus

YAML_FILES = list_corpus_files(".yaml", ".yml")
SMALL_FILES = [path for path in YAML_FILES if path.stat().st_size < 40_000]


def apply_changes(source: bytes, *changes: Any) -> bytes:
    return apply_edits(source, YamlDocument("x.yaml", source).build_edits(list(changes)))


def load_with_ruamel(source: bytes) -> Any:
    return YAML(typ="rt").load(io.BytesIO(source))


def convert_to_plain(value: Any) -> Any:
    """Return ruamel's round-trip values as plain ones."""
    if isinstance(value, dict):
        return {key: convert_to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [convert_to_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def list_comments(source: bytes) -> list[str]:
    return [comment.text for comment in YamlDocument("x.yaml", source).list_comments()]


# --- positions and values --------------------------------------------------------------------------------------------


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_reads_what_pyyaml_reads(path):
    source = path.read_bytes()
    assert is_identical(YamlDocument(str(path), source).get_value(), yaml.safe_load(source))


@pytest.mark.oracle
@needs_corpus
@pytest.mark.parametrize(
    "path",
    [*list_corpus_files(".yaml", under="olmo"), *list_corpus_files(".yaml", under="llamafactory")],
    ids=lambda p: p.name,
)
def test_reads_what_omegaconf_reads(path):
    document = YamlDocument(str(path), path.read_bytes(), get_omegaconf_dialect())
    assert is_identical(document.get_value(), OmegaConf.to_container(OmegaConf.load(path)))


@needs_corpus
@for_each("path", SMALL_FILES, ids=lambda path: path.name)
def test_every_scalar_stands_where_its_span_says(path):
    document = YamlDocument(str(path), path.read_bytes())
    for scalar in list_scalars(document.root):
        if not scalar.style:
            assert document.get_text(scalar.span).split() == scalar.text.split()


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_offsets_are_bytes_also_behind_other_alphabets(mark, newline):
    source = mark + "a: 早上 # ключ\nключ: é\nlist: [ü, b]\n".encode().replace(b"\n", newline)
    document = YamlDocument("x.yaml", source)
    for route, text in ((("a",), "早上"), (("ключ",), "é"), (("list", 0), "ü"), (("list", 1), "b")):
        node = document.find_node(route)
        assert node is not None
        assert document.get_text(node.span) == text
    assert document.locate(document.find_node(("ключ",)).span.start) == (2, 7)
    assert document.locate(document.root.span.start) == (1, 1)
    assert [comment.text for comment in document.list_comments()] == ["# ключ"]


@for_each(
    ("text", "pyyaml", "omega"),
    [
        ("1e-4", "1e-4", 1e-4),
        ("5e8", "5e8", 5e8),
        ("1.0e-5", 1.0e-5, 1.0e-5),
        ("yes", True, True),
        ("off", False, False),
        ("012", 10, 10),
        ("1:30", 90, 90),
        ("0x1f", 31, 31),
        ("1_000", 1000, 1000),
        (".inf", math.inf, math.inf),
        ("~", None, None),
        ("'1'", "1", "1"),
        ("!!str 1", "1", "1"),
        ("!!float 1", 1.0, 1.0),
        ("null", None, None),
        ("2024-01-01x", "2024-01-01x", "2024-01-01x"),
    ],
)
def test_scalars_are_typed_as_their_loader_types_them(text, pyyaml, omega):
    source = f"a: {text}\n".encode()
    assert is_identical(YamlDocument("x", source).get_value(("a",)), pyyaml)
    document = YamlDocument("x", source)
    document.get_value()
    document.set_dialect(get_omegaconf_dialect())
    assert is_identical(document.get_value(("a",)), omega)


def test_a_date_is_a_date_to_pyyaml_only():
    document = YamlDocument("x", b"a: 2024-01-01\n")
    assert document.get_value(("a",)) == yaml.safe_load("a: 2024-01-01")["a"]
    document.set_dialect(get_omegaconf_dialect())
    assert document.get_value(("a",)) == "2024-01-01"


def test_merge_keys_and_aliases_are_followed():
    source = b"base: &b\n  lr: 1\n  wd: 2\nrun:\n  <<: *b\n  lr: 3\nagain: *b\n"
    assert YamlDocument("x", source).get_value() == yaml.safe_load(source)


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        (b"a: 1\n b: 2\n", 2, 3),
        (b"a: [1\n", 1, 4),
        (b"a: 1\n---\nb: 2\n", 2, 1),
        (b"a: *nobody\n", 1, 4),
        (b"a: \xff\n", 1, 4),
        ("é: \x01\n".encode(), 1, 4),
        (b"\ta: 1\n", 1, 1),
    ],
)
def test_bad_text_is_one_error_with_its_place(source, line, column):
    with pytest.raises(DocumentError) as raised:
        YamlDocument("x", source)
    assert (raised.value.position.line, raised.value.position.column) == (line, column)
    assert "\n" not in raised.value.message


def test_nesting_and_alias_bombs_end_in_one_error():
    with pytest.raises(DocumentError, match=r"nested deeper|nesting depth"):
        YamlDocument("x", b"[" * 50_000)
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    with pytest.raises(LimitExceeded, match="expands to more than") as caught:
        YamlDocument("x", bomb.encode())
    assert caught.value.position.line == 5
    with pytest.raises(LimitExceeded, match="inside its own anchor") as caught:
        YamlDocument("x", b"a: &a\n  b: *a\n")
    assert caught.value.position == (2, 6)
    shared = YamlDocument("x", b"a: &a [1, 2]\nb: [*a, *a]\nc: *a\n")
    assert shared.get_value() == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": [1, 2]}


def test_more_keys_and_values_than_a_configuration_has_are_refused():
    keys, values = limits.MAX_KEYS, limits.MAX_NODES
    assert YamlDocument("x", b"a: 1\n" + b"".join(b"k%d: 1\n" % number for number in range(keys - 1))).root is not None
    with pytest.raises(LimitExceeded, match="10,000 keys"):
        YamlDocument("x", b"".join(b"k%d: 1\n" % number for number in range(keys + 1)))
    with pytest.raises(LimitExceeded, match="50,000 values"):
        YamlDocument("x", b"a: [" + b"1," * values + b"]")


def test_duplicates_are_all_there_and_the_last_wins():
    document = YamlDocument("x", b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert document.get_value() == {"a": 3, "b": {"c": 2}}
    duplicates = [(route, entry.name, first.span.start) for route, entry, first in document.find_duplicate_keys()]
    assert duplicates == [((), "a", 0), (("b",), "c", 10)]


# --- writing: examples -----------------------------------------------------------------------------------------------

CONFIG = b"""\
# head
base_model: x  # the model
fsdp_config:
    offload: true
    # deep
    wrap: 'Layer'

datasets:
- path: a   # p
  type: b
plugins: [a, b]  # flow
lr: "2e-5"
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Set(("base_model",), "y"), (b"base_model: x", b"base_model: y")),
        (Set(("lr",), "1e-4"), (b'"2e-5"', b'"1e-4"')),
        (Set(("fsdp_config", "wrap"), "It's"), (b"'Layer'", b"'It''s'")),
        (Set(("new",), True, ("base_model",)), (b"the model\n", b"the model\nnew: true\n")),
        (Set(("new",), 1e-5), (b'"2e-5"\n', b'"2e-5"\nnew: 1.0e-05\n')),
        (Set(("new",), "yes"), (b'"2e-5"\n', b'"2e-5"\nnew: "yes"\n')),
        (Set(("new",), "1e5"), (b'"2e-5"\n', b'"2e-5"\nnew: "1e5"\n')),
        (Set(("fsdp_config", "more"), 3), (b"'Layer'\n", b"'Layer'\n    more: 3\n")),
        (Set(("a", "b"), {"c": [1, "x"]}), (b'2e-5"\n', b'2e-5"\na:\n    b:\n        c:\n        - 1\n        - x\n')),
        (Append(("plugins",), "c"), (b"[a, b]", b"[a, b, c]")),
        (Append(("datasets",), "c"), (b"type: b\n", b"type: b\n- c\n")),
        (Append(("made",), "c"), (b'"2e-5"\n', b'"2e-5"\nmade:\n- c\n')),
        (Delete(("base_model",)), (b"base_model: x  # the model\n", b"")),
        (Delete(("datasets", 0, "type")), (b"  type: b\n", b"")),
        (Delete(("plugins", 0)), (b"[a, b]", b"[b]")),
        (Delete(("plugins", 1)), (b"[a, b]", b"[a]")),
        (Rename(("base_model",), "model"), (b"base_model:", b"model:")),
        (Set(("plugins",), ["z"]), (b"[a, b]", b"[z]")),
        (Set(("datasets", 0, "path"), "q: r"), (b"path: a ", b'path: "q: r" ')),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dress", ["plain", "crlf", "bom", "no final newline"])
def test_edits_touch_nothing_else(change, expected, dress):
    before, after = CONFIG, CONFIG.replace(*expected)
    assert before.count(expected[0]) == 1
    if dress == "crlf":
        before, after = (text.replace(b"\n", b"\r\n") for text in (before, after))
    elif dress == "bom":
        before, after = (b"\xef\xbb\xbf" + text for text in (before, after))
    elif dress == "no final newline":
        before, after = (text[:-1] for text in (before, after))
    assert apply_changes(before, change) == after


@for_each(
    ("source", "changes", "expected"),
    [
        (b"", [Set(("a",), 1)], b"a: 1\n"),
        (b"# only a comment", [Set(("a",), 1)], b"# only a comment\na: 1\n"),
        (b"a:\n", [Set(("a",), 1)], b"a: 1\n"),
        (b"a:  # why\n", [Set(("a",), 1)], b"a: 1  # why\n"),
        (b"a:\n", [Set(("a", "b"), 1)], b"a:\n  b: 1\n"),
        (b"a: {}\n", [Set(("a", "b"), 1)], b"a: {b: 1}\n"),
        (b"{a: 1}\n", [Set(("b",), [1])], b"{a: 1, b: [1]}\n"),
        (b"a: &x 1\nb: *x\n", [Set(("b",), 2)], b"a: &x 1\nb: 2\n"),
        (b"a: &x 1\nb: *x\n", [Set(("a",), 2)], b"a: &x 2\nb: *x\n"),
        (b"a: |\n  x\n  y\n\nb: 1\n", [Set(("c",), 2, ("a",))], b"a: |\n  x\n  y\nc: 2\n\nb: 1\n"),
        (b"- a: 1\n  b: 2\n", [Delete((0, "a"))], b"- b: 2\n"),
        (b"a:\n  b: 1\nc: 2\n", [Delete(("a", "b"))], b"a: {}\nc: 2\n"),
        (b"a: 1\n", [Delete(("a",))], b""),
        (b"a: 1\nb: 2", [Delete(("b",))], b"a: 1"),
        (b"a: 1\nb: 2\n", [Delete(("a",)), Set(("c",), 3, ("a",))], b"b: 2\nc: 3\n"),
        (b"p: 1\n", [Append(("l",), "a"), Append(("l",), "b")], b"p: 1\nl:\n  - a\n  - b\n"),
        (b"a: [1, 2,]\n", [Append(("a",), 3)], b"a: [1, 2, 3,]\n"),
        (b"a: [\n  1,  # one\n  2  # two\n]\n", [Append(("a",), 3)], b"a: [\n  1,  # one\n  2,  # two\n  3\n]\n"),
        (b"<<: &b {x: 1}\n", [Set(("x",), 2)], b"<<: &b {x: 1}\nx: 2\n"),
        (b"a: 1\na: 2\n", [Set(("a",), 3)], b"a: 1\na: 3\n"),
        (b"a: 1\n...\n", [Set(("b",), 2)], b"a: 1\nb: 2\n...\n"),
        (b"---\na: 1\n", [Set(("b",), 2)], b"---\na: 1\nb: 2\n"),
        (b"a:\n  b: 1 # why\n", [Set(("a",), 1)], b"a: 1 # why\n"),
        (b"a: >\n  folded\n", [Set(("a",), "x\ny")], b'a: "x\\ny"\n'),
    ],
)  # fmt: skip
def test_odd_places(source, changes, expected):
    assert apply_changes(source, *changes) == expected


@pytest.mark.parametrize(
    ("source", "change"),
    [
        (b"a:\n  # why\n  b: 1\nc: 1\n", Delete(("a",))),
        (b"a:\n  # why\n  b: 1\n", Set(("a",), 1)),
        (b"a: !!str 1\n", Set(("a",), "2")),
        (b"a: 1\n", Set(("a", "b"), 2)),
        (b"a: x\n", Append(("a",), 2)),
        (b"- a: 1\n", Delete((0, "a"))),
        (b"a:\n  - b: 1\na: []\n", Set(("a", 0, "b"), 2)),
    ],
)
def test_refuses_what_it_cannot_do_without_harm(source, change):
    with pytest.raises(CannotEdit):
        apply_changes(source, change)


@pytest.mark.parametrize(("source", "step"), [(b"a: [1]\n", "b"), (b"a: 1\n", 0), (b"a: 1\n", "b")])
def test_only_a_mapping_has_keys_and_only_a_list_has_items(source, step):
    with pytest.raises(CannotEdit, match="its parent is not a mapping"):
        apply_changes(source, Set(("a", step), 2))


# --- writing: laws over the corpus ------------------------------------------------------------------------------------


def list_routes(node, route=()):
    node = follow(node)
    if isinstance(node, Scalar):
        yield route
    elif isinstance(node, MappingNode):
        for name, entry in node.index.items():
            yield from list_routes(entry.value, (*route, name))
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items[:3]):
            yield from list_routes(item, (*route, index))


@needs_corpus
@for_each("path", SMALL_FILES, ids=lambda path: path.name)
def test_get_put_writing_the_present_value_changes_nothing(path):
    document = YamlDocument(str(path), path.read_bytes())
    for route in list_routes(document.root):
        assert document.build_edits([Set(route, document.get_value(route))]) == []


VALUES = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["on", "1e-4", "", " x", "a: b", "x #y", "早", "[z]", "-", "~", "!t", "0x1f", "a'b", 'a"b', "a\nb"]
    ),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12),
)


@pytest.mark.slow
@needs_corpus
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_put_get_and_minimal_over_the_corpus(data):
    path = data.draw(st.sampled_from(SMALL_FILES))
    source = path.read_bytes()
    if data.draw(st.booleans()):
        source = source.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    document = YamlDocument(str(path), source)
    candidates = list(list_routes(document.root))
    route = data.draw(st.sampled_from(candidates))
    if data.draw(st.booleans()):
        route = (*route[:-1], "cfglint_new_key") if isinstance(route[-1], str) else route
    value = data.draw(VALUES)
    new = apply_edits(source, document.build_edits([Set(route, value)]))
    expected = document.get_value()
    parent = expected
    for step in route[:-1]:
        parent = parent[step]
    parent[route[-1]] = value
    assert is_identical(YamlDocument(str(path), new).get_value(), expected)
    assert is_identical(yaml.safe_load(new), expected)
    # A YAML 1.2 reader sees one difference and all comments.
    before, after = convert_to_plain(load_with_ruamel(source)), convert_to_plain(load_with_ruamel(new))
    for tree in (before, after):
        inner = tree
        for step in route[:-1]:
            inner = inner[step]
        if isinstance(inner, dict):
            inner.pop(route[-1], None)
        else:
            inner[route[-1]] = None
    assert before == after or str(before) == str(after)
    assert list_comments(source) == list_comments(new)
    if document.find_node(route) is not None:
        assert len(source.splitlines()) >= len(new.splitlines())


@needs_corpus
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_deleting_removes_one_key_and_no_comment_of_another_line(data):
    path = data.draw(st.sampled_from(SMALL_FILES))
    source = path.read_bytes()
    document = YamlDocument(str(path), source)
    route = data.draw(st.sampled_from([route for route in list_routes(document.root) if isinstance(route[-1], str)]))
    try:
        new = apply_edits(source, document.build_edits([Delete(route)]))
    except CannotEdit:
        return
    expected = document.get_value()
    parent = expected
    for step in route[:-1]:
        parent = parent[step]
    del parent[route[-1]]
    assert is_identical(YamlDocument(str(path), new).get_value() or {}, expected)
    own_lines = [text for text in source.decode().splitlines() if text.strip().startswith("#")]
    assert [text for text in new.decode().splitlines() if text.strip().startswith("#")] == own_lines


@settings(max_examples=300, deadline=None)
@given(
    tree=st.recursive(
        VALUES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abcé_1:# ", min_size=1, max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    in_flow=st.booleans(),
)
def test_any_plain_value_can_be_put_and_read_back(tree, in_flow):
    source = b"{a: 1}\n" if in_flow else b"a: 1\nb:\n  c: 1\n"
    new = apply_changes(source, Set(("new",), tree))
    assert is_identical(yaml.safe_load(new)["new"], tree)
    assert is_identical(YamlDocument("x", new).get_value(("new",)), tree)


def test_two_insertions_at_one_place_are_two_items():
    for source in (b"a: {}\n", b"a: { }\n", b"a: {z: 1}\n"):
        after = apply_changes(source, Set(("a", "x"), 1, ("z",)), Set(("a", "y"), 2, ("z",)))
        value = YamlDocument("x", after).get_value(("a",))
        assert {key: value[key] for key in ("x", "y")} == {"x": 1, "y": 2}


@pytest.mark.parametrize("source", [b"a: &x []\nb: *x\n", b"a: &x\n  k: 1\nb: *x\n", b"a: &x {k: 1}\nb: *x\n"])
def test_an_anchored_collection_is_not_replaced(source):
    with pytest.raises(CannotEdit, match="anchor"):
        apply_changes(source, Set(("a",), True))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("'a b'", b"'a b'"),
        ('"checkpoint"', b'"checkpoint"'),
        ("checkpoint", b"checkpoint"),
        ("1e-4", b"1e-4"),
        ("0x10", b"0x10"),
    ],
)
def test_a_moved_value_keeps_its_text(value, text):
    source = f"old: {value}\nsection:\n  other: 1\n".encode()
    document = YamlDocument("x.yaml", source)
    moved = apply_changes(source, Delete(("old",)), Set(("section", "new"), document.get_value(("old",))))
    assert moved == b"section:\n  other: 1\n  new: " + text + b"\n"
