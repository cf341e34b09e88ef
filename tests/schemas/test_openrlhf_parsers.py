"""OpenRLHF's own parsers as judges: of random command lines at every release, and of migrated scripts."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cfglint_rules import registry
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.openrlhf import flags
from cfglint_train.front.migrate.goal import goal
from cfglint_train.front.migrate.rewrite import Migrated, migrate
from cfglint_train.settings.settings import Settings
from tests.support.corpus import REPOSITORY
from tests.support.laws import config_of
from tests.support.linting import working_in
from tests.support.releases import source

ORACLE = REPOSITORY / "tests" / "oracles" / "openrlhf_parser.py"
SETS = 1000
NEWEST = load("openrlhf").newest

# Programs whose parser some releases cannot even build: one option is added twice.
UNBUILT = {"interactive_chat"}

# On PyPI are all but these, which were read from the project's tags.
UNPUBLISHED = ("0.3.0", "0.3.1", "0.3.2", "0.3.3", "0.3.4", "0.3.5", "0.3.6", "0.4.0")
RELEASES = [release for release in load("openrlhf").releases if release not in UNPUBLISHED]


def judged(release: str, asked: Iterable[tuple[str, list[str]]]) -> list[dict[str, Any]]:
    folder = source("openrlhf", release, "openrlhf")
    lines = "".join(json.dumps({"entry": entry, "words": words}) + "\n" for entry, words in asked)
    words = [sys.executable, str(ORACLE), str(folder)]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def known(entry: str, release: str) -> tuple[Fact, ...]:
    """The flags that an entry point has at a release."""
    facts = load("openrlhf").facts_of(entry, release, Context(entry=entry))
    return tuple(fact for fact in facts if fact.status().kind == "present")


def drawn(dice: random.Random, release: str) -> tuple[str, list[str]]:
    """An entry point of a release with a handful of flags: most are its own, some are not, some values are odd."""
    vocabulary = load("openrlhf")
    entry = dice.choice([entry for entry in vocabulary.entries if vocabulary.has_entry(entry, release)])
    words: list[str] = []
    spoiled: str | None = None
    for _ in range(dice.randint(1, 8)):
        kind = dice.random()
        if kind < 0.9:
            fact = dice.choice(known(entry, release))
        elif kind < 0.97:
            fact = dice.choice(list(vocabulary.facts_of(entry, release, Context(entry=entry))))
        else:
            words.append(dice.choice(["--no_such_flag", "--my_option=3", "stray", "--"]))
            continue
        name = fact.name
        if dice.random() < 0.1:
            name = name[: dice.randint(3, len(name))]
        # argparse looks at every value of a flag that is given twice, cfglint at the one that counts: the first flag
        # alone may have an odd value, and is given once.
        if fact.name == spoiled:
            continue
        values = value(dice, fact, release, odd=spoiled is None)
        spoiled = spoiled or fact.name
        if len(values) == 1 and dice.random() < 0.2:
            words.append(f"{name}={values[0]}")
        else:
            words += [name, *values]
    return entry, words


def value(dice: random.Random, fact: Fact, release: str, odd: bool) -> list[str]:
    schema = fact.schema(release)
    schema = {**schema, **schema["anyOf"][0]} if "anyOf" in schema else schema
    if schema.get("x-flag"):
        return ["yes"] if odd and dice.random() < 0.1 else []
    if odd and dice.random() < 0.1:
        return dice.choice([[], ["a", "b"], ["-x"], ["-7"]])
    of = schema.get("items") or schema
    count = dice.randint(schema.get("minItems", 1), schema.get("maxItems", 3)) if "items" in schema else 1
    if odd and dice.random() < 0.05:
        count += 1
    if "enum" in of:
        words = [str(dice.choice(of["enum"])) for _ in range(count)]
    else:
        words = [dice.choice(VALUES.get(of.get("type", ""), VALUES["string"])) for _ in range(count)]
    return ["odd" for _ in words] if odd and dice.random() < 0.1 else words


VALUES = {
    "integer": ["0", "8", "-1", "007", "1_000", "+3"],
    "number": ["0.5", "1e-5", "-1", "inf", "3"],
    "string": ["gpt2", "a/b", "x=y", "1", "None"],
}


def verdict(entry: str, words: list[str], release: str) -> bool:
    """Whether cfglint says that the release takes the command line."""
    script = f"python3 -m openrlhf.cli.{entry} {shlex.join(words)}\n"
    document = ShellDocument("run.sh", script.encode())
    (found,) = frameworks.recognise("openrlhf", document)
    config = config_of("openrlhf", script, "shell", found.root, openrlhf=release)
    for code in ("KEY001", "KEY002", "KEY004"):
        for report in registry.checker(registry.RULES[code])(config):
            # What the parser takes and transformers refuses later is a warning.
            if report.severity == "error":
                return False
    if flags.strays(config):
        return False
    given = flags.usage(config).given
    return all(fact.name in given for fact in known(entry, release) if "x-required" in fact.schema(release))


@pytest.mark.oracle
@pytest.mark.parametrize("release", RELEASES)
def test_random_command_lines_are_taken_or_refused_alike(release: str) -> None:
    dice = random.Random(release)
    asked = [drawn(dice, release) for _ in range(SETS)]
    answers = judged(release, asked)
    apart = [
        (entry, shlex.join(words), answer["why"])
        for (entry, words), answer in zip(asked, answers)
        if answer["accepted"] is not None and verdict(entry, words, release) != answer["accepted"]
    ]
    unbuilt = {entry for (entry, _), answer in zip(asked, answers) if answer["accepted"] is None}
    assert unbuilt <= UNBUILT, unbuilt
    assert 200 < sum(bool(answer["accepted"]) for answer in answers) < SETS
    assert apart == []


def dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def rewritten(entry: str, words: list[str], release: str) -> tuple[list[str], Migrated]:
    """The words of a command line at the newest release, in the working directory."""
    Path("run.sh").write_text(f"python3 -m openrlhf.cli.{entry} {shlex.join(words)}\n", encoding="utf-8")
    to = goal([f"openrlhf={NEWEST}"], [f"openrlhf={release}"])
    (file,) = migrate(["run.sh"], to, lambda _: Settings(os.getcwd())).files
    document = ShellDocument("run.sh", file.source)
    (found,) = frameworks.recognise("openrlhf", document)
    invocation = flags.invocation_of(document, found.root)
    assert invocation is not None
    return [word.text for word in invocation.words], file


@pytest.mark.oracle
@pytest.mark.parametrize("release", ["0.5.4", "0.7.5", "0.8.11", "0.9.5", "0.10.1.post2", "0.11.0"])
def test_migrated_scripts_are_taken_with_the_same_values(release: str, tmp_path: Path) -> None:
    """What the old parser accepts, the newest one accepts once it is migrated, unless a human is asked for."""
    dice = random.Random(f"migrate {release}")
    asked = [one for one in (drawn(dice, release) for _ in range(400)) if load("openrlhf").has_entry(one[0], NEWEST)]
    answers = judged(release, asked)
    old = [(entry, words, answer) for (entry, words), answer in zip(asked, answers) if answer["accepted"]]
    (tmp_path / ".git").mkdir()
    with working_in(tmp_path):
        made = [rewritten(entry, words, release) for entry, words, _ in old]
    new = judged(NEWEST, [(entry, after) for (entry, _, _), (after, _) in zip(old, made)])
    compared = 0
    for (entry, before, first), (after, file), second in zip(old, made, new):
        left = any(item.kind == "human" for item in file.items)
        assert second["accepted"] or left, (shlex.join(before), shlex.join(after), second["why"])
        given = {word.partition("=")[0] for word in before} if second["accepted"] else set()
        for fact in known(entry, release):
            status = fact.status(NEWEST)
            if fact.name in given and len(status.to) == 1 and not (status.cases or status.sums):
                assert second["values"][dest(status.to[0])] == first["values"][dest(fact.name)], (before, after)
                compared += 1
    assert len(old) > 80
    assert compared > 100 or release == "0.11.0"
