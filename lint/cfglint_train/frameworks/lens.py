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
from cfglint_train.foundation.versions import Since, release_key
from cfglint_train.frameworks.evidence import ConfigEvidence
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.plan.reading import same
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

    def change(self, value: Any) -> Change:
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
    given: LaunchArgument | None = None
    """Where a fix changes it; None where none can."""

    def refusal(self, name: str) -> str:
        """Why a fix does not change it, which is called by a name."""
        if self.value is MISSING:
            return f"only what the launch gives ({self.origin.note}) can state {name}: add it there"
        in_file = self.origin.place is not None and self.origin.place.document.syntax == "json"
        return f"{name} is set in {self.origin.note}" if in_file else f"{name} is given at launch ({self.origin.note})"


# A document whose routes are not simply nested mappings.
NO_TOP: Final[dict[str, Entry]] = {}
_UNASKED: Final = object()


class Config:
    """One framework's settings in one document: what a lens reads and writes.

    `root` is the route of its mapping: () for a whole file, ("deepspeed",) for an inline section, (3,) for the third
    invocation of a shell script. `overrides` are laid over the file's own keys. `assumed` says what is assumed where it
    is not certain that the run reads this document, and how to state it; empty where it is.
    """

    __slots__ = (
        "_given",
        "_made",
        "_top",
        "_values",
        "assumed",
        "document",
        "evidence",
        "framework",
        "launched",
        "overrides",
        "releases",
        "role",
        "root",
        "starts",
    )

    def __init__(
        self,
        framework: str,
        document: Document,
        releases: Releases,
        root: Route = (),
        role: Role = "main",
        overrides: Mapping[Route, Override] | None = None,
        assumed: str = "",
    ) -> None:
        self.framework = framework
        self.document = document
        self.releases = releases
        self.root = root
        self.role = role
        self.overrides = dict(overrides or {})
        self.launched: tuple[tuple[Route, Override], ...] = ()
        """What each of its launches gives, whether or not the others give it, too."""
        self.starts: tuple[tuple[Document, int], ...] = ()
        """The invocations of scripts that start it, by their numbers."""
        self.evidence = ConfigEvidence()
        """What the repository shows of it: `runs` states it before anything is read."""
        self.assumed = assumed
        self._made: dict[Callable[[Config], Any], Any] = {}
        self._top: dict[str, Entry] | None = None
        self._given: frozenset[str | int] = frozenset()
        self._values: dict[Route, Any] = {}

    @property
    def release(self) -> str:
        """The framework's own release. Raises KeyError where none was settled."""
        return self.releases.known[self.framework].version

    def altered(self, document: Document | None = None, overrides: Mapping[Route, Override] | None = None) -> Config:
        """The same configuration with another text, or with other overrides."""
        laid = self.overrides if overrides is None else overrides
        config = Config(self.framework, document or self.document, self.releases, self.root, self.role, laid)
        config.assumed, config.launched, config.starts = self.assumed, self.launched, self.starts
        config.evidence = self.evidence
        return config

    def at(self, package: str, release: str) -> Config:
        """The same configuration where a package is stated to be at some release."""
        config = self.altered()
        config.releases = self.releases.at(package, release)
        return config

    def once(self, work: Callable[[Config], Made]) -> Made:
        """What some work makes of this configuration, which never changes: done when it is first asked for."""
        if work not in self._made:
            self._made[work] = work(self)
        made: Made = self._made[work]
        return made

    def value(self, *route: str | int) -> Any:
        """The plain value of a setting, MISSING where it is not stated."""
        if self._top is None:
            self._top, self._given = self._index(), frozenset(route[0] for route in self.overrides)
        if self._top is not NO_TOP and route and route[0] not in self._top and route[0] not in self._given:
            return MISSING  # most settings of a framework are not stated
        known = self._values.get(route, _UNASKED)
        if known is _UNASKED:
            if self.overrides:
                known = self._overlaid(route)
            elif len(route) == 1 and self._top is not NO_TOP:
                known = self.document.plain(self._top[route[0]].value)  # type: ignore[index]
            else:
                known = self.document.value(self.root + route)
            self._values[route] = known
        return known

    def _index(self) -> dict[str, Entry]:
        """The entries at the top of the document; NO_TOP where it states more than they show."""
        if type(self.document).node is not Document.node:
            return NO_TOP
        node = self.document.node(self.root)
        return node.index if isinstance(node, MappingNode) else NO_TOP

    def _overlaid(self, route: Route) -> Any:
        """The value under the overrides: the nearest one at or above the route, with those below it laid in."""
        nearest = self.override(route)
        if nearest is None:
            value = self.document.value(self.root + route)
        else:
            value = self.overrides[nearest].value
            for step in route[len(nearest) :]:
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
        for other, override in self.overrides.items():
            if len(other) > len(route) and other[: len(route)] == route:
                value = _laid(value, other[len(route) :], override.value)
        return value

    def override(self, route: Route) -> Route | None:
        """The route of the override that settles a setting: at it, or at a mapping around it."""
        above = (route[:length] for length in range(len(route), 0, -1))
        return next((candidate for candidate in above if candidate in self.overrides), None)

    def get(self, *route: str | int, default: Any = None) -> Any:
        """The plain value of a setting, `default` where it is not stated."""
        value = self.value(*route)
        return default if value is MISSING else value

    def has(self, *route: str | int) -> bool:
        """Whether the setting is stated (`key:` without a value is, as null)."""
        return self.value(*route) is not MISSING

    def entry(self, *route: str | int) -> Entry | None:
        """The entry of a setting in the document."""
        return self.document.entry(self.root + route)

    def node(self, *route: str | int) -> Node | None:
        """The node of a setting in the document."""
        return self.document.node(self.root + route)

    def place(self, *route: str | int) -> Place | None:
        """Where a setting stands: key and value where the value is a scalar, else the key."""
        entry = self.entry(*route)
        if entry is not None:
            span = entry.span if isinstance(entry.value, Scalar) else entry.key.span
            return Place(self.document, span)
        node = self.node(*route)
        return None if node is None else Place(self.document, node.span)

    def where(self, *route: str | int) -> str:
        """The file and line of a setting, or of the whole configuration."""
        place = self.place(*route) or self.top()
        return f"{place.document.path}:{place.document.position(place.span.start).line}"

    def origin(self, *route: str | int) -> Origin:
        """The origin of a stated setting."""
        overridden = self.override(route) if self.overrides else None
        if overridden is not None:
            return self.overrides[overridden].origin
        assumed = self.document.assumed(self.root + route)
        return Origin("explicit", _Standing(self, route), "", spelled(route), self.framework, assumed)

    def top(self) -> Place:
        """Where a finding about the whole configuration points: its first key."""
        node = self.document.node(self.root) if self.root else self.document.root
        start = node.span.start if node is not None else 0
        return Place(self.document, Span(start, self.document.line_end(start)))


def _laid(value: Any, route: Route, override: Any) -> Any:
    """A plain value with one setting below it replaced."""
    copy = dict(value) if isinstance(value, dict) else {}
    step, rest = route[0], route[1:]
    copy[step] = _laid(copy.get(step), rest, override) if rest else override
    return copy


class _Standing(Place):
    """Where a setting stands, found when needed: a lint reads many settings and points at few."""

    __slots__ = ("config", "route")

    def __init__(self, config: Config, route: Route) -> None:
        super().__init__(config.document, None)
        self.config = config
        self.route = route

    @property
    def span(self) -> Span:
        if self.known is None:
            place = self.config.place(*self.route)
            self.known = place.span if place is not None else self.config.top().span
        return self.known


def spelled(route: Route) -> str:
    """A route as people write it: `fsdp_config.offload_params`, `datasets[0].path`."""
    if len(route) == 1 and isinstance(route[0], str):
        return route[0]
    text = ""
    for step in route:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class Auto(Frozen):
    """DeepSpeed's "auto": the launcher fills it in; where it does not, DeepSpeed takes `otherwise`."""

    otherwise: Any


class Lens(Protocol):
    """One setting (or a few that only make sense together), both ways."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The plan fields that it reads and can write."""

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """The keys that state each field; the first is the one that a new value is written to."""

    def keys_in(self, config: Config, field: Field) -> tuple[Route, ...]:
        """The key that states a field, or would state it; several where it is their sum, none where no key of this
        release does.
        """

    def read(self, config: Config) -> Iterator[Triple]:
        """Field, value and origin of all that the configuration states or the framework takes as default."""

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """The changes of keys that give the fields new values. Raises CannotEdit where no key can."""


def pending(lens: Lens, config: Config, changes: Changes) -> dict[Field, Any]:
    """Those of the changes that the configuration does not say already (law: writing a present value is no edit)."""
    present = {field: value for field, value, _ in lens.read(config)}
    return {
        field: value
        for field, value in changes.items()
        if field in lens.fields and (field not in present or not same(present[field], value))
    }


def default_at(config: Config, default: Any) -> Any:
    """A default at the configuration's release."""
    return default.at(config.release) if isinstance(default, Since) else default


def names(*keys: str) -> tuple[Route, ...]:
    """Return dotted keys as routes."""
    return tuple(tuple(key.split(".")) for key in keys)


def before(config: Config, release: str) -> bool:
    """Return whether the run is on an older release of its framework."""
    return release_key(config.release) < release_key(release)


def origin_of(config: Config, *keys: str) -> Origin:
    """Return the origin of the first of some dotted keys that is stated, else that of the first one's default."""
    routes = names(*keys)
    stated = next((route for route in routes if config.get(*route) is not None), None)
    return granted(config, routes[0]) if stated is None else config.origin(*stated)


def granted(config: Config, route: Route) -> Origin:
    """The origin of a framework's default."""
    return _granted(config.framework, config.release, route)


@lru_cache(maxsize=8192)
def _granted(framework: str, release: str, route: Route) -> Origin:
    return Origin("default", note=f"{framework} {release}", key=spelled(route), framework=framework)


def refuse_override(config: Config, route: Route) -> None:
    """Raise CannotEdit where the launch, not the file, states a setting, and not in one word."""
    overridden = config.override(route)
    if overridden == route and config.overrides[route].given is not None:
        return  # the change goes there
    if overridden is not None and config.overrides[overridden].origin.kind == "explicit":
        raise CannotEdit(f"{config.overrides[overridden].origin.key} is misspelt; fix its spelling first")
    if overridden is not None:
        raise CannotEdit(config.overrides[overridden].refusal(spelled(overridden)))


def remove(config: Config, *routes: Route) -> list[Change]:
    """Delete those of the settings that are stated."""
    return [Delete(config.root + route) for route in routes if config.document.entry(config.root + route) is not None]
