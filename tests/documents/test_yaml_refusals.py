"""YAML that frameworks' loaders reject although libyaml accepts it, or the reverse, with positions."""

from __future__ import annotations

import pytest
import yaml

from cfglint_train.documents.document import DocumentError
from cfglint_train.documents.limits import MAX_SLOW_BYTES, LimitExceeded
from cfglint_train.documents.yaml import refusals as judges
from cfglint_train.documents.yaml.dialects import PYYAML, get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument

HEAD = "# ä\na: 1\n"


def find_refusal(text: str, dialect=PYYAML, loader: int = 0):
    """Return line, column and reason of the refusal, or None."""
    document = YamlDocument("x.yaml", (HEAD + text).encode())
    refusals = document.find_refusals(dialect)
    refusal = refusals[loader] if refusals else None
    return None if refusal is None else (*document.locate(refusal.span.start), refusal.message)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("b:\t1\n", (3, 3, "found character '\\t' that cannot start any token")),
        (" \t\nb: 1\n", (3, 2, "found character '\\t' that cannot start any token")),
        ("b: ä \t# c\n", (3, 6, "found character '\\t' that cannot start any token")),
        ("b: !size 3\n", (3, 4, "could not determine a constructor for the tag '!size'")),
        ("b: &n 1\nc: &n 2\n", (4, 4, "found duplicate anchor 'n'")),
        ("<<: 3\n", (3, 5, "expected a mapping or list of mappings for merging, but found scalar")),
        ("b: 2026-02-30\n", (3, 4, "day is out of range for month")),
        ("b: =\n", (3, 4, "could not determine a constructor for the tag 'tag:yaml.org,2002:value'")),
        ("? [a]\n: 1\n", (3, 3, "found unhashable key")),
        ("b: |#x\n  a\n", (3, 5, "expected chomping or indentation indicators, but found '#'")),
        ("b: 0b_\n", (3, 4, "invalid literal for int() with base 2: ''")),
        ('b: "\\U00110000"\n', (3, 7, "found invalid Unicode character escape code")),
        ("b: [what?]\n", (3, 9, "expected ',' or ']', but got '?'")),
    ],
)
def test_a_refusal_has_its_place(text, place):
    with pytest.raises((yaml.YAMLError, ValueError)):
        yaml.safe_load(HEAD + text)
    try:
        refusal = find_refusal(text)
    except DocumentError as error:  # libyaml rejects it too
        refusal = (*error.position, error.message)
    assert refusal == place


@pytest.mark.parametrize(
    "text",
    ["b: 'a\tb' # c\td\n", "b: &n {x: 1}\nc: *n\nd:\n  <<: *n\n", "b: !!str 1\n", "b: 1:2\n"],
)
def test_what_the_loader_takes_is_no_finding(text):
    yaml.safe_load(HEAD + text)
    assert find_refusal(text) is None


def test_what_only_libyaml_refuses_is_read():
    document = YamlDocument("x.yaml", b"b: {a:}\n")
    assert document.get_value() == {"b": {"a": None}} == yaml.safe_load(document.source)
    assert document.find_refusals(PYYAML) == (None,)
    older, newer = document.find_refusals(get_omegaconf_dialect())
    assert older is None
    assert newer is not None


def test_omegaconf_reads_dates_as_text_and_tabs_since_2_4():
    assert find_refusal("b: 2026-02-30\n", get_omegaconf_dialect(), 0) is None
    assert find_refusal("b:\t1\n", get_omegaconf_dialect(), 0) is not None
    assert find_refusal("b:\t1\n", get_omegaconf_dialect(), 1) is None
    assert find_refusal("~: 1\n", get_omegaconf_dialect(), 1) == (3, 1, "a key cannot be null")
    assert find_refusal("b: !!set {x}\n", get_omegaconf_dialect(), 0) == (3, 4, "a value cannot be a set")
    assert find_refusal("b: !!python/object/apply:pathlib.Path [x]\n", get_omegaconf_dialect(), 0) is None


def test_a_mark_of_a_template_is_no_key():
    assert find_refusal("b: {{ lr }}\nc: &n 1\n") is None


def test_a_text_without_anything_doubtful_is_read_once(monkeypatch):
    monkeypatch.setattr(judges, "find_refusals", lambda *_: pytest.fail("read again"))
    text = "a: 1\nb: [x, y]\nc:\n  - d: 'e'\n    f: 1.0e-5\ng: http://x.org/y#z\n"
    assert YamlDocument("x.yaml", text.encode()).find_refusals(PYYAML) == ()


def test_a_doubtful_text_is_bounded():
    rest = b"b: 1\n" * 2
    text = b"# " + b"x" * MAX_SLOW_BYTES + b"\n" + rest
    assert YamlDocument("x.yaml", text).find_refusals(PYYAML) == ()
    with pytest.raises(LimitExceeded, match="more than 512 KiB with tabs"):
        YamlDocument("x.yaml", text + b"c: &n 1\n")
