"""Which releases of other packages a release of a framework asks for: `requires.json` in the framework's folder."""

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
    """What one release of a framework asks for, by package."""

    required: Mapping[str, Constraint]
    """What is installed with it."""
    extras: Mapping[str, Constraint]
    """What its extras install."""
    newest: Mapping[str, str] = {}
    """The newest release of a package that its range allows, or allowed on the day it came out."""

    def can_install(self, package: str, release: str) -> bool:
        """Whether a release of a package can be installed beside it, as far as it says."""
        constraint = self.required.get(package) or self.extras.get(package)
        return constraint is None or constraint.is_satisfied_by(release)

    @property
    def installed(self) -> dict[str, str]:
        """Return the release of each package that is pinned, or the newest of its range.

        That is the upper bound of a package with a vocabulary, or what the table states. Others (vLLM) are usually
        there before, at any release of a range.
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
    """What a release asks for; nothing where the framework's folder does not state it."""
    table = _load_table(framework)
    needed, extras = _find_row(table, "rows", release) or ({}, {})
    (newest,) = _find_row(table, "newest", release) or ({},)
    return PackageRequirements(_parse_constraints(needed), _parse_constraints(extras), newest)


def _find_row(table: Mapping[str, Any], name: str, release: str) -> Sequence[Mapping[str, str]] | None:
    """Return what the row of a release states, or None if the rows begin later."""
    key = parse_release(release)
    return next((stated for first, *stated in reversed(table.get(name, ())) if parse_release(first) <= key), None)


@cache
def _load_table(framework: str) -> Mapping[str, Any]:
    """Return the rows of a framework, the oldest first: a release with what it states, which holds until the next.

    `rows` state what a release requires and what its extras do, `newest` the newest releases of ranges.
    """
    manifest = list_frameworks()[framework]
    path = os.path.join(
        list_frameworks().get(manifest.package, manifest).folder, "requires.json"
    )  # a package may be no framework
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        table: Mapping[str, Any] = loads(file.read())
    return table


def _parse_constraints(requirements: Mapping[str, str]) -> Mapping[str, Constraint]:
    return {package: Constraint.parse(text) for package, text in requirements.items()}
