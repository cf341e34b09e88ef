"""Many cases in one test: every case runs, and every one that fails is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.skips import not_applicable


def test_every_case_that_fails_is_named():
    seen = []

    @for_each("number", range(4))
    def odd(number: int) -> None:
        seen.append(number)
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail:\n\[0\] AssertionError: even(.|\n)*\[2\] "):
        odd()
    assert seen == [0, 1, 2, 3]


def test_an_error_is_a_failure():
    @for_each(("word", "number"), [pytest.param("1", 1, id="a word"), pytest.param("x", 2, id="no number")])
    def reads(word: str, number: int) -> None:
        assert int(word) == number

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail:\n\[no number\] ValueError"):
        reads()


def test_no_case_is_a_failure():
    @for_each("path", list)
    def reads(path: Path) -> None: ...

    with pytest.raises(AssertionError, match="no cases"):
        reads()


def test_a_skip_must_be_fine():
    @for_each("reason", ["", "not applicable: no such case"])
    def some(reason: str) -> None:
        if reason:
            not_applicable("no such case")

    @for_each("reason", ["not installed"])
    def lacking(reason: str) -> None:
        pytest.skip(reason)

    some()
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        lacking()


def test_a_skip_hides_no_failure():
    @for_each("number", range(3))
    def some(number: int) -> None:
        if number == 1:
            pytest.skip("not installed")
        assert number, "none"

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail:\n\[0\] AssertionError: none"):
        some()


def test_an_error_that_is_not_raised_is_a_failure():
    @for_each("word", ["x", "1", "y", "2"])
    def refused(word: str) -> None:
        with pytest.raises(ValueError, match=word):
            int(word)

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail:\n\[1\] Failed: DID NOT RAISE(.|\n)*\[2\] Failed"):
        refused()


@for_each("name", ["a", "b"])
def test_each_case_has_a_folder(name: str, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).touch()
