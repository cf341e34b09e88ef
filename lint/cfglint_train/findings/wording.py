"""New values of plan fields in the words of a run's files: `micro_batch_size: 16 -> 2, save_only_model: true`."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps

from cfglint_train.documents.document import CannotEdit, Change, Delete, Rename, Unknown
from cfglint_train.findings.draft import changes_of
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def worded(run: Run, changes: Mapping[Field, Any]) -> str:
    """Every key that the changes write, once, with its old and its new value.

    Where no key can be written, the fields are named as the run's files would spell them.
    """
    try:
        told = dict.fromkeys(_told(config, change) for config, change in changes_of(run, changes))
    except CannotEdit:
        told = {}
    return ", ".join(told or [f"{run.spell(field)}: {_plain(value)}" for field, value in changes.items()])


def _told(config: Config, change: Change) -> str:
    route = change.route[len(config.root) :]
    key, old = spelled(route), config.get(*route)
    if isinstance(change, Delete):
        return f"remove {key}"
    if isinstance(change, Rename):
        return f"rename {key} to {change.key}"
    known = old is not None and not isinstance(old, (dict, list, Unknown))
    if not known and change.value is True and key.startswith("--"):
        return key
    return f"{key}: {_plain(old)} -> {_plain(change.value)}" if known else f"{key}: {_plain(change.value)}"


def _plain(value: Any) -> str:
    """A value as a file has it."""
    return value if isinstance(value, str) else dumps(value)
