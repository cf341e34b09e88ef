"""Rule selection: find the settings of a file and the rules that they enable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from cfglint_rules import registry
from cfglint_rules.rule import Rule, Scope
from cfglint_train.findings.finding import Severity
from cfglint_train.frameworks.registry import find_frameworks_of_rule
from cfglint_train.judging.options import LintOptions
from cfglint_train.settings.error import build_setting_error
from cfglint_train.settings.files import DISK, Files
from cfglint_train.settings.settings import Settings, discover, measure_precision


def build_settings_resolver(fixed: Settings | None, files: Files = DISK) -> Callable[[str], Settings]:
    """Return a function that finds the settings of a file: `fixed` if it is set, otherwise the nearest settings.

    Raise `SettingsError` if settings cannot be read, or name a rule or key that does not exist. The returned function
    raises it too.
    """
    if fixed is not None:
        settings = _validate_settings(fixed, files)
        return lambda _: settings
    found_settings: dict[str, Settings | None] = {}
    by_folder: dict[str, Settings] = {}

    def find_nearest(path: str) -> Settings:
        folder = os.path.dirname(path) or "."
        if folder not in by_folder:
            by_folder[folder] = _validate_settings(
                discover(folder, found_settings, files) or Settings(os.getcwd(), files=files), files
            )
        return by_folder[folder]

    return find_nearest


def _validate_settings(settings: Settings, files: Files) -> Settings:
    for _, key, selector, path in settings.selectors:
        if not registry.match_selector(selector):
            raise build_setting_error(path, key, f"{key}: {registry.describe_unknown(selector)}", files)
    for rule in settings.require:
        if rule.key:
            from cfglint_rules.vocabulary.given_names import explain_unknown

            problem = explain_unknown(rule.key, rule.frameworks)
            if problem is not None:
                raise build_setting_error(rule.path, f"{rule.place}.key", f"{rule.place}.key {problem}", files)
    return settings


# The selected rules, the ignored rules, those ignored for the file's path, and whether runs must be checked.
_RuleSettings = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]


class Selection:
    """The rules that flags and a file's settings enable, and that apply to its frameworks."""

    def __init__(self, settings_for: Callable[[str], Settings], options: LintOptions) -> None:
        """Prepare a selection; the settings of a file are found on first use."""
        self.settings_for = settings_for
        self._select = options.select
        self._ignore = options.ignore
        self._require_checked = options.require_checked
        self._enabled: dict[_RuleSettings, dict[str, Rule]] = {}
        self._applicable: dict[tuple[_RuleSettings, Scope, tuple[str, ...]], list[Rule]] = {}

    def list_enabled(self, path: str) -> Mapping[str, Rule]:
        """Return the rules that are enabled for a file, by code."""
        return self._compute_enabled(self._build_key(path))

    def list_applicable(self, path: str, scope: Scope, frameworks: tuple[str, ...]) -> list[Rule]:
        """Return the rules that are enabled for a file and apply to any of the frameworks."""
        key = (self._build_key(path), scope, frameworks)
        if key not in self._applicable:
            self._applicable[key] = [
                rule
                for rule in self._compute_enabled(key[0]).values()
                if rule.scope == scope
                and (not rule.particular or not find_frameworks_of_rule(rule.code).isdisjoint(frameworks))
            ]
        return self._applicable[key]

    def is_ignored(self, rule: Rule, path: str) -> bool:
        """Return whether a rule is off for a file and settings or flags explicitly ignore it."""
        settings = self.settings_for(path)
        ignore = (*settings.disabled_selectors, *settings.list_ignored(path), *self._ignore)
        return measure_precision(ignore, rule.code, rule.name) > 0 and rule.code not in self.list_enabled(path)

    def find_severity(self, rule: Rule, path: str) -> Severity | None:
        """Return the severity that the settings assign to a rule's findings in a file, or None if they assign none."""
        severity = self.settings_for(path).find_level(rule.code, rule.name)
        return None if severity == "off" else severity

    def _build_key(self, path: str) -> _RuleSettings:
        settings = self.settings_for(path)
        require_checked = settings.require_checked if self._require_checked is None else self._require_checked
        return settings.select, settings.disabled_selectors, settings.list_ignored(path), require_checked

    def _compute_enabled(self, key: _RuleSettings) -> dict[str, Rule]:
        if key not in self._enabled:
            select, ignore, path_ignored, require_checked = key
            self._enabled[key] = {
                code: rule
                for code, rule in registry.RULES.items()
                if measure_precision(path_ignored, code, rule.name) < 0
                and ((require_checked and rule.unchecked) or self._is_selected(select, ignore, code, rule.name))
            }
        return self._enabled[key]

    def _is_selected(self, select: tuple[str, ...], ignore: tuple[str, ...], code: str, name: str) -> bool:
        """Return whether a rule is selected: the more precise selector wins; on a tie, the rule is ignored.

        Flags override the settings: `--select` replaces their `select` and wins a tie with their `ignore`. `--ignore`
        wins unless `--select` is more precise.
        """
        selected = measure_precision(select if self._select is None else self._select, code, name)
        ignored, ignored_by_flag = measure_precision(ignore, code, name), measure_precision(self._ignore, code, name)
        if ignored_by_flag >= 0 and (self._select is None or ignored_by_flag >= selected):
            return False
        return selected >= 0 and (selected > ignored or (selected == ignored and self._select is not None))
