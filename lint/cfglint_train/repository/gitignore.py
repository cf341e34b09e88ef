"""What git ignores: `.gitignore` files and `.git/info/exclude`. A file that git tracks anyway is not ignored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.git_index import Tracked, tracked
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from re import Pattern

    from cfglint_train.foundation.automaton import Automaton

_NAME: Final = ".gitignore"
_MAX_BYTES: Final = 2**20
MOST_PATTERNS: Final = 5_000
"""Patterns of one folder that count: each is compared with each path below it."""
_MOST_STARS: Final = 2
"""Repetitions of a regular expression that can be tried in all ways: more of them take time without end."""

_REPEATED: Final = re.compile(r"(?<!\\)[*+]")

_EXACT: Final = 2
_ABOVE: Final = 1

Matching = Callable[[str], int]
"""States whether a pattern means a path (`_EXACT`), a folder above it (`_ABOVE`), or neither (0)."""


class GitIgnore:
    """The ignored files of one checkout; each file of patterns is read once."""

    __slots__ = ("_entered", "_root", "_specs", "_tracked", "cut")

    def __init__(self, root: str) -> None:
        self._root = root
        self._specs: dict[str, tuple[tuple[bool, Matching], ...]] = {}
        self.cut: list[str] = []
        """Folders with more patterns than count."""
        self._tracked: Tracked | None = None
        self._entered: set[str] = set()
        """Ignored folders that hold tracked files: all else in them is ignored."""

    def below(self, folder: str) -> Callable[[str, bool], bool]:
        """What a walk from a folder asks; in a folder that is itself ignored, and holds nothing tracked, nothing is."""
        full = os.path.abspath(folder)
        ignored = full != self._root and self._matched(full, is_folder=True) and not self._is_tracked(full)
        return nothing if ignored else self.ignores

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether git ignores a file or folder, and nothing tracked is in it.

        Asked by a walk, from the top down: the folder that it starts in counts as not ignored.
        """
        full = os.path.abspath(path)
        if not (os.path.dirname(full) in self._entered or self._matched(full, is_folder)):
            return False
        if not self._is_tracked(full):
            return True
        if is_folder:
            self._entered.add(full)
        return False

    def _matched(self, full: str, is_folder: bool) -> bool:
        """Whether the patterns mean a path: the last that matches counts, of two files of patterns the nearer one."""
        folder = os.path.dirname(full)
        while True:
            verdict = _verdict(self._spec(folder), _relative(full, folder) + ("/" if is_folder else ""))
            if verdict is not None:
                return verdict
            if len(folder) <= len(self._root):
                return False
            folder = os.path.dirname(folder)

    def _is_tracked(self, full: str) -> bool:
        if self._tracked is None:
            self._tracked = tracked(self._root) or Tracked()
        return self._tracked.holds(_relative(full, self._root))

    def _spec(self, folder: str) -> tuple[tuple[bool, Matching], ...]:
        """The patterns for a folder and what is below it, the last one first."""
        if folder not in self._specs:
            files = [os.path.join(folder, _NAME)]
            if folder == self._root:
                files.insert(0, os.path.join(folder, ".git", "info", "exclude"))
            lines = [line for file in files for line in _lines(file)]
            if len(lines) > MOST_PATTERNS:
                self.cut.append(folder)
            self._specs[folder] = tuple(_compiled(lines[:MOST_PATTERNS])) if lines else ()
        return self._specs[folder]


def git_ignores(folder: str, roots: Roots, known: dict[str, GitIgnore]) -> Callable[[str, bool], bool]:
    """What git ignores below a folder; nothing where that is in no checkout. `known`: those met before, by root."""
    root, _ = roots.around(os.path.join(folder, "x"))
    if not os.path.exists(os.path.join(root, ".git")):
        return nothing
    return known.setdefault(root, GitIgnore(root)).below(folder)


def nothing(path: str, is_folder: bool) -> bool:
    """Nothing is ignored."""
    return False


def _relative(full: str, folder: str) -> str:
    return full[len(folder.rstrip(os.sep)) + 1 :].replace(os.sep, "/")


def _lines(path: str) -> list[str]:
    """The patterns of a file. One that cannot be read, or that is no file of patterns by its size, has none."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_BYTES:
            return []
        source = regular_files.read(path)
    except OSError:
        return []
    found = source.decode("utf-8-sig", "surrogateescape").splitlines()
    return [line for line in found if line.strip() and not line.startswith("#")]


def _verdict(spec: Iterable[tuple[bool, Matching]], path: str) -> bool | None:
    """Return whether some patterns, the last one first, ignore a path; None if none means it."""
    above = None
    for ignored, matching in spec:
        kind = matching(path)
        if kind == _EXACT:
            return ignored
        if kind == _ABOVE and above is None:
            above = ignored
    return above


def _compiled(lines: list[str]) -> Iterator[tuple[bool, Matching]]:
    """Yield whether each pattern ignores, and what it means, the last one first."""
    for pattern in reversed(_patterns(lines)):
        matching = None if pattern.include is None else _matching(pattern.regex)
        if matching is not None:
            yield pattern.include, matching


def _patterns(lines: list[str]) -> list[Any]:
    from pathspec import GitIgnoreSpec

    try:
        return list(GitIgnoreSpec.from_lines(lines).patterns)
    except ValueError:  # git passes over what is no pattern
        return [] if len(lines) == 1 else [pattern for line in lines for pattern in _patterns([line])]


def _matching(regex: Pattern[str]) -> Matching | None:
    """Return what compares a pattern with paths in linear time; None if it is too long for that."""
    if len(_REPEATED.findall(regex.pattern)) <= _MOST_STARS:
        return partial(_by_regex, regex)
    from cfglint_train.foundation import patterns

    try:
        return partial(_by_automaton, patterns.compiled(regex.pattern))
    except patterns.Unsupported:
        return None


def _by_regex(regex: Pattern[str], path: str) -> int:
    found = regex.search(path)
    return 0 if found is None else _ABOVE if any(found.groups()) else _EXACT


def _by_automaton(automaton: Automaton, path: str) -> int:
    if not automaton.match(path):
        return 0
    return _ABOVE if path.endswith("/") or not automaton.fullmatch(path) else _EXACT
