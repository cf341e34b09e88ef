"""Plan fields that affect only the budgets of some phases."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field

LOAD_FIELDS: Final[frozenset[Field]] = frozenset(
    ("method.reads_ahead", "model.init_device", "parallel.cpu_efficient_loading")
)
HOST_FIELDS: Final[frozenset[Field]] = frozenset(
    (
        "data.prefetch",
        "data.workers",
        "rollout.expert",
        "rollout.mode",
        "rollout.sleep",
        "rollout.sleep_discards",
        "rollout.tensor",
        "rollout.train_sleep",
        "rollout.weights_sleep",
    )
)
SAVE_FIELDS: Final[frozenset[Field]] = frozenset(
    (
        "checkpoint.at_start",
        "checkpoint.checkpointer",
        "checkpoint.final",
        "checkpoint.gather",
        "checkpoint.gathers_frozen",
        "checkpoint.interval",
        "checkpoint.interval_ephemeral",
        "checkpoint.interval_unsharded",
        "checkpoint.keep",
        "checkpoint.keep_unsharded",
        "checkpoint.model_only",
        "checkpoint.rotates_first",
        "checkpoint.state_dict",
        "checkpoint.strategy",
        "rollout.awake_at_save",
    )
)
DISK_FIELDS: Final[frozenset[Field]] = SAVE_FIELDS | frozenset(
    (
        "batch.epochs",
        "batch.global_",
        "batch.samples",
        "batch.steps",
        "batch.tokens",
        "checkpoint.load_best_at_end",
        "checkpoint.per_epoch",
        "rollout.batch",
    )
)
"""Fields of the disk budget. They include the length of the run because it limits the number of checkpoints."""
SAVE_HOST_FIELDS: Final = HOST_FIELDS | SAVE_FIELDS
RESUME_FIELDS: Final[frozenset[Field]] = frozenset(
    (
        "checkpoint.checkpointer",
        "checkpoint.load_optimizer",
        "checkpoint.load_path",
        "checkpoint.model_only",
        "checkpoint.resume_latest",
        "checkpoint.state_dict",
    )
)
EVAL_FIELDS: Final[frozenset[Field]] = frozenset(("eval.enabled", "eval.strategy"))
ROLLOUT_FIELDS: Final[frozenset[Field]] = frozenset(
    (
        "rollout.engine",
        "rollout.expert",
        "rollout.gathers",
        "rollout.includes_training",
        "rollout.mode",
        "rollout.sleep",
        "rollout.sync_bucket",
        "rollout.tensor",
        "rollout.train_sleep",
        "rollout.utilization",
        "rollout.wakes_first",
        "rollout.weights_sleep",
    )
)
NO_FIELDS: Final[frozenset[Field]] = frozenset()
