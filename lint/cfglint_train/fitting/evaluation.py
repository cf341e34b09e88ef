"""The batch with which an evaluation fits: it changes how long that takes, and neither its loss nor the training."""

from __future__ import annotations

from cfglint_train.findings.finding import Fix
from cfglint_train.findings.verdicts import EVALUATION, judge
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.project.run import Run

_FIELD: Final[Field] = "batch.eval_micro"
_HARMLESS: Final = frozenset(
    ("gpu", "launch.nodes", "launch.gpus_per_node", "parallel.strategy", "sequence.length", "sequence.eval_length")
)
"""An evaluation batch as large as the training batch costs nothing, whatever the hardware and the samples are."""


def smaller_batch(run: Run) -> Fix | None:
    """The largest evaluation batch that is expected to fit, of the halves of what is stated. Where nothing states it,
    of the training batch and its halves: as large as in training, an evaluation is safe whatever is assumed.

    None where the batch is unknown, where no smaller one fits, and where none can be written.
    """
    batch, training = run.plan.batch.eval_micro, run.plan.batch.micro or 1
    if not batch or run.framework.unwritten(_FIELD) is not None:
        return None
    fills_in = not run.stated(_FIELD) and batch > training
    size = training if fills_in else batch // 2
    while size > 1 and not _fits(run, size):
        size //= 2
    as_in_training = fills_in and size == training
    if not size or not (as_in_training or _fits(run, size)):
        return None
    message = f"{worded(run, {_FIELD: size})}, {'as in training' if as_in_training else 'which fits'}"
    despite = _HARMLESS if fills_in else frozenset()
    return Fix("safe", message, {_FIELD: size}, despite=despite, measured=not fills_in)


def _fits(run: Run, size: int) -> bool:
    """Whether an evaluation is expected to fit with a batch, or is not estimated."""
    judged = judge(run.changed({_FIELD: size}), "gpu", (EVALUATION,))
    return judged is None or judged.budget.expected <= judged.capacity
