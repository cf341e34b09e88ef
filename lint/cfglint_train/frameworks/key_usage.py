"""Inference of a configuration's release from its keys.

A release that rejects a key cannot start the run, so the author of a file with that key uses a release that accepts
it. A key that a release drops silently is not evidence, because the author may not have noticed. If the newest release
rejects none of the keys, the file is no evidence about its release; the key names alone are enough to check that.
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
from cfglint_train.frameworks.evidence import LaunchedKey
from cfglint_train.frameworks.lens import format_route

_MAX_KEYS: Final = 300
"""Maximum number of keys to check against every release; no configuration in the corpus has more than 220."""


class RefusedKey(Frozen):
    """A key that the newest release rejects, although another release accepts it."""

    route: Route
    """Route of the key below the configuration's root."""
    entry: Entry
    status: Status
    script: Document | None = None
    """Launch script that sets the key, or None if the configuration does."""

    def __str__(self) -> str:
        """Return the reason for the rejection: the key does not exist yet, or was removed."""
        return self.describe()

    def describe(self, package: str = "") -> str:
        """Return the reason for the rejection; it names the package whose release rejects the key, if set."""
        of_package, since = f" {package}" if package else "", f" {self.status.since}" if self.status.since else ""
        if self.status.kind == "not yet":
            return f"`{format_route(self.route)}` does not exist yet" + (f" in{of_package}" if package else "")
        return f"`{format_route(self.route)}` was removed" + (f" in{of_package}{since}" if package or since else "")


class ReleaseHint(Frozen):
    """Evidence, in the keys of a configuration, that it was not written for the newest release."""

    refused_keys: tuple[RefusedKey, ...]
    accepts: Callable[[str], bool]
    """Function that returns whether a release accepts every key of the configuration that the vocabulary knows."""

    def find_newest(self, releases: Iterable[str]) -> str | None:
        """Return the newest of `releases`, listed oldest first, that accepts every key."""
        return next((release for release in reversed(list(releases)) if self.accepts(release)), None)


class KeyUse(Frozen):
    """A key that a configuration sets, and the releases that accept it."""

    route: Route
    """Route of the key below the configuration's root."""
    entry: Entry | None
    """Entry of the key, or None if the use is the program itself (an OpenRLHF entry point)."""
    check_releases: Callable[[tuple[str, ...]], tuple[bool, ...]]
    """Function that returns, for each release, whether it has the key or silently ignores it after dropping it.

    The result is False for releases older than the key: the file cannot have been written for them.
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
    launched: Iterable[LaunchedKey] = (),
) -> list[KeyUse]:
    """Return the keys of a configuration that have a value, except those that every release has unchanged.

    The arguments are those of `infer_release`. At most `_MAX_KEYS` keys are returned, because each is checked against
    every release, and more keys rarely narrow the releases further.
    """
    history = _KeyHistory(vocabulary, context, package)
    uses: list[KeyUse] = []
    for route, entry, script in _walk_keys(document, root, None, launched):
        if (
            is_fixed_place(route)
            and not history.is_lasting(route)
            and (script is not None or _is_evidence(entry, document))
        ):
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
    launched: Iterable[LaunchedKey] = (),
) -> ReleaseHint | None:
    """Return evidence about the release from the keys, or None if `release`, the newest candidate, accepts them all.

    `is_fixed_place` returns whether a route means the same setting in every file. `package` is another package that the
    vocabulary depends on (transformers, for LLaMA-Factory); if set, all releases are that package's. `launched` are the
    keys that every launch adds.
    """
    candidates = [
        (route, entry, script)
        for route, entry, script in _walk_keys(document, root, vocabulary.rejectable, launched)
        if is_fixed_place(route) and (script is not None or _is_evidence(entry, document))
    ]
    if not candidates:
        return None
    history = _KeyHistory(vocabulary, context, package)
    refused_keys = []
    for route, entry, script in candidates:
        status = history.find_status(route, release)
        if status is not None and is_refused(status):
            refused_keys.append(RefusedKey(route, entry, status, script))
    if not refused_keys:
        return None
    routes = [
        route
        for route, entry, script in _walk_keys(document, root, None, launched)
        if is_fixed_place(route) and (script is not None or _is_evidence(entry, document))
    ]
    # Keys that the newest release rejects come first: most other releases reject them too, which ends the check.
    routes = [*(key.route for key in refused_keys), *routes]
    return ReleaseHint(
        tuple(refused_keys), lambda other: all(history.check_releases(route, (other,))[0] for route in routes)
    )


class _KeyHistory:
    """Statuses of keys at every release, cached in the vocabulary."""

    __slots__ = ("_answers", "_context", "_package", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, context: Context, package: str | None) -> None:
        """Share the vocabulary's cache of answers for the context."""
        self._vocabulary = vocabulary
        self._context = context
        self._package = package
        self._answers = vocabulary.get_cache(context)

    def find_status(self, route: Route, release: str) -> Status | None:
        """Return the status of a key, or None if the key is unknown or its status does not depend on the package."""
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
        """Return the fact about a key at the newest release, or None if the key is unknown."""
        fact = self._vocabulary.find_fact(route, self._vocabulary.newest, self._context)
        return None if fact is None or fact.is_open else fact

    def check_releases(self, route: Route, releases: tuple[str, ...]) -> tuple[bool, ...]:
        """Return, for each release, whether it has the key, or dropped the key and ignores it silently."""
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
    """Return whether a release lacks the key and stops with an error if a file sets it."""
    return status.kind in ("removed", "renamed", "not yet") and status.effect == "error"


def _walk_entries(document: Document, root: Route, names: Set[str] | None = None) -> Iterator[tuple[Route, Entry]]:
    """Yield the entries below a root with their routes from that root, limited to `names` if set."""
    for route, mapping in document.list_mappings():
        if route[: len(root)] == root:
            for name, entry in mapping.index.items():
                if names is None or name in names:
                    yield (*route[len(root) :], name), entry


def _walk_keys(
    document: Document, root: Route, names: Set[str] | None, launched: Iterable[LaunchedKey]
) -> Iterator[tuple[Route, Entry, Document | None]]:
    """Yield the keys of a configuration and those that its launches add, each of the latter with its script."""
    for route, entry in _walk_entries(document, root, names):
        yield route, entry, None
    for key in launched:
        if names is None or key.route[-1] in names:
            yield key.route, key.entry, key.document


def _is_evidence(entry: Entry, document: Document) -> bool:
    """Return whether a key is evidence of the release: it has a value and is set at every release."""
    return _has_value(entry, document) and _is_unconditional(entry, document)


def _is_unconditional(entry: Entry, document: Document) -> bool:
    """Return whether a script sets the key at every release. A key behind a release check is not evidence."""
    if document.syntax != "python":
        return True
    from cfglint_train.documents.python.guards import is_guarded
    from cfglint_train.documents.python.script import PythonScript

    return not (isinstance(document, PythonScript) and is_guarded(document, entry.key.span))


def _has_value(entry: Entry, document: Document) -> bool:
    """Return whether a key has a non-empty value; no release rejects an empty key."""
    node = follow(entry.value)
    if isinstance(node, Sequence):
        return bool(node.items)
    if isinstance(node, MappingNode):
        return bool(node.entries)
    return isinstance(node, Scalar) and document.get_scalar_value(node) not in (None, "")
