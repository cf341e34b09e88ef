"""Requirements of a framework's releases: `requires.json` in the framework's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from json import loads

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
    """Newest release in each package's range; some rows state it as of the framework's release date."""

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
    return PackageRequirements(_parse_constraints(needed), _parse_constraints(extras), newest)


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
