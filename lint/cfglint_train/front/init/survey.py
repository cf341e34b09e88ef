"""What a repository holds that cfglint can be set up for. Reads, and writes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from cfglint_train import api
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.roots import Roots
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import listed
from cfglint_train.front.init.hints import Hint, hints
from cfglint_train.repository import files
from cfglint_train.repository.gitignore import git_ignores
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings

_STATED: Final = ("nodes", "gpus-per-node", "host-memory")


class Surveyed(NamedTuple):
    """A release of a framework."""

    release: str
    source: str | None
    """Where it is known from; None where it is assumed."""
    more: int = 0
    """How many other places it is known from."""


class Survey(NamedTuple):
    """What was found below a folder."""

    root: str
    """The repository's root above the folder, else the folder itself."""
    frameworks: Mapping[str, int]
    """Files per framework (its title), the most frequent first."""
    launches: Mapping[str, tuple[str, ...]]
    """Launch scripts -> the facts that cfglint reads from them."""
    releases: Mapping[str, tuple[Surveyed, ...]]
    """The releases of each framework (its package) that the runs are checked against, each once."""
    hints: tuple[Hint, ...]


def root_of(folder: str) -> str:
    """The root of the repository (or project) that a folder is in, else the folder; absolute."""
    folders, rooted = Roots().above(os.path.abspath(folder))
    return folders[-1] if rooted else folders[0]


def survey(folder: str) -> Survey:
    """Look through the repository that a folder is in. Paths are relative to its root. Raises OSError."""
    root = root_of(folder)
    found = api.estimate(root, api.Options(isolated=True)).raw
    count = Counter(frameworks.load(file.framework).title for file in found.files)
    launches: dict[str, set[str]] = {}
    releases: dict[str, dict[str, dict[str | None, None]]] = {}
    for run in found.runs:
        for fact, script in _launched(run):
            launches.setdefault(_relative(script, root), set()).add(fact)
        for config in run.configs:
            known = config.releases.known.get(config.framework)
            if known is not None:
                note = known.origin.note.replace(root.rstrip(os.sep) + os.sep, "")  # the settings hold no absolute path
                source = None if known.origin.kind == "assumed" else note
                package = listed()[config.framework].package
                releases.setdefault(package, {}).setdefault(known.version, {})[source] = None
    return Survey(
        root,
        dict(count.most_common()),
        {script: tuple(fact for fact in _STATED if fact in facts) for script, facts in sorted(launches.items())},
        {
            package: tuple(_surveyed(release, tuple(sources)) for release, sources in of.items())
            for package, of in sorted(releases.items())
        },
        tuple(_hints(root)),
    )


def _surveyed(release: str, sources: tuple[str | None, ...]) -> Surveyed:
    """A release by what it is known from; one that some files assume is assumed."""
    return Surveyed(release, None) if None in sources else Surveyed(release, sources[0], len(sources) - 1)


def _launched(run: Run) -> list[tuple[str, str]]:
    """The facts of a run that a launch script states, each with the script's path."""
    launch = run.plan.launch
    origins = (
        ("nodes", run.origin("launch.nodes") if launch.nodes is not None else None),
        ("gpus-per-node", run.origin("launch.gpus_per_node") if launch.gpus_per_node is not None else None),
        ("host-memory", run.hardware.host_origin),
    )
    return [
        (fact, origin.place.document.path)
        for fact, origin in origins
        if origin is not None and origin.place is not None and origin.place.document.syntax == "shell"
        if origin.kind != "assumed" and not origin.assumed  # what is only assumed is worth stating in the settings
    ]


def _hints(root: str) -> list[Hint]:
    settings = Settings(root)
    found: list[Hint] = []
    for path in files.walk(root, lambda _: settings, git_ignores(root, Roots(), {})):
        try:
            source = regular_files.read(path)
        except OSError:
            continue
        syntax = files.syntax_of(path, source)
        if syntax is not None and len(source) <= regular_files.MAX_BYTES:
            found += hints(_relative(path, root), source.decode("utf-8", "replace"), syntax)
    return found


def _relative(path: str, root: str) -> str:
    return regular_files.tidy(os.path.relpath(path, root))
