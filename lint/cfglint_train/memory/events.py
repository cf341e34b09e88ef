"""The moments of a training step at which GPU memory can be highest.

A training step is a sequence of **events**. Each event is a sum of named parts; the peak of a phase is the *maximum
over its events*, never a sum over phases. The remedy depends on the highest event: a fused loss or a smaller micro
batch if it is the loss, activation checkpointing if it is a layer, sharding or a fused optimizer if it is the reduction
or the optimizer step.

The step is not the run's first: optimizer states and gradients of earlier micro batches exist, and sharded weights are
prefetched as they are from the second step on. Sizes are bytes on one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory import transients
from cfglint_train.memory.activations import Activations
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    ACTIVATIONS,
    BACKWARD,
    BUCKETS,
    FORWARD,
    GATHERED,
    GRADIENTS,
    LOGITS,
    UPDATE,
    WEIGHT_COPIES,
)
from cfglint_train.memory.job import Job
from cfglint_train.memory.logits import (
    Head,
    count_scored_tokens,
    has_compiled_model,
    has_compiled_model_and_loss,
    has_fused_tied_gradient,
    is_summed_in_place,
)
from cfglint_train.memory.losses import NOTHING
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.states import has_whole_fp32_gradients
from cfglint_train.memory.tape import compute_peak
from cfglint_train.plan.choices import FSDP

Event = tuple[str, str, dict[Component, float]]
"""A moment at which memory can be highest: its phase, its name, and its parts in addition to the lasting ones
(`Job.lasting`).
"""


def compute_mask_bytes(setup: Setup) -> float:
    """Return the bytes of the attention masks of the whole model.

    Masks hold numbers for eager and compiled attention (4 bytes in fp32, else 2), and booleans for sdpa.
    """
    batch, mode = setup.batch, setup.mode
    if setup.compiled.loss and mode.attention == "efficient":
        element = 2 if mode.weight == 2 or mode.autocast else 4
        return batch.tokens * batch.length * element * count_mask_kinds(setup)
    if not mode.sequence or mode.attention == "math":  # the mask is internal to the operation
        return 0.0
    element = setup.formats.residual if mode.attention == "eager" else 1
    return batch.tokens * mode.sequence * element * count_mask_kinds(setup)


def count_mask_kinds(setup: Setup) -> int:
    """Return the number of masks: 2 if the model has layers with and without a window, else 1."""
    return 2 if setup.architecture.window and setup.architecture.full_attention_layers is not None else 1


class _StepAmounts(Frozen):
    """Amounts that the events of one step share."""

    job: Job
    setup: Setup
    masks: float
    """Masks while the layers run forward."""
    kept_masks: float
    """Masks that stay after the forward pass: checkpointed layers hold the mask as an argument, and compiled layers
    share it. Other layers keep at most their own copies, which count as activations.
    """
    waiting: dict[Component, float]
    """Bytes of the loss that are held until the backward pass ends."""


def generate_step_events(job: Job, setup: Setup, flow: Activations | None, end: Head) -> Iterator[Event]:
    """Yield the events of one training step; without `flow`, only those that need no layer formula."""
    masks = compute_mask_bytes(setup)
    recomputes = setup.checkpointing.method != "none" and setup.weights.layers
    kept = masks if recomputes or setup.compiled.loss else 0.0
    step = _StepAmounts(job, setup, masks, kept, {LOGITS: end.waiting} if end.waiting else {})
    if flow is not None:
        yield from _generate_loss_events(step, flow, end)
        yield from _generate_layer_events(step, flow)
        if setup.ranks.strategy in FSDP:
            yield from _generate_root_events(step)
    yield _build_end_event(step)
    if setup.ranks.zero_stage in (1, 2):
        parts = {**job.base, GRADIENTS: job.left, UPDATE: job.norm}
        yield "optimizer step", "the gradient norm", parts
    yield _build_update_event(step)


def _generate_loss_events(step: _StepAmounts, flow: Activations, end: Head) -> Iterator[Event]:
    """Yield the end of the forward pass and the start of the backward pass, with all activations and the logits."""
    setup, job, cost = step.setup, step.job, end.cost
    loss = setup.loss
    tokens, copies = setup.batch.tokens, cost.copies
    parts = {
        **job.base,
        ACTIVATIONS: flow.kept + cost.saved * tokens + step.kept_masks,
        WEIGHT_COPIES: flow.copies + copies,
        GATHERED: job.gathered[1],
    }
    yield "forward", "the loss", {**parts, LOGITS: end.forward + end.fixed_forward}
    if loss.passing_logits and setup.part.ends:
        name = "unused logits" if loss.scores else "logits in addition to the loss's"
        unused_logits = count_scored_tokens(setup) * setup.architecture.vocab * loss.passing_logits
        with_unused_logits = {**parts, LOGITS: unused_logits}
        if setup.checkpointing.method != "none" and not loss.scores:  # the policy's forward pass has ended (dpo-1b-ac)
            with_unused_logits[WEIGHT_COPIES] = copies
        yield "forward", name, with_unused_logits
    if setup.ranks.strategy == "fsdp2" and setup.sharding.reshard:
        # Gathered weights arrive in a buffer and are copied out of it; the first layer is already being gathered.
        root, unit = transients.count_root_elements(setup), transients.count_unit_elements(setup)
        buffers = {**job.base, GATHERED: 2 * (setup.formats.gathered * root + setup.formats.unit_bytes * unit)}
        yield "forward", "the first gather", buffers
    if setup.checkpointing.method != "none":  # autocast's cache is dropped when the forward pass ends
        parts[WEIGHT_COPIES] = copies
    yield "backward", "the loss", {**parts, LOGITS: end.backward + end.fixed_backward}
    if end.loss is not NOTHING and not has_fused_tied_gradient(setup):  # a fused product comes last
        parts |= step.waiting
        held = cost.saved * tokens + copies
        parts[BACKWARD] = compute_peak(cost.backward, tokens) - held + end.added
        if setup.weights.head_trained:  # the gradient exists by then, and the matrix may be updated immediately
            parts[BACKWARD] += job.updating_head
        yield "backward", "the output matrix", parts


def _generate_layer_events(step: _StepAmounts, flow: Activations) -> Iterator[Event]:
    """Yield each layer's first forward pass and its backward pass."""
    job, setup, masks, kept_masks, waiting = step
    base, gathered, last = job.base, job.gathered[0], setup.layers - 1
    extra = transients.compute_ring_buffers(setup) + job.updating_layer
    for layer, kept, copies, highest, gradients, forward_peak, name in flow.moments:
        name = name or f"layer {layer}"
        if forward_peak:
            yield (
                "forward",
                name,
                {**base, GATHERED: gathered, ACTIVATIONS: kept + masks, WEIGHT_COPIES: copies, FORWARD: forward_peak},
            )
        later = _compute_later_gradients(setup, gradients) if job.keeps_gradients else 0.0
        # At layer 0, only layers of its kind are left, so the mask of the other kind is already freed.
        remaining_masks = kept_masks if layer or not kept_masks else kept_masks / count_mask_kinds(setup)
        yield (
            "backward",
            name,
            {
                **base,
                **waiting,
                GRADIENTS: base[GRADIENTS] + later + job.head_gradient,
                BUCKETS: job.bucket,
                GATHERED: gathered,
                ACTIVATIONS: kept + remaining_masks,
                WEIGHT_COPIES: copies,
                BACKWARD: highest + (job.reducing if layer < last else 0.0) + extra,
            },
        )


def _compute_later_gradients(setup: Setup, gradients: float) -> float:
    """Return the bytes of later layers' gradients that are still held; `gradients`: their unsharded bytes."""
    later = gradients * setup.weights.share
    if setup.ranks.gradient_shards == 1:
        return later
    return later / setup.ranks.gradient_shards * setup.formats.accumulated / setup.mode.weight


def _generate_root_events(step: _StepAmounts) -> Iterator[Event]:
    """Yield the events of the embedding and head, which FSDP reduces last, as one unit."""
    setup, job = step.setup, step.job
    weights, formats = setup.weights, setup.formats
    root = transients.count_last_unit_elements(setup)
    if not root or not weights.trained or not setup.mode.trained:
        return
    layers = 0.0 if job.defers else job.made * max(0.0, 1 - root / max(1.0, weights.trained))
    parts = {**job.base, GRADIENTS: job.base[GRADIENTS] + layers}
    reduction = root * (formats.gathered + formats.communication)
    if setup.ranks.parameter_shards == 1:  # NO_SHARD casts the whole gradients to the format of the weights
        reduction = root * (formats.gathered + max(formats.communication, formats.held))
    reduced = {**parts, BACKWARD: reduction}
    yield "backward", "the reduction of embedding and head", reduced
    if setup.architecture.tied and weights.head_trained:
        copies = (2.0 if is_summed_in_place(setup) else 3.0) * job.head_elements * formats.gathered
        unit = transients.count_unit_elements(setup) * formats.communication
        parts[GATHERED] = root * formats.gathered
        parts[BACKWARD] = copies + unit
        yield "backward", "the sum of the tied matrix's gradients", parts


def _build_end_event(step: _StepAmounts) -> Event:
    """Return the event at which all gradients exist.

    A tied matrix has two gradients and, unless they are summed in place, their sum. One of these is already counted
    among the gradients, unless gradients of earlier micro batches are counted there instead.
    """
    setup, job = step.setup, step.job
    weights = setup.weights
    tied = 0.0
    if weights.head_trained and has_compiled_model_and_loss(setup):
        tied = _compute_compiled_embedding(setup, job.head_elements)
    elif weights.head_trained and setup.architecture.tied and setup.ranks.gradient_shards == 1:
        extra_copies = (1.0 if is_summed_in_place(setup) else 2.0) + (1.0 if job.accumulates else 0.0)
        tied = extra_copies * job.head_elements * setup.mode.weight
        if is_summed_in_place(setup):  # the peak is the moment at which the embedding's gradient is computed
            tied += setup.batch.tokens * setup.architecture.hidden * setup.formats.residual
    unreduced = setup.ranks.zero_stage == 1 and setup.batch.accumulation == 1 and not has_whole_fp32_gradients(setup)
    # One compiled graph returns all gradients before any is added to those of earlier micro batches.
    at_once = job.accumulates and has_compiled_model(setup)
    whole = weights.trained * setup.formats.gradient if unreduced or at_once else 0.0
    if setup.optimizer.updates == "within" and weights.head_trained:  # the embedding is updated last
        whole = head_gradient = job.head_elements * setup.mode.weight
        tied = max(0.0, tied - head_gradient) + job.updating_head
    gradients = job.base[GRADIENTS] + (0.0 if job.defers else job.made) + whole
    parts = {**job.base, **step.waiting, GRADIENTS: gradients, BUCKETS: job.bucket, BACKWARD: tied}
    return "backward", "the last gradients", parts


def _compute_compiled_embedding(setup: Setup, elements: int) -> float:
    """Return the bytes at the end of a compiled graph beyond one gradient of the embedding.

    inductor sums the embedding's rows in fp32. For a tied matrix it adds the head's product, which needs the head's
    input, or (under autocast with fp32 weights) the product's 16-bit result.
    """
    if not setup.architecture.tied:
        return 4.0 * elements if setup.mode.weight == 2 else 0.0
    if has_fused_tied_gradient(setup):
        return 4.0 * elements + setup.batch.tokens * setup.architecture.hidden * setup.formats.residual
    return 6.0 * elements


def _build_update_event(step: _StepAmounts) -> Event:
    """Return the optimizer step, with the tensors that the previous step left alive."""
    setup = step.setup
    parts = {**step.job.base, GRADIENTS: step.job.left, UPDATE: step.job.update}
    if setup.weights.adapters and setup.checkpointing.method != "none":
        # The embedding's output is made a leaf so that autograd follows checkpointed layers. The output and its
        # gradient stay until the next forward pass.
        parts[ACTIVATIONS] = 2.0 * setup.batch.tokens * setup.architecture.hidden * setup.mode.weight
    if setup.loss.keeps_logits and not setup.loss.scores:
        parts[LOGITS] = 2.0 * setup.batch.tokens * setup.architecture.vocab
    return "optimizer step", "the update", parts
