"""Existence of stated releases: a mistyped release would otherwise be treated like its nearest neighbour."""

from __future__ import annotations

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.registry import list_frameworks


def describe_missing_release(package: str, release: str) -> str | None:
    """Describe the error if a release of a package (by its canonical name) does not exist, or return None.

    Patch releases may be missing from the vocabulary, and new ones appear. Only a number between two known releases, or
    far beyond the newest, is rejected.
    """
    releases = _list_releases(package)
    if not releases:
        return None
    numbers, number = [_get_minor_version(other) for other in releases], _get_minor_version(release)
    first, last = numbers[0], numbers[-1]
    if number in numbers or number < first or (number > last and number[0] <= last[0] + 1):
        return None
    previous = next(other for other in reversed(releases) if parse_release(other) < parse_release(release))
    return f"{package} has no release {release}; the newest before it is {previous}"


def _list_releases(package: str) -> tuple[str, ...]:
    """Return the releases of a package, oldest first; empty if they are unknown."""
    for manifest in list_frameworks().values():
        if manifest.vocabulary is not None and package in (manifest.name, manifest.companion_package):
            vocabulary = load(manifest.vocabulary)
            return vocabulary.packages[package if package == manifest.companion_package else vocabulary.package]
    return ()


def _get_minor_version(release: str) -> tuple[int, ...]:
    """Return the first two parts of a release number."""
    return (*parse_release(release)[0], 0, 0)[:2]
