"""Existence of stated releases: refuse mistyped releases, which would otherwise count as the nearest release."""

from __future__ import annotations

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.registry import list_frameworks


def describe_missing_release(package: str, release: str) -> str | None:
    """Return the error message if a package (by its canonical name) has no such release, or None.

    The vocabulary may lack patch releases, old releases and new releases. A release is therefore refused only if its
    minor version lies between two known releases, or if its major version is two or more beyond the newest.
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
    """Return the known releases of a package, oldest first, or an empty tuple."""
    for manifest in list_frameworks().values():
        if manifest.vocabulary is not None and package in (manifest.name, manifest.companion_package):
            vocabulary = load(manifest.vocabulary)
            return vocabulary.packages[package if package == manifest.companion_package else vocabulary.package]
    return ()


def _get_minor_version(release: str) -> tuple[int, ...]:
    """Return the major and minor version of a release."""
    return (*parse_release(release)[0], 0, 0)[:2]
