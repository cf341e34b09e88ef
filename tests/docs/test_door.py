"""A newcomer's first pages: the README with its two commands, the changelog, and the pages that GitHub links."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module

from cfglint_rules import registry
from cfglint_train.foundation.versions import parse_release
from cfglint_train.version import VERSION
from tests.support.corpus import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
MAIN = "python -m pip install . && cfglint demo"
TEST = "python -m pip install -e '.[dev]' && python -m pytest -q -n 2"


def test_the_readme_is_short():
    assert sum(re.search(r"\w", word) is not None for word in README.split()) <= 1100


def test_the_readme_has_two_commands():
    assert re.findall(r"<!-- (\w+) command -->\n```sh\n(.*?)\n```", README, re.DOTALL) == [
        ("main", MAIN),
        ("test", TEST),
    ]
    assert README.count("```sh\n") == 2
    assert "nothing is sent anywhere" in README


def test_the_picture_shows_what_cfglint_prints(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs" / "build"))
    try:
        finding = import_module("finding")
        assert finding.TARGET.read_text(encoding="utf-8") == finding.draw_svg(), "run python docs/build/finding.py"
        assert finding.TARGET.relative_to(REPOSITORY).as_posix() in README
    finally:
        for name in ("finding", "run"):
            sys.modules.pop(name, None)


def test_ci_runs_the_command_of_the_readme_and_then_the_rest():
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    steps = ('eval "$command"', "-e '.[oracle]'", "tests/oracles/requirements.txt", "ruff check", "mypy", "-m slow")
    places = [script.index(step) for step in steps]
    assert places == sorted(places)


def test_the_tests_of_the_readme_need_no_framework():
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.match(r"[\w-]+", requirement)[0] for extra in ("dev", "online") for requirement in extras[extra]}
    assert not names & {"torch", "transformers", "playwright", "mkdocs", "uv"}
    assert {"cfglint-train[dev,docs]"} <= set(extras["oracle"])


def test_the_changelog_has_this_version_in_a_page():
    sections = re.findall(r"^## (\S+)(?: - \S+)?\n(.*?)(?=^## |\Z)", CHANGELOG, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections][:2] == ["Unreleased", VERSION]
    assert sections[1][1].count("\n") <= 60
    headings = set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_no_rule_is_newer_than_this_version():
    assert [code for code, rule in registry.RULES.items() if parse_release(rule.since) > parse_release(VERSION)] == []
