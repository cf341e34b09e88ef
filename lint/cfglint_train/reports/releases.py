"""Which releases each run was checked against, and where each of them comes from: for `--verbose`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_train.frameworks.registry import listed
from cfglint_train.plan.releases import Release
from cfglint_train.reports.escape import printable
from cfglint_train.runs.run import Run


def lines(runs: Iterable[Run]) -> Iterator[str]:
    """One line per run, the framework first; `?` where only a range is known."""
    for run in runs:
        releases, own = run.releases, run.framework.listed.package
        told = [f"{own} {_told(releases.known[own])}"]
        told += [f"{name} {_told(release)}" for name, release in sorted(releases.known.items()) if _is_other(name, own)]
        told += [
            f"{name} ? ({allowed.origin.note})"
            for name, allowed in sorted(releases.ranges.items())
            if name not in releases.known
        ]
        at = run.main.document.position(run.main.top().span.start)
        yield printable(f"releases: {run.main.document.path}:{at.line}: {'; '.join(told)}")


def _is_other(name: str, own: str) -> bool:
    """Whether this is a package beside the framework's own, which is also known by the framework's name."""
    return name != own and (name not in listed() or listed()[name].package == name)


def _told(release: Release) -> str:
    return f"{release.version} ({release.origin.note})"
