"""Candidate releases: the releases of a package that may run a config if no release is stated.

A release is a candidate if it meets these conditions:

- requirement files allow it;
- no comment of the file names another release;
- the other packages that are pinned or stated can be installed with it;
- it accepts the keys in use.

Evidence that contradicts all remaining releases is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial

from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import Constraint, add_final_release, is_final, parse_release
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.registry import find_vocabulary, list_packages
from cfglint_train.frameworks.requires import PackageRequirements, load_earlier_requirements, load_requirements
from cfglint_train.plan.releases import BestRelease, PossibleReleases, Releases
from cfglint_train.releases.statements import ReleaseStatements

if TYPE_CHECKING:
    from cfglint_train.frameworks.evidence import LaunchedKey
    from cfglint_train.frameworks.key_usage import KeyUse


class CandidateReleases(Frozen):
    """The remaining releases, oldest first, and the evidence that excluded the other releases."""

    releases: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    comments: tuple[tuple[Constraint, str], ...] = ()
    """Releases that the file's comments name, each with its place."""

    def narrow(self, test: Callable[[str], bool], reason: str) -> CandidateReleases:
        """Return the releases that pass `test`, with `reason` added, or the same record if none or all pass."""
        remaining = tuple([release for release in self.releases if test(release)])
        is_narrower = remaining and len(remaining) < len(self.releases)
        return self._replace(releases=remaining, reasons=(*self.reasons, reason)) if is_narrower else self


def find_candidate_releases(
    framework: Framework, document: Document, root: Route, statements: ReleaseStatements
) -> CandidateReleases:
    """Return the candidate releases of a framework, or none if requirements allow no known release.

    If a comment or another package rules out a release, only releases that also accept the keys in use remain.
    Otherwise, the keys are ignored here.
    """
    package, keys = framework.manifest.package, framework.keys
    known_releases = (framework.default_release,) if keys is None else keys.vocabulary.releases
    candidate_releases = CandidateReleases(
        _filter_finished(known_releases, framework.default_release),
        comments=tuple(_find_commented_releases(document, package)),
    )
    allowed = statements.get_allowed_range(package)
    if allowed is not None:
        allowed_releases = tuple(
            [release for release in candidate_releases.releases if allowed.constraint.is_satisfied_by(release)]
        )
        newest_allowed = allowed.constraint.find_newest(known_releases)
        candidate_releases = candidate_releases._replace(
            releases=allowed_releases or (() if newest_allowed is None else (newest_allowed,)),
            reasons=(allowed.origin.note,),
        )
    patches = framework.manifest.patched_by if document.syntax == "python" else {}
    for name, patch in patches.items():
        from cfglint_train.documents.python.script import PythonScript

        if isinstance(document, PythonScript) and any(
            module.partition(".")[0] == name for module in document.list_imports()
        ):
            candidate_releases = candidate_releases.narrow(
                Constraint.parse(patch["range"]).is_satisfied_by, f"{name} {patch['release']} ({patch['range']})"
            )
    hints: list[tuple[Callable[[str], bool], str]] = [
        *((constraint.is_satisfied_by, reason) for constraint, reason in candidate_releases.comments),
        *(
            (partial(_is_installable, framework.name, other, constraint), reason)
            for other, constraint, reason in statements.list_installed()
            if other != package
        ),
    ]
    if hints and keys is not None:
        narrowed = candidate_releases._replace(
            releases=filter_by_keys(
                candidate_releases.releases, keys.find_used_keys(document, root, launched=statements.launched_keys)
            ).releases
        )
        for test, reason in hints:
            narrowed = narrowed.narrow(test, reason)
        if narrowed.reasons != candidate_releases.reasons:
            return narrowed
    return candidate_releases


@lru_cache(maxsize=64)
def _filter_finished(releases: tuple[str, ...], newest: str) -> tuple[str, ...]:
    """Return the final releases (no pre-releases) up to `newest`, and `newest` itself whatever it is."""
    finished = [release for release in releases if is_final(release) or release == newest]
    return tuple([release for release in finished if parse_release(release) <= parse_release(newest)])


def _is_installable(framework: str, package: str, constraint: Constraint, release: str) -> bool:
    """Return whether a framework release's requirements allow a package version that meets `constraint`."""
    required = load_requirements(framework, release).required.get(package)
    return required is None or not Constraint((*required.comparisons, *constraint.comparisons)).is_impossible


def _find_commented_releases(document: Document, package: str) -> Iterable[tuple[Constraint, str]]:
    """Yield the releases that the file's comments name: `# axolotl 0.6`, `# tested with axolotl>=0.9`."""
    text = document.source.decode("utf-8", "replace")
    if not any(name in text.lower() for name in _list_package_names(package)):
        return  # avoids compiling the pattern
    pattern = _compile_release_pattern(package)
    if pattern.search(text) is None:
        return
    for comment in document.list_comments():
        for match in pattern.finditer(comment.text):
            line = document.locate(comment.span.start).line
            operator, release = match[1] or "==", match[2]
            bound = f"{release}.*" if operator in ("=", "==") else release
            yield Constraint((("==" if operator == "=" else operator, bound),)), f"the comment in line {line}"


@cache
def _list_package_names(package: str) -> frozenset[str]:
    """Return a package's spellings and distribution names in lower case."""
    manifest = list_packages().get(package)
    return (
        frozenset()
        if manifest is None
        else frozenset(name.lower() for name in (*manifest.spellings, *manifest.distributions))
    )


@cache
def _compile_release_pattern(package: str) -> re.Pattern[str]:
    """Return a pattern that finds the package's name followed by a release."""
    names = "|".join(sorted(map(re.escape, _list_package_names(package)), key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{names})[ \t]*(>=|<=|==|=|<|>)?[ \t]*v?(\d+\.\d+(?:\.\d+)*)(?![\w/])", re.I)


class KeySupport(Frozen):
    """Releases filtered by the keys in use."""

    releases: tuple[str, ...]
    """Releases that accept every key that any release accepts, or all releases if none does."""
    best: BestRelease | None
    """Newest release that accepts the most keys, if none accepts all of them."""


def filter_by_keys(releases: tuple[str, ...], uses: Iterable[KeyUse]) -> KeySupport:
    """Return the releases that support the keys in use; a key that no release accepts is ignored."""
    uses = list(uses)
    programs = [use for use in uses if use.entry is None]
    releases = (
        tuple([candidate for candidate in releases if all(use.is_accepted_by(candidate) for use in programs)])
        or releases
    )
    supported = [row for use in uses if use.entry is not None and any(row := use.check_releases(releases))]
    counts = [sum(column) for column in zip(*supported, strict=True)]
    fitting = tuple([release for release, count in zip(releases, counts, strict=False) if count == len(supported)])
    if fitting or not supported:
        return KeySupport(fitting or releases, None)
    best_index = max(range(len(releases)), key=lambda place: (counts[place], place))
    return KeySupport(releases, BestRelease(releases[best_index], counts[best_index], len(supported)))


def _is_older_than_known(
    framework: Framework,
    document: Document,
    root: Route,
    candidate_releases: CandidateReleases,
    releases: tuple[str, ...],
) -> bool:
    """Return whether a comment or setting of a file implies a release older than the oldest known one.

    A setting that disappeared only from upstream's examples counts if the keys in use allow the oldest known release.
    """
    keys = framework.keys
    if keys is None:
        return False
    first = keys.vocabulary.releases[0]
    if any(constraint.is_at_least(first) is False for constraint, _ in candidate_releases.comments):
        return True
    return keys.has_earlier_keys(document, root) or (releases[:1] == (first,) and keys.has_dated_keys(document, root))


def build_possible_releases(
    framework: Framework,
    document: Document,
    root: Route,
    statements: ReleaseStatements,
    candidate_releases: CandidateReleases,
    chosen: str,
) -> PossibleReleases:
    """Return the possible releases of a framework for a config; `chosen` is the release that cfglint checks."""
    package = framework.manifest.package
    launched = statements.launched_keys
    uses = [] if framework.keys is None else framework.keys.find_used_keys(document, root, launched=launched)
    support = filter_by_keys(candidate_releases.releases, uses)
    is_revision = bool(statements.find_revision(package))
    if _is_older_excluded(framework, statements):
        possible = _create_possible_releases(package, support, chosen, candidate_releases.reasons)
        return possible._replace(is_revision=is_revision)
    is_before = _is_older_than_known(
        framework, document, root, candidate_releases, support.releases
    ) or statements.is_former(package)
    is_outdated = is_before or (framework.keys is not None and framework.keys.is_outdated(document, root))
    can_be_earlier = is_before or _has_oldest_release(framework, support.releases)
    possible = _create_possible_releases(
        package, support, chosen, candidate_releases.reasons, is_before, is_outdated, can_be_earlier
    )
    return possible._replace(is_revision=is_revision)


def build_companion_releases(
    host: Framework,
    releases: Releases,
    framework: Framework,
    document: Document,
    root: Route,
    package: str,
    launched: Iterable[LaunchedKey] = (),
    is_revision: bool = False,
) -> PossibleReleases:
    """Return the possible releases of a package that is installed with a host framework.

    At least one candidate of the host must allow a release, and the release must accept the keys. `framework` owns the
    document's keys: it is the host itself, or the framework of a companion. `launched`: keys that every launch adds.
    `is_revision`: requirement files install a revision of the package that is no release.
    """
    chosen, host_candidates = releases.by_package[package].version, releases.find_candidates(host.manifest.package)
    remaining = CandidateReleases(_list_releases(package, host.name, host_candidates.releases, chosen))
    allowed = releases.allowed_releases.get(package)
    if allowed is not None:
        remaining = remaining.narrow(allowed.constraint.is_satisfied_by, allowed.origin.note)
    installable = _filter_installable(package, host.name, host_candidates.releases, remaining.releases)
    remaining = remaining.narrow(
        installable.__contains__, f"{host.title} {host_candidates.releases[0]} to {host_candidates.releases[-1]}"
    )
    keys, listed = framework.keys, framework.manifest
    decides = keys is not None and package in (listed.package, listed.companion_package)
    other_package = None if package == listed.package else package
    support = filter_by_keys(
        remaining.releases,
        keys.find_used_keys(document, root, other_package, launched) if keys is not None and decides else [],
    )
    if chosen not in support.releases:
        support = KeySupport(remaining.releases, None)  # the host's requirement is stronger evidence than the keys
    possible = _create_possible_releases(
        package,
        support,
        chosen,
        remaining.reasons,
        host_candidates.is_too_old,
        host_candidates.is_outdated,
        host_candidates.is_too_old,
    )
    return possible._replace(is_revision=is_revision)


@lru_cache(maxsize=256)
def _list_releases(package: str, host: str, host_releases: tuple[str, ...], chosen: str) -> tuple[str, ...]:
    """Return the final releases of a package, oldest first, from its vocabulary and the host's requirements.

    A vocabulary omits releases that change nothing in it, but the host's requirements may name them.
    """
    name = find_vocabulary(package)
    names = set[str]()
    if name is not None:
        vocabulary = load(name)
        names.update(vocabulary.packages.get(package, vocabulary.releases))
    host_requirements = _list_host_requirements(host, host_releases)
    constraints = [item.required.get(package) or item.extras.get(package) for item in host_requirements]
    bounds = [bound for item in constraints if item is not None for _, bound in item.comparisons]
    names.update(bound for bound in bounds if not bound.endswith(".*"))
    return tuple([release for release in sorted({*names, chosen}, key=parse_release) if is_final(release)])


@lru_cache(maxsize=256)
def _filter_installable(
    package: str, host: str, host_releases: tuple[str, ...], releases: tuple[str, ...]
) -> frozenset[str]:
    """Return the releases of a package that can be installed with at least one of the host's releases."""
    host_requirements = _list_host_requirements(host, host_releases)
    return frozenset(
        [release for release in releases if any(item.can_install(package, release) for item in host_requirements)]
    )


def _list_host_requirements(host: str, host_releases: tuple[str, ...]) -> list[PackageRequirements]:
    """Return the requirements of a host framework's releases."""
    return [load_requirements(host, neighbour) for release in host_releases for neighbour in add_final_release(release)]


def _create_possible_releases(
    package: str,
    support: KeySupport,
    chosen: str,
    reasons: tuple[str, ...],
    is_before: bool = False,
    is_outdated: bool = False,
    can_be_earlier: bool = False,
) -> PossibleReleases:
    releases = support.releases if chosen in support.releases else (chosen,)
    return PossibleReleases(
        package, releases, chosen, False, reasons, is_before, is_outdated, can_be_earlier, support.best
    )


def _is_older_excluded(framework: Framework, statements: ReleaseStatements) -> bool:
    """Return whether requirements exclude every release before the oldest known release.

    They do if they limit the framework itself, or if they install another package that no such release works with.
    """
    if framework.keys is None:
        return True
    allowed = statements.get_allowed_range(framework.manifest.package)
    if allowed is not None and allowed.constraint.is_at_least(framework.keys.vocabulary.releases[0]) is True:
        return True
    earlier = load_earlier_requirements(framework.name)
    return any(
        package in earlier and Constraint((*earlier[package].comparisons, *constraint.comparisons)).is_impossible
        for package, constraint, _ in statements.list_installed()
    )


def _has_oldest_release(framework: Framework, releases: tuple[str, ...]) -> bool:
    """Return whether the oldest known release is a candidate, so that older releases are possible as well."""
    return framework.keys is not None and releases[:1] == (framework.keys.vocabulary.releases[0],)
