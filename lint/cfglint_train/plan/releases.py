"""The releases that a run is checked against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.versions import Constraint, parse_release
from cfglint_train.plan.origin import Origin, Place


class Release(Frozen):
    """One package at one release."""

    version: str
    origin: Origin


class AllowedReleases(Frozen):
    """The allowed releases of one package, where none is named."""

    constraint: Constraint
    origin: Origin


class BestRelease(Frozen):
    """The release that takes most of the keys, where none takes them all."""

    release: str
    accepted_keys: int
    used_keys: int


class PossibleReleases(Frozen):
    """The releases of one package that a configuration may run on."""

    package: str
    releases: tuple[str, ...]
    """The candidates, oldest first: final known releases, or the one that is stated."""
    chosen: str
    """The one whose defaults count: the newest candidate that takes the keys."""
    is_stated: bool
    reasons: tuple[str, ...] = ()
    """What narrowed it, each with its place."""
    is_too_old: bool = False
    """It is stated, or a comment or a setting of the file says, that it is older than the oldest release that cfglint
    knows."""
    is_outdated: bool = False
    """Whatever runs the file is: every known release refuses it for what such a release took."""
    can_be_older: bool = False
    """It may also be older than the oldest known release."""
    best: BestRelease | None = None
    """No candidate takes all keys together: the one that takes most."""


class Exclusion(Frozen):
    """A pinned package that the pinned release of a framework excludes."""

    package: str
    pin: str
    """What is pinned, as comparisons."""
    place: Place
    release: str
    """The framework's release; the newest, where several are allowed."""
    requirement: str
    """What that release requires."""
    framework_place: Place
    """Where the framework is pinned."""


class Releases:
    """The releases that a run is checked against, by package name in lower case; what is not here is unknown."""

    __slots__ = (
        "_candidates",
        "allowed_releases",
        "by_package",
        "candidate_finders",
        "exclusions",
        "fresh_releases",
        "outdated_packages",
    )

    def __init__(
        self,
        by_package: Mapping[str, Release] | None = None,
        allowed_releases: Mapping[str, AllowedReleases] | None = None,
        candidate_finders: Mapping[str, Callable[[], PossibleReleases]] | None = None,
        outdated_packages: frozenset[str] = frozenset(),
        fresh_releases: Mapping[str, str] | None = None,
    ) -> None:
        self.by_package: dict[str, Release] = dict(by_package or {})
        self.allowed_releases: dict[str, AllowedReleases] = dict(allowed_releases or {})
        """What the repository's requirements allow, where that is more than one release."""
        self.candidate_finders: dict[str, Callable[[], PossibleReleases]] = dict(candidate_finders or {})
        """How to find the candidates of a package; few configurations have a finding that asks for them."""
        self.outdated_packages = outdated_packages
        """Packages that are stated to be older than the oldest known release."""
        self.fresh_releases: dict[str, str] = dict(fresh_releases or {})
        """The release that a fresh installation gets, of each package where that one refuses keys in use."""
        self.exclusions: tuple[Exclusion, ...] = ()
        """Pins that cannot be installed together."""
        self._candidates: dict[str, PossibleReleases] = {}

    def find_candidates(self, package: str) -> PossibleReleases:
        """The candidate releases of a package. Raises KeyError where its release is unknown."""
        if package not in self._candidates:
            make = self.candidate_finders.get(package)
            self._candidates[package] = self._build_single_candidate(package) if make is None else make()
        return self._candidates[package]

    def _build_single_candidate(self, package: str) -> PossibleReleases:
        release = self.by_package[package]
        return PossibleReleases(
            package,
            (release.version,),
            release.version,
            self.is_stated(package),
            (release.origin.note,),
            is_too_old=package in self.outdated_packages,
        )

    def get(self, package: str) -> str | None:
        """The release of a package, or None."""
        release = self.by_package.get(package)
        return None if release is None else release.version

    def is_at_least(self, package: str, version: str) -> bool | None:
        """Whether the package is at `version` or later; None where its release is unknown."""
        certain = self.is_certainly_at_least(package, version)
        version_known = self.get(package)
        return (
            certain
            if certain is not None or version_known is None
            else parse_release(version_known) >= parse_release(version)
        )

    def is_certainly_at_least(self, package: str, version: str) -> bool | None:
        """Whether the package is at `version` or later, as stated and not by assumption; else None."""
        if self.is_stated(package):
            return parse_release(self.by_package[package].version) >= parse_release(version)
        allowed = self.allowed_releases.get(package)
        is_known = allowed is not None and allowed.origin.kind != "assumed"
        return allowed.constraint.is_at_least(version) if allowed is not None and is_known else None

    def is_stated(self, package: str) -> bool:
        """Whether it was named (by a flag, a setting, a pragma, a pin) rather than cfglint taking the newest."""
        release = self.by_package.get(package)
        return release is not None and release.origin.kind in ("user", "explicit")

    def is_assumed(self, package: str) -> bool:
        """Whether the release is unknown, so that cfglint takes the newest, or has none."""
        release = self.by_package.get(package)
        return release is None or release.origin.kind == "assumed"

    def replace_release(self, package: str, version: str) -> Releases:
        """These releases, with another of one package, and of the framework that it holds."""
        previous, replacement = (
            self.by_package[package],
            Release(version, Origin("user", note="another admissible release")),
        )
        return Releases(
            {name: replacement if release is previous else release for name, release in self.by_package.items()},
            self.allowed_releases,
        )

    def add_defaults(self, defaults: Mapping[str, Release]) -> Releases:
        """These releases, completed from others."""
        return Releases(
            {**defaults, **self.by_package},
            self.allowed_releases,
            self.candidate_finders,
            self.outdated_packages,
            self.fresh_releases,
        )
