"""What is known of one setting, at any release: its status, its schema, and what took its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_schemas.kinds import Kind, kinds_of
from cfglint_schemas.schema_file import SchemaFile, reaches
from cfglint_schemas.status import PRESENT, UNKNOWN, Case, Context, Route, Status, is_loaded, parts_of
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key

_OURS: Final = frozenset(("x-releases", "x-status", "x-patched", "x-also"))
# Words of a schema by which a release takes a setting for one that is gone.
_GONE: Final = frozenset(("x-removed", "x-replacement"))


class Fact:
    """What is known of one setting; made by `Vocabulary.fact`."""

    __slots__ = (
        "_context",
        "_data",
        "_kinds",
        "_release",
        "_schemas",
        "_statuses",
        "definition",
        "fitting",
        "name",
        "open",
        "others",
        "route",
        "spans",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: FactSource,
        route: Route,
        definition: str,
        name: str,
        data: Mapping[str, Any],
        release: str,
        context: Context,
    ) -> None:
        self.vocabulary = vocabulary
        self.route = route
        self.definition = definition
        self.name = name
        """The name as the schema has it; the route's last part may be an alias of it."""
        self.open = "x-open" in data
        """The setting is in a free mapping, where every name goes."""
        self.others: tuple[Fact, ...] = ()
        """What other definitions say of the same name, where a place follows several (the kinds of data sets)."""
        self.fitting: set[tuple[Any, ...]] = set()
        """Spellings of values that were found to fit: many configurations give the same ones."""
        self.spans: list[Mapping[str, Any]] = data.get("x-releases", [])
        """The stretches of releases in which the setting exists, oldest first."""
        self._data = data
        self._release = release
        self._context = context
        self._statuses: dict[str, Status] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._kinds: dict[str, tuple[Kind, ...]] = {}

    def __repr__(self) -> str:
        return f"<{self.vocabulary.framework} {'.'.join(map(str, self.route))} {self.status().kind}>"

    @property
    def deprecated(self) -> bool:
        """Whether the setting is on its way out at the release that was asked for."""
        stated = self._stated(self._release)
        return bool(self.schema().get("deprecated")) or (stated is not None and stated.kind == PRESENT)

    @property
    def conditional(self) -> bool:
        """Whether the configuration decides what the setting is: other settings of it, or the plugins that it loads."""
        alike = (self, *self.others)
        return any(fact.needs_others or any("gate" in span for span in fact.spans) for fact in alike)

    @property
    def needs_others(self) -> bool:
        """Whether other settings of the configuration decide what the setting is."""
        return any("needs" in stated for stated in self._data.get("x-status", ()))

    @property
    def first(self) -> str | None:
        """The first release that has the setting (of the package that brings it); None in a free mapping."""
        return self.spans[0]["since"] if self.spans else None

    @property
    def lasting(self) -> bool:
        """Whether every known release has the setting as it is."""
        alone = len(self.spans) == 1 and "x-status" not in self._data
        return alone and self.vocabulary.lasts(self.spans[0])

    @property
    def steady(self) -> bool:
        """Whether every known release has the setting, whatever values it takes there."""
        if "x-status" in self._data or "x-also" in self._data or not self._spelled():
            return False
        spans = self._spelled()
        package = spans[0].get("package", self.vocabulary.package)
        starts = [self.vocabulary.packages[package][0], *map(self.vocabulary.after, spans[:-1])]
        return "last" not in spans[-1] and all(
            span["since"] == start
            and span.get("package", self.vocabulary.package) == package
            and _GONE.isdisjoint(span.get("schema", self._data))
            for span, start in zip(spans, starts, strict=True)
        )

    @property
    def package(self) -> str:
        """The package that brings the setting."""
        package: str = self.spans[-1].get("package", self.vocabulary.package) if self.spans else self.vocabulary.package
        return package

    def status(self, release: str | None = None) -> Status:
        """What the setting is at a release (the one that the fact was asked for, unless another is given)."""
        release = release or self._release
        if release not in self._statuses:
            self._statuses[release] = self._status(release)
        return self._statuses[release]

    def _status(self, release: str) -> Status:
        if self.open:
            return Status(PRESENT)
        stated = self._stated(release)
        if stated is not None and stated.kind not in ("gated", PRESENT):
            return stated
        span = self._span(release)
        if span is None:
            return self._absent(release)
        schema = self._schema_of(span, release) if "x-also" in self._data else span.get("schema", self._data)
        if "x-removed" in schema:
            return Status("removed", span["since"], effect=schema["x-removed"])
        if "x-replacement" in schema:
            to = tuple(self._target(f"./{name}") for name in schema["x-replacement"])
            return Status("renamed", span["since"], to, "mapped" if schema.get("x-carried", True) else "warning")
        plugins = tuple(span.get("gate", {}).get("plugins", ()))
        if plugins and self._context.plugins is not None and not is_loaded(self._context.plugins, plugins):
            effect = self.vocabulary.effect_in(self.definition, release)
            return Status("gated", span["since"], effect=effect, plugins=plugins)
        if stated is not None and (stated.kind == PRESENT or self._lacks(stated.needs, release)):
            return stated
        return Status(PRESENT, self.first, plugins=plugins)

    def schema(self, release: str | None = None) -> Mapping[str, Any]:
        """The setting's JSON Schema at a release; where it does not exist there, as its nearest release has it."""
        release = release or self._release
        if release not in self._schemas:
            self._schemas[release] = (
                self._schema_of(self._span(release) or self._nearest(release), release)
                if self.spans
                else {word: value for word, value in self._data.items() if not word.startswith("x-")}
            )
        return self._schemas[release]

    def kinds(self, release: str | None = None) -> tuple[Kind, ...]:
        """What a value may be at a release, by any definition that the place follows."""
        release = release or self._release
        if release not in self._kinds:
            found = list(kinds_of(self.schema(release)))
            for other in self.others:
                if other.status(release).kind == PRESENT:
                    found.extend(kind for kind in kinds_of(other.schema(release)) if kind not in found)
            self._kinds[release] = tuple(found)
        return self._kinds[release]

    def default(self, release: str | None = None) -> Any:
        """The default at a release. Raises KeyError where there is none or where it is computed at run time."""
        return self.schema(release)["default"]

    def spellings(self) -> tuple[str, ...]:
        """The other names under which the setting can be given at the release that was asked for."""
        found = [alias for span in self._covering(self._release) for alias in span.get("aliases", ())]
        found += [prefix + self.name for prefix in self.vocabulary.prefixes(self.definition, self._release)]
        return tuple(dict.fromkeys(found))

    def contents(self) -> Mapping[str, Any]:
        """The schema that the setting's own keys or items follow."""
        if self.open:
            free: Mapping[str, Any] = self._data["x-values"]
            return free
        return self.schema()

    def _schema_of(self, span: Mapping[str, Any], release: str) -> Mapping[str, Any]:
        schema: Mapping[str, Any] | None = span.get("schema")
        if schema is None:
            schema = {word: value for word, value in self._data.items() if word not in _OURS}
        for also in self._data.get("x-also", ()):
            if reaches(also, release):
                schema = {**schema, **also["schema"]}
        return schema

    def _covering(self, release: str) -> Iterator[Mapping[str, Any]]:
        for span in reversed(self._spelled()):
            package = span.get("package", self.vocabulary.package)
            at = release if package == self.vocabulary.package else self._context.releases.get(package)
            # A package of unknown release could be any: what one of its releases has is not missing.
            if at is None or self.vocabulary.within(span, package, at):
                yield span

    def _spelled(self) -> list[Mapping[str, Any]]:
        """The stretches in which the setting goes by the name that the route gives it."""
        spelled = self.route[-1]
        aliased = [span for span in self.spans if spelled in span.get("aliases", ())]
        return aliased or self.spans

    def _span(self, release: str) -> Mapping[str, Any] | None:
        return next(self._covering(release), None)

    def _nearest(self, release: str) -> Mapping[str, Any]:
        key = release_key(release)
        older = [
            span
            for span in self.spans
            if span.get("package", self.vocabulary.package) == self.vocabulary.package
            and release_key(span["since"]) <= key
        ]
        return older[-1] if older else self.spans[0]

    def _absent(self, release: str) -> Status:
        effect = self.vocabulary.effect_in(self.definition, release)
        own = self.vocabulary.package
        ahead: list[Mapping[str, Any]] = []
        behind: list[Mapping[str, Any]] = []
        for span in self._spelled():
            package = span.get("package", own)
            at = release if package == own else self._context.releases.get(package, release)
            (ahead if release_key(span["since"]) > release_key(at) else behind).append(span)
        if behind:
            return Status("removed", self.vocabulary.after(behind[-1]), effect=effect)
        return Status("not yet", ahead[0]["since"], effect=effect) if ahead else Status("removed", effect=effect)

    def _active(self, release: str) -> Mapping[str, Any] | None:
        """The patch about the setting at a release."""
        for stated in reversed(self._data.get("x-status", ())):
            package = stated.get("package", self.vocabulary.package)
            at = release if package == self.vocabulary.package else self._context.releases.get(package)
            if at is not None and reaches(stated, at):
                found: Mapping[str, Any] = stated
                return found
        return None

    def _stated(self, release: str) -> Status | None:
        """What a patch says of the setting at a release; new names are those of that release."""
        stated = self._active(release)
        if stated is None:
            return None
        return Status(
            {"requires": "gated", "deprecated": PRESENT}.get(stated["kind"], stated["kind"]),
            stated["since"],
            tuple(self._carried(dict.fromkeys(stated.get("to", ())), release, by_value=False)),
            stated.get("effect"),
            needs=stated.get("needs", {}),
            cases=self._cases(stated, release),
            also=self._carried(stated.get("also", {}), release),
            sums=tuple(self._target(name) for name in stated.get("sums", ())),
            because=stated.get("because"),
        )

    def _cases(self, stated: Mapping[str, Any], release: str) -> tuple[Case, ...]:
        """What each old value becomes; a new name that was renamed in turn may state it."""
        if "cases" in stated:
            return tuple(Case(case["when"], self._carried(case["set"], release)) for case in stated["cases"])
        if stated["kind"] == "renamed" and len(stated.get("to", ())) == 1:
            heir = self._named(stated["to"][0], release)
            following = heir._active(release) if heir else None
            if heir and following:
                return heir._cases(following, release)
        return ()

    def _carried(self, values: Mapping[str, Any], release: str, by_value: bool = True) -> dict[str, Any]:
        """Settings with their values, as they are after the renames that came later."""
        final: dict[str, Any] = {}
        for name, value in values.items():
            heir = self._named(name, release)
            following = heir._active(release) if heir else None
            if heir is None or following is None or following["kind"] != "renamed":
                final[self._target(name)] = value
            elif by_value and "cases" in following:
                matching = [case["set"] for case in following["cases"] if case["when"] == value]
                final.update(heir._carried(matching[0], release) if matching else {})
            else:
                final.update(heir._carried(dict.fromkeys(following["to"], value), release, by_value))
        return final

    def _named(self, name: str, release: str) -> Fact | None:
        """The fact of a setting that this one's patch names, unless that is this one."""
        route = parts_of(self._target(name))
        if route == self.route:
            return None
        found = self.vocabulary.fact(route, release, self._context)
        # Names that are not at home in this entry point are those of the usual one.
        return found or self.vocabulary.fact(route, release, self._context._replace(entry=None))

    def _target(self, name: str) -> str:
        """A setting that a schema names: `./name` is a sibling, everything else counts from the root."""
        if not name.startswith("./"):
            return name
        return ".".join((*map(str, self.route[:-1]), name[2:]))

    def _lacks(self, needs: Mapping[str, Any], release: str) -> bool:
        """Whether a configuration that is known does not have what the setting needs."""
        settings = self._context.settings
        if settings is None:
            return False
        for name, wanted in needs.items():
            if name in settings:
                value = settings[name]
            else:
                other = self.vocabulary.fact((name,), release, self._context)
                value = None if other is None else other.schema().get("default")
            if not value if wanted is True else value not in wanted:
                return True
        return False


class FactSource(SchemaFile):
    """A schema file that answers for its settings: a fact asks it for those that it names."""

    __slots__ = ()

    def fact(self, route: Route, release: str, context: Context = UNKNOWN) -> Fact | None:
        """What is known of a setting; None where no release has its name at that place."""
        raise NotImplementedError
