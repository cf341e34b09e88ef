"""Certainty grades of facts, and assumptions with their alternatives."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.plan.origin import Origin, Place

Certainty = Literal["stated", "followed", "assumed", "unknown"]
CERTAINTIES: Final[tuple[Certainty, ...]] = ("stated", "followed", "assumed", "unknown")
"""Grades of facts, best first (design.md, section 7)."""


class Ground(Frozen):
    """A fact that a finding rests on."""

    fact: str
    """A plan field (`batch.micro`), a fact about the hardware (`gpu`) or a package."""
    value: Any
    grade: Certainty
    note: str = ""
    """Source of the fact, or the way to state it."""
    source: str = ""
    """For evidence about the repository: its relation to the configuration, with file and line."""


RELEASE: Final = "release:"
"""Prefix of a fact about a package's release; such facts are not plan fields."""

LOWERED: Final = "lowered"
"""Fact of the grounds that lower a finding's severity by one level: evidence that a key may have been added."""


def assume_no_extra_options(place: str) -> Ground:
    """Return the assumption that `place`, which may add options to the launch, adds none that affects the finding."""
    return Ground("launch:options", place, "assumed", f"{place} adds no option that changes this")


def assume_fresh_install(package: str, release: str) -> Ground:
    """Return the assumption that a package has the release that a fresh installation gets."""
    note = f"{package} {release}, which a fresh installation gets (set `{package}=RELEASE` to be sure)"
    return Ground(f"{RELEASE}{package}", release, "assumed", note)


class Assumption(Frozen):
    """An assumed value of a fact that no file states, with other values that the fact may have."""

    fact: str
    """A plan field, `gpu`, `model`, `fork`, or a companion's framework."""
    value: Any
    note: str
    """Text to print after "assumes": the assumption, and how to state the fact."""
    others: tuple[Any, ...] = ()
    """Extremes of the other possible values; empty if there are too many to try, in which case every verdict counts as
    depending on the assumption.
    """
    source: str = ""
    """For evidence about the repository: its relation to the configuration, with file and line."""

    @property
    def ground(self) -> Ground:
        """The ground for a finding that depends on this assumption."""
        return Ground(self.fact, self.value, "assumed", self.note, self.source)


class Scenario(Frozen):
    """A recheck of a finding with other values for assumed facts."""

    facts: tuple[tuple[str, Any], ...]
    holds: bool
    """True if the finding still holds with these values."""


def find_worst_grade(grades: tuple[Certainty, ...]) -> Certainty:
    """Return the lowest grade, or "stated" if there are none."""
    return max(grades, key=CERTAINTIES.index, default="stated")


def grade_origin(origin: Origin | None) -> Certainty:
    """Return the grade of a fact with this origin.

    A framework's default counts as followed, because it follows from the release.
    """
    if origin is None:
        return "unknown"
    return _GRADES[origin.kind]


_GRADES: Final[dict[str, Certainty]] = {
    "explicit": "stated",
    "user": "stated",
    "default": "followed",
    "inferred": "followed",
    "assumed": "assumed",
}


def describe_place(place: Place | None, note: str) -> str:
    """Return the file and line of a place, or `note` if there is no place."""
    if place is None:
        return note
    return f"{place.document.path}:{place.document.locate(place.span.start).line}"
