"""Text in the project's files that people read: comments, docstrings, strings, pages and tables, with line numbers."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.support.corpus import REPOSITORY

PAGES = (
    "docs/", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "action.yml", "mkdocs.yml",
    ".pre-commit-hooks.yaml", "Dockerfile",
)  # fmt: skip
TEXTS = (".md", ".yml", ".yaml", "Dockerfile")
CODE = ("lint/", "rules/", "schemas/", "tools/", "docs/", "benchmarks/", "tests/")
TABLES = ("lint/cfglint_train/frameworks/", "lint/cfglint_train/fitting/", "tools/schemas/patches/")
"""Folders whose JSON files are written by hand and contain sentences."""


class Passage(NamedTuple):
    """A text and the line on which it begins."""

    path: str
    line: int
    text: str

    def locate_offset(self, offset: int) -> str:
        """Return the place of a character as `path:line`."""
        return f"{self.path}:{self.line + self.text.count(chr(10), 0, offset)}"


@cache
def list_tracked_files() -> tuple[str, ...]:
    """Return the paths of all files that git tracks or would add."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return tuple(sorted(path for path in set(listed.splitlines()) if (REPOSITORY / path).is_file()))


def find_passages(interesting: re.Pattern[str]) -> Iterator[Passage]:
    """Yield the passages of all files in which the pattern occurs at all."""
    for path in list_tracked_files():
        if path.endswith(".py") and path.startswith(CODE):
            reader = read_python
        elif (path.startswith(PAGES) and path.endswith(TEXTS)) or (path.endswith(".json") and path.startswith(TABLES)):
            reader = read_page
        else:
            continue
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        if interesting.search(source):
            yield from reader(path, source, interesting)


def read_page(path: str, source: str, _: re.Pattern[str]) -> Iterator[Passage]:
    """Yield a page as one passage."""
    yield Passage(path, 1, source)


def read_python(path: str, source: str, interesting: re.Pattern[str]) -> Iterator[Passage]:
    """Yield comments (adjacent lines joined), docstrings and strings; in tests only comments and docstrings."""
    if interesting.search("\n".join(re.findall(r"#.*", source))):  # tokenizing takes longest
        yield from read_comments(path, source)
    nodes = list(ast.walk(ast.parse(source)))
    if path.startswith("tests/"):
        nodes = [node.value for node in nodes if isinstance(node, ast.Expr)]
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Passage(path, node.lineno, node.value)


def read_comments(path: str, source: str) -> Iterator[Passage]:
    """Yield the comments of a module."""
    start, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] == start + len(lines):
                lines.append(token.string)
                continue
            if lines:
                yield Passage(path, start, "\n".join(lines))
            start, lines = token.start[0], [token.string]
    if lines:
        yield Passage(path, start, "\n".join(lines))
