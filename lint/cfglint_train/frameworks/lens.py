"""Lenses: each reads a framework setting into the plan, and writes it back.

A framework is a list of lenses. Reading runs all of them and yields a `ResolvedPlan`. Writing passes each changed plan
field to the lens that owns it, which returns changes of keys; the document turns those into edits. No other
code converts settings, so a fix writes exactly the settings that the next run reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
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
"""Role of a configuration in a run: started itself, or named by another file."""

Triple = tuple[Field, Any, Origin]
"""Field, value and origin."""

Changes = Mapping[Field, Any]
"""Fields with their new values."""

Lookup = Callable[[str], Any]
"""Name of a setting -> its value: MISSING if not stated, Unknown if it depends on anything outside the files."""


class LaunchArgument(Frozen):
    """A place, other than the setting's own key in the file, that states a setting.

    It is a word of a launch script (an option's value, or the text after `prefix` in a word) or a misspelled key.
    """

    document: Document
    route: Route
    prefix: str = ""
    misspelt: bool = False
    """True if the place is a misspelled key of the file, which can hold a value of any type."""

    def build_change(self, value: Any) -> Change:
        """Return the change that sets the setting to `value`.

        Raise CannotEdit if a word of a script cannot express the value (null, a list or a mapping).
        """
        if self.misspelt:
            return Set(self.route, value)
        if value is None or isinstance(value, (dict, list)):
            raise CannotEdit(f"no value in {self.document.path} can set that")
        text = str(value).lower() if isinstance(value, bool) else value
        return Set(self.route, f"{self.prefix}{text}" if self.prefix else text)


class Override(Frozen):
    """A setting that the launch passes from outside the file (`--set`, trailing arguments of a launch script)."""

    value: Any
    origin: Origin
    argument: LaunchArgument | None = None
    """Argument that a fix changes, or None if no fix can change the setting."""

    def explain_refusal(self, name: str) -> str:
        """Return the reason why no fix can change the setting `name`."""
        if self.origin.kind == "inferred":
            return f"{name} has no effect: {self.origin.note}"
        if self.value is MISSING:
            return f"only the launch ({self.origin.note}) can set {name}: add it there"
        in_file = self.origin.place is not None and self.origin.place.document.syntax == "json"
        return f"{name} is set in {self.origin.note}" if in_file else f"{name} is set at launch ({self.origin.note})"


# Marker for a document whose settings are not plain nested mappings.
NO_TOP: Final[dict[str, Entry]] = {}
_NOT_CACHED: Final = object()


class Config:
    """One framework's settings in one document: the object that lenses read and write.

    `root` is the route of its mapping: () for a whole file, ("deepspeed",) for an inline section, (3,) for the fourth
    invocation of a shell script. `overrides` replace the file's own keys. `assumption` is
    empty if the run certainly reads this document; otherwise it says what cfglint assumes and how to state it.
    """

    __slots__ = (
        "_cache",
        "_overrides_by_key",
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
        """Initialize without launches and evidence, which the caller sets."""
        self.framework = framework
        self.document = document
        self.releases = releases
        self.root = root
        self.role = role
        self.overrides = dict(overrides or {})
        self.launch_overrides: tuple[tuple[Route, Override], ...] = ()
        """Overrides of all launches, including those that only some launches have."""
        self.launches: tuple[tuple[Document, int], ...] = ()
        """Launches of the configuration: each a script and the number of its invocation."""
        self.evidence = ConfigEvidence()
        """Evidence in the repository about the configuration; `runs` sets it before any lens reads the configuration.
        """
        self.assumption = assumption
        self._cache: dict[Any, Any] = {}
        self._top_entries: dict[str, Entry] | None = None
        self._overrides_by_key: dict[str | int, list[tuple[Route, Override]]] = {}
        self._values: dict[Route, Any] = {}

    @property
    def release(self) -> str:
        """Release of the framework itself. Raises KeyError if it was not resolved."""
        return self.releases.by_package[self.framework].version

    @property
    def default_note(self) -> str:
        """Note on the origin of the framework's defaults: the framework and its release."""
        return f"{self.framework} {self.release}"

    def replace(self, document: Document | None = None, overrides: Mapping[Route, Override] | None = None) -> Config:
        """Return the same configuration with another document or other overrides."""
        new_overrides = self.overrides if overrides is None else overrides
        config = Config(self.framework, document or self.document, self.releases, self.root, self.role, new_overrides)
        config.adopt_facts(self)
        return config

    def adopt_facts(self, config: Config) -> None:
        """Take the assumption, launches and evidence of a variant of this configuration."""
        self.assumption, self.evidence = config.assumption, config.evidence
        self.launch_overrides, self.launches = config.launch_overrides, config.launches

    def replace_release(self, package: str, release: str) -> Config:
        """Return the same configuration with another release of a package, which counts as stated."""
        config = self.replace()
        config.releases = self.releases.replace_release(package, release)
        return config

    def compute_once(self, work: Callable[..., Made], *arguments: Hashable) -> Made:
        """Return the result of `work` on this configuration and arguments, computed on the first call only.

        The cache never expires because a configuration does not change.
        """
        key = (work, *arguments) if arguments else work
        if key not in self._cache:
            self._cache[key] = work(self, *arguments)
        result: Made = self._cache[key]
        return result

    def get_value(self, *route: str | int) -> Any:
        """Return the plain value of a setting, or MISSING if it is not stated."""
        if self._top_entries is None:
            self._top_entries = self._collect_top_entries()
            for other, override in self.overrides.items():
                self._overrides_by_key.setdefault(other[0], []).append((other, override))
        if (
            self._top_entries is not NO_TOP
            and route
            and route[0] not in self._top_entries
            and route[0] not in self._overrides_by_key
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
        """Return the entries below `root`, or NO_TOP if they do not show everything that the document states."""
        if type(self.document).find_node is not Document.find_node:
            return NO_TOP
        node = self.document.find_node(self.root)
        return node.index if isinstance(node, MappingNode) else NO_TOP

    def _apply_overrides(self, route: Route) -> Any:
        """Return a value with overrides applied: the nearest at or above the route, then all below it."""
        nearest = self.find_override(route)
        if nearest is None:
            value = self.document.get_value(self.root + route)
        else:
            value = self.overrides[nearest].value
            for step in route[len(nearest) :]:
                value = value.get(step, MISSING) if isinstance(value, dict) else MISSING
        for other, override in self._overrides_by_key.get(route[0], ()) if route else self.overrides.items():
            if len(other) > len(route) and other[: len(route)] == route:
                value = _replace_nested(value, other[len(route) :], override.value)
        return value

    def find_override(self, route: Route) -> Route | None:
        """Return the route of the override that sets a setting or a mapping around it, or None."""
        above = (route[:length] for length in range(len(route), 0, -1))
        return next((candidate for candidate in above if candidate in self.overrides), None)

    def get(self, *route: str | int, default: Any = None) -> Any:
        """Return the plain value of a setting, or `default` if it is not stated."""
        value = self.get_value(*route)
        return default if value is MISSING else value

    def has(self, *route: str | int) -> bool:
        """Return whether the setting is stated (`key:` without a value counts, as null)."""
        return self.get_value(*route) is not MISSING

    def get_entry(self, *route: str | int) -> Entry | None:
        """Return the entry of a setting in the document."""
        return self.document.find_entry(self.root + route)

    def get_node(self, *route: str | int) -> Node | None:
        """Return the node of a setting in the document."""
        return self.document.find_node(self.root + route)

    def find_place(self, *route: str | int) -> Place | None:
        """Return the place of a setting: key and value if the value is a scalar, otherwise the key alone."""
        entry = self.get_entry(*route)
        if entry is not None:
            return Place(*self.document.locate_entry(entry))
        node = self.get_node(*route)
        return None if node is None else Place(self.document, node.span)

    def format_location(self, *route: str | int) -> str:
        """Return the file and line of a setting, or of the whole configuration if the setting has no place."""
        place = self.find_place(*route) or self.find_top()
        return f"{place.document.path}:{place.document.locate(place.span.start).line}"

    def get_origin(self, *route: str | int) -> Origin:
        """Return the origin of a stated setting."""
        overridden = self.find_override(route) if self.overrides else None
        if overridden is not None:
            return self.overrides[overridden].origin
        assumed = self.document.get_assumption(self.root + route)
        return Origin("explicit", _SettingPlace(self, route), "", format_route(route), self.framework, assumed)

    def find_top(self) -> Place:
        """Return the place for a finding about the whole configuration: its first key."""
        node = self.document.find_node(self.root) if self.root else self.document.root
        start = node.span.start if node is not None else 0
        return Place(self.document, Span(start, self.document.find_line_end(start)))


def _replace_nested(value: Any, route: Route, override: Any) -> Any:
    """Return a plain value with one setting below it replaced."""
    copy = dict(value) if isinstance(value, dict) else {}
    step, rest = route[0], route[1:]
    copy[step] = _replace_nested(copy.get(step), rest, override) if rest else override
    return copy


class _SettingPlace(Place):
    """A setting's place, located on first use: a lint reads many settings and reports few."""

    __slots__ = ("config", "route")

    def __init__(self, config: Config, route: Route) -> None:
        entry = config.get_entry(*route)
        super().__init__(config.document if entry is None else config.document.locate_entry(entry)[0], None)
        self.config = config
        self.route = route

    @property
    def span(self) -> Span:
        if self.stored_span is None:
            place = self.config.find_place(*self.route)
            self.stored_span = place.span if place is not None else self.config.find_top().span
        return self.stored_span


def format_route(route: Route) -> str:
    """Return a route as people write it: `fsdp_config.offload_params`, `datasets[0].path`."""
    if len(route) == 1 and isinstance(route[0], str):
        return route[0]
    text = ""
    for step in route:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class Auto(Frozen):
    """DeepSpeed's "auto": the launcher fills it in, or else DeepSpeed uses `fallback`."""

    fallback: Any


class Lens(Protocol):
    """Conversion of a setting, or of a few that only make sense together, to plan fields and back."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Plan fields that the lens reads and, unless it refuses changes, writes."""

    @property
    def keys(self) -> Mapping[Field, tuple[Route, ...]]:
        """Keys that state each field; a new value is written to the first."""

    def find_keys(self, config: Config, field: Field) -> tuple[Route, ...]:
        """Return the key that states a field, or else the key that a fix would write.

        Return several keys if the field is their sum, and () if this release has no key for the field.
        """

    def read(self, config: Config) -> Iterator[Triple]:
        """Yield field, value and origin of every setting that is stated or has a framework default."""

    def write(self, config: Config, changes: Changes) -> list[Change]:
        """Return the changes of keys that set the fields. Raise CannotEdit if no key can."""


def select_pending(lens: Lens, config: Config, changes: Changes) -> dict[Field, Any]:
    """Return the changes of the lens's fields whose values differ from the present values.

    With this function, writing a value that is already present produces no edit.
    """
    present = {field: value for field, value, _ in lens.read(config)}
    return {
        field: value
        for field, value in changes.items()
        if field in lens.fields and (field not in present or not is_equal(present[field], value))
    }


def resolve_default(config: Config, default: Any) -> Any:
    """Return a default at the configuration's release."""
    return default.get_at(config.release) if isinstance(default, ValueByRelease) else default


def parse_routes(*keys: str) -> tuple[Route, ...]:
    """Return dotted keys as routes."""
    return tuple(tuple(key.split(".")) for key in keys)


def is_before(config: Config, release: str) -> bool:
    """Return whether the release of the run's framework is older than `release`."""
    return parse_release(config.release) < parse_release(release)


def find_origin(config: Config, *keys: str) -> Origin:
    """Return the origin of the first dotted key with a value, or else the origin of the first key's default."""
    routes = parse_routes(*keys)
    stated = next((route for route in routes if config.get(*route) is not None), None)
    return build_default_origin(config, routes[0]) if stated is None else config.get_origin(*stated)


def build_default_origin(config: Config, route: Route) -> Origin:
    """Return the origin of a framework's default."""
    return _cache_default_origin(config.framework, config.default_note, route)


@lru_cache(maxsize=8192)
def _cache_default_origin(framework: str, note: str, route: Route) -> Origin:
    return Origin("default", note=note, key=format_route(route), framework=framework)


def refuse_override(config: Config, route: Route) -> None:
    """Raise CannotEdit if an override sets a setting, unless a fix can change the override's argument."""
    overridden = config.find_override(route)
    if overridden == route and config.overrides[route].argument is not None:
        return  # the change goes to that argument
    if overridden is not None and config.overrides[overridden].origin.kind == "explicit":
        raise CannotEdit(f"{config.overrides[overridden].origin.key} is misspelt; fix its spelling first")
    if overridden is not None:
        raise CannotEdit(config.overrides[overridden].explain_refusal(format_route(overridden)))


def remove_stated(config: Config, *routes: Route) -> list[Change]:
    """Return the changes that delete those settings that the document states."""
    return [
        Delete(config.root + route) for route in routes if config.document.find_entry(config.root + route) is not None
    ]
