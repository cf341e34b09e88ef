"""Patches to an installed framework: edits in place, and files that replace its modules.

They are recognized in patch files, scripts and container files by the path of a module of the framework. Nothing is
applied or run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL

_NAMES: Final = sorted(
    {
        package
        for manifest in list_frameworks().values()
        if manifest.layout is not None
        for package in manifest.layout.packages
    }
)
_FOLDERS: Final = tuple(f"{package}/" for package in _NAMES)
_PACKAGES: Final = "|".join(_NAMES)
_MODULE: Final = compile_on_use(rf"(?:^|[\s\"'=/])({_PACKAGES})/([\w./-]{{0,200}}\.py)\b")
_PATCHES: Final = compile_on_use(r"[\w./*-]{1,200}\.(?:patch|diff)\b")
_MAX_APPLIED: Final = 100
"""Maximum number of files in a folder that are compared with a pattern in a script."""
_QUOTES: Final = "\"'"
_MAX_LINE: Final = 2000
"""Maximum length of a command that is searched, in characters."""
_PATCHED: Final = compile_on_use(r"^\+\+\+ (\S+\.py)\b", re.MULTILINE)
_EDITS: Final = compile_on_use(r"\b(?:sed\s+(?:-\w+\s+)*-\w*i|perl\s+(?:-\w+\s+)*-\w*i)|\bpatch\s")
"""Commands that edit the files that they name."""
_COPIES: Final = compile_on_use(r"(?:^|[;&|]|\s)(?:cp|mv|ln|rsync|install|tee|COPY|ADD)\s([^;&|]*)|>>?([^;&|>]*)")
"""Commands that write to the file in their last word."""
_DECLARED: Final = compile_on_use(
    r"[\"']-{0,2}([A-Za-z_][\w.-]{0,80})\\?[\"']|(?:^|\s)--([A-Za-z_][\w.-]*)|\b([A-Za-z_]\w{0,80})\s?:\s{0,4}\w"
)
"""Possible name of a setting in an added line: a string, an option or an annotated name."""


class Patch(Frozen):
    """A change to an installed framework."""

    path: str
    """File that makes the change."""
    line: int
    module: str
    """Module of the framework that is changed, or the package if the module is unknown."""
    declared: frozenset[str]
    """Names of settings that the change may declare."""


def find_first_patch(paths: Iterable[str], packages: Collection[str], index: RepositoryIndex) -> Patch | None:
    """Return the first patch to `packages` in the files, with the names that all patches in them declare, or None."""
    patches = [
        Patch(path, line, module, frozenset(_list_declared_names(text)))
        for path in dict.fromkeys(file for path in paths for file in (path, *_list_applied_patches(path, index)))
        for line, package, module, text in _find_changes(path, _read_text(path), index)
        if package in packages
    ]
    return patches[0]._replace(declared=frozenset().union(*(file.declared for file in patches))) if patches else None


def _list_applied_patches(path: str, index: RepositoryIndex) -> Iterator[str]:
    """Yield the patch files that a script names, including names with wildcards."""
    folder = os.path.dirname(path)
    for word in dict.fromkeys(_PATCHES.findall(_read_text(path))) if not path.endswith((".patch", ".diff")) else ():
        subfolder, _, pattern = word.rpartition("/")
        place = os.path.join(folder, subfolder)
        try:
            names = sorted(filesystem.list_names(place)) if regular_files.is_below(place, index.root) else []
        except OSError:
            continue
        yield from (os.path.join(place, name) for name in names[:_MAX_APPLIED] if fnmatchcase(name, pattern))


_Change = tuple[int, str, str, str]
"""Line, package, module, and added text."""


def _find_changes(path: str, text: str, index: RepositoryIndex) -> Iterator[_Change]:
    if not any(folder in text for folder in _FOLDERS) and not path.endswith("customize.py"):
        return  # a quick exit for nearly every script in a repository
    for match in _PATCHED.finditer(text):
        yield from _match_module(_get_line(text, match), match[1], _extract_added_lines(text, match.end()), index)
    if path.endswith(".py"):
        for match in re.finditer(rf"^\s*(?:import|from)\s+({_PACKAGES})\b", text, re.MULTILINE):
            yield _get_line(text, match), match[1], match[1], text
    elif not path.endswith((".patch", ".diff")):
        yield from _find_command_changes(path, text, index)


def _find_command_changes(path: str, text: str, index: RepositoryIndex) -> Iterator[_Change]:
    """Yield the changes that the commands in a script or container file make."""
    number = 1
    for line in re.split(r"(?<!\\)\n", text):
        first, number = number, number + line.count("\n") + 1
        command = line.replace("\\\n", " ").strip()
        if not command.startswith("#") and len(command) <= _MAX_LINE and _MODULE.search(command):
            for target in _list_written_modules(command):
                yield from _match_module(first, target, command + _read_copied_files(command, path, index), index)


def _list_written_modules(command: str) -> Iterator[str]:
    """Yield the modules of frameworks that a command edits or overwrites."""
    if _EDITS.search(command):
        yield from (match[0] for match in _MODULE.finditer(command))
        return
    for match in _COPIES.finditer(command):
        words = (match[1] or match[2] or "").split()
        if words and _MODULE.search(words[-1]):
            yield words[-1]


def _read_copied_files(command: str, path: str, index: RepositoryIndex) -> str:
    """Return the texts of the Python and patch files in the repository that a command names."""
    texts = []
    for word in re.findall(r"[^\s\"'=]+\.(?:py|patch|diff)\b", command):
        same_named = index.find_by_name(os.path.basename(word))
        source = index.find_by_suffix(word, path) or (same_named[0] if len(same_named) == 1 else None)
        if source is not None:
            texts.append(_read_text(source))
    return "\n".join(("", *texts))


def _read_text(path: str) -> str:
    """Return the start of a file's text (`MAX_SMALL` bytes), or an empty string if it cannot be read."""
    try:
        return regular_files.read(path)[:MAX_SMALL].decode("utf-8", "replace")
    except OSError:
        return ""


def _get_line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start(1)) + 1


def _match_module(line: int, target: str, text: str, index: RepositoryIndex) -> Iterator[_Change]:
    """Yield the change to `target` if it is a module of a framework and not a file in the repository."""
    match = _MODULE.search(target)
    repository_path = f"{index.root}/{target.strip(_QUOTES).removeprefix('b/')}"
    if match is not None and not filesystem.exists(repository_path):
        yield line, match[1], f"{match[1]}/{match[2]}", text


def _extract_added_lines(text: str, start: int) -> str:
    """Return the lines that a patch adds to one file."""
    end = text.find("\n+++ ", start)
    lines = text[start : len(text) if end < 0 else end].splitlines()
    return "\n".join(line[1:] for line in lines if line.startswith("+"))


def _list_declared_names(text: str) -> Iterator[str]:
    for match in _DECLARED.finditer(text):
        yield match[1] or match[2] or match[3]
