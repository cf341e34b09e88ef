"""Recognition of OLMo configurations."""

from __future__ import annotations

import os

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig

_OWN_KEYS: Final = frozenset(
    (
        "device_train_microbatch_size",
        "global_train_batch_size",
        "device_eval_batch_size",
        "sharded_checkpointer",
        "softmax_auxiliary_loss",
        "save_folder",
        "save_interval_unsharded",
        "save_num_checkpoints_to_keep",
        "save_num_unsharded_checkpoints_to_keep",
        "speed_monitor",
        "gen1_gc_interval",
    )
)
"""Keys of TrainConfig that few other trainers have."""

_COMMON_KEYS: Final = frozenset(
    (
        "fsdp",
        "ddp",
        "distributed_strategy",
        "activation_checkpointing",
        "fused_loss",
        "save_interval",
        "max_duration",
        "precision",
        "optimizer",
        "scheduler",
        "tokenizer",
        "data",
        "evaluators",
        "eval_interval",
        "wandb",
        "compile",
    )
)
"""Keys of TrainConfig that other trainers also have; they count only together with a key from `_OWN_KEYS`."""

# Keys of llm-foundry, the origin of OLMo's format, and of OLMo-core, which has OLMo's key names in other sections.
_FOREIGN_KEYS: Final = frozenset(
    (
        "train_loader",
        "eval_loader",
        "fsdp_config",
        "loggers",
        "callbacks",
        "algorithms",
        "max_seq_len",
        "global_seed",
        "variables",
        "train_module",
        "trainer",
        "data_loader",
    )
)

_CHECKPOINT_CONFIG: Final = "config.yaml"
"""Name of a checkpoint's settings file (olmo/checkpoint.py)."""
_CHECKPOINT_FILES: Final = ("model.pt", "model.safetensors", "train.pt", "train/rank0.pt")
"""Files next to `config.yaml` that identify a folder as a checkpoint."""


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a `model` section with two of OLMo's dimensions, next to three more keys of TrainConfig.

    At least one of the three must be a key that few other trainers have. A file in a checkpoint is the record of a past
    run and trains nothing.
    """
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    keys = root.index.keys()
    model = root.index.get("model")
    if model is None or keys & _FOREIGN_KEYS or not isinstance(model.value, MappingNode):
        return []
    if "vision_backbone" in model.value.index:  # Molmo, with an image encoder and its own data
        return []
    dimensions = len(model.value.index.keys() & {"d_model", "n_layers", "n_heads", "max_sequence_length"})
    own_keys = len(keys & _OWN_KEYS)
    typical_keys = own_keys + len(keys & _COMMON_KEYS)
    if dimensions < 2 or typical_keys < 3 or not own_keys:
        return []
    reason = f"a model section with OLMo's dimensions and {typical_keys} more TrainConfig keys"
    if _is_checkpoint_record(document.path):
        return [RecognisedConfig((), 30 + 5 * typical_keys, "it is saved as part of a checkpoint", role="other")]
    return [RecognisedConfig((), 30 + 5 * typical_keys, reason)]


def _is_checkpoint_record(path: str) -> bool:
    """Return whether a file is part of an OLMo checkpoint, in its own format or converted for transformers."""
    folder, name = os.path.split(path)
    if name != _CHECKPOINT_CONFIG:
        return False
    if any(filesystem.is_file(os.path.join(folder, file_name)) for file_name in _CHECKPOINT_FILES):
        return True
    try:
        return b'"model_type"' in regular_files.read(os.path.join(folder, "config.json"))
    except OSError:
        return False


def prepare(document: Document) -> None:
    """Make a YAML document use OmegaConf's scalar types."""
    if isinstance(document, YamlDocument):
        document.set_dialect(get_omegaconf_dialect())
