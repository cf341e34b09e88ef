"""Changes that use free GPU memory to make a step faster.

Free memory is spent only once: each change is estimated on top of the earlier ones, so all of them fit together. They
fit if the upper bound of every phase leaves a margin on the GPU, and host and disk need no more than before or have
room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.findings.verdicts import judge
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import STEP_PHASES, Resource
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

MARGIN: Final = 0.1
"""Share of a GPU that stays free above the upper bound of every phase."""

WIDE_MARGIN: Final = 1 / 3
"""Margin for disabling checkpointing. It is wider because many files enable checkpointing for other data or GPUs: on
an H100, a margin of 0.1 would report a third of upstream's examples; 1/3 reports a fifth.
"""

MIN_TRAFFIC_SAVED: Final = 0.25
"""Share of the communication traffic that a change must save."""

DDP_BUCKET: Final = 25 * 2**20
"""Gradient bucket size of torch's DistributedDataParallel in bytes (torch 2.9 nn/parallel/distributed.py,
bucket_cap_mb).
"""

Changes = Mapping[Field, Any]


class Speedup(Frozen):
    """A change that fits on top of the earlier ones."""

    changes: Changes
    before: Setup
    """Setup with only the earlier changes."""
    after: Setup
    expected: int
    """Expected bytes per GPU in the peak phase with this change."""


def find_speedup(run: Run, name: str) -> Speedup | None:
    """Return the speedup of one kind (`checkpointing`, `hybrid`, `accumulation`, `bucket`), or None if there is none.

    Return None if the GPU is assumed, because a change that fits an assumed GPU may not fit the real one.
    """
    return run.compute_once(_find_speedups).get(name)


def _find_speedups(run: Run) -> dict[str, Speedup]:
    has_assumed_images = "sequence.image_tokens" in run.estimate.assumed
    if (
        run.hardware.gpu_origin.kind == "assumed"
        or run.plan.batch.auto_find
        or has_assumed_images
        or not _has_margin(run, run)
    ):
        return {}
    from cfglint_train.fitting.moves import explain_refusal

    speedups: dict[str, Speedup] = {}
    current = run
    for name, (candidates, margin) in _KINDS.items():
        before = find_setup(current)
        if before is None:
            break
        for changes in candidates(current, before):
            after = current.replace_fields(changes)
            setup = find_setup(after)
            if setup is None or explain_refusal(run, changes) is not None or not _has_margin(after, current, margin):
                continue
            judgement = judge(after, "gpu")
            speedups[name] = Speedup(changes, before, setup, judgement.budget.expected if judgement is not None else 0)
            current = after
            break
    return speedups


def find_setup(run: Run) -> Setup | None:
    """Return the setup of a run's training step, or None if it is not estimated."""
    judgement = judge(run, "gpu", STEP_PHASES)
    return None if judgement is None else judgement.budget.setup


def _has_margin(after: Run, before: Run, margin: float = MARGIN) -> bool:
    """Return whether every phase fits the GPU with the margin, and host and disk have room or need no more."""
    phases, room = after.estimate.phases, (1 - margin) * (after.hardware.gpu_bytes or 0)
    if not {*STEP_PHASES} <= {phase.name for phase in phases}:
        return False
    if any(phase.gpu is not None and phase.gpu.high > room for phase in phases):
        return False
    return all(_is_affordable(after, before, place) for place in _HOST_AND_DISK)


_HOST_AND_DISK: Final[tuple[Resource, ...]] = ("host", "disk")


def _is_affordable(after: Run, before: Run, place: Resource) -> bool:
    """Return whether the host or the disk needs no more than before, or no more than it has."""
    needs = [budget for phase in after.estimate.phases if (budget := getattr(phase, place)) is not None]
    highest, capacity = before.estimate.find_peak(place), after.hardware.get_capacity(place)
    needed_before = 0 if highest is None else getattr(highest, place).expected
    return all(need.expected <= needed_before or (capacity is not None and need.high <= capacity) for need in needs)


def _propose_no_checkpointing(run: Run, _: Setup) -> Iterator[Changes]:
    """Yield the change that turns checkpointing off."""
    plan = run.plan.activations
    if plan.checkpointing in list_recomputed_shares(run) and plan.offload in (None, "none"):
        yield {"activations.checkpointing": "none"}


def list_recomputed_shares(run: Run) -> dict[str, float]:
    """Return the share of a layer's forward pass that each kind of checkpointing repeats.

    Selective checkpointing repeats half: it keeps the outputs of attention, or of every second matrix product.
    """
    plan = run.plan.activations
    every_n = plan.of / plan.every if plan.every and plan.of is not None else 1.0
    return {"full": 1.0, "selective": 0.5, "selective_ops": 0.5, "every_n": every_n}


def compute_recomputation(run: Run) -> float:
    """Return the share of a step's arithmetic that is repeated.

    A layer's forward pass is repeated once. The backward pass costs two forward passes if the weights are trained
    (weight gradients and input gradients), and one if only an adapter is trained. The head is not repeated: share x L /
    ((L + H)(1 + b) + share x L), with L and H the parameters of the layers and the head
    that a token passes through, and b the cost of a backward pass in forward passes.
    """
    model = run.architecture
    share = list_recomputed_shares(run).get(run.plan.activations.checkpointing or "", 0.0)
    if model is None:
        return 0.0
    head = model.vocab * model.hidden
    layers = max(0, (model.active_parameters or model.parameters) - model.embedding_parameters)
    backward = 2 if run.plan.method.tuning == "full" else 1
    repeated = share * layers
    return repeated / ((layers + head) * (1 + backward) + repeated) if layers else 0.0


def _propose_hybrid(run: Run, setup: Setup) -> Iterator[Changes]:
    """Yield changes that make ranks gather weights only within their node."""
    if (
        setup.ranks.nodes < 2
        or setup.ranks.local < 2
        or setup.ranks.tensor * setup.ranks.pipeline * setup.ranks.context * setup.ranks.expert > 1
    ):
        return
    if setup.ranks.zero_stage == 3 and setup.sharding.secondary == 1:
        yield from _filter_by_traffic(run, setup, {"parallel.secondary_partition": setup.ranks.local})
    elif setup.ranks.strategy in FSDP and setup.ranks.shards == setup.ranks.nodes * setup.ranks.local:
        for changes in ({"parallel.sharding": "hybrid_shard"}, {"parallel.replicas": setup.ranks.nodes}):
            yield from _filter_by_traffic(run, setup, changes)  # type: ignore[arg-type]


def _filter_by_traffic(run: Run, setup: Setup, changes: Changes) -> Iterator[Changes]:
    after = find_setup(run.replace_fields(changes))
    if after is not None and compute_node_traffic(after) <= (1 - MIN_TRAFFIC_SAVED) * compute_node_traffic(setup):
        yield changes


def compute_node_traffic(setup: Setup) -> float:
    """Return the bytes that reach a node from other nodes in one optimizer step.

    In a ring over n nodes, an all-gather or a reduce-scatter transfers (n - 1) / n of its bytes to each node; an
    all-reduce does both.
    """
    share = (setup.ranks.nodes - 1) / setup.ranks.nodes
    weights, gradients = _compute_traffic(setup)
    if 1 < setup.ranks.shards <= setup.ranks.local:
        return share * 2 * gradients
    return share * ((weights / 2 if setup.sharding.secondary > 1 else weights) + gradients)


def _propose_accumulation(run: Run, setup: Setup) -> Iterator[Changes]:
    """Yield fewer and larger micro batches, because sharded weights are gathered for each of them."""
    batch = run.plan.batch
    micro, accumulation = batch.micro, batch.accumulation
    if not micro or not accumulation or accumulation < 2 or batch.tokens_per_gpu or setup.ranks.parameter_shards < 2:
        return
    from cfglint_train.fitting.moves import build_micro_batch_changes, list_even_micro_batches

    for other in list_even_micro_batches(run):
        if other > micro and other % micro == 0:
            changes = build_micro_batch_changes(run, micro * accumulation, other)
            after = find_setup(run.replace_fields(changes))
            if after is not None and compute_rank_traffic(after) <= (1 - MIN_TRAFFIC_SAVED) * compute_rank_traffic(
                setup
            ):
                yield changes


def compute_rank_traffic(setup: Setup) -> float:
    """Return the bytes that reach a rank from other ranks in one optimizer step: weights and reduced gradients."""
    return sum(_compute_traffic(setup)) * (setup.ranks.parameter_shards - 1) / setup.ranks.parameter_shards


def _compute_traffic(setup: Setup) -> tuple[float, float]:
    """Return the bytes of weights that are gathered in one optimizer step, and of gradients that are reduced.

    Weights are gathered for each forward pass and, if they are freed after it, for each backward pass; gradients are
    reduced after each micro batch, or after the last one (`no_sync`).
    """
    weights = setup.weights.trained * setup.formats.gathered + setup.frozen_sharded
    passes = (2 if setup.sharding.reshard else 1) * setup.batch.accumulation if setup.ranks.parameter_shards > 1 else 0
    reductions = 1 if setup.sharding.defers_reduction else setup.batch.accumulation
    gradient_bytes = setup.formats.communication if setup.ranks.strategy in FSDP else setup.formats.gradient
    return weights * passes, setup.weights.trained * gradient_bytes * reductions


def _propose_bucket(run: Run, setup: Setup) -> Iterator[Changes]:
    """Yield a gradient bucket as large as DistributedDataParallel's."""
    size, ddp_size = run.plan.parallel.reduce_bucket, int(DDP_BUCKET / setup.formats.gradient)
    if (
        setup.ranks.zero_stage
        and run.is_stated("parallel.reduce_bucket")
        and size
        and setup.weights.trained > ddp_size >= 2 * size
    ):
        yield {"parallel.reduce_bucket": ddp_size}


_KINDS: Final[Mapping[str, tuple[Callable[[Run, Setup], Iterator[Changes]], float]]] = {
    "checkpointing": (_propose_no_checkpointing, WIDE_MARGIN),
    "hybrid": (_propose_hybrid, MARGIN),
    "accumulation": (_propose_accumulation, MARGIN),
    "bucket": (_propose_bucket, MARGIN),
}
"""Kinds of changes, in the order in which they may use free memory, with their margins: first those that save
arithmetic, then those that save traffic.
"""
