"""Recognition of DeepSpeed configs."""

from __future__ import annotations

from collections.abc import Set

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig

_STRONG_KEYS: Final = frozenset((
    "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
    "steps_per_print", "wall_clock_breakdown", "compression_training", "data_efficiency", "aio", "hybrid_engine",
    "autotuning", "flops_profiler", "comms_logger", "elasticity", "sparse_attention", "progressive_layer_drop",
    "curriculum_learning",
))  # fmt: skip

_WEAK_KEYS: Final = frozenset((
    "train_batch_size", "gradient_accumulation_steps", "gradient_clipping", "fp16", "bf16", "optimizer", "scheduler",
    "activation_checkpointing", "tensorboard", "prescale_gradients",
))  # fmt: skip


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize an object with `zero_optimization`, or with a key that only DeepSpeed has and another DeepSpeed key.

    `train_batch_size`, `optimizer.type` and `fp16.enabled` together are enough too.
    """
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    keys = root.index.keys()
    if _is_of_other_tool(keys) or _is_inference_config(document, keys):
        return []
    if "zero_optimization" in keys and isinstance(document.get_value(("zero_optimization",)), (dict, bool)):
        return [RecognisedConfig((), 90, "zero_optimization")]
    strong_count, weak_count = len(keys & _STRONG_KEYS), len(keys & _WEAK_KEYS)
    if strong_count and strong_count + weak_count >= 2:
        return [
            RecognisedConfig((), 50 + 5 * (strong_count + weak_count), f"{strong_count + weak_count} DeepSpeed keys")
        ]
    if (
        "train_batch_size" in keys
        and _has_node(document, "optimizer", "type")
        and _has_node(document, "fp16", "enabled")
    ):
        return [RecognisedConfig((), 50, "train_batch_size, optimizer.type and fp16.enabled")]
    return []


def _is_inference_config(document: Document, keys: Set[str]) -> bool:
    """Return whether the file is for `deepspeed.init_inference`, whose ZeRO section is `zero` (inference/config.py)."""
    return "zero_optimization" not in keys and isinstance(document.get_value(("zero",)), dict)


def _is_of_other_tool(keys: Set[str]) -> bool:
    """Return whether the file belongs to a tool that passes its keys on to DeepSpeed, such as GPT-NeoX.

    This is assumed if most keys are unknown to DeepSpeed, or if several contain hyphens, which DeepSpeed's keys never
    do; a single hyphen may be a typo.
    """
    if sum("-" in key for key in keys) > 1:
        return True
    if not keys & _STRONG_KEYS and "zero_optimization" not in keys:
        return False
    from cfglint_schemas.vocabulary import load  # few files of other tools get this far

    deepspeed_vocabulary = load("deepspeed")
    foreign = [
        key
        for key in keys
        if key[:1] != "_" and deepspeed_vocabulary.find_fact((key,), deepspeed_vocabulary.newest) is None
    ]
    return 2 * len(foreign) > len(keys)


def _has_node(document: Document, *route: str) -> bool:
    return document.find_node(route) is not None
