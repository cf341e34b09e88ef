"""OpenRLHF's own parsers as judges of random command lines at every release, and of migrated scripts."""

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
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.openrlhf import flags
from cfglint_train.front.migrate.goal import parse_goal
from cfglint_train.front.migrate.rewrite import MigratedFile, migrate
from cfglint_train.settings.settings import Settings
from tests.support.corpus import REPOSITORY
from tests.support.laws import build_config
from tests.support.linting import change_directory
from tests.support.releases import fetch_source

ORACLE = REPOSITORY / "tests" / "oracles" / "openrlhf_parser.py"
SETS = 1000
NEWEST = load("openrlhf").newest

# Programs whose parser cannot be built at some releases, because one option is added twice.
UNBUILT = {"interactive_chat"}

# PyPI has all but these, which were read from the project's tags.
UNPUBLISHED = ("0.3.0", "0.3.1", "0.3.2", "0.3.3", "0.3.4", "0.3.5", "0.3.6", "0.4.0")
RELEASES = [release for release in load("openrlhf").releases if release not in UNPUBLISHED]


def run_parser(release: str, command_lines: Iterable[tuple[str, list[str]]]) -> list[dict[str, Any]]:
    folder = fetch_source("openrlhf", release, "openrlhf")
    lines = "".join(json.dumps({"entry": entry, "words": command}) + "\n" for entry, command in command_lines)
    command = [sys.executable, str(ORACLE), str(folder)]
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    return [json.loads(line) for line in process.stdout.splitlines()]


@cache
def list_flags(entry: str, release: str) -> tuple[KeyFact, ...]:
    """Return the flags that an entry point has at a release."""
    facts = load("openrlhf").list_facts(entry, release, Context(entry=entry))
    return tuple(fact for fact in facts if fact.resolve_status().kind == "present")


def draw_command_line(dice: random.Random, release: str) -> tuple[str, list[str]]:
    """Draw an entry point of a release with up to 8 flags.

    Most flags are its own; some are unknown, and some values are invalid.
    """
    vocabulary = load("openrlhf")
    entry = dice.choice([entry for entry in vocabulary.entries if vocabulary.has_entry(entry, release)])
    words: list[str] = []
    spoiled: str | None = None
    for _ in range(dice.randint(1, 8)):
        kind = dice.random()
        if kind < 0.9:
            fact = dice.choice(list_flags(entry, release))
        elif kind < 0.97:
            fact = dice.choice(list(vocabulary.list_facts(entry, release, Context(entry=entry))))
        else:
            words.append(dice.choice(["--no_such_flag", "--my_option=3", "stray", "--"]))
            continue
        name = fact.name
        if dice.random() < 0.1:
            name = name[: dice.randint(3, len(name))]
        # argparse looks at every value of a repeated flag, cfglint at the one that counts. So only the first flag may
        # have an invalid value, and it is not repeated.
        if fact.name == spoiled:
            continue
        values = draw_value(dice, fact, release, odd=spoiled is None)
        spoiled = spoiled or fact.name
        if len(values) == 1 and dice.random() < 0.2:
            words.append(f"{name}={values[0]}")
        else:
            words += [name, *values]
    return entry, words


def draw_value(dice: random.Random, fact: KeyFact, release: str, odd: bool) -> list[str]:
    schema = fact.get_schema(release)
    schema = {**schema, **schema["anyOf"][0]} if "anyOf" in schema else schema
    if schema.get("x-flag"):
        return ["yes"] if odd and dice.random() < 0.1 else []
    if odd and dice.random() < 0.1:
        return dice.choice([[], ["a", "b"], ["-x"], ["-7"]])
    item_schema = schema.get("items") or schema
    count = dice.randint(schema.get("minItems", 1), schema.get("maxItems", 3)) if "items" in schema else 1
    if odd and dice.random() < 0.05:
        count += 1
    if "enum" in item_schema:
        words = [str(dice.choice(item_schema["enum"])) for _ in range(count)]
    else:
        words = [dice.choice(VALUES.get(item_schema.get("type", ""), VALUES["string"])) for _ in range(count)]
    return ["odd" for _ in words] if odd and dice.random() < 0.1 else words


VALUES = {
    "integer": ["0", "8", "-1", "007", "1_000", "+3"],
    "number": ["0.5", "1e-5", "-1", "inf", "3"],
    "string": ["gpt2", "a/b", "x=y", "1", "None"],
}


def is_accepted(entry: str, words: list[str], release: str) -> bool:
    """Return whether cfglint reports no error, so that the release accepts the command line."""
    script = f"python3 -m openrlhf.cli.{entry} {shlex.join(words)}\n"
    document = ShellDocument("run.sh", script.encode())
    (recognised,) = frameworks.recognise("openrlhf", document)
    config = build_config("openrlhf", script, "shell", recognised.root, openrlhf=release)
    for code in ("KEY001", "KEY002", "KEY004"):
        for report in registry.get_checker(registry.RULES[code])(config):
            # Flags that the parser accepts and transformers rejects later are warnings.
            if report.severity == "error":
                return False
    if flags.find_leftovers(config):
        return False
    used = flags.read_usage(config).given_flags
    return all(fact.name in used for fact in list_flags(entry, release) if "x-required" in fact.get_schema(release))


@pytest.mark.oracle
@pytest.mark.parametrize("release", RELEASES)
def test_random_command_lines_are_taken_or_refused_alike(release: str) -> None:
    dice = random.Random(release)
    command_lines = [draw_command_line(dice, release) for _ in range(SETS)]
    answers = run_parser(release, command_lines)
    disagreements = [
        (entry, shlex.join(words), answer["why"])
        for (entry, words), answer in zip(command_lines, answers)
        if answer["accepted"] is not None and is_accepted(entry, words, release) != answer["accepted"]
    ]
    unbuilt = {entry for (entry, _), answer in zip(command_lines, answers) if answer["accepted"] is None}
    assert unbuilt <= UNBUILT, unbuilt
    assert 200 < sum(bool(answer["accepted"]) for answer in answers) < SETS
    assert disagreements == []


def get_dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def migrate_words(entry: str, words: list[str], release: str) -> tuple[list[str], MigratedFile]:
    """Migrate a command line to the newest release, in the working directory."""
    Path("run.sh").write_text(f"python3 -m openrlhf.cli.{entry} {shlex.join(words)}\n", encoding="utf-8")
    target = parse_goal([f"openrlhf={NEWEST}"], [f"openrlhf={release}"])
    (file,) = migrate(["run.sh"], target, lambda _: Settings(os.getcwd())).files
    document = ShellDocument("run.sh", file.source)
    (recognised,) = frameworks.recognise("openrlhf", document)
    invocation = flags.get_invocation(document, recognised.root)
    assert invocation is not None
    return [word.text for word in invocation.words], file


@pytest.mark.oracle
@pytest.mark.parametrize("release", ["0.5.4", "0.7.5", "0.8.11", "0.9.5", "0.10.1.post2", "0.11.0"])
def test_migrated_scripts_are_taken_with_the_same_values(release: str, tmp_path: Path) -> None:
    """Accept with the newest parser what the old one accepts, once migrated, unless a human is asked for."""
    dice = random.Random(f"migrate {release}")
    command_lines = [
        line
        for line in (draw_command_line(dice, release) for _ in range(400))
        if load("openrlhf").has_entry(line[0], NEWEST)
    ]
    answers = run_parser(release, command_lines)
    accepted = [(entry, words, answer) for (entry, words), answer in zip(command_lines, answers) if answer["accepted"]]
    (tmp_path / ".git").mkdir()
    with change_directory(tmp_path):
        migrated = [migrate_words(entry, words, release) for entry, words, _ in accepted]
    migrated_answers = run_parser(NEWEST, [(entry, after) for (entry, _, _), (after, _) in zip(accepted, migrated)])
    compared = 0
    for (entry, before, old_answer), (after, file), new_answer in zip(accepted, migrated, migrated_answers):
        needs_human = any(item.kind == "human" for item in file.items)
        assert new_answer["accepted"] or needs_human, (shlex.join(before), shlex.join(after), new_answer["why"])
        names = {word.partition("=")[0] for word in before} if new_answer["accepted"] else set()
        for fact in list_flags(entry, release):
            status = fact.resolve_status(NEWEST)
            if fact.name in names and len(status.new_names) == 1 and not (status.cases or status.addends):
                assert (
                    new_answer["values"][get_dest(status.new_names[0])] == old_answer["values"][get_dest(fact.name)]
                ), (before, after)
                compared += 1
    assert len(accepted) > 80
    assert compared > 100 or release == "0.11.0"
