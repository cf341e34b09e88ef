"""Lenses: one framework setting each, read into the plan and written back.

A framework is a list of lenses. Reading goes through them all and yields a `Reading`; writing hands each changed plan
field to the lens that owns it, which answers with changes of keys; the document turns those into edits. There is no
other way in and none out, so that what a fix writes is by construction what the next run reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from cfglint_train.documents.document import (
    MISSING,
    CannotEdit,
    Change,
    Delete,
    Document,
    Entry,
    Node,
    Route,
    Scalar,
    Set,
    Span,
)
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal, Protocol, TypeVar
from cfglint_train.foundation.versions import ValueByRelease, parse_release
from cfglint_train.frameworks.evidence import ConfigEvidence
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.plan.reading import is_equal
from cfglint_train.plan.releases import Releases

Made = TypeVar("Made")

Role = Literal["main", "companion"]
"""What a configuration is to a run: what it is started with, or a file that another one names."""

Triple = tuple[Field, Any, Origin]
"""A field with its value and where that comes from."""

Changes = Mapping[Field, Any]
"""Fields with their new values."""

Lookup = Callable[[str], Any]
"""The name of a setting -> its value: MISSING if not given, Unknown if it depends on something out of sight."""


class LaunchArgument(Frozen):
    """Where a setting is given that is not under its own key of the file: the word of a launch script (an option's
    value, or what is behind `prefix` in a word), or a misspelt key.
    """

    document: Document
    route: Route
    prefix: str = ""
    misspelt: bool = False
    """It is a key of the file, which takes any value."""

    def build_change(self, value: Any) -> Change:
        """The change that gives the setting another value. Raises CannotEdit for what no argument of a script
        expresses.
        """
        if self.misspelt:
            return Set(self.route, value)
        if value is None or isinstance(value, (dict, list)):
            raise CannotEdit(f"no value in {self.document.path} can state that")
        text = str(value).lower() if isinstance(value, bool) else value
        return Set(self.route, f"{self.prefix}{text}" if self.prefix else text)


class Override(Frozen):
    """A setting that the launch gives from outside the file (`--set`, trailing arguments of a launch script)."""

    value: Any
    origin: Origin
    argument: LaunchArgument | None = None
    """Where a fix changes it; None where none can."""

    def explain_refusal(self, name: str) -> str:
        """Why a fix does not change it, which is called by a name."""
        if self.value is MISSING:
            return f"only what the launch gives ({self.origin.note}) can state {name}: add it there"
        in_file = self.origin.place is not None and self.origin.place.document.syntax == "json"
        return f"{name} is set in {self.origin.note}" if in_file else f"{name} is given at launch ({self.origin.note})"


# A document whose routes are not simply nested mappings.
NO_TOP: Final[dict[str, Entry]] = {}
_NOT_CACHED: Final = object()


class Config:
    """One framework's settings in one document: what a lens reads and writes.

    `root` is the route of its mapping: () for a whole file, ("deepspeed",) for an inline section, (3,) for the third
    invocation of a shell script. `overrides` are laid over the file's own keys. `assumed` says what is assumed where it
    is not certain that the run reads this document, and how to state it; empty where it is.
    """

    __slots__ = (
        "_cache",
        "_overridden_keys",
        "_top_entries",
        "_values",
        "assumption",
        "document",
        "evidence",
        "framework",
        "launch_overrides",
        "launches",
        "overrides",
        "releases",
        "role",
        "root",
    )

    def __init__(
        self,
        framework: str,
        document: Document,
        releases: Releases,
        root: Route = (),
        role: Role = "main",
        overrides: Mapping[Route, Override] | None = None,
        assumption: str = "",
    ) -> None:
        self.framework = framework
        self.document = document
        self.releases = releases
        self.root = root
        self.role = role
        self.overrides = dict(overrides or {})
        self.launch_overrides: tuple[tuple[Route, Override], ...] = ()
        """What each of its launches gives, whether or not the others give it, too."""
        self.launches: tuple[tuple[Document, int], ...] = ()
        """The invocations of scripts that start it, by their numbers."""
        self.evidence = ConfigEvidence()
        """What the repository shows of it: `runs` states it before anything is read."""
        self.assumption = assumption
        self._cache: dict[Callable[[Config], Any], Any] = {}
        self._top_entries: dict[str, Entry] | None = None
        self._overridden_keys: frozenset[str | int] = frozenset()
        self._values: dict[Route, Any] = {}

    @property
    def release(self) -> str:
        """The framework's own release. Raises KeyError where none was settled."""
        return self.releases.by_package[self.framework].version

    def replace(self, document: Document | None = None, overrides: Mapping[Route, Override] | None = None) -> Config:
        """The same configuration with another text, or with other overrides."""
        new_overrides = self.overrides if overrides is None else overrides
        config = Config(self.framework, document or self.document, self.releases, self.root, self.role, new_overrides)
        config.assumption, config.launch_overrides, config.launches = (
            self.assumption,
            self.launch_overrides,
            self.launches,
        )
        config.evidence = self.evidence
        return config

    def replace_release(self, package: str, release: str) -> Config:
        """The same configuration where a package is stated to be at some release."""
        config = self.replace()
        config.releases = self.releases.replace_release(package, release)
        return config

    def compute_once(self, work: Callable[[Config], Made]) -> Made:
        """What some work makes of this configuration, which never changes: done when it is first asked for."""
        if work not in self._cache:
            self._cache[work] = work(self)
        result: Made = self._cache[work]
        return result

    def get_value(self, *route: str | int) -> Any:
        """The plain value of a setting, MISSING where it is not stated."""
        if self._top_entries is None:
            self._top_entries, self._overridden_keys = (
                self._collect_top_entries(),
                frozenset(route[0] for route in self.overrides),
            )
        if (
            self._top_entries is not NO_TOP
            and route
            and route[0] not in self._top_entries
            and route[0] not in self._overridden_keys
        ):
            return MISSING  # most settings of a framework are not stated
        value = self._values.get(route, _NOT_CACHED)
        if value is _NOT_CACHED:
            if self.overrides:
                value = self._apply_overrides(route)
            elif len(route) == 1 and self._top_entries is not NO_TOP:
                value = self.document.build_value(self._top_entries[route[0]].value)  # type: ignore[index]
            else:
                value = self.document.get_value(self.root + route)
            self._values[route] = value
        return value

    def _collect_top_entries(self) -> dict[str, Entry]:
        """The entries at the top of the document; NO_TOP where it states more than they show."""
        if type(self.document).find_node is not Document.find_node:
            return NO_TOP
        node = self.document.find_node(self.root)
        return node.index if isinstance(node, MappingNode) else NO_TOP

    def _apply_overrides(self, route: Route) -> Any:
        """The value under the overrides: the nearest one at or above the route, with those below it laid in."""
        nearest = self.find_override(route)
        if nearest is None:
            value = self.document.get_value(self.root + route)
        else:
            value = self.overrides[nearest].value
            for step in route[len(nearest) :]:
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
        for other, override in self.overrides.items():
            if len(other) > len(route) and other[: len(route)] == route:
                value = _replace_nested(value, other[len(route) :], override.value)
        return value

    def find_override(self, route: Route) -> Route | None:
        """The route of the override that settles a setting: at it, or at a mapping around it."""
        above = (route[:length] for length in range(len(route), 0, -1))
        return next((candidate for candidate in above if candidate in self.overrides), None)

    def get(self, *route: str | int, default: Any = None) -> Any:
        """The plain value of a setting, `default` where it is not stated."""
        value = self.get_value(*route)
        return default if value is MISSING else value

    def has(self, *route: str | int) -> bool:
        """Whether the setting is stated (`key:` without a value is, as null)."""
        return self.get_value(*route) is not MISSING

    def get_entry(self, *route: str | int) -> Entry | None:
        """The entry of a setting in the document."""
        return self.document.find_entry(self.root + route)

    def get_node(self, *route: str | int) -> Node | None:
        """The node of a setting in the document."""
        return self.document.find_node(self.root + route)

    def find_place(self, *route: str | int) -> Place | None:
        """Where a setting stands: key and value where the value is a scalar, else the key."""
        entry = self.get_entry(*route)
        if entry is not None:
            span = entry.span if isinstance(entry.value, Scalar) else entry.key.span
            return Place(self.document, span)
        node = self.get_node(*route)
        return None if node is None else Place(self.document, node.span)

    def format_location(self, *route: str | int) -> str:
        """The file and line of a setting, or of the whole configuration."""
        place = self.find_place(*route) or self.find_top()
        return f"{place.document.path}:{place.document.locate(place.span.start).line}"

    def get_origin(self, *route: str | int) -> Origin:
        """The origin of a stated setting."""
        overridden = self.find_override(route) if self.overrides else None
        if overridden is not None:
            return self.overrides[overridden].origin
        assumed = self.document.get_assumption(self.root + route)
        return Origin("explicit", _SettingPlace(self, route), "", format_route(route), self.framework, assumed)

    def find_top(self) -> Place:
        """Where a finding about the whole configuration points: its first key."""
        node = self.document.find_node(self.root) if self.root else self.document.root
        start = node.span.start if node is not None else 0
        return Place(self.document, Span(start, self.document.find_line_end(start)))


def _replace_nested(value: Any, route: Route, override: Any) -> Any:
    """A plain value with one setting below it replaced."""
    copy = dict(value) if isinstance(value, dict) else {}
    step, rest = route[0], route[1:]
    copy[step] = _replace_nested(copy.get(step), rest, override) if rest else override
    return copy


class _SettingPlace(Place):
    """Where a setting stands, found when needed: a lint reads many settings and points at few."""

    __slots__ = ("config", "route")

    def __init__(self, config: Config, route: Route) -> None:
        super().__init__(config.document, None)
        self.config = config
        self.route = route

    @property
    def span(self) -> Span:
        if self.stored_span is None:
            place = self.config.find_place(*self.route)
            self.stored_span = place.span if place is not None else self.config.find_top().span
        return self.stored_span


def format_route(route: Route) -> str:
    """A route as people write it: `fsdp_config.offload_params`, `datasets[0].path`."""
    if len(route) == 1 and isinstance(route[0], str):
        return route[0]
    text = ""
    for step in route:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class Auto(Frozen):
    """DeepSpeed's "auto": the launcher fills it in; where it does not, DeepSpeed takes `otherwise`."""

    fallback: Any


class Lens(Protocol):
    """One setting (or a few that only make sense together), both ways."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The plan fields that it reads and can write."""

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """The keys that state each field; the first is the one that a new value is written to."""

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """The key that states a field, or would state it; several where it is their sum, none where no key of this
        release does.
        """

    def read(self, config: Config) -> Iterator[Triple]:
        """Field, value and origin of all that the configuration states or the framework takes as default."""

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """The changes of keys that give the fields new values. Raises CannotEdit where no key can."""


def select_pending(lens: Lens, config: Config, changes: Changes) -> dict[Field, Any]:
    """Those of the changes that the configuration does not say already (law: writing a present value is no edit)."""
    present = {field: value for field, value, _ in lens.read(config)}
    return {
        field: value
        for field, value in changes.items()
        if field in lens.fields and (field not in present or not is_equal(present[field], value))
    }


def resolve_default(config: Config, default: Any) -> Any:
    """A default at the configuration's release."""
    return default.get_at(config.release) if isinstance(default, ValueByRelease) else default


def parse_routes(*keys: str) -> tuple[Route, ...]:
    """Return dotted keys as routes."""
    return tuple(tuple(key.split(".")) for key in keys)


def is_before(config: Config, release: str) -> bool:
    """Return whether the run is on an older release of its framework."""
    return parse_release(config.release) < parse_release(release)


def find_origin(config: Config, *keys: str) -> Origin:
    """Return the origin of the first of some dotted keys that is stated, else that of the first one's default."""
    routes = parse_routes(*keys)
    stated = next((route for route in routes if config.get(*route) is not None), None)
    return build_default_origin(config, routes[0]) if stated is None else config.get_origin(*stated)


def build_default_origin(config: Config, route: Route) -> Origin:
    """The origin of a framework's default."""
    return _cache_default_origin(config.framework, config.release, route)


@lru_cache(maxsize=8192)
def _cache_default_origin(framework: str, release: str, route: Route) -> Origin:
    return Origin("default", note=f"{framework} {release}", key=format_route(route), framework=framework)


def refuse_override(config: Config, route: Route) -> None:
    """Raise CannotEdit where the launch, not the file, states a setting, and not in one word."""
    overridden = config.find_override(route)
    if overridden == route and config.overrides[route].argument is not None:
        return  # the change goes there
    if overridden is not None and config.overrides[overridden].origin.kind == "explicit":
        raise CannotEdit(f"{config.overrides[overridden].origin.key} is misspelt; fix its spelling first")
    if overridden is not None:
        raise CannotEdit(config.overrides[overridden].explain_refusal(format_route(overridden)))


def remove_stated(config: Config, *routes: Route) -> list[Change]:
    """Delete those of the settings that are stated."""
    return [
        Delete(config.root + route) for route in routes if config.document.find_entry(config.root + route) is not None
    ]
