"""The statements about releases around a document: by the user, and by the requirement files of its repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import Constraint
from cfglint_train.plan.origin import Origin, Value
from cfglint_train.plan.releases import Allowed, Release

if TYPE_CHECKING:
    from cfglint_train.releases.pins.readers import Pin
    from cfglint_train.releases.pins.search import ResolvedPin


class ReleaseStatements:
    """The statements about each package."""

    __slots__ = ("facts", "named", "pins")

    def __init__(
        self, facts: Mapping[str, Value], pins: Mapping[str, ResolvedPin], named: Callable[[str], str]
    ) -> None:
        self.facts = facts
        """Package -> release, from flags, pragmas and settings."""
        self.pins = pins
        self.named = named
        """The path of a file as reports show it."""

    def release(self, package: str) -> Release | None:
        """The stated release."""
        if package in self.facts:
            fact = self.facts[package]
            return Release(str(fact.value), fact.origin)
        settled = self.pins.get(package)
        if settled is None or not settled.agreed or settled.constraint.exact is None:
            return None
        place = self._place(settled.pins[0])
        if settled.optional:
            return Release(settled.constraint.exact, Origin("inferred", note=f"an extra in {place}"))
        return Release(settled.constraint.exact, Origin("user", note=place))

    def allowed(self, package: str) -> Allowed | None:
        """The releases that the requirement files allow, where they name none."""
        settled = self.pins.get(package)
        if settled is None or package in self.facts or not settled.agreed:
            return None
        if not settled.constraint.comparisons or settled.constraint.exact is not None:
            return None
        places = ", ".join(self._place(pin) for pin in settled.pins)
        note = f"{places} ({settled.constraint})"
        return Allowed(settled.constraint, Origin("assumed" if settled.optional else "inferred", note=note))

    def disagreement(self, package: str) -> str:
        """Where requirement files name releases that exclude each other; empty where they do not."""
        settled = self.pins.get(package)
        if settled is None or package in self.facts or settled.agreed:
            return ""
        return " and ".join(dict.fromkeys(self._place(pin) for pin in settled.pins))

    def is_former(self, package: str) -> bool:
        """Whether a read-me file leads to a repository that the package has left, and nothing names a release."""
        settled = self.pins.get(package)
        return settled is not None and settled.former is not None and not settled.is_told

    def installed(self) -> Iterator[tuple[str, Constraint, str]]:
        """The packages that are stated to be installed, each with the releases that are allowed and the place."""
        for package, fact in self.facts.items():
            version = str(fact.value)
            yield package, Constraint((("==", version),)), f"{package}={version}"
        for package, settled in self.pins.items():
            if package not in self.facts and settled.agreed and not settled.optional:
                places = ", ".join(self._place(pin) for pin in settled.pins)
                yield package, settled.constraint, f"{places} ({package}{settled.constraint})"

    def _place(self, pin: Pin) -> str:
        return f"{self.named(pin.path)}:{pin.line}" if pin.line else self.named(pin.path)
