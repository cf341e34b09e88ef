"""Releases that people state and that do not exist: a mistyped one would silently be taken for its neighbour."""

from __future__ import annotations

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.registry import list_frameworks


def describe_missing_release(package: str, release: str) -> str | None:
    """What is wrong with a release (of a package by its canonical name) that does not exist; None where it may.

    Patch releases may be missing from what is known, and newer ones come: only a number between two known ones that
    was left out, and one that is far beyond the newest, are refused.
    """
    releases = _list_releases(package)
    if not releases:
        return None
    numbers, number = [_get_minor_version(other) for other in releases], _get_minor_version(release)
    first, last = numbers[0], numbers[-1]
    if number in numbers or number < first or (number > last and number[0] <= last[0] + 1):
        return None
    previous = next(other for other in reversed(releases) if parse_release(other) < parse_release(release))
    return f"{package} has no release {release}; the one before it is {previous}"


def _list_releases(package: str) -> tuple[str, ...]:
    """The releases of a package, oldest first; empty where they are not known."""
    for manifest in list_frameworks().values():
        if manifest.vocabulary is not None and package in (manifest.name, manifest.companion_package):
            vocabulary = load(manifest.vocabulary)
            return vocabulary.packages[package if package == manifest.companion_package else vocabulary.package]
    return ()


def _get_minor_version(release: str) -> tuple[int, ...]:
    """The first two parts of a release's number."""
    return (*parse_release(release)[0], 0, 0)[:2]
