"""Which files are OLMo's."""

from __future__ import annotations

import os

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.yaml.dialects import omegaconf
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found

_OWN: Final = frozenset(
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

_COMMON: Final = frozenset(
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
_FOREIGN: Final = frozenset(
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

_RECORD: Final = "config.yaml"
"""What a checkpoint's settings are called (olmo/checkpoint.py)."""
_SAVED: Final = ("model.pt", "model.safetensors", "train.pt", "train/rank0.pt")
"""Files of a checkpoint beside it."""


def recognise(document: Document) -> list[Found]:
    """A `model` section with OLMo's dimensions, and at least three more keys of its TrainConfig, one of them its own.

    What lies in a checkpoint is the record of a run: nothing is trained with it.
    """
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    keys = root.index.keys()
    model = root.index.get("model")
    if model is None or keys & _FOREIGN or not isinstance(model.value, MappingNode):
        return []
    if "vision_backbone" in model.value.index:  # Molmo, which has an image encoder and data of its own
        return []
    dimensions = len(model.value.index.keys() & {"d_model", "n_layers", "n_heads", "max_sequence_length"})
    own = len(keys & _OWN)
    typical = own + len(keys & _COMMON)
    if dimensions < 2 or typical < 3 or not own:
        return []
    why = f"a model section with OLMo's dimensions and {typical} more keys of TrainConfig"
    if _is_record(document.path):
        return [Found((), 30 + 5 * typical, "it is the record of a checkpoint", role="other")]
    return [Found((), 30 + 5 * typical, why)]


def _is_record(path: str) -> bool:
    """Whether a file lies in a checkpoint: OLMo's, or one that was converted for transformers."""
    folder, name = os.path.split(path)
    if name != _RECORD:
        return False
    if any(os.path.isfile(os.path.join(folder, one)) for one in _SAVED):
        return True
    try:
        return b'"model_type"' in regular_files.read(os.path.join(folder, "config.json"))
    except OSError:
        return False


def prepare(document: Document) -> None:
    """Type scalars as OmegaConf's loader does."""
    if isinstance(document, YamlDocument):
        document.read_as(omegaconf())
