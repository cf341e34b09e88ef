"""Activations: tensors that decoder layers keep from the forward to the backward pass, and the peak of each layer."""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.block_outputs import compute_block_outputs
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.kinds import list_layer_runs
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import BYTES, label_count, merge_terms
from cfglint_train.memory.tape import Cost, compute_peak
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.choices import FSDP

if TYPE_CHECKING:
    from cfglint_train.memory.vision_encoder import EncoderMemory  # few models have a vision encoder

VISION: Final = "the vision tower"

# Checkpoints in flight to the host: OffloadActivations of torchtune and TRL keeps up to five tensors in flight.
_COPIES_IN_FLIGHT: Final = 5


class Stack(Frozen):
    """The decoder layers of one architecture in one mode, in order."""

    runs: tuple[tuple[Cost, int], ...]
    """Runs of equal layers: the cost of one layer, and the number of consecutive layers."""

    def compute_inference(self, tokens: int) -> float:
        """Return the peak bytes of a forward pass without gradients, in the layer that needs most."""
        return max([compute_peak(cost.inference, tokens) for cost, _ in self.runs])


@lru_cache(maxsize=1024)
def build_stack(architecture: Architecture, mode: Mode, input_needs: bool) -> Stack | None:
    """Return the costs of the layers, or None for a family without a formula.

    `input_needs`: whether the embedding's output needs a gradient. It needs none if only adapters are trained and
    nothing is checkpointed; the first layer then keeps less.
    """
    runs: list[tuple[Cost, int]] = []
    for kind, count in list_layer_runs(architecture):
        if not input_needs and not runs:
            first = compute_layer_cost(architecture, mode, kind, False)
            if first is None:
                return None
            runs.append((first, 1))
            count -= 1
        if count:
            cost = compute_layer_cost(architecture, mode, kind)
            if cost is None:
                return None
            runs.append((cost, count))
    return Stack(tuple(runs)) if runs else None


class LayerMoment(Frozen):
    """Memory of the backward pass of one layer, for one micro batch, in bytes."""

    layer: int
    kept: float
    """Activations or checkpoints that earlier layers still hold, and this layer's own checkpoint, if any."""
    copies: float
    """Weight copies (`Cost.copies`) that earlier layers still hold."""
    peak: float
    """Peak of this layer: its activations, their gradients, and the weight gradients computed so far."""
    later_gradients: float
    """Weight gradients of all later layers, which run backward first."""
    forward: float
    """Peak of this layer's first forward pass; 0 if a later layer of the same kind needs more."""
    name: str = ""
    """Name, if the part is not a decoder layer (`VISION`)."""


class Activations(Frozen):
    """Activation memory of one micro batch on one GPU, in bytes."""

    kept: float
    """Bytes that all layers keep from the forward to the backward pass."""
    copies: float
    """Weight copies (`Cost.copies`) kept until the backward pass or, checkpointed, until the forward pass ends."""
    inputs: float
    """Bytes that all layers would keep if each were recomputed from its input."""
    layer: float
    """Bytes that the last layer alone keeps."""
    moments: tuple[LayerMoment, ...]
    """Layers whose backward pass can be the peak: the first and last of each run of equal layers and, under FSDP, the
    second to last, which runs while gradients are still being reduced.
    """
    stack: Stack
    """The layers, for passes with other batches such as evaluation."""


def compute_activations(setup: Setup) -> Activations | None:
    """Return the activations of the decoder and the vision tower, or None for a decoder family without a formula."""
    ranks, weights, checkpointing, mode = setup.ranks, setup.weights, setup.checkpointing, setup.mode
    checkpointed = checkpointing.method != "none"
    input_needs = (
        mode.trained or checkpointed or not weights.trains_decoder
    )  # otherwise autograd starts at the first adapter
    costs = build_stack(setup.architecture, mode, input_needs)
    if costs is None:
        return None
    tokens = setup.batch.tokens
    width = setup.architecture.hidden * setup.architecture.streams
    checkpoint = tokens * width * setup.formats.residual / ranks.sequence_split
    # Sequence parallelism also splits the tensors that norms keep.
    split_elsewhere = 0.0
    if ranks.sequence_split > 1:
        from cfglint_train.memory.sharding import compute_norm_bytes

        split_elsewhere = merge_terms(
            compute_norm_bytes(setup.architecture, mode) * (1 - 1 / ranks.sequence_split), BYTES
        )
    runs = costs.runs
    frozen = setup.architecture.layers - weights.layers
    # Per run: first and end layer; then, for one layer: kept bytes, weight copies, backward peak, weight gradients and
    # forward peak.
    rows: list[tuple[int, int, float, float, float, float, float]] = []
    kept_total = copies_total = cached_total = gradients_total = 0.0
    start = 0
    for cost, count in runs:
        first = start if start > frozen else frozen
        end = start + label_count(count, "layers", tokens)
        start = end
        if first >= end:
            continue
        # A checkpointed layer keeps nothing in its first forward pass.
        forward_peak = compute_peak(cost.inference if checkpointed else cost.forward, tokens)
        if not checkpointed:  # the model's frame holds the layer's input, and the embedding's output
            forward_peak += checkpoint * (1 if cost.saved_input else 2)
        if checkpointed:
            saved = (cost.saved - split_elsewhere) * tokens
            kept = checkpoint * checkpointing.recomputed + saved * (1 - checkpointing.recomputed)
            if saved > kept:
                kept += checkpointing.kept * (saved - kept)
            selection_overhead = 0.0
            if checkpointing.method in ("selective", "selective_ops"):
                selected = cost.attention if checkpointing.method == "selective" else cost.operations
                # Compiled code does not keep unused tensors.
                kept += (selected.kept - (selected.unused if setup.compiled.layers else 0)) * tokens
                if checkpointing.method == "selective_ops" and ranks.sequence_split > 1:
                    kept += 2 * checkpoint  # the selected operations include a layer's two reduced sums
                # The selected tensors are a part of the saved ones.
                selection_overhead = (selected.unsaved - selected.kept) * tokens
            if setup.offload.activations:
                kept -= checkpoint * checkpointing.recomputed
            copies, top = 0.0, _compute_recompute_peak(cost, setup) + selection_overhead
        else:
            copies, top = cost.copies, compute_peak(cost.backward, tokens) + cost.saved_input * tokens
            kept = (cost.saved - split_elsewhere) * tokens
        gradients = label_count(cost.weight_gradients, "B of weight gradients", tokens)
        rows.append((first, end, kept, copies, top, gradients, forward_peak))
        kept_total += (end - first) * kept
        copies_total += (end - first) * copies
        cached_total += (end - first) * cost.fixed_saved
        gradients_total += (end - first) * gradients
    recomputed = 0.0 if checkpointed else kept_total - checkpoint * sum([end - first for first, end, *_ in rows])
    moments: list[LayerMoment] = []
    # Each micro batch that waits in a pipeline stage keeps as much as this one.
    leaf = (setup.part.in_flight - 1) * kept_total
    if checkpointed and weights.adapters:
        leaf += _compute_embedding_output(setup)
    block_memory = compute_block_outputs(setup)
    leaf += block_memory.kept
    if checkpointed and setup.offload.activations:
        leaf += checkpoint * label_count(min(weights.layers, _COPIES_IN_FLIGHT), "layers in flight", tokens)
    tower = _compute_encoder(setup)
    if tower is not None:
        leaf += tower.kept
        copies_total += tower.copies
        moments += [
            LayerMoment(0, turn.kept, turn.copies, turn.peak, gradients_total + turn.later_gradients, 0.0, VISION)
            for turn in tower.moments
        ]
        moments.append(LayerMoment(0, 0.0, 0.0, 0.0, 0.0, tower.forward, VISION))
    kept_total += leaf
    before, copies_before, gradients_before = leaf - block_memory.freed, tower.copies if tower is not None else 0.0, 0.0
    reduces = ranks.strategy in FSDP
    for first, end, kept, copies, top, gradients, forward_peak in rows:
        boundary_layers = {first, max(first, end - 2), end - 1} if reduces else {first, end - 1}
        if first < block_memory.before <= end:
            boundary_layers.add(block_memory.before - 1)
        for layer in boundary_layers:
            index = layer - first
            extra = block_memory.gradients if layer < setup.layers - 1 else 0.0
            extra += block_memory.recomputed if layer < block_memory.before else 0.0
            moments.append(
                LayerMoment(
                    layer,
                    before + index * kept + (kept if checkpointed else 0.0) + extra,
                    copies_before + index * copies,
                    top,
                    gradients_total - gradients_before - (index + 1) * gradients,
                    forward_peak if layer == end - 1 else 0.0,
                )
            )
        before += (end - first) * kept
        copies_before += (end - first) * copies
        gradients_before += (end - first) * gradients
    # Under autocast the 16-bit copies of all trained weights stay cached until the forward pass ends, checkpointed or
    # not (torch, autocast_mode.cpp, `cached_cast`: fp32 leaves that require gradients). Copies that a layer makes
    # itself are dropped with the layer.
    cached = cached_total * weights.share if checkpointed else copies_total
    inputs = kept_total - setup.part.in_flight * recomputed
    return Activations(kept_total, cached, inputs, rows[-1][2] if rows else 0.0, tuple(moments), costs)


def compute_kept_inputs(setup: Setup) -> float:
    """Return the bytes of inputs that layers keep only because bitsandbytes saves those of frozen matrices."""
    if not setup.mode.keeps_inputs:
        return 0.0
    flow = compute_activations(setup)
    without = compute_activations(setup._replace(mode=setup.mode._replace(keeps_inputs=False)))
    return 0.0 if flow is None or without is None else flow.kept - without.kept


def _compute_encoder(setup: Setup) -> EncoderMemory | None:
    """Return the vision tower's memory, or None if there is no tower, no image, or no formula for its blocks."""
    batch = setup.batch
    tower = setup.architecture.tower
    if tower is None or not batch.image_tokens:
        return None
    from cfglint_train.memory.vision_encoder import compute_encoder_memory

    patches = int(batch.image_tokens * tower.patches)
    eager = setup.mode.attention == "eager"
    mode = setup.mode._replace(
        weight=4 if setup.formats.gathered == 4 else 2,
        trained=setup.weights.trains_tower,
        attention="eager" if eager else "flash",
        sequence=patches // batch.sequences if eager else 0,
        rank=0,
        targets=frozenset(),
        expert_ranks=(0, 0),
        quantized=False,
        keeps_inputs=False,
    )
    return compute_encoder_memory(tower, mode, patches, setup.checkpointing.tower)


def _compute_embedding_output(setup: Setup) -> float:
    """Return the bytes of the embedding's output that checkpointed layers with adapters keep besides their inputs.

    If the base weights are frozen, the output is made a leaf of the graph and is kept. It is a separate tensor if
    learned positions are added to it (GPT-2, OPT), if a factor scales it (Granite), or if its format differs from that
    of the layers' inputs.
    """
    formats, mode = setup.formats, setup.mode
    family = FAMILIES[setup.architecture.formula]
    width = setup.batch.tokens * setup.architecture.hidden
    if setup.architecture.streams > 1:  # the layers' inputs are computed from the embedding's output
        return width * mode.weight
    if formats.residual != mode.weight:
        return width * (mode.weight - formats.residual)
    scaled = family.residual_scale or (family.rotary == "none" and family.placement != "single")
    return width * formats.residual if scaled else 0.0


def _compute_recompute_peak(cost: Cost, setup: Setup) -> float:
    """Return the peak of a checkpointed layer: that of its recomputation or of its backward pass."""
    tokens = setup.batch.tokens
    if setup.checkpointing.reentrant:
        width = setup.architecture.hidden * setup.architecture.streams
        forward = compute_peak(cost.forward, tokens) + tokens * width * setup.formats.residual
    else:
        forward = compute_peak(cost.recompute, tokens)
    backward = compute_peak(cost.backward, tokens)
    return forward if forward > backward else backward
