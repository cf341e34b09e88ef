"""How sure a fact is, and what an assumption stands for."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.plan.origin import Origin, Place

Certainty = Literal["stated", "followed", "assumed", "unknown"]
CERTAINTIES: Final[tuple[Certainty, ...]] = ("stated", "followed", "assumed", "unknown")
"""Grades of facts, the best first (design.md, section 7)."""


class Ground(Frozen):
    """A fact that a finding rests on."""

    fact: str
    """A plan field (`batch.micro`), a fact about the hardware (`gpu`) or a package."""
    value: Any
    grade: Certainty
    note: str = ""
    """Where it comes from, or how to state it."""
    source: str = ""
    """Of evidence about the repository: how it concerns the configuration, with file and line."""


LOWERED: Final = "lowered"
"""The fact of a ground by which a finding is one level milder: evidence that a key may have been added."""


def assume_no_extra_options(place: str) -> Ground:
    """That what may give a launch further options gives none that matter."""
    return Ground("launch:options", place, "assumed", f"{place} adds no option that changes this")


def assume_fresh_install(package: str, release: str) -> Ground:
    """Return the ground that a package is at the release which a fresh installation gets."""
    note = f"{package} {release}, which a fresh installation gets (set `{package}=RELEASE` to be sure)"
    return Ground(f"release:{package}", release, "assumed", note)


class Assumption(Frozen):
    """A fact that no file states, and the other values that it may well have."""

    fact: str
    """A plan field, `gpu`, `model`, `fork` or a companion's framework."""
    value: Any
    note: str
    """What is assumed and how to state it, after the word "assumes"."""
    others: tuple[Any, ...] = ()
    """Other admissible values, the two ends; empty where it has too many to try: then every verdict rests on it."""
    source: str = ""
    """As of a ground."""

    @property
    def ground(self) -> Ground:
        """The fact as a finding carries it."""
        return Ground(self.fact, self.value, "assumed", self.note, self.source)


class Scenario(Frozen):
    """A finding asked again where assumed facts have other values."""

    facts: tuple[tuple[str, Any], ...]
    holds: bool
    """Whether it is found there, too."""


def find_worst_grade(grades: tuple[Certainty, ...]) -> Certainty:
    """The lowest of some grades; "stated" where there are none."""
    return max(grades, key=CERTAINTIES.index, default="stated")


def grade_origin(origin: Origin | None) -> Certainty:
    """The grade of a fact by its origin. A framework's default follows from its release."""
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
    """Where a fact stands, for a reader: file and line, or what says it."""
    if place is None:
        return note
    return f"{place.document.path}:{place.document.locate(place.span.start).line}"
