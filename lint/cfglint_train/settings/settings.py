"""Settings: each file uses the nearest `cfglint.toml`, or `[tool.cfglint]` in a pyproject.toml; flags override it.

A setting that ruff also has uses ruff's name. An unknown setting is an error: silently ignored configuration is exactly
the kind of mistake that cfglint looks for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.globs import Glob, GlobPath, is_any_match, is_covered, split_path
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.error import SettingsError, build_syntax_error, format_path
from cfglint_train.settings.files import DISK, Files

if TYPE_CHECKING:
    from cfglint_train.settings.house_rules import HouseRule
    from cfglint_train.settings.reader import Level, Reader, SelectorSource

NAMES: Final = ("cfglint.toml", ".cfglint.toml", "pyproject.toml")
"""Names of settings files, in order of precedence within a folder; files without settings are skipped."""

FORMATS: Final = (
    "text", "concise", "grouped", "json", "json-lines", "github", "gitlab", "html", "junit", "markdown", "rdjson",
    "sarif",
)  # fmt: skip
"""Output formats; `reports/formats.py` lists the functions that write them."""

_MAX_BYTES: Final = 2**20
"""Maximum size of a settings file in bytes."""

FailOn = Literal["error", "warning", "info", "never"]
FAIL_ON: Final[tuple[FailOn, ...]] = ("error", "warning", "info", "never")

BASELINE: Final = "cfglint-baseline.json"
"""Default name of the baseline, the file of accepted findings."""

MEASUREMENTS: Final = os.path.join(".cfglint", "measurements.jsonl")
"""Default path of the user's own measurements, from the root of the repository."""

DEFAULT_EXCLUDE: Final = tuple(Glob(name, "") for name in (
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", "site-packages", ".tox", ".nox",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", "build", "dist", "wandb", "mlruns",
))  # fmt: skip

_SELECTORS: Final = (
    "select", "ignore", "extend-select", "extend-ignore", "fixable", "unfixable", "extend-safe-fixes",
    "extend-unsafe-fixes",
)  # fmt: skip
_GLOBS: Final = ("exclude", "extend-exclude")
_BOOLEANS: Final = (
    "fix", "unsafe-fixes", "force-exclude", "fail-on-assumed", "require-checked",
    "resumable", "respect-gitignore",
)  # fmt: skip
_OTHERS: Final = (
    "per-file-ignores", "hardware", "releases", "overrides", "output-format", "rule-url", "extend", "severity",
    "fail-on", "cache-dir", "baseline", "measurements", "require", "max-cpu-seconds",
)  # fmt: skip


class PathOverride(Frozen):
    """An entry of `[[overrides]]`: facts and ignored rules for some paths."""

    paths: tuple[Glob, ...]
    facts: Mapping[str, str]
    ignore: tuple[str, ...]


class Settings(Frozen):
    """Settings from a file, completed by defaults; without a file, the defaults alone."""

    root: str
    """Folder of the settings file; patterns are relative to it."""
    source: str | None = None
    extended: tuple[str, ...] = ()
    """Settings files that this file extends, nearest first."""
    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    fixable: tuple[str, ...] = ("ALL",)
    unfixable: tuple[str, ...] = ()
    safe_fixes: tuple[str, ...] = ()
    unsafe_fixes: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[Glob, tuple[str, ...]], ...] = ()
    exclude: tuple[Glob, ...] = DEFAULT_EXCLUDE
    facts: Mapping[str, str] = {}
    """Hardware facts and releases by canonical name."""
    overrides: tuple[PathOverride, ...] = ()
    output_format: str | None = None
    rule_url: str | None = None
    """URL template of rule pages, with `{code}` or `{name}`; empty for no links, None for the package's own pages."""
    fix: bool = False
    apply_unsafe: bool = False
    force_exclude: bool = False
    respect_gitignore: bool = True
    """True if a walk omits files that git ignores."""
    severity: Mapping[str, Level] = {}
    """Level of the findings of rules, by rule selector."""
    fail_on: FailOn = "warning"
    """Lowest severity that makes the exit code 1; with `never`, no finding does."""
    fail_on_assumed: bool = False
    """True if findings that rest on an assumption affect the exit code too."""
    require_checked: bool = False
    """True if findings about unchecked runs (CHK) make the exit code 1; `select` and `ignore` do not apply to them."""
    resumable: bool | None = None
    """True if runs must be able to resume from their checkpoints; None if unstated, which counts as true."""
    require: tuple[HouseRule, ...] = ()
    """House rules (HSE001)."""
    max_cpu_seconds: float | None = None
    """CPU time in seconds of a whole run of cfglint, or None if unlimited."""
    baseline: str | None = None
    """Absolute path of the baseline, the file of accepted findings, or None."""
    measurements: str | None = MEASUREMENTS
    """Absolute path of the user's own measurements, `MEASUREMENTS` by default, or None to use none."""
    cache_dir: str | None = None
    """Absolute path of the cache folder, or None for the default."""
    selectors: tuple[SelectorSource, ...] = ()
    """All rule selectors in the file and the files that it extends, each with its place."""
    files: Files = DISK
    """Source of the settings files, from which the measurements are read too."""

    @property
    def disabled_selectors(self) -> tuple[str, ...]:
        """Selectors of rules that are off for every file."""
        return (*self.ignore, *(selector for selector, level in self.severity.items() if level == "off"))

    def find_measurements(self, path: str, roots: Roots) -> str | None:
        """Return the file of the user's own measurements for a config, or None to use none; it need not exist.

        It does not depend on the arguments of a command, so that all commands use the file that `record` writes.
        """
        return None if self.measurements is None else os.path.join(roots.find_project(path), self.measurements)

    def find_level(self, code: str, name: str) -> Level | None:
        """Return the level that the settings assign to a rule, or None if they assign none."""
        selector = find_most_precise(self.severity, code, name)
        return None if selector is None else self.severity[selector]

    def collect_facts(self, path: str) -> Mapping[str, str]:
        """Return the facts for a file: the general facts, replaced by those of every matching override in order."""
        facts = self.facts
        for override in self._list_overrides(path):
            facts = cluster_facts.merge_facts(facts, override.facts)
        return facts

    def list_ignored(self, path: str) -> tuple[str, ...]:
        """Return the selectors of rules that are off for this file only, by per-file-ignores or overrides."""
        if not self.per_file_ignores and not self.overrides:
            return ()
        place = split_path(path, self.root)
        selectors = [codes for glob, codes in self.per_file_ignores if _is_match(glob, place)]
        selectors += [override.ignore for override in self._list_overrides(path)]
        return tuple(code for codes in selectors for code in codes)

    def list_house_rules(self, path: str, framework: str) -> tuple[HouseRule, ...]:
        """Return the house rules that apply to a file of a framework."""
        if not self.require:
            return ()
        place = split_path(path, self.root)
        return tuple(
            rule
            for rule in self.require
            if (not rule.paths or any(is_covered(place, glob) for glob in rule.paths))
            and (not rule.frameworks or framework in rule.frameworks)
        )

    def _list_overrides(self, path: str) -> list[PathOverride]:
        if not self.overrides:
            return []
        place = split_path(path, self.root)
        return [override for override in self.overrides if any(is_covered(place, glob) for glob in override.paths)]

    def is_excluded(self, path: str) -> bool:
        """Return whether a file or a folder above it, up to the root of the settings, is excluded."""
        place = split_path(path, self.root)
        return any(is_covered(place, glob) for glob in self.exclude)

    def is_skipped(self, path: str) -> bool:
        """Return whether a walk skips a file or folder, if it did not skip the folders above it."""
        return is_any_match(path, self.root, self.exclude)


def _is_match(glob: Glob, place: GlobPath) -> bool:
    """Return whether a pattern of per-file-ignores matches; `!pattern` matches every other file."""
    if glob.text.startswith("!"):
        return not is_covered(place, glob._replace(text=glob.text[1:]))
    return is_covered(place, glob)


def measure_precision(selectors: Iterable[str], code: str, name: str) -> int:
    """Return the precision with which the best of the selectors matches a rule.

    The result is -1 if none matches, 0 for ALL, 3 for the family and 6 for the code or name.
    """
    best = -1
    for selector in selectors:
        prefix = selector.upper()
        if prefix == "ALL":
            best = max(best, 0)
        elif selector == name or prefix in (code, code[:3]):
            best = max(best, len(code) if selector == name else len(prefix))
    return best


def find_most_precise(selectors: Iterable[str], code: str, name: str) -> str | None:
    """Return the selector that matches a rule most precisely, or None if no selector matches."""
    matching = [selector for selector in selectors if measure_precision((selector,), code, name) >= 0]
    return max(matching, key=lambda selector: measure_precision((selector,), code, name), default=None)


def load_settings(path: str, files: Files = DISK) -> Settings:
    """Load a settings file: a TOML file such as `cfglint.toml`, or a pyproject.toml with `[tool.cfglint]`.

    Raise SettingsError for a file that cannot be read, an unknown setting, or a value of the wrong type.
    """
    table = _read_table(path, files)
    if table is None:
        raise SettingsError(f"{format_path(path)}: it has no [tool.cfglint] table")
    return _build_settings(path, table, (os.path.abspath(path),), files)


def discover(directory: str, settings_by_folder: dict[str, Settings | None], files: Files = DISK) -> Settings | None:
    """Return the settings in a directory or the nearest directory above it, or None if there are none.

    Raise SettingsError if they are invalid. `settings_by_folder` caches the results.
    """
    directory = os.path.abspath(directory)
    visited: list[str] = []
    while directory not in settings_by_folder:
        visited.append(directory)
        settings = _find_in(directory, files)
        parent = os.path.dirname(directory)
        if settings is not None or parent == directory:
            settings_by_folder[directory] = settings
            break
        directory = parent
    for folder in visited:
        settings_by_folder[folder] = settings_by_folder[directory]
    return settings_by_folder[directory]


def _find_in(directory: str, files: Files) -> Settings | None:
    for name in NAMES:
        path = os.path.join(directory, name)
        if files.has(path):
            table = _read_table(path, files)
            if table is not None:
                return _build_settings(path, table, (path,), files)
    return None


def _read_table(path: str, files: Files) -> dict[str, Any] | None:
    """Return the settings table of a file, or None for a pyproject.toml without one."""
    try:
        source = files.read(path)
    except OSError as error:
        raise SettingsError(f"{format_path(path)}: {error.strerror or error}") from None
    pyproject = os.path.basename(path) == "pyproject.toml"
    # Parse the TOML only if it may have our table or key: projects that only depend on cfglint mention the name, too.
    if pyproject and (b"cfglint" not in source or not re.search(rb"cfglint[\"']?\s*[\].=]", source)):
        return None
    if len(source) > _MAX_BYTES:
        raise SettingsError(f"{format_path(path)}: larger than {_MAX_BYTES >> 20} MiB, too large for settings")
    from cfglint_train.foundation import toml

    try:
        table: Any = toml.parse(source.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise SettingsError(
            f"{format_path(path)}: not UTF-8: byte 0x{source[error.start]:02x} (at line {line})"
        ) from None
    except ValueError as error:
        raise build_syntax_error(path, source.decode("utf-8-sig"), str(error)) from None
    except RecursionError:
        raise SettingsError(f"{format_path(path)}: nested too deeply") from None
    if pyproject:
        tool = table.get("tool")
        table = tool.get("cfglint") if isinstance(tool, dict) else None
        if table is None:
            return None
    if not isinstance(table, dict):
        raise SettingsError(f"{format_path(path)}: tool.cfglint must be a table, not {table!r}")
    return table


def _build_settings(path: str, table: Mapping[str, Any], chain: tuple[str, ...], files: Files) -> Settings:
    from cfglint_train.settings.reader import Reader  # imported here because most files have no settings

    reader = Reader(path, files)
    reader.check_keys(table, (*_SELECTORS, *_GLOBS, *_BOOLEANS, *_OTHERS))
    base = Settings(reader.root, path)
    if "extend" in table:
        base = _load_extended(reader, table["extend"], chain, files)
    codes = {key: reader.read_selectors(key, table[key]) for key in _SELECTORS if key in table}
    globs = {key: reader.read_globs(key, table[key]) for key in _GLOBS if key in table}
    flags = {key: reader.read_boolean(key, table[key]) for key in _BOOLEANS if key in table}
    ignores = reader.read_table("per-file-ignores", table.get("per-file-ignores", {}))
    chosen_values = {
        key: reader.read_choice(key, table[key], choices)
        for key, choices in (("output-format", FORMATS), ("fail-on", FAIL_ON))
        if key in table
    }
    return Settings(
        root=reader.root,
        source=path,
        extended=() if base.source in (None, path) else (base.source, *base.extended),
        select=codes.get("select", base.select) + codes.get("extend-select", ()),
        ignore=codes.get("ignore", base.ignore) + codes.get("extend-ignore", ()),
        fixable=codes.get("fixable", base.fixable),
        unfixable=codes.get("unfixable", base.unfixable),
        safe_fixes=base.safe_fixes + codes.get("extend-safe-fixes", ()),
        unsafe_fixes=base.unsafe_fixes + codes.get("extend-unsafe-fixes", ()),
        per_file_ignores=base.per_file_ignores
        + tuple(
            (
                reader.read_glob("per-file-ignores", pattern),
                reader.read_selectors(f"per-file-ignores.{pattern!r}", selectors),
            )
            for pattern, selectors in ignores.items()
        ),
        exclude=globs.get("exclude", base.exclude) + globs.get("extend-exclude", ()),
        facts=cluster_facts.merge_facts(base.facts, reader.read_facts(table)),
        overrides=base.overrides + tuple(_read_overrides(reader, table.get("overrides", []))),
        output_format=chosen_values.get("output-format", base.output_format),
        rule_url=reader.read_address("rule-url", table["rule-url"]) if "rule-url" in table else base.rule_url,
        fix=flags.get("fix", base.fix),
        apply_unsafe=flags.get("unsafe-fixes", base.apply_unsafe),
        force_exclude=flags.get("force-exclude", base.force_exclude),
        respect_gitignore=flags.get("respect-gitignore", base.respect_gitignore),
        severity={**base.severity, **reader.read_levels("severity", table.get("severity", {}))},
        fail_on=chosen_values.get("fail-on", base.fail_on),
        fail_on_assumed=flags.get("fail-on-assumed", base.fail_on_assumed),
        require_checked=flags.get("require-checked", base.require_checked),
        resumable=flags.get("resumable", base.resumable),
        require=base.require + _read_house_rules(reader, table["require"], base.require)
        if "require" in table
        else base.require,
        max_cpu_seconds=reader.read_seconds("max-cpu-seconds", table["max-cpu-seconds"])
        if "max-cpu-seconds" in table
        else base.max_cpu_seconds,
        cache_dir=_read_path_inside(reader, "cache-dir", table["cache-dir"])
        if "cache-dir" in table
        else base.cache_dir,
        baseline=_read_path_inside(reader, "baseline", table["baseline"]) if "baseline" in table else base.baseline,
        measurements=_read_path_inside(reader, "measurements", table["measurements"])
        if "measurements" in table
        else base.measurements,
        files=files,
        selectors=(*base.selectors, *reader.selectors),
    )


def _read_overrides(reader: Reader, value: Any) -> Iterable[PathOverride]:
    for number, entry in enumerate(reader.read_tables("overrides", value)):
        where = f"overrides[{number}]."
        reader.check_keys(entry, ("paths", "hardware", "releases", "ignore"), where)
        if "paths" not in entry:
            raise reader.build_error(f"{where}paths", "is missing: an override must list the paths of its files")
        yield PathOverride(
            reader.read_globs(f"{where}paths", entry["paths"]),
            reader.read_facts(entry, where),
            reader.read_selectors(f"{where}ignore", entry.get("ignore", [])),
        )


def _read_house_rules(reader: Reader, value: Any, inherited: tuple[HouseRule, ...]) -> tuple[HouseRule, ...]:
    from cfglint_train.settings.house_rules import read_house_rules

    return read_house_rules(reader, value, inherited)


def _load_extended(reader: Reader, value: Any, chain: tuple[str, ...], files: Files) -> Settings:
    other = _read_path_inside(reader, "extend", value)
    if other in chain:
        raise reader.build_error("extend", f"refers back to {value}: a settings file cannot extend itself")
    table = _read_table(other, files)
    if table is None:
        raise SettingsError(
            f"{format_path(other)}: it has no [tool.cfglint] table, but {reader.display_path} extends it"
        )
    return _build_settings(other, table, (*chain, other), files)


def _read_path_inside(reader: Reader, key: str, value: Any) -> str:
    """Read a path, which must be below the repository of the settings file or, without a repository, its folder."""
    path = reader.read_path(key, value)
    folders, is_repository = Roots().list_folders_above(reader.root)
    if not regular_files.is_below(path, folders[-1] if is_repository else reader.root):
        raise reader.build_error(key, "points outside the repository")
    return path
