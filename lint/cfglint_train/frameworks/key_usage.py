"""Infer the release of a configuration from its keys.

A framework that refuses a key would not have started, so the author of a file with the key runs a release that accepts
it. A key that is dropped silently is no evidence, because the author may not have noticed. If the newest release
refuses no key, the file shows nothing, and the names alone are enough to find that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Document, Entry, Route, Scalar, Sequence, follow
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import format_route

_MAX_KEYS: Final = 300
"""Keys that are checked against every release. No configuration of the corpus has more than 220."""


class RefusedKey(Frozen):
    """A key that the newest release refuses, although another release accepts it."""

    route: Route
    """Below the configuration's root."""
    entry: Entry
    status: Status

    def __str__(self) -> str:
        """Return a sentence that says since when the release lacks the key."""
        if self.status.kind == "not yet":
            return f"`{format_route(self.route)}` does not exist yet"
        return f"`{format_route(self.route)}` was removed" + (f" in {self.status.since}" if self.status.since else "")


class ReleaseHint(Frozen):
    """The releases that the keys allow, if the newest release refuses some of them."""

    refused_keys: tuple[RefusedKey, ...]
    accepts: Callable[[str], bool]
    """Predicate: a release accepts every key that some release has."""

    def find_newest(self, releases: Iterable[str]) -> str | None:
        """Return the newest of `releases`, listed oldest first, that accepts every key."""
        return next((release for release in reversed(list(releases)) if self.accepts(release)), None)


class KeyUse(Frozen):
    """A key that a configuration sets, and the releases that accept it."""

    route: Route
    """Below the configuration's root."""
    entry: Entry | None
    """Entry of the key, or None if the use is a property of the program that reads the keys."""
    check_releases: Callable[[tuple[str, ...]], tuple[bool, ...]]
    """For each release, whether it has the key, or dropped it and continues without. Releases before the key do not
    accept it: the file cannot have been written for them.
    """

    def is_accepted_by(self, release: str) -> bool:
        """Return whether a release accepts the key."""
        return self.check_releases((release,))[0]


def find_used_keys(
    vocabulary: Vocabulary,
    context: Context,
    is_fixed_place: Callable[[Route], bool],
    document: Document,
    root: Route,
    package: str | None = None,
) -> list[KeyUse]:
    """Return the keys of a configuration that have a value, except those that every release accepts.

    The arguments are those of `infer_release`. At most `_MAX_KEYS` are returned: each is checked against every release,
    and so many determine the release if any do.
    """
    history = _KeyHistory(vocabulary, context, package)
    uses: list[KeyUse] = []
    for route, entry in _walk_entries(document, root):
        if is_fixed_place(route) and not history.is_lasting(route) and _is_evidence(entry, document):
            uses.append(KeyUse(route, entry, partial(history.check_releases, route)))
            if len(uses) == _MAX_KEYS:
                break
    return uses


def infer_release(
    vocabulary: Vocabulary,
    context: Context,
    is_fixed_place: Callable[[Route], bool],
    document: Document,
    root: Route,
    release: str,
    package: str | None = None,
) -> ReleaseHint | None:
    """Return the releases that the keys allow, or None if `release` (the newest candidate) refuses none.

    `is_fixed_place` decides whether a place has the same settings in every file. `package` is another package that the
    vocabulary depends on (transformers, for LLaMA-Factory); if set, all releases are that package's.
    """
    candidates = [
        (route, entry)
        for route, entry in _walk_entries(document, root, vocabulary.rejectable)
        if is_fixed_place(route) and _is_evidence(entry, document)
    ]
    if not candidates:
        return None
    history = _KeyHistory(vocabulary, context, package)
    refused_keys = []
    for route, entry in candidates:
        status = history.find_status(route, release)
        if status is not None and is_refused(status):
            refused_keys.append(RefusedKey(route, entry, status))
    if not refused_keys:
        return None
    routes = [
        route
        for route, entry in _walk_entries(document, root)
        if is_fixed_place(route) and _is_evidence(entry, document)
    ]
    # Keys that the newest release refuses come first: most other releases refuse them too, which ends the check.
    routes = [*(key.route for key in refused_keys), *routes]
    return ReleaseHint(
        tuple(refused_keys), lambda other: all(history.check_releases(route, (other,))[0] for route in routes)
    )


class _KeyHistory:
    """The state of each key at each release."""

    __slots__ = ("_answers", "_context", "_package", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, context: Context, package: str | None) -> None:
        """Share the vocabulary's cache of answers for the context."""
        self._vocabulary = vocabulary
        self._context = context
        self._package = package
        self._answers = vocabulary.get_cache(context)

    def find_status(self, route: Route, release: str) -> Status | None:
        """Return the state of a key, or None if it is unknown or another package decides it."""
        fact = self._find_fact(route, release)
        return None if fact is None else fact.resolve_status()

    def _find_fact(self, route: Route, release: str) -> KeyFact | None:
        if self._package is not None:
            context = self._context._replace(releases={self._package: release})
            fact = self._vocabulary.find_fact(route, self._vocabulary.newest, context)
            is_decided = fact is not None and any(span.get("package") == self._package for span in fact.spans)
            return fact if is_decided else None
        # The root and the sections may themselves depend on the release.
        fact = self._vocabulary.find_fact(route, release, self._context)
        return None if fact is None or fact.is_open else fact

    def is_lasting(self, route: Route) -> bool:
        """Return whether every release has the key unchanged."""
        key = ("lasting", route)
        if key not in self._answers:
            newest = self._find_newest_fact(route)
            self._answers[key] = newest is not None and newest.is_unchanged
        return bool(self._answers[key])

    def _find_newest_fact(self, route: Route) -> KeyFact | None:
        """Return the key at the newest release, or None if it is unknown."""
        fact = self._vocabulary.find_fact(route, self._vocabulary.newest, self._context)
        return None if fact is None or fact.is_open else fact

    def check_releases(self, route: Route, releases: tuple[str, ...]) -> tuple[bool, ...]:
        """Return for each release whether it has the key, or ignored it silently."""
        key = (self._package, route, releases)
        if key not in self._answers:
            newest = self._find_newest_fact(route)
            if newest is not None and newest.is_in_all_releases:
                self._answers[key] = (True,) * len(releases)
            else:
                facts = [self._find_fact(route, release) for release in releases]
                row = tuple([_is_accepted(fact) for fact in facts])
                if any(fact is not None and fact.is_conditional for fact in facts):
                    return row
                self._answers[key] = row
        accepted: tuple[bool, ...] = self._answers[key]
        return accepted


def _is_accepted(fact: KeyFact | None) -> bool:
    status = None if fact is None else fact.resolve_status()
    return status is None or not (is_refused(status) or status.kind == "not yet")


def is_refused(status: Status) -> bool:
    """Return whether a release stops at a key that it does not have."""
    return status.kind in ("removed", "renamed", "not yet") and status.effect == "error"


def _walk_entries(document: Document, root: Route, names: Set[str] | None = None) -> Iterator[tuple[Route, Entry]]:
    """Yield the entries below a root, each with its route from there; only those called `names`, if set."""
    for route, mapping in document.list_mappings():
        if route[: len(root)] == root:
            for name, entry in mapping.index.items():
                if names is None or name in names:
                    yield (*route[len(root) :], name), entry


def _is_evidence(entry: Entry, document: Document) -> bool:
    """Return whether a key is evidence of the release: it has a value and is set at every release."""
    return _has_value(entry, document) and _is_unconditional(entry, document)


def _is_unconditional(entry: Entry, document: Document) -> bool:
    """Return whether a script sets the key at every release. A key set behind a release check is no evidence."""
    if document.syntax != "python":
        return True
    from cfglint_train.documents.python.guards import is_guarded
    from cfglint_train.documents.python.script import PythonScript

    return not (isinstance(document, PythonScript) and is_guarded(document, entry.key.span))


def _has_value(entry: Entry, document: Document) -> bool:
    """Return whether a key has a value: no release refuses an empty key."""
    node = follow(entry.value)
    if isinstance(node, Sequence):
        return bool(node.items)
    if isinstance(node, MappingNode):
        return bool(node.entries)
    return isinstance(node, Scalar) and document.get_scalar_value(node) not in (None, "")
