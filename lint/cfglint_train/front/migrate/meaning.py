"""Changes in a run's behavior after a migration: differences between the plans, and changed defaults."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.front.migrate.goal import Goal
from cfglint_train.plan.reading import SPELLINGS, find_changed_fields
from cfglint_train.releases.changed_keys import compare_defaults
from cfglint_train.runs.run import Run

_NONE: Final = "none"


def find_differences(before: Run, after: Run) -> Iterator[tuple[str, str]]:
    """Yield the new key of each setting whose effect changes, with a sentence that describes the change."""
    for field, value in sorted(find_changed_fields(before.resolved_plan, after.resolved_plan).items()):
        old_value = before.resolved_plan.get(field)
        if field in SPELLINGS or old_value is None or value is None:
            continue  # values unknown on either side cannot be compared
        key = after.spell_key(field)
        yield key, f"{key}: {_format_value(old_value)} before, {_format_value(value)} now ({field})"


def find_changed_defaults(before: Run, after: Run, goal: Goal) -> Iterator[tuple[str, str]]:
    """Yield the new key of each unset setting whose default changes, with a sentence that describes the change.

    Yield nothing if the release that the file was written for is only assumed.
    """
    if not before.releases.is_assumed(goal.find_package(after.main.framework)):
        for name, old, new in compare_defaults(before.main, after.main, goal.to):
            yield name, f"{name} is not set; its default changes from {_format_value(old)} to {_format_value(new)}"


def _format_value(value: Any) -> str:
    if value is None:
        return _NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
