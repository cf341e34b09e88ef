"""The releases of a package that a configuration may run on, where none is stated.

A release is a candidate where requirement files allow it, a comment of the file does not name another, the
packages that are stated beside it can be installed with it, and it takes the keys in use. What contradicts all releases
that are left narrows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial

from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import Constraint, around, is_final, release_key
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.registry import packages, vocabulary_of
from cfglint_train.frameworks.requires import Requires, requires
from cfglint_train.plan.releases import Best, Releases, Window
from cfglint_train.releases.statements import ReleaseStatements

if TYPE_CHECKING:
    from cfglint_train.frameworks.key_usage import KeyUse


class CandidateReleases(Frozen):
    """The releases that are left, oldest first, and what narrowed them."""

    releases: tuple[str, ...]
    why: tuple[str, ...] = ()
    commented: tuple[tuple[Constraint, str], ...] = ()
    """Releases that comments of the file name, each with its place."""

    def narrowed(self, test: Callable[[str], bool], why: str) -> CandidateReleases:
        """Those that pass a test; all of them where none does."""
        kept = tuple([release for release in self.releases if test(release)])
        less = kept and len(kept) < len(self.releases)
        return self._replace(releases=kept, why=(*self.why, why)) if less else self


def candidates(framework: Framework, document: Document, root: Route, stated: ReleaseStatements) -> CandidateReleases:
    """The releases of a framework that are allowed; none where what is allowed is unknown here.

    What comments and other packages say counts among the releases that take the keys in use.
    """
    package, keys = framework.listed.package, framework.keys
    known = (framework.newest,) if keys is None else keys.vocabulary.releases
    found = CandidateReleases(_finished(known, framework.newest), commented=tuple(_commented(document, package)))
    allowed = stated.allowed(package)
    if allowed is not None:
        within = tuple([release for release in found.releases if allowed.constraint.allows(release)])
        beyond = allowed.constraint.newest(known)
        found = found._replace(releases=within or (() if beyond is None else (beyond,)), why=(allowed.origin.note,))
    hints: list[tuple[Callable[[str], bool], str]] = [
        *((constraint.allows, why) for constraint, why in found.commented),
        *(
            (partial(_fits, framework.name, other, constraint), why)
            for other, constraint, why in stated.installed()
            if other != package
        ),
    ]
    if hints and keys is not None:
        left = found._replace(releases=taking(found.releases, keys.in_use(document, root)).releases)
        for test, why in hints:
            left = left.narrowed(test, why)
        if left.why != found.why:
            return left
    return found


@lru_cache(maxsize=64)
def _finished(known: tuple[str, ...], newest: str) -> tuple[str, ...]:
    """The releases up to one that are not under development."""
    return tuple([release for release in known if is_final(release) and release_key(release) <= release_key(newest)])


def _fits(framework: str, package: str, constraint: Constraint, release: str) -> bool:
    """Whether a release of a framework can be installed beside a package, as far as their bounds show."""
    asked = requires(framework, release).needed.get(package)
    return asked is None or not Constraint((*asked.comparisons, *constraint.comparisons)).impossible


def _commented(document: Document, package: str) -> Iterable[tuple[Constraint, str]]:
    """Releases that comments of the file name: `# axolotl 0.6`, `# tested with axolotl>=0.9`."""
    text = document.source.decode("utf-8", "replace")
    if not any(name in text.lower() for name in _names(package)):
        return  # before an expression is compiled for it
    pattern = _naming(package)
    if pattern.search(text) is None:
        return
    for comment in document.comments():
        for match in pattern.finditer(comment.text):
            line = document.position(comment.span.start).line
            operator, release = match[1] or "==", match[2]
            bound = f"{release}.*" if operator in ("=", "==") else release
            yield Constraint((("==" if operator == "=" else operator, bound),)), f"the comment in line {line}"


@cache
def _names(package: str) -> frozenset[str]:
    """What a package is called, in lower case."""
    of = packages().get(package)
    return frozenset() if of is None else frozenset(name.lower() for name in (*of.spellings, *of.distributions))


@cache
def _naming(package: str) -> re.Pattern[str]:
    """A package and one of its releases, in running text."""
    names = "|".join(sorted(map(re.escape, _names(package)), key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{names})[ \t]*(>=|<=|==|=|<|>)?[ \t]*v?(\d+\.\d+(?:\.\d+)*)(?![\w/])", re.I)


class Taken(Frozen):
    """What the keys in use make of some releases."""

    releases: tuple[str, ...]
    """Those that take every key that one of them takes; all of them where none does."""
    best: Best | None
    """Where none does: the newest of those that take most."""


def taking(releases: tuple[str, ...], uses: Iterable[KeyUse]) -> Taken:
    """Check the keys in use against some releases. A key that none of them takes is no evidence."""
    uses = list(uses)
    programs = [use for use in uses if use.entry is None]
    releases = tuple([one for one in releases if all(use.takes(one) for use in programs)]) or releases
    live = [row for use in uses if use.entry is not None and any(row := use.among(releases))]
    counts = [sum(column) for column in zip(*live, strict=True)]
    fitting = tuple([release for release, count in zip(releases, counts, strict=False) if count == len(live)])
    if fitting or not live:
        return Taken(fitting or releases, None)
    most = max(range(len(releases)), key=lambda place: (counts[place], place))
    return Taken(releases, Best(releases[most], counts[most], len(live)))


def _is_before(
    framework: Framework, document: Document, root: Route, found: CandidateReleases, left: tuple[str, ...]
) -> bool:
    """Whether a comment or a setting of a file is of a release before the oldest known one.

    What only upstream's examples lost counts where no setting is of a later release than the oldest.
    """
    keys = framework.keys
    if keys is None:
        return False
    first = keys.vocabulary.releases[0]
    if any(constraint.at_least(first) is False for constraint, _ in found.commented):
        return True
    return keys.is_earlier(document, root) or (left[:1] == (first,) and keys.is_dated(document, root))


def window(
    framework: Framework,
    document: Document,
    root: Route,
    stated: ReleaseStatements,
    found: CandidateReleases,
    chosen: str,
) -> Window:
    """The window of the release that is chosen among the candidates for a framework's configuration."""
    package = framework.listed.package
    uses = [] if framework.keys is None else framework.keys.in_use(document, root)
    taken = taking(found.releases, uses)
    if _excluded(framework, stated):
        return _holding(package, taken, chosen, found.why)
    before = _is_before(framework, document, root, found, taken.releases) or stated.is_former(package)
    outdated = before or (framework.keys is not None and framework.keys.is_outdated(document, root))
    earlier = before or _earliest(framework, taken.releases)
    return _holding(package, taken, chosen, found.why, before, outdated, earlier)


def beside(
    host: Framework, found: Releases, framework: Framework, document: Document, root: Route, package: str
) -> Window:
    """The window of a package beside a host framework: what one of the host's candidates allows, and the keys take.

    `framework` is the one whose keys the document holds: the host itself, or that of a companion.
    """
    chosen, own = found.known[package].version, found.window(host.listed.package)
    left = CandidateReleases(_releases(package, host.name, own.releases, chosen))
    allowed = found.ranges.get(package)
    if allowed is not None:
        left = left.narrowed(allowed.constraint.allows, allowed.origin.note)
    installable = _allowed(package, host.name, own.releases, left.releases)
    left = left.narrowed(installable.__contains__, f"{host.title} {own.releases[0]} to {own.releases[-1]}")
    keys, listed = framework.keys, framework.listed
    decides = keys is not None and package in (listed.package, listed.beside)
    other = None if package == listed.package else package
    taken = taking(left.releases, keys.in_use(document, root, other) if keys is not None and decides else [])
    if chosen not in taken.releases:
        taken = Taken(left.releases, None)  # what the host installs is known better than what the file was written for
    return _holding(package, taken, chosen, left.why, own.before, own.outdated, own.before)


@lru_cache(maxsize=256)
def _releases(package: str, host: str, own: tuple[str, ...], chosen: str) -> tuple[str, ...]:
    """The final releases of a package, oldest first: those of its vocabulary, and those that the host's requirements
    name, which a vocabulary without a change at that release does not list.
    """
    name = vocabulary_of(package)
    known = set[str]()
    if name is not None:
        vocabulary = load(name)
        known.update(vocabulary.packages.get(package, vocabulary.releases))
    asked = _asked(host, own)
    stated = [one.needed.get(package) or one.extras.get(package) for one in asked]
    bounds = [bound for one in stated if one is not None for _, bound in one.comparisons]
    known.update(bound for bound in bounds if not bound.endswith(".*"))
    return tuple([release for release in sorted({*known, chosen}, key=release_key) if is_final(release)])


@lru_cache(maxsize=256)
def _allowed(package: str, host: str, own: tuple[str, ...], releases: tuple[str, ...]) -> frozenset[str]:
    """Those of a package's releases that one of the host's can be installed with."""
    asked = _asked(host, own)
    return frozenset([release for release in releases if any(one.allows(package, release) for one in asked)])


def _asked(host: str, own: tuple[str, ...]) -> list[Requires]:
    """What the candidates of a host framework may require."""
    return [requires(host, one) for release in own for one in around(release)]


def _holding(
    package: str,
    taken: Taken,
    chosen: str,
    why: tuple[str, ...],
    before: bool = False,
    outdated: bool = False,
    earlier: bool = False,
) -> Window:
    releases = taken.releases if chosen in taken.releases else (chosen,)
    return Window(package, releases, chosen, False, why, before, outdated, earlier, taken.best)


def _excluded(framework: Framework, stated: ReleaseStatements) -> bool:
    """Whether requirements exclude every release before the oldest known one."""
    if framework.keys is None:
        return True
    allowed = stated.allowed(framework.listed.package)
    return allowed is not None and allowed.constraint.at_least(framework.keys.vocabulary.releases[0]) is True


def _earliest(framework: Framework, left: tuple[str, ...]) -> bool:
    """Whether the oldest known release is a candidate, so that those before it are as well."""
    return framework.keys is not None and left[:1] == (framework.keys.vocabulary.releases[0],)
