from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.hardware.sizes import UNITS, SizeError, parse_size, parse_stated_size, split_size
from tests.support.cases import for_each


@for_each(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("480GiB", 480 * 2**30),
        ("1.5TB", 15 * 10**11),
        ("1.5 tib", 3 * 2**39),
        ("512G", 512 * 2**30),  # Slurm's --mem
        ("2g", 2 * 2**30),
        (" 7 MB ", 7 * 10**6),
        ("123", 123),
        ("123b", 123),
        (".5kB", 500),
        ("5.GB", 5 * 10**9),
        ("0.1GiB", 107374182),
        ("1PiB", 2**50),
    ],
)
def test_parse(text, size):
    assert parse_size(text) == size


@for_each(
    "text", ["", "GB", "80 gigs", "-1GB", "1e9", "8,0GB", "80GB per card", "0x10", "nan", "inf", "1.2.3GB", "٣GB"]
)
def test_no_size(text):
    with pytest.raises(SizeError, match="80GB"):
        parse_size(text)


def test_a_number_beyond_any_memory_is_refused():
    with pytest.raises(SizeError):
        parse_size("9" * 400 + "GB")


@given(st.integers(0, 10**12), st.sampled_from(sorted(UNITS)))
def test_whole_numbers_are_exact(number, unit):
    assert parse_size(f"{number}{unit}") == number * UNITS[unit]
    assert split_size(f"{number}{unit.upper()}") == (number * UNITS[unit], unit)


@given(st.decimals(0, 10**6, places=3), st.sampled_from(sorted(UNITS)))
def test_fractions_are_rounded_to_a_byte(number, unit):
    assert abs(parse_size(f"{number}{unit}") - number * UNITS[unit]) <= 0.5


@given(st.text())
def test_any_text_is_a_size_or_refused(text):
    with contextlib.suppress(SizeError):
        assert parse_size(text) >= 0


@pytest.mark.parametrize("text", ["80", "0GB", "0.0TiB"])
def test_a_whole_memory_has_a_unit_and_is_not_empty(text):
    parse_size(text)
    with pytest.raises(SizeError):
        parse_stated_size(text)
