"""Which releases of other packages a release of a framework asks for: `requires.json` in the framework's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from json import loads

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, release_key
from cfglint_train.frameworks.registry import listed, vocabulary_of


class Requires(Frozen):
    """What one release of a framework asks for, by package."""

    needed: Mapping[str, Constraint]
    """What is installed with it."""
    extras: Mapping[str, Constraint]
    """What its extras install."""

    def allows(self, package: str, release: str) -> bool:
        """Whether a release of a package can be installed beside it, as far as it says."""
        constraint = self.needed.get(package) or self.extras.get(package)
        return constraint is None or constraint.allows(release)

    @property
    def installed(self) -> dict[str, str]:
        """Return the release of each package that is pinned; of one with a vocabulary, also the newest that is allowed.

        Others (torch, vLLM) are usually there before, at any release of a range.
        """
        found: dict[str, str] = {}
        for package, one in {**self.extras, **self.needed}.items():
            release = one.exact or (one.last if vocabulary_of(package) is not None else None)
            if release is not None:
                found[package] = release
        return found


NOTHING: Final = Requires({}, {})


@cache
def requires(framework: str, release: str) -> Requires:
    """What a release asks for; nothing where the framework's folder does not state it."""
    key = release_key(release)
    row = next((row for row in reversed(_rows(framework)) if release_key(row[0]) <= key), None)
    return NOTHING if row is None else Requires(_constraints(row[1]), _constraints(row[2]))


@cache
def _rows(framework: str) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """A release, what it requires and what its extras do, which holds until the next; the oldest first."""
    of = listed()[framework]
    path = os.path.join(listed().get(of.package, of).folder, "requires.json")  # a package may be no framework
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        rows: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = loads(file.read())["rows"]
    return rows


def _constraints(stated: Mapping[str, str]) -> Mapping[str, Constraint]:
    return {package: Constraint.of(text) for package, text in stated.items()}
