"""Absent files: decide whether a file that a command names is missing from a repository that should hold it.

A repository should hold the file if its folder has files of the same kind, or, for a bare name, a file of a similar
name. There is no verdict if anything may create the file, or if the command runs in another folder or on another
machine.
"""

from __future__ import annotations

import os
import re

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import is_folder_unchanged, resolve_working_folder
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import find_similar
from cfglint_train.frameworks.launchers import LOCAL_LAUNCHERS
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.sources import Sources

_COMMENT: Final = compile_on_use(rb"(?m)^[ \t]*#.*")
_FETCHED: Final = compile_on_use(
    rb"\b(?:git[ \t]+(?:clone|checkout|switch|pull|fetch)|wget|curl|unzip|tar|rsync|scp)\b"
)
"""Commands that may bring files which the repository lacks."""
_STANDS_FOR: Final = compile_on_use(r"your|path_?to|xxx|placeholder|[<>{}*?\[\]]", re.IGNORECASE)
"""Parts of names that the user replaces, or that stand for several files."""
_ELSEWHERE: Final = compile_on_use(r"--(?:container|chdir|directory|working[-_]dir)")
"""Options that run a command in another folder or machine."""

_SIMILARITY: Final = 0.7


def find_nearest(
    document: ShellDocument, invocation: Invocation, name: str, sources: Sources, index: RepositoryIndex
) -> str | None:
    """Return the existing file that a missing one resembles most, "" if none is similar, or None without a verdict.

    `name` is the path as written. The result is written in the same way.
    """
    name = regular_files.normalize_path(name)
    folder, basename = os.path.split(name)
    if (
        os.path.isabs(name)
        or name.startswith(("~", ".."))
        or _STANDS_FOR.search(name)
        or not index.is_repository
        or index.find_by_name(basename)
        or not _is_started_here(document, invocation)
        or _can_be_created(document, basename, sources, index)
    ):
        return None
    ending, siblings = os.path.splitext(basename)[1], list[str]()
    bases, _ = sources.roots.list_folders_above(os.path.dirname(os.path.abspath(document.path)))
    for base in bases:
        path = os.path.join(base, name)
        if filesystem.is_present(path) or index.is_ignored(path):
            return None
        try:
            names = filesystem.list_names(os.path.dirname(path))
        except OSError:
            continue
        siblings += [other for other in sorted(names) if other.endswith(ending) and other != ending]
    similar = find_similar(basename, siblings, _SIMILARITY)
    if similar is not None:
        return os.path.join(folder, similar)
    return "" if folder and siblings else None


def find_nearest_module(
    document: ShellDocument, invocation: Invocation, name: str, sources: Sources, index: RepositoryIndex
) -> str | None:
    """Return the module that a missing one resembles most, "" if none is similar, or None without a verdict.

    Only the repository decides which modules a package with `__init__.py` has, unless the package extends its path or
    the script changes where Python looks.
    """
    if b"PYTHONPATH" in document.source:
        return None
    path = name.replace(".", "/")
    bases, _ = sources.roots.list_folders_above(os.path.dirname(os.path.abspath(document.path)))
    homes = [base for base in bases if filesystem.is_folder(os.path.join(base, os.path.dirname(path)))]
    if not homes or any(_can_have_module(home, path, sources) for home in homes):
        return None
    nearest = find_nearest(document, invocation, f"{path}.py", sources, index)
    return nearest.removesuffix(".py").replace("/", ".") if nearest else nearest


def _can_have_module(home: str, path: str, sources: Sources) -> bool:
    """Return whether a package in a folder may have a module, in any form (`.so`, a folder), or in another folder."""
    top = os.path.join(home, path.partition("/")[0], "__init__.py")
    if not filesystem.is_file(top) or b"__path__" in sources.read(top):
        return True
    folder, name = os.path.split(path)
    try:
        return any(other.partition(".")[0] == name for other in filesystem.list_names(os.path.join(home, folder)))
    except OSError:
        return True


def _is_started_here(document: ShellDocument, invocation: Invocation) -> bool:
    """Return whether a command runs on this machine, in its script's folder or where the script is started.

    A command in a branch that defaults leave out may never run.
    """
    if invocation.scope is None or invocation.scope.is_nested or invocation.scope.is_left_out():
        return False
    launchers = list(document.list_launchers(invocation))
    if not all(launcher.program in LOCAL_LAUNCHERS for launcher in launchers):
        return False
    directives = [other for other in document.invocations if other.is_directive]
    words = [word.text for other in (*launchers, *directives) for word in other.words]
    own_folder = os.path.dirname(os.path.abspath(document.path))
    is_in_own_folder = resolve_working_folder(document, invocation) == own_folder
    return not any(_ELSEWHERE.match(word) or word in ("-C", "-D") for word in words) and (
        is_in_own_folder or is_folder_unchanged(document, invocation)
    )


def _can_be_created(document: ShellDocument, basename: str, sources: Sources, index: RepositoryIndex) -> bool:
    """Return whether a script, program or notebook of the repository may create a file of this name."""
    name = os.fsencode(basename)
    if _FETCHED.search(_COMMENT.sub(b"", document.source)):
        return True
    written = re.compile(rb"(?:>|\b(?:cp|ln|mv|sed|tee|touch|yq)\b)[^\n;&|]*(?<![\w.-])" + re.escape(name))
    scripts = index.find_scripts_naming(basename)
    if any(written.search(_COMMENT.sub(b"", sources.read(script))) for script in scripts):
        return True
    others = (*index.find_python_naming(basename), *index.find_by_extension((".ipynb",)))
    return any(name in sources.read(path) for path in others)
