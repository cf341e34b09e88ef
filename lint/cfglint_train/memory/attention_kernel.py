"""Choice of the attention kernel."""

from __future__ import annotations

from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.setup import Setup
from cfglint_train.models.architecture import Architecture

# For wider heads, transformers does not use sdpa's grouped queries (integrations/sdpa_attention.py).
_MAX_GROUPED_WIDTH = 256


def choose_attention_kernel(reader: Reader, job: Setup, sequences: int, length: int) -> tuple[str, int]:
    """Return the values of `Mode.attention` and `Mode.sequence`.

    Before torch 2.14, transformers creates a mask for sdpa whenever the model is compiled (masking_utils.py,
    `_ignore_causal_mask_sdpa`). sdpa then uses the memory-efficient kernel, which accepts a mask; all layers share the
    mask (measured: compiled-1b).
    """
    fp32 = job.mode.weight == 4 and not job.mode.autocast  # attention receives 32-bit queries
    kernel = _choose_uncompiled(reader, job.architecture, sequences, length, fp32)
    if job.compiled.model and reader.assume("activations.attention", "sdpa") == "sdpa" and kernel[0] != "eager":
        return "efficient", 0
    return kernel


def _choose_uncompiled(
    reader: Reader, architecture: Architecture, sequences: int, length: int, fp32: bool
) -> tuple[str, int]:
    get, attention = reader.get, reader.assume("activations.attention", "sdpa")
    family = FAMILIES.get(architecture.formula)
    if attention != "eager" and family is not None and (attention == "sdpa" or not family.flash):
        if family.kernel == "eager":
            attention = "eager"
        elif family.kernel == "masked":
            return "efficient", length
        elif family.kernel != "flash":
            return family.kernel, length
    if attention == "eager":
        return "eager", length
    padded = sequences > 1 and not get("sequence.packing") and not get("batch.tokens_per_gpu")
    if attention == "sdpa" and padded and get("sequence.padding") != "none":
        return "efficient", length
    return _choose_for_fp32(architecture, length) if attention == "sdpa" and fp32 else ("flash", 0)


def _choose_for_fp32(architecture: Architecture, length: int) -> tuple[str, int]:
    """Return sdpa's kernel for 32-bit queries without padding, and `Mode.sequence`.

    torch's flash and cuDNN kernels accept only 16-bit inputs, and its memory-efficient kernel does not support grouped
    queries (sdp_utils.cpp, `can_use_flash_attention`, `can_use_cudnn_attention`, `can_use_mem_efficient_attention`).
    transformers repeats keys and values if there is a mask (a window), and otherwise leaves that to torch
    (`use_gqa_in_sdpa`). Measured: precision-1b-fp32 and precision-1b-fp32-1024x1.
    """
    if architecture.window and length >= architecture.window:
        return "efficient", length
    grouped = architecture.kv_heads < architecture.heads and architecture.head_dim <= _MAX_GROUPED_WIDTH
    return ("math", length) if grouped else ("efficient", 0)
