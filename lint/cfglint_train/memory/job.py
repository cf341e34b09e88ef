"""Amounts of a job that do not depend on the size of its batch, derived once for all estimates that vary the batch."""

from __future__ import annotations

from cfglint_train.memory import host, rollout, transients
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    BUCKETS,
    FROZEN,
    GRADIENTS,
    HOST_EXPERTS,
    IDLE_MODELS,
    MASTER,
    OFFLOADED_ACTIVATIONS,
    OPTIMIZER,
    OTHERS,
    PAGED,
    PARAMETERS,
    REFERENCE,
    SLEEPING,
    SLEEPING_STATES,
    UNSHARDED,
    WAITING,
    WORKERS,
)
from cfglint_train.memory.logits import has_compiled_model, has_fused_tied_gradient
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.states import (
    States,
    compute_final_gradients,
    compute_new_gradients,
    compute_states,
    has_gradient_offload,
)
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.fields import Plan


class Job:
    """Amounts of a job that its batch does not change: bytes on one GPU, unless stated otherwise.

    The class is not a record because most attributes are read several times per estimate.
    """

    __slots__ = (
        "accumulates", "base", "bucket", "defers", "gathered", "head_elements", "head_gradient", "held",
        "keeps_gradients", "lasting", "left", "made", "norm", "on_the_host", "plan", "reducing", "setup",
        "streams", "update", "updating_head", "updating_layer",
    )  # fmt: skip
    accumulates: bool
    """True if unsharded gradients of earlier micro batches exist, to which new gradients are added."""
    base: dict[Component, float]
    """Gradients of earlier micro batches, and buckets that last."""
    bucket: float
    """Buckets during the backward pass, including lasting buckets."""
    defers: bool
    """True if FSDP keeps unsharded gradients until the last micro batch. The peak is then in an earlier micro batch,
    because the last one turns unsharded gradients into shards.
    """
    gathered: tuple[float, float]
    """Gathered weights while a layer runs, and while the loss is computed."""
    head_elements: int
    """Elements of the output matrix (and of the embedding)."""
    head_gradient: float
    """Gradient of the output matrix while the layers run backward."""
    held: States
    keeps_gradients: bool
    """True if a layer's gradients still exist while the layers before it run backward."""
    lasting: dict[Component, float]
    """Components that exist throughout training, with their bytes."""
    left: float
    """Gradients that exist when the optimizer step starts."""
    made: float
    """Gradients that the last micro batch creates beside the existing gradients."""
    norm: float
    """Temporary bytes of the gradient norm."""
    on_the_host: dict[Component, float]
    """Host bytes of one node while the job trains. Components of 0 bytes are omitted, except those that depend on the
    tokens, which are 0 here.
    """
    plan: Plan
    reducing: float
    """Gradients that are still being reduced while a layer other than the last runs backward."""
    setup: Setup
    """Setup of the job; the number of tokens has no effect."""
    streams: tuple[float, Component | None]
    """Bytes of the pools of other streams, and the component that is allocated in them."""
    update: float
    """Temporary bytes of the optimizer step, beside states and gradients."""
    updating_head: float
    """Temporary bytes of updating the output matrix during the backward pass."""
    updating_layer: float
    """Temporary bytes of updating a layer's largest matrix during the backward pass."""

    def __init__(self, setup: Setup, plan: Plan) -> None:
        """Derive the amounts from a setup and its plan."""
        self.setup, self.plan = setup, plan
        held, buckets = compute_states(setup), transients.compute_lasting_bucket(setup)
        self.held, self.lasting = held, list_lasting_parts(setup, held)
        self.base = {GRADIENTS: held.accumulated, BUCKETS: buckets}
        self.bucket = buckets + transients.compute_bucket(setup)
        self.gathered = transients.compute_gathered(setup)
        self.streams = transients.compute_stream_pools(setup, self.gathered)
        self.defers = setup.batch.accumulation > 1 and setup.sharding.defers_reduction and setup.ranks.strategy in FSDP
        self.accumulates = setup.batch.accumulation > 1 and (setup.ranks.gradient_shards == 1 or self.defers)
        adds_at_once = self.accumulates and not has_compiled_model(setup)
        self.keeps_gradients = not adds_at_once and _has_layer_gradients(setup)
        self.head_elements = transients.count_head_elements(setup)
        self.head_gradient = _compute_head_gradient(setup, adds_at_once)
        self.reducing = transients.compute_reducing(setup)
        self.made, self.left = compute_new_gradients(setup), compute_final_gradients(setup)
        self.norm, self.update = transients.compute_gradient_norm(setup), transients.compute_step_temporaries(setup)
        within = setup.optimizer.updates == "within"
        self.updating_head = transients.compute_update_in_backward(setup, self.head_elements)
        self.updating_layer = (
            transients.compute_update_in_backward(setup, transients.count_layer_tensor(setup)) if within else 0.0
        )
        parts = {  # None reserves the position of parts that depend on the tokens
            **host.compute_offloaded(setup),
            OFFLOADED_ACTIVATIONS: None,
            HOST_EXPERTS: setup.architecture.expert_parameters * setup.formats.host_experts,
            WORKERS: host.compute_worker_memory(setup, plan),
            WAITING: None,
            SLEEPING: rollout.compute_sleeping_engines(setup, plan),
            IDLE_MODELS: host.compute_idle_models(setup),
            SLEEPING_STATES: host.compute_sleeping_states(setup, plan),
        }
        self.on_the_host = {part: size or 0.0 for part, size in parts.items() if size != 0}


def list_lasting_parts(setup: Setup, held: States) -> dict[Component, float]:
    """Return the components that exist throughout training, without those of 0 bytes."""
    parts = {
        PARAMETERS: held.parameters,
        FROZEN: held.frozen,
        MASTER: held.master,
        PAGED if setup.optimizer.paged else OPTIMIZER: held.optimizer,
        REFERENCE: held.reference,
        OTHERS: held.neighbours + transients.compute_kept_roots(setup),
        UNSHARDED: held.persistent,
    }
    return {part: size for part, size in parts.items() if size}


def _has_layer_gradients(setup: Setup) -> bool:
    """Return whether a layer's gradients stay in memory, provided that they are not immediately accumulated."""
    ranks = setup.ranks
    if ranks.zero_stage == 3 or (ranks.zero_stage and setup.offload.optimizer):
        return False
    if has_gradient_offload(setup) or setup.optimizer.updates != "after":
        return False
    # FSDP adds each reduced gradient in place to the earlier micro batches' gradient and frees it (_fsdp_collectives.py
    # foreach_reduce, _runtime_utils.py _accumulate_sharded_grad).
    return setup.batch.accumulation <= 1 or ranks.strategy not in FSDP


def _compute_head_gradient(setup: Setup, adds_at_once: bool) -> float:
    """Return the bytes of the output matrix's gradient while the layers run backward.

    The gradient of a tied matrix waits for that of the embedding. The gradient of an untied
    matrix is reduced, accumulated or applied immediately if the job does this for its gradients.
    """
    ranks = setup.ranks
    if not setup.weights.head_trained or has_fused_tied_gradient(setup):
        return 0.0
    if (ranks.zero_stage > 1 or setup.optimizer.updates == "within" or adds_at_once) and not setup.architecture.tied:
        return 0.0
    if ranks.strategy in FSDP and not setup.architecture.tied and not transients.count_root_elements(setup):
        # A separate unit is reduced at once.
        element_bytes = 0.0 if has_gradient_offload(setup) else setup.formats.accumulated / ranks.gradient_shards
        return transients.count_head_elements(setup) * element_bytes
    return transients.count_head_elements(setup) * setup.mode.weight
