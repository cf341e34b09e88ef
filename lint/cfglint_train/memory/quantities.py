"""The quantities that formulas are made of, each computed when a formula asks for it.

A name is a field of `Setup` or one of the table below. Sizes are bytes; elements are parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory import host, save, transients
from cfglint_train.memory.activations import Activations, activations
from cfglint_train.memory.calibration import table
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.logits import (
    CHUNKED_LOSSES,
    NOTHING,
    OF_EVALUATION,
    Chunked,
    Head,
    at_once,
    chunk_of,
    chunk_tokens,
    evaluation_bytes,
    head,
)
from cfglint_train.memory.resume import readers
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.states import States, left, made, secondary, small_elements, states, whole_fp32_gradients
from cfglint_train.plan.fields import Plan


class Quantities(dict[str, str]):
    """Shown quantities of one estimate by name."""

    def __init__(self, setup: Setup, plan: Plan, capacity: int | None) -> None:
        super().__init__()
        self.setup, self.plan = setup, plan
        self.capacity = capacity
        """Of the GPU; None if unknown."""

    def __missing__(self, name: str) -> str:
        compute = _COMPUTED.get(name)
        found = getattr(self.setup, name) if compute is None else compute(self)
        text = self[name] = _shown(found or 0)
        return text

    @cached_property
    def states(self) -> States:
        """What the rank holds from step to step."""
        return states(self.setup)

    @cached_property
    def head(self) -> Head:
        """The end of the model."""
        return head(self.setup)

    @cached_property
    def flow(self) -> Activations | None:
        """The decoder's activations."""
        return activations(self.setup)


def _shown(quantity: Any) -> str:
    """A number with seven digits at least, or a text as it is."""
    if isinstance(quantity, str):
        return quantity
    if quantity == int(quantity) or abs(quantity) >= 1e6:
        return f"{round(quantity):,}"
    return f"{quantity:,.7g}"


def _over(total: float, elements: float) -> float:
    return total / elements if elements else 0.0


def _other_models(of: Quantities) -> str:
    """The models with their bytes: a sum of its own."""
    return " + ".join(f"{int(other.bytes):,} B of the {other.role} model" for other in of.setup.neighbours)


def _doubled(of: Quantities) -> bool:
    """Whether hpZ's second copy is on the GPU."""
    return of.setup.secondary > 1 and not of.setup.offload_parameters


def _active(of: Quantities) -> float:
    return of.setup.trained * of.setup.active


def _earlier(of: Quantities) -> float:
    setup = of.setup
    return (setup.computed if setup.defers_reduction else setup.trained) * setup.active


def _left_ranks(of: Quantities) -> int:
    setup = of.setup
    if whole_fp32_gradients(setup):
        return 1
    return setup.optimizer_shards if setup.zero_stage == 1 else setup.gradient_shards


def _earlier_ranks(of: Quantities) -> int:
    setup = of.setup
    return 1 if whole_fp32_gradients(setup) or setup.defers_reduction else setup.gradient_shards


def _local(of: Quantities) -> float:
    return of.setup.trained / of.setup.optimizer_shards


def _piece(of: Quantities) -> float:
    """Elements that one update of DeepSpeed's goes over."""
    setup = of.setup
    return transients.sub_group_elements(setup) if setup.zero_stage == 3 else _local(of)


def _update_each(of: Quantities) -> float:
    return _over(transients.step(of.setup), _piece(of))


_CHECKPOINTING: Final = {
    "none": "no activation checkpointing",
    "full": "full activation checkpointing",
    "selective": "attention's outputs kept",
    "selective_ops": "every second matrix product kept",
    "fine_grained": "parts of layers recomputed",
    "every_n": "some layers recomputed",
    "budget": "a share of the activations kept",
}

_LOSSES: Final = {
    "none": "loss not fused",
    "liger": "fused loss (Liger)",
    "cce": "fused loss (Cut Cross-Entropy)",
    "chunked": "loss upcast in chunks",
    "liger_pairs": "Liger's loss of one pair at a time",
    "liger_unpaired": "Liger's loss of one answer at a time",
    "liger_policy": "Liger's loss of one completion at a time",
    "liger_distilled": "Liger's loss of 1,024 tokens at a time",
    "chunked_logits": "output matrix and loss in chunks",
    "triton": "loss of flash-attn's kernel",
    "log_softmax": "log-probabilities of all sequences at once",
    "rows": "log-probabilities of one sequence at a time",
    "rows_in_place": "log-probabilities of one sequence at a time",
    "row_kernel": "log-probabilities by a kernel",
    "odds": "log-probabilities and cross-entropy of the chosen answers",
    "odds_rows": "log-probabilities and cross-entropy of the chosen answers",
    "odds_kernel": "log-probabilities by a kernel, and cross-entropy of the chosen answers",
    "checkpointed": "output matrix in fp32 and loss in chunks of 256 tokens, recomputed",
    "checkpointed_half": "output matrix and loss in chunks of 256 tokens, recomputed",
    "compiled": "compiled loss",
    "compiled_shifted": "compiled loss of a shifted copy",
    "tiles": "log-probabilities by tiles of the output matrix, without logits",
}


def _layer_kept(of: Quantities) -> float:
    """Bytes per token that the last layer keeps."""
    return of.flow.layer / of.setup.tokens if of.flow is not None else 0.0


def _loss_words(of: Quantities) -> str:
    setup = of.setup
    if setup.policy and setup.loss == "none":
        return "log-probabilities, loss not fused"
    return _LOSSES.get(setup.loss, setup.loss)


def _words(of: Quantities) -> float:
    return of.setup.tokens * of.setup.scored * of.setup.architecture.vocab


def _loss_backward(of: Quantities) -> float:
    return _over(of.head.backward, _words(of)) if of.head.loss is not NOTHING else 0.0


def _loss_forward(of: Quantities) -> float:
    """Bytes per token and word; a soft cap keeps one more."""
    family = FAMILIES.get(of.setup.architecture.formula)
    return of.head.loss.forward + (2 if family is not None and family.capped and of.head.loss.capped else 0)


def _normed(of: Quantities) -> float:
    """Bytes per element of the output matrix's input, where the forward pass still holds it."""
    beyond = of.head.forward - _words(of) * _loss_forward(of)
    return _over(beyond, of.setup.tokens * of.setup.architecture.hidden)


def _chunked(of: Quantities) -> Chunked:
    return CHUNKED_LOSSES.get(of.setup.loss, Chunked(0, 1))


def _copies(of: Quantities) -> int:
    found = save.save(of.setup, of.plan)
    return 1 if found is None else found.copies


def _coefficient(name: str) -> float:
    return table().coefficients[name].expected


_COMPUTED: Final[dict[str, Callable[[Quantities], Any]]] = {
    # sizes of the model and the job
    "rank_elements": lambda of: of.setup.architecture.parameters,
    "model_elements": lambda of: of.setup.whole.parameters,
    "all_elements": lambda of: of.setup.trained + of.setup.frozen,
    "expert_parameters": lambda of: of.setup.architecture.expert_parameters,
    "tensors": lambda of: of.setup.architecture.tensors,
    "layers": lambda of: of.setup.layers,
    "hidden": lambda of: of.setup.architecture.hidden,
    "vocab": lambda of: of.setup.architecture.vocab,
    "head_elements": lambda of: transients.head_elements(of.setup),
    "root": lambda of: transients.root_elements(of.setup),
    "root_or_head": lambda of: transients.root_elements(of.setup) or transients.head_elements(of.setup),
    "unit": lambda of: transients.unit_elements(of.setup),
    "weight_bytes": lambda of: of.setup.mode.weight,
    "head_bytes": lambda of: of.setup.mode.weight if of.setup.head_trained else 0,
    "parts": lambda of: save.parts(of.setup),
    # states
    "frozen_quantized": lambda of: of.setup.frozen_weights.quantized,
    "quantized_bytes": lambda of: of.setup.frozen_weights.quantized_bytes - of.setup.frozen_weights.scale_bytes,
    "scale_bytes": lambda of: of.setup.frozen_weights.scale_bytes,
    "frozen_fp32": lambda of: of.setup.frozen_weights.fp32,
    "frozen_plain": lambda of: of.setup.frozen_weights.plain,
    "plain_bytes": lambda of: of.setup.frozen_weights.plain_bytes,
    "reference_each": lambda of: _over(of.setup.reference_bytes, of.setup.architecture.parameters),
    "other_models": _other_models,
    "small": lambda of: min(small_elements(of.setup), of.setup.architecture.parameters) if of.setup.persistence else 0,
    "other_ranks": lambda of: of.setup.parameter_shards - 1,
    "second_trained": lambda of: of.setup.trained if _doubled(of) else 0,
    "second_frozen": lambda of: of.setup.frozen_bytes if _doubled(of) else 0,
    # gradients
    "active_elements": _active,
    "earlier_elements": _earlier,
    "left_each": lambda of: _over(left(of.setup) * _left_ranks(of), _active(of)),
    "left_ranks": _left_ranks,
    "earlier_each": lambda of: _over(of.states.accumulated * _earlier_ranks(of), _earlier(of)),
    "earlier_ranks": _earlier_ranks,
    "last_each": lambda of: _over(made(of.setup) * _left_ranks(of), _active(of)),
    "last_ranks": _left_ranks,
    "unreduced_words": lambda of: (
        "before they are reduced"
        if of.setup.zero_stage == 1 and of.setup.accumulation == 1
        else "before they are added to those of earlier micro batches"
    ),
    "lasting_bucket": lambda of: _over(transients.held_bucket(of.setup), of.setup.gradient),
    "passing_bucket": lambda of: _over(transients.bucket(of.setup), of.setup.gradient),
    # gathered weights
    "gathered_ahead": lambda of: transients.zero_gathers(of.setup)[0],
    "gathered_quantized": lambda of: transients.zero_gathers(of.setup)[1],
    "module": lambda of: save.module_elements(of.setup),
    "largest": lambda of: max(transients.head_elements(of.setup), of.setup.architecture.largest_tensor),
    "largest_unit": lambda of: max(transients.unit_elements(of.setup), transients.root_elements(of.setup)),
    "saved_unit": lambda of: save.wrapped_elements(of.setup),
    "reduced_each": lambda of: of.setup.gathered + of.setup.communication,
    # the optimizer step
    "local_elements": _local,
    "local_tensor": lambda of: min(_local(of), of.setup.architecture.largest_tensor / of.setup.optimizer_shards),
    "scratch_each": lambda of: of.setup.scratch[0],
    "scratch_largest": lambda of: of.setup.scratch[1],
    "block_each": lambda of: 4 + of.setup.scratch[0],
    "projecting": lambda of: of.setup.scratch[2],
    "update_piece": _piece,
    "update_each": _update_each,
    "norm_elements": lambda of: min(of.setup.architecture.largest_tensor, _local(of)),
    # the rollout engine
    "capacity": lambda of: of.capacity,
    "utilization": lambda of: of.plan.rollout.utilization,
    "engine_ranks": lambda of: of.plan.rollout.tensor or 1,
    "sleep_residue": lambda of: _coefficient("sleep-residue"),
    # activations and loss
    "checkpointing_words": lambda of: _CHECKPOINTING.get(of.setup.checkpointing, of.setup.checkpointing),
    "attention_words": lambda of: f"{of.setup.mode.attention} attention",
    "layer_kept": _layer_kept,
    "head_kept": lambda of: of.head.cost.saved,
    "loss_words": _loss_words,
    "scored": lambda of: round(of.setup.tokens * of.setup.scored),
    "loss_backward": _loss_backward,
    "loss_forward": _loss_forward,
    "normed": _normed,
    "evaluation_chunk": lambda of: chunk_of(
        of.setup.evaluation_tokens or 1, of.setup.architecture.hidden, of.setup.architecture.vocab
    ),
    "evaluation_loss": lambda of: evaluation_bytes(of.setup),
    "evaluation_words": lambda of: _loss_words(of) if of.setup.loss in OF_EVALUATION else _LOSSES["none"],
    "chunked": lambda of: chunk_tokens(of.setup, _chunked(of)),
    "chunked_each": lambda of: at_once(of.setup, _chunked(of))[0],
    "chunked_matrices": lambda of: at_once(of.setup, _chunked(of))[1],
    "chunk": lambda of: chunk_of(of.setup.tokens, of.setup.architecture.hidden, of.setup.architecture.vocab),
    # the host while the job trains
    "pinning": lambda of: "pinned: rounded up to powers of two" if of.setup.pinned else "not pinned",
    "file_read": lambda of: host.FILE_BYTES,
    "resumed_ranks": lambda of: readers(of.setup),
    "states_bytes": lambda of: (of.setup.optimizer or 0) + (of.setup.master or of.setup.held),
    "host_trained": lambda of: host.blocks(of.setup)(host.partition(of.setup) * of.setup.held),
    "host_frozen": lambda of: host.blocks(of.setup)(of.setup.frozen_sharded / of.setup.parameter_shards),
    "host_weights": lambda of: host.blocks(of.setup)(host.partition_bytes(of.setup)),
    "host_second": lambda of: host.blocks(of.setup)(secondary(of.setup)),
    "host_master": lambda of: 4 if of.setup.master else of.setup.held,
    "host_master_block": lambda of: host.blocks(of.setup)(
        host.partition(of.setup) * (4 if of.setup.master else of.setup.held)
    ),
    "sub_groups": lambda of: host.sub_groups(of.setup, host.partition(of.setup))[0],
    "host_sub_group": lambda of: host.blocks(of.setup)(host.sub_groups(of.setup, host.partition(of.setup))[1] * 4),
    "host_last_group": lambda of: host.blocks(of.setup)(host.sub_groups(of.setup, host.partition(of.setup))[2] * 4),
    "host_gradient": lambda of: host.blocks(of.setup)(host.partition(of.setup) * of.setup.gradient),
    "host_fp32_gradient": lambda of: host.blocks(of.setup)(host.partition(of.setup) * 4),
    "host_kept_gradient": lambda of: host.partition(of.setup) * of.setup.gradient if of.setup.accumulation > 1 else 0,
    "experts_each": lambda of: _over(of.setup.host_experts, of.setup.architecture.expert_parameters),
    "workers": lambda of: of.plan.data.workers,
    "prefetched": lambda of: 2 if of.plan.data.prefetch is None else of.plan.data.prefetch,
    "worker_bytes": lambda of: _coefficient("worker"),
    # checkpoints
    "copies": _copies,
    "beside_elements": lambda of: save.beside(of.setup, of.plan),
    "largest_file": lambda of: save.FILE_BYTES,
    "sub_group_elements": lambda of: transients.sub_group_elements(of.setup),
    "states_saved": lambda of: of.setup.held + (of.setup.optimizer or 0),
    "optimizer_and_master": lambda of: (of.setup.optimizer or 0) + (of.setup.master or 0),
    "plan_bytes": lambda of: save.STAGED_BYTES,
    "tensor_bytes": lambda of: save.PLAN_BYTES,
    "shard_bytes": lambda of: _coefficient("shard-metadata"),
    "legacy_bytes": lambda of: _coefficient("legacy-metadata"),
}
