"""Temporary buffers of a training step: gathered weights, buckets, reductions, optimizer temporaries, workspaces.

Sources: torch 2.13 (optim/adam.py, distributed/fsdp, c10d/reducer.cpp), DeepSpeed 0.19.8 (runtime/zero). The derivation
is in docs/memory/sharding.md and docs/memory/allocator.md.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import GATHERED, GRADIENTS
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import label_count, merge_terms
from cfglint_train.memory.states import (
    compute_final_gradients,
    compute_new_gradients,
    count_partition_elements,
    has_whole_fp32_gradients,
)
from cfglint_train.plan.choices import FSDP

# torch's DDP holds gradients twice unless they are views of its buckets (reducer.cpp, initialize_buckets).
DDP_BUCKETS: Final = 1.0

TENSOR_WRAPPING: Final = "tensors"
"""Wrapping of FSDP in a traced graph (torchtitan's graph_trainer): each tensor is a unit, and the collectives allocate
from the main stream's pool.
"""

# DeepSpeed's stage 0 flattens gradients in pieces of this many elements before it reduces them (engine.py).
ZERO0_FLATTEN: Final = 500_000_000

_ROOT: Final = "elements outside the layers"


def count_root_elements(setup: Setup) -> float:
    """Return the elements outside the decoder layers that FSDP gathers as one unit: embedding, head, final norm.

    The result is 0 if the wrapping makes separate units of these elements.
    """
    shape = setup.architecture
    if setup.sharding.wrapping in ("block_and_size", "size", TENSOR_WRAPPING):
        return 0.0
    if shape.experts is not None:  # the layers of a mixture-of-experts model differ in size
        tower = shape.tower
        encoder = 0 if tower is None else tower.parameters + tower.projector_parameters
        return label_count(shape.embedding_parameters + shape.hidden + encoder, _ROOT, shape.hidden)
    return merge_terms(max(0, shape.parameters - shape.layers * count_unit_elements(setup)), _ROOT)


def count_last_unit_elements(setup: Setup) -> float:
    """Return the elements of the unit that FSDP reduces last: the root, or the whole model if it is one unit."""
    if setup.sharding.wrapping == "root":
        return merge_terms(setup.architecture.parameters, "elements of the model")
    return count_root_elements(setup)


def compute_kept_roots(setup: Setup) -> float:
    """Return the bytes of the root units that other models leave gathered after their passes.

    FSDP1 does not free the root's weights after a forward pass, since a backward pass usually follows (torch 2.13
    fsdp/_runtime_utils.py, _post_forward_reshard).
    """
    roots = sum(other.keeps_root for other in setup.neighbours)
    return roots * setup.formats.gathered * count_last_unit_elements(setup) if roots else 0.0


def count_unit_elements(setup: Setup) -> float:
    """Return the elements of the largest decoder layer, or of its largest tensor if FSDP gathers single tensors."""
    shape = setup.architecture
    if setup.sharding.wrapping == TENSOR_WRAPPING:
        return count_layer_tensor(setup)
    each = shape.layer_parameters or (shape.parameters - shape.embedding_parameters) / shape.layers
    return merge_terms(each, "elements of a layer")


def count_head_elements(setup: Setup) -> int:
    """Return the elements of the output matrix on one rank; the embedding has as many."""
    elements = setup.architecture.vocab * setup.architecture.hidden // setup.part.head_split
    return merge_terms(elements, "elements of the output matrix")


def compute_gathered(setup: Setup) -> tuple[float, float]:
    """Return the bytes of weights that a sharded model holds gathered while a layer runs, and while the loss runs."""
    formats = setup.formats
    size = formats.gathered
    alone = setup.ranks.parameter_shards == 1
    if alone and not copies_units(setup) and not copies_weights(setup):
        return 0.0, 0.0
    total = setup.architecture.parameters
    if setup.ranks.strategy == "zero":
        ahead, at_once = count_zero_gathers(setup)
        gathers = min(size * ahead, size * setup.weights.trained + setup.frozen_sharded)
        whole = gathers + formats.quantized_gather * at_once
        return whole, whole
    reshards = setup.sharding.reshard or (alone and setup.ranks.strategy == "fsdp1")
    if setup.sharding.wrapping == "root" or not reshards:
        whole = size * total if formats.unit_bytes == size else setup.frozen_sharded
        return whole, whole
    unit, root = count_unit_elements(setup), count_root_elements(setup)
    edge = 0.0 if root else count_head_elements(setup)
    # The running layer's unit and the prefetched one. During the loss, the last layer's unit is already gathered.
    ahead = 1 if alone and setup.ranks.strategy == "fsdp2" else 2
    return size * root + formats.unit_bytes * unit * ahead, size * (root + edge) + formats.unit_bytes * unit


def copies_units(setup: Setup) -> bool:
    """Return whether FSDP copies each unit to compute with it although a rank holds all its weights.

    FSDP1 then switches to NO_SHARD, with a copy of a unit in the dtype of the computation until the unit is done, also
    without resharding (torch 2.13, _flat_param.py `_use_low_precision_shard`, `post_reshard`). FSDP2 always copies,
    without a prefetch on one rank (_fully_shard/_fsdp_param_group.py, `wait_for_unshard`).
    """
    if setup.ranks.strategy == "fsdp1":
        return not setup.weights.adapters and setup.formats.held != setup.formats.gathered
    return setup.ranks.strategy == "fsdp2"


def copies_weights(setup: Setup) -> bool:
    """Return whether ZeRO-3 copies the weights from the host whenever a module needs them, on any number of ranks."""
    return setup.ranks.zero_stage == 3 and setup.offload.parameters


def count_zero_gathers(setup: Setup) -> tuple[float, float]:
    """Return the elements that ZeRO-3 holds gathered, and the elements that it gathers in one piece.

    ZeRO++ quantizes the latter to 8 bits for the gather.
    """
    sharding = setup.sharding
    leaf, total = max(count_head_elements(setup), count_leaf_elements(setup)), setup.architecture.parameters
    ahead = min(total, sharding.live + sharding.prefetch_bucket) if sharding.live else 0
    at_once = max(leaf, min(total, sharding.prefetch_bucket))
    return merge_terms(max(leaf, ahead), "elements"), merge_terms(at_once, "elements in one piece")


def compute_stream_pools(setup: Setup, gathered: tuple[float, float]) -> tuple[float, Component | None]:
    """Return the bytes to which the pools of other streams grow, and the component whose buffers lie in these pools.

    torch's allocator keeps one pool per stream and never uses a block of one pool for another stream. FSDP2 gathers
    into buffers of its copy-in stream (the root with the first layer, later two layers) and reduces into buffers of its
    reduce-scatter stream, where the sharded gradients of all micro batches stay. FSDP1 and ZeRO-3 gather weights on a
    separate stream. `gathered` is the result of `compute_gathered`. The component is None if no other stream has a
    pool.
    """
    formats = setup.formats
    if setup.ranks.zero_stage == 3:
        # Without overlap_comm, gathers run on the main stream (DeepSpeed, parameter_offload.py), whose cache keeps
        # their blocks, too: no measured run shows whether the update can use them.
        pool = compute_zero_pools(setup) if setup.offload.parameters else gathered[0]
        return pool, GATHERED if pool else None
    if setup.sharding.wrapping == TENSOR_WRAPPING:
        return 0.0, None
    if setup.ranks.parameter_shards == 1:  # only FSDP1 copies on a stream of its own
        return (max(gathered), GATHERED) if setup.ranks.strategy == "fsdp1" and max(gathered) else (0.0, None)
    if setup.ranks.strategy == "fsdp2":
        unit, root = count_unit_elements(setup), count_root_elements(setup) or count_head_elements(setup)
        buffers = formats.gathered * root + formats.unit_bytes * unit
        gradients = max(compute_new_gradients(setup), compute_final_gradients(setup))
        return max(buffers, 2 * formats.unit_bytes * unit) + gradients, GRADIENTS
    return max(gathered) + compute_staged_shards(setup), GATHERED


def compute_zero_pools(setup: Setup) -> float:
    """Return the bytes that ZeRO-3 allocates at most on its gather stream and its reduce stream.

    Prefetching stops at `live` elements, but the module that runs next is gathered in any case, the output matrix too
    (DeepSpeed 0.19.8, partitioned_param_coordinator.py, `_fetch_sub_module_impl`). With offloaded parameters, its shard
    is on the GPU as well. The reduce stream holds the copy that a reduce-scatter sends (`compute_bucket`). With an
    offloaded optimizer, it also casts the largest partition of a gradient: to fp64 for its norm, 250 million elements
    at a time, and to fp32 (stage3.py, `_offload_grad_partition_at_boundary`).
    """
    sharding, formats, ranks = setup.sharding, setup.formats, setup.ranks
    leaf = max(count_head_elements(setup), count_leaf_elements(setup))
    ahead, at_once = count_zero_gathers(setup)
    most = max(ahead, sharding.live + leaf) if sharding.live else ahead
    whole = formats.gathered * setup.weights.trained + setup.frozen_sharded
    pools = min(formats.gathered * most, whole) + formats.quantized_gather * at_once
    if setup.offload.parameters and ranks.parameter_shards > 1:
        pools += formats.gathered * leaf / ranks.parameter_shards
    reduced = compute_bucket(setup)
    if setup.offload.optimizer and setup.mode.trained:
        partition = leaf / ranks.gradient_shards
        reduced = max(reduced, 8.0 * min(partition, _NORM_PIECE), 4.0 * partition)
    return pools + reduced


# Elements of which DeepSpeed computes a norm at once (stage3.py, `_constant_buffered_norm2`).
_NORM_PIECE: Final = 250e6


def compute_staged_shards(setup: Setup) -> float:
    """Return the bytes of the shards that FSDP1 copies from the host, on a separate stream, before it gathers a unit.

    These are the shards of the root and of one layer (_flat_param.py, pre_unshard).
    """
    if setup.ranks.strategy != "fsdp1" or not setup.offload.parameters:
        return 0.0
    pieces = setup.formats.gathered * (
        count_root_elements(setup) or count_head_elements(setup)
    ) + setup.formats.unit_bytes * count_unit_elements(setup)
    return pieces / setup.ranks.parameter_shards


# torch's FSDP1 broadcasts rank 0's weights in buckets that it closes at this size (_init_utils.py,
# PARAM_BROADCAST_BUCKET_SIZE), two at a time (c10d/comm.cpp).
_BROADCAST: Final = 250 * 2**20


def compute_broadcast_buckets(setup: Setup) -> tuple[float, float]:
    """Return the bytes of the buckets in which FSDP1 broadcasts the root's weights, and a layer's weights.

    A bucket is a copy unless it holds a single tensor. The tensor that fills a bucket is added whole, however large it
    is (`compute_bucket_assignment_by_size`). A large embedding is a bucket by itself; the final norm shares a bucket
    with the head.
    """
    formats = setup.formats
    head_bytes, root = formats.gathered * count_head_elements(setup), formats.gathered * count_root_elements(setup)
    rest = 0.0 if setup.architecture.tied else head_bytes
    last = min(root, rest if head_bytes >= _BROADCAST else _BROADCAST + head_bytes)
    return last, min(formats.unit_bytes * count_unit_elements(setup), 2.0 * _BROADCAST)


def compute_leftovers(setup: Setup, whole: bool) -> float:
    """Return the bytes of cached blocks that sharding leaves unused in the main stream's pool.

    FSDP1: a unit's weights are copied to the GPU one by one through buckets and joined into a flat tensor. The unit's
    shard is copied from that tensor, and stays unless it is offloaded. The root is the last and largest unit; the
    blocks of the other units are reused. FSDP2, if the `whole` model is on the GPU: accelerate's `fsdp2_prepare_model`
    holds the model's state dict until each weight has a shard (accelerate 1.15.0, utils/fsdp_utils.py; axolotl 0.18.0,
    monkeypatch/accelerate/fsdp2.py).
    """
    ranks = setup.ranks
    if ranks.strategy == "fsdp2" and whole:
        return setup.frozen_sharded
    if ranks.strategy != "fsdp1" or ranks.parameter_shards == 1:
        return 0.0
    root, unit = (
        setup.formats.gathered * count_root_elements(setup),
        setup.formats.unit_bytes * count_unit_elements(setup),
    )
    pieces = 2 * (root + unit) + sum(compute_broadcast_buckets(setup))
    return pieces - (0.0 if setup.offload.parameters else root / ranks.parameter_shards)


def compute_read_ahead(setup: Setup) -> float:
    """Return the bytes by which 16-bit weights exceed quantized weights, if all are on the GPU before quantization."""
    frozen = setup.frozen_weights
    return frozen.quantized * max(0.0, 2.0 - frozen.quantized_bytes)


# A page of the large pool with expandable segments (c10/cuda/CUDACachingAllocator.cpp, kLargeBuffer).
_PAGE: Final = 20 * 2**20


def compute_pinned_pages(setup: Setup) -> float:
    """Return an upper bound on the bytes of the pages that reading ahead leaves mapped in torch's cache.

    Each quantized matrix lies between freed 16-bit matrices, so its first and last page stay mapped when the cache is
    emptied.
    """
    experts = setup.architecture.experts
    fused = experts is not None and experts.fused
    inner = [item for item in setup.architecture.linears if item.part == "decoder" and (fused or not item.experts)]
    return min(compute_read_ahead(setup), 2.0 * _PAGE * sum([item.count for item in inner]))


def count_leaf_elements(setup: Setup) -> float:
    """Return the elements of the largest module that ZeRO-3 gathers at once.

    A mixture of experts that is a leaf module is gathered as a whole.
    """
    experts = setup.architecture.experts
    largest: float = setup.architecture.largest_tensor
    if experts is not None and setup.sharding.leaf_modules:
        largest = max(largest, 3.0 * experts.count * setup.architecture.hidden * experts.intermediate)
    return largest


def compute_reducing(setup: Setup) -> float:
    """Return the bytes of gradients that FSDP is still reducing while a layer runs: those of the layer after it."""
    if setup.ranks.strategy not in FSDP or setup.sharding.defers_reduction:
        return 0.0
    if not setup.mode.trained:
        return 0.0
    return count_unit_elements(setup) * setup.formats.communication * (1 + 1 / setup.ranks.shards)


def compute_bucket(setup: Setup) -> float:
    """Return the bytes of gradient buckets that live from the first gradient of a backward pass to its end."""
    ranks, formats, sharding = setup.ranks, setup.formats, setup.sharding
    size = sharding.reduce_bucket
    trained = setup.weights.trained
    if (ranks.strategy == "zero" and ranks.zero_stage == 0) or has_whole_fp32_gradients(setup):
        return formats.gradient * min(ZERO0_FLATTEN, trained)
    if ranks.zero_stage in (1, 2):
        element = formats.gradient
        flatten = min(size, trained) if sharding.reduce_scatter else 0
        return element * (size * (2 if sharding.overlap else 1) + flatten)
    if ranks.zero_stage == 3:  # the interleaved copy that a reduce-scatter sends
        return formats.gradient * min(size, trained)
    return 0.0


def compute_lasting_bucket(setup: Setup) -> float:
    """Return the bytes of gradient buckets that are never freed."""
    ranks = setup.ranks
    trained = setup.weights.trained
    if ranks.zero_stage == 3:
        return setup.formats.gradient * setup.sharding.reduce_bucket
    if ranks.strategy == "ddp" and ranks.world > 1:
        return DDP_BUCKETS * trained * setup.formats.gradient
    return 0.0


def compute_step_temporaries(setup: Setup) -> float:
    """Return the bytes that the optimizer step needs on top of states and gradients.

    The result is 0 under offload, or if weights are updated during the backward pass.

    torch's foreach AdamW needs one temporary of the size of all updated weights, its single-tensor loop two of the size
    of the largest tensor, its fused kernel none; for other optimizers see `optimizers.RULES`. ZeRO also casts and
    flattens gradients.
    """
    ranks, formats, optimizer = setup.ranks, setup.formats, setup.optimizer
    trained = setup.weights.trained
    updated = formats.master or formats.held
    if setup.offload.optimizer or setup.offload.parameters:
        return 0.0
    local = trained / ranks.optimizer_shards
    each, largest, besides = optimizer.scratch
    temporaries = each + largest
    if optimizer.updates == "within":
        return 0.0  # see `compute_update_in_backward`
    if ranks.strategy != "zero":
        size = min(local, setup.architecture.largest_tensor / ranks.optimizer_shards)
        if optimizer.updates == "block":  # the block's gradients in fp32, in addition to those in 16 bits
            return (4.0 + each) * local + largest * size
        return max(each * local + largest * size, besides)
    if ranks.zero_stage == 0:
        return 4.0 * trained if formats.gradient < 4 else 0.0  # fp32 copies of the gradients, to update the master copy
    if has_whole_fp32_gradients(setup):
        return 0.0  # BF16_Optimizer updates from the fp32 gradients that it holds
    # A flat copy of the gradients, and its cast to the master's format, which stays for the update.
    cast = 4.0 if formats.accumulated < 4 <= updated else 0.0
    if ranks.zero_stage == 3:
        return max(formats.accumulated + cast, (cast or formats.accumulated) + temporaries) * count_sub_group_elements(
            setup
        )
    if ranks.zero_stage == 2 and formats.accumulated > formats.gradient:
        return temporaries * local  # since 0.19.8 one flat fp32 buffer, which the update uses directly
    return (max(2 * formats.gradient + cast, 4 + temporaries) - formats.gradient) * local


def count_sub_group_elements(setup: Setup) -> float:
    """Return the elements of a rank's partition that ZeRO-3 updates at once."""
    largest = setup.architecture.largest_tensor / setup.ranks.optimizer_shards
    return merge_terms(
        min(setup.sharding.sub_group or largest, count_partition_elements(setup)), "elements of a sub-group"
    )


def compute_ring_buffers(setup: Setup) -> float:
    """Return the bytes that context parallelism needs while a layer runs backward.

    Ring attention (ring_flash_attn) needs receive buffers for keys and values, fp32 buffers for the rank's own and the
    received gradients of keys and values, and fp32 buffers for the query's gradient, in total and of one block: 20
    bytes per key element, 6 per query element.
    """
    if setup.ranks.context == 1:
        return 0.0
    shape = setup.architecture
    return setup.batch.tokens * shape.head_dim * (20 * shape.kv_heads + 6 * shape.heads)


def count_layer_tensor(setup: Setup) -> float:
    """Return the elements of the largest tensor of a decoder layer."""
    sizes = [item.elements / max(1, item.count) for item in setup.architecture.linears if item.part == "decoder"]
    return label_count(max(sizes, default=0.0), "elements of a layer's largest tensor", setup.architecture.hidden)


def compute_update_in_backward(setup: Setup, elements: float) -> float:
    """Return the temporary bytes for updating a tensor of `elements` elements while the backward pass runs."""
    optimizer = setup.optimizer
    if optimizer.updates != "within":
        return 0.0
    return max(optimizer.scratch.largest * elements, optimizer.scratch.besides)


def compute_gradient_casts(setup: Setup) -> tuple[float, float] | None:
    """Return the bytes of the fp32 gradients of a full ZeRO-3 sub-group and of the last sub-group, or None.

    ZeRO-3 casts the sub-groups one after another. The result is None if there is only one sub-group, or nothing to
    cast. An out-of-memory error can occur as late as the cast of the last sub-group.
    """
    local = count_partition_elements(setup)
    piece = setup.sharding.sub_group
    if (
        setup.ranks.zero_stage != 3
        or setup.offload.optimizer
        or not piece
        or piece >= local
        or setup.formats.accumulated >= 4
    ):
        return None
    return 4.0 * piece, 4.0 * (local % piece or piece)


def compute_gradient_norm(setup: Setup) -> float:
    """Return the bytes that ZeRO-1 and ZeRO-2 need for the gradient norm: the largest gradient in fp64.

    Source: DeepSpeed, get_norm_dtype.
    """
    if setup.weights.adapters or setup.offload.optimizer or has_whole_fp32_gradients(setup):
        return 0.0
    local = count_partition_elements(setup)
    return min(setup.architecture.largest_tensor, local) * 8.0
