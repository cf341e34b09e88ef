"""What a repository changes in a framework that is installed: patches, edits in place, files that are laid over it.

Found in the texts of patch files, scripts, images and Python files by the path of a module of the framework; nothing is
applied or run. A repository that changes its framework has neither upstream's vocabulary nor upstream's behaviour.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import listed
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL

_COMMANDS: Final = (b"+++ ", b"sed ", b"perl ", b"cp ", b"mv ", b"ln ", b"rsync ", b"install ", b"tee ", b"cat ")
_SIGNS: Final[Mapping[str, tuple[bytes, ...]]] = {
    **dict.fromkeys((".patch", ".diff"), (b"+++ ",)),
    **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch"), _COMMANDS),
    ".py": (b"-packages/", b".__file__"),
}
"""Endings of names -> texts one of which a file contains that changes an installed package."""
_IMAGES: Final = ("Dockerfile", "Containerfile")
_CUSTOMIZED: Final = ("sitecustomize.py", "usercustomize.py")
"""Modules that Python imports whenever it starts: what they change of a package is changed in every run."""

_NAMES: Final = sorted({package for one in listed().values() if one.tree is not None for package in one.tree.packages})
_FOLDERS: Final = tuple(f"{package}/" for package in _NAMES)
_PACKAGES: Final = "|".join(_NAMES)
_MODULE: Final = re.compile(rf"(?:^|[\s\"'=/])({_PACKAGES})/([\w./-]{{0,200}}\.py)\b")
_INSTALLED: Final = re.compile(
    rf"(?:site|dist)-packages/({_PACKAGES})/[\w./-]{{0,200}}\.py\b|\b({_PACKAGES})(?:\.\w{{1,60}}){{0,9}}\.__file__"
)
"""How Python files name an installed module."""
_QUOTES: Final = "\"'"
_LONGEST: Final = 2000
"""Characters of a line that are looked at."""
_PATCHED: Final = re.compile(r"^\+\+\+ (\S+\.py)\b", re.MULTILINE)
_EDITS: Final = re.compile(r"\b(?:sed\s+(?:-\w+\s+)*-\w*i|perl\s+(?:-\w+\s+)*-\w*i)|\bpatch\s")
"""Commands that change the files which they name."""
_COPIES: Final = re.compile(r"(?:^|[;&|]|\s)(?:cp|mv|ln|rsync|install|tee|COPY|ADD)\s([^;&|]*)|>>?([^;&|>]*)")
"""Commands whose last word is what they write."""
_WRITES: Final = re.compile(
    r"\.write(?:_text|_bytes|lines)?\(|\b(?:copy|copy2|copyfile|move|rename)\(|\bopen\([^()\n]*[\"'][aw]"
)
"""What a Python file that changes others contains."""
_PYTHON: Final = re.compile(r"\w\.py[\"']")
_DECLARED: Final = re.compile(
    r"[\"']-{0,2}([A-Za-z_][\w.-]{0,80})[\"']|(?:^|\s)--([A-Za-z_][\w.-]*)|\b([A-Za-z_]\w{0,80})\s?:\s{0,4}\w"
)
"""What may be the name of a setting in a changed line: a text, an option, an annotated name."""


class Changed(Frozen):
    """A change of an installed framework."""

    path: str
    """The file that makes it."""
    module: str
    """The file of the framework that is changed; the package where that is not stated."""
    declared: frozenset[str]
    """The names that all changes of that framework may bring."""


def changed(index: RepositoryIndex) -> Mapping[str, Changed]:
    """The first change of each package of a framework, by package."""
    first: dict[str, Changed] = {}
    declared: dict[str, set[str]] = {}
    for path, text in _texts(index):
        for package, module, brought in _changes(path, text, index):
            declared.setdefault(package, set()).update(_names(brought))
            first.setdefault(package, Changed(path, module, frozenset()))
    return {package: one._replace(declared=frozenset(declared[package])) for package, one in first.items()}


def _texts(index: RepositoryIndex) -> Iterator[tuple[str, str]]:
    """The texts in which changes may be, patch files first: they show best what is changed."""
    found = [*index.texts(_SIGNS)]
    yield from sorted(found, key=lambda one: not one[0].endswith((".patch", ".diff")))
    for name in (*_IMAGES, *_CUSTOMIZED):
        yield from ((path, _text(path)) for path in index.named(name))


_Change = tuple[str, str, str]
"""The package, the module, and the text that is brought."""


def _changes(path: str, text: str, index: RepositoryIndex) -> Iterator[_Change]:
    name = os.path.basename(path)
    if not name.endswith(".py") and not (any(folder in text for folder in _FOLDERS) and _MODULE.search(text)):
        return  # nearly every script of a repository
    for match in _PATCHED.finditer(text):
        yield from _of(match[1], _added(text, match.end()), index)
    if name in _CUSTOMIZED:
        for match in re.finditer(rf"^\s*(?:import|from)\s+({_PACKAGES})\b", text, re.MULTILINE):
            yield match[1], match[1], text
    elif name.endswith(".py"):
        found = _INSTALLED.search(text) if _WRITES.search(text) and _PYTHON.search(text) else None
        if found is not None:
            package = found[1] or found[2]
            yield package, found[0].rpartition("-packages/")[2] if found[1] else package, text
    elif not name.endswith((".patch", ".diff")):
        yield from _by_commands(path, text, index)


def _by_commands(path: str, text: str, index: RepositoryIndex) -> Iterator[_Change]:
    """What the commands of a script or an image change."""
    for line in re.split(r"(?<!\\)\n", text):
        command = line.replace("\\\n", " ").strip()
        if not command.startswith("#") and len(command) <= _LONGEST and _MODULE.search(command):
            for target in _written(command):
                yield from _of(target, command + _copied(command, path, index), index)


def _written(command: str) -> Iterator[str]:
    """The modules that a command line writes."""
    if _EDITS.search(command):
        yield from (match[0] for match in _MODULE.finditer(command))
        return
    for match in _COPIES.finditer(command):
        words = (match[1] or match[2] or "").split()
        if words and _MODULE.search(words[-1]):
            yield words[-1]


def _copied(command: str, path: str, index: RepositoryIndex) -> str:
    """The texts of the files of the repository that a command names."""
    found = []
    for word in re.findall(r"[^\s\"'=]+\.(?:py|patch|diff)\b", command):
        named = index.named(os.path.basename(word))
        one = index.by_tail(word, path) or (named[0] if len(named) == 1 else None)
        if one is not None:
            found.append(_text(one))
    return "\n".join(("", *found))


def _text(path: str) -> str:
    """The text of a file of the repository; empty where it cannot be read."""
    try:
        return regular_files.read(path)[:MAX_SMALL].decode("utf-8", "replace")
    except OSError:
        return ""


def _of(target: str, brought: str, index: RepositoryIndex) -> Iterator[_Change]:
    """The change of a path, if it is a module of a framework that the repository does not hold itself."""
    match = _MODULE.search(target)
    own = f"{index.root}/{target.strip(_QUOTES).removeprefix('b/')}"
    if match is not None and not os.path.exists(own):
        yield match[1], f"{match[1]}/{match[2]}", brought


def _added(text: str, start: int) -> str:
    """The lines that a patch adds to one file."""
    end = text.find("\n+++ ", start)
    lines = text[start : len(text) if end < 0 else end].splitlines()
    return "\n".join(line[1:] for line in lines if line.startswith("+"))


def _names(text: str) -> Iterator[str]:
    for match in _DECLARED.finditer(text):
        yield match[1] or match[2] or match[3]
