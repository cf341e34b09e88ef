"""Guest 1.0 to 2.0: one YAML file (`guest/config.py`, `guest/train.py`)."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Framework, Job
from cfglint_train.frameworks.guest.lenses import LENSES
from cfglint_train.plan.names import Field

# guest/train.py: torch.autocast over fp32 weights, AdamW, FSDP2 with one unit per block.
_FIXED_VALUES: Final[tuple[tuple[Field, Any], ...]] = (
    ("method.stage", "sft"),
    ("method.tuning", "full"),
    ("precision.params", "fp32"),
    ("precision.grads", "fp32"),
    ("precision.master", "none"),
    ("precision.autocast", True),
    ("optimizer.name", "adamw"),
    ("optimizer.state_bits", 32),
    ("optimizer.implementation", "foreach"),
    ("optimizer.paged", False),
    ("sequence.padding", "max_length"),
    ("activations.reentrant", False),
    ("activations.attention", "sdpa"),
    ("activations.fused_loss", "none"),
    ("parallel.sharding", "full_shard"),
    ("parallel.reshard_after_forward", True),
    ("parallel.wrapping", "block"),
    ("parallel.communication", "fp32"),
    ("checkpoint.strategy", "steps"),
    ("checkpoint.state_dict", "sharded"),
)


def infer(job: Job) -> None:
    """Infer the fields that no key changes, and the shards over all ranks."""
    reading = job.plan
    for field, value in _FIXED_VALUES:
        reading.infer(field, value, "guest/train.py")
    if reading.get("parallel.strategy") == "fsdp2":
        reading.infer("parallel.shard_size", reading.world_size, "all ranks")
        reading.infer("parallel.replicas", 1, "all ranks")


FRAMEWORK: Final = Framework(name="guest", default_release="2.0", lenses=LENSES, infer=infer)
