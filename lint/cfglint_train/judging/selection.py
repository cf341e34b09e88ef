"""Which settings hold for a file, and which rules are therefore on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from cfglint_rules import registry
from cfglint_rules.rule import Rule, Scope
from cfglint_train.findings.finding import Severity
from cfglint_train.frameworks.registry import naming
from cfglint_train.judging.options import LintOptions
from cfglint_train.settings.error import wrong
from cfglint_train.settings.files import DISK, Files
from cfglint_train.settings.settings import Settings, discover, selects


def settings_resolver(fixed: Settings | None, files: Files = DISK) -> Callable[[str], Settings]:
    """The settings of each file: always the same ones, or those nearest to it.

    It raises SettingsError where they cannot be read, or name rules or keys that do not exist.
    """
    if fixed is not None:
        settings = _sound(fixed, files)
        return lambda _: settings
    known: dict[str, Settings | None] = {}
    by_folder: dict[str, Settings] = {}

    def nearest(path: str) -> Settings:
        folder = os.path.dirname(path) or "."
        if folder not in by_folder:
            by_folder[folder] = _sound(discover(folder, known, files) or Settings(os.getcwd()), files)
        return by_folder[folder]

    return nearest


def _sound(settings: Settings, files: Files) -> Settings:
    for _, key, selector, path in settings.selectors:
        if not registry.meant(selector):
            raise wrong(path, key, f"{key}: {registry.unknown(selector)}", files)
    for rule in settings.require:
        if rule.field is None:
            from cfglint_rules.vocabulary.given_names import unknown

            problem = unknown(rule.key, rule.frameworks)
            if problem is not None:
                raise wrong(rule.path, f"{rule.place}.key", f"{rule.place}.key {problem}", files)
    return settings


# What a file's settings select, what they ignore, what they ignore for its path, and whether runs must be checked.
_Settings = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]


class Selection:
    """The rules that are on: by the settings of a file and the flags, and by the frameworks that a rule applies to."""

    def __init__(self, settings_for: Callable[[str], Settings], options: LintOptions) -> None:
        self.settings_for = settings_for
        self._select = options.select
        self._ignore = options.ignore
        self._require_checked = options.require_checked
        self._enabled: dict[_Settings, dict[str, Rule]] = {}
        self._applying: dict[tuple[_Settings, Scope, tuple[str, ...]], list[Rule]] = {}

    def enabled(self, path: str) -> Mapping[str, Rule]:
        """The rules that are on for a file, by their codes."""
        return self._of(self._key(path))

    def applying(self, path: str, scope: Scope, frameworks: tuple[str, ...]) -> list[Rule]:
        """The rules that are on for a file and apply to some frameworks."""
        key = (self._key(path), scope, frameworks)
        if key not in self._applying:
            self._applying[key] = [
                rule
                for rule in self._of(key[0]).values()
                if rule.scope == scope and (not rule.particular or not naming(rule.code).isdisjoint(frameworks))
            ]
        return self._applying[key]

    def ignores(self, rule: Rule, path: str) -> bool:
        """Whether settings or flags ignore a rule for a file, rather than select others."""
        settings = self.settings_for(path)
        ignore = (*settings.off, *settings.ignored(path), *self._ignore)
        return selects(ignore, rule.code, rule.name) > 0 and rule.code not in self.enabled(path)

    def level(self, rule: Rule, path: str) -> Severity | None:
        """The severity that the settings give a rule's findings in a file; None where they leave them theirs."""
        level = self.settings_for(path).level(rule.code, rule.name)
        return None if level == "off" else level

    def _key(self, path: str) -> _Settings:
        settings = self.settings_for(path)
        required = settings.require_checked if self._require_checked is None else self._require_checked
        return settings.select, settings.off, settings.ignored(path), required

    def _of(self, key: _Settings) -> dict[str, Rule]:
        if key not in self._enabled:
            select, ignore, off, required = key
            self._enabled[key] = {
                code: rule
                for code, rule in registry.RULES.items()
                if selects(off, code, rule.name) < 0
                and ((required and rule.unchecked) or self._chosen(select, ignore, code, rule.name))
            }
        return self._enabled[key]

    def _chosen(self, select: tuple[str, ...], ignore: tuple[str, ...], code: str, name: str) -> bool:
        """Whether a rule is selected: the more precise of two selectors wins, of two equal ones the ignoring one.

        Flags override the settings: `--select` replaces their `select` and wins a tie, `--ignore` always wins.
        """
        on = selects(select if self._select is None else self._select, code, name)
        off, off_by_flag = selects(ignore, code, name), selects(self._ignore, code, name)
        if off_by_flag >= 0 and (self._select is None or off_by_flag >= on):
            return False
        return on >= 0 and (on > off or (on == off and self._select is not None))
