"""Recorded answers of the frameworks: complete, for the pinned releases, and comparable."""

from __future__ import annotations

import json
import os

import pytest

from tests.support import oracle
from tests.support.cases import for_each

QUESTIONS = ["a", "b", "a"]


@for_each("program", oracle.PROGRAMS)
def test_every_program_has_a_record_of_what_it_asks_now(program: str) -> None:
    record = oracle.Record(program)
    assert record.path.is_file(), f"not recorded: {oracle.RECORD}"
    assert record.answers, f"{program} or a release has changed: {oracle.RECORD}"
    assert all(isinstance(json.loads(answer), dict) for answer in record.answers.values())


def test_there_are_no_other_records() -> None:
    expected = {oracle.Record(program).path.name for program in oracle.PROGRAMS}
    assert {path.name for path in oracle.ANSWERS.iterdir()} == expected


class Engine:
    """A framework that answers a question with a number."""

    def __init__(self, **numbers: float) -> None:
        """Answer each question with its value in `numbers`."""
        self.numbers = numbers
        self.asked_questions: list[str] = []

    def __call__(self, questions: list[str]) -> list[str]:
        self.asked_questions += questions
        return [json.dumps({"is": self.numbers[question]}) for question in questions]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Return a function that asks in a mode, on a record of the test's own."""
    monkeypatch.setattr(oracle, "ANSWERS", tmp_path)

    def run(mode: str, engine: Engine, questions: list[str] = QUESTIONS) -> list[float]:
        monkeypatch.setenv("CFGLINT_ORACLE", mode)
        oracle._open_record.cache_clear()
        return [json.loads(answer)["is"] for answer in oracle.find_answers("olmo_structured.py", questions, engine)]

    yield run
    oracle._open_record.cache_clear()


def test_what_is_recorded_is_not_asked(ask) -> None:
    engine = Engine(a=1.0, b=2.0, c=3.0)
    assert ask("record", engine) == [1.0, 2.0, 1.0]
    assert engine.asked_questions == ["a", "b"]
    assert ask("recorded", engine, ["b", "c"]) == [2.0, 3.0]
    assert engine.asked_questions == ["a", "b", "c"]


def test_all_is_asked_again_and_compared(ask) -> None:
    ask("record", Engine(a=1.0, b=2.0))
    assert ask("ask", Engine(a=1.0, b=2.0 + 1e-6)) == [1.0, 2.0 + 1e-6, 1.0]
    with pytest.raises(AssertionError, match="answers otherwise than recorded: b"):
        ask("ask", Engine(a=1.0, b=2.1))
    with pytest.raises(AssertionError, match="1 answers are not recorded"):
        ask("ask", Engine(a=1.0, c=1.0), ["a", "c"])


def test_a_sample_is_asked_again(ask, monkeypatch) -> None:
    ask("record", Engine(a=1.0, b=2.0))
    monkeypatch.setattr(oracle, "SAMPLE_RATE", 1.0)
    engine = Engine(a=1.0, b=2.0)
    assert ask("sample", engine) == [1.0, 2.0, 1.0]
    assert sorted(engine.asked_questions) == ["a", "b"]
    with pytest.raises(AssertionError, match="answers otherwise"):
        ask("sample", Engine(a=1.5, b=2.0))


def test_another_release_needs_other_answers(ask, monkeypatch) -> None:
    ask("record", Engine(a=1.0, b=2.0))
    monkeypatch.setattr(oracle, "read_releases", lambda: {"ai2-olmo": "9.9"})
    engine = Engine(a=5.0, b=6.0)
    assert ask("recorded", engine) == [5.0, 6.0, 5.0]
    assert engine.asked_questions == ["a", "b"]


def test_an_unknown_mode_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("CFGLINT_ORACLE", "all")
    with pytest.raises(AssertionError, match="recorded, sample, ask, record"):
        oracle.get_mode()


def test_the_seed_is_that_of_the_run() -> None:
    assert oracle.get_seed() == int(os.environ["CFGLINT_ORACLE_SEED"])
