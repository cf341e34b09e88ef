"""The inputs of an estimate, without unknowns: sizes, shards and formats, grouped in records."""

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
    """States that are offloaded to the host."""

    parameters: bool
    optimizer: bool
    reference: bool
    """Shards of the second model."""
    activations: bool
    pinned: bool


class Checkpointing(Frozen):
    """The activations that are recomputed."""

    method: str
    recomputed: float
    """Share of the layers that run their forward pass again."""
    kept: float
    """Share of the activations that is kept, for a budget."""
    reentrant: bool
    tower: bool
    """Blocks of the vision tower are checkpointed."""


class LossChoice(Frozen):
    """The loss and the use of its logits."""

    kind: str
    keeps_logits: bool
    passing_logits: int
    """Bytes per token and word of further logits, besides those of the loss."""
    fused_evaluation: bool
    """Liger's loss makes no whole logits in an evaluation."""
    scores: bool
    """The model ends in a score per sequence instead of logits."""
    policy: bool
    """Log-probabilities of reinforcement learning instead of a mean loss."""


class Compiled(Frozen):
    """The parts that torch.compile compiles."""

    layers: bool
    model: bool
    """Whole model, not one layer at a time."""
    loss: bool
    """Loss as a part of the compiled model."""


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
    """One training job, for one rank unless stated otherwise. Elements are parameters, sizes are bytes."""

    architecture: Architecture
    """Architecture of the rank's part of the model under tensor, pipeline and expert parallelism."""
    whole: Architecture
    ranks: Ranks
    part: ModelPart
    weights: Trained
    frozen_weights: FrozenWeights
    """Untrained weights, by format."""
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
    """Kernels without traced rows are used (fused layers or adapters, tiled MLPs, fp8)."""

    @property
    def frozen_bytes(self) -> float:
        """Bytes of the frozen weights of the whole model, quantised parts included."""
        return self.frozen_weights.bytes

    @property
    def frozen_sharded(self) -> float:
        """Bytes of the frozen weights that are divided among the ranks: all but the scales of 4 bits."""
        return self.frozen_bytes - self.frozen_weights.scales

    @property
    def reference_bytes(self) -> float:
        """Bytes of a second whole model; 0 without one."""
        return self.architecture.parameters * self.formats.reference

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return self.architecture.layers
