"""The batch with which an evaluation fits: it changes how long that takes, and neither its loss nor the training."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.findings.finding import Fix
from cfglint_train.findings.verdicts import Judgement, worse_evaluation
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

_FIELD: Final[Field] = "batch.eval_micro"
_HARMLESS: Final = frozenset(
    ("gpu", "launch.nodes", "launch.gpus_per_node", "parallel.strategy", "sequence.length", "sequence.eval_length")
)
"""An evaluation batch as large as the training batch costs nothing, whatever the hardware and the samples are."""


def smaller_batch(run: Run) -> Fix | None:
    """The largest evaluation batch that fits like the training step, of the halves of what is stated. Where nothing
    states it, of the training batch and its halves. Where only a tight one can be had, and what is in force is not
    expected to fit: the largest of those.

    None where the batch is unknown or has no effect, where no smaller one fits, and where none can be written.
    """
    batch, training = run.plan.batch.eval_micro, run.plan.batch.micro or 1
    if not batch or run.framework.unwritten(_FIELD) is not None:
        return None
    now, fills_in = worse_evaluation(run), not run.stated(_FIELD) and batch > training
    found = tuple(_smaller(run, training if fills_in else batch // 2))
    size = next((one for one, worse in found if worse is None), 0)
    why = "as in training" if fills_in and size == training else "which fits"
    if not size and now is not None and now.verdict != "tight":
        size = next((one for one, worse in found if worse is not None and worse.verdict == "tight"), 0)
        why = "which is expected to fit and remains tight"
    if not size:
        return None
    despite = _HARMLESS if fills_in else frozenset()
    message = f"{worded(run, {_FIELD: size})}, {why}"
    return Fix("safe", message, {_FIELD: size}, despite=despite, measured=not fills_in)


def _smaller(run: Run, size: int) -> Iterator[tuple[int, Judgement | None]]:
    """A batch and its halves, those that take effect, each with its verdict where that is worse than the training
    step's.
    """
    while size:
        changed = run.changed({_FIELD: size})
        if changed.plan.batch.eval_micro == size:
            yield size, worse_evaluation(changed)
        size //= 2
