"""The part of a model that one rank computes under tensor, pipeline and expert parallelism.

Tensor parallelism splits the matrices of attention and MLP along their inner width. It leaves norms, routers and the
small matrices of latent attention whole, and splits embedding and head only if the framework does so. A pipeline stage
has some of the layers; the first stage also has the embedding, the last stage the head. Expert parallelism gives each
rank some of the experts.

Sources: transformers 5.23.0 (`base_model_tp_plan` of the configurations, `_tp_plan` of the models), torch 2.13.0
(distributed/pipelining), ai2-olmo-core 3.0.0 (nn/transformer/model.py apply_tp, pipeline config), torchtitan's
parallelize.py, axolotl 0.21.0 (integrations/expert_parallel).
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.layer import PROGRAMS, compute_residual_bytes
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.models.architecture import Architecture, Linear

# Matrices that every tensor-parallel rank holds whole.
_UNSPLIT: Final = frozenset(("gate", "router", "q_a_proj", "kv_a_proj_with_mqa", "shared_expert_gate"))


class Slice(Frozen):
    """The part of a model on one rank."""

    tensor: int = 1
    embedding: int = 1
    """Ranks that share the embedding."""
    head: int = 1
    """Ranks that share the output matrix."""
    logits: int = 1
    """Ranks that share the logits."""
    expert: int = 1
    """Ranks that share the experts of a layer."""
    sharded: bool = False
    """True if FSDP shards the experts over the other ranks, so that states are shared regardless of `expert`."""
    layers: int = 0
    """Number of layers on the rank; 0 stands for all."""
    first: bool = True
    """True if the part includes the embedding."""
    last: bool = True
    """True if the part includes the final norm and the head."""


@lru_cache(maxsize=1024)
def build_rank_architecture(architecture: Architecture, part: Slice) -> Architecture:
    """Return the architecture of one rank's part, with its own widths, layers and parameters."""
    tensor, share = part.tensor, (part.layers or architecture.layers) / architecture.layers
    linears = tuple(
        item._replace(
            inputs=_count_inputs(item, part),
            outputs=_count_outputs(item, part),
            count=_count_matrices(item, part, share),
        )
        for item in architecture.linears
        if _is_held(item, part)
    )
    embeddings = architecture.embedding_parameters
    matrices = sum(item.elements for item in architecture.linears if not (item.part == "head" and architecture.tied))
    elements = sum(item.elements for item in linears if not (item.part == "head" and architecture.tied and part.first))
    vectors = max(0, architecture.parameters - matrices)
    if not architecture.linears:
        matrices, vectors = architecture.parameters, 0
        held = embeddings / 2 if not architecture.tied else embeddings
        embedding = held / part.embedding if part.first else 0
        head = held / part.head if part.last and not (architecture.tied and part.first) else 0
        elements = int((architecture.parameters - embeddings) / tensor * share + embedding + head)
    decoder = sum(item.elements for item in architecture.linears if item.part == "decoder")
    rank_decoder = sum(item.elements for item in linears if item.part == "decoder")
    ratio = rank_decoder / decoder / share if decoder else 1 / tensor
    experts, total = architecture.experts, elements + int(vectors * share)
    layer = int(architecture.layer_parameters * ratio)
    if part.expert > 1 and experts is not None:
        routed = int(architecture.expert_parameters / part.tensor * share)
        remote = routed * (part.expert - 1) // part.expert
        mixtures = max(1, (architecture.layers - experts.dense_layers) // experts.every) * share
        layer -= int(remote / max(1, mixtures))
        total -= 0 if part.sharded else remote
    return architecture._replace(
        layers=part.layers or architecture.layers,
        heads=max(1, architecture.heads // tensor),
        kv_heads=max(1, architecture.kv_heads // tensor),
        attention=architecture.attention
        and architecture.attention._replace(
            heads=architecture.attention.heads // tensor,
            kv_heads=max(1, architecture.attention.kv_heads // tensor),
            layers=int(architecture.attention.layers * share),
            reusing_layers=int(architecture.attention.reusing_layers * share),
        ),
        intermediate=max(1, architecture.intermediate // tensor),
        vocab=architecture.vocab // part.logits,
        parameters=total,
        tensors=max(1, int(architecture.tensors * share)),
        largest_tensor=max(
            (item.inputs * item.outputs * max(1, item.experts // part.expert) for item in linears),
            default=architecture.largest_tensor // tensor,
        ),
        layer_parameters=layer,
        experts=experts
        and experts._replace(
            intermediate=max(1, experts.intermediate // tensor),
            shared_intermediate=experts.shared_intermediate // tensor,
            dense_layers=min(experts.dense_layers, part.layers or architecture.layers) if part.first else 0,
        ),
        full_attention_layers=None
        if architecture.full_attention_layers is None
        else int(architecture.full_attention_layers * share),
        linears=linears,
        expert_parameters=int(architecture.expert_parameters / tensor * share),
        tower=architecture.tower if part.first else None,
    )


@lru_cache(maxsize=1024)
def compute_norm_bytes(architecture: Architecture, mode: Mode) -> float:
    """Return the bytes per token that the norms of one layer save, without their outputs.

    Sequence parallelism splits these bytes among ranks.
    """
    family = FAMILIES.get(architecture.formula)
    if family is None:
        return 0.0
    layer = PROGRAMS[family.program](architecture, family, mode)
    source = layer.tape.add_tensor(architecture.hidden, compute_residual_bytes(family, mode))
    cost = layer.tape.compute_cost(source, layer.apply_norm(source))
    return cost.saved * {"sandwich": 4, "parallel": 1}.get(family.placement, 2)


def _is_held(item: Linear, part: Slice) -> bool:
    if item.part == "head":
        return part.last
    return part.first if item.part != "decoder" else True


def _count_matrices(item: Linear, part: Slice, share: float) -> int:
    return max(1, round(item.count * share)) if item.part == "decoder" and part.layers else item.count


def _count_inputs(item: Linear, part: Slice) -> int:
    """Return the number of inputs of the rank's part of a matrix.

    Row-wise matrices (the last of attention and of the MLP) are split by their inputs, and an embedding by its rows.
    """
    if item.part == "embedding":
        return item.inputs // part.embedding
    if item.part == "decoder" and (item.experts or item.name in _ROWWISE) and item.name not in _UNSPLIT:
        return max(1, item.inputs // part.tensor)
    return item.inputs


def _count_outputs(item: Linear, part: Slice) -> int:
    if item.part == "head":
        return item.outputs // part.head
    if item.part != "decoder" or item.experts or item.name in _ROWWISE or item.name in _UNSPLIT:
        return item.outputs
    return max(1, item.outputs // part.tensor)


_ROWWISE: Final = frozenset(
    ("o_proj", "out_proj", "dense", "c_proj", "wo", "down_proj", "fc2", "dense_4h_to_h", "w2", "attn_out", "ff_out")
)


class Pipeline(Frozen):
    """A pipeline and its schedule of micro batches."""

    stages: int
    """Number of ranks in the pipeline."""
    schedule: str
    """1f1b, gpipe, interleaved_1f1b, looped_bfs, zero_bubble (interleaved) or zbv."""
    micro_batches: int
    per_rank: int = 1
    """Number of stages of the model on each rank."""


def count_in_flight(pipeline: Pipeline, rank: int) -> float:
    """Return the number of micro batches whose activations `rank` holds at once, over all its layers.

    The orders are those of torch.distributed.pipelining.schedules. 1F1B warms up with one micro batch per later stage.
    GPipe and LoopedBFS run all forward passes first. Interleaved1F1B warms up with v - 1 rounds of micro batches (v
    stages per rank) and two per later rank. Zero-bubble schedules hold one per rank because they delay the weights'
    gradients.
    """
    count, stages, per_rank = pipeline.micro_batches, pipeline.stages, pipeline.per_rank
    if pipeline.schedule in ("gpipe", "looped_bfs"):
        return count
    if pipeline.schedule == "zbv":  # for the first rank, which has both ends
        return min(2 * stages, count + 1) / 2
    if pipeline.schedule == "zero_bubble":
        return min(count, stages)
    if pipeline.schedule == "1f1b" or per_rank == 1:
        return min(count, stages - rank)
    rounds = max(1, count // stages)
    ahead = (per_rank - 1) * (count // rounds) + 2 * (stages - 1 - rank) + 1
    return min(ahead, count * per_rank) / per_rank
