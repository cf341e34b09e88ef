"""Which files are OLMo's."""

from __future__ import annotations

import os

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation import regular_files
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
"""Keys of TrainConfig that hardly any other trainer has."""

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
"""Keys of TrainConfig that other trainers have, too: without one of its own, they are no evidence."""

# llm-foundry, from whose format OLMo's grew, and OLMo-core, which has the same words in other places.
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
"""What a checkpoint's settings are called (olmo/checkpoint.py)."""
_CHECKPOINT_FILES: Final = ("model.pt", "model.safetensors", "train.pt", "train/rank0.pt")
"""Files of a checkpoint beside it."""


def recognise(document: Document) -> list[RecognisedConfig]:
    """A `model` section with OLMo's dimensions, and at least three more keys of its TrainConfig, one of them its own.

    What lies in a checkpoint is the record of a run: nothing is trained with it.
    """
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    keys = root.index.keys()
    model = root.index.get("model")
    if model is None or keys & _FOREIGN_KEYS or not isinstance(model.value, MappingNode):
        return []
    if "vision_backbone" in model.value.index:  # Molmo, which has an image encoder and data of its own
        return []
    dimensions = len(model.value.index.keys() & {"d_model", "n_layers", "n_heads", "max_sequence_length"})
    own_keys = len(keys & _OWN_KEYS)
    typical_keys = own_keys + len(keys & _COMMON_KEYS)
    if dimensions < 2 or typical_keys < 3 or not own_keys:
        return []
    reason = f"a model section with OLMo's dimensions and {typical_keys} more keys of TrainConfig"
    if _is_checkpoint_record(document.path):
        return [RecognisedConfig((), 30 + 5 * typical_keys, "it is the record of a checkpoint", role="other")]
    return [RecognisedConfig((), 30 + 5 * typical_keys, reason)]


def _is_checkpoint_record(path: str) -> bool:
    """Whether a file lies in a checkpoint: OLMo's, or one that was converted for transformers."""
    folder, name = os.path.split(path)
    if name != _CHECKPOINT_CONFIG:
        return False
    if any(os.path.isfile(os.path.join(folder, file_name)) for file_name in _CHECKPOINT_FILES):
        return True
    try:
        return b'"model_type"' in regular_files.read(os.path.join(folder, "config.json"))
    except OSError:
        return False


def prepare(document: Document) -> None:
    """Type scalars as OmegaConf's loader does."""
    if isinstance(document, YamlDocument):
        document.set_dialect(get_omegaconf_dialect())
