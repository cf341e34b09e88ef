"""The number of checkpoints that a run writes, and that are on disk at once."""

from __future__ import annotations

from math import ceil

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import compute_max_steps
from cfglint_train.plan.names import Field

_SINGLE_LIMIT: Final[tuple[Field, ...]] = ("checkpoint.keep",)


def has_sharded_checkpoints(plan: Plan) -> bool:
    """Return whether the run writes other checkpoints than those that rank 0 writes as a whole.

    OLMo has both kinds. Under DDP it writes no sharded one (ai2-olmo 0.6.0, train.py). Under FSDP it writes one before
    the first step (v0.6.0, scripts/train.py), unless that is off or a checkpoint is loaded, and then one at each
    interval.
    """
    settings = plan.checkpoint
    if settings.checkpointer is None:
        return True
    if plan.parallel.strategy == "ddp":
        return False
    never = settings.interval == 0 and not settings.interval_ephemeral and settings.at_start is False
    return not (never and settings.interval_unsharded)


def list_limits(plan: Plan) -> tuple[Field, ...]:
    """Return the fields that limit the checkpoints on disk, one for each kind that is written."""
    if not has_sharded_checkpoints(plan):
        # scripts/train.py uses the limit of the sharded ones if DDP should keep no unsharded one.
        replaced = plan.parallel.strategy == "ddp" and plan.checkpoint.keep_unsharded == 0
        return ("checkpoint.keep",) if replaced else ("checkpoint.keep_unsharded",)
    return ("checkpoint.keep", "checkpoint.keep_unsharded") if plan.checkpoint.interval_unsharded else _SINGLE_LIMIT


def count_ephemeral(plan: Plan) -> int:
    """Return the checkpoints of which only the newest is kept, besides the others: 1, or 0 without any.

    OLMo deletes it when a permanent one is written, OLMo-core keeps it until the next ephemeral one; both write the
    next before they delete the last (ai2-olmo 0.6.0, train.py; ai2-olmo-core 3.0.0, train/callbacks/checkpointer.py).
    """
    return 1 if plan.checkpoint.interval_ephemeral and has_sharded_checkpoints(plan) else 0


def count_saves(plan: Plan) -> int | None:
    """Return the maximum number of checkpoints at the end of a run that deletes none, or None if it is unlimited.

    The last one counts, even if it is a model alone. OLMo and OLMo-core write none at the end of a run whose last step
    is a multiple of all intervals, but one before the first step, and ephemeral ones, of which one exists besides the
    others.
    """
    settings, epochs, steps = plan.checkpoint, plan.batch.epochs, compute_max_steps(plan)
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
    """Return the checkpoints that the limits of `kinds` allow at once: retained ones, and the one being written.

    If the best one is loaded at the end, a limit of one keeps two: the best and the last. A kind of which all are kept
    counts as one, and so does one with an unknown limit.
    """
    stated = [plan.get(field) for field in kinds]
    loads_best = bool(plan.checkpoint.load_best_at_end)
    retained = [2 if loads_best and limit == 1 else limit for limit in stated if isinstance(limit, int)]
    ephemeral_count = 0 if plan.checkpoint.keep == "all" else count_ephemeral(plan)
    written = 1 if (any(retained) or ephemeral_count) and not plan.checkpoint.rotates_first else 0
    return max(1, sum(retained) + ephemeral_count + written + len(stated) - len(retained))


def _count_saves_of_kind(plan: Plan, kind: Field) -> int:
    """Return the checkpoints of a kind that a run of known length writes at its intervals."""
    settings, steps = plan.checkpoint, compute_max_steps(plan)
    interval = settings.interval if kind == "checkpoint.keep" else settings.interval_unsharded
    return steps // interval if steps and interval else 1


def count_copies(plan: Plan, kinds: tuple[Field, ...] | None = None) -> int:
    """Return the checkpoints of all kinds (or of some) on disk at once.

    If the length of the run is known, no more than it writes; if all of a kind are kept, all that it writes.
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
