"""Plain English in messages, pages, docstrings and comments: no phrase of prose.json, and figures that only improve."""

from __future__ import annotations

import re

from tools import messages, prose

from tests.support.corpus import REPOSITORY
from tests.support.prose import Passage, find_passages


def compile_phrase(phrase: str) -> re.Pattern[str]:
    """Return the expression of a phrase; its spaces match line breaks, also between the lines of a comment."""
    spaced = phrase.replace(" ", r"(?:\s+#?\s*)")
    return re.compile(rf"(?<![\w`/.-])(?:{spaced})(?![\w`(])", re.IGNORECASE)


PATTERNS = [(compile_phrase(row["phrase"]), row["instead"]) for row in prose.load_table()["phrases"]]
ANY = re.compile("|".join(expression.pattern for expression, _ in PATTERNS), re.IGNORECASE)


def is_excepted(passage: Passage, match: re.Match[str]) -> bool:
    """Return whether a row of the table allows the words around a match."""
    context = " ".join(passage.text[max(0, match.start() - 60) : match.end() + 60].split())
    return any(passage.path == row["path"] and row["text"] in context for row in prose.load_table()["exceptions"])


def find_riddles() -> list[str]:
    """Return a line for each phrase found in the texts."""
    lines = []
    for passage in find_passages(ANY):
        for expression, instead in PATTERNS:
            for match in expression.finditer(passage.text):
                if not is_excepted(passage, match):
                    lines.append(f'{passage.locate_offset(match.start())}: "{match[0]}"; write instead: {instead}')
    return lines


def test_no_riddles() -> None:
    matches = find_riddles()
    assert not matches, "\n".join(["plain English (tests/house/prose.json):", *matches])


def test_exceptions_are_needed_and_have_a_reason() -> None:
    for row in prose.load_table()["exceptions"]:
        assert row["text"] in " ".join((REPOSITORY / row["path"]).read_text(encoding="utf-8").split()), row
        assert row["why"], row


def test_every_message_is_listed() -> None:
    listed = messages.TARGET.read_text(encoding="utf-8").splitlines()
    assert listed == messages.list_templates(), (
        "messages changed: run python -m tools.messages, and read the difference"
    )


def test_figures_only_improve() -> None:
    figures, limits = prose.measure(), prose.load_table()["limits"]
    assert figures.imperative >= limits["imperative"], "begin docstrings with a verb: Return ..., Raise ..."
    assert figures.verbs >= limits["verbs"], "begin the names of functions with a verb: find_launches, is_sharded"
    assert figures.banned.total() <= limits["banned"], figures.banned
    for page, (mean, longest) in figures.pages.items():
        most = limits["pages"].get(page, [prose.MAX_MEAN, prose.MAX_LONGEST])
        assert (mean <= most[0], longest <= most[1]) == (True, True), (
            f"{page}: {mean:.1f} and {longest} words per sentence"
        )


def test_limits_are_of_pages_that_there_are() -> None:
    there = {path.relative_to(prose.ROOT).as_posix() for path in prose.list_pages()}
    assert prose.load_table()["limits"]["pages"].keys() <= there


def test_sentences_are_counted_without_tables_and_code() -> None:
    page = "# Title\n\nOne `a b c` two. Three [four five](x.md) six!\n\n| a | b c d e |\n\n"
    page += "```sh\na b c d\n```\n- an item of five words\n"
    assert list(prose.list_sentences(page)) == ["One code two.", "Three four five six!", "an item of five words"]


def test_docstrings_in_the_imperative_begin_with_a_verb() -> None:
    assert prose.is_imperative("Return the packages.")
    assert not prose.is_imperative("The packages.")
    assert not prose.is_imperative("Set of packages.")
