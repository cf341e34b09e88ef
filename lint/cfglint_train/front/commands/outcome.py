"""Exit codes, and the settings that choose between them."""

from __future__ import annotations

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cfglint_train.findings.finding import Finding
    from cfglint_train.judging.result import Result
    from cfglint_train.settings.settings import Settings

CLEAN: Final = 0
FINDINGS: Final = 1
TROUBLE: Final = 2
INTERRUPTED: Final = 130


def apply_flags(settings: Settings, options: Any) -> Settings:
    """Return the settings, overridden by the flags that affect the exit code."""
    flags = {name: getattr(options, name) for name in ("fail_on", "fail_on_assumed", "require_checked")}
    return settings._replace(**{name: value for name, value in flags.items() if value is not None})


def has_failures(result: Result, settings: Settings) -> bool:
    """Return whether at least one finding makes the command fail."""
    return any(_is_failure(finding, settings) for finding in result.findings)


def _is_failure(finding: Finding, settings: Settings) -> bool:
    from cfglint_rules.registry import RULES
    from cfglint_train.settings.settings import FAIL_ON

    if RULES[finding.code].unchecked and (settings.require_checked or finding.severity == "info"):
        return settings.require_checked
    if finding.certainty not in ("stated", "followed") and not settings.fail_on_assumed:
        return False
    return settings.fail_on != "never" and FAIL_ON.index(finding.severity) <= FAIL_ON.index(settings.fail_on)
