"""The releases that a configuration is checked against, each with where it comes from.

For each package the first of these counts: a flag, a pragma or a setting; what the requirement files of the repository
pin; for a framework, what the keys in use allow; what the framework's own release installs beside itself; the newest.
"""

from __future__ import annotations

from functools import partial

from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.key_usage import ReleaseHint
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import vocabulary_of
from cfglint_train.frameworks.requires import requires
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import Release, Releases
from cfglint_train.releases import candidates
from cfglint_train.releases.statements import ReleaseStatements


def releases_of(framework: Framework, document: Document, root: Route, stated: ReleaseStatements) -> Releases:
    """The releases for a main configuration."""
    found = Releases()
    for package in {*stated.facts, *stated.pins}:
        known, allowed = stated.release(package), stated.allowed(package)
        if known is not None:
            found.known[package] = known
        elif allowed is not None:
            found.ranges[package] = allowed
    own = framework.listed.package
    left = None
    if own not in found.known:
        left = candidates.candidates(framework, document, root, stated)
        found.known[own] = _framework(framework, own, document, root, stated, left, found.fresh)
    found.known[framework.name] = found.known[own]
    _beside(framework, found)
    other = framework.listed.beside
    if other is not None:
        _keyed_beside(framework, other, found, document, root)
    for package in found.known:
        if package not in (own, framework.name) and not found.stated(package):
            found.windows[package] = partial(candidates.beside, framework, found, framework, document, root, package)
    if own in stated.pins and len(stated.pins) > 1:
        from cfglint_train.releases.exclusions import exclusions

        found.exclusions = tuple(exclusions(framework, stated))
    _limit(framework, own, found)
    chosen = found.known[own]
    if left is not None:
        found.windows[own] = partial(candidates.window, framework, document, root, stated, left, chosen.version)
    return found


def source(config: Config) -> str | None:
    """Which release a configuration is checked against and why, where neither the file nor a flag states it."""
    release = config.releases.known.get(config.framework)
    if release is None or release.origin.kind != "user" or release.origin.place is not None:
        return None
    if release.origin.note == "command line":
        return None
    return f"checked against {frameworks.load(config.framework).title} {release.version} ({release.origin.note})"


def companion(
    owner: Releases, host: Framework, framework: Framework, document: Document, root: Route, stated: ReleaseStatements
) -> Releases:
    """The releases for a file that a main configuration names: the main one's, and its own framework's."""
    name = framework.name
    found = owner.with_defaults({})
    if name not in found.known:
        release = stated.release(name)
        if release is None:
            left = candidates.candidates(framework, document, root, stated)
            release = _framework(framework, name, document, root, stated, left, found.fresh)
        found.known[name] = release
    _limit(framework, name, found)
    if found.known[name].origin.kind != "user":
        found.windows[name] = partial(candidates.beside, host, found, framework, document, root, name)
    return found


def _limit(framework: Framework, package: str, found: Releases) -> None:
    """Note where a package is stated to be older than the oldest release that is known."""
    if framework.keys is None:
        return
    first, known, allowed = framework.keys.vocabulary.releases[0], found.known[package], found.ranges.get(package)
    older = known.origin.kind == "user" and release_key(known.version) < release_key(first)
    if older or (allowed is not None and allowed.constraint.at_least(first) is False):
        found.older |= {package, framework.name}


def _framework(
    framework: Framework,
    package: str,
    document: Document,
    root: Route,
    stated: ReleaseStatements,
    left: candidates.CandidateReleases,
    fresh: dict[str, str],
) -> Release:
    """A framework's release where it is not stated, among the candidates that are left. `fresh` gets the newest of
    them where it refuses keys in use.
    """
    state = f"state {package}=RELEASE"
    if not left.releases:
        allowed = stated.allowed(package)
        first = framework.keys.vocabulary.releases[0] if framework.keys is not None else framework.newest
        older = allowed is not None and allowed.constraint.at_least(first) is False
        which = "oldest" if older else "newest"
        note = f"the {which} known release, where {left.why[0]} asks for another ({state})"
        return Release(first if older else framework.newest, Origin("assumed", note=note))
    newest, why = left.releases[-1], " and ".join(left.why)
    keys = framework.keys
    found = None if keys is None else keys.told(document, root, newest)
    if found is not None and keys is not None:
        taken = candidates.taking(left.releases, keys.in_use(document, root))
        # A development version may be the only one that has them all.
        fitting = found.newest(left.releases) or (None if why else found.newest(keys.vocabulary.releases))
        if fitting is not None:
            fresh[package] = newest
            note = f"the newest{f' of those that {why} allows' if why else ''} that accepts all of its keys"
            return Release(fitting, Origin("inferred", note=f"{note} ({_listed(found)}; {state})"))
        if taken.best is not None:
            note = f"no release takes all of its keys; this one takes most ({state})"
            return Release(taken.best.release, Origin("assumed", note=note))
    conflict = stated.disagreement(package)
    because = f", as {conflict} disagree" if conflict else ""
    if why:
        return Release(newest, Origin("inferred", note=f"the newest that {why} allows{because} ({state})"))
    return Release(newest, Origin("assumed", note=f"the newest known release{because} ({state})"))


def _listed(found: ReleaseHint) -> str:
    """Why the newest release does not count: the first of the keys that it refuses."""
    more = f" and {len(found.refused) - 1} more" if len(found.refused) > 1 else ""
    return f"{found.refused[0]}{more}" if found.refused else "its program was removed"


def _beside(framework: Framework, found: Releases) -> None:
    """Packages that the framework's release installs with itself, and those of which a range is allowed."""
    title = f"{framework.title} {found.known[framework.name].version}"
    release = found.known[framework.name].version
    installed = framework.installed(release)
    for package in {*installed, *found.ranges}:
        if package in found.known:
            continue
        allowed, version = found.ranges.get(package), installed.get(package)
        if version is not None and (allowed is None or allowed.constraint.allows(version)):
            found.known[package] = Release(version, Origin("inferred", note=f"allowed by {title}"))
        elif allowed is not None and (name := vocabulary_of(package)) is not None:
            newest = allowed.constraint.newest(_releases(load(name), package))
            if newest is not None:
                note = f"the newest that {allowed.origin.note} allows"
                found.known[package] = Release(newest, Origin("inferred", note=note))


def _releases(vocabulary: Vocabulary, package: str) -> tuple[str, ...]:
    return vocabulary.packages.get(package, vocabulary.releases)


def _keyed_beside(framework: Framework, package: str, found: Releases, document: Document, root: Route) -> None:
    """The release of another package that decides about keys, as training arguments are those of transformers."""
    known = found.known.get(package)
    if known is None or known.origin.kind == "user" or framework.keys is None:
        return
    told = framework.keys.told(document, root, known.version, package)
    if told is None:
        return
    allowed, most = found.ranges.get(package), release_key(known.version)
    older = [one for one in _releases(framework.keys.vocabulary, package) if release_key(one) <= most]
    if found.stated(framework.listed.package):  # another release could not be installed beside it
        asked = requires(framework.name, found.known[framework.name].version)
        older = [one for one in older if asked.allows(package, one)]
    fitting = told.newest(release for release in older if allowed is None or allowed.constraint.allows(release))
    if fitting is not None:
        found.fresh[package] = known.version
        note = f"the newest that accepts all of its keys ({_listed(told)}; state {package}=RELEASE)"
        found.known[package] = Release(fitting, Origin("inferred", note=note))
