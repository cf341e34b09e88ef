"""The components of an estimate; all other code refers to these objects.

Sizes are bytes. `explanation.py` shows how they are computed; `words` describes sizes that it does not explain.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.component import Component

PARAMETERS: Final = Component("parameters", "state", state=True, weights=True, spread=True)
FROZEN: Final = Component("frozen parameters", "state", weights=True, spread=True)
MASTER: Final = Component("master weights", "state", state=True, spread=True)
OPTIMIZER: Final = Component("optimizer state", "state", state=True, spread=True)
# The driver moves managed memory to the host if the GPU is full, and torch's counters omit it.
PAGED: Final = Component("paged optimizer state", "state", "in managed memory", counter="driver", spread=True)
REFERENCE: Final = Component("reference model", "state", weights=True)
OTHERS: Final = Component("other models", "state")
UNSHARDED: Final = Component("unsharded parameters", "state", evidence=("derived-deepspeed-states",))

GRADIENTS: Final = Component("gradients", "gradient", state=True, spread=True)
BUCKETS: Final = Component("gradient buckets", "transient", evidence=("derived-deepspeed-states",), passes=True)
GATHERED: Final = Component("gathered parameters", "transient", evidence=("traced",), passes=True)
RESTORED: Final = Component("restored optimizer state", "transient", "beside the state that it replaces", spread=True)
UPDATE: Final = Component("optimizer step transients", "transient", evidence=("traced",), passes=True)
SYNCED: Final = Component("weights on their way to the engine", "transient", evidence=(), passes=True)
ENGINE: Final = Component("rollout engine", "engine", evidence=())

ACTIVATIONS: Final = Component("activations", "activation", evidence=("traced",), flows=True, passes=True)
WEIGHT_COPIES: Final = Component(
    "weight copies",
    "transient",
    "16-bit copies, PEFT's full weights of fused experts, unpacked weights",
    evidence=("traced",),
    flows=True,
    passes=True,
)
LOGITS: Final = Component("logits and loss", "logits", evidence=("traced",), flows=True, passes=True)
BACKWARD: Final = Component("backward transients", "transient", evidence=("traced",), flows=True, passes=True)
FORWARD: Final = Component("forward transients", "transient", "", evidence=(), flows=True, passes=True)
# Metadata does not depend on the tokens, but no measurement justifies a tighter interval than that of `flows`.
METADATA: Final = Component("checkpoint metadata", "transient", evidence=("shard-metadata",), flows=True)

WORKSPACES: Final = Component(
    "workspaces", "runtime", "cuBLAS workspaces for two threads", evidence=("workspace-sm90", "workspace-sm80")
)
RESERVE: Final = Component(
    "allocator reserve",
    "runtime",
    "blocks cached by torch's allocator",
    evidence=(
        "apart",
        "apart-checkpointed",
        "split",
        "split-checkpointed",
        "fragmentation",
        "fragmentation-checkpointed",
        "gathers",
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

LOADED_WEIGHTS: Final = Component("loaded weights", "host")
LOADED_OPTIMIZER: Final = Component("loaded optimizer state", "host")
OFFLOADED_PARAMETERS: Final = Component("offloaded parameters", "host", coefficient="offloaded")
OFFLOADED_MASTER: Final = Component("offloaded master weights", "host", coefficient="offloaded")
OFFLOADED_GRADIENTS: Final = Component("offloaded gradients", "host", coefficient="offloaded")
OFFLOADED_OPTIMIZER: Final = Component("offloaded optimizer state", "host", coefficient="offloaded")
OFFLOADED_ACTIVATIONS: Final = Component("offloaded activations", "host")
OFFLOADED: Final = (
    OFFLOADED_PARAMETERS,
    OFFLOADED_MASTER,
    OFFLOADED_GRADIENTS,
    OFFLOADED_OPTIMIZER,
    OFFLOADED_ACTIVATIONS,
)
"""Components that offloading moves from the GPUs to the host."""
HOST_EXPERTS: Final = Component("experts on the host", "host")
WORKERS: Final = Component("data loader workers", "host", coefficient="worker")
WAITING: Final = Component("prefetched batches", "host")
SLEEPING: Final = Component("sleeping engines", "host")
SLEEPING_STATES: Final = Component(
    "sleeping training states",
    "host",
    "pinned master weights, states and gradients of every trained model while another model runs",
    coefficient="offloaded",
)
IDLE_MODELS: Final = Component("offloaded models", "host", "models that are not trained, in pinned memory")
FILE: Final = Component("file being written", "host", "the largest file of a checkpoint")
CLONED: Final = Component("weights cloned by every rank", "host")
GATHERED_WEIGHTS: Final = Component("gathered weights", "host")
GATHERED_OPTIMIZER: Final = Component("gathered optimizer state", "host")
STAGED_WEIGHTS: Final = Component("staged weights", "host")
STAGED_OPTIMIZER: Final = Component("staged optimizer shards", "host")
STAGED_SHARDS: Final = Component("staged shards", "host")
HOST_METADATA: Final = Component(
    "checkpoint metadata", "host", evidence=("shard-metadata",), coefficient="shard-metadata"
)

DISK_WEIGHTS: Final = Component("weights", "disk")
DISK_OPTIMIZER: Final = Component("optimizer state", "disk")
DISK_OTHERS: Final = Component("other models' states", "disk")

COMPONENTS: Final = tuple(row for row in list(globals().values()) if isinstance(row, Component))
"""All components, in order of definition."""
