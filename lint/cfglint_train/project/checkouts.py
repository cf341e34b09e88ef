"""Another checkout of a framework that a launch plainly uses: by PYTHONPATH, from its folder, or installed from it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.typed import Final

_PYTHONPATH: Final = re.compile(r"\bPYTHONPATH=[\"']?([^\s\"';&|]+)")
_EDITABLE: Final = re.compile(r"\bpip3?\s+install\s(?:[^\n;&|]*?\s)?(?:-e|--editable)[\s=]+[\"']?([^\s\"';&|\[]+)")
_CHANGE: Final = re.compile(r"(?:^|[;&|(]|\bthen|\bdo)\s*(?:cd|pushd)\s+[\"']?([^\s\"';&|)]+)")
_DEFAULT: Final = re.compile(r"\$\{\w+:?-([^{}]*)\}")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_OUTSIDE: Final = re.compile(r"/|~/|\$\{?HOME\}?/|(?:\$\{?PWD\}?/)?\.\./")
_HERE: Final = (".", "./")


def checkout(script: ShellDocument, launch: Invocation, package: str, root: str) -> tuple[str, int] | None:
    """The folder outside a repository from which a launch takes a package, and the line that names it."""
    lines = script.source[: launch.span.start].decode("utf-8", "replace").splitlines()
    variables: dict[str, str] = {}
    folder = ""
    found = None
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        assigned = re.match(r"\s*(?:export\s+)?(\w+)=[\"']?([^\s\"';&|]+)", line)
        if assigned is not None and assigned[1] != "PYTHONPATH":
            variables[assigned[1]] = assigned[2]
        for change in _CHANGE.finditer(line):
            folder = change[1]
        for path in _used(line, folder):
            path = _plain(path, variables)
            if _is_other(path, script.path, root) and _is_called(path, package):
                found = path, number
    if "." in launch.program and "/" not in launch.program and not launch.program.endswith((".py", ".sh")):
        path = _plain(folder, variables)  # what `python -m` starts is looked for in the folder first
        if _is_other(path, script.path, root) and _is_called(path, package):
            return path, len(lines)
    return found


def _used(line: str, folder: str) -> Iterator[str]:
    """The paths by which a line puts packages before those that are installed."""
    for match in _PYTHONPATH.finditer(line):
        yield from match[1].split(":")
    for match in _EDITABLE.finditer(line):
        yield folder if match[1] in _HERE else match[1]


def _plain(path: str, variables: dict[str, str]) -> str:
    """A path with the defaults and the variables of the script in it."""
    for _ in range(2):
        path = _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), _DEFAULT.sub(r"\1", path))
    return _DEFAULT.sub(r"\1", path)


def _is_other(path: str, script: str, root: str) -> bool:
    """Whether a path leads out of the repository."""
    if not _OUTSIDE.match(path):
        return False
    own = os.path.abspath(root)
    relative = re.sub(r"^\$\{?PWD\}?/", "", re.sub(r"^(?:~|\$\{?HOME\}?)/", "/~/", path))
    for start in (own, os.path.dirname(os.path.abspath(script))):
        whole = os.path.normpath(os.path.join(start, relative))
        if whole == own or whole.startswith(own + os.sep):
            return False
    return True


def _is_called(path: str, package: str) -> bool:
    """Whether a folder of a path is called after a package, be it with further words (`openrlhf-fork`)."""
    from cfglint_train.project.pins.requirement import namesake

    for step in path.split("/"):
        words = [word for word in re.split(r"[-_.]", step) if word]
        runs = ("".join(words[at:end]) for at in range(len(words)) for end in range(at + 1, len(words) + 1))
        if any(namesake(run) == package for run in runs):
            return True
    return False
