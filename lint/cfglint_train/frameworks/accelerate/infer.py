"""Values that follow from accelerate's settings once the companion files are read."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.deepspeed.infer import infer_engine
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer import fsdp


def infer(job: Job) -> None:
    """Infer the DeepSpeed and FSDP values that an accelerate file determines without a training config."""
    if job.plan.get("parallel.strategy") == "zero" and job.plan.get("parallel.zero_stage") is not None:
        infer_engine(job)
    fsdp.infer_fsdp(job)


# The training config overrides these fields of the launch: the Trainer passes its own FSDP settings, batch and number
# format to accelerate, and reads the environment only if it has none.
SHARED_FIELDS: Final = frozenset((
    *fsdp.FSDP_FIELDS, "parallel.wrapped_classes", "precision.compute", "precision.autocast", "batch.accumulation",
    "optimizer.clipping",
))  # fmt: skip
