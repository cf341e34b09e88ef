"""How many checkpoints a run writes, and how many of them are on disk at once."""

from __future__ import annotations

from math import ceil

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import compute_max_steps
from cfglint_train.plan.names import Field

_SINGLE_LIMIT: Final[tuple[Field, ...]] = ("checkpoint.keep",)


def has_sharded_checkpoints(plan: Plan) -> bool:
    """Whether checkpoints other than those that rank 0 writes whole are written.

    OLMo has both kinds. Under DDP it writes no sharded one (ai2-olmo 0.6.0, train.py); under FSDP one before the first
    step (v0.6.0, scripts/train.py), unless that is switched off or a checkpoint is loaded, and then one at each of its
    intervals.
    """
    settings = plan.checkpoint
    if settings.checkpointer is None:
        return True
    if plan.parallel.strategy == "ddp":
        return False
    never = settings.interval == 0 and not settings.interval_ephemeral and settings.at_start is False
    return not (never and settings.interval_unsharded)


def list_limits(plan: Plan) -> tuple[Field, ...]:
    """The fields that limit the checkpoints on disk, one for each kind that is written."""
    if not has_sharded_checkpoints(plan):
        # scripts/train.py takes the limit of the sharded ones where DDP is to keep no whole one.
        replaced = plan.parallel.strategy == "ddp" and plan.checkpoint.keep_unsharded == 0
        return ("checkpoint.keep",) if replaced else ("checkpoint.keep_unsharded",)
    return ("checkpoint.keep", "checkpoint.keep_unsharded") if plan.checkpoint.interval_unsharded else _SINGLE_LIMIT


def count_ephemeral(plan: Plan) -> int:
    """Checkpoints of which only the newest is kept, beside the others and the one being written: 1, or 0 without any.

    OLMo deletes it once a permanent one is written, OLMo-core keeps it until the next of its own; both write the next
    one before they delete the last (ai2-olmo 0.6.0, train.py; ai2-olmo-core 3.0.0, train/callbacks/checkpointer.py).
    """
    return 1 if plan.checkpoint.interval_ephemeral and has_sharded_checkpoints(plan) else 0


def count_saves(plan: Plan) -> int | None:
    """Checkpoints that are on disk at the end of a run that deletes none, at most; None where no limit is stated.

    The last one counts, also where it is a model alone. OLMo and OLMo-core write none at the end of a run that ends
    with all of its intervals, but one before the first step, and ephemeral ones, of which one is beside the others.
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
    """Checkpoints that limits of `kinds` allow at once: those that are kept, and the one being written.

    Where the best one is loaded at the end, a limit of one keeps two: the best and the last. A kind of which all are
    kept counts as one, as does one whose limit is unknown.
    """
    stated = [plan.get(field) for field in kinds]
    loads_best = bool(plan.checkpoint.load_best_at_end)
    retained = [2 if loads_best and limit == 1 else limit for limit in stated if isinstance(limit, int)]
    ephemeral_count = 0 if plan.checkpoint.keep == "all" else count_ephemeral(plan)
    written = 1 if (any(retained) or ephemeral_count) and not plan.checkpoint.rotates_first else 0
    return max(1, sum(retained) + ephemeral_count + written + len(stated) - len(retained))


def _count_saves_of_kind(plan: Plan, kind: Field) -> int:
    """Checkpoints of a kind that a run of known length writes at its intervals."""
    settings, steps = plan.checkpoint, compute_max_steps(plan)
    interval = settings.interval if kind == "checkpoint.keep" else settings.interval_unsharded
    return steps // interval if steps and interval else 1


def count_copies(plan: Plan, kinds: tuple[Field, ...] | None = None) -> int:
    """Checkpoints of all kinds (or of some) on disk at once: no more than the run writes, where its length is known,
    and all of those, or of a kind, where all are kept.
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
