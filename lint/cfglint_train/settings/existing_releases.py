"""Releases that people state and that do not exist: a mistyped one would silently be taken for its neighbour."""

from __future__ import annotations

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.registry import listed


def missing(package: str, release: str) -> str | None:
    """What is wrong with a release (of a package by its canonical name) that does not exist; None where it may.

    Patch releases may be missing from what is known, and newer ones come: only a number between two known ones that
    was left out, and one that is far beyond the newest, are refused.
    """
    known = _known(package)
    if not known:
        return None
    numbers, number = [_number(one) for one in known], _number(release)
    first, last = numbers[0], numbers[-1]
    if number in numbers or number < first or (number > last and number[0] <= last[0] + 1):
        return None
    near = next(one for one in reversed(known) if release_key(one) < release_key(release))
    return f"{package} has no release {release}; the one before it is {near}"


def _known(package: str) -> tuple[str, ...]:
    """The releases of a package, oldest first; empty where they are not known."""
    for one in listed().values():
        if one.vocabulary is not None and package in (one.name, one.beside):
            vocabulary = load(one.vocabulary)
            return vocabulary.packages[package if package == one.beside else vocabulary.package]
    return ()


def _number(release: str) -> tuple[int, ...]:
    """The first two parts of a release's number."""
    return (*release_key(release)[0], 0, 0)[:2]
