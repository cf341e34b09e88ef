"""The complete inputs of an estimate: sizes, shards and formats, grouped in records."""

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
    """Shards of the reference model."""
    activations: bool
    pinned: bool


class Checkpointing(Frozen):
    """Activation checkpointing of a job."""

    method: str
    recomputed: float
    """Share of the layers that are recomputed."""
    kept: float
    """Share of the activations that is kept under a memory budget (method `budget`)."""
    reentrant: bool
    tower: bool
    """True if the blocks of the vision tower are checkpointed."""


class LossChoice(Frozen):
    """The loss and the use of its logits."""

    kind: str
    keeps_logits: bool
    passing_logits: int
    """Bytes per logit of logits that exist in addition to those of the loss."""
    fused_evaluation: bool
    """True if Liger's loss computes no whole logits in evaluation."""
    scores: bool
    """True if the model outputs a score per sequence instead of logits."""
    policy: bool
    """True for log-probabilities of reinforcement learning instead of a mean loss."""


class Compiled(Frozen):
    """The parts that torch.compile compiles."""

    layers: bool
    model: bool
    """True if the model is compiled as a whole rather than layer by layer."""
    loss: bool
    """True if the loss is part of the compiled model."""


class Sharding(Frozen):
    """Buckets, gathers and wrapping of sharded states; sizes are in elements."""

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
    """True if the experts of a mixture are gathered as one unit."""
    defers_reduction: bool
    """True if micro batches before the last keep unsharded gradients."""


class Setup(Frozen):
    """A training job as seen from one rank, unless stated otherwise; sizes are bytes, elements are parameters."""

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
    """True if the job uses kernels without traced rows (fused layers or adapters, tiled MLPs, fp8)."""

    @property
    def frozen_bytes(self) -> float:
        """Bytes of the model's frozen weights before sharding, including quantized weights and their scales."""
        return self.frozen_weights.bytes

    @property
    def frozen_sharded(self) -> float:
        """Bytes of the frozen weights that sharding divides."""
        return self.frozen_bytes - self.frozen_weights.unsharded

    @property
    def reference_bytes(self) -> float:
        """Bytes of the reference model before sharding; 0 if there is none."""
        return self.architecture.parameters * self.formats.reference

    @property
    def layers(self) -> int:
        """Number of decoder layers on this rank."""
        return self.architecture.layers
