"""Files that git ignores according to `.gitignore` and `.git/info/exclude`; a tracked file is never ignored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.git_index import TrackedFiles, read_index
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from re import Pattern

    from cfglint_train.foundation.automaton import Automaton

_NAME: Final = ".gitignore"
_MAX_BYTES: Final = 2**20
MAX_PATTERNS: Final = 5_000
"""Maximum number of patterns per folder, because each one is compared with every path below the folder."""
_MAX_STARS: Final = 2
"""Maximum number of repetitions in a regular expression that backtracks; more may take exponential time."""

_REPEATED: Final = compile_on_use(r"(?<!\\)[*+]")

_EXACT: Final = 2
_ABOVE: Final = 1

Matcher = Callable[[str], int]
"""Function that returns whether a pattern matches a path (`_EXACT`), a folder above it (`_ABOVE`) or neither (0)."""


class GitIgnore:
    """The ignored files of one checkout; each pattern file is read once."""

    __slots__ = ("_entered", "_root", "_specs", "_tracked", "truncated_folders")

    def __init__(self, root: str) -> None:
        """Create an empty cache for the checkout at `root`."""
        self._root = root
        self._specs: dict[str, tuple[tuple[bool, Matcher], ...]] = {}
        self.truncated_folders: list[str] = []
        """Folders with more than `MAX_PATTERNS` patterns."""
        self._tracked: TrackedFiles | None = None
        self._entered: set[str] = set()
        """Ignored folders that contain tracked files; their untracked contents are ignored."""

    def build_filter(self, folder: str) -> Callable[[str, bool], bool]:
        """Build the test for a walk that starts in a folder.

        If the folder itself is ignored and contains no tracked files, nothing in it counts as ignored.
        """
        full = os.path.abspath(folder)
        is_folder_ignored = full != self._root and self._is_matched(full, is_folder=True) and not self._is_tracked(full)
        return ignore_nothing if is_folder_ignored else self.is_ignored

    def is_ignored(self, path: str, is_folder: bool) -> bool:
        """Return whether git ignores a file, or a folder without tracked files.

        A walk must query folders from the top down; the folder that it starts in counts as not ignored.
        """
        full = os.path.abspath(path)
        if not (os.path.dirname(full) in self._entered or self._is_matched(full, is_folder)):
            return False
        if not self._is_tracked(full):
            return True
        if is_folder:
            self._entered.add(full)
        return False

    def _is_matched(self, full: str, is_folder: bool) -> bool:
        """Return whether the patterns ignore a path; the last match in the nearest pattern file decides."""
        folder = os.path.dirname(full)
        while True:
            verdict = _find_verdict(self._load_spec(folder), _make_relative(full, folder) + ("/" if is_folder else ""))
            if verdict is not None:
                return verdict
            if len(folder) <= len(self._root):
                return False
            folder = os.path.dirname(folder)

    def _is_tracked(self, full: str) -> bool:
        if self._tracked is None:
            self._tracked = read_index(self._root) or TrackedFiles()
        return self._tracked.has_path(_make_relative(full, self._root))

    def _load_spec(self, folder: str) -> tuple[tuple[bool, Matcher], ...]:
        """Load the patterns for a folder and its contents, last pattern first."""
        if folder not in self._specs:
            files = [os.path.join(folder, _NAME)]
            if folder == self._root:
                files.insert(0, os.path.join(folder, ".git", "info", "exclude"))
            lines = [line for file in files for line in _read_patterns(file)]
            if len(lines) > MAX_PATTERNS:
                self.truncated_folders.append(folder)
            self._specs[folder] = tuple(_compile_patterns(lines[:MAX_PATTERNS])) if lines else ()
        return self._specs[folder]


def build_git_filter(folder: str, roots: Roots, ignores_by_root: dict[str, GitIgnore]) -> Callable[[str, bool], bool]:
    """Build the test for paths that git ignores below a folder; outside a checkout, it ignores nothing."""
    root, _ = roots.find_root(os.path.join(folder, "x"))
    if not filesystem.exists(os.path.join(root, ".git")):
        return ignore_nothing
    return ignores_by_root.setdefault(root, GitIgnore(root)).build_filter(folder)


def ignore_nothing(path: str, is_folder: bool) -> bool:
    """Return False for every path."""
    return False


def _make_relative(full: str, folder: str) -> str:
    return full[len(folder.rstrip(os.sep)) + 1 :].replace(os.sep, "/")


def _read_patterns(path: str) -> list[str]:
    """Return the patterns in a file, or none if it cannot be read or is too large for a pattern file."""
    try:
        if not filesystem.is_file(path) or filesystem.get_size(path) > _MAX_BYTES:
            return []
        source = regular_files.read(path)
    except OSError:
        return []
    lines = source.decode("utf-8-sig", "surrogateescape").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _find_verdict(spec: Iterable[tuple[bool, Matcher]], path: str) -> bool | None:
    """Return whether patterns, last pattern first, ignore a path, or None if no pattern matches it.

    A pattern that matches the path itself takes precedence over patterns that match a folder above it.
    """
    folder_verdict = None
    for ignored, matcher in spec:
        kind = matcher(path)
        if kind == _EXACT:
            return ignored
        if kind == _ABOVE and folder_verdict is None:
            folder_verdict = ignored
    return folder_verdict


def _compile_patterns(lines: list[str]) -> Iterator[tuple[bool, Matcher]]:
    """Yield a flag and a matcher for each pattern, last pattern first; the flag is false for `!pattern`."""
    for pattern in reversed(_parse_patterns(lines)):
        matcher = None if pattern.include is None else _build_matcher(pattern.regex)
        if matcher is not None:
            yield pattern.include, matcher


def _parse_patterns(lines: list[str]) -> list[Any]:
    from pathspec import GitIgnoreSpec

    try:
        return list(GitIgnoreSpec.from_lines(lines).patterns)
    except ValueError:  # git skips invalid patterns
        return [] if len(lines) == 1 else [pattern for line in lines for pattern in _parse_patterns([line])]


def _build_matcher(regex: Pattern[str]) -> Matcher | None:
    """Build a matcher without exponential backtracking, or return None if the pattern is unsupported."""
    if len(_REPEATED.findall(regex.pattern)) <= _MAX_STARS:
        return partial(_match_regex, regex)
    from cfglint_train.foundation import patterns

    try:
        return partial(_match_automaton, patterns.compile_pattern(regex.pattern))
    except patterns.UnsupportedPattern:
        return None


def _match_regex(regex: Pattern[str], path: str) -> int:
    match = regex.search(path)
    return 0 if match is None else _ABOVE if any(match.groups()) else _EXACT


def _match_automaton(automaton: Automaton, path: str) -> int:
    if not automaton.match(path):
        return 0
    return _ABOVE if path.endswith("/") or not automaton.fullmatch(path) else _EXACT
