"""Memory fixes: the moves that `cfglint fit` makes, and the fields that they change."""

from __future__ import annotations

from cfglint_train.findings.finding import Fix
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

CHANGED: Final[tuple[Field, ...]] = (
    "activations.attention",
    "activations.checkpointing",
    "activations.fused_loss",
    "activations.liger_layers",
    "activations.offload",
    "batch.accumulation",
    "batch.eval_micro",
    "batch.global_",
    "batch.micro",
    "batch.tokens_per_gpu",
    "checkpoint.gather",
    "checkpoint.keep",
    "checkpoint.model_only",
    "checkpoint.state_dict",
    "method.quantization",
    "method.quantized_experts",
    "method.reference_offload",
    "method.tuning",
    "model.dtype",
    "optimizer.implementation",
    "optimizer.name",
    "optimizer.state_bits",
    "parallel.cpu_efficient_loading",
    "parallel.offload_optimizer",
    "parallel.offload_params",
    "parallel.prefetch_bucket",
    "parallel.reduce_bucket",
    "parallel.reshard_after_forward",
    "parallel.sharding",
    "parallel.sub_group",
    "parallel.zero_stage",
    "rollout.micro",
    "rollout.sleep",
    "rollout.train_sleep",
    "rollout.utilization",
    "sequence.eval_length",
    "sequence.length",
)


def fitting_with(run: Run, field: Field) -> tuple[Fix | None, str | None]:
    """The remedy of a rule about one field: the smallest change with which the step fits, where the field is in it."""
    from cfglint_train.fitting.smallest import smallest  # with the fixer, and only where something is wrong

    solution = smallest(run)
    return solution.fix if solution is not None and field in solution.changes else None, None
