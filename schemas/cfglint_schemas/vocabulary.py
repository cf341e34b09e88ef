"""The vocabulary of a framework, by release: which settings exist, since when, and what becomes of the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import cfglint_schemas
from cfglint_schemas.fact import Fact, FactSource
from cfglint_schemas.kinds import alternatives, is_free, may_be
from cfglint_schemas.schema_file import reaches
from cfglint_schemas.status import ITEM, PRESENT, RANKS, UNKNOWN, Context, Route
from cfglint_train.foundation.typed import Any


class Vocabulary(FactSource):
    """One framework's settings in every release that its schema covers."""

    __slots__ = ("_answers", "_held", "_known", "_mappings", "_names", "_settled")

    def __init__(self, framework: str, text: str) -> None:
        super().__init__(framework, text)
        self._mappings: dict[tuple[Any, ...], list[Route]] = {}
        self._known: dict[tuple[Any, ...], dict[str | int, Fact | None]] = {}
        self._names: dict[tuple[Any, ...], tuple[list[str], list[tuple[str, str]]]] = {}
        """The names that can be given whatever the configuration states, and the settings that need others."""
        self._settled: dict[tuple[Any, ...], list[str]] = {}
        """All names that can be given, by what the configuration states of those others."""
        self._held: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        self._answers: dict[tuple[Any, ...], dict[Any, Any]] = {}

    def fact(self, route: Route, release: str, context: Context = UNKNOWN) -> Fact | None:
        """What is known of a setting; None where no release has its name at that place.

        `route` holds keys from the configuration's root, with list indices as integers or `"*"`. Releases that are
        not known count as the newest known one before them. Raises ValueError for text that is no release.
        """
        return self.facts(route[:-1], route[-1:], release, context)[0] if route else None

    def facts(
        self, parent: Route, names: Iterable[str | int], release: str, context: Context = UNKNOWN
    ) -> list[Fact | None]:
        """What is known of several settings of one mapping."""
        known = self._known.setdefault((parent, *self._decisive(release, context)), {})
        found = []
        for name in names:
            if name in known:
                fact = known[name]
            else:
                fact = self._fact((*parent, name), release, context)
                if fact is None or not fact.conditional:
                    known[name] = fact
            found.append(fact)
        return found

    def _fact(self, route: Route, release: str, context: Context) -> Fact | None:
        found = self._facts(self._places(route[:-1], release, context), route, release, context)
        if len(found) < 2:
            return found[0] if found else None
        found.sort(key=lambda fact: RANKS[fact.status().kind])
        found[0].others = tuple(found[1:])
        return found[0]

    def facts_of(self, definition: str, release: str, context: Context = UNKNOWN) -> Iterator[Fact]:
        """Every setting of a definition, whatever its status; routes count from the definition."""
        for name in self.lines[definition]:
            yield Fact(self, (name,), definition, name, self.setting(definition, name), release, context)

    def names(self, parent: Route, release: str, context: Context = UNKNOWN) -> list[str]:
        """The settings that can be given below a route at a release, other spellings included, sorted.

        Settings of plugins that are not loaded are left out, as are renamed, removed and ignored ones.
        """
        definitions = self.definitions(parent, release, context)
        key = (*definitions, release, context.plugins, *context.releases.items())
        if key not in self._names:
            free: set[str] = set()
            needing: list[tuple[str, str]] = []
            for definition in definitions:
                for fact in self.facts_of(definition, release, context):
                    if fact.needs_others:
                        needing.append((definition, fact.name))
                    else:
                        free.update(_givable(fact))
            self._names[key] = sorted(free), needing
        known, needing = self._names[key]
        if not needing:
            return known
        settled = (*key, self._needed(needing, context))
        if settled not in self._settled:
            asked = (
                Fact(self, (name,), definition, name, self.setting(definition, name), release, context)
                for definition, name in needing
            )
            self._settled[settled] = sorted({*known, *(name for fact in asked for name in _givable(fact))})
        return self._settled[settled]

    def _needed(self, needing: list[tuple[str, str]], context: Context) -> tuple[str, ...] | None:
        """What a configuration has of the settings that decide about others, as text; None where it is unknown."""
        if context.settings is None:
            return None
        stated = (one for definition, name in needing for one in self.setting(definition, name)["x-status"])
        others = sorted({other for one in stated for other in one.get("needs", ())})
        return tuple(f"{other}={context.settings[other]!r}" for other in others if other in context.settings)

    def effect(self, parent: Route, release: str, context: Context = UNKNOWN) -> str:
        """What becomes of an unknown name below a route: dropped, error, warning, or kept (every name goes)."""
        effects = [self.effect_in(name, release) for name in self.definitions(parent, release, context)]
        return min(effects, key=("kept", "dropped", "warning", "error").index) if effects else "kept"

    def is_open(self, parent: Route, release: str, context: Context = UNKNOWN) -> bool:
        """Whether a route is a free mapping, so that nothing below it can be unknown."""
        return any(is_free(place) for place in self._places(parent, release, context))

    def walk(self, release: str, context: Context = UNKNOWN) -> Iterator[Fact]:
        """Every setting that can be given at a release, nested ones included; items of lists as `"*"`."""
        yield from self._walk((), self._root(release, context), release, context, ())

    def mappings(self, release: str, context: Context = UNKNOWN) -> list[Route]:
        """The places that have settings of their own at a release, the root first and the deepest last."""
        key = (release, context.entry, context.plugins)
        if key not in self._mappings:
            found = {fact.route[:-1] for fact in self.walk(release, context)}
            self._mappings[key] = sorted(found, key=lambda route: (len(route), [str(part) for part in route]))
        return self._mappings[key]

    def _root(self, release: str, context: Context) -> list[Mapping[str, Any]]:
        spans = self.entries.get(context.entry or next(iter(self.entries)), [])
        held = [span for span in spans if self.within(span, self.package, release)] or spans[-1:]
        return [{"$ref": f"#/$defs/{name}"} for name in held[-1]["definitions"]] if held else []

    def definitions(self, route: Route, release: str, context: Context = UNKNOWN) -> list[str]:
        """The definitions whose settings can be given below a route at a release."""
        return [place["$ref"][8:] for place in self._places(route, release, context) if "$ref" in place]

    def _places(self, route: Route, release: str, context: Context) -> list[Mapping[str, Any]]:
        """The schemas of what may be at a route."""
        if not route:
            return self._root(release, context)
        key = (route, *self._decisive(release, context))
        if key not in self._held:
            above = self._places(route[:-1], release, context)
            self._held[key] = self._below(above, route, route[-1], release, context)
        return self._held[key]

    def chosen(self, route: Route, release: str, context: Context = UNKNOWN) -> Mapping[str, Any]:
        """The settings, with their values, by which the framework chose what an item of a list is; else empty."""
        places = self._places(route, release, context)
        choices = [self._choice(place, route, release, context) for place in places]
        return next((choice for choice in choices if choice), {})

    def _choice(self, place: Mapping[str, Any], route: Route, release: str, context: Context) -> Mapping[str, Any]:
        """The settings that make the items of a list this one of several definitions, with their values."""
        settings = context.settings or {}
        for choice in self.head(place["$ref"][8:]).get("x-chosen", ()) if "$ref" in place else ():
            here = choice["at"] == ".".join(map(str, route[:-1])) and reaches(choice, release)
            if here and all(settings.get(name) in values for name, values in choice["when"].items()):
                return {name: settings[name] for name in choice["when"]}
        return {}

    def answers(self, context: Context) -> dict[Any, Any]:
        """Where a caller keeps what it asked of settings that depend on nothing else in the context."""
        return self._answers.setdefault(self._decisive("", context), {})

    def _decisive(self, release: str, context: Context) -> tuple[Any, ...]:
        """What the settings of a place depend on."""
        settings, choosing = context.settings or {}, self.choosing
        chosen = tuple([value if isinstance(value := settings.get(name), str) else None for name in choosing])
        return (release, context.entry, chosen, *context.releases.items())

    def _below(
        self, places: list[Mapping[str, Any]], route: Route, part: str | int, release: str, context: Context
    ) -> list[Mapping[str, Any]]:
        """The schemas that stand one step below some schemas."""
        if isinstance(part, int) or part == ITEM:
            items = [
                item
                for place in places
                if may_be(place, "array")
                for item in alternatives(place.get("items", {}) if "$ref" not in place else {})
            ]
            return [item for item in items if self._choice(item, route, release, context)] or items
        return [
            child for fact in self._facts(places, route, release, context) for child in alternatives(fact.contents())
        ]

    def _facts(self, places: list[Mapping[str, Any]], route: Route, release: str, context: Context) -> list[Fact]:
        """What the definitions among some schemas know of a name; what free mappings make of it, if none does."""
        spelled = route[-1]
        if not isinstance(spelled, str):
            return []
        found = []
        free: Mapping[str, Any] | None = None
        for place in places:
            if "$ref" in place:
                definition = place["$ref"][8:]
                name = self.canonical(definition, spelled, release)
                if name is not None:
                    data = self.setting(definition, name)
                    found.append(Fact(self, route, definition, name, data, release, context))
                elif self.effect_in(definition, release) == "kept":
                    free = {}
            elif is_free(place):
                free = place.get("additionalProperties", {})
        if not found and free is not None:
            found.append(Fact(self, route, "", spelled, {"x-open": True, "x-values": free}, release, context))
        return found

    def _walk(
        self,
        route: Route,
        places: list[Mapping[str, Any]],
        release: str,
        context: Context,
        inside: tuple[str, ...],
    ) -> Iterator[Fact]:
        seen = set()
        for place in places:
            if "$ref" in place:
                definition = place["$ref"][8:]
                if definition in inside:
                    continue
                for name in self.lines[definition]:
                    data = self.setting(definition, name)
                    fact = Fact(self, (*route, name), definition, name, data, release, context)
                    if name not in seen and fact.status().kind == PRESENT:
                        seen.add(name)
                        yield fact
                        below = alternatives(fact.contents())
                        yield from self._walk((*route, name), below, release, context, (*inside, definition))
            elif may_be(place, "array") and place.get("items"):
                yield from self._walk((*route, ITEM), alternatives(place["items"]), release, context, inside)


def _givable(fact: Fact) -> tuple[str, ...]:
    """The names under which a setting can be given at the release that it was asked for."""
    return (fact.name, *fact.spellings()) if fact.status().kind == PRESENT else ()


_loaded: dict[str, Vocabulary] = {}


def load(framework: str) -> Vocabulary:
    """A framework's vocabulary; it is read once. Raises KeyError for a framework that has none."""
    if framework not in _loaded:
        with open(path_of(framework), encoding="utf-8") as file:
            _loaded[framework] = Vocabulary(framework, file.read())
    return _loaded[framework]


def path_of(framework: str) -> str:
    """The schema file of a framework. Raises KeyError for a framework that has none."""
    paths = (os.path.join(folder, f"{framework}.json") for folder in cfglint_schemas.__path__)
    path = cfglint_schemas.files.get(framework) or next((path for path in paths if os.path.exists(path)), None)
    if path is None:
        raise KeyError(f"{framework} has no vocabulary file")
    return path


def vocabularies() -> tuple[str, ...]:
    """The frameworks that have a vocabulary."""
    found = (name for folder in cfglint_schemas.__path__ for name in os.listdir(folder))
    shipped = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return tuple(sorted({*shipped, *cfglint_schemas.files}))
