"""The settings in effect for a path, their sources, and the rules they enable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from json import dumps

from cfglint_rules.registry import RULES
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Protocol
from cfglint_train.reports.escape import escape_text
from cfglint_train.reports.json import encode
from cfglint_train.settings.settings import Settings, find_most_precise, measure_precision

if TYPE_CHECKING:
    from cfglint_train.settings.house_rules import HouseRule


class RuleFlags(Protocol):
    """The flags that select rules, named as in `api.Options`."""

    @property
    def select(self) -> Iterable[str] | None:
        """Value of `--select`."""

    @property
    def ignore(self) -> Iterable[str]:
        """Value of `--ignore`."""


_LIST_SETTINGS: Final = {
    "select": "select",
    "ignore": "ignore",
    "fixable": "fixable",
    "unfixable": "unfixable",
    "extend-safe-fixes": "safe_fixes",
    "extend-unsafe-fixes": "unsafe_fixes",
}
_PLAIN_SETTINGS: Final = {
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


def collect_settings(path: str, settings: Settings, options: RuleFlags, enabled: Collection[str]) -> dict[str, Any]:
    """Return the settings for a path as plain values, with the flags and the reason for each rule's state."""
    return {
        "path": path,
        "settings-file": settings.source,
        **{name: list(getattr(settings, field)) for name, field in _LIST_SETTINGS.items()},
        "flags": {
            "select": None if options.select is None else list(options.select),
            "ignore": list(options.ignore),
        },
        "exclude": [glob.text for glob in settings.exclude],
        "ignored-here": list(settings.list_ignored(path)),
        **{name: getattr(settings, field) for name, field in _PLAIN_SETTINGS.items()},
        "severity": dict(settings.severity),
        "require": [_describe_house_rule(rule) for rule in settings.require],
        "facts": dict(settings.collect_facts(path)),
        "rules": {
            code: {
                "name": rule.name,
                "on": code in enabled,
                "because": _explain_rule(code, rule.name, path, settings, options),
            }
            for code, rule in RULES.items()
        },
    }


def _describe_house_rule(rule: HouseRule) -> dict[str, Any]:
    """Return a house rule as its table states it, with the settings file."""
    subjects = {"that": rule.condition, "field": rule.field, "key": rule.key}
    limits = {"paths": [glob.text for glob in rule.paths], "frameworks": list(rule.frameworks)}
    return {
        "settings-file": rule.path,
        **{name: subject for name, subject in subjects.items() if subject},
        **{test: list(expected) if isinstance(expected, tuple) else expected for test, expected in rule.tests},
        "message": rule.message,
        "severity": rule.severity,
        **limits,
    }


def _explain_rule(code: str, name: str, path: str, settings: Settings, options: RuleFlags) -> str:
    """Return the selector that enables or disables a rule, with its source.

    The engine decides independently; tests check that both agree.
    """
    path_selector = find_most_precise(settings.list_ignored(path), code, name)
    if path_selector is not None:
        return f"ignored for this path: {path_selector} ({settings.source})"
    select_flag = None if options.select is None else tuple(options.select)
    select = find_most_precise(settings.select if select_flag is None else select_flag, code, name)
    ignore_flag, ignore = (
        find_most_precise(tuple(options.ignore), code, name),
        find_most_precise(settings.disabled_selectors, code, name),
    )
    if ignore_flag is not None and (
        select_flag is None or _compute_precision(ignore_flag, code, name) >= _compute_precision(select, code, name)
    ):
        return f"ignore {ignore_flag} (--ignore)"
    if select is None:
        return "not selected"
    ranks = _compute_precision(select, code, name), _compute_precision(ignore, code, name)
    if ranks[0] > ranks[1] or (ranks[0] == ranks[1] and select_flag is not None):
        return (
            f"select {select} (--select)" if select_flag is not None else _format_selector(settings, "select", select)
        )
    return _format_selector(settings, "ignore", ignore)


def _format_selector(settings: Settings, kind: str, selector: str | None) -> str:
    """Return a selector with the key and the file that set it, or marked as a default."""
    for source, key, value, _ in settings.selectors:
        if value == selector and key.rpartition(".")[2] in _KEYS[kind]:
            return f"{key} {selector} ({source})"
    return f"{kind} {selector} (default)"


# Settings that enable or disable rules.
_KEYS: Final = {"select": ("select", "extend-select"), "ignore": ("ignore", "extend-ignore", "severity")}


def _compute_precision(selector: str | None, code: str, name: str) -> int:
    return -1 if selector is None else measure_precision((selector,), code, name)


def render_table(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings as TOML, then a line per rule."""
    source = settings["settings-file"]
    yield f"# {escape_text(settings['path'])}: {escape_text(source) if source else 'no settings file, only defaults'}"
    for name in (*_LIST_SETTINGS, "exclude", *_PLAIN_SETTINGS):
        value = settings[name]
        if value is not None:
            yield f"{name} = {escape_text(dumps(value, ensure_ascii=False))}"
    if settings["ignored-here"]:
        yield f"# per-file-ignores and overrides turn off here: {escape_text(', '.join(settings['ignored-here']))}"
    for selector, level in settings["severity"].items():
        yield f"severity.{escape_text(selector)} = {dumps(level)}"
    for rule in settings["require"]:
        yield f"require = {escape_text(dumps(rule, ensure_ascii=False))}"
    for name, value in settings["facts"].items():
        yield f"# fact: {escape_text(name)}={escape_text(value)}"
    yield "# rules"
    for code, rule in settings["rules"].items():
        yield f"#   {code}  {'on ' if rule['on'] else 'off'}  {rule['name']:<34} {escape_text(rule['because'])}"


def render_json(settings: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the settings as a JSON list with one object per path."""
    yield encode(settings)
