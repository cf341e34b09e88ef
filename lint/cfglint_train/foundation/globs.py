"""Path patterns in the settings.

A pattern without a slash matches the name of a file or folder at any depth. A pattern with a slash matches a path below
the folder of its settings file. `*` and `?` also match slashes, as in ruff. `**/` matches any number of folders,
including none. `[...]` is a character class, and `{a,b}` lists alternatives.
"""

from __future__ import annotations

import os
from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cfglint_train.foundation.automaton import Automaton


class Glob(Frozen):
    """A pattern and the folder that it is relative to."""

    text: str
    root: str


class GlobPath(Frozen):
    """A path in the form that patterns match."""

    full: str
    names: tuple[str, ...]
    """Names that a pattern may match: the folders above the file, outermost first, then the file."""


def split_path(path: str, root: str) -> GlobPath:
    """Split a path into its names below `root`; for a path outside `root`, only the file name."""
    full = os.path.abspath(path)
    base = root.rstrip(os.sep) + os.sep
    names = full[len(base) :].split(os.sep) if full.startswith(base) else [os.path.basename(full)]
    return GlobPath(full.replace(os.sep, "/"), tuple(names))


def is_covered(place: GlobPath, glob: Glob) -> bool:
    """Return whether a pattern matches a path or a folder above it."""
    pattern = glob.text.rstrip("/")
    if "/" in pattern:
        folder, relative_pattern = _resolve_anchor(pattern, glob.root)
        return place.full.startswith(folder) and _compile(relative_pattern + _OR_BELOW).fullmatch(
            place.full[len(folder) :]
        )
    return any(_is_name_match(name, pattern) for name in place.names)


def is_match(place: GlobPath, glob: Glob) -> bool:
    """Return whether a pattern matches the path itself, by its last name or as a whole."""
    pattern = glob.text.rstrip("/")
    if "/" in pattern:
        folder, relative_pattern = _resolve_anchor(pattern, glob.root)
        return place.full.startswith(folder) and _compile(relative_pattern).fullmatch(place.full[len(folder) :])
    return _is_name_match(place.names[-1], pattern)


def is_any_match(path: str, root: str, globs: tuple[Glob, ...]) -> bool:
    """Return whether any pattern matches the path itself. Plain names, the usual case, need only a set look-up."""
    names, others = _partition(globs)
    if os.path.basename(path) in names:
        return True
    place = split_path(path, root) if others else None
    return place is not None and any(is_match(place, glob) for glob in others)


@lru_cache(maxsize=64)
def _partition(globs: tuple[Glob, ...]) -> tuple[frozenset[str], tuple[Glob, ...]]:
    """Return the patterns that are plain names, as text, and the other patterns."""
    plain = [glob for glob in globs if _LITERAL_CHARS.issuperset(glob.text.rstrip("/"))]
    return frozenset([glob.text.rstrip("/") for glob in plain]), tuple([glob for glob in globs if glob not in plain])


def _is_name_match(name: str, pattern: str) -> bool:
    return name == pattern or (not _LITERAL_CHARS.issuperset(pattern) and _compile(pattern).fullmatch(name))


_OR_BELOW: Final = "{,/**}"
"""Suffix with which a pattern matches a path and everything below it."""
# Characters that match only themselves.
_LITERAL_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def _resolve_anchor(pattern: str, root: str) -> tuple[str, str]:
    """Return the folder that a pattern is relative to, ending in a slash, and the rest of the pattern."""
    if pattern.startswith("/"):
        return "", pattern
    while pattern.startswith(("./", "../")):
        if pattern.startswith("../"):
            root = os.path.dirname(root)
        pattern = pattern.partition("/")[2]
    return root.replace(os.sep, "/").rstrip("/") + "/", pattern


_automata: dict[str, Automaton] = {}


def _compile(pattern: str) -> Automaton:
    if pattern not in _automata:
        from cfglint_train.foundation.glob_syntax import compile_glob  # most patterns are plain names

        _automata[pattern] = compile_glob(pattern)
    return _automata[pattern]


def check(pattern: str) -> None:
    """Raise `ValueError` if a pattern is too long, or needs too many braces or instructions."""
    from cfglint_train.foundation.glob_syntax import check_size

    check_size(pattern)
    _compile(pattern + _OR_BELOW)
