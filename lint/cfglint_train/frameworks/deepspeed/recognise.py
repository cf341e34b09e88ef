"""Which files are DeepSpeed's."""

from __future__ import annotations

from collections.abc import Set

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found

_STRONG: Final = frozenset((
    "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
    "steps_per_print", "wall_clock_breakdown", "compression_training", "data_efficiency", "aio", "hybrid_engine",
    "autotuning", "flops_profiler", "comms_logger", "elasticity", "sparse_attention", "progressive_layer_drop",
    "curriculum_learning",
))  # fmt: skip

_WEAK: Final = frozenset((
    "train_batch_size", "gradient_accumulation_steps", "gradient_clipping", "fp16", "bf16", "optimizer", "scheduler",
    "activation_checkpointing", "tensorboard", "prescale_gradients",
))  # fmt: skip


def recognise(document: Document) -> list[Found]:
    """An object with `zero_optimization`, or with one key that is DeepSpeed's alone and another that it has."""
    root = document.root
    if not isinstance(root, MappingNode):
        return []
    keys = root.index.keys()
    if _is_another_tools(keys) or _is_for_inference(document, keys):
        return []
    if "zero_optimization" in keys and isinstance(document.value(("zero_optimization",)), (dict, bool)):
        return [Found((), 90, "zero_optimization")]
    strong, weak = len(keys & _STRONG), len(keys & _WEAK)
    if strong and strong + weak >= 2:
        return [Found((), 50 + 5 * (strong + weak), f"{strong + weak} keys of DeepSpeed")]
    if "train_batch_size" in keys and _has(document, "optimizer", "type") and _has(document, "fp16", "enabled"):
        return [Found((), 50, "train_batch_size, optimizer.type and fp16.enabled")]
    return []


def _is_for_inference(document: Document, keys: Set[str]) -> bool:
    """Whether a file is what `deepspeed.init_inference` takes: it calls ZeRO's section `zero` (inference/config.py)."""
    return "zero_optimization" not in keys and isinstance(document.value(("zero",)), dict)


def _is_another_tools(keys: Set[str]) -> bool:
    """Whether a file with keys of DeepSpeed is another tool's that hands them on: GPT-NeoX writes its own among them.

    Most of its keys are unknown, or several have hyphens, which none of DeepSpeed's has; one alone is a slip.
    """
    if sum("-" in key for key in keys) > 1:
        return True
    if not keys & _STRONG and "zero_optimization" not in keys:
        return False
    from cfglint_schemas.vocabulary import load  # few files come here that are not DeepSpeed's

    known = load("deepspeed")
    foreign = [key for key in keys if key[:1] != "_" and known.fact((key,), known.newest) is None]
    return 2 * len(foreign) > len(keys)


def _has(document: Document, *route: str) -> bool:
    return document.node(route) is not None
