"""Which kernel attention runs."""

from __future__ import annotations

from cfglint_train.memory.layers.families import Family
from cfglint_train.memory.reader import Reader


def attention_kernel(reader: Reader, family: Family | None, sequences: int, grouped_fp32: bool) -> tuple[str, bool]:
    """The kernel that attention runs, and whether it has a mask; a micro batch has so many `sequences`.

    `grouped_fp32`: keys of fewer heads, all in fp32. Without a mask transformers leaves it to torch to repeat them
    (integrations/sdpa_attention.py, `use_gqa_in_sdpa`), which no kernel for fp32 does (ATen, sdp_utils.cpp): torch's
    own product is left. With a mask they are repeated before.
    """
    get, attention = reader.get, reader.assume("activations.attention", "sdpa")
    if attention != "eager" and family is not None and (attention == "sdpa" or not family.flash):
        if family.kernel == "eager":
            attention = "eager"
        elif family.kernel != "flash":
            return family.kernel, family.kernel == "masked"
    if attention == "eager":
        return "eager", False
    padded = sequences > 1 and not get("sequence.packing") and not get("batch.tokens_per_gpu")
    masked = attention == "sdpa" and padded and get("sequence.padding") != "none"
    return "math" if grouped_fp32 and attention == "sdpa" and not masked else "flash", masked
