"""Survey of a repository for `cfglint init`: frameworks, launch scripts, releases, hardware. Writes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from cfglint_train import api
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.roots import Roots
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.front.init.hints import Hint, find_hints
from cfglint_train.repository import files
from cfglint_train.repository.gitignore import build_git_filter
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings

_LAUNCH_FACTS: Final = ("nodes", "gpus-per-node", "host-memory")


class SurveyedRelease(NamedTuple):
    """A release of a framework that runs are checked against."""

    release: str
    source: str | None
    """Source of the release; None if it is assumed."""
    more: int = 0
    """Number of further sources."""


class Survey(NamedTuple):
    """Contents of a repository that matter for its settings."""

    root: str
    """Root of the repository that contains the surveyed folder, or the folder itself."""
    frameworks: Mapping[str, int]
    """Number of files per framework title, the most frequent first."""
    launches: Mapping[str, tuple[str, ...]]
    """Launch scripts with the facts that cfglint reads from them."""
    releases: Mapping[str, tuple[SurveyedRelease, ...]]
    """Distinct releases that the runs are checked against, by the package of the framework."""
    hints: tuple[Hint, ...]


def find_root(folder: str) -> str:
    """Return the absolute root of the repository (or project) that contains a folder, or the folder itself."""
    folders, rooted = Roots().list_folders_above(os.path.abspath(folder))
    return folders[-1] if rooted else folders[0]


def survey_repository(folder: str) -> Survey:
    """Survey the repository that contains a folder. Paths are relative to its root. Raise OSError."""
    root = find_root(folder)
    result = api.estimate(root, api.Options(isolated=True)).raw
    count = Counter(frameworks.load(file.framework).title for file in result.files)
    launches: dict[str, set[str]] = {}
    releases: dict[str, dict[str, dict[str | None, None]]] = {}
    for run in result.runs:
        for fact, script in _find_launch_facts(run):
            launches.setdefault(_make_relative(script, root), set()).add(fact)
        for config in run.configs:
            release = config.releases.by_package.get(config.framework)
            if release is not None:
                note = release.origin.note.replace(root.rstrip(os.sep) + os.sep, "")  # no absolute paths in settings
                source = None if release.origin.kind == "assumed" else note
                package = list_frameworks()[config.framework].package
                releases.setdefault(package, {}).setdefault(release.version, {})[source] = None
    return Survey(
        root,
        dict(count.most_common()),
        {script: tuple(fact for fact in _LAUNCH_FACTS if fact in facts) for script, facts in sorted(launches.items())},
        {
            package: tuple(_build_release(version, tuple(sources)) for version, sources in by_release.items())
            for package, by_release in sorted(releases.items())
        },
        tuple(_collect_hints(root)),
    )


def _build_release(release: str, sources: tuple[str | None, ...]) -> SurveyedRelease:
    """Return a release with its sources; it counts as assumed if some files assume it."""
    return SurveyedRelease(release, None) if None in sources else SurveyedRelease(release, sources[0], len(sources) - 1)


def _find_launch_facts(run: Run) -> list[tuple[str, str]]:
    """Return the facts of a run that a launch script states, each with the path of the script."""
    launch = run.plan.launch
    origins = (
        ("nodes", run.get_origin("launch.nodes") if launch.nodes is not None else None),
        ("gpus-per-node", run.get_origin("launch.gpus_per_node") if launch.gpus_per_node is not None else None),
        ("host-memory", run.hardware.host_origin),
    )
    return [
        (fact, origin.place.document.path)
        for fact, origin in origins
        if origin is not None and origin.place is not None and origin.place.document.syntax == "shell"
        if origin.kind != "assumed" and not origin.assumption  # suggest assumed values for the settings instead
    ]


def _collect_hints(root: str) -> list[Hint]:
    settings = Settings(root)
    collected: list[Hint] = []
    for path in files.walk(root, lambda _: settings, build_git_filter(root, Roots(), {})):
        try:
            source = regular_files.read(path)
        except OSError:
            continue
        syntax = files.detect_syntax(path, source)
        if syntax is not None and len(source) <= regular_files.MAX_BYTES:
            collected += find_hints(_make_relative(path, root), source.decode("utf-8", "replace"), syntax)
    return collected


def _make_relative(path: str, root: str) -> str:
    return regular_files.normalize_path(os.path.relpath(path, root))
