"""What the frameworks' own code answered, recorded under its release: `tests/oracles/answers`.

A test asks a program of `tests/oracles` questions, one a line. An answer is recorded under the digest of its question,
and a file of answers holds as long as the program and the releases that it asked are the same. `CFGLINT_ORACLE` says
what a recorded answer is worth:

    recorded  it is taken (the default); what is not recorded is asked where the framework is installed
    sample    it is taken, and some are asked again: the framework must say the same
    ask       everything is asked again, must be recorded, and the framework must say the same
    record    everything is asked again and written down
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
SAMPLED = 0.1
"""How many of the calls ask again in the mode `sample`, each at most `AGAIN` of its questions."""
AGAIN = 20
MEASURED = 0.001
"""What two runs of the same code may differ by."""

# What an answer depends on: the module that the program imports first, and the packages that it asks.
PROGRAMS = {
    "axolotl_validation.py": ("axolotl", ("axolotl", "torch", "transformers")),
    "deepspeed_config.py": ("deepspeed", ("deepspeed", "torch")),
    "llamafactory_arguments.py": ("llamafactory", ("llamafactory", "transformers")),
    "olmo_structured.py": ("olmo", ("ai2-olmo",)),
}

Ask = Callable[[list[str]], list[str]]


def mode() -> str:
    chosen = os.environ.get("CFGLINT_ORACLE") or "recorded"
    assert chosen in MODES, f"CFGLINT_ORACLE is one of {', '.join(MODES)}"
    return chosen


def seed() -> int:
    """Return what the samples are drawn from: the same in every process of a run."""
    return int(os.environ["CFGLINT_ORACLE_SEED"])


@cache
def releases() -> dict[str, str]:
    """The releases that are asked, by package."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["optional-dependencies"]["oracle"], *(ORACLES / "requirements.txt").read_text().splitlines()]
    found = (re.fullmatch(r"([\w-]+)==([\w.]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


class Record:
    """The recorded answers of one program."""

    def __init__(self, program: str) -> None:
        self.path = ANSWERS / f"{Path(program).stem}.json.xz"
        self.head = {
            "program": _digest((ORACLES / program).read_text(encoding="utf-8")),
            "releases": {name: releases()[name] for name in PROGRAMS[program][1]},
        }
        self.answers: dict[str, str] = self._read()

    def _read(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        held = json.loads(lzma.decompress(self.path.read_bytes()))
        return held["answers"] if {name: held[name] for name in self.head} == self.head else {}

    def add(self, answers: dict[str, str]) -> None:
        with _alone(self.path):
            self.answers = {**self._read(), **answers}
            held = {**self.head, "answers": dict(sorted(self.answers.items()))}
            self.path.write_bytes(lzma.compress(json.dumps(held, indent=0).encode(), preset=6))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from the file."""
    path.parent.mkdir(exist_ok=True)
    with open(Path(tempfile.gettempdir(), f"cfglint-{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_records = cache(Record)


def answers(program: str, questions: Iterable[str], ask: Ask) -> list[str]:
    """Return the answer to each question, recorded or asked; the test is skipped where it can be neither."""
    listed = list(questions)
    record, keys = _records(program), [_digest(question) for question in listed]
    known = {} if mode() == "record" else record.answers
    wanted = {key: question for key, question in zip(keys, listed) if key not in known}
    assert not (wanted and mode() == "ask"), f"{len(wanted)} answers are not recorded: {RECORD}"
    again: dict[str, str] = {}
    if mode() == "ask":
        again = dict(zip(keys, listed))
    elif mode() == "sample":
        draw = random.Random(f"{seed()} {program} {keys}")
        if draw.random() < SAMPLED:
            drawn = draw.sample(range(len(listed)), min(AGAIN, len(listed)))
            again = {keys[number]: listed[number] for number in drawn if keys[number] in known}
    heard: dict[str, str] = {}
    if asked := {**wanted, **again}:
        said = ask(list(asked.values()))
        assert len(said) == len(asked), "an answer a question"
        heard = dict(zip(asked, said))
    for key, question in again.items():
        assert _same(json.loads(heard[key]), json.loads(known[key])), (
            f"{program} answers otherwise than recorded: {question}\n{heard[key]}\n{known[key]}\n{RECORD}"
        )
    if mode() == "record":
        record.add(heard)
    return [heard[key] if key in heard else known[key] for key in keys]


RECORD = "`CFGLINT_ORACLE=record python -m pytest -m recorded tests` records the answers"


def judge(program: str, asked: Iterable[Any], recorded: bool = True) -> list[dict[str, Any]]:
    """Return the verdicts of a program that reads questions from its standard input, a line each.

    `recorded` is False where the questions change with every fix, so that no record of them would last.
    """

    def ask(lines: list[str]) -> list[str]:
        need(PROGRAMS[program][0])
        done = subprocess.run(
            [sys.executable, str(ORACLES / program)], input="".join(lines), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [line for line in done.stdout.splitlines() if line.startswith('{"accepted"')]

    lines = [json.dumps(one, default=str) + "\n" for one in asked]
    if not recorded:
        verdicts = dict(zip(dict.fromkeys(lines), ask(list(dict.fromkeys(lines))), strict=True))
        return [json.loads(verdicts[line]) for line in lines]
    return [json.loads(line) for line in answers(program, lines, ask)]


def need(module: str) -> None:
    """Skip the test where a framework is not installed."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed (tests/oracles/requirements.txt)")


def _same(found: Any, recorded: Any) -> bool:
    if isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == recorded.keys() and all(_same(found[key], recorded[key]) for key in found)
    if isinstance(found, list) and isinstance(recorded, list):
        return len(found) == len(recorded) and all(map(_same, found, recorded))
    if isinstance(found, float) and isinstance(recorded, float):
        return found == recorded or abs(found - recorded) <= MEASURED * max(abs(found), abs(recorded))
    return bool(found == recorded)
