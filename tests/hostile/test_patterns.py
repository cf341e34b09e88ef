"""Patterns of a repository: they match exactly what `re` matches, in linear time."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.foundation import globs
from cfglint_train.foundation.automaton import TooLarge
from cfglint_train.foundation.globs import Glob, is_covered, is_match, split_path
from cfglint_train.foundation.patterns import UnsupportedPattern, compile_pattern
from tests.support.pace import measure_block

ATOMS = st.sampled_from(
    ["a", "b", ".", "\\.", "[ab]", "[^a]", "[a-c_]", "\\d", "\\w", "0", "_", "^", "$", "(?:ab)", "(a|b)"]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?"])
PIECES = st.lists(st.tuples(ATOMS, QUANTIFIERS).map("".join), max_size=5).map("".join)
ALTERNATIVES = st.lists(PIECES, min_size=1, max_size=3).map("|".join)
REGEXES = ALTERNATIVES | st.tuples(PIECES, PIECES).map("({0[0]})+{0[1]}".format)
TEXTS = st.text("ab0_.\n", max_size=8)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(REGEXES, TEXTS)
def test_what_matches_is_what_re_matches(pattern: str, text: str) -> None:
    try:
        ours = compile_pattern(pattern)
    except UnsupportedPattern:
        return
    theirs = re.compile(pattern)
    assert ours.match(text) == (theirs.match(text) is not None)
    assert ours.fullmatch(text) == (theirs.fullmatch(text) is not None)


@pytest.mark.parametrize(
    "pattern", ["(?=a)", "(a)\\1", "\\bx", "a**", "[b-a]", "(", ")", "a{3,1}", "(?i)a", "(" * 99, "a" * 2000]
)
def test_what_is_not_read_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["^(([a-z._]+)+)+Z$", "(a*)*b", "(a|aa)+$", "(.*)*(.*)*(.*)*x", "(a{1,9}){1,9}{1}b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    with measure_block() as measured, suppress(UnsupportedPattern):
        assert not compile_pattern(pattern).fullmatch("a" * 5000 + "!")
    assert measured.seconds < 2


@settings(max_examples=500, deadline=None)
@given(st.text("ab*?[]{},!/.", max_size=10), st.text("ab/.", min_size=1, max_size=8))
def test_a_glob_is_answered(pattern: str, name: str) -> None:
    try:
        globs.check(pattern)
    except TooLarge:
        return
    place = split_path(f"/r/{name.strip('/')}", "/r")
    assert is_covered(place, Glob(pattern, "/r")) or not is_match(place, Glob(pattern, "/r")) or not pattern.strip("/")
