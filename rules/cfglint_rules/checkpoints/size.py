"""Checkpoint size: estimate one checkpoint, for the rules that need its size."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import Phase
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

MAX_EXPECTED_CHECKPOINTS: Final = 50
"""Assumed maximum number of checkpoints of a run of unknown length."""


def estimate_save(run: Run, changes: Mapping[Field, Any] | None = None) -> Phase | None:
    """Return host and disk of the save phase with a single checkpoint on disk, after optional changes to the plan."""
    single_checkpoint: dict[Field, Any] = {
        "checkpoint.keep": 0,
        "checkpoint.keep_unsharded": 0,
        "checkpoint.rotates_first": True,
    }
    return run.replace_fields({**(changes or {}), **single_checkpoint}).compute_once(_estimate_save)


def _estimate_save(run: Run) -> Phase | None:
    if run.architecture is None:
        return None
    from cfglint_train.memory.estimate import estimate_checkpoint

    return estimate_checkpoint(run.plan, run.architecture, run.hardware, run.resolved_plan.unreadable_fields)


def is_no_limit(limit: Any, save_count: int | None) -> bool:
    """Return whether a limit deletes no checkpoint, as 999 in a run of unknown length (`save_count` is None)."""
    return limit == "all" or (save_count is None and limit > MAX_EXPECTED_CHECKPOINTS)


def spell_limit(run: Run, field: Field) -> str:
    """Return the key of a limit, with its value if it has one."""
    limit = run.plan.get(field)
    return run.spell_key(field) if limit == "all" else f"{run.spell_key(field)}: {limit}"
