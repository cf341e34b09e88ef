"""Vocabularies of frameworks by release: the keys, the releases that have them, and the effect of unknown names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import cfglint_schemas
from cfglint_schemas.fact import KeyFact, KeyFactSource
from cfglint_schemas.kinds import can_be, is_free, list_alternatives
from cfglint_schemas.schema_file import is_effective
from cfglint_schemas.status import ITEM, PRESENT, RANKS, UNKNOWN, Context, Route
from cfglint_train.foundation.typed import Any


class Vocabulary(KeyFactSource):
    """The keys of a framework at every release that its schema file covers."""

    __slots__ = (
        "_answers",
        "_facts_by_place",
        "_key_names",
        "_mappings",
        "_names",
        "_names_by_needs",
        "_places_by_route",
        "_selected",
        "_settings",
    )

    def __init__(self, framework: str, text: str) -> None:
        """Index a schema file and create empty caches."""
        super().__init__(framework, text)
        self._mappings: dict[tuple[Any, ...], list[Route]] = {}
        self._key_names: dict[str, frozenset[str]] = {}
        self._facts_by_place: dict[tuple[Any, ...], dict[str | int, KeyFact | None]] = {}
        self._names: dict[tuple[Any, ...], tuple[list[str], list[tuple[str, str]]]] = {}
        """Names that are accepted regardless of the configuration, and the keys that need other keys."""
        self._names_by_needs: dict[tuple[Any, ...], list[str]] = {}
        """Accepted names, by the values of the keys that other keys need."""
        self._places_by_route: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        self._answers: dict[tuple[Any, ...], dict[Any, Any]] = {}
        self._settings: Mapping[str, Any] | None = {}
        self._selected: tuple[str | None, ...] = ()
        """Values of the selectors in `_settings`, the settings of the last context; look-ups come in long series."""

    def find_fact(self, route: Route, release: str, context: Context = UNKNOWN) -> KeyFact | None:
        """Return the fact about a key, or None if no release has the name at that place.

        `route` starts at the configuration's root; list indices are integers or `"*"`. An unknown release counts as the
        newest known release before it. Raises ValueError if `release` is not a valid release.
        """
        return self.find_facts(route[:-1], route[-1:], release, context)[0] if route else None

    def find_facts(
        self, parent: Route, names: Iterable[str | int], release: str, context: Context = UNKNOWN
    ) -> list[KeyFact | None]:
        """Return the facts about several keys of one mapping, in order; None for an unknown name."""
        cached = self._facts_by_place.setdefault((parent, *self._build_cache_key(release, context)), {})
        facts = []
        for name in names:
            if name in cached:
                fact = cached[name]
            else:
                fact = self._select_fact((*parent, name), release, context)
                if fact is None or not fact.is_conditional:
                    cached[name] = fact
            facts.append(fact)
        return facts

    def _select_fact(self, route: Route, release: str, context: Context) -> KeyFact | None:
        facts = self._collect_facts(self._find_places(route[:-1], release, context), route, release, context)
        if len(facts) < 2:
            return facts[0] if facts else None
        facts.sort(key=lambda fact: RANKS[fact.resolve_status().kind])
        facts[0].alternatives = tuple(facts[1:])
        return facts[0]

    def list_facts(self, definition: str, release: str, context: Context = UNKNOWN) -> Iterator[KeyFact]:
        """Yield the facts about all keys of a definition, regardless of status; routes start at the definition."""
        for name in self.lines[definition]:
            yield KeyFact(self, (name,), definition, name, self.parse_key(definition, name), release, context)

    def list_names(self, parent: Route, release: str, context: Context = UNKNOWN) -> list[str]:
        """Return the sorted names, including aliases, that a release accepts below a route.

        Keys of plugins that are not loaded are left out, as are renamed, removed and ignored keys.
        """
        definitions = self.list_definitions(parent, release, context)
        key = (*definitions, release, context.plugins, *context.releases.items())
        if key not in self._names:
            unconditional: set[str] = set()
            needing: list[tuple[str, str]] = []
            for definition in definitions:
                for fact in self.list_facts(definition, release, context):
                    if fact.needs_other_keys:
                        needing.append((definition, fact.name))
                    else:
                        unconditional.update(_list_accepted_names(fact))
            self._names[key] = sorted(unconditional), needing
        names, needing = self._names[key]
        if not needing:
            return names
        full_key = (*key, self._format_needed_values(needing, context))
        if full_key not in self._names_by_needs:
            facts = (
                KeyFact(self, (name,), definition, name, self.parse_key(definition, name), release, context)
                for definition, name in needing
            )
            self._names_by_needs[full_key] = sorted(
                {*names, *(name for fact in facts for name in _list_accepted_names(fact))}
            )
        return self._names_by_needs[full_key]

    def _format_needed_values(self, needing: list[tuple[str, str]], context: Context) -> tuple[str, ...] | None:
        """Return the configuration's values of the keys that other keys need, as text, or None if they are unknown."""
        if context.settings is None:
            return None
        patches = (patch for definition, name in needing for patch in self.parse_key(definition, name)["x-status"])
        others = sorted({other for patch in patches for other in patch.get("needs", ())})
        return tuple(f"{other}={context.settings[other]!r}" for other in others if other in context.settings)

    def find_effect(self, parent: Route, release: str, context: Context = UNKNOWN) -> str:
        """Return the effect of an unknown name below a route: dropped, error, warning or kept.

        `kept` means that every name is accepted.
        """
        effects = [self.get_effect(name, release) for name in self.list_definitions(parent, release, context)]
        return min(effects, key=("kept", "dropped", "warning", "error").index) if effects else "kept"

    def is_open(self, parent: Route, release: str, context: Context = UNKNOWN) -> bool:
        """Return whether a free-form mapping may be at a route, so that no name below it is unknown."""
        return any(is_free(place) for place in self._find_places(parent, release, context))

    def iterate_keys(self, release: str, context: Context = UNKNOWN) -> Iterator[KeyFact]:
        """Yield every key that a release accepts, including nested keys; `"*"` in a route stands for a list's items."""
        yield from self._walk_places((), self._list_root_places(release, context), release, context, ())

    def list_key_names(self, release: str) -> frozenset[str]:
        """Return the last name, without leading hyphens, of every key that a release accepts."""
        if release not in self._key_names:
            names = (fact.name.lstrip("-").rpartition(".")[2] for fact in self.iterate_keys(release))
            self._key_names[release] = frozenset(names)
        return self._key_names[release]

    def list_mappings(self, release: str, context: Context = UNKNOWN) -> list[Route]:
        """Return the routes of the mappings that have keys at a release, from the root to the deepest."""
        key = (release, context.entry, context.definitions, context.plugins)
        if key not in self._mappings:
            routes = {fact.route[:-1] for fact in self.iterate_keys(release, context)}
            self._mappings[key] = sorted(routes, key=lambda route: (len(route), [str(part) for part in route]))
        return self._mappings[key]

    def _list_root_places(self, release: str, context: Context) -> list[Mapping[str, Any]]:
        if context.definitions is not None:
            return [{"$ref": f"#/$defs/{name}"} for name in context.definitions]
        spans = self.entries.get(context.entry or next(iter(self.entries)), [])
        covering = [span for span in spans if self.is_within(span, self.package, release)] or spans[-1:]
        return [{"$ref": f"#/$defs/{name}"} for name in covering[-1]["definitions"]] if covering else []

    def list_definitions(self, route: Route, release: str, context: Context = UNKNOWN) -> list[str]:
        """Return the definitions whose keys a release accepts below a route."""
        return [place["$ref"][8:] for place in self._find_places(route, release, context) if "$ref" in place]

    def _find_places(self, route: Route, release: str, context: Context) -> list[Mapping[str, Any]]:
        """Return the alternative schemas of the value at a route."""
        if not route:
            return self._list_root_places(release, context)
        key = (route, *self._build_cache_key(release, context))
        if key not in self._places_by_route:
            parents = self._find_places(route[:-1], release, context)
            self._places_by_route[key] = self._list_places_below(parents, route, route[-1], release, context)
        return self._places_by_route[key]

    def find_selection(self, route: Route, release: str, context: Context = UNKNOWN) -> Mapping[str, Any]:
        """Return the settings that select the definition of a list's items at a route, or an empty mapping."""
        places = self._find_places(route, release, context)
        choices = [self._find_choice(place, route, release, context) for place in places]
        return next((choice for choice in choices if choice), {})

    def _find_choice(self, place: Mapping[str, Any], route: Route, release: str, context: Context) -> Mapping[str, Any]:
        """Return the settings that select the definition of `place` for a list's items, or an empty mapping."""
        settings = context.settings or {}
        for choice in self.parse_head(place["$ref"][8:]).get("x-chosen", ()) if "$ref" in place else ():
            is_applicable = choice["at"] == ".".join(map(str, route[:-1])) and is_effective(choice, release)
            if is_applicable and all(settings.get(name) in values for name, values in choice["when"].items()):
                return {name: settings[name] for name in choice["when"]}
        return {}

    def get_cache(self, context: Context) -> dict[Any, Any]:
        """Return a cache for a caller; its answers may only depend on the entry point, selectors and other packages."""
        return self._answers.setdefault(self._build_cache_key("", context), {})

    def _build_cache_key(self, release: str, context: Context) -> tuple[Any, ...]:
        """Return the parts of the release and the context that decide which definitions apply at a route."""
        if context.settings is not self._settings:
            self._settings, settings = context.settings, context.settings or {}
            values = [settings.get(name) for name in self.selectors]
            self._selected = tuple([value if isinstance(value, str) else None for value in values])
        return (release, context.entry, context.definitions, self._selected, *context.releases.items())

    def _list_places_below(
        self, places: list[Mapping[str, Any]], route: Route, part: str | int, release: str, context: Context
    ) -> list[Mapping[str, Any]]:
        """Return the schemas of the values under `part` in mappings or lists with the schemas `places`."""
        if isinstance(part, int) or part == ITEM:
            items = [
                item
                for place in places
                if can_be(place, "array")
                for item in list_alternatives(place.get("items", {}) if "$ref" not in place else {})
            ]
            return [item for item in items if self._find_choice(item, route, release, context)] or items
        return [
            child
            for fact in self._collect_facts(places, route, release, context)
            for child in list_alternatives(fact.get_content_schema())
        ]

    def _collect_facts(
        self, places: list[Mapping[str, Any]], route: Route, release: str, context: Context
    ) -> list[KeyFact]:
        """Return the facts about a name in the definitions among `places`, else in a free mapping among them."""
        spelling = route[-1]
        if not isinstance(spelling, str):
            return []
        facts = []
        free: Mapping[str, Any] | None = None
        for place in places:
            if "$ref" in place:
                definition = place["$ref"][8:]
                name = self.resolve_spelling(definition, spelling, release)
                if name is not None:
                    data = self.parse_key(definition, name)
                    facts.append(KeyFact(self, route, definition, name, data, release, context))
                elif self.get_effect(definition, release) == "kept":
                    free = {}
            elif is_free(place):
                free = place.get("additionalProperties", {})
        if not facts and free is not None:
            facts.append(KeyFact(self, route, "", spelling, {"x-open": True, "x-values": free}, release, context))
        return facts

    def _walk_places(
        self,
        route: Route,
        places: list[Mapping[str, Any]],
        release: str,
        context: Context,
        open_definitions: tuple[str, ...],
    ) -> Iterator[KeyFact]:
        seen_names = set()
        for place in places:
            if "$ref" in place:
                definition = place["$ref"][8:]
                if definition in open_definitions:
                    continue
                for name in self.lines[definition]:
                    data = self.parse_key(definition, name)
                    fact = KeyFact(self, (*route, name), definition, name, data, release, context)
                    if name not in seen_names and fact.resolve_status().kind == PRESENT:
                        seen_names.add(name)
                        yield fact
                        children = list_alternatives(fact.get_content_schema())
                        yield from self._walk_places(
                            (*route, name), children, release, context, (*open_definitions, definition)
                        )
            elif can_be(place, "array") and place.get("items"):
                yield from self._walk_places(
                    (*route, ITEM), list_alternatives(place["items"]), release, context, open_definitions
                )


def _list_accepted_names(fact: KeyFact) -> tuple[str, ...]:
    """Return the names that the fact's release accepts for its key; none if the key is not present."""
    return (fact.name, *fact.list_spellings()) if fact.resolve_status().kind == PRESENT else ()


_cache: dict[str, Vocabulary] = {}


def load(framework: str) -> Vocabulary:
    """Return a framework's vocabulary, cached after the first read; raise KeyError if it has none."""
    if framework not in _cache:
        with open(find_schema_file(framework), encoding="utf-8") as file:
            _cache[framework] = Vocabulary(framework, file.read())
    return _cache[framework]


def find_schema_file(framework: str) -> str:
    """Return the path of a framework's schema file; raise KeyError if the framework has none."""
    paths = (os.path.join(folder, f"{framework}.json") for folder in cfglint_schemas.__path__)
    path = cfglint_schemas.files.get(framework) or next((path for path in paths if os.path.exists(path)), None)
    if path is None:
        raise KeyError(f"{framework} has no vocabulary file")
    return path


def list_vocabularies() -> tuple[str, ...]:
    """Return the names of the frameworks that have a vocabulary."""
    files = (name for folder in cfglint_schemas.__path__ for name in os.listdir(folder))
    shipped = (name.removesuffix(".json") for name in files if name.endswith(".json"))
    return tuple(sorted({*shipped, *cfglint_schemas.files}))
