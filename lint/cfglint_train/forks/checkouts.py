"""The folders from which a launch plainly takes packages: by PYTHONPATH, from its own folder, or installed from one.

Outside the repository, one that is called after a framework is another checkout of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.typed import Final

_PYTHONPATH: Final = re.compile(r"\bPYTHONPATH=[\"']?([^\s\"';&|]+)")
_PIP: Final = re.compile(r"\bpip3?\s+install\s([^\n;&|]*)")
_WORD: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s=]+")
_EDITABLE: Final = ("-e", "--editable")
_WITH_VALUE: Final = frozenset((
    "-c", "-f", "-i", "-r", "-t", "--cache-dir", "--config-settings", "--constraint", "--extra-index-url",
    "--find-links", "--index-url", "--prefix", "--python", "--requirement", "--root", "--src", "--target",
))  # fmt: skip
"""Options of `pip install` whose value is nothing that is installed."""
_ON_DISK: Final = re.compile(r"(?:\.{0,2}/|~/|\$|\.(?=\[|$)).*(?<!\.whl)(?<!\.gz)")
_CHANGE: Final = re.compile(r"(?:^|[;&|(]|\bthen|\bdo)\s*(?:cd|pushd)\s+[\"']?([^\s\"';&|)]+)")
_DEFAULT: Final = re.compile(r"\$\{\w+:?-([^{}]*)\}")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_OUTSIDE: Final = re.compile(r"/|~/|\$\{?HOME\}?/|(?:\$\{?PWD\}?/)?\.\./")
_CURRENT: Final = re.compile(r"(?:\$\{?PWD\}?|\$\(pwd\)|`pwd`)(?:/|$)")
_HERE: Final = (".", "./")


def checkout(script: ShellDocument, launch: Invocation, package: str, root: str) -> tuple[str, int] | None:
    """The folder outside a repository from which a launch takes a package, and the line that names it."""
    found = (
        (path, number)
        for path, number in folders(script, launch)
        if _OUTSIDE.match(path) and not inside(path, script.path, root) and _is_called(path, package)
    )
    return next(reversed([*found]), None)


def folders(script: ShellDocument, launch: Invocation) -> Iterator[tuple[str, int]]:
    """The folders in which a launch looks for packages first, as written, each with the line that names it."""
    lines = script.source[: launch.span.start].decode("utf-8", "replace").splitlines()
    variables: dict[str, str] = {}
    folder = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        assigned = re.match(r"\s*(?:export\s+)?(\w+)=[\"']?([^\s\"';&|]+)", line)
        if assigned is not None and assigned[1] != "PYTHONPATH":
            variables[assigned[1]] = assigned[2]
        for change in _CHANGE.finditer(line):
            folder = change[1]
        yield from ((_plain(path, variables), number) for path in _used(line, folder))
    if "." in launch.program and "/" not in launch.program and not launch.program.endswith((".py", ".sh")):
        yield _plain(folder, variables), len(lines)  # what `python -m` starts is looked for in the folder first


def _used(line: str, folder: str) -> Iterator[str]:
    """The paths by which a line puts packages before those that are installed."""
    for match in _PYTHONPATH.finditer(line):
        yield from match[1].split(":")
    for path in _installed(line):
        yield folder if path in _HERE else path


def _installed(line: str) -> Iterator[str]:
    """The folders that a line installs, in editable form or not, without their extras."""
    for command in _PIP.finditer(line):
        before = ""
        for word in (word.strip("\"'") for word in _WORD.findall(command[1])):
            if before in _EDITABLE or (before not in _WITH_VALUE and _ON_DISK.fullmatch(word)):
                yield word.partition("[")[0]
            before = word


def _plain(path: str, variables: dict[str, str]) -> str:
    """A path with the defaults and the variables of the script in it."""
    for _ in range(2):
        path = _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), _DEFAULT.sub(r"\1", path))
    return _DEFAULT.sub(r"\1", path)


def inside(path: str, script: str, root: str) -> list[str]:
    """Where a path of a script may lead to in the repository, from its root and from the script."""
    own = os.path.abspath(root)
    relative = _CURRENT.sub("", re.sub(r"^(?:~|\$\{?HOME\}?)/", "/~/", path))
    starts = (own, os.path.dirname(os.path.abspath(script)))
    found = [os.path.normpath(os.path.join(start, relative)) for start in starts]
    return [whole for whole in found if whole == own or whole.startswith(own + os.sep)]


def _is_called(path: str, package: str) -> bool:
    """Whether a folder of a path is called after a package, be it with further words (`openrlhf-fork`)."""
    from cfglint_train.releases.pins.requirement import namesake

    for step in path.split("/"):
        words = [word for word in re.split(r"[-_.]", step) if word]
        runs = ("".join(words[at:end]) for at in range(len(words)) for end in range(at + 1, len(words) + 1))
        if any(namesake(run) == package for run in runs):
            return True
    return False
