"""Requirements of a framework's releases: `requires.json` in the framework's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from json import loads

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.foundation.versions import Constraint, parse_release
from cfglint_train.frameworks.registry import find_vocabulary, list_frameworks


class PackageRequirements(Frozen):
    """Requirements of one release of a framework, by package."""

    required: Mapping[str, Constraint]
    """Packages that the release installs."""
    extras: Mapping[str, Constraint]
    """Packages that the extras of the release install."""
    newest: Mapping[str, str] = {}
    """Newest release in each package's range, on the day of the framework's release unless that is the newest one."""

    def can_install(self, package: str, release: str) -> bool:
        """Return whether the requirements allow a release of a package; true if they do not name the package."""
        constraint = self.required.get(package) or self.extras.get(package)
        return constraint is None or constraint.is_satisfied_by(release)

    @property
    def installed(self) -> dict[str, str]:
        """Releases that are installed with the framework: the pinned release, or the newest in a package's range.

        The newest release is the upper bound of the range for a package with a vocabulary, or else the release in
        `newest`. Other packages with a range (vLLM) are left out: they are usually installed beforehand, at any release
        in the range.
        """
        releases = dict(self.newest)
        for package, constraint in {**self.extras, **self.required}.items():
            release = constraint.exact_release or (
                constraint.last_release if find_vocabulary(package) is not None else None
            )
            if release is not None:
                releases[package] = release
        return releases


@cache
def load_requirements(framework: str, release: str) -> PackageRequirements:
    """Return the requirements of a release; empty if the framework's folder does not state them."""
    table = _load_table(framework)
    needed, extras = _find_row(table, "rows", release) or ({}, {})
    (newest,) = _find_row(table, "newest", release) or ({},)
    required, optional = _parse_constraints(needed), _parse_constraints(extras)
    if newest and _is_newest_release(framework, release):  # a fresh installation gets the newest of today
        newest = {
            package: (find_newest_release(package, required[package]) if package in required else None) or day_release
            for package, day_release in newest.items()
        }
    return PackageRequirements(required, optional, newest)


def _is_newest_release(framework: str, release: str) -> bool:
    """Return whether no known final release of a framework is newer."""
    vocabulary = list_frameworks()[framework].vocabulary
    return vocabulary is not None and parse_release(release) >= parse_release(load(vocabulary).newest)


def find_newest_release(package: str, allowed: Constraint) -> str | None:
    """Return the newest known release of a package that a range allows, or None if none is known."""
    name = find_vocabulary(package)
    return None if name is None else allowed.find_newest(load(name).packages.get(package, load(name).releases))


@cache
def load_earlier_requirements(framework: str) -> Mapping[str, Constraint]:
    """Return bounds, by package, that no release before the oldest known one exceeds; empty if none are stated."""
    return _parse_constraints(_load_table(framework).get("earlier", {}))


def _find_row(table: Mapping[str, Any], name: str, release: str) -> Sequence[Mapping[str, str]] | None:
    """Return the contents of a release's row, or None if the first row is for a later release."""
    key = parse_release(release)
    return next((stated for first, *stated in reversed(table.get(name, ())) if parse_release(first) <= key), None)


@cache
def _load_table(framework: str) -> Mapping[str, Any]:
    """Return the tables of a framework; a row is a release with its requirements, valid until the next row.

    `rows` states the requirements of a release and its extras; `newest` states the newest release in each range;
    `earlier` states bounds of the releases before the first row.
    """
    manifest = list_frameworks()[framework]
    path = os.path.join(
        list_frameworks().get(manifest.package, manifest).folder, "requires.json"
    )  # the package need not be a framework
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        table: Mapping[str, Any] = loads(file.read())
    return table


def _parse_constraints(requirements: Mapping[str, str]) -> Mapping[str, Constraint]:
    return {package: Constraint.parse(text) for package, text in requirements.items()}
