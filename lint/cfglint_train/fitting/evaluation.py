"""The batch with which an evaluation fits. It affects only its duration, not its loss or the training."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.findings.finding import Fix
from cfglint_train.findings.verdicts import Judgement, find_worse_evaluation
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

_FIELD: Final[Field] = "batch.eval_micro"
_HARMLESS: Final = frozenset(
    ("gpu", "launch.nodes", "launch.gpus_per_node", "parallel.strategy", "sequence.length", "sequence.eval_length")
)
"""An evaluation batch as large as the training batch is harmless on any hardware and with any samples."""


def find_smaller_batch(run: Run) -> Fix | None:
    """Return a fix with the largest evaluation batch that fits like the training step.

    Candidates are halves of the stated batch or, if none is stated, the training batch and its halves. If only a tight
    one is available, and the present one is not expected to fit, it is the largest of those.

    None if the batch is unknown or has no effect, if no smaller one fits, or if none can be written.
    """
    batch, training = run.plan.batch.eval_micro, run.plan.batch.micro or 1
    if not batch or run.framework.explain_unwritable(_FIELD) is not None:
        return None
    present, fills_in = find_worse_evaluation(run), not run.is_stated(_FIELD) and batch > training
    candidates = tuple(_generate_sizes(run, training if fills_in else batch // 2))
    size = next((candidate for candidate, worse in candidates if worse is None), 0)
    reason = "as in training" if fills_in and size == training else "which fits"
    if not size and present is not None and present.verdict != "tight":
        size = next((candidate for candidate, worse in candidates if worse is not None and worse.verdict == "tight"), 0)
        reason = "which is tight but expected to fit"
    if not size:
        return None
    despite = _HARMLESS if fills_in else frozenset()
    message = f"{format_changes(run, {_FIELD: size})}, {reason}"
    return Fix("safe", message, {_FIELD: size}, tolerated_assumptions=despite, uses_estimate=not fills_in)


def _generate_sizes(run: Run, size: int) -> Iterator[tuple[int, Judgement | None]]:
    """Yield a batch and its halves, with the verdict on each if it is worse than the training step's.

    Batches that do not take effect are skipped.
    """
    while size:
        changed = run.replace_fields({_FIELD: size})
        if changed.plan.batch.eval_micro == size:
            yield size, find_worse_evaluation(changed)
        size //= 2
