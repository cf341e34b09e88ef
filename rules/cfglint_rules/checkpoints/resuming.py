"""Whether a run is asked to resume from checkpoints of its own."""

from __future__ import annotations

from posixpath import normpath

from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def resumed_by(run: Run) -> Field | None:
    """The field by which the run is asked to resume from its own checkpoints; None if it is not."""
    saved = run.plan.checkpoint
    if saved.load_path and saved.path and f"{normpath(saved.load_path)}/".startswith(f"{normpath(saved.path)}/"):
        return "checkpoint.load_path"
    return "checkpoint.resume_latest" if saved.resume_latest and run.stated("checkpoint.resume_latest") else None
