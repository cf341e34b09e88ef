"""Time and cost of a run, computed only from a throughput and a price that the user stated."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.catalogue import Price
from cfglint_train.plan.length import compute_max_steps
from cfglint_train.plan.names import Field
from cfglint_train.runs.assumptions import list_assumptions
from cfglint_train.runs.run import Run

_ROLLOUT_STAGES: Final = ("ppo", "grpo", "rloo", "reinforce", "ebft")
"""Stages that also generate tokens, whose number no file states."""
_CLUSTER: Final[tuple[Field, ...]] = ("launch.nodes", "launch.gpus_per_node")
_SECONDS: Final = 3600
"""Seconds of an hour."""


class Cost(Frozen):
    """Time and cost of a run."""

    tokens: int
    """Tokens that the run trains on."""
    is_limit: bool
    """True if the run may see fewer tokens: samples may be shorter, or the data set smaller."""
    hours: float
    price: Price | None
    """Price of all GPUs for `hours`; None if no price or no number of GPUs is stated."""


def compute_tokens_per_step(run: Run) -> int | None:
    """Return the tokens of an optimizer step with sequences of the full length, or None if a factor is unknown."""
    batch, length = run.plan.batch, run.plan.sequence.length
    if batch.global_tokens is not None:
        return batch.global_tokens
    if not batch.global_ or not length:
        return None
    return batch.global_ * length * (2 if batch.pairs else 1)


def compute_cost(run: Run) -> Cost | None:
    """Return the time and cost of a run.

    Return None if no throughput is stated, or if neither the steps, the tokens nor the samples of the run are.
    """
    batch, hardware = run.plan.batch, run.hardware
    if hardware.tokens_per_second is None or run.plan.method.stage in _ROLLOUT_STAGES:
        return None
    tokens, is_limit = batch.tokens, False
    assumed = {assumption.fact for assumption in list_assumptions(run)}
    if batch.steps is not None or tokens is None:
        steps, tokens_per_step = compute_max_steps(run.plan), compute_tokens_per_step(run)
        if steps is None or tokens_per_step is None or not assumed.isdisjoint(_CLUSTER):
            return None
        tokens = steps * tokens_per_step
        is_limit = batch.steps is None or "sequence.length" in assumed
    hours = tokens / hardware.tokens_per_second / _SECONDS
    gpus, price = run.plan.world_size, hardware.price_per_gpu_hour
    if price is None or gpus is None or not assumed.isdisjoint(_CLUSTER):
        return Cost(tokens, is_limit, hours, None)
    return Cost(tokens, is_limit, hours, price._replace(amount=price.amount * gpus * hours))
