"""Recognition of axolotl configs and of the files that they name."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig, Reference
from cfglint_train.frameworks.lens import Config

_OWN_KEYS: Final = frozenset(
    "datasets pretraining_dataset micro_batch_size sequence_len adapter sample_packing val_set_size rl "
    "dataset_prepared_path plugins".split()
)
_TYPICAL_KEYS: Final = _OWN_KEYS | frozenset(
    "gradient_accumulation_steps load_in_4bit load_in_8bit num_epochs optimizer lr_scheduler learning_rate output_dir "
    "lora_r special_tokens chat_template gradient_checkpointing fsdp_config deepspeed".split()
)

# Keys of other tools whose files also have `base_model`: mergekit, hydra and alpaca-lora.
_FOREIGN_KEYS: Final = frozenset(("merge_method", "slices", "defaults", "hydra", "models", "data_path"))


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a mapping with `base_model` and at least two typical keys, including a key of `_OWN_KEYS`.

    A file with a key of another tool is not recognized.
    """
    root = document.root
    if not isinstance(root, MappingNode) or "base_model" not in root.index:
        return []
    keys = root.index.keys()
    typical_count = len(keys & _TYPICAL_KEYS)
    if typical_count < 2 or keys.isdisjoint(_OWN_KEYS) or keys & _FOREIGN_KEYS:
        return []
    return [RecognisedConfig((), 40 + 5 * typical_count, f"base_model and {typical_count} more axolotl keys")]


def list_references(config: Config) -> tuple[Reference, ...]:
    """Return the reference to the DeepSpeed config, a path relative to the working directory or a section, if any."""
    stated = config.get("deepspeed")
    if isinstance(stated, str):
        return (Reference("deepspeed", ("deepspeed",), stated),)
    if isinstance(stated, dict):
        return (Reference("deepspeed", ("deepspeed",), None),)
    return ()
