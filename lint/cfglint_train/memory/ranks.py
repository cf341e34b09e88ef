"""The ranks of a job: the number that share each kind of state, and the part of the model that a rank computes."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.choices import FSDP

if TYPE_CHECKING:
    from cfglint_train.memory.sharding import Slice  # few jobs split the model


class Ranks(Frozen):
    """Numbers of ranks, and of shards of each kind of state."""

    strategy: str
    fsdp: bool
    zero_stage: int
    nodes: int
    local: int
    """Ranks on one node."""
    shards: int
    """Ranks that share one copy of a sharded state."""
    parameter_shards: int
    gradient_shards: int
    optimizer_shards: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    sequence_split: int
    """Tensor-parallel ranks that share a sequence outside the matrices; 1 if each rank has the whole sequence."""

    @property
    def world(self) -> int:
        """Total number of ranks."""
        return self.nodes * self.local


class ModelPart(Frozen):
    """The part of the model that one rank computes."""

    ends: bool = True
    """True if the part includes the output matrix and the loss."""
    head_split: int = 1
    """Ranks that share the output matrix although each computes all logits."""
    in_flight: float = 1.0
    """Micro batches whose activations a pipeline stage holds at once."""


def read_ranks(reader: Reader, strategy: str) -> Ranks:
    """Return the ranks of the job; an unstated degree of parallelism is 1."""
    get = reader.get
    roles = get("model.roles")
    actor = next((role for role in roles if role.name == "actor" and role.gpus_per_node), None) if roles else None
    if strategy == "none":
        nodes = local = 1
    elif actor is not None:
        nodes, local = actor.nodes or 1, actor.gpus_per_node
    else:
        nodes, local = reader.require("launch.nodes") or 1, reader.require("launch.gpus_per_node") or 1
    tensor, pipeline = get("parallel.tensor") or 1, get("parallel.pipeline") or 1
    count = max(1, nodes * local // (tensor * pipeline))
    stage, shards, fsdp = 0, 1, strategy in FSDP
    if strategy == "zero":
        stage, shards = reader.require("parallel.zero_stage") or 0, count
    elif fsdp:
        sharding = reader.assume("parallel.sharding", "full_shard")
        size, replicas = get("parallel.shard_size"), get("parallel.replicas")
        # Ranks of context and expert parallelism also share the states, regardless of the stated degree of sharding.
        per_replica = count // replicas if replicas else 0
        shards = max(size or 0, per_replica) or (local if sharding.startswith("hybrid") else count)
        shards = 1 if sharding == "no_shard" else max(1, min(shards, count))
    return Ranks(
        strategy=strategy,
        fsdp=fsdp,
        zero_stage=stage,
        nodes=nodes,
        local=local,
        shards=shards,
        parameter_shards=shards if fsdp or stage == 3 else 1,
        gradient_shards=shards if fsdp or stage >= 2 else 1,
        optimizer_shards=shards if fsdp or stage >= 1 else 1,
        tensor=tensor,
        pipeline=pipeline,
        context=get("parallel.context") or 1,
        expert=get("parallel.expert") or 1,
        sequence_split=tensor if get("parallel.sequence_parallel") else 1,
    )


def read_model_part(
    reader: Reader, ranks: Ranks, whole: Architecture, accumulation: int, last: bool
) -> tuple[Architecture, ModelPart]:
    """Return the architecture and properties of the part of the model that a rank computes.

    `last`: whether the rank is on the last stage of a pipeline; otherwise it is on the first.
    """
    if ranks.tensor * ranks.pipeline * ranks.expert == 1:
        return whole, ModelPart()
    from cfglint_train.memory import sharding

    model_slice, in_flight = _read_slice(reader, ranks, whole.layers, accumulation, last)
    architecture = sharding.build_rank_architecture(whole, model_slice._replace(sharded=ranks.fsdp))
    return architecture, ModelPart(model_slice.last, model_slice.head // model_slice.logits, in_flight)


def _read_slice(reader: Reader, ranks: Ranks, layers: int, accumulation: int, last: bool) -> tuple[Slice, float]:
    """Return the slice of the model, and the number of micro batches whose activations the rank holds at once.

    `last`: whether the rank is on the last stage of a pipeline; otherwise it is on the first.
    """
    from cfglint_train.memory import sharding

    get, stages, tensor = reader.get, ranks.pipeline, ranks.tensor
    split = (get("parallel.split_vocabulary") or "none") if tensor > 1 else "none"
    embedding, head = (tensor if split in ("ends", "all") else 1), (tensor if split != "none" else 1)
    part = sharding.Slice(tensor, embedding, head, logits=tensor if split == "all" else 1, expert=ranks.expert)
    if stages == 1:
        return part, 1.0
    schedule, per_rank = reader.assume("parallel.schedule", "1f1b"), get("parallel.stages")
    per_rank = per_rank or (1 if schedule in ("1f1b", "gpipe") else 2)
    pipeline = sharding.Pipeline(stages, schedule, accumulation, per_rank)
    # Stages are as even as possible. With two stages per rank, the V-shaped schedules put both ends on the first rank.
    rank_layers = min(layers, -(-layers // (stages * per_rank)) * per_rank)
    has_both_ends = schedule == "zbv"
    part = part._replace(layers=rank_layers, first=not last or has_both_ends, last=last or has_both_ends)
    return part, sharding.count_in_flight(pipeline, stages - 1 if last and not has_both_ends else 0)
