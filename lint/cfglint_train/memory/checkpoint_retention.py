"""How many checkpoints a run writes, and how many of them are on disk at once."""

from __future__ import annotations

from math import ceil

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import most_steps
from cfglint_train.plan.names import Field

_ONE_LIMIT: Final[tuple[Field, ...]] = ("checkpoint.keep",)


def writes_shards(plan: Plan) -> bool:
    """Whether checkpoints other than those that rank 0 writes whole are written.

    OLMo has both kinds. Under DDP it writes no sharded one (ai2-olmo 0.6.0, train.py); under FSDP one before the first
    step (v0.6.0, scripts/train.py), unless that is switched off or a checkpoint is loaded, and then one at each of its
    intervals.
    """
    saved = plan.checkpoint
    if saved.checkpointer is None:
        return True
    if plan.parallel.strategy == "ddp":
        return False
    never = saved.interval == 0 and not saved.interval_ephemeral and saved.at_start is False
    return not (never and saved.interval_unsharded)


def limits(plan: Plan) -> tuple[Field, ...]:
    """The fields that limit the checkpoints on disk, one for each kind that is written."""
    if not writes_shards(plan):
        # scripts/train.py takes the limit of the sharded ones where DDP is to keep no whole one.
        replaced = plan.parallel.strategy == "ddp" and plan.checkpoint.keep_unsharded == 0
        return ("checkpoint.keep",) if replaced else ("checkpoint.keep_unsharded",)
    return ("checkpoint.keep", "checkpoint.keep_unsharded") if plan.checkpoint.interval_unsharded else _ONE_LIMIT


def ephemeral(plan: Plan) -> int:
    """Checkpoints of which only the newest is kept, beside the others and the one being written: 1, or 0 without any.

    OLMo deletes it once a permanent one is written, OLMo-core keeps it until the next of its own; both write the next
    one before they delete the last (ai2-olmo 0.6.0, train.py; ai2-olmo-core 3.0.0, train/callbacks/checkpointer.py).
    """
    return 1 if plan.checkpoint.interval_ephemeral and writes_shards(plan) else 0


def most_saves(plan: Plan) -> int | None:
    """Checkpoints that are on disk at the end of a run that deletes none, at most; None where no limit is stated.

    The last one counts, also where it is a model alone. OLMo and OLMo-core write none at the end of a run that ends
    with all of its intervals, but one before the first step, and ephemeral ones, of which one is beside the others.
    """
    saved, epochs, steps = plan.checkpoint, plan.batch.epochs, most_steps(plan)
    if saved.strategy == "steps" and saved.interval and steps is not None:
        intervals = [saved.interval] if writes_shards(plan) else []
        intervals += [saved.interval_unsharded] if saved.interval_unsharded else []
        ends = saved.at_start is not None and all(steps % interval == 0 for interval in intervals)
        count = sum(steps // interval for interval in intervals) + (0 if ends else 1)
        return count + (1 if saved.at_start else 0) + ephemeral(plan)
    if saved.strategy == "epoch" and epochs is not None and plan.batch.steps is None:
        return ceil(epochs * (saved.per_epoch or 1))
    return None


def allowed(plan: Plan, kinds: tuple[Field, ...]) -> int:
    """Checkpoints that limits of `kinds` allow at once: those that are kept, and the one being written.

    Where the best one is loaded at the end, a limit of one keeps two: the best and the last. A kind of which all are
    kept counts as one, as does one whose limit is unknown.
    """
    stated = [plan.get(field) for field in kinds]
    best = bool(plan.checkpoint.load_best_at_end)
    kept = [2 if best and limit == 1 else limit for limit in stated if isinstance(limit, int)]
    passing = 0 if plan.checkpoint.keep == "all" else ephemeral(plan)
    written = 1 if (any(kept) or passing) and not plan.checkpoint.rotates_first else 0
    return max(1, sum(kept) + passing + written + len(stated) - len(kept))


def _saves_of(plan: Plan, kind: Field) -> int:
    """Checkpoints of a kind that a run of known length writes at its intervals."""
    saved, steps = plan.checkpoint, most_steps(plan)
    interval = saved.interval if kind == "checkpoint.keep" else saved.interval_unsharded
    return steps // interval if steps and interval else 1


def copies_of(plan: Plan, kinds: tuple[Field, ...] | None = None) -> int:
    """Checkpoints of all kinds (or of some) on disk at once: no more than the run writes, where its length is known,
    and all of those, or of a kind, where all are kept.
    """
    kinds = limits(plan) if kinds is None else kinds
    most = most_saves(plan)
    if most is None:
        return allowed(plan, kinds)
    whole = [kind for kind in kinds if plan.get(kind) == "all"]
    if len(whole) == len(kinds):
        return max(1, most)
    return max(1, min(most, allowed(plan, kinds) + sum(_saves_of(plan, kind) - 1 for kind in whole)))
