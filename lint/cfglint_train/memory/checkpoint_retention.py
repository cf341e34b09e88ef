"""Checkpoint counts: the checkpoints that a run writes, and those on disk at the same time."""

from __future__ import annotations

from math import ceil

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import compute_max_steps
from cfglint_train.plan.names import Field

_SINGLE_LIMIT: Final[tuple[Field, ...]] = ("checkpoint.keep",)


def has_sharded_checkpoints(plan: Plan) -> bool:
    """Return whether the run writes any checkpoint other than unsharded checkpoints from rank 0.

    Only OLMo has both kinds; the result is true for other frameworks. Under DDP, OLMo writes no sharded checkpoint
    (ai2-olmo 0.6.0, train.py). Under FSDP it writes one before the first step (v0.6.0, scripts/train.py), unless that
    is off or a checkpoint is loaded, and then one at each interval.
    """
    settings = plan.checkpoint
    if settings.checkpointer is None:
        return True
    if plan.parallel.strategy == "ddp":
        return False
    never = settings.interval == 0 and not settings.interval_ephemeral and settings.at_start is False
    return not (never and settings.interval_unsharded)


def list_limits(plan: Plan) -> tuple[Field, ...]:
    """Return the plan fields that limit the checkpoints on disk, one for each kind that the run writes."""
    if not has_sharded_checkpoints(plan):
        # Under DDP, scripts/train.py applies the limit of sharded checkpoints if that of unsharded checkpoints is 0.
        replaced = plan.parallel.strategy == "ddp" and plan.checkpoint.keep_unsharded == 0
        return ("checkpoint.keep",) if replaced else ("checkpoint.keep_unsharded",)
    return ("checkpoint.keep", "checkpoint.keep_unsharded") if plan.checkpoint.interval_unsharded else _SINGLE_LIMIT


def count_ephemeral(plan: Plan) -> int:
    """Return the number of ephemeral checkpoints kept beside permanent checkpoints: 1, or 0 if none is written.

    Only the newest is kept. OLMo deletes it when a permanent checkpoint is written; OLMo-core keeps it until the next
    ephemeral one. Both write the next checkpoint before they delete the last (ai2-olmo 0.6.0, train.py; ai2-olmo-core
    3.0.0, train/callbacks/checkpointer.py).
    """
    return 1 if plan.checkpoint.interval_ephemeral and has_sharded_checkpoints(plan) else 0


def saves_only_at_end(plan: Plan) -> bool:
    """Return whether the interval of a framework without a checkpointer of its own is 0: no checkpoint before the end.

    transformers before 4.42 then saves none at all; later releases save one at the last step (trainer_callback.py).
    """
    settings = plan.checkpoint
    return settings.strategy == "steps" and settings.interval == 0 and settings.checkpointer is None


def count_saves(plan: Plan) -> int | None:
    """Return the number of checkpoints at the end of a run that deletes none, or None if it is not known.

    The number is an upper limit. The checkpoint at the end of training counts, even if it holds only the model. OLMo
    and OLMo-core write none at the end if the last step is a multiple of all intervals. They may also write a
    checkpoint before the first step, and ephemeral checkpoints, which count as one.
    """
    settings, epochs, steps = plan.checkpoint, plan.batch.epochs, compute_max_steps(plan)
    if saves_only_at_end(plan):
        return 1
    if settings.strategy == "steps" and settings.interval and steps is not None:
        intervals = [settings.interval] if has_sharded_checkpoints(plan) else []
        intervals += [settings.interval_unsharded] if settings.interval_unsharded else []
        is_multiple = settings.at_start is not None and all(steps % interval == 0 for interval in intervals)
        count = sum(steps // interval for interval in intervals) + (0 if is_multiple else 1)
        return count + (1 if settings.at_start else 0) + count_ephemeral(plan)
    if settings.strategy == "epoch" and epochs is not None and plan.batch.steps is None:
        return ceil(epochs * (settings.per_epoch or 1))
    return None


def count_allowed(plan: Plan, kinds: tuple[Field, ...]) -> int:
    """Return the number of checkpoints that the limits of `kinds` allow at once.

    The checkpoint being written counts too. A limit of one keeps two, the best and the last, if the best checkpoint is
    loaded at the end. A kind without a limit, or with an unknown limit, counts as one.
    """
    stated = [plan.get(field) for field in kinds]
    loads_best = bool(plan.checkpoint.load_best_at_end)
    retained = [2 if loads_best and limit == 1 else limit for limit in stated if isinstance(limit, int)]
    ephemeral_count = 0 if plan.checkpoint.keep == "all" else count_ephemeral(plan)
    written = 1 if (any(retained) or ephemeral_count) and not plan.checkpoint.rotates_first else 0
    return max(1, sum(retained) + ephemeral_count + written + len(stated) - len(retained))


def _count_saves_of_kind(plan: Plan, kind: Field) -> int:
    """Return the number of checkpoints of a kind that a run writes at its intervals, or 1 if it is not known."""
    settings, steps = plan.checkpoint, compute_max_steps(plan)
    interval = settings.interval if kind == "checkpoint.keep" else settings.interval_unsharded
    return steps // interval if steps and interval else 1


def count_copies(plan: Plan, kinds: tuple[Field, ...] | None = None) -> int:
    """Return the number of checkpoints on disk at once, of `kinds` or, by default, of all kinds.

    If the length of the run is known, the result is at most the number that the run writes, and a kind without a limit
    counts with all its checkpoints.
    """
    kinds = list_limits(plan) if kinds is None else kinds
    total = count_saves(plan)
    if total is None:
        return count_allowed(plan, kinds)
    unlimited = [kind for kind in kinds if plan.get(kind) == "all"]
    if len(unlimited) == len(kinds):
        return max(1, total)
    return max(
        1, min(total, count_allowed(plan, kinds) + sum(_count_saves_of_kind(plan, kind) - 1 for kind in unlimited))
    )
