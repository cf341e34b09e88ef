"""Exit codes, and what decides among them."""

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
    """The settings with the flags that decide about the exit code laid over them."""
    flags = {name: getattr(options, name) for name in ("fail_on", "fail_on_assumed", "require_checked")}
    return settings._replace(**{name: value for name, value in flags.items() if value is not None})


def has_failures(result: Result, settings: Settings) -> bool:
    """Whether there is a finding that the settings do not let pass."""
    return any(_is_failure(finding, settings) for finding in result.findings)


def _is_failure(finding: Finding, settings: Settings) -> bool:
    from cfglint_rules.registry import RULES
    from cfglint_train.settings.settings import FAIL_ON

    if RULES[finding.code].unchecked and (settings.require_checked or finding.severity == "info"):
        return settings.require_checked
    if finding.certainty not in ("stated", "followed") and not settings.fail_on_assumed:
        return False
    return settings.fail_on != "never" and FAIL_ON.index(finding.severity) <= FAIL_ON.index(settings.fail_on)
