"""What memory depends on, without unknowns: sizes, shards and formats."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.formats import FrozenWeights
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.neighbours import Neighbour
from cfglint_train.memory.optimizers import Scratch
from cfglint_train.models.architecture import Architecture


class Setup(Frozen):
    """One training job as memory sees it. Elements are parameters, sizes bytes, for one rank unless said otherwise."""

    architecture: Architecture
    """What one rank computes with: its part under tensor, pipeline and expert parallelism."""
    whole: Architecture
    strategy: str
    zero_stage: int
    world: int
    local: int
    """Ranks of one node."""
    nodes: int
    shards: int
    """Ranks that share one copy of what is sharded."""
    parameter_shards: int
    gradient_shards: int
    optimizer_shards: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    sequence_split: int
    """Tensor-parallel ranks that share a sequence outside the matrices; 1 where each has all of it."""
    head_split: int
    """Ranks that share the output matrix, although each has all logits."""
    in_flight: float
    """Micro batches whose activations a stage of a pipeline holds at once."""
    ends: bool
    """The rank has the output matrix and the loss."""
    # what is held
    trained: int
    """Elements with a gradient, of the whole model."""
    computed: int
    """Of these the ones whose gradients a rank itself computes: of experts that ranks share, its own."""
    frozen: int
    frozen_weights: FrozenWeights
    """The frozen ones by format."""
    adapters: int
    """Elements of adapters among the trained ones."""
    reference: float
    """Bytes of an element of a second whole model; 0 without one."""
    offload_reference: bool
    """The shards of `reference_bytes` wait on the host."""
    neighbours: tuple[Neighbour, ...]
    loaded: float
    """Bytes of an element of the whole model as it waits on every GPU to be sharded; 0 where it does not."""
    held: float
    """Bytes of a trained element as it is kept between steps (a shard or the whole)."""
    gathered: float
    """Bytes of an element of the weights as the forward pass reads them."""
    master: float
    """Bytes of a further copy of a trained element; 0 without one."""
    gradient: float
    """Bytes of a gradient element as the backward pass makes it."""
    accumulated: float
    """Bytes of a gradient element between micro batches."""
    optimizer: float | None
    """Bytes of optimizer state per trained element; None for an optimizer without a formula."""
    optimizer_scratch: str
    """fused, foreach, single: how the optimizer goes over the tensors."""
    scratch: Scratch
    updates: str
    """after (the backward pass), within (each weight as its gradient is there), block (one decoder layer at a time)."""
    paged: bool
    offload_parameters: bool
    offload_optimizer: bool
    pinned: bool
    # what flows
    tokens: int
    """Of one micro batch on one GPU."""
    length: int
    sequences: int
    accumulation: int
    evaluation_tokens: int | None
    fused_evaluation: bool
    """Liger's loss makes no whole logits in an evaluation."""
    mode: Mode
    residual: int
    """Bytes of an element of the residual stream."""
    checkpointing: str
    recomputed: float
    """Share of the layers that run their forward pass again."""
    kept: float
    """For a budget: share of the activations that is kept."""
    reentrant: bool
    offload_activations: bool
    loss: str
    keeps_logits: bool
    passing_logits: int
    """Bytes per token and word of logits beside those of the loss, its own included."""
    scored: float
    """Share of the tokens that have logits."""
    scores: bool
    """The model ends in a score per sequence rather than in logits."""
    image_tokens: int
    """Of one micro batch on one GPU, among `tokens`."""
    trains_tower: bool
    recomputes_tower: bool
    """Blocks of the tower are checkpointed."""
    trains_decoder: bool
    """The decoder's own weights get gradients, or an adapter beside them."""
    policy: bool
    """Log-probabilities of reinforcement learning rather than a mean loss."""
    trained_layers: int
    """Decoder layers that keep activations."""
    trained_share: float
    """Of the weights of those layers."""
    active: float
    """Share of the trained elements that have gradients at a time."""
    head_trained: bool
    compile: bool
    compiled_model: bool
    """The whole model, not one layer at a time."""
    compiled_loss: bool
    """Within the compiled model."""
    # buckets and gathers, in elements
    reduce_bucket: int
    overlap: bool
    reduce_scatter: bool
    prefetch_bucket: int
    persistence: int
    live: int
    sub_group: int
    secondary: int
    quantized_gather: float
    """Bytes that gathering in 8 bits takes per element beside the weights themselves; 0 where it is off."""
    wrapping: str
    reshard: bool
    communication: float
    unit_bytes: float
    """Bytes of an element of a gathered decoder layer, quantised or not."""
    leaf_modules: bool
    """The experts of a mixture are gathered as one unit."""
    approximate: bool
    """Kernels without traced rows run (fused layers or adapters, tiled MLPs, fp8)."""
    host_experts: float
    """Bytes of an element of routed experts that stay on the host; 0 where they do not."""
    records: float | None
    """The batches that were each the longest so far, as multiples of the longest, itself left out: 0 where all have one
    length; None where lengths differ, in an order that is not known."""
    defers_reduction: bool
    """Micro batches before the last keep whole gradients."""

    @property
    def frozen_bytes(self) -> float:
        """Bytes of the frozen weights of the whole model, quantised parts included."""
        return self.frozen_weights.bytes

    @property
    def reference_bytes(self) -> float:
        """Bytes of a second whole model; 0 without one."""
        return self.architecture.parameters * self.reference

    @property
    def frozen_sharded(self) -> float:
        """Bytes of the frozen weights that ranks divide among them: all but the scales of 4 bits."""
        return self.frozen_bytes - self.frozen_weights.scales

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.architecture.layers
