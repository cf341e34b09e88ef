"""Recognition of LLaMA-Factory v1 configurations and of the files that they name."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig, Reference
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory_v1.settings import get_plugin_name

_OWN_KEYS: Final = frozenset((
    "model_class", "kernel_config", "peft_config", "quant_config", "dist_config", "init_config", "optim_config",
    "lr_scheduler_config", "train_dataset", "micro_batch_size", "global_batch_size", "batching_strategy",
    "enable_activation_checkpointing", "save_ckpt_as_hf", "sample_backend",
))  # fmt: skip

_FOREIGN_KEYS: Final = frozenset(("model_name_or_path", "base_model", "data", "trainer"))


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a mapping with `model` (a name) and two keys that only v1 has.

    One key is enough for an export, which has `export_dir` in `peft_config`.
    """
    root = document.root
    if not isinstance(root, MappingNode) or "model" not in root.index or root.index.keys() & _FOREIGN_KEYS:
        return []
    own_count = len(root.index.keys() & _OWN_KEYS)
    if own_count < 1 or not isinstance(document.get_value(("model",)), str):
        return []
    peft = document.get_value(("peft_config",))
    if isinstance(peft, dict) and "export_dir" in peft:
        return [
            RecognisedConfig(
                (), 40 + 2 * own_count, "a LLaMA-Factory v1 file for export that trains nothing", role="other"
            )
        ]
    if own_count < 2:
        return []
    return [RecognisedConfig((), 40 + 2 * own_count, f"model and {own_count} LLaMA-Factory v1 keys")]


def list_references(config: Config) -> tuple[Reference, ...]:
    """Return the DeepSpeed file that `dist_config` names, if any."""
    stated = config.get("dist_config", "config_file")
    if get_plugin_name(config, "dist_config") == "deepspeed" and isinstance(stated, str):
        return (Reference("deepspeed", ("dist_config", "config_file"), stated),)
    return ()
