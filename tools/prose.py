"""Measure how plain the project's English is: `python -m tools.prose [--write]`.

Prints the share of docstrings in the imperative, the share of public functions that begin with a verb, the number of
banned words, and the length of the sentences of each page. `--write` tightens the limits in tests/house/prose.json to
these figures; it never loosens one. Word lists and limits are in that file.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "tests" / "house" / "prose.json"
CODE_FOLDERS: Final = ("lint", "rules", "schemas", "tools")
MAX_MEAN: Final = 15
MAX_LONGEST: Final = 25
"""Maximum words of a page's longest sentence, as `MAX_MEAN` is for the mean; some pages have limits of their own."""
PROPERTIES: Final = frozenset(("property", "cached_property", "setter"))

_BLOCKS: Final = re.compile(r"^(`{3,}).*?^\1|<!--.*?-->|^\|.*?$|^#.*?$|^( {4}|\t).*?$", re.MULTILINE | re.DOTALL)
_ITEM: Final = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE: Final = re.compile(r"`[^`]*`")
_SENTENCE: Final = re.compile(r"(?<=[.!?])(?<![.][.])[)\"*]*\s+")


class Figures(NamedTuple):
    """The measured figures; shares are between 0 and 1, lengths are in words."""

    imperative: float
    verbs: float
    banned: Counter[str]
    pages: dict[str, tuple[float, int]]
    """Page -> mean and maximum sentence length."""


@cache
def load_table() -> dict[str, Any]:
    """Return the word lists and the limits."""
    content: dict[str, Any] = json.loads(TABLE.read_bytes())
    return content


@cache
def list_verbs() -> frozenset[str]:
    """Return the verbs that may begin docstrings and names."""
    return frozenset(" ".join(load_table()["verbs"]).split())


def measure() -> Figures:
    """Measure the code in `CODE_FOLDERS` and all handwritten pages."""
    trees = [ast.parse(path.read_bytes()) for root in CODE_FOLDERS for path in sorted((ROOT / root).rglob("*.py"))]
    functions = [function for tree in trees for function in list_functions(tree)]
    documented = [text for function in functions if (text := ast.get_docstring(function))]
    public = [function.name for function in functions if not function.name.startswith("_")]
    banned = sum((count_banned(tree) for tree in trees), Counter[str]())
    return Figures(
        imperative=sum(map(is_imperative, documented)) / len(documented),
        verbs=sum(map(is_verb, public)) / len(public),
        banned=banned,
        pages={
            path.relative_to(ROOT).as_posix(): measure_page(path.read_text(encoding="utf-8")) for path in list_pages()
        },
    )


def list_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods, except properties and dunder methods, whose names need no verb."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = {getattr(item, "attr", getattr(item, "id", "")) for item in node.decorator_list}
            if not decorators & PROPERTIES:
                yield node


def is_imperative(docstring: str) -> bool:
    """Return whether a docstring begins with an imperative verb: `Set x`, but not `Set of x`."""
    first, _, rest = docstring.partition(" ")
    return first[:1].isupper() and first.strip(",.:;\n").lower() in list_verbs() and not rest.startswith("of ")


def is_verb(name: str) -> bool:
    """Return whether a function's name begins with a verb or a predicate's prefix, or is `main`."""
    return (first := name.split("_")[0]) in list_verbs() or first in load_table()["predicates"] or name == "main"


def count_banned(tree: ast.Module) -> Counter[str]:
    """Count the banned first words and phrases in docstrings, and the banned names."""
    lists = load_table()["banned"]
    names, first_words = frozenset(lists["names"]), frozenset(lists["first words"])
    counts = Counter[str]()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                if name.lstrip("_") in names:
                    counts[f"name {name}"] += 1
            case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                first = text.split()[0]
                if first in first_words:
                    counts[f"docstring {first} ..."] += 1
                for phrase in lists["phrases"]:
                    counts[phrase] += " ".join(text.split()).count(phrase)
    return counts


def list_pages() -> list[Path]:
    """Return the Markdown pages at the root, except the changelog, and in `docs`."""
    return [
        *sorted(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]


def measure_page(text: str) -> tuple[float, int]:
    """Return the mean and maximum sentence length of a page, without tables, headings and code blocks."""
    lengths = [len(sentence.split()) for sentence in list_sentences(text)] or [0]
    return sum(lengths) / len(lengths), max(lengths)


def list_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of more than two words; a list item ends a sentence, and inline code counts as one word."""
    prose = _CODE.sub("code", _LINK.sub(r"\1", _BLOCKS.sub("\n", text)))
    for block in _ITEM.split(prose):
        block = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", block)
        for sentence in _SENTENCE.split(" ".join(block.split())):
            if len(sentence.split()) > 2:
                yield sentence


def tighten(figures: Figures) -> dict[str, Any]:
    """Return limits that are at least as strict as before; figures are rounded so that small edits still pass."""
    limits, old_pages = load_table()["limits"], load_table()["limits"]["pages"]
    pages = {}
    for page, (mean, longest) in figures.pages.items():
        limit = (max(MAX_MEAN, math.ceil(mean)), max(MAX_LONGEST, math.ceil(longest / 5) * 5))
        pages[page] = [min(pair) for pair in zip(limit, old_pages.get(page, limit), strict=True)]
    return {
        "imperative": max(limits["imperative"], math.floor(figures.imperative * 100) / 100),
        "verbs": max(limits["verbs"], math.floor(figures.verbs * 100) / 100),
        "banned": min(limits["banned"], math.ceil(figures.banned.total() / 100) * 100),
        "pages": {page: pair for page, pair in pages.items() if pair != [MAX_MEAN, MAX_LONGEST]},
    }


def main() -> None:
    """Print the figures; with `--write`, also write the tightened limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="tighten the limits in tests/house/prose.json")
    options = parser.parse_args()
    figures = measure()
    print(f"docstrings in the imperative  {figures.imperative:6.1%}")
    print(f"functions named by a verb     {figures.verbs:6.1%}")
    print(f"banned words                  {figures.banned.total():6}")
    for word, count in figures.banned.most_common():
        print(f"  {count:5}  {word}")
    print("\nsentences: mean and longest, in words")
    for page, (mean, longest) in figures.pages.items():
        print(f"  {mean:5.1f}  {longest:4}  {page}")
    if options.write:
        content = {**load_table(), "limits": tighten(figures)}
        TABLE.write_text(format_table(content), encoding="utf-8")


def format_table(content: dict[str, Any]) -> str:
    """Return the text of the table file, with each pair of numbers and each row with a phrase on one line."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)
    return re.sub(r"\{\s+(\"phrase\": .*)\n\s+(.*)\n\s+\}", r"{\1 \2}", text) + "\n"


if __name__ == "__main__":
    main()
