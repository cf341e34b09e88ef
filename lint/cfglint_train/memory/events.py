"""The moments of a training step at which GPU memory can be highest.

A training step is a row of **events**. Each event is a sum of named parts; the peak of a phase is the *maximum over its
events*, never a sum over phases. Which event wins decides what helps: the loss (a fused loss, a smaller micro batch), a
layer (activation checkpointing), the reduction or the optimizer step (sharding, a fused optimizer).

The step is a steady one: optimizer states exist, gradients of earlier micro batches too, and sharded weights are
gathered ahead as they are from the second step on. Sizes are bytes on one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory import transients
from cfglint_train.memory.activations import Activations, Moment
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    ACTIVATIONS,
    BACKWARD,
    BUCKETS,
    FORWARD,
    FROZEN,
    GATHERED,
    GRADIENTS,
    LOGITS,
    MASTER,
    OPTIMIZER,
    OTHERS,
    PAGED,
    PARAMETERS,
    REFERENCE,
    UNSHARDED,
    UPDATE,
    WEIGHT_COPIES,
)
from cfglint_train.memory.logits import NOTHING, Head, is_one_graph, returns_at_once, sums_in_place, sums_in_product
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.states import States, leaves_at_once, left, made, whole_fp32_gradients
from cfglint_train.memory.tape import peak
from cfglint_train.plan.choices import FSDP


class Event(Frozen):
    """One moment at which memory can be highest."""

    phase: str
    name: str
    lasting: dict[Component, float]
    """What exists all the time (`steady`)."""
    passing: dict[Component, float]
    """What this moment has beside that."""

    @property
    def parts(self) -> dict[Component, float]:
        """Everything that exists at that moment."""
        return {**self.lasting, **self.passing}

    @property
    def total(self) -> float:
        """Bytes at that moment."""
        return sum(self.lasting.values()) + sum(self.passing.values())


def steady(setup: Setup, held: States) -> dict[Component, float]:
    """The parts that exist all the time, those that are nothing left out."""
    parts = {
        PARAMETERS: held.parameters,
        FROZEN: held.frozen,
        MASTER: held.master,
        PAGED if setup.paged else OPTIMIZER: held.optimizer,
        REFERENCE: held.reference,
        OTHERS: held.neighbours,
        UNSHARDED: held.persistent,
    }
    return {part: size for part, size in parts.items() if size}


def mask_bytes(setup: Setup) -> float:
    """Attention masks of the whole model: 16-bit numbers for eager and compiled attention, booleans for sdpa."""
    if setup.compiled_loss and setup.mode.attention == "efficient":
        element = 2 if setup.mode.weight == 2 or setup.mode.autocast else 4
        return float(setup.tokens * setup.length * element * mask_kinds(setup))
    if not setup.mode.sequence or setup.mode.attention == "math":  # whose mask is the operation's own
        return 0.0
    element = setup.residual if setup.mode.attention == "eager" else 1
    return float(setup.tokens * setup.mode.sequence * element * mask_kinds(setup))


def mask_kinds(setup: Setup) -> int:
    """Layers with and without a window have a mask each."""
    return 2 if setup.architecture.window and setup.architecture.full_attention_layers is not None else 1


class _Step(Frozen):
    """What the events of one step share."""

    setup: Setup
    lasting: dict[Component, float]
    base: dict[Component, float]
    """Gradients of earlier micro batches, and lasting buckets."""
    masks: float
    """While the layers run forward."""
    kept_masks: float
    """Afterwards: checkpointed layers hold the mask as one of their arguments, compiled ones share it; others have
    copies of their own at most.
    """
    bucket: float
    """Buckets that live during the backward pass, lasting ones included."""
    gathered: tuple[float, float]
    """Whole weights while a layer, and while the loss runs."""
    waiting: dict[Component, float]
    """Of the loss, until the backward pass ends."""


def gathered(setup: Setup) -> tuple[float, float]:
    """Bytes of whole weights that a sharded model holds while a layer, and while the loss runs."""
    return transients.gathered(setup, layer=True), transients.gathered(setup, layer=False)


def step_events(
    setup: Setup,
    held: States,
    flow: Activations | None,
    end: Head,
    lasting_parts: dict[Component, float] | None = None,
    whole: tuple[float, float] | None = None,
) -> Iterator[Event]:
    """The events of one training step. Without `flow` (a family without a formula) only those that need none.

    `lasting_parts` and `whole` are what `steady` and `gathered` say, for callers that know it already.
    """
    lasting = steady(setup, held) if lasting_parts is None else lasting_parts
    buckets = transients.held_bucket(setup)
    base = {GRADIENTS: held.accumulated, BUCKETS: buckets}
    bucket = buckets + transients.bucket(setup)
    masks = mask_bytes(setup)
    kept = masks if setup.checkpointing != "none" or setup.compiled_loss else 0.0
    step = _Step(setup, lasting, base, masks, kept, bucket, gathered(setup) if whole is None else whole,
                 {LOGITS: end.waiting} if end.waiting else {})  # fmt: skip
    if flow is not None:
        yield from _loss(step, flow, end)
        waiting = _head_gradient(setup)
        for moment in flow.moments:
            if moment.forward:
                yield _forward_layer(step, moment)
            yield _backward_layer(step, moment, waiting)
        if setup.strategy in FSDP:
            yield from _root(step)
    yield _end(step)
    if setup.zero_stage in (1, 2):
        parts = {**base, GRADIENTS: left(setup), UPDATE: transients.norm(setup)}
        yield Event("optimizer step", "the gradient norm", lasting, parts)
    yield _update(step)


def _loss(step: _Step, flow: Activations, end: Head) -> Iterator[Event]:
    """The end of the forward pass and the start of the backward pass: all activations and the logits."""
    setup = step.setup
    tokens = setup.tokens
    parts = {
        **step.base,
        ACTIVATIONS: flow.kept + end.cost.saved * tokens + step.kept_masks,
        WEIGHT_COPIES: flow.copies + end.cost.copies,
        GATHERED: step.gathered[1],
    }
    yield Event("forward", "the loss", step.lasting, {**parts, LOGITS: end.forward + end.fixed_forward})
    if setup.passing_logits and setup.ends:
        name = "unused logits" if setup.scores else "logits beside the loss's"
        passing = float(tokens * setup.scored * setup.architecture.vocab * setup.passing_logits)
        further = {**parts, LOGITS: passing}
        if setup.checkpointing != "none" and not setup.scores:  # the policy's forward pass has ended (dpo-1b-ac)
            further[WEIGHT_COPIES] = end.cost.copies
        yield Event("forward", name, step.lasting, further)
    if setup.strategy == "fsdp2" and setup.reshard:
        # Gathered weights arrive in a buffer and are copied out of it; the first layer is already on its way.
        root, unit = transients.root_elements(setup), transients.unit_elements(setup)
        buffers = {**step.base, GATHERED: 2 * (setup.gathered * root + setup.unit_bytes * unit)}
        yield Event("forward", "the first gather", step.lasting, buffers)
    if setup.checkpointing != "none":  # autocast's cache is dropped when the forward pass ends
        parts[WEIGHT_COPIES] = end.cost.copies
    yield Event("backward", "the loss", step.lasting, {**parts, LOGITS: end.backward + end.fixed_backward})
    if end.loss is not NOTHING and not sums_in_product(setup):  # which comes last
        parts |= step.waiting
        held = end.cost.saved * tokens + end.cost.copies
        parts[BACKWARD] = peak(end.cost.backward, tokens) - held + end.added
        if setup.head_trained:  # its gradient is there, and the weight is updated at once where that is so
            parts[BACKWARD] += transients.updating(setup, transients.head_elements(setup))
        yield Event("backward", "the output matrix", step.lasting, parts)


def _forward_layer(step: _Step, moment: Moment) -> Event:
    return Event(
        "forward",
        moment.name or f"layer {moment.layer}",
        step.lasting,
        {
            **step.base,
            GATHERED: step.gathered[0],
            ACTIVATIONS: moment.kept + step.masks,
            WEIGHT_COPIES: moment.copies,
            FORWARD: moment.forward,
        },
    )


def _backward_layer(step: _Step, moment: Moment, waiting: float) -> Event:
    setup = step.setup
    return Event(
        "backward",
        moment.name or f"layer {moment.layer}",
        step.lasting,
        {
            **step.base,
            **step.waiting,
            GRADIENTS: step.base[GRADIENTS] + _later(setup, moment) + waiting,
            BUCKETS: step.bucket,
            GATHERED: step.gathered[0],
            # The first layers are of one kind: the other kind's mask went with its last layer.
            ACTIVATIONS: moment.kept + step.kept_masks / (1 if moment.layer else mask_kinds(setup)),
            WEIGHT_COPIES: moment.copies,
            BACKWARD: moment.peak
            + transients.reducing(setup, moment.layer)
            + transients.exchanging(setup)
            + (0.0 if setup.updates != "within" else transients.updating(setup, transients.layer_tensor(setup))),
        },
    )


def _accumulates(setup: Setup) -> bool:
    """Whole gradients of earlier micro batches exist: new ones are added to them at once."""
    return setup.accumulation > 1 and (setup.gradient_shards == 1 or _defers(setup))


def _adds_at_once(setup: Setup) -> bool:
    """Each gradient is added to that of earlier micro batches as soon as it exists: not where one compiled graph
    returns all of them at its end.
    """
    return _accumulates(setup) and not returns_at_once(setup)


def _defers(setup: Setup) -> bool:
    """FSDP keeps whole gradients until the last micro batch. Those before it are the higher ones: the last one turns
    whole gradients into shards.
    """
    return setup.accumulation > 1 and setup.defers_reduction and setup.strategy in FSDP


def _later(setup: Setup, moment: Moment) -> float:
    """Gradients of the layers behind one, as they are kept by then."""
    if _adds_at_once(setup) or setup.zero_stage == 3 or (setup.zero_stage and setup.offload_optimizer):
        return 0.0
    if leaves_at_once(setup) or setup.updates != "after":
        return 0.0
    if setup.accumulation > 1 and setup.strategy in FSDP:
        # Each reduced gradient is added in place to that of the micro batches before, and given up
        # (_fsdp_collectives.py foreach_reduce, _runtime_utils.py _accumulate_sharded_grad).
        return 0.0
    later = moment.later_gradients * setup.trained_share
    if setup.gradient_shards == 1:
        return later
    return later / setup.gradient_shards * setup.accumulated / setup.mode.weight


def _head_gradient(setup: Setup) -> float:
    """The gradient of the output matrix while the layers run. Where the embedding shares the matrix it waits for the
    embedding's; else it is added or reduced at once where that happens at all.
    """
    if not setup.head_trained or sums_in_product(setup):
        return 0.0
    if (setup.zero_stage > 1 or setup.updates == "within" or _adds_at_once(setup)) and not setup.architecture.tied:
        return 0.0
    if setup.strategy in FSDP and not setup.architecture.tied and not transients.root_elements(setup):
        # A unit of its own is reduced at once.
        each = 0.0 if leaves_at_once(setup) else setup.accumulated / setup.gradient_shards
        return transients.head_elements(setup) * each
    return float(transients.head_elements(setup) * setup.mode.weight)


def _root(step: _Step) -> Iterator[Event]:
    """FSDP reduces the gradients of embedding and head last, as one unit."""
    setup, base = step.setup, step.base
    root = transients.root_elements(setup)
    if not root or not setup.trained or not setup.mode.trained:
        return
    layers = 0.0 if _defers(setup) else made(setup) * (1 - root / max(1.0, setup.trained))
    parts = {**base, GRADIENTS: base[GRADIENTS] + layers}
    reduction = root * (setup.gathered + setup.communication)
    reduced = {**parts, BACKWARD: reduction}
    yield Event("backward", "the reduction of embedding and head", step.lasting, reduced)
    if setup.architecture.tied and setup.head_trained:
        copies = (2.0 if sums_in_place(setup) else 3.0) * transients.head_elements(setup) * setup.gathered
        unit = transients.unit_elements(setup) * setup.communication
        parts[GATHERED] = root * setup.gathered
        parts[BACKWARD] = copies + unit
        yield Event("backward", "the sum of the tied matrix's gradients", step.lasting, parts)


def _end(step: _Step) -> Event:
    """All gradients. A tied matrix has two and, unless they are summed in place, their sum; one of them is counted
    among the gradients already, unless gradients of earlier micro batches are.
    """
    setup, base = step.setup, step.base
    tied = 0.0
    if setup.head_trained and is_one_graph(setup):
        tied = _compiled_embedding(setup)
    elif setup.head_trained and setup.architecture.tied and setup.gradient_shards == 1:
        beside = (1.0 if sums_in_place(setup) else 2.0) + (1.0 if _accumulates(setup) else 0.0)
        tied = beside * transients.head_elements(setup) * setup.mode.weight
        if sums_in_place(setup):  # no later sum is higher than the moment at which the embedding's gradient is made
            tied += setup.tokens * setup.architecture.hidden * setup.residual
    unreduced = setup.zero_stage == 1 and setup.accumulation == 1 and not whole_fp32_gradients(setup)
    later = _accumulates(setup) and returns_at_once(setup)
    whole = setup.trained * setup.gradient if unreduced or later else 0.0
    if setup.updates == "within" and setup.head_trained:  # the embedding comes last
        whole = head_gradient = transients.head_elements(setup) * float(setup.mode.weight)
        tied = max(0.0, tied - head_gradient) + transients.updating(setup, transients.head_elements(setup))
    return Event(
        "backward",
        "the last gradients",
        step.lasting,
        {
            **base,
            **step.waiting,
            GRADIENTS: base[GRADIENTS] + (0.0 if _defers(setup) else made(setup)) + whole,
            BUCKETS: step.bucket,
            BACKWARD: tied,
        },
    )


def _compiled_embedding(setup: Setup) -> float:
    """What a compiled graph's end holds beyond one gradient of the embedding: inductor adds rows up in fp32. Of a tied
    matrix it adds the product, which needs the head's input, or (autocast of fp32 weights) its 16-bit result.
    """
    elements, weight = transients.head_elements(setup), setup.mode.weight
    if not setup.architecture.tied:
        return 4.0 * elements if weight == 2 else 0.0
    if sums_in_product(setup):
        return 4.0 * elements + setup.tokens * setup.architecture.hidden * setup.residual
    return 6.0 * elements


def _update(step: _Step) -> Event:
    """The optimizer step, and what the step before it left alive."""
    setup = step.setup
    parts = {**step.base, GRADIENTS: left(setup), UPDATE: transients.step(setup)}
    if setup.adapters and setup.checkpointing != "none":
        # The embedding's output is made a leaf so that checkpointed layers find something to follow: it stays, with
        # its gradient, until the next forward pass.
        parts[ACTIVATIONS] = 2.0 * setup.tokens * setup.architecture.hidden * setup.mode.weight
    if setup.keeps_logits and not setup.scores:
        parts[LOGITS] = 2.0 * setup.tokens * setup.architecture.vocab
    return Event("optimizer step", "the update", step.lasting, parts)
