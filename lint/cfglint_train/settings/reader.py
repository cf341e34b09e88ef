"""Reader of settings files: check the types of values, and report errors at the positions of their keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import inf

from cfglint_train.foundation import globs, regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.globs import Glob
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks.registry import map_spellings
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.error import SettingsError, build_setting_error, format_path
from cfglint_train.settings.files import Files

_MAX_PATTERNS: Final = 5000
"""Maximum number of path patterns in a file, because each pattern is compiled and matched against each path."""

Level = Literal["error", "warning", "info", "off"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "info", "off")
"""Levels that a rule can be set to: a severity, highest first, or off."""


class SelectorSource(Frozen):
    """A rule selector in the settings with its place, for the error if it matches no rule."""

    source: str
    key: str
    selector: str
    path: str = ""
    """Path of the settings file."""


def _format_number(value: float) -> str:
    """Return a number as people write it, without an exponent; whole numbers have no decimals, as in JSON Schema."""
    return str(int(value)) if value == value // 1 else f"{value:.9f}".rstrip("0")


class Reader:
    """A reader of one settings file, whose errors name the file and the key. All methods may raise SettingsError."""

    def __init__(self, path: str, files: Files) -> None:
        """Prepare to read the tables of the file at `path`."""
        self.source, self.files = path, files
        self.display_path = format_path(path)
        self.prefix = "tool.cfglint." if os.path.basename(path) == "pyproject.toml" else ""
        self.root = os.path.dirname(os.path.abspath(path))
        self.selectors: list[SelectorSource] = []
        self.patterns = 0

    def build_error(self, key: str, problem: str) -> SettingsError:
        """Build the error about a key; `problem` continues the sentence that starts with the key."""
        return build_setting_error(self.source, self.prefix + key, f"{self.prefix}{key} {problem}", self.files)

    def check_keys(self, table: Mapping[str, Any], valid_names: Iterable[str], where: str = "") -> None:
        """Raise SettingsError for the first key of a table that is not among the valid names."""
        names = sorted(valid_names)
        for key in table:
            if key not in names:
                hint = suggest_name(key, names, f"known: {', '.join(names)}")
                full = f"{self.prefix}{where}{key}"
                raise build_setting_error(self.source, full, f"unknown setting {full}; {hint}", self.files)

    def read_table(self, key: str, value: Any) -> dict[str, Any]:
        """Read a table."""
        if not isinstance(value, dict):
            raise self.build_error(key, f"must be a table, not {value!r}")
        return value

    def read_tables(self, key: str, value: Any) -> list[dict[str, Any]]:
        """Read a list of tables."""
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.build_error(key, f"must be a list of tables ([[{self.prefix}{key}]]), not {value!r}")
        return value

    def read_strings(self, key: str, value: Any) -> tuple[str, ...]:
        """Read a list of strings."""
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.build_error(key, f"must be a list of strings, not {value!r}")
        return tuple(value)

    def read_globs(self, key: str, value: Any) -> tuple[Glob, ...]:
        """Read a list of path patterns."""
        return tuple(self.read_glob(key, text) for text in self.read_strings(key, value))

    def read_glob(self, key: str, text: str) -> Glob:
        """Read a path pattern."""
        self.patterns += 1
        if self.patterns > _MAX_PATTERNS:
            raise self.build_error(key, f"has too many path patterns: at most {_MAX_PATTERNS:,} in one file")
        try:
            globs.check(text.removeprefix("!"))
        except ValueError as error:
            raise self.build_error(key, f"is not a path pattern: it {error}") from None
        return Glob(text, self.root)

    def read_selectors(self, key: str, value: Any) -> tuple[str, ...]:
        """Read rule selectors, and record them in `selectors` for a later check that each matches a rule."""
        selectors = self.read_strings(key, value)
        self.selectors += [
            SelectorSource(self.display_path, self.prefix + key, selector, self.source) for selector in selectors
        ]
        return selectors

    def read_choice(self, key: str, value: Any, choices: tuple[str, ...]) -> Any:
        """Read a word that must be one of the choices."""
        if value not in choices:
            hint = suggest_name(str(value), choices)
            raise self.build_error(key, f"must be one of {', '.join(choices)}, not {value!r}{hint and f'; {hint}'}")
        return value

    def read_levels(self, key: str, value: Any) -> dict[str, Level]:
        """Read a table of levels by rule selector."""
        table = self.read_table(key, value)
        self.read_selectors(key, list(table))
        return {selector: self.read_choice(f"{key}.{selector}", level, LEVELS) for selector, level in table.items()}

    def read_address(self, key: str, value: Any) -> str:
        """Read the URL template of rule pages, which must contain `{code}` or `{name}`; an empty text: no pages."""
        if value == "":
            return ""
        is_url = isinstance(value, str) and value.startswith(("https://", "http://")) and value.isprintable()
        if not is_url or not ("{code}" in value or "{name}" in value):
            raise self.build_error(key, f"must be a URL with {{code}} or {{name}} in it, not {value!r}")
        return str(value)

    def read_path(self, key: str, value: Any) -> str:
        """Read a path relative to the folder of the settings file; return it absolute."""
        if not isinstance(value, str) or not value:
            raise self.build_error(key, f"must be a path, not {value!r}")
        return os.path.abspath(os.path.join(self.root, regular_files.expand_home(value)))

    def read_boolean(self, key: str, value: Any) -> bool:
        """Read a boolean."""
        if not isinstance(value, bool):
            raise self.build_error(key, f"must be true or false, not {value!r}")
        return value

    def read_seconds(self, key: str, value: Any) -> float:
        """Read a positive number of seconds."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < inf:
            raise self.build_error(key, f"must be a positive number, not {value!r}")
        return float(value)

    def read_facts(self, table: Mapping[str, Any], where: str = "") -> dict[str, str]:
        """Read the `hardware` and `releases` tables in a table as facts by canonical name."""
        hardware = self.read_table(f"{where}hardware", table.get("hardware", {}))
        self.check_keys(hardware, cluster_facts.HARDWARE_FACTS, f"{where}hardware.")
        releases = self.read_table(f"{where}releases", table.get("releases", {}))
        packages = map_spellings()
        self.check_keys(releases, packages, f"{where}releases.")
        facts = {}
        for name, value in hardware.items():
            key = f"{where}hardware.{name}"
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            is_whole = is_number and value == value // 1
            if not isinstance(value, str) and not is_whole and not (is_number and name in cluster_facts.RATES):
                raise self.build_error(key, f"must be a number or a string, not {value!r}")
            facts[name] = self.check_fact(key, name, _format_number(value) if is_number else value)
        for name, value in releases.items():
            key = f"{where}releases.{name}"
            if not isinstance(value, str):
                raise self.build_error(key, f"must be a release in quotes, not {value!r}")
            facts[packages[name]] = self.check_fact(key, packages[name], value)
        return facts

    def check_fact(self, key: str, name: str, text: str) -> str:
        """Return the text of a fact if it is valid; raise SettingsError if it is not."""
        try:
            cluster_facts.check(name, FieldValue(text, Origin("user", note=self.display_path)))
        except cluster_facts.FactError as error:
            full, problem = self.prefix + key, error.message.removeprefix(f"{name}: ")
            message = (
                f"{full}{problem.removeprefix(name)}" if problem.startswith(f"{name} must ") else f"{full}: {problem}"
            )
            raise build_setting_error(self.source, full, message, self.files) from None
        return text
