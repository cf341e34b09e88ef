"""Infer the release of a configuration from its keys.

A framework that refuses a key would not have started: the author of a file with one runs a release that takes it. A key
that is dropped silently is no evidence, as the drop may be unnoticed. Where the newest release refuses no key, the
file shows nothing, and the names alone are enough to find that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Document, Entry, Route, Scalar, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import spelled

_MOST: Final = 300
"""Keys that are checked against every release. No configuration of the corpus has 220 in all."""


class Refused(Frozen):
    """A key that the newest release refuses, and another one takes."""

    route: Route
    """Below the configuration's root."""
    entry: Entry
    status: Status

    def __str__(self) -> str:
        if self.status.kind == "not yet":
            return f"`{spelled(self.route)}` does not exist yet"
        return f"`{spelled(self.route)}` was removed" + (f" in {self.status.since}" if self.status.since else "")


class ReleaseHint(Frozen):
    """The releases that the keys allow, where the newest release refuses some of them."""

    refused: tuple[Refused, ...]
    takes: Callable[[str], bool]
    """Whether a release takes every key that some release has."""

    def newest(self, releases: Iterable[str]) -> str | None:
        """The newest of some releases, given the oldest first, that takes every key."""
        return next((release for release in reversed(list(releases)) if self.takes(release)), None)


class KeyUse(Frozen):
    """A key that a configuration gives, and the releases that take it."""

    route: Route
    """Below the configuration's root."""
    entry: Entry | None
    """None: what stands for it is no key, but the program that reads them."""
    among: Callable[[tuple[str, ...]], tuple[bool, ...]]
    """For each of some releases, whether it has the key, or lost it and goes on without it. A release that came before
    the key does not take it: the file cannot have been written for that one."""

    def takes(self, release: str) -> bool:
        """Whether one release does."""
        return self.among((release,))[0]


def in_use(
    known: Vocabulary,
    context: Context,
    settles: Callable[[Route], bool],
    document: Document,
    root: Route,
    package: str | None = None,
) -> list[KeyUse]:
    """The keys of a configuration that have a value, save those that every release takes. Arguments as in `told`.

    No more of them than _MOST: each is checked against every release, and so many determine the release if any do.
    """
    asked = _Asked(known, context, package)
    found: list[KeyUse] = []
    for route, entry in _entries(document, root):
        if settles(route) and not asked.is_lasting(route) and _shows(entry, document):
            found.append(KeyUse(route, entry, partial(asked.among, route)))
            if len(found) == _MOST:
                break
    return found


def told(
    known: Vocabulary,
    context: Context,
    settles: Callable[[Route], bool],
    document: Document,
    root: Route,
    release: str,
    package: str | None = None,
) -> ReleaseHint | None:
    """The releases that the keys of a configuration allow; None where `release` (the newest candidate) refuses none.

    `settles`: whether a place has the same settings in every file. `package` is another package that the vocabulary
    rests on (transformers, for LLaMA-Factory); then all releases are that package's.
    """
    doubtful = [
        (route, entry)
        for route, entry in _entries(document, root, known.refusable)
        if settles(route) and _shows(entry, document)
    ]
    if not doubtful:
        return None
    asked = _Asked(known, context, package)
    found = []
    for route, entry in doubtful:
        status = asked.status(route, release)
        if status is not None and refuses(status):
            found.append(Refused(route, entry, status))
    if not found:
        return None
    routes = [route for route, entry in _entries(document, root) if settles(route) and _shows(entry, document)]
    # What the newest release refuses comes first: most of the others refuse it, too, and then no more is asked.
    routes = [*(one.route for one in found), *routes]
    return ReleaseHint(tuple(found), lambda other: all(asked.among(route, (other,))[0] for route in routes))


class _Asked:
    """What each key is at each release."""

    __slots__ = ("_answers", "_context", "_known", "_package")

    def __init__(self, known: Vocabulary, context: Context, package: str | None) -> None:
        self._known = known
        self._context = context
        self._package = package
        self._answers = known.answers(context)

    def status(self, route: Route, release: str) -> Status | None:
        """What a key is; None where nothing is known of it, or where another package decides."""
        fact = self._fact(route, release)
        return None if fact is None else fact.status()

    def _fact(self, route: Route, release: str) -> Fact | None:
        if self._package is not None:
            context = self._context._replace(releases={self._package: release})
            fact = self._known.fact(route, self._known.newest, context)
            own = fact is not None and any(span.get("package") == self._package for span in fact.spans)
            return fact if own else None
        # What the root and the sections are may itself depend on the release.
        fact = self._known.fact(route, release, self._context)
        return None if fact is None or fact.open else fact

    def is_lasting(self, route: Route) -> bool:
        """Whether every release has the key as it is."""
        key = ("lasting", route)
        if key not in self._answers:
            newest = self._newest(route)
            self._answers[key] = newest is not None and newest.lasting
        return bool(self._answers[key])

    def _newest(self, route: Route) -> Fact | None:
        """The key at the newest release; None where nothing is known of it."""
        fact = self._known.fact(route, self._known.newest, self._context)
        return None if fact is None or fact.open else fact

    def among(self, route: Route, releases: tuple[str, ...]) -> tuple[bool, ...]:
        """For each of some releases, whether it has the key, or ignored it silently."""
        key = (self._package, route, releases)
        if key not in self._answers:
            newest = self._newest(route)
            if newest is not None and newest.steady:
                self._answers[key] = (True,) * len(releases)
            else:
                facts = [self._fact(route, release) for release in releases]
                row = tuple([_takes(fact) for fact in facts])
                if any(fact is not None and fact.conditional for fact in facts):
                    return row
                self._answers[key] = row
        found: tuple[bool, ...] = self._answers[key]
        return found


def _takes(fact: Fact | None) -> bool:
    status = None if fact is None else fact.status()
    return status is None or not (refuses(status) or status.kind == "not yet")


def refuses(status: Status) -> bool:
    """Whether a release stops at a key that is not there."""
    return status.kind in ("removed", "renamed", "not yet") and status.effect == "error"


def _entries(document: Document, root: Route, names: Set[str] | None = None) -> Iterator[tuple[Route, Entry]]:
    """The entries below a root, each with its route from there; those with certain names only, if any are given."""
    for route, mapping in document.mappings():
        if route[: len(root)] == root:
            for name, entry in mapping.index.items():
                if names is None or name in names:
                    yield (*route[len(root) :], name), entry


def _shows(entry: Entry, document: Document) -> bool:
    """Whether a key shows something of the release: it has a value, and is given at every release."""
    return _says(entry, document) and _is_always(entry, document)


def _is_always(entry: Entry, document: Document) -> bool:
    """Whether a script gives the key at every release: what it gives behind a look at the release shows none."""
    if document.syntax != "python":
        return True
    from cfglint_train.documents.python.guards import is_guarded
    from cfglint_train.documents.python.script import PythonScript

    return not (isinstance(document, PythonScript) and is_guarded(document, entry.key.span))


def _says(entry: Entry, document: Document) -> bool:
    """Whether a key has a value: an empty one is refused by none."""
    node = follow(entry.value)
    if isinstance(node, Sequence):
        return bool(node.items)
    if isinstance(node, MappingNode):
        return bool(node.entries)
    return isinstance(node, Scalar) and document.scalar_value(node) not in (None, "")
