"""How long a run is at most: several rules compare an interval with it, and the checkpoints that it writes follow."""

from __future__ import annotations

from math import ceil

from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field


def get_length_field(plan: Plan) -> Field:
    """The field that says how long the run is at most, where something does."""
    batch = plan.batch
    if batch.steps is not None:
        return "batch.steps"
    return "batch.samples" if batch.tokens is None else "batch.tokens"


def compute_max_steps(plan: Plan) -> int | None:
    """Optimizer steps of the whole run (rollouts in PPO), at most; None where no limit is stated.

    A limit of samples counts like the data that is there: packing and filters leave fewer rows of it.
    """
    batch = plan.batch
    if batch.steps is not None:
        return batch.steps
    samples_per_step = (
        batch.global_ if plan.data_parallel else None
    )  # it follows from the ranks, or is divided among them
    if batch.tokens is not None:
        tokens = (samples_per_step or 0) * (plan.sequence.length or 0)
        return ceil(batch.tokens / tokens) if tokens else None
    samples_per_step = plan.rollout.batch or samples_per_step
    if batch.samples is None or batch.epochs is None or not samples_per_step:
        return None
    return ceil(ceil(batch.samples / samples_per_step) * batch.epochs)
