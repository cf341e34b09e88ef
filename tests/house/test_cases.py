"""Many cases in one test: every case runs, and each failing case is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.skips import skip_inapplicable


def test_every_case_that_fails_is_named():
    numbers = []

    @for_each("number", range(4))
    def check_odd(number: int) -> None:
        numbers.append(number)
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail:\n\[0\] AssertionError: even(.|\n)*\[2\] "):
        check_odd()
    assert numbers == [0, 1, 2, 3]


def test_an_error_is_a_failure():
    @for_each(("word", "number"), [pytest.param("1", 1, id="a word"), pytest.param("x", 2, id="no number")])
    def check_reads(word: str, number: int) -> None:
        assert int(word) == number

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail:\n\[no number\] ValueError"):
        check_reads()


def test_no_case_is_a_failure():
    @for_each("path", list)
    def check_reads(path: Path) -> None: ...

    with pytest.raises(AssertionError, match="no cases"):
        check_reads()


def test_a_skip_must_be_fine():
    @for_each("reason", ["", "not applicable: no such case"])
    def skip_some(reason: str) -> None:
        if reason:
            skip_inapplicable("no such case")

    @for_each("reason", ["not installed"])
    def skip_lacking(reason: str) -> None:
        pytest.skip(reason)

    skip_some()
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        skip_lacking()


def test_a_skip_hides_no_failure():
    @for_each("number", range(3))
    def skip_some(number: int) -> None:
        if number == 1:
            pytest.skip("not installed")
        assert number, "none"

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail:\n\[0\] AssertionError: none"):
        skip_some()


def test_an_error_that_is_not_raised_is_a_failure():
    @for_each("word", ["x", "1", "y", "2"])
    def check_refused(word: str) -> None:
        with pytest.raises(ValueError, match=word):
            int(word)

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail:\n\[1\] Failed: DID NOT RAISE(.|\n)*\[2\] Failed"):
        check_refused()


@for_each("name", ["a", "b"])
def test_each_case_has_a_folder(name: str, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).touch()
