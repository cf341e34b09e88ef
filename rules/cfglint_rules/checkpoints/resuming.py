"""Resuming: find the setting that makes a run resume from its own checkpoints."""

from __future__ import annotations

from posixpath import normpath

from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def find_resume_field(run: Run) -> Field | None:
    """Return the field that makes the run resume from its own checkpoints, or None.

    This is a load path below the run's checkpoint folder, or a stated request to resume from the newest checkpoint.
    """
    checkpoint = run.plan.checkpoint
    if (
        checkpoint.load_path
        and checkpoint.path
        and f"{normpath(checkpoint.load_path)}/".startswith(f"{normpath(checkpoint.path)}/")
    ):
        return "checkpoint.load_path"
    return (
        "checkpoint.resume_latest" if checkpoint.resume_latest and run.is_stated("checkpoint.resume_latest") else None
    )
