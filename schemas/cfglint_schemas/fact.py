"""Facts about a key of a vocabulary at any release: its status, its schema and its replacement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.kinds import ValueKind, list_kinds
from cfglint_schemas.schema_file import SchemaFile, is_effective
from cfglint_schemas.status import PRESENT, UNKNOWN, Context, Route, Status, ValueCase, is_loaded, split_route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release

_ANNOTATIONS: Final = frozenset(("x-releases", "x-status", "x-patched", "x-also"))
# Schema keywords that mark a key as removed or replaced in a release.
_REMOVAL_KEYWORDS: Final = frozenset(("x-removed", "x-replacement"))


class KeyFact:
    """The facts about a key; `Vocabulary.find_fact` creates it."""

    __slots__ = (
        "_context",
        "_data",
        "_kinds",
        "_release",
        "_schemas",
        "_statuses",
        "alternatives",
        "definition",
        "is_open",
        "name",
        "route",
        "spans",
        "valid_spellings",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: KeyFactSource,
        route: Route,
        definition: str,
        name: str,
        data: Mapping[str, Any],
        release: str,
        context: Context,
    ) -> None:
        """Store the key's line of the schema file; `release` and `context` are the defaults of the methods."""
        self.vocabulary = vocabulary
        self.route = route
        self.definition = definition
        self.name = name
        """Name in the schema; the last part of the route may be an alias of it."""
        self.is_open = "x-open" in data
        """True if the key is in a free-form mapping, which accepts every name."""
        self.alternatives: tuple[KeyFact, ...] = ()
        """Facts about the same name in other definitions, if several may apply at a place (the kinds of data sets)."""
        self.valid_spellings: set[tuple[Any, ...]] = set()
        """Cache of valid spellings of values, because many configurations use the same values."""
        self.spans: list[Mapping[str, Any]] = data.get("x-releases", [])
        """Spans of releases that have the key, oldest first."""
        self._data = data
        self._release = release
        self._context = context
        self._statuses: dict[str, Status] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._kinds: dict[str, tuple[ValueKind, ...]] = {}

    def __repr__(self) -> str:
        """Return the framework, the route and the status, for debugging."""
        return f"<{self.vocabulary.framework} {'.'.join(map(str, self.route))} {self.resolve_status().kind}>"

    @property
    def is_deprecated(self) -> bool:
        """True if the key is deprecated at the default release."""
        stated = self._read_patched_status(self._release)
        return bool(self.get_schema().get("deprecated")) or (stated is not None and stated.kind == PRESENT)

    @property
    def is_conditional(self) -> bool:
        """True if the status depends on the configuration: on other keys, or on the plugins that it loads."""
        facts = (self, *self.alternatives)
        return any(fact.needs_other_keys or any("gate" in span for span in fact.spans) for fact in facts)

    @property
    def needs_other_keys(self) -> bool:
        """True if the status depends on other keys of the configuration."""
        return any("needs" in patch for patch in self._data.get("x-status", ()))

    @property
    def first_release(self) -> str | None:
        """First release, of the package that defines the key, with the key; None in a free-form mapping."""
        return self.spans[0]["since"] if self.spans else None

    @property
    def is_unchanged(self) -> bool:
        """True if every known release has the key with the same schema."""
        has_one_span = len(self.spans) == 1 and "x-status" not in self._data
        return has_one_span and self.vocabulary.is_unlimited(self.spans[0])

    @property
    def is_in_all_releases(self) -> bool:
        """True if every known release has the key, even if the accepted values differ."""
        if "x-status" in self._data or "x-also" in self._data or not self._list_spans():
            return False
        spans = self._list_spans()
        package = spans[0].get("package", self.vocabulary.package)
        starts = [self.vocabulary.packages[package][0], *map(self.vocabulary.find_next_release, spans[:-1])]
        return "last" not in spans[-1] and all(
            span["since"] == start
            and span.get("package", self.vocabulary.package) == package
            and _REMOVAL_KEYWORDS.isdisjoint(span.get("schema", self._data))
            for span, start in zip(spans, starts, strict=True)
        )

    @property
    def package(self) -> str:
        """Package that defines the key."""
        package: str = self.spans[-1].get("package", self.vocabulary.package) if self.spans else self.vocabulary.package
        return package

    def resolve_status(self, release: str | None = None) -> Status:
        """Return the status of the key at a release, by default the release of this fact."""
        release = release or self._release
        if release not in self._statuses:
            self._statuses[release] = self._compute_status(release)
        return self._statuses[release]

    def _compute_status(self, release: str) -> Status:
        if self.is_open:
            return Status(PRESENT)
        patched = self._read_patched_status(release)
        if patched is not None and patched.kind not in ("gated", PRESENT):
            return patched
        span = self._find_span(release)
        if span is None:
            return self._infer_absence(release)
        schema = self._build_schema(span, release) if "x-also" in self._data else span.get("schema", self._data)
        if "x-removed" in schema:
            return Status("removed", span["since"], effect=schema["x-removed"])
        if "x-replacement" in schema:
            replacements = tuple(self._resolve_name(f"./{name}") for name in schema["x-replacement"])
            return Status(
                "renamed", span["since"], replacements, "mapped" if schema.get("x-carried", True) else "warning"
            )
        plugins = tuple(span.get("gate", {}).get("plugins", ()))
        if plugins and self._context.plugins is not None and not is_loaded(self._context.plugins, plugins):
            effect = self.vocabulary.get_effect(self.definition, release)
            return Status("gated", span["since"], effect=effect, plugins=plugins)
        if patched is not None and (patched.kind == PRESENT or self._is_unmet(patched.needs, release)):
            return patched
        return Status(PRESENT, self.first_release, plugins=plugins)

    def get_schema(self, release: str | None = None) -> Mapping[str, Any]:
        """Return the key's JSON Schema at a release.

        If the release does not have the key, use the last earlier release that has it, or else the first one.
        """
        release = release or self._release
        if release not in self._schemas:
            self._schemas[release] = (
                self._build_schema(self._find_span(release) or self._find_nearest_span(release), release)
                if self.spans
                else {word: value for word, value in self._data.items() if not word.startswith("x-")}
            )
        return self._schemas[release]

    def list_kinds(self, release: str | None = None) -> tuple[ValueKind, ...]:
        """Return the kinds of values that the key accepts at a release, in any definition that may apply."""
        release = release or self._release
        if release not in self._kinds:
            kinds = list(list_kinds(self.get_schema(release)))
            for other in self.alternatives:
                if other.resolve_status(release).kind == PRESENT:
                    kinds.extend(kind for kind in list_kinds(other.get_schema(release)) if kind not in kinds)
            self._kinds[release] = tuple(kinds)
        return self._kinds[release]

    def get_default(self, release: str | None = None) -> Any:
        """Return the default at a release; raise KeyError if there is none or the framework computes it at run time."""
        return self.get_schema(release)["default"]

    def list_spellings(self) -> tuple[str, ...]:
        """Return the other names that the default release accepts for the key: aliases and prefixed names."""
        names = [alias for span in self._find_spans(self._release) for alias in span.get("aliases", ())]
        names += [prefix + self.name for prefix in self.vocabulary.list_prefixes(self.definition, self._release)]
        return tuple(dict.fromkeys(names))

    def get_content_schema(self) -> Mapping[str, Any]:
        """Return the schema that describes the keys or items below this key."""
        if self.is_open:
            values: Mapping[str, Any] = self._data["x-values"]
            return values
        return self.get_schema()

    def _build_schema(self, span: Mapping[str, Any], release: str) -> Mapping[str, Any]:
        schema: Mapping[str, Any] | None = span.get("schema")
        if schema is None:
            schema = {word: value for word, value in self._data.items() if word not in _ANNOTATIONS}
        for overlay in self._data.get("x-also", ()):
            if is_effective(overlay, release):
                schema = {**schema, **overlay["schema"]}
        return schema

    def _find_spans(self, release: str) -> Iterator[Mapping[str, Any]]:
        for span in reversed(self._list_spans()):
            package = span.get("package", self.vocabulary.package)
            installed = release if package == self.vocabulary.package else self._context.releases.get(package)
            # If the release of the package is unknown, a key counts as present if any release has it.
            if installed is None or self.vocabulary.is_within(span, package, installed):
                yield span

    def _list_spans(self) -> list[Mapping[str, Any]]:
        """Return the spans in which the route's last name is an alias of the key, or all spans if it never is."""
        spelling = self.route[-1]
        aliased = [span for span in self.spans if spelling in span.get("aliases", ())]
        return aliased or self.spans

    def _find_span(self, release: str) -> Mapping[str, Any] | None:
        return next(self._find_spans(release), None)

    def _find_nearest_span(self, release: str) -> Mapping[str, Any]:
        key = parse_release(release)
        older = [
            span
            for span in self.spans
            if span.get("package", self.vocabulary.package) == self.vocabulary.package
            and parse_release(span["since"]) <= key
        ]
        return older[-1] if older else self.spans[0]

    def _infer_absence(self, release: str) -> Status:
        effect = self.vocabulary.get_effect(self.definition, release)
        main_package = self.vocabulary.package
        later: list[Mapping[str, Any]] = []
        earlier: list[Mapping[str, Any]] = []
        for span in self._list_spans():
            package = span.get("package", main_package)
            installed = release if package == main_package else self._context.releases.get(package, release)
            (later if parse_release(span["since"]) > parse_release(installed) else earlier).append(span)
        if earlier:
            return Status("removed", self.vocabulary.find_next_release(earlier[-1]), effect=effect)
        return Status("not yet", later[0]["since"], effect=effect) if later else Status("removed", effect=effect)

    def _find_patch(self, release: str) -> Mapping[str, Any] | None:
        """Return the patch that applies to the key at a release, or None."""
        for item in reversed(self._data.get("x-status", ())):
            package = item.get("package", self.vocabulary.package)
            installed = release if package == self.vocabulary.package else self._context.releases.get(package)
            if installed is not None and is_effective(item, installed):
                patch: Mapping[str, Any] = item
                return patch
        return None

    def _read_patched_status(self, release: str) -> Status | None:
        """Return the status that a patch states at a release, with the new names valid at that release, or None."""
        patch = self._find_patch(release)
        if patch is None:
            return None
        return Status(
            {"requires": "gated", "deprecated": PRESENT}.get(patch["kind"], patch["kind"]),
            patch["since"],
            tuple(self._follow_renames(dict.fromkeys(patch.get("to", ())), release, by_value=False)),
            patch.get("effect"),
            needs=patch.get("needs", {}),
            cases=self._read_cases(patch, release),
            required_values=self._follow_renames(patch.get("also", {}), release),
            addends=tuple(self._resolve_name(name) for name in patch.get("sums", ())),
            reason=patch.get("because"),
        )

    def _read_cases(self, patch: Mapping[str, Any], release: str) -> tuple[ValueCase, ...]:
        """Return the replacement for each old value.

        If the new name was renamed again, its own patch may state the cases.
        """
        if "cases" in patch:
            return tuple(ValueCase(case["when"], self._follow_renames(case["set"], release)) for case in patch["cases"])
        if patch["kind"] == "renamed" and len(patch.get("to", ())) == 1:
            successor = self._find_named_fact(patch["to"][0], release)
            next_patch = successor._find_patch(release) if successor else None
            if successor and next_patch:
                return successor._read_cases(next_patch, release)
        return ()

    def _follow_renames(self, values: Mapping[str, Any], release: str, by_value: bool = True) -> dict[str, Any]:
        """Return keys and values after all renames up to a release; `by_value` also translates the values."""
        final: dict[str, Any] = {}
        for name, value in values.items():
            successor = self._find_named_fact(name, release)
            next_patch = successor._find_patch(release) if successor else None
            if successor is None or next_patch is None or next_patch["kind"] != "renamed":
                final[self._resolve_name(name)] = value
            elif by_value and "cases" in next_patch:
                matching = [case["set"] for case in next_patch["cases"] if case["when"] == value]
                final.update(successor._follow_renames(matching[0], release) if matching else {})
            else:
                final.update(successor._follow_renames(dict.fromkeys(next_patch["to"], value), release, by_value))
        return final

    def _find_named_fact(self, name: str, release: str) -> KeyFact | None:
        """Return the fact about a key that this key's patch names, or None if that is this key or an unknown key."""
        route = split_route(self._resolve_name(name))
        if route == self.route:
            return None
        fact = self.vocabulary.find_fact(route, release, self._context)
        # If this entry point lacks the key, look in the default entry point.
        return fact or self.vocabulary.find_fact(route, release, self._context._replace(entry=None))

    def _resolve_name(self, name: str) -> str:
        """Return the dotted route of a name in a schema: `./name` is a sibling, other names start at the root."""
        if not name.startswith("./"):
            return name
        return ".".join((*map(str, self.route[:-1]), name[2:]))

    def _is_unmet(self, needs: Mapping[str, Any], release: str) -> bool:
        """Return whether the configuration is known and does not meet the needs of the key."""
        settings = self._context.settings
        if settings is None:
            return False
        for name, values in needs.items():
            if name in settings:
                value = settings[name]
            else:
                other = self.vocabulary.find_fact((name,), release, self._context)
                value = None if other is None else other.get_schema().get("default")
            if not value if values is True else value not in values:
                return True
        return False


class KeyFactSource(SchemaFile):
    """A schema file that can look up facts; a fact uses it to find the keys that its patches name."""

    __slots__ = ()

    def find_fact(self, route: Route, release: str, context: Context = UNKNOWN) -> KeyFact | None:
        """Return the fact about a key, or None if no release has the name at that place."""
        raise NotImplementedError
