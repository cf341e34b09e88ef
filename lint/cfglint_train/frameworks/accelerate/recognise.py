"""Recognition of accelerate configs and of the files that they name."""

from __future__ import annotations

from cfglint_train.documents.document import Document, Scalar
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.accelerate.settings import build_deepspeed_route, get_distributed_type, has_deepspeed_file
from cfglint_train.frameworks.framework import RecognisedConfig, Reference
from cfglint_train.frameworks.lens import Config

# accelerate utils/dataclasses.py DistributedType and SageMakerDistributedType; TPU is the former name of XLA.
_DISTRIBUTED_TYPES: Final = frozenset((
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU",
    "DEEPSPEED", "FSDP", "XLA", "TPU", "MEGATRON_LM", "TP", "DATA_PARALLEL", "MODEL_PARALLEL",
))  # fmt: skip

_OWN_KEYS: Final = frozenset((
    "compute_environment", "num_processes", "num_machines", "machine_rank", "mixed_precision", "downcast_bf16",
    "fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config", "fp8_config", "dynamo_config",
    "main_process_ip", "main_process_port", "rdzv_backend", "same_network", "main_training_function", "use_cpu",
    "gpu_ids", "tpu_env", "tpu_use_cluster", "tpu_use_sudo", "ipex_config", "mpirun_config", "enable_cpu_affinity",
))  # fmt: skip


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a mapping with one of accelerate's values of `distributed_type` and other keys of its config.

    At least half of all keys must be accelerate's.
    """
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    node = document.find_node(("distributed_type",))
    own_count = len(root.index.keys() & _OWN_KEYS)
    if (
        not isinstance(node, Scalar)
        or node.text not in _DISTRIBUTED_TYPES
        or own_count == 0
        or own_count < len(root.index) // 2
    ):
        return []
    return [
        RecognisedConfig((), 50 + 2 * own_count, f"distributed_type: {node.text} and {own_count} more accelerate keys")
    ]


def list_references(config: Config) -> tuple[Reference, ...]:
    """Return the reference to the DeepSpeed file that the config names, or an empty tuple."""
    if get_distributed_type(config) == "DEEPSPEED" and has_deepspeed_file(config):
        route = build_deepspeed_route("deepspeed_config_file")
        return (Reference("deepspeed", route, config.get(*route)),)
    return ()
