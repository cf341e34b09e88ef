"""What the commands of a repository install: shell scripts, read-me files, notebooks, and images that Modal builds.

They count where no requirement file mentions a framework, and scripts count against a file that names another release.
A script may install for something else than the training: one counts only if it installs the framework, and then with
all that it pins beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.typed import Final
from cfglint_train.project.index import RepositoryIndex
from cfglint_train.project.pins.readers import Pin, commands_in
from cfglint_train.project.pins.search import Settled, settled
from cfglint_train.project.roots import distance

_MOST: Final = 1000
"""Installations of a repository that are looked at."""
_SIGNS: Final[Mapping[str, tuple[bytes, ...]]] = {
    ".sh": (b"install", b"git clone", b"docker"),
    ".bash": (b"install", b"git clone", b"docker"),
    ".slurm": (b"install", b"git clone"),
    ".sbatch": (b"install", b"git clone"),
    ".md": (b"install", b"git clone", b"docker"),
    ".ipynb": (b"install", b"git clone"),
    ".py": (b"pip_install", b"run_commands", b"from_registry"),
}
"""Endings of names -> texts one of which a file with an installation contains."""
_SHOWING: Final = (".md", ".ipynb")
"""Files whose commands may be for something else, or of another time."""


def installed(index: RepositoryIndex, path: str, package: str, only_run: bool = False) -> Mapping[str, Settled]:
    """What the commands nearest to a file install that install a package, by package.

    With `only_run` those that read-me files and notebooks show do not count.
    """
    found: dict[tuple[int, int], list[Pin]] = {}
    own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
    for group in index.once(_installations):
        if only_run and group[0].path.endswith(_SHOWING):
            continue
        if any(pin.package == package for pin in group):
            found.setdefault(distance(own, os.path.dirname(group[0].path)), []).extend(group)
    return settled(found[min(found)]) if found else {}


def _installations(index: RepositoryIndex) -> list[list[Pin]]:
    """The pins of each installation in a repository that has some."""
    found = (list(group) for path, text in index.texts(_SIGNS) for group in _groups(path, text))
    return list(islice(filter(None, found), _MOST))


def _groups(path: str, text: str) -> Iterator[Iterable[Pin]]:
    """The pins of a file, those of one installation together."""
    if path.endswith(".py"):
        from cfglint_train.project.pins.modal_images import images

        yield from images(path, text)
    elif path.endswith(".ipynb"):
        yield commands_in(path, _cells(text))
    else:
        yield commands_in(path, text if path.endswith(".md") else re.sub(r"(?m)^\s*#.*$", "", text))


def _cells(text: str) -> str:
    """The commands of a notebook (`!pip install`, `%pip install`), on the lines of its JSON on which they stand."""
    lines = []
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(\"(?:[^\"\\]|\\.)*\"),?\s*", line)
        try:
            cell = json.loads(match[1]) if match is not None else ""
        except ValueError:
            cell = ""
        lines.append(cell.strip("\n").replace("\n", " ; ").lstrip("!% ") if cell.lstrip()[:1] in ("!", "%") else "")
    return "\n".join(lines)
