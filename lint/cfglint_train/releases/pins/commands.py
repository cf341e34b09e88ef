"""What the commands of a repository install: shell scripts, Makefiles and justfiles, jobs of clouds, of compose and of
GitHub (YAML), read-me files, notebooks, and images that Modal builds.

They count where no requirement file mentions a framework, and scripts count against a file that names another release.
A script may install for something else than the training: one counts only if it installs the framework, and then with
all that it pins beside it. A workflow of tests is nothing that the training is installed by: it counts only if it also
starts a training, or has that in its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.documents.notebooks import read
from cfglint_train.foundation.roots import distance
from cfglint_train.foundation.typed import Final
from cfglint_train.releases.pins.readers import Pin, commands_in
from cfglint_train.releases.pins.search import ResolvedPin, united
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.workflows import is_workflow

_MOST: Final = 1000
"""Installations of a repository that are looked at."""
_SHOWING: Final = re.compile(r"\.(?:md|ipynb)$|/\.(?:github|gitlab|circleci|azure-pipelines)/|/\.gitlab-ci\.ya?ml$")
"""Files whose commands may be for something else (tests), or of another time."""
_TRAINS: Final = re.compile(
    r"\b(?:accelerate\s+launch|torchrun|deepspeed|axolotl\s+train|llamafactory-cli\s+train|trl\s+[a-z]+)\s"
    r"|\b(?:train|finetune|sft|dpo|grpo)\w*\.(?:py|sh)\b"
)
"""What a file that starts a training has."""
_IMAGE: Final = re.compile(r"""(?m)^([ \t]*(?:- )?)image(?:_id)?:([ \t]+["']?)(?:docker:)?(?=[\w./-]+:)""")
"""The image of a service of compose, of a job or of SkyPilot (`image_id: docker:NAME:TAG`)."""


def installed(index: RepositoryIndex, path: str, package: str, only_run: bool = False) -> Mapping[str, ResolvedPin]:
    """Return the pins of the commands that install a package for a file, by package: those in files that name it, else
    those of the nearest folder that holds it.

    Other folders install for something else. With `only_run`, read-me files and notebooks do not count.
    """
    found: dict[int, list[Pin]] = {}
    own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
    for group in index.once(_installations):
        if only_run and _SHOWING.search(group[0].path) is not None:
            continue
        if any(pin.package == package for pin in group):
            up, down = distance(own, os.path.dirname(group[0].path))
            names = index.names(group[0].path, path)
            if names or not down:
                found.setdefault(-1 if names else up, []).extend(group)
    return united(found[min(found)]) if found else {}


def _installations(index: RepositoryIndex) -> list[list[Pin]]:
    """The pins of each installation in a repository that has some."""
    found = (list(group) for path, text in index.texts("installations") for group in _groups(path, text))
    return list(islice(filter(None, found), _MOST))


def _groups(path: str, text: str) -> Iterator[Iterable[Pin]]:
    """The pins of a file, those of one installation together."""
    if path.endswith(".py"):
        from cfglint_train.releases.pins.modal import images

        yield from images(path, text)
    elif path.endswith(".ipynb"):
        notebook = read(text)
        yield commands_in(path, notebook.commands if notebook is not None else "")
    else:
        plain = text if path.endswith(".md") else re.sub(r"(?m)^\s*#.*$", "", text)
        if is_workflow(path) and "train" not in os.path.basename(path) and not _TRAINS.search(plain):
            return
        if path.endswith((".yaml", ".yml")):
            plain = _IMAGE.sub(r"\1docker run\2", plain)
        yield commands_in(path, plain)
