"""Which releases of other packages a release of a framework asks for: `requires.json` in the framework's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from json import loads

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.foundation.versions import Constraint, release_key
from cfglint_train.frameworks.registry import listed, vocabulary_of


class Requires(Frozen):
    """What one release of a framework asks for, by package."""

    needed: Mapping[str, Constraint]
    """What is installed with it."""
    extras: Mapping[str, Constraint]
    """What its extras install."""
    newest: Mapping[str, str] = {}
    """The newest release of a package that its range allows, or allowed on the day it came out."""

    def allows(self, package: str, release: str) -> bool:
        """Whether a release of a package can be installed beside it, as far as it says."""
        constraint = self.needed.get(package) or self.extras.get(package)
        return constraint is None or constraint.allows(release)

    @property
    def installed(self) -> dict[str, str]:
        """Return the release of each package that is pinned, or the newest of its range.

        That is the upper bound of a package with a vocabulary, or what the table states. Others (vLLM) are usually
        there before, at any release of a range.
        """
        found = dict(self.newest)
        for package, one in {**self.extras, **self.needed}.items():
            release = one.exact or (one.last if vocabulary_of(package) is not None else None)
            if release is not None:
                found[package] = release
        return found


@cache
def requires(framework: str, release: str) -> Requires:
    """What a release asks for; nothing where the framework's folder does not state it."""
    table = _table(framework)
    needed, extras = _row(table, "rows", release) or ({}, {})
    (newest,) = _row(table, "newest", release) or ({},)
    return Requires(_constraints(needed), _constraints(extras), newest)


def _row(table: Mapping[str, Any], name: str, release: str) -> Sequence[Mapping[str, str]] | None:
    """Return what the row of a release states, or None if the rows begin later."""
    key = release_key(release)
    return next((stated for first, *stated in reversed(table.get(name, ())) if release_key(first) <= key), None)


@cache
def _table(framework: str) -> Mapping[str, Any]:
    """Return the rows of a framework, the oldest first: a release with what it states, which holds until the next.

    `rows` state what a release requires and what its extras do, `newest` the newest releases of ranges.
    """
    of = listed()[framework]
    path = os.path.join(listed().get(of.package, of).folder, "requires.json")  # a package may be no framework
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        table: Mapping[str, Any] = loads(file.read())
    return table


def _constraints(stated: Mapping[str, str]) -> Mapping[str, Constraint]:
    return {package: Constraint.of(text) for package, text in stated.items()}
