"""Checkouts: folders from which a launch imports packages, through PYTHONPATH, its working folder or pip.

A folder outside the repository that is named after a framework counts as another checkout of that framework.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_PYTHONPATH: Final = compile_on_use(r"\bPYTHONPATH=[\"']?([^\s\"';&|]+)")
_PIP: Final = compile_on_use(r"\bpip3?\s+install\s([^\n;&|]*)")
_WORD: Final = compile_on_use(r"\"[^\"]*\"|'[^']*'|[^\s=]+")
_EDITABLE: Final = ("-e", "--editable")
_WITH_VALUE: Final = frozenset((
    "-c", "-f", "-i", "-r", "-t", "--cache-dir", "--config-settings", "--constraint", "--extra-index-url",
    "--find-links", "--index-url", "--prefix", "--python", "--requirement", "--root", "--src", "--target",
))  # fmt: skip
"""Options of `pip install` whose value is not a package to install."""
_ON_DISK: Final = compile_on_use(r"(?:\.{0,2}/|~/|\$|\.(?=\[|$)).*(?<!\.whl)(?<!\.gz)")
_CHANGE: Final = compile_on_use(r"(?:^|[;&|(]|\bthen|\bdo)\s*(?:cd|pushd)\s+[\"']?([^\s\"';&|)]+)")
_DEFAULT: Final = compile_on_use(r"\$\{\w+:?-([^{}]*)\}")
_VARIABLE: Final = compile_on_use(r"\$(?:\{(\w+)\}|(\w+))")
_OUTSIDE: Final = compile_on_use(r"/|~/|\$\{?HOME\}?/|(?:\$\{?PWD\}?/)?\.\./")
_CURRENT: Final = compile_on_use(r"(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`)(?:/|$)")
_CURRENT_FOLDER: Final = (".", "./")


def find_checkout(script: ShellDocument, launch: Invocation, package: str, root: str) -> tuple[str, int] | None:
    """Return the last folder outside the repository from which a launch imports `package`, with its line, or None."""
    matches = (
        (path, number)
        for path, number in find_package_folders(script, launch)
        if _OUTSIDE.match(path) and not resolve_inside(path, script.path, root) and _is_named_after(path, package)
    )
    return next(reversed([*matches]), None)


def find_package_folders(script: ShellDocument, launch: Invocation) -> Iterator[tuple[str, int]]:
    """Yield the folders that a launch searches for packages before the installed packages, with their lines.

    Paths are as written, with the script's variables expanded.
    """
    lines = script.source[: launch.span.start].decode("utf-8", "replace").splitlines()
    variables: dict[str, str] = {}
    folder = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        assignment = re.match(r"\s*(?:export\s+)?(\w+)=[\"']?([^\s\"';&|]+)", line)
        if assignment is not None and assignment[1] != "PYTHONPATH":
            variables[assignment[1]] = assignment[2]
        for change in _CHANGE.finditer(line):
            folder = change[1]
        yield from ((_expand_variables(path, variables), number) for path in _list_paths(line, folder))
    if "." in launch.program and "/" not in launch.program and not launch.program.endswith((".py", ".sh")):
        yield _expand_variables(folder, variables), len(lines)  # `python -m` searches the working folder first


def _list_paths(line: str, folder: str) -> Iterator[str]:
    """Yield the folders that a line puts on the import path with PYTHONPATH or `pip install`."""
    for match in _PYTHONPATH.finditer(line):
        yield from match[1].split(":")
    for path in _list_installed(line):
        yield folder if path in _CURRENT_FOLDER else path


def _list_installed(line: str) -> Iterator[str]:
    """Yield the folders that a line installs with pip, editable or not, without their extras."""
    for command in _PIP.finditer(line):
        before = ""
        for word in (word.strip("\"'") for word in _WORD.findall(command[1])):
            if before in _EDITABLE or (before not in _WITH_VALUE and _ON_DISK.fullmatch(word)):
                yield word.partition("[")[0]
            before = word


def _expand_variables(path: str, variables: dict[str, str]) -> str:
    """Return a path with the script's variables and the defaults of `${NAME:-default}` expanded."""
    for _ in range(2):
        path = _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), _DEFAULT.sub(r"\1", path))
    return _DEFAULT.sub(r"\1", path)


def resolve_inside(path: str, script: str, root: str) -> list[str]:
    """Return the folders in the repository that a path may refer to, relative to the root or to the script."""
    root_path = os.path.abspath(root)
    relative = _CURRENT.sub("", re.sub(r"^(?:~|\$\{?HOME\}?)/", "/~/", path))
    starts = (root_path, os.path.dirname(os.path.abspath(script)))
    candidates = [os.path.normpath(os.path.join(start, relative)) for start in starts]
    return [candidate for candidate in candidates if candidate == root_path or candidate.startswith(root_path + os.sep)]


def _is_named_after(path: str, package: str) -> bool:
    """Return whether a folder in a path is named after a package, possibly with other words (`openrlhf-fork`)."""
    from cfglint_train.releases.pins.requirement import match_package_name

    for step in path.split("/"):
        words = [word for word in re.split(r"[-_.]", step) if word]
        names = ("".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1))
        if any(match_package_name(run) == package for run in names):
            return True
    return False
