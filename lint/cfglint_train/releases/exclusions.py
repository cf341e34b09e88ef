"""Requirements of one repository that cannot be installed together, according to the framework's own requirements."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.lines import LinesDocument
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import Constraint, around
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.requires import requires
from cfglint_train.plan.origin import Place
from cfglint_train.plan.releases import Exclusion
from cfglint_train.releases.statements import ReleaseStatements

if TYPE_CHECKING:
    from cfglint_train.releases.pins.readers import Pin
    from cfglint_train.releases.pins.search import ResolvedPin


def exclusions(framework: Framework, stated: ReleaseStatements) -> Iterator[Exclusion]:
    """The packages whose pins no release that the framework's own pin allows can be installed with."""
    package = framework.listed.package
    own = _pinned(stated, package)
    if own is None or framework.keys is None:
        return
    exact = own.constraint.exact
    known = framework.keys.vocabulary.releases if exact is None else around(exact)
    releases = [release for release in known if exact is not None or own.constraint.allows(release)]
    for other in stated.pins:
        pinned = _pinned(stated, other)
        if other == package or pinned is None or _resolved(own, pinned):
            continue
        asked = [requires(framework.name, release).needed.get(other) for release in releases]
        if asked and all(one is not None and _excludes(one, pinned.constraint) for one in asked):
            yield Exclusion(
                other,
                str(pinned.constraint),
                _place(pinned.pins[0], stated),
                exact or releases[-1],
                str(asked[-1]),
                _place(own.pins[0], stated),
            )


def _pinned(stated: ReleaseStatements, package: str) -> ResolvedPin | None:
    """What the requirement files say of a package, where that counts. What a fork requires is not known."""
    from cfglint_train.releases.pins.readers import COPIED

    settled = stated.pins.get(package)
    if settled is None or settled.fork is not None or not settled.constraint.comparisons:
        return None
    if settled.pins[0].weight == COPIED:
        return None
    return settled if settled.agreed and not settled.optional and package not in stated.facts else None


def _resolved(one: ResolvedPin, other: ResolvedPin) -> bool:
    """Whether both are what a lock file settled on, overrides included."""
    from cfglint_train.releases.pins.readers import LOCKED

    return one.pins[0].weight == other.pins[0].weight == LOCKED


def _excludes(one: Constraint, other: Constraint) -> bool:
    return Constraint((*one.comparisons, *other.comparisons)).impossible


def _place(pin: Pin, stated: ReleaseStatements) -> Place:
    """The line of a requirement file."""
    document = LinesDocument(stated.named(pin.path), regular_files.read(pin.path))
    return Place(document, document.line(pin.line))
