"""Which files are axolotl's, and which other file each of them names."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found, Reference
from cfglint_train.frameworks.lens import Config

_ITS_OWN: Final = frozenset(
    "datasets pretraining_dataset micro_batch_size sequence_len adapter sample_packing val_set_size rl "
    "dataset_prepared_path plugins".split()
)
_TYPICAL: Final = _ITS_OWN | frozenset(
    "gradient_accumulation_steps load_in_4bit load_in_8bit num_epochs optimizer lr_scheduler learning_rate output_dir "
    "lora_r special_tokens chat_template gradient_checkpointing fsdp_config deepspeed".split()
)

# Files that name a base model and are none of axolotl's: mergekit, hydra, alpaca-lora.
_FOREIGN: Final = frozenset(("merge_method", "slices", "defaults", "hydra", "models", "data_path"))


def recognise(document: Document) -> list[Found]:
    """A mapping with `base_model` and two or more of axolotl's usual keys, of which one is not every trainer's."""
    root = document.root
    if not isinstance(root, MappingNode) or "base_model" not in root.index:
        return []
    keys = root.index.keys()
    typical = len(keys & _TYPICAL)
    if typical < 2 or keys.isdisjoint(_ITS_OWN) or keys & _FOREIGN:
        return []
    return [Found((), 40 + 5 * typical, f"base_model and {typical} more keys of axolotl")]


def references(config: Config) -> tuple[Reference, ...]:
    """The DeepSpeed configuration: a path relative to the working directory, or a mapping in place."""
    stated = config.get("deepspeed")
    if isinstance(stated, str):
        return (Reference("deepspeed", ("deepspeed",), stated),)
    if isinstance(stated, dict):
        return (Reference("deepspeed", ("deepspeed",), None),)
    return ()
