"""The releases that each run was checked against, with their sources, for `--verbose`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.releases import Release
from cfglint_train.reports.escape import escape_text
from cfglint_train.runs.run import Run


def format_releases(runs: Iterable[Run]) -> Iterator[str]:
    """Yield a line per run with its packages, the framework's first; `?` marks a package with only an allowed range."""
    for run in runs:
        releases, package = run.releases, run.framework.manifest.package
        parts = [f"{package} {_format_release(releases.by_package[package])}"]
        parts += [
            f"{name} {_format_release(release)}"
            for name, release in sorted(releases.by_package.items())
            if _is_other_package(name, package)
        ]
        parts += [
            f"{name} ? ({allowed.origin.note})"
            for name, allowed in sorted(releases.allowed_releases.items())
            if name not in releases.by_package
        ]
        position = run.main.document.locate(run.main.find_top().span.start)
        yield escape_text(f"releases: {run.main.document.path}:{position.line}: {'; '.join(parts)}")


def _is_other_package(name: str, package: str) -> bool:
    """Return whether a name is another package, rather than a framework's name that repeats its package's entry."""
    return name != package and (name not in list_frameworks() or list_frameworks()[name].package == name)


def _format_release(release: Release) -> str:
    return f"{release.version} ({release.origin.note})"
