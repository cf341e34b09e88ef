"""The package releases that a run is checked against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.versions import Constraint, parse_release
from cfglint_train.plan.origin import Origin, Place


class Release(Frozen):
    """A package at one release."""

    version: str
    origin: Origin


class AllowedReleases(Frozen):
    """The allowed releases of a package, if no single release is named."""

    constraint: Constraint
    origin: Origin


class BestRelease(Frozen):
    """The release that accepts the most keys, if none accepts them all."""

    release: str
    accepted_keys: int
    used_keys: int


class PossibleReleases(Frozen):
    """The releases of a package that a configuration may run on."""

    package: str
    releases: tuple[str, ...]
    """The candidates, oldest first: final known releases, or the stated release."""
    chosen: str
    """The release whose defaults apply: the newest candidate that accepts the keys."""
    is_stated: bool
    reasons: tuple[str, ...] = ()
    """Reasons for narrowing the candidates, each with its place."""
    is_too_old: bool = False
    """True if the stated release (also in a comment or a setting of the file) is older than the oldest known one."""
    is_outdated: bool = False
    """True if every known release rejects the file because it uses a key that only older releases accepted."""
    can_be_older: bool = False
    """True if the release in use may also be older than the oldest known release."""
    best: BestRelease | None = None
    """The release that accepts the most keys, if no candidate accepts them all."""
    is_assumed: bool = False
    """True if the only candidate is pinned below another folder, which states nothing about this config."""
    is_revision: bool = False
    """True if requirement files install a revision of upstream that is no release: any candidate may be next to it."""


class Exclusion(Frozen):
    """A pinned package that the pinned release of a framework excludes."""

    package: str
    pin: str
    """The pin's version specifiers."""
    place: Place
    release: str
    """The framework's release; the newest if several are allowed."""
    requirement: str
    """The specifiers that this release requires of the package."""
    framework_place: Place
    """The place of the framework's pin."""


class Releases:
    """The releases that a run is checked against, by package name in lower case; other packages are unknown."""

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
        """Copy the mappings."""
        self.by_package: dict[str, Release] = dict(by_package or {})
        self.allowed_releases: dict[str, AllowedReleases] = dict(allowed_releases or {})
        """Package -> the releases that the repository's requirements allow, if there are several."""
        self.candidate_finders: dict[str, Callable[[], PossibleReleases]] = dict(candidate_finders or {})
        """Package -> a function that finds its candidates; few findings need them."""
        self.outdated_packages = outdated_packages
        """Packages whose stated release is older than the oldest known one."""
        self.fresh_releases: dict[str, str] = dict(fresh_releases or {})
        """Package -> the release that a fresh installation of all packages gets, if it rejects keys in use."""
        self.exclusions: tuple[Exclusion, ...] = ()
        """Pins that cannot be installed together."""
        self._candidates: dict[str, PossibleReleases] = {}

    def find_candidates(self, package: str) -> PossibleReleases:
        """Return the candidate releases of a package. Raise `KeyError` if its release is unknown."""
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
            is_assumed=release.origin.kind == "assumed",
        )

    def get(self, package: str) -> str | None:
        """Return the release of a package, or None."""
        release = self.by_package.get(package)
        return None if release is None else release.version

    def is_at_least(self, package: str, version: str) -> bool | None:
        """Return whether the package is at `version` or later, or None if its release is unknown."""
        certain = self.is_certainly_at_least(package, version)
        version_known = self.get(package)
        return (
            certain
            if certain is not None or version_known is None
            else parse_release(version_known) >= parse_release(version)
        )

    def is_certainly_at_least(self, package: str, version: str) -> bool | None:
        """Return whether the package is at `version` or later, or None if no stated release or pin decides it."""
        if self.is_stated(package):
            return parse_release(self.by_package[package].version) >= parse_release(version)
        allowed = self.allowed_releases.get(package)
        is_known = allowed is not None and allowed.origin.kind != "assumed"
        return allowed.constraint.is_at_least(version) if allowed is not None and is_known else None

    def is_stated(self, package: str) -> bool:
        """Return whether a flag, setting, pragma or pin names the release; otherwise it is only inferred or assumed."""
        release = self.by_package.get(package)
        return release is not None and release.origin.kind in ("user", "explicit")

    def is_assumed(self, package: str) -> bool:
        """Return whether the release is unknown, so that cfglint uses the newest release or none."""
        release = self.by_package.get(package)
        return release is None or release.origin.kind == "assumed"

    def replace_release(self, package: str, version: str) -> Releases:
        """Return these releases with a different release of one package.

        The entry of the framework that the package contains shares the release record and changes too. Candidates and
        exclusions are dropped.
        """
        previous, replacement = (
            self.by_package[package],
            Release(version, Origin("user", note="another possible release")),
        )
        return Releases(
            {name: replacement if release is previous else release for name, release in self.by_package.items()},
            self.allowed_releases,
        )

    def add_defaults(self, defaults: Mapping[str, Release]) -> Releases:
        """Return these releases, with `defaults` for packages that have none."""
        return Releases(
            {**defaults, **self.by_package},
            self.allowed_releases,
            self.candidate_finders,
            self.outdated_packages,
            self.fresh_releases,
        )
