"""The optimizer of a job: its states, its temporaries, and the time of its updates."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory import optimizers
from cfglint_train.memory.optimizers import OptimizerChoice, Scratch
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.ranks import Ranks
from cfglint_train.memory.trained import Trained
from cfglint_train.models.architecture import Architecture


class Optimizer(Frozen):
    """The states and temporaries of an optimizer."""

    state: float | None = None
    """Bytes of state per trained element; None for an optimizer without a formula."""
    implementation: str = "fused"
    """Implementation of the update: fused, foreach, single (a loop over tensors) or custom."""
    scratch: Scratch = Scratch()
    updates: str = "after"
    """Time of the update: `after` the backward pass, `within` it (each weight as soon as its gradient exists), or by
    `block` (one decoder layer at a time).
    """
    paged: bool = False

    @property
    def known_state(self) -> float:
        """Bytes of state per trained element; 0 for an optimizer without a formula."""
        return self.state or 0.0


def read_choice(reader: Reader, ranks: Ranks, updated: float) -> OptimizerChoice | None:
    """Return the optimizer, or None if it is not stated.

    The reader records fields that the formula needs but the plan lacks. `updated`: bytes of an element of the updated
    weights.
    """
    get = reader.get
    name = reader.require("optimizer.name")
    if name is None:
        return None
    implementation = get("optimizer.implementation")
    scratch = implementation if implementation in ("foreach", "single", "custom") else "fused"
    # DeepSpeed and FSDP1 pass flat tensors to the optimizer.
    flat = ranks.strategy in ("zero", "fsdp1")
    bits, embeddings = get("optimizer.state_bits"), get("optimizer.embedding_bits")
    choice = OptimizerChoice(
        name, bits, updated, scratch, flat, embedding_bits=embeddings, fused_experts=ranks.strategy == "zero"
    )
    rule = choice.rule
    if rule is not None and rule.kind.startswith("projected"):
        rank, targets = get("optimizer.rank"), get("optimizer.targets") or ()
        choice = choice._replace(rank=rank, targets=targets, projection=get("optimizer.projection") or "std")
        if rank is None:
            reader.missing.append("optimizer.rank")
    elif rule is None:
        reader.missing.append("optimizer.name")
    return choice


def build_optimizer(
    reader: Reader, architecture: Architecture, choice: OptimizerChoice | None, trained: Trained, tuning: str
) -> Optimizer:
    """Return the optimizer's states and temporaries for the trained elements."""
    if choice is None:
        return Optimizer()
    state, projecting = _compute_average_state(reader, architecture, choice, trained, tuning)
    updates = "within" if choice.is_in_backward else "block" if choice.is_blockwise else "after"
    return Optimizer(
        state,
        choice.scratch,
        Scratch(*optimizers.compute_temporaries(choice), projecting),
        updates,
        reader.get_flag("optimizer.paged"),
    )


def _compute_average_state(
    reader: Reader, architecture: Architecture, choice: OptimizerChoice, trained: Trained, tuning: str
) -> tuple[float | None, float]:
    """Return the average bytes of optimizer state per trained element, and the temporary bytes of a projection.

    The average is None for an optimizer without a formula.
    """
    uniform_bytes = optimizers.compute_uniform_state(choice)
    if uniform_bytes is not None or choice.rule is None:
        return uniform_bytes, 0.0
    if tuning in ("full", "freeze"):
        shapes = optimizers.list_matrices(architecture, tuning, trained.layers)
    else:
        from cfglint_train.memory.targets import find_targets  # only adapters have targets

        names = set(reader.get("method.lora_modules_to_save") or ())
        saved = tuple(item for item in architecture.linears if item.name in names)
        linears = find_targets(reader, architecture) or ()
        shapes = optimizers.list_adapter_matrices(linears, reader.get("method.lora_rank") or 0, saved)
        expert_ranks = 1 if trained.remote else reader.get("parallel.expert") or 1
        for item in architecture.linears:
            rank = trained.experts[item.name == "down_proj"] if item.experts else 0
            if rank:
                shapes += optimizers.build_adapter_pair(item, item.experts // expert_ranks * rank)
    rest = max(0, trained.trained - sum(shape.count * shape.elements for shape in shapes))
    total = optimizers.compute_state_bytes(choice, shapes, rest, architecture)
    if total is None or not trained.trained:
        return total, 0.0
    return total / trained.trained, optimizers.compute_projection_bytes(choice, shapes, architecture)
