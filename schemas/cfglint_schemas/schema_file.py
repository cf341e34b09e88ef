"""Schema files with one key per line; a line is parsed when its key is first needed.

`form.py` defines the layout. Only light modules are imported, and loading a file takes about a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from json import loads

from cfglint_train.foundation.typed import Any
from cfglint_train.foundation.versions import parse_release


class SchemaFile:
    """An indexed schema file: its definitions and keys, its releases, and the effects of unknown names."""

    __slots__ = (
        "_aliased",
        "_gated",
        "_heads",
        "_indices",
        "_parsed",
        "_positions",
        "_rejectable",
        "_release_keys",
        "_selectors",
        "_unparsed",
        "entries",
        "framework",
        "lines",
        "package",
        "packages",
    )

    def __init__(self, framework: str, text: str) -> None:
        """Index the lines of a schema file; raise ValueError if it does not have the layout of `form.py`."""
        self.framework = framework
        self.lines: dict[str, dict[str, str]] = {}
        """Definition -> key -> line of the key."""
        self._unparsed: dict[str, str] = {}
        self._aliased: dict[str, list[str]] = {}
        """Definition -> keys that have aliases."""
        self._heads: dict[str, Mapping[str, Any]] = {}
        self._parsed: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._release_keys: dict[str, list[Any]] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._rejectable: frozenset[str] | None = None
        self._selectors: tuple[str, ...] | None = None
        self._gated: list[Mapping[str, Any]] | None = None
        head: dict[str, Any] = {}
        current: dict[str, str] = {}
        for line in text.split("\n"):
            if line.startswith('    "'):
                end = line.index('": ', 5)
                current[line[5:end]] = line[end + 3 :]
            elif line.startswith('  "'):
                end = line.index('": ', 3)
                current = self.lines[line[3:end]] = {}
                self._unparsed[line[3:end]] = line[end + 3 : line.index(', "properties"')] + "}"
            elif line.startswith('"x-'):
                name, _, value = line.rstrip(",").partition(": ")
                head[name.strip('"')] = loads(value)
        if not {"x-packages", "x-entries"} <= head.keys():
            raise ValueError(f"the vocabulary of {framework} was not written by `python -m tools.schemas`")
        self.packages: Mapping[str, tuple[str, ...]] = {
            name: tuple(releases) for name, releases in head["x-packages"].items()
        }
        self.entries: Mapping[str, list[Mapping[str, Any]]] = head["x-entries"]
        self.package = next(iter(self.packages))
        self._indices = {
            name: {release: position for position, release in enumerate(releases)}
            for name, releases in self.packages.items()
        }

    def __repr__(self) -> str:
        """Return the framework's name, for debugging."""
        return f"<vocabulary of {self.framework}>"

    @property
    def releases(self) -> tuple[str, ...]:
        """Known releases of the framework, oldest first."""
        return self.packages[self.package]

    @property
    def newest(self) -> str:
        """Newest release that is no development version; pip does not install those by default."""
        return next((release for release in reversed(self.releases) if "dev" not in release), self.releases[-1])

    @property
    def rejectable(self) -> frozenset[str]:
        """Names of keys, including aliases, that some releases have and others reject.

        The lines are searched as text, which costs less than parsing a few of them. The set may include names that are
        only rejected at one place, or only by releases before the key was added.
        """
        if self._rejectable is None:
            rejected: set[str] = set()
            dev_releases = [f'"since":"{release}"' for release in self.releases if "dev" in release]
            for definition, lines in self.lines.items():
                is_strict = '"effect":"error"' in self._unparsed[definition]
                markers = ('"last"', '"effect":"error"', *dev_releases) if is_strict else ('"effect":"error"',)
                names = [
                    name
                    for name, line in lines.items()
                    if any(marker in line for marker in markers) or '"x-removed":"error"' in line
                ]
                rejected.update(names)
                for name in names:
                    if '"aliases"' in lines[name]:
                        for span in self.parse_key(definition, name)["x-releases"]:
                            rejected.update(span.get("aliases", ()))
                if names and '"x-prefixes"' in self._unparsed[definition]:
                    for item in self.parse_head(definition)["x-prefixes"]:
                        rejected.update(item["prefix"] + name for name in names)
            self._rejectable = frozenset(rejected)
        return self._rejectable

    @property
    def selectors(self) -> tuple[str, ...]:
        """Keys whose values select one of several definitions for the items of a list."""
        if self._selectors is None:
            heads = [self.parse_head(name) for name, text in self._unparsed.items() if '"x-chosen"' in text]
            self._selectors = tuple(
                dict.fromkeys(name for head in heads for choice in head["x-chosen"] for name in choice["when"])
            )
        return self._selectors

    def has_name(self, name: str, release: str) -> bool:
        """Return whether any definition has this name or alias in any release, or prefixed at `release`."""
        return any(self.resolve_spelling(definition, name, release) is not None for definition in self.lines)

    @property
    def gated_spans(self) -> list[Mapping[str, Any]]:
        """Spans of releases with keys that a plugin adds."""
        if self._gated is None:
            self._gated = [
                span
                for definition, lines in self.lines.items()
                for name, line in lines.items()
                if '"gate"' in line
                for span in self.parse_key(definition, name)["x-releases"]
                if "plugins" in span.get("gate", ())
            ]
        return self._gated

    def list_plugins(self, release: str | None = None) -> tuple[str, ...]:
        """Return the plugins that add keys at a release, or at any release if `release` is None."""
        spans = (
            span
            for span in self.gated_spans
            if release is None or self.is_within(span, span.get("package", self.package), release)
        )
        return tuple(sorted({name for span in spans for name in span["gate"]["plugins"]}))

    def list_prefixes(self, definition: str, release: str) -> list[str]:
        """Return the prefixes that a release strips from the names of a definition's keys."""
        return [
            item["prefix"] for item in self.parse_head(definition).get("x-prefixes", ()) if is_effective(item, release)
        ]

    def has_entry(self, entry: str, release: str) -> bool:
        """Return whether an entry point exists at a release."""
        return any(self.is_within(span, self.package, release) for span in self.entries.get(entry, ()))

    def is_within(self, span: Mapping[str, Any], package: str, release: str) -> bool:
        """Return whether a span includes a package's release; an unknown one counts as the last known before it."""
        indices = self._indices[package]
        position = self._find_position(package, release)
        return indices[span["since"]] <= position and ("last" not in span or position <= indices[span["last"]])

    def is_unlimited(self, span: Mapping[str, Any]) -> bool:
        """Return whether a span includes every known release."""
        return "last" not in span and span["since"] == self.packages[span.get("package", self.package)][0]

    def find_next_release(self, span: Mapping[str, Any]) -> str | None:
        """Return the first known release after a span, or None if the span has no end."""
        releases = self.packages[span.get("package", self.package)]
        return releases[releases.index(span["last"]) + 1] if "last" in span else None

    def get_effect(self, definition: str, release: str) -> str:
        """Return the effect of an unknown name in a definition at a release."""
        spans: list[Mapping[str, Any]] = self.parse_head(definition)["x-unknown"]
        main_spans = [span for span in spans if "package" not in span]
        for span in main_spans or spans:
            if span.get("package") or self.is_within(span, self.package, release):
                return str(span["effect"])
        return str((main_spans or spans)[-1]["effect"])

    def parse_key(self, definition: str, name: str) -> Mapping[str, Any]:
        """Return the parsed line of a key."""
        key = (definition, name)
        if key not in self._parsed:
            self._parsed[key] = loads(self.lines[definition][name].rstrip(","))
        return self._parsed[key]

    def _find_position(self, package: str, release: str) -> int:
        key = (package, release)
        if key not in self._positions:
            if package not in self._release_keys:
                self._release_keys[package] = [parse_release(item) for item in self.packages[package]]
            self._positions[key] = max(0, bisect_right(self._release_keys[package], parse_release(release)) - 1)
        return self._positions[key]

    def resolve_spelling(self, definition: str, spelling: str, release: str) -> str | None:
        """Return the key that a name, an alias or a prefixed name stands for, or None if there is none."""
        lines = self.lines[definition]
        if spelling in lines:
            return spelling
        if definition not in self._aliased:
            self._aliased[definition] = [name for name, line in lines.items() if '"aliases"' in line]
        quoted = f'"{spelling}"'
        for name in self._aliased[definition]:
            if quoted in lines[name]:
                for span in self.parse_key(definition, name)["x-releases"]:
                    if spelling in span.get("aliases", ()):
                        return name
        for prefix in self.list_prefixes(definition, release):
            stripped = spelling.removeprefix(prefix)
            if stripped != spelling and stripped in lines:
                return stripped
        return None

    def parse_head(self, definition: str) -> Mapping[str, Any]:
        """Return the parsed head of a definition: everything except its properties."""
        if definition not in self._heads:
            self._heads[definition] = loads(self._unparsed[definition])
        return self._heads[definition]


def is_effective(item: Mapping[str, Any], release: str) -> bool:
    """Return whether a patch or span applies at a release: from `since` up to and including `last`, if stated."""
    key = parse_release(release)
    return parse_release(item["since"]) <= key and ("last" not in item or key <= parse_release(item["last"]))
