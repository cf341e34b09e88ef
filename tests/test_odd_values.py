"""Odd values: no command crashes, whatever replaces a number or a value in a fixture."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import run_cfglint

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ODD = (
    "0", "-1", "-0", "0.5", "1e999", ".inf", ".nan", "1e308", "1e-320", "1_000", "1:30", "0x10", "true", "null", '""',
    "[]", "18446744073709551616", "9" * 30, "9" * 320, "9" * 5000,
)  # fmt: skip
SHAPES = (
    "[]", "{}", "[1]", "{a: 1}", "[[]]", "[{}]", "[null]", "{1: 2}", "null", "true", "3", "1e3", "0o17", "2020-01-01",
    '""', '"x"', '"true"', '"1e-5"', '"auto"', '"${oc.env:X}"', '"{{ x }}"', '["a", "a"]', '"é"',
)  # fmt: skip
NUMBER = re.compile(r"(?<=[\s:=,\[(])[0-9]+(?:\.[0-9]+)?(?=[\s,\])}]|$)", re.M)
VALUE = re.compile(r"(?<=: )[^\n#&*\[{|>]+(?=\n)|(?<== )[^\n,()]+(?=[,\n)])")
FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.suffix in (".yaml", ".json", ".sh", ".py") and path.is_file() and "fixed" not in path.parts
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("odd")


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.sampled_from(FILES), st.sampled_from([(NUMBER, ODD), (VALUE, SHAPES)]), st.integers(0, 10**9), st.booleans())
def test_odd_values_are_answered(folder, path, kind, seed, everywhere):
    draw = random.Random(seed)
    place_of, odd = kind
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    places = list(place_of.finditer(text))
    chosen = places if everywhere else draw.sample(places, min(3, len(places)))
    for place in sorted(chosen, key=lambda place: -place.start()):
        text = text[: place.start()] + draw.choice(odd) + text[place.end() :]
    file = folder / path.name
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    try:
        for words in (
            ("--output-format", "json"),
            ("--explain-origins",),
            ("--diff", "--unsafe-fixes"),
            ("estimate", "--what-if", "micro_batch=1,2"),
        ):
            outcome = run_cfglint(*words, file.name, cwd=folder)
            assert outcome.code in (0, 1, 2)
            assert "please report it" not in outcome.out + outcome.err
    finally:
        file.unlink()
