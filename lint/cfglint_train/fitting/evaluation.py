"""A smaller evaluation batch that fits. The batch size affects only the duration of an evaluation, not its loss."""

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
"""Fields that may be assumed for the fix: an evaluation batch as large as the training batch is always harmless."""


def find_smaller_batch(run: Run) -> Fix | None:
    """Return a fix that sets the largest evaluation batch with a verdict no worse than the training step's.

    Candidates are the current batch halved repeatedly or, if the batch is not stated and larger than the training
    batch, the training batch and its halves. If the current batch is not expected to fit and no candidate fits, the
    fix sets the largest candidate that is tight.

    Return None if the batch is unknown or cannot be written, or if no candidate qualifies.
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
    """Yield `size` and its halves, each with its evaluation verdict if that is worse than the training step's.

    Sizes that do not take effect are skipped.
    """
    while size:
        changed = run.replace_fields({_FIELD: size})
        if changed.plan.batch.eval_micro == size:
            yield size, find_worse_evaluation(changed)
        size //= 2
