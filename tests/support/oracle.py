"""Answers of the frameworks' own code, recorded with their releases in `tests/oracles/answers`.

A test sends questions to a program of `tests/oracles`, one per line. An answer is recorded under the digest of its
question. A file of answers is valid as long as the program and the releases that it uses are the same. `CFGLINT_ORACLE`
selects how recorded answers are used:

    recorded  use them (the default); ask only unrecorded questions, if the framework is installed
    sample    use them, but ask some again: the framework must give the same answers
    ask       ask everything again; all answers must be recorded and the framework must give the same ones
    record    ask everything again and record the answers
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import REPOSITORY

ORACLES = REPOSITORY / "tests" / "oracles"
ANSWERS = ORACLES / "answers"
MODES = ("recorded", "sample", "ask", "record")
SAMPLE_RATE = 0.1
"""Fraction of calls that ask again in the mode `sample`, each at most `MAX_RESAMPLED` of its questions."""
MAX_RESAMPLED = 20
RELATIVE_TOLERANCE = 0.001
"""Largest relative difference between two runs of the same code."""

# An answer depends on the module that the program imports first and the packages that it asks.
PROGRAMS = {
    "axolotl_validation.py": ("axolotl", ("axolotl", "torch", "transformers")),
    "deepspeed_config.py": ("deepspeed", ("deepspeed", "torch")),
    "llamafactory_arguments.py": ("llamafactory", ("llamafactory", "transformers")),
    "olmo_structured.py": ("olmo", ("ai2-olmo",)),
    "verl_config.py": ("verl", ("verl", "hydra-core")),
}

Ask = Callable[[list[str]], list[str]]


def get_mode() -> str:
    chosen = os.environ.get("CFGLINT_ORACLE") or "recorded"
    assert chosen in MODES, f"CFGLINT_ORACLE is one of {', '.join(MODES)}"
    return chosen


def get_seed() -> int:
    """Return the seed of the samples, which is the same in every process of a run."""
    return int(os.environ["CFGLINT_ORACLE_SEED"])


@cache
def read_releases() -> dict[str, str]:
    """Return the pinned releases that the oracles use, by package."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["optional-dependencies"]["oracle"], *(ORACLES / "requirements.txt").read_text().splitlines()]
    matches = (re.fullmatch(r"([\w-]+)==([\w.]+)", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


class Record:
    """Recorded answers of one program."""

    def __init__(self, program: str) -> None:
        """Read the recorded answers if they are still valid."""
        self.path = ANSWERS / f"{Path(program).stem}.json.xz"
        self.head = {
            "program": _hash_text((ORACLES / program).read_text(encoding="utf-8")),
            "releases": {name: read_releases()[name] for name in PROGRAMS[program][1]},
        }
        self.answers: dict[str, str] = self._read()

    def _read(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        record = json.loads(lzma.decompress(self.path.read_bytes()))
        return record["answers"] if {name: record[name] for name in self.head} == self.head else {}

    def add(self, answers: dict[str, str]) -> None:
        """Record new answers next to those that other processes have written."""
        with _lock_file(self.path):
            self.answers = {**self._read(), **answers}
            record = {**self.head, "answers": dict(sorted(self.answers.items()))}
            self.path.write_bytes(lzma.compress(json.dumps(record, indent=0).encode(), preset=6))


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Keep other processes from the file."""
    path.parent.mkdir(exist_ok=True)
    with open(Path(tempfile.gettempdir(), f"cfglint-{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_open_record = cache(Record)


def find_answers(program: str, questions: Iterable[str], ask: Ask) -> list[str]:
    """Return the answer to each question, recorded or asked; skip the test if neither is possible."""
    question_list = list(questions)
    record, keys = _open_record(program), [_hash_text(question) for question in question_list]
    recorded = {} if get_mode() == "record" else record.answers
    unrecorded = {key: question for key, question in zip(keys, question_list) if key not in recorded}
    assert not (unrecorded and get_mode() == "ask"), f"{len(unrecorded)} answers are not recorded: {RECORD}"
    to_compare: dict[str, str] = {}
    if get_mode() == "ask":
        to_compare = dict(zip(keys, question_list))
    elif get_mode() == "sample":
        draw = random.Random(f"{get_seed()} {program} {keys}")
        if draw.random() < SAMPLE_RATE:
            drawn = draw.sample(range(len(question_list)), min(MAX_RESAMPLED, len(question_list)))
            to_compare = {keys[number]: question_list[number] for number in drawn if keys[number] in recorded}
    fresh: dict[str, str] = {}
    if to_ask := {**unrecorded, **to_compare}:
        replies = ask(list(to_ask.values()))
        assert len(replies) == len(to_ask), "an answer a question"
        fresh = dict(zip(to_ask, replies))
    for key, question in to_compare.items():
        assert _is_same_answer(json.loads(fresh[key]), json.loads(recorded[key])), (
            f"{program} answers otherwise than recorded: {question}\n{fresh[key]}\n{recorded[key]}\n{RECORD}"
        )
    if get_mode() == "record":
        record.add(fresh)
    return [fresh[key] if key in fresh else recorded[key] for key in keys]


RECORD = "`CFGLINT_ORACLE=record python -m pytest -m recorded tests` records the answers"


def judge_questions(program: str, questions: Iterable[Any], recorded: bool = True) -> list[dict[str, Any]]:
    """Return the verdicts of a program that reads questions from its standard input, one per line.

    Pass `recorded=False` if the questions change with every fix, because a record of them would not last.
    """

    def ask_program(lines: list[str]) -> list[str]:
        require_module(PROGRAMS[program][0])
        done = subprocess.run(
            [sys.executable, str(ORACLES / program)], input="".join(lines), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [line for line in done.stdout.splitlines() if line.startswith('{"accepted"')]

    lines = [json.dumps(question, default=str) + "\n" for question in questions]
    if not recorded:
        verdicts = dict(zip(dict.fromkeys(lines), ask_program(list(dict.fromkeys(lines))), strict=True))
        return [json.loads(verdicts[line]) for line in lines]
    return [json.loads(line) for line in find_answers(program, lines, ask_program)]


def require_module(module: str) -> None:
    """Skip the test if a framework is not installed."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed (tests/oracles/requirements.txt)")


def _is_same_answer(answer: Any, recorded: Any) -> bool:
    if isinstance(answer, dict) and isinstance(recorded, dict):
        return answer.keys() == recorded.keys() and all(_is_same_answer(answer[key], recorded[key]) for key in answer)
    if isinstance(answer, list) and isinstance(recorded, list):
        return len(answer) == len(recorded) and all(map(_is_same_answer, answer, recorded))
    if isinstance(answer, float) and isinstance(recorded, float):
        return answer == recorded or abs(answer - recorded) <= RELATIVE_TOLERANCE * max(abs(answer), abs(recorded))
    return bool(answer == recorded)
