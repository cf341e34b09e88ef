"""Upper limit of a run's length in optimizer steps.

Several rules compare intervals with it, and the number of checkpoints depends on it.
"""

from __future__ import annotations

from math import ceil

from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field


def get_length_field(plan: Plan) -> Field:
    """Return the field that limits the length of the run."""
    batch = plan.batch
    if batch.steps is not None:
        return "batch.steps"
    return "batch.samples" if batch.tokens is None else "batch.tokens"


def compute_max_steps(plan: Plan) -> int | None:
    """Return the largest number of optimizer steps (rollouts in PPO), or None if no limit is stated.

    `batch.samples` only gives an upper bound, because the data set may be smaller, and packing and filters leave fewer
    rows.
    """
    batch = plan.batch
    if batch.steps is not None:
        return batch.steps
    samples_per_step = batch.global_ if plan.data_parallel else None  # the global batch depends on the ranks
    if batch.tokens is not None:
        tokens = (samples_per_step or 0) * (plan.sequence.length or 0)
        return ceil(batch.tokens / tokens) if tokens else None
    samples_per_step = plan.rollout.batch or samples_per_step
    if batch.samples is None or batch.epochs is None or not samples_per_step:
        return None
    return ceil(ceil(batch.samples / samples_per_step) * batch.epochs)
