"""The files of a repository by name, and the scripts that mention a name: one walk, made when something is asked.

Contents are read only to find which words occur in them. What is excluded by the settings of the root is left out,
links are not followed, and every count has a bound, so that a lint in a huge repository stays a lint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation import deadline, regular_files
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Any, Final, TypeVar
from cfglint_train.repository import files
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings

MAX_ENTRIES: Final = 20_000
"""Files and folders that the walk looks at, those near the root first."""
MAX_READ: Final = 32 * 2**20
"""Bytes of all the scripts of one syntax that are read."""

# How deep the walk goes where no repository is above a file: its folder, and the folders in that.
_DEPTH_ALONE: Final = 1

_WORD: Final = re.compile(rb"[A-Za-z0-9_.@+\x80-\xff-]+")
_PART: Final = re.compile(rb"[A-Za-z0-9_\x80-\xff]+")

_TESTS: Final = re.compile(r"/tests?/|/(?:test_[^/]*|[^/]*_test|conftest)\.py$")
"""Python files that hold tests, which are no evidence about a run."""

Made = TypeVar("Made")


class RepositoryIndex:
    """What is below a root. Paths are absolute and in order of their names, with forward slashes."""

    def __init__(
        self, root: str, settings_for: Callable[[str], Settings], texts: Texts, depth: int | None = None
    ) -> None:
        self.root = regular_files.tidy(os.path.abspath(root))
        self._settings_for = settings_for
        self._settings: Settings | None = None
        # Folders below the root that are walked, one in the other; None: all.
        self._depth = depth
        self._entries = 0
        self._names: dict[str, list[str]] = {}
        self._holding: dict[str, list[str]] = {}
        self._visited: set[str] = set()
        self._made: dict[Callable[[RepositoryIndex], Any], Any] = {}
        self._texts = texts
        self._words = {syntax: _Words(texts) for syntax in ("shell", "python")}
        self._outside: dict[str, bool] = {}

    def named(self, basename: str) -> tuple[str, ...]:
        """The files of a name."""
        self._walk()
        return tuple(sorted(path for path in self._names.get(basename, ()) if not self._left_out(path)))

    def by_tail(self, stated: str, beside: str) -> str | None:
        """The file that a path of another machine means; None where there is none, or several could be meant."""
        found = self.with_tail(stated, beside)
        return found[0] if len(found) == 1 else None

    def with_tail(self, stated: str, beside: str) -> tuple[str, ...]:
        """The files that a path of another machine may mean: those with the longest end in common.

        Two parts must agree, or one where the path is absolute. Of equally good ones with two parts in common, those
        nearest to `beside` count, the file that states the path.
        """
        steps = _steps(regular_files.tidy(stated))
        named = self.named(steps[-1]) if steps else ()
        if not named:
            return ()
        own = regular_files.tidy(os.path.abspath(beside))
        found = [path for path in named if path != own]
        tails = {path: _common(reversed(_steps(path)), reversed(steps)) for path in found}
        length = max(tails.values(), default=0)
        best = [path for path in found if tails[path] == length]
        if length < 2:
            return tuple(best) if stated.startswith("/") else ()
        near = {path: _common(_steps(path), _steps(own)) for path in best}
        return tuple(path for path in best if near[path] == max(near.values()))

    def scripts_naming(self, basename: str, beside: str | None = None) -> tuple[str, ...]:
        """The shell scripts in which a file name occurs; those in and above the folder of `beside` for certain."""
        return self._naming("shell", basename, beside)

    @property
    def rooted(self) -> bool:
        """Whether it is a repository, not the folder of a file."""
        return self._depth is None

    @property
    def has_scripts(self) -> bool:
        """Whether there is a shell script."""
        self._walk()
        words = self._words["shell"]
        return bool(words.waiting or words.found)

    def pythons_naming(self, basename: str, beside: str | None = None) -> tuple[str, ...]:
        """The Python files in which a file name occurs; those in and above the folder of `beside` for certain."""
        return self._naming("python", basename, beside)

    def pythons_having(self, words: Iterable[str], name: str) -> tuple[str, ...]:
        """The Python files in which one of some words occurs, and a name, be it as an attribute (`config.name`)."""
        self._walk()
        python = self._words["python"]
        found = {path for word in words for path in python.having(word.encode())}
        for part in _PART.findall(name.encode("utf-8", "surrogatepass")):
            found &= python.with_part(part)
        return tuple(sorted(path for path in found if not self._left_out(path)))

    def texts(self, signs: Mapping[str, tuple[bytes, ...]]) -> Iterator[tuple[str, str]]:
        """The files of some names or endings whose texts have one of its signs, each with its text."""
        self._walk()
        kinds = {name: kind for name in self._names for kind in (os.path.splitext(name)[1], name) if kind in signs}
        size = 0
        for path, kind in sorted((path, kind) for name, kind in kinds.items() for path in self._names[name]):
            if self._left_out(path) or size > MAX_READ:
                continue
            text = self._texts.small(path)
            size += len(text)
            if any(sign in text for sign in signs[kind]):
                yield path, text.decode("utf-8-sig", "replace")

    def names(self, path: str, other: str) -> bool:
        """Return whether a file names another one by its path: its folder and its name, or its name at the root."""
        own = os.path.relpath(os.path.abspath(other), self.root).replace(os.sep, "/")
        return "/".join(own.split("/")[-2:]).encode() in self._texts.small(path)

    def once(self, work: Callable[[RepositoryIndex], Made]) -> Made:
        """What some work makes of this repository: done when it is first asked for."""
        if work not in self._made:
            self._made[work] = work(self)
        made: Made = self._made[work]
        return made

    def holding(self, *names: str) -> tuple[str, ...]:
        """The folders that hold a folder of one of these names."""
        self._walk()
        return tuple(sorted({folder for name in names for folder in self._holding.get(name, ())}))

    def _naming(self, syntax: str, basename: str, beside: str | None) -> tuple[str, ...]:
        words = _WORD.findall(os.fsencode(basename))
        if not words:
            return ()
        self._walk()
        folder = self.root if beside is None else regular_files.tidy(os.path.dirname(os.path.abspath(beside)))
        while folder not in self._visited and folder.startswith(self.root):  # beyond the bound of the walk
            self._list(folder, MAX_ENTRIES)
            folder = os.path.dirname(folder)
        found = self._words[syntax].having(words[-1])
        return tuple(sorted(path for path in found if not self._left_out(path)))

    def _left_out(self, path: str) -> bool:
        if self._settings is None:
            self._settings = self._settings_for(os.path.join(self.root, "x"))
        known = self._outside.get(path)
        if known is None:
            known = self._outside[path] = self._settings.passed_over(path)
        return known

    def _walk(self) -> None:
        """List the folders, one level after the other."""
        level = [] if self._visited else [self.root]
        depth = 0
        while level:
            further: list[str] = []
            for folder in level:
                further += self._list(folder, MAX_ENTRIES - self._entries)
            level = sorted(further) if self._depth is None or depth < self._depth else []
            depth += 1

    def _list(self, folder: str, most: int) -> list[str]:
        """Note the files of a folder, of `most` entries; the folders in it that are walked."""
        if most <= 0:
            return []
        self._visited.add(folder)
        inner: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, most):
                    self._entries += 1
                    path = f"{folder.rstrip('/')}/{entry.name}"
                    if entry.is_file(follow_symlinks=False):
                        self._names.setdefault(entry.name, []).append(path)
                        syntax = files.SYNTAXES.get(os.path.splitext(entry.name)[1])
                        if syntax is None and files.is_plain_script(path):
                            syntax = "shell"
                        if syntax in self._words and not (syntax == "python" and _TESTS.search(path)):
                            self._words[syntax].waiting.append(path)
                    elif entry.is_dir(follow_symlinks=False) and not self._left_out(path):
                        inner.append(path)
                        self._holding.setdefault(entry.name, []).append(folder)
        except OSError:
            return []
        return inner


class _Words:
    """The words that occur in the files of one syntax, each file read once."""

    __slots__ = ("bytes", "found", "parts", "texts", "waiting")

    def __init__(self, texts: Texts) -> None:
        self.waiting: list[str] = []
        self.found: dict[bytes, list[str]] = {}
        self.parts: dict[bytes, frozenset[str]] = {}
        self.bytes = 0
        self.texts = texts

    def having(self, word: bytes) -> Iterable[str]:
        """The files in which a word occurs."""
        if self.waiting:
            deadline.beside(self._read)  # for all files of the repository, at the first that asks
        return self.found.get(word, ())

    def _read(self) -> None:
        for path in self.waiting:
            if self.bytes < MAX_READ:
                text = self.texts.small(path)
                self.bytes += len(text)
                for one in set(_WORD.findall(text)):
                    self.found.setdefault(one, []).append(path)
        self.waiting.clear()

    def with_part(self, part: bytes) -> frozenset[str]:
        """The files in which a part of a word occurs (`name` of `config.name`)."""
        if self.waiting:
            self.having(part)
            self.parts.clear()
        if part not in self.parts:
            words = [word for word in self.found if part in word and part in _PART.findall(word)]
            self.parts[part] = frozenset(path for word in words for path in self.found[word])
        return self.parts[part]


class Repositories:
    """The repositories around files, each indexed once."""

    def __init__(self, settings_for: Callable[[str], Settings], roots: Roots, texts: Texts) -> None:
        self._settings_for = settings_for
        self._roots = roots
        self._texts = texts
        self._indexes: dict[str, RepositoryIndex] = {}

    def index(self, path: str) -> RepositoryIndex:
        """The index of the repository that a file is in; without one, of its folder and the folders in that."""
        root, rooted = self._roots.around(path)
        if root not in self._indexes:
            self._indexes[root] = RepositoryIndex(
                root, self._settings_for, self._texts, None if rooted else _DEPTH_ALONE
            )
        return self._indexes[root]


def _steps(path: str) -> list[str]:
    """The parts of a path, without those that lead upwards."""
    return [step for step in path.split("/") if step not in ("", ".", "..")]


def _common(first: Iterable[str], second: Iterable[str]) -> int:
    """How many parts two paths have in common before they differ."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
