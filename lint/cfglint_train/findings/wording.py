"""Text for changes to plan fields, in terms of a run's keys: `micro_batch_size: 16 -> 2, save_only_model: true`."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps

from cfglint_train.documents.document import CannotEdit, Change, Delete, Rename, Unknown
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def format_changes(run: Run, changes: Mapping[Field, Any]) -> str:
    """Return each key that the changes write, with its old and new value.

    If the run's files cannot be edited that way, list the fields and new values as the files would spell them.
    """
    from cfglint_train.findings.draft import has_value, list_key_changes

    try:
        parts = dict.fromkeys(
            _format_change(config, change)
            for config, change in list_key_changes(run, changes)
            if not has_value(config, change)
        )
    except CannotEdit:
        parts = {}
    return ", ".join(parts or [f"{run.spell_key(field)}: {_format_value(value)}" for field, value in changes.items()])


def _format_change(config: Config, change: Change) -> str:
    route = change.route[len(config.root) :]
    key, old = format_route(route), config.get(*route)
    if isinstance(change, Delete):
        return f"remove {key}"
    if isinstance(change, Rename):
        return f"rename {key} to {change.key}"
    has_old_value = old is not None and not isinstance(old, (dict, list, Unknown))
    if not has_old_value and change.value is True and key.startswith("--"):
        return key
    return (
        f"{key}: {_format_value(old)} -> {_format_value(change.value)}"
        if has_old_value
        else f"{key}: {_format_value(change.value)}"
    )


def _format_value(value: Any) -> str:
    """Return a value as a file would spell it."""
    return value if isinstance(value, str) else dumps(value)
