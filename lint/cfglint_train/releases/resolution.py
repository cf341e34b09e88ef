"""Release resolution: choose the releases against which a config is checked, each with its source.

For each package, the first of these decides: a flag, a pragma or a setting; a pin in the repository's requirement
files; for a framework, the releases that accept the keys in use; the version that the framework's release installs; the
newest release.
"""

from __future__ import annotations

from functools import partial

from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.evidence import LaunchedKey
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.key_usage import ReleaseHint
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.requires import find_newest_release, load_requirements
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import Release, Releases
from cfglint_train.releases import candidates
from cfglint_train.releases.statements import ReleaseStatements


def resolve_releases(framework: Framework, document: Document, root: Route, statements: ReleaseStatements) -> Releases:
    """Resolve the releases of the framework and the other packages for a main config."""
    releases = Releases()
    for package in {*statements.facts, *statements.pins}:
        release, allowed = statements.get_release(package), statements.get_allowed_range(package)
        if release is not None:
            releases.by_package[package] = release
        elif allowed is not None:
            releases.allowed_releases[package] = allowed
    framework_package = framework.manifest.package
    candidate_releases = None
    if framework_package not in releases.by_package:
        candidate_releases = candidates.find_candidate_releases(framework, document, root, statements)
        releases.by_package[framework_package] = _resolve_framework(
            framework, framework_package, document, root, statements, candidate_releases, releases.fresh_releases
        )
    chosen = releases.by_package[framework.name] = releases.by_package[framework_package]
    newest = candidate_releases.releases[-1:] if candidate_releases is not None else ()
    fresh_installation = _list_installed(framework, newest[0] if newest else chosen.version, releases)
    releases.by_package.update(_list_installed(framework, chosen.version, releases))
    companion_package = framework.manifest.companion_package
    if companion_package in fresh_installation:
        _resolve_keyed_package(
            framework,
            companion_package,
            fresh_installation[companion_package].version,
            releases,
            document,
            root,
            statements.launched_keys,
            statements.describe_conflict(companion_package)
            or statements.find_revision(framework_package)
            or statements.find_revision(companion_package),
        )
    for package in releases.by_package:
        if package not in (framework_package, framework.name) and not releases.is_stated(package):
            releases.candidate_finders[package] = partial(
                candidates.build_companion_releases,
                framework,
                releases,
                framework,
                document,
                root,
                package,
                statements.launched_keys,
                bool(statements.find_revision(package)),
            )
    if framework_package in statements.pins and len(statements.pins) > 1:
        from cfglint_train.releases.exclusions import find_exclusions

        releases.exclusions = tuple(find_exclusions(framework, statements))
    _mark_older(framework, framework_package, releases)
    if candidate_releases is not None:
        releases.candidate_finders[framework_package] = partial(
            candidates.build_possible_releases,
            framework,
            document,
            root,
            statements,
            candidate_releases,
            chosen.version,
        )
    return releases


def describe_source(config: Config) -> str | None:
    """Return a sentence with the release that a pin or a setting selects for a config, and its source.

    The result is None if the file itself or a flag states the release, or if it is only inferred or assumed.
    """
    release = config.releases.by_package.get(config.framework)
    if release is None or release.origin.kind != "user" or release.origin.place is not None:
        return None
    if release.origin.note == "command line":
        return None
    return f"checked against {frameworks.load(config.framework).title} {release.version} ({release.origin.note})"


def resolve_companion_releases(
    owner: Releases,
    host: Framework,
    framework: Framework,
    document: Document,
    root: Route,
    statements: ReleaseStatements,
) -> Releases:
    """Resolve a companion's releases: those of the main config, plus the release of the companion's own framework."""
    name = framework.name
    releases = owner.add_defaults({})
    if name not in releases.by_package:
        release = statements.get_release(name)
        if release is None:
            candidate_releases = candidates.find_candidate_releases(framework, document, root, statements)
            release = _resolve_framework(
                framework, name, document, root, statements, candidate_releases, releases.fresh_releases
            )
        releases.by_package[name] = release
    _mark_older(framework, name, releases)
    if releases.by_package[name].origin.kind != "user":
        releases.candidate_finders[name] = partial(
            candidates.build_companion_releases, host, releases, framework, document, root, name
        )
    return releases


def _mark_older(framework: Framework, package: str, releases: Releases) -> None:
    """Mark a package whose stated or allowed releases are older than the oldest known release."""
    if framework.keys is None:
        return
    first, release, allowed = (
        framework.keys.vocabulary.releases[0],
        releases.by_package[package],
        releases.allowed_releases.get(package),
    )
    is_older = release.origin.kind == "user" and parse_release(release.version) < parse_release(first)
    if is_older or (allowed is not None and allowed.constraint.is_at_least(first) is False):
        releases.outdated_packages |= {package, framework.name}


def _resolve_framework(
    framework: Framework,
    package: str,
    document: Document,
    root: Route,
    statements: ReleaseStatements,
    candidate_releases: candidates.CandidateReleases,
    fresh: dict[str, str],
) -> Release:
    """Choose a framework's release from the candidates, because none is stated.

    If an older release is chosen because the newest candidate rejects keys in use, `fresh` receives the newest, unless
    an installation gets a revision that is no release.
    """
    instruction = f"state {package}=RELEASE"
    if not candidate_releases.releases:
        allowed = statements.get_allowed_range(package)
        first = framework.keys.vocabulary.releases[0] if framework.keys is not None else framework.default_release
        is_older = allowed is not None and allowed.constraint.is_at_least(first) is False
        rank = "oldest" if is_older else "newest"
        note = f"the {rank} known release, although {candidate_releases.reasons[0]} asks for another ({instruction})"
        return Release(first if is_older else framework.default_release, Origin("assumed", note=note))
    newest, reasons = candidate_releases.releases[-1], " and ".join(candidate_releases.reasons)
    keys = framework.keys
    launched = statements.launched_keys
    hint = None if keys is None else keys.infer_release(document, root, newest, launched=launched)
    if hint is not None and keys is not None:
        uses = keys.find_used_keys(document, root, launched=launched)
        support = candidates.filter_by_keys(candidate_releases.releases, uses)
        # A development version may be the only release that accepts all keys.
        fitting = hint.find_newest(candidate_releases.releases) or (
            None if reasons else hint.find_newest(keys.vocabulary.releases)
        )
        if fitting is not None:
            if not statements.find_revision(package):
                fresh[package] = newest
            note = f"the newest{f' allowed by {reasons}' if reasons else ''} that accepts all of its keys"
            return Release(fitting, Origin("inferred", note=f"{note} ({_format_refused(hint)}; {instruction})"))
        if support.best is not None:
            note = f"no release accepts all keys of the file; this one accepts the most ({instruction})"
            return Release(support.best.release, Origin("assumed", note=note))
    conflict, revision = statements.describe_conflict(package), statements.find_revision(package)
    suffix = f", because {conflict} disagree" if conflict else f", because {revision} is no release" if revision else ""
    if reasons:
        return Release(newest, Origin("inferred", note=f"the newest that {reasons} allows{suffix} ({instruction})"))
    return Release(newest, Origin("assumed", note=f"the newest known release{suffix} ({instruction})"))


def _format_refused(hint: ReleaseHint) -> str:
    """Return the reason not to choose the newest release: the keys that it rejects, or a removed program."""
    suffix = f" and {len(hint.refused_keys) - 1} more" if len(hint.refused_keys) > 1 else ""
    return f"{hint.refused_keys[0]}{suffix}" if hint.refused_keys else "its program was removed"


def _list_installed(framework: Framework, release: str, releases: Releases) -> dict[str, Release]:
    """Return the packages that are installed with a release of the framework, and those with an allowed range.

    Packages in `releases` are left out.
    """
    title, packages = f"{framework.title} {release}", dict[str, Release]()
    installed = framework.list_installed(release)
    for package in {*installed, *releases.allowed_releases}:
        if package in releases.by_package:
            continue
        allowed, version = releases.allowed_releases.get(package), installed.get(package)
        if version is not None and (allowed is None or allowed.constraint.is_satisfied_by(version)):
            packages[package] = Release(version, Origin("inferred", note=f"allowed by {title}"))
        elif allowed is not None:
            newest = find_newest_release(package, allowed.constraint)
            if newest is not None:
                note = f"the newest that {allowed.origin.note} allows"
                packages[package] = Release(newest, Origin("inferred", note=note))
    return packages


def _get_releases(vocabulary: Vocabulary, package: str) -> tuple[str, ...]:
    return vocabulary.packages.get(package, vocabulary.releases)


def _resolve_keyed_package(
    framework: Framework,
    package: str,
    fresh_release: str,
    releases: Releases,
    document: Document,
    root: Route,
    launched: tuple[LaunchedKey, ...],
    conflict: str,
) -> None:
    """Lower the release of a package that also determines keys (transformers) until it accepts the keys in use.

    `fresh_release`: the release that is installed with the framework's release of a fresh installation. If it rejects
    keys that the lower release accepts, `releases.fresh_releases` receives it. With a `conflict`, as of requirements of
    several environments, or a revision that is no release, no installation is known.
    """
    current = releases.by_package.get(package)
    if current is None or current.origin.kind == "user" or framework.keys is None:
        return
    hint = framework.keys.infer_release(document, root, current.version, package, launched)
    if hint is not None:
        fitting = _find_fitting(framework, package, current.version, releases, hint)
        if fitting is None:
            return
        note = f"the newest that accepts all of its keys ({_format_refused(hint)}; state {package}=RELEASE)"
        releases.by_package[package] = Release(fitting, Origin("assumed" if conflict else "inferred", note=note))
    if not conflict and (
        hint is not None
        if fresh_release == current.version
        else framework.keys.infer_release(document, root, fresh_release, package, launched) is not None
    ):
        releases.fresh_releases[package] = fresh_release


def _find_fitting(
    framework: Framework, package: str, upper_bound: str, releases: Releases, hint: ReleaseHint
) -> str | None:
    """Return the newest release of a package up to `upper_bound` that is allowed and accepts all keys, or None."""
    assert framework.keys is not None
    allowed = releases.allowed_releases.get(package)
    older = [
        candidate
        for candidate in _get_releases(framework.keys.vocabulary, package)
        if parse_release(candidate) <= parse_release(upper_bound)
    ]
    if releases.is_stated(framework.manifest.package):  # the package must be installable with the framework
        required = load_requirements(framework.name, releases.by_package[framework.name].version)
        older = [candidate for candidate in older if required.can_install(package, candidate)]
    return hint.find_newest(
        release for release in older if allowed is None or allowed.constraint.is_satisfied_by(release)
    )
