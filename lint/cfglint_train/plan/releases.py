"""The releases that a run is checked against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.versions import Constraint, release_key
from cfglint_train.plan.origin import Origin, Place


class Release(Frozen):
    """One package at one release."""

    version: str
    origin: Origin


class Allowed(Frozen):
    """The allowed releases of one package, where none is named."""

    constraint: Constraint
    origin: Origin


class Best(Frozen):
    """The release that takes most of the keys, where none takes them all."""

    release: str
    taken: int
    given: int


class Window(Frozen):
    """The releases of one package that a configuration may run on."""

    package: str
    releases: tuple[str, ...]
    """The candidates, oldest first: final known releases, or the one that is stated."""
    chosen: str
    """The one whose defaults count: the newest candidate that takes the keys."""
    stated: bool
    why: tuple[str, ...] = ()
    """What narrowed it, each with its place."""
    before: bool = False
    """It is stated, or a comment or a setting of the file says, that it is older than the oldest release that cfglint
    knows."""
    outdated: bool = False
    """Whatever runs the file is: every known release refuses it for what such a release took."""
    earlier: bool = False
    """It may also be older than the oldest known release."""
    best: Best | None = None
    """No candidate takes all keys together: the one that takes most."""


class Exclusion(Frozen):
    """A pinned package that the pinned release of a framework excludes."""

    package: str
    stated: str
    """What is pinned, as comparisons."""
    place: Place
    release: str
    """The framework's release; the newest, where several are allowed."""
    wanted: str
    """What that release requires."""
    other: Place
    """Where the framework is pinned."""


class Releases:
    """The releases that a run is checked against, by package name in lower case; what is not here is unknown."""

    __slots__ = ("_windows", "exclusions", "fresh", "known", "older", "ranges", "windows")

    def __init__(
        self,
        known: Mapping[str, Release] | None = None,
        ranges: Mapping[str, Allowed] | None = None,
        windows: Mapping[str, Callable[[], Window]] | None = None,
        older: frozenset[str] = frozenset(),
        fresh: Mapping[str, str] | None = None,
    ) -> None:
        self.known: dict[str, Release] = dict(known or {})
        self.ranges: dict[str, Allowed] = dict(ranges or {})
        """What the repository's requirements allow, where that is more than one release."""
        self.windows: dict[str, Callable[[], Window]] = dict(windows or {})
        """How to find the candidates of a package; few configurations have a finding that asks for them."""
        self.older = older
        """Packages that are stated to be older than the oldest known release."""
        self.fresh: dict[str, str] = dict(fresh or {})
        """The release that a fresh installation gets, of each package where that one refuses keys in use."""
        self.exclusions: tuple[Exclusion, ...] = ()
        """Pins that cannot be installed together."""
        self._windows: dict[str, Window] = {}

    def window(self, package: str) -> Window:
        """The candidate releases of a package. Raises KeyError where its release is unknown."""
        if package not in self._windows:
            make = self.windows.get(package)
            self._windows[package] = self._alone(package) if make is None else make()
        return self._windows[package]

    def _alone(self, package: str) -> Window:
        release = self.known[package]
        return Window(
            package,
            (release.version,),
            release.version,
            self.stated(package),
            (release.origin.note,),
            before=package in self.older,
        )

    def get(self, package: str) -> str | None:
        """The release of a package, or None."""
        release = self.known.get(package)
        return None if release is None else release.version

    def at_least(self, package: str, version: str) -> bool | None:
        """Whether the package is at `version` or later; None where its release is unknown."""
        certain = self.certain(package, version)
        known = self.get(package)
        return certain if certain is not None or known is None else release_key(known) >= release_key(version)

    def certain(self, package: str, version: str) -> bool | None:
        """Whether the package is at `version` or later, as stated and not by assumption; else None."""
        if self.stated(package):
            return release_key(self.known[package].version) >= release_key(version)
        allowed = self.ranges.get(package)
        known = allowed is not None and allowed.origin.kind != "assumed"
        return allowed.constraint.at_least(version) if allowed is not None and known else None

    def stated(self, package: str) -> bool:
        """Whether it was named (by a flag, a setting, a pragma, a pin) rather than cfglint taking the newest."""
        release = self.known.get(package)
        return release is not None and release.origin.kind in ("user", "explicit")

    def assumed(self, package: str) -> bool:
        """Whether the release is unknown, so that cfglint takes the newest, or has none."""
        release = self.known.get(package)
        return release is None or release.origin.kind == "assumed"

    def at(self, package: str, version: str) -> Releases:
        """These releases, with another of one package, and of the framework that it holds."""
        was, stated = self.known[package], Release(version, Origin("user", note="another admissible release"))
        return Releases({name: stated if known is was else known for name, known in self.known.items()}, self.ranges)

    def with_defaults(self, defaults: Mapping[str, Release]) -> Releases:
        """These releases, completed from others."""
        return Releases({**defaults, **self.known}, self.ranges, self.windows, self.older, self.fresh)
