"""The components of an estimate, one row each; all other code refers to these rows.

Sizes are bytes. A row has several `formulas` where a component is computed in several ways; the one that is shown is
the first that comes to the component's bytes, or `words` where none does (`formulas.py`). Placeholders are quantities
(`quantities.py`).
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.component import Component

PARAMETERS: Final = Component(
    "parameters",
    "state",
    "weights that are trained",
    "{trained} trained elements x {held} B / {parameter_shards} ranks",
    "{trained} trained elements x {loaded} B; whole on every GPU until they are sharded",
    state=True,
    weights=True,
    spread=True,
)
FROZEN: Final = Component(
    "frozen parameters",
    "state",
    "weights that are not trained",
    "{frozen_quantized} quantised elements x {quantized_bytes} B / {parameter_shards} ranks"
    " + {frozen_fp32} elements in fp32 x 4 B / {parameter_shards} ranks"
    " + {frozen_plain} frozen elements x {plain_bytes} B / {parameter_shards} ranks"
    " + {frozen_quantized} quantised elements x {scale_bytes} B of scales, which no rank shards",
    "{frozen_quantized} quantised elements x {scale_bytes} B of scales, which no rank shards",
    "{frozen_bytes} B of frozen weights; whole on every GPU until they are sharded",
    "{frozen_quantized} elements that are quantised later x 2 B + {frozen_plain} frozen elements x {plain_bytes} B",
    "{frozen_bytes} B of frozen weights + {frozen_sharded} B / {parameter_shards} ranks; whole beside their shards",
    weights=True,
    spread=True,
)
MASTER: Final = Component(
    "master weights",
    "state",
    "a copy of the trained weights in the optimizer's format",
    "{trained} trained elements x {master} B / {optimizer_shards} ranks",
    state=True,
    spread=True,
)
OPTIMIZER: Final = Component(
    "optimizer state",
    "state",
    "states of {trained} trained elements",
    "{trained} trained elements x {optimizer} B / {optimizer_shards} ranks",
    state=True,
    spread=True,
)
# The driver moves managed memory to the host where the card is full, and torch's counters leave it out.
PAGED: Final = Component(
    "paged optimizer state",
    "state",
    "states of {trained} trained elements, in managed memory",
    "{trained} trained elements x {optimizer} B / {optimizer_shards} ranks; in managed memory",
    counter="driver",
    spread=True,
)
REFERENCE: Final = Component(
    "reference model",
    "state",
    "a second whole model",
    "{rank_elements} elements of a second whole model x {reference_each} B / {parameter_shards} ranks",
    weights=True,
)
OTHERS: Final = Component("other models", "state", "other models on the same GPUs", "{other_models}")
UNSHARDED: Final = Component(
    "unsharded parameters",
    "state",
    "weights that every rank holds beside its shard",
    "{small} elements x {gathered} B x {other_ranks} / {parameter_shards} ranks"
    " + {second_trained} elements of a second copy x {gathered} B / {secondary} ranks"
    " + {second_frozen} B of frozen weights / {secondary} ranks; up to {persistence} elements stay whole",
    evidence=("derived-deepspeed-states",),
)

GRADIENTS: Final = Component(
    "gradients",
    "gradient",
    "of the layers whose backward pass is done, of the output matrix, and of earlier micro batches",
    "{active_elements} trained elements x {left_each} B / {left_ranks} ranks",
    "{earlier_elements} trained elements x {earlier_each} B / {earlier_ranks} ranks",
    "{earlier_elements} trained elements x {earlier_each} B / {earlier_ranks} ranks"
    " + {head_elements} elements of the output matrix x {weight_bytes} B",
    "{earlier_elements} trained elements x {earlier_each} B / {earlier_ranks} ranks"
    " + {active_elements} trained elements x {last_each} B / {last_ranks} ranks",
    "{earlier_elements} trained elements x {earlier_each} B / {earlier_ranks} ranks"
    " + {active_elements} trained elements x {last_each} B / {last_ranks} ranks"
    " + {trained} trained elements x {gradient} B; {unreduced_words}",
    state=True,
    spread=True,
)
BUCKETS: Final = Component(
    "gradient buckets",
    "transient",
    "buffers that gradients are reduced in",
    "{lasting_bucket} elements x {gradient} B",
    "{lasting_bucket} elements x {gradient} B + {passing_bucket} elements of a backward pass x {gradient} B",
    evidence=("derived-deepspeed-states",),
    passes=True,
)
GATHERED: Final = Component(
    "gathered parameters",
    "transient",
    "gathered weights of the module that runs",
    # ZeRO-3
    "{gathered_ahead} elements x {gathered} B + {gathered_quantized} elements x {quantized_gather} B",
    # FSDP: all of it, units while a layer and while the loss runs, the first gather, the reduction of the root
    "{rank_elements} elements x {gathered} B",
    "{trained} trained elements x {gathered} B + {frozen_bytes} B of frozen weights",
    "{root} elements outside the layers x {gathered} B + 2 layers x {unit} elements x {unit_bytes} B",
    "{root_or_head} elements outside the layers x {gathered} B + {unit} elements of a layer x {unit_bytes} B",
    "2 copies x {root} elements outside the layers x {gathered} B"
    " + 2 copies x {unit} elements of a layer x {unit_bytes} B",
    "{root} elements outside the layers x {gathered} B",
    # for a checkpoint
    "{module} elements of the largest module x {gathered} B",
    "{largest} elements of the largest tensor x {held} B",
    "{largest_unit} elements of the largest unit x {held} B",
    "{saved_unit} elements of the largest unit x 12 B",
    evidence=("traced",),
    passes=True,
)
UPDATE: Final = Component(
    "optimizer step transients",
    "transient",
    "temporaries of a {optimizer_scratch} update",
    "{local_elements} elements of a rank x {scratch_each} B + {local_tensor} elements of the largest tensor x"
    " {scratch_largest} B",
    "{local_elements} elements of the block x {block_each} B + {local_tensor} elements of the largest tensor x"
    " {scratch_largest} B",
    "{projecting} B of the projection of the largest matrix",
    "{update_piece} elements updated at once x {update_each} B",
    "{norm_elements} elements of the largest gradient x 8 B; for the gradient norm",
    evidence=("traced",),
    passes=True,
)
ENGINE: Final = Component(
    "rollout engine",
    "engine",
    "the share of the GPU that the engine may take",
    "{capacity} B of the GPU x {utilization}",
    "{sleep_residue} B of a sleeping engine",
    "{model_elements} elements x 2 B / {engine_ranks} ranks + {sleep_residue} B of a sleeping engine",
    evidence=(),
)

ACTIVATIONS: Final = Component(
    "activations",
    "activation",
    "{tokens} tokens through {layers} layers; {checkpointing_words}, {attention_words}",
    "{tokens} tokens x {trained_layers} layers x {layer_kept} B x {in_flight} micro batches;"
    " {checkpointing_words}, {attention_words}",
    "{tokens} tokens x {trained_layers} layers x {layer_kept} B x {in_flight} micro batches"
    " + {tokens} tokens x {head_kept} B before the output matrix; {checkpointing_words}, {attention_words}",
    "2 tensors x {tokens} tokens x width {hidden} x {residual} B; the embedding's output and its gradient",
    evidence=("traced",),
    flows=True,
    passes=True,
)
WEIGHT_COPIES: Final = Component(
    "weight copies",
    "transient",
    "weights that the forward pass makes and keeps: autocast's 16-bit copies of fp32 ones, PEFT's whole new ones for"
    " fused experts, quantised ones that are unpacked",
    evidence=("traced",),
    flows=True,
    passes=True,
)
LOGITS: Final = Component(
    "logits and loss",
    "logits",
    "{tokens} tokens, vocabulary {vocab}; {loss_words}",
    "{scored} tokens x vocabulary {vocab} x {loss_backward} B; {loss_words}",
    "{scored} tokens x vocabulary {vocab} x {loss_forward} B + {tokens} tokens x width {hidden} x {normed} B;"
    " {loss_words}",
    "{scored} tokens x vocabulary {vocab} x {passing_logits} B; {loss_words}",
    "{evaluation_tokens} tokens x vocabulary {vocab} x {evaluation_loss} B; {evaluation_words}",
    "{tokens} tokens x vocabulary {vocab} x 2 B; outputs that the caller keeps",
    "{evaluation_tokens} tokens x width {hidden} x 2 B"
    " + {evaluation_chunk} tokens of a chunk x vocabulary {vocab} x 2 B; {loss_words}",
    # Liger, Cut Cross-Entropy, output matrix and loss in chunks
    "{tokens} tokens x width {hidden} x 2 B + {chunk} tokens of a chunk x vocabulary {vocab} x 2 B"
    " + vocabulary {vocab} x width {hidden} x {head_bytes} B; {loss_words}",
    "vocabulary {vocab} x width {hidden} x {head_bytes} B; {loss_words}",
    "{tokens} tokens x width {hidden} x 2 B + {chunked} tokens of a chunk x vocabulary {vocab} x {chunked_each} B"
    " + {chunked_matrices} gradients of the output matrix x vocabulary {vocab} x width {hidden} x {head_bytes} B;"
    " {loss_words}",
    "{tokens} tokens x width {hidden} x 2 B + vocabulary {vocab} x width {hidden} x {head_bytes} B; {loss_words}",
    "{chunked} tokens of a chunk x vocabulary {vocab} x {chunked_each} B"
    " + {chunked_matrices} gradients of the output matrix x vocabulary {vocab} x width {hidden} x {head_bytes} B;"
    " {loss_words}",
    "{tokens} tokens x width {hidden} x 2 B + {tokens} tokens x 8 B"
    " + 2 gradients of the output matrix x vocabulary {vocab} x width {hidden} x {head_bytes} B; {loss_words}",
    "{tokens} tokens x width {hidden} x 2 B + {tokens} tokens / 8 chunks x vocabulary {vocab} x 10 B"
    " + 2 gradients of the output matrix x vocabulary {vocab} x width {hidden} x {head_bytes} B; {loss_words}",
    evidence=("traced",),
    flows=True,
    passes=True,
)
BACKWARD: Final = Component(
    "backward transients",
    "transient",
    "activations and gradients of what runs backward, {tokens} tokens, and gradients being reduced",
    "{head_elements} elements of the tied matrix x {weight_bytes} B; its second gradient",
    "2 gradients of the tied matrix x {head_elements} elements x {weight_bytes} B",
    "3 gradients of the tied matrix x {head_elements} elements x {weight_bytes} B",
    "{root} elements outside the layers x {reduced_each} B; being reduced",
    "{trained} trained elements x {gathered} B; flattened",
    "{head_elements} elements of the embedding x {gathered} B; being cast",
    "{trained} trained elements x 8 B / {optimizer_shards} ranks; flattened",
    evidence=("traced",),
    flows=True,
    passes=True,
)
FORWARD: Final = Component(
    "forward transients",
    "transient",
    "what one layer needs while it runs forward",
    evidence=(),
    flows=True,
    passes=True,
)
# No token decides about it, but no row bounds it tighter.
METADATA: Final = Component(
    "checkpoint metadata",
    "transient",
    "save plans of all ranks",
    "{world} ranks x {tensors} tensors x {shards} shards x {plan_bytes} B",
    evidence=("shard-metadata",),
    flows=True,
)

WORKSPACES: Final = Component(
    "workspaces",
    "runtime",
    "cuBLAS workspaces of two threads",
    evidence=("workspace-sm90", "workspace-sm80"),
)
RESERVE: Final = Component(
    "allocator reserve",
    "runtime",
    "blocks that torch's allocator keeps",
    evidence=(
        "apart",
        "apart-checkpointed",
        "split",
        "split-checkpointed",
        "fragmentation",
        "fragmentation-checkpointed",
    ),
    counter="reserved",
)
CONTEXT: Final = Component(
    "GPU context",
    "runtime",
    "context (CUDA or HIP), libraries and communication buffers",
    evidence=("context", "nccl", "nccl-kernels"),
    counter="driver",
)

LOADED_WEIGHTS: Final = Component(
    "loaded weights",
    "host",
    "weights that are read before they are sharded",
    "{local} ranks x {model_elements} elements x 4 B",
    "{local} ranks x {model_elements} elements x {gathered} B",
    "{model_elements} elements x {gathered} B",
    "{local} ranks x {file_read} B of the largest file",
    "{local} ranks x {all_elements} elements x {gathered} B",
    "{local} ranks x {trained} trained elements x {held} B",
    "{resumed_ranks} ranks x {trained} trained elements x {held} B x {parts} parts"
    " + {resumed_ranks} ranks x {frozen} frozen elements x {gathered} B x {parts} parts",
    "{trained} trained elements x {held} B x {parts} parts",
)
LOADED_OPTIMIZER: Final = Component(
    "loaded optimizer state",
    "host",
    "states that are read before they are sharded",
    "{local} ranks x {trained} trained elements x {states_bytes} B / {optimizer_shards} ranks",
    "{trained} trained elements x {optimizer} B x {parts} parts",
)
OFFLOADED_PARAMETERS: Final = Component(
    "offloaded parameters",
    "host",
    "shards of the weights",
    "{local} ranks x {host_trained} B of trained + {local} ranks x {host_frozen} B of frozen weights; {pinning}",
    "{local} ranks x 2 blocks x {host_weights} B + {local} ranks x {host_second} B of a second copy; {pinning}",
    coefficient="offloaded",
)
OFFLOADED_MASTER: Final = Component(
    "offloaded master weights",
    "host",
    "shards of the master weights",
    "{local} ranks x {trained} trained elements x {host_master} B / {optimizer_shards} ranks",
    "{local} ranks x {host_master_block} B; {pinning}",
    coefficient="offloaded",
)
OFFLOADED_GRADIENTS: Final = Component(
    "offloaded gradients",
    "host",
    "shards of the gradients",
    "{local} ranks x {host_trained} B; {pinning}",
    "{local} ranks x {sub_groups} sub-groups x {host_sub_group} B + {local} ranks x {host_last_group} B of the last one"
    " + {local} ranks x {host_gradient} B; {pinning}",
    "{local} ranks x {host_fp32_gradient} B + {local} ranks x {host_gradient} B"
    " + {local} ranks x {host_kept_gradient} B of earlier micro batches; {pinning}",
    coefficient="offloaded",
)
OFFLOADED_OPTIMIZER: Final = Component(
    "offloaded optimizer state",
    "host",
    "shards of the optimizer's states",
    "{local} ranks x {trained} trained elements x {optimizer} B / {optimizer_shards} ranks",
    coefficient="offloaded",
)
OFFLOADED_ACTIVATIONS: Final = Component(
    "offloaded activations",
    "host",
    "checkpoints of layers",
    "{local} ranks x {tokens} tokens x width {hidden} x {residual} B x {layers} layers x {in_flight} micro batches"
    " / {sequence_split} ranks of a sequence",
)
OFFLOADED: Final = (
    OFFLOADED_PARAMETERS,
    OFFLOADED_MASTER,
    OFFLOADED_GRADIENTS,
    OFFLOADED_OPTIMIZER,
    OFFLOADED_ACTIVATIONS,
)
"""What a host holds because it was taken off the GPUs."""
HOST_EXPERTS: Final = Component(
    "experts on the host",
    "host",
    "routed experts",
    "{expert_parameters} elements of routed experts x {experts_each} B",
)
WORKERS: Final = Component(
    "data loader workers",
    "host",
    "processes that load data",
    "{local} ranks x {workers} workers x {worker_bytes} B",
    coefficient="worker",
)
WAITING: Final = Component(
    "batches that wait",
    "host",
    "batches that data loaders keep ready",
    "{local} ranks x {workers} workers x {prefetched} batches x {tokens} tokens x 24 B",
)
SLEEPING: Final = Component(
    "sleeping engines",
    "host",
    "weights of the engines of a node",
    "{local} ranks x {model_elements} elements x 2 B / {engine_ranks} ranks of an engine",
)
SLEEPING_STATES: Final = Component(
    "sleeping training states",
    "host",
    "master weights, states and gradients of every model that is trained, pinned while another one works",
    coefficient="offloaded",
)
IDLE_MODELS: Final = Component("offloaded models", "host", "models that are not trained, in pinned blocks")
FILE: Final = Component(
    "file being written",
    "host",
    "the largest file of a checkpoint",
    "{trained} trained elements x {held} B + {frozen_bytes} B of frozen weights",
    "{largest_file} B of the largest file",
)
CLONED: Final = Component(
    "weights cloned by every rank",
    "host",
    "the whole model, once per rank of a node",
    "{local} ranks x {all_elements} elements x {gathered} B",
    "{local} ranks x {trained} trained elements x {gathered} B + {local} ranks x {frozen_bytes} B of frozen weights",
)
GATHERED_WEIGHTS: Final = Component(
    "gathered weights",
    "host",
    "the whole weights on rank 0",
    "{all_elements} elements x {gathered} B x {parts} parts",
    "{trained} trained elements x {held} B x {parts} parts",
    "{trained} trained elements x {held} B x {parts} parts + {frozen} frozen elements x {gathered} B x {parts} parts",
    "{trained} trained elements x {held} B x {parts} parts + {frozen_bytes} B of frozen weights x {parts} parts",
    "{rank_elements} elements x {held} B x {parts} parts",
)
GATHERED_OPTIMIZER: Final = Component(
    "gathered optimizer state",
    "host",
    "the whole states on rank 0",
    "{trained} trained elements x {optimizer} B x {parts} parts",
    "{rank_elements} elements x {optimizer} B x {parts} parts",
)
STAGED_WEIGHTS: Final = Component(
    "staged weights",
    "host",
    "shards of the weights, the adapter, or the largest tensor",
    "{trained} trained elements x {held} B",
    "{largest} elements of the largest tensor x {held} B",
    "{local} ranks x {trained} trained elements x {held} B / {parameter_shards} ranks"
    " + {local} ranks x {frozen} frozen elements x {gathered} B / {parameter_shards} ranks",
)
STAGED_OPTIMIZER: Final = Component(
    "staged optimizer shards",
    "host",
    "one piece of every rank's states, beyond what the weights took before",
    "{local} ranks x {sub_group_elements} elements of a sub-group x 4 B",
)
STAGED_SHARDS: Final = Component(
    "staged shards",
    "host",
    "shards of weights and states",
    "{local} ranks x {rank_elements} elements x {states_saved} B / {shards} ranks",
    "{local} ranks x {rank_elements} elements x {optimizer} B / {shards} ranks",
    "{local} ranks x {saved_unit} elements of the largest unit x {held} B / {shards} ranks",
)
HOST_METADATA: Final = Component(
    "checkpoint metadata",
    "host",
    "metadata of all ranks, on every rank of a node",
    "{local} ranks of a node x {world} ranks x {tensors} tensors x {tensor_bytes} B"
    " + {local} ranks of a node x {world} ranks x {tensors} tensors x {shards} shards x {shard_bytes} B",
    "{local} ranks of a node x {world} ranks x {tensors} tensors x {legacy_bytes} B",
    evidence=("shard-metadata",),
    coefficient="shard-metadata",
)

DISK_WEIGHTS: Final = Component(
    "weights",
    "disk",
    "weights of {copies} checkpoints",
    "{copies} checkpoints x {all_elements} elements x {gathered} B x {parts} parts",
    "{copies} checkpoints x {trained} trained elements x {held} B x {parts} parts",
    "{copies} checkpoints x {trained} trained elements x {held} B x {parts} parts"
    " + {copies} checkpoints x {frozen_bytes} B of frozen weights x {parts} parts",
    "{copies} checkpoints x {trained} trained elements x {held} B x {parts} parts"
    " + {copies} checkpoints x {frozen} frozen elements x {gathered} B x {parts} parts",
    "{copies} checkpoints x 2 files x {trained} trained elements x {held} B x {parts} parts"
    " + {copies} checkpoints x 2 files x {frozen} frozen elements x {gathered} B x {parts} parts",
    "{copies} checkpoints x 2 files x {trained} trained elements x {held} B x {parts} parts",
    "{copies} checkpoints x {rank_elements} elements x {held} B x {parts} parts",
)
DISK_OPTIMIZER: Final = Component(
    "optimizer state",
    "disk",
    "states of {copies} checkpoints",
    "{copies} checkpoints x {trained} trained elements x {optimizer} B x {parts} parts",
    "{copies} checkpoints x {trained} trained elements x {optimizer_and_master} B x {parts} parts",
    "{copies} checkpoints x {rank_elements} elements x {optimizer} B x {parts} parts",
)
DISK_OTHERS: Final = Component(
    "other models' states",
    "disk",
    "states of {copies} checkpoints of the other models that are trained",
    "{copies} checkpoints x {beside_elements} elements x {optimizer_and_master} B x {parts} parts",
)

COMPONENTS: Final = tuple(row for row in list(globals().values()) if isinstance(row, Component))
"""All rows, in order."""
