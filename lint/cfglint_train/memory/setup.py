"""What memory depends on, without unknowns: sizes, shards and formats, in one record per subject."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.batch import Batch
from cfglint_train.memory.colocated_models import ColocatedModel
from cfglint_train.memory.formats import Formats, FrozenWeights
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.ranks import ModelPart, Ranks
from cfglint_train.memory.trained import Trained
from cfglint_train.memory.updates import Optimizer
from cfglint_train.models.architecture import Architecture


class Offload(Frozen):
    """What waits on the host."""

    parameters: bool
    optimizer: bool
    reference: bool
    """The shards of the second model."""
    activations: bool
    pinned: bool


class Checkpointing(Frozen):
    """What of the activations is computed again."""

    method: str
    recomputed: float
    """Share of the layers that run their forward pass again."""
    kept: float
    """For a budget: share of the activations that is kept."""
    reentrant: bool
    tower: bool
    """Blocks of the tower are checkpointed."""


class LossChoice(Frozen):
    """The loss, and what becomes of its logits."""

    kind: str
    keeps_logits: bool
    passing_logits: int
    """Bytes per token and word of logits beside those of the loss, its own included."""
    fused_evaluation: bool
    """Liger's loss makes no whole logits in an evaluation."""
    scores: bool
    """The model ends in a score per sequence rather than in logits."""
    policy: bool
    """Log-probabilities of reinforcement learning rather than a mean loss."""


class Compiled(Frozen):
    """What torch.compile compiles."""

    layers: bool
    model: bool
    """The whole model, not one layer at a time."""
    loss: bool
    """Within the compiled model."""


class Sharding(Frozen):
    """Buckets and gathers, in elements."""

    reduce_bucket: int
    overlap: bool
    reduce_scatter: bool
    prefetch_bucket: int
    persistence: int
    live: int
    sub_group: int
    secondary: int
    wrapping: str
    reshard: bool
    leaf_modules: bool
    """The experts of a mixture are gathered as one unit."""
    defers_reduction: bool
    """Micro batches before the last keep whole gradients."""


class Setup(Frozen):
    """One training job as memory sees it. Elements are parameters, sizes bytes, for one rank unless said otherwise."""

    architecture: Architecture
    """What one rank computes with: its part under tensor, pipeline and expert parallelism."""
    whole: Architecture
    ranks: Ranks
    part: ModelPart
    weights: Trained
    frozen_weights: FrozenWeights
    """Those that are not trained, by format."""
    formats: Formats
    optimizer: Optimizer
    offload: Offload
    sharding: Sharding
    batch: Batch
    mode: Mode
    checkpointing: Checkpointing
    loss: LossChoice
    compiled: Compiled
    neighbours: tuple[ColocatedModel, ...]
    approximate: bool
    """Kernels without traced rows run (fused layers or adapters, tiled MLPs, fp8)."""

    @property
    def frozen_bytes(self) -> float:
        """Bytes of the frozen weights of the whole model, quantised parts included."""
        return self.frozen_weights.bytes

    @property
    def frozen_sharded(self) -> float:
        """Bytes of the frozen weights that ranks divide among them: all but the scales of 4 bits."""
        return self.frozen_bytes - self.frozen_weights.scales

    @property
    def reference_bytes(self) -> float:
        """Bytes of a second whole model; 0 without one."""
        return self.architecture.parameters * self.formats.reference

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.architecture.layers
