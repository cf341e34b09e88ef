"""Release statements about a document, made by the user or by the repository's requirement files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import Constraint
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.plan.releases import AllowedReleases, Release

if TYPE_CHECKING:
    from cfglint_train.frameworks.evidence import LaunchedKey
    from cfglint_train.releases.pins.readers import Pin
    from cfglint_train.releases.pins.search import ResolvedPin

_DEFAULT_BRANCHES: Final = ("", "main", "master", "HEAD")


class ReleaseStatements:
    """The user's and the repository's statements about the release of each package."""

    __slots__ = ("facts", "launched_keys", "named", "pins")

    def __init__(
        self,
        facts: Mapping[str, FieldValue],
        pins: Mapping[str, ResolvedPin],
        named: Callable[[str], str],
        launched_keys: tuple[LaunchedKey, ...] = (),
    ) -> None:
        """Combine facts that the user states with pins of requirement files and the keys that every launch sets."""
        self.facts = facts
        """Stated release by package, from flags, pragmas and settings."""
        self.pins = pins
        self.named = named
        """Function that formats the path of a file for reports."""
        self.launched_keys = launched_keys

    def get_release(self, package: str) -> Release | None:
        """Return the exact release that the user states or requirement files pin, or None."""
        if package in self.facts:
            fact = self.facts[package]
            return Release(str(fact.value), fact.origin)
        resolved = self.pins.get(package)
        if resolved is None or not resolved.is_consistent or resolved.constraint.exact_release is None:
            return None
        place = self._format_place(resolved.pins[0])
        if resolved.is_optional:
            if resolved.pins[0].is_in_subfolder:
                return Release(resolved.constraint.exact_release, Origin("assumed", note=f"pinned by {place}"))
            return Release(resolved.constraint.exact_release, Origin("inferred", note=f"an extra in {place}"))
        return Release(resolved.constraint.exact_release, Origin("user", note=place))

    def get_allowed_range(self, package: str) -> AllowedReleases | None:
        """Return the range of releases that requirement files allow, or None.

        The result is None if the user states the release, or if the files name no range, pin an exact release
        or contradict each other.
        """
        resolved = self.pins.get(package)
        if resolved is None or package in self.facts or not resolved.is_consistent:
            return None
        if not resolved.constraint.comparisons or resolved.constraint.exact_release is not None:
            return None
        places = ", ".join(self._format_place(pin) for pin in resolved.pins)
        note = f"{places} ({resolved.constraint})"
        return AllowedReleases(
            resolved.constraint, Origin("assumed" if resolved.is_optional else "inferred", note=note)
        )

    def describe_conflict(self, package: str) -> str:
        """Return the places of pins that contradict each other, or an empty string."""
        resolved = self.pins.get(package)
        if resolved is None or package in self.facts or resolved.is_consistent:
            return ""
        return " and ".join(dict.fromkeys(self._format_place(pin) for pin in resolved.pins))

    def find_revision(self, package: str) -> str:
        """Return the pin of an upstream revision that is no release, with its place, or an empty string.

        Upstream's default branch counts as the newest release, so a pin of it is not returned.
        """
        resolved = self.pins.get(package)
        if resolved is None or resolved.unreleased is None or package in self.facts:
            return ""
        revision = resolved.unreleased.unreleased.partition("@")[2]
        return f"{self._format_place(resolved.unreleased)} ({revision})" if revision not in _DEFAULT_BRANCHES else ""

    def is_former(self, package: str) -> bool:
        """Return whether a README links to a repository that the package has left, and nothing pins a release."""
        resolved = self.pins.get(package)
        return resolved is not None and resolved.former_pin is not None and not resolved.is_specified

    def list_installed(self) -> Iterator[tuple[str, Constraint, str]]:
        """Yield the packages that are known to be installed, each with its constraint and the source."""
        for package, fact in self.facts.items():
            version = str(fact.value)
            yield package, Constraint((("==", version),)), f"{package}={version}"
        for package, resolved in self.pins.items():
            if package not in self.facts and resolved.is_consistent and not resolved.is_optional:
                places = ", ".join(self._format_place(pin) for pin in resolved.pins)
                yield package, resolved.constraint, f"{places} ({package}{resolved.constraint})"

    def _format_place(self, pin: Pin) -> str:
        return f"{self.named(pin.path)}:{pin.line}" if pin.line else self.named(pin.path)
