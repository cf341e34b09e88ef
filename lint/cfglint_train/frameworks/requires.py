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
    """Packages that are installed with it."""
    extras: Mapping[str, Constraint]
    """Packages that its extras install."""
    newest: Mapping[str, str] = {}
    """The newest release of a package that its range allows, or allowed on the day of the framework's release."""

    def can_install(self, package: str, release: str) -> bool:
        """Return whether a release of a package can be installed with it, as far as its requirements state."""
        constraint = self.required.get(package) or self.extras.get(package)
        return constraint is None or constraint.is_satisfied_by(release)

    @property
    def installed(self) -> dict[str, str]:
        """Release of each package that is pinned, or the newest of its range.

        For a package with a vocabulary that is the upper bound, or the release that the table states. Other packages
        (vLLM) are usually installed before, at any release of the range.
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


def _find_row(table: Mapping[str, Any], name: str, release: str) -> Sequence[Mapping[str, str]] | None:
    """Return the contents of a release's row, or None if the rows begin later."""
    key = parse_release(release)
    return next((stated for first, *stated in reversed(table.get(name, ())) if parse_release(first) <= key), None)


@cache
def _load_table(framework: str) -> Mapping[str, Any]:
    """Return the rows of a framework, oldest first: a release with its requirements, valid until the next row.

    `rows` state the requirements of a release and of its extras, `newest` the newest releases of ranges.
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
