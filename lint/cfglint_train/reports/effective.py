"""The settings that hold for a path, where each comes from, and which rules they leave on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from json import dumps

from cfglint_rules.registry import RULES
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Protocol
from cfglint_train.reports.escape import printable
from cfglint_train.reports.json import encoded
from cfglint_train.settings.settings import Settings, most_precise, selects

if TYPE_CHECKING:
    from cfglint_train.settings.house_rules import HouseRule


class Selection(Protocol):
    """The flags that choose rules, as `api.Options` has them."""

    @property
    def select(self) -> Iterable[str] | None:
        """--select."""

    @property
    def ignore(self) -> Iterable[str]:
        """--ignore."""


_LISTS: Final = {
    "select": "select",
    "ignore": "ignore",
    "fixable": "fixable",
    "unfixable": "unfixable",
    "extend-safe-fixes": "safe_fixes",
    "extend-unsafe-fixes": "unsafe_fixes",
}
_PLAIN: Final = {
    "output-format": "output_format",
    "rule-url": "rule_url",
    "fix": "fix",
    "unsafe-fixes": "apply_unsafe",
    "force-exclude": "force_exclude",
    "respect-gitignore": "respect_gitignore",
    "fail-on": "fail_on",
    "fail-on-assumed": "fail_on_assumed",
    "require-checked": "require_checked",
    "resumable": "resumable",
    "max-cpu-seconds": "max_cpu_seconds",
    "cache-dir": "cache_dir",
    "baseline": "baseline",
}


def values(path: str, settings: Settings, options: Selection, enabled: Collection[str]) -> dict[str, Any]:
    """The settings as plain values, flags laid over them; rules with whether they are on, and why."""
    return {
        "path": path,
        "settings-file": settings.source,
        **{name: list(getattr(settings, field)) for name, field in _LISTS.items()},
        "flags": {
            "select": None if options.select is None else list(options.select),
            "ignore": list(options.ignore),
        },
        "exclude": [glob.text for glob in settings.exclude],
        "ignored-here": list(settings.ignored(path)),
        **{name: getattr(settings, field) for name, field in _PLAIN.items()},
        "severity": dict(settings.severity),
        "require": [_required(rule) for rule in settings.require],
        "facts": dict(settings.facts_for(path)),
        "rules": {
            code: {
                "name": rule.name,
                "on": code in enabled,
                "because": _because(code, rule.name, path, settings, options),
            }
            for code, rule in RULES.items()
        },
    }


def _required(rule: HouseRule) -> dict[str, Any]:
    """A rule of the house as its table has it, with its place."""
    stated = {"key": rule.key} if rule.field is None else {"field": rule.field}
    limits = {"paths": [glob.text for glob in rule.paths], "frameworks": list(rule.frameworks)}
    return {
        "settings-file": rule.path,
        **stated,
        **{test: list(wanted) if isinstance(wanted, tuple) else wanted for test, wanted in rule.tests},
        "message": rule.message,
        "severity": rule.severity,
        **limits,
    }


def _because(code: str, name: str, path: str, settings: Settings, options: Selection) -> str:
    """The selector that decides about a rule, with where it is. (The engine decides; the tests hold them equal.)"""
    here = most_precise(settings.ignored(path), code, name)
    if here is not None:
        return f"ignored for this path: {here} ({settings.source})"
    flag = None if options.select is None else tuple(options.select)
    on = most_precise(settings.select if flag is None else flag, code, name)
    off_by_flag, off = most_precise(tuple(options.ignore), code, name), most_precise(settings.off, code, name)
    if off_by_flag is not None and (flag is None or _precision(off_by_flag, code, name) >= _precision(on, code, name)):
        return f"ignore {off_by_flag} (--ignore)"
    if on is None:
        return "not selected"
    before = _precision(on, code, name), _precision(off, code, name)
    if before[0] > before[1] or (before[0] == before[1] and flag is not None):
        return f"select {on} (--select)" if flag is not None else _stated(settings, "select", on)
    return _stated(settings, "ignore", off)


def _stated(settings: Settings, kind: str, selector: str | None) -> str:
    """A selector with the key and the file that it is in."""
    for source, key, given, _ in settings.selectors:
        if given == selector and key.rpartition(".")[2] in _KEYS[kind]:
            return f"{key} {selector} ({source})"
    return f"{kind} {selector} (default)"


# Settings that select rules, or turn them off.
_KEYS: Final = {"select": ("select", "extend-select"), "ignore": ("ignore", "extend-ignore", "severity")}


def _precision(selector: str | None, code: str, name: str) -> int:
    return -1 if selector is None else selects((selector,), code, name)


def table(settings: Mapping[str, Any]) -> Iterator[str]:
    """For people: the settings as TOML would have them, then a line per rule."""
    source = settings["settings-file"]
    yield f"# {printable(settings['path'])}: {printable(source) if source else 'no settings file, only defaults'}"
    for name in (*_LISTS, "exclude", *_PLAIN):
        value = settings[name]
        if value is not None:
            yield f"{name} = {printable(dumps(value, ensure_ascii=False))}"
    if settings["ignored-here"]:
        yield f"# per-file-ignores and overrides turn off here: {printable(', '.join(settings['ignored-here']))}"
    for selector, level in settings["severity"].items():
        yield f"severity.{printable(selector)} = {dumps(level)}"
    for rule in settings["require"]:
        yield f"require = {printable(dumps(rule, ensure_ascii=False))}"
    for name, value in settings["facts"].items():
        yield f"# fact: {printable(name)}={printable(value)}"
    yield "# rules"
    for code, rule in settings["rules"].items():
        yield f"#   {code}  {'on ' if rule['on'] else 'off'}  {rule['name']:<34} {printable(rule['because'])}"


def as_json(settings: list[dict[str, Any]]) -> Iterator[str]:
    """The same as a list, one object per path."""
    yield encoded(settings)
