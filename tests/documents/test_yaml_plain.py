"""Plain YAML: what is read without PyYAML is read as with it, to the byte, and what is not plain is left to it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.documents.document import Alias, Mapping, Node, Scalar, Sequence, Span
from cfglint_train.documents.yaml.compose import compose
from cfglint_train.documents.yaml.dialects import OMEGACONF, PYYAML, typed
from cfglint_train.documents.yaml.plain import compose_plain
from cfglint_train.documents.yaml.resolved import resolved
from tests.support.corpus import files, needs_corpus

LINES = (
    "a: 1", "b:", "c: 'x y'", 'd: "x" # c', "# c", "", "   ", "e: f # g", "h: #c", "i: a#b", "j: a:", "k: x: y",
    "l: - x", "m: -1", "n: 'it''s'", 'o: "a\\n"', "p: 'a'b", "q : a", "r:a", "- s", "-", "- t: 1", "- u:", "- - v",
    "-  w: 1", "- - x: 1", "- #c", "-#c", "- 'y'", "- z:z", "- ? a", "? a", ": a", "---", "...", "text", "&a b: 1",
    "aa: *a", "bb: !t 1", "cc: [1, 2]", "dd: {a: 1}", "ee: |", "ff: >-", "gg: {{ x }}", "<<: a", "hh: ~", "ii: ./a/b",
    "jj: http://a", "kk: a  ", "ll:\t1", "mm: \u00e9", "a.b-c/d: 1", "1: a", "'nn': 1", "%a: 1", "oo: @a", "pp: %a",
    "qq: `a", "rr: ,a",
)  # fmt: skip


def shape(node: Node | None) -> Any:
    """All that a tree is made of."""
    if isinstance(node, Scalar):
        return "scalar", node.span, node.text, node.style, node.tag, node.anchored, repr(node.value)
    if isinstance(node, Mapping):
        entries = [(shape(entry.key), shape(entry.value), entry.name) for entry in node.entries]
        return "mapping", node.span, node.flow, entries
    if isinstance(node, Sequence):
        return "sequence", node.span, node.flow, [shape(item) for item in node.items]
    assert node is None or isinstance(node, Alias)
    return node


def assert_same(source: bytes) -> bool:
    """Whether a text is plain; it then has the tree that PyYAML's events make, which raises nothing."""
    found = compose_plain(source)
    if found is not None:
        assert shape(found) == shape(compose(source.decode(), source))
    return found is not None


@needs_corpus
def test_every_plain_configuration_has_the_tree_of_pyyaml():
    sources = [path.read_bytes() for path in files(".yaml", ".yml")]
    assert sum(map(assert_same, sources)) > len(sources) / 2


@given(st.lists(st.tuples(st.sampled_from((0, 0, 1, 2, 2, 4)), st.sampled_from(LINES)), max_size=8), st.booleans())
def test_lines_in_any_order_have_the_tree_of_pyyaml(lines, ends):
    text = "\n".join(" " * indent + line for indent, line in lines) + "\n" * ends
    assert_same(text.encode())


@given(st.text("ab01.:-# '\"\\\n[]{}&*!|>?%@,~/", max_size=12))
def test_texts_of_marks_have_the_tree_of_pyyaml(text):
    assert_same(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n  c: x # note\n  d:\n  - 'e'\n  -\n  - f: 1\n    g: \"h\"\ni:\n",
        "- a\n- - b\n  - c: 1\n\n# end\n",
        "learning_rate: 2e-5\noutput_dir: ./out\nhub: org/name\n",
    ],
)
def test_these_are_plain(text):
    assert assert_same(text.encode())


@pytest.mark.parametrize(
    "line", ["a: [1]", "a: *b", "a: !t 1", "a: |", "a: 'b''c'", 'a: "\\n"', "---", "a: \u00e9", "a:\t1"]
)
def test_these_are_left_to_pyyaml(line):
    assert compose_plain(f"b: 1\n{line}\n".encode()) is None


def test_a_large_text_is_left_to_pyyaml_and_its_limits():
    assert compose_plain(b"a: 1\n" * 5000) is None
    assert compose_plain(b"- " * 150 + b"a\n") is None


@pytest.mark.parametrize("dialect", [PYYAML, OMEGACONF], ids=lambda dialect: dialect.name)
@given(text=st.text("01289_.:+-eExinfaINFAyYnNoOsStTrRuUlL~/=< ", min_size=1, max_size=6).filter(str.strip))
def test_what_is_typed_at_once_is_what_pyyaml_makes_of_it(dialect, text):
    assert repr(typed(Scalar(Span(0, 0), text), dialect)) == repr(resolved(text, None, dialect.has_exponents))


@pytest.mark.parametrize("dialect", [PYYAML, OMEGACONF], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "true", "false", "null", "~", "y", "yEs", "nULL", "none"])
def test_words_are_typed_as_pyyaml_types_them(dialect, word):
    for spelling in (word, word.title(), word.upper()):
        assert repr(typed(Scalar(Span(0, 0), spelling), dialect)) == repr(yaml.safe_load(spelling))
