"""Full names of modules in transformers' decoders, for matching against name patterns.

`tests/memory/test_module_names.py` compares them with transformers' models.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.typed import Final
from cfglint_train.models.architecture import Architecture, ModelPart

ATTENTION: Final = frozenset((
    "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
))  # fmt: skip
MLP: Final = frozenset(("gate_proj", "up_proj", "down_proj", "gate_up_proj"))
_ROOTS: Final = ("model.layers", "model.language_model.layers", "language_model.model.layers")
ENDS: Final = {
    "embedding": ("model.embed_tokens", "model.language_model.embed_tokens", "language_model.model.embed_tokens"),
    "head": ("lm_head", "language_model.lm_head"),
}

# Families whose names for attention and MLP differ from the usual names.
_PARTS: Final = {
    "falcon_h1": ("self_attn", "feed_forward"),
    "jamba": ("self_attn", "feed_forward"),
    "llama4_text": ("self_attn", "feed_forward"),
    "nemotron_h": ("mixer", "mixer"),
}


def list_layer_roots(architecture: Architecture) -> tuple[str, ...]:
    """Return the modules that may hold the layers; with a vision tower, the language model is a submodule."""
    return _ROOTS[1:] if architecture.tower is not None else _ROOTS[:1]


def find_part(architecture: Architecture, leaf: str) -> str:
    """Return the part of a layer that has a matrix called `leaf`, or an empty string if the name is unknown."""
    attention, mlp = _PARTS.get(architecture.formula, ("self_attn", "mlp"))
    return attention if leaf in ATTENTION else mlp if leaf in MLP else ""


@lru_cache(maxsize=512)
def compute_match_share(
    architecture: Architecture, leaf: str, part: ModelPart, count: int, targets: tuple[str, ...]
) -> float:
    """Return the share of the last `count` modules with a leaf name that any of `targets` matches.

    A target matches if the full name contains it, or fully matches it as a regular expression (transformers 5.23.0,
    trainer_utils.py, check_target_module_exists). A module with an unknown full name is matched by its leaf name.
    """
    from cfglint_train.foundation.patterns import UnsupportedPattern, compile_pattern

    patterns = []
    for target in targets:
        try:
            patterns.append(compile_pattern(target))
        except UnsupportedPattern:
            continue
    parent = find_part(architecture, leaf) if part == "decoder" else ""
    layers = architecture.layers
    modules = [ENDS.get(part, (leaf,))]
    if parent:
        numbers = range(max(0, layers - count), layers)
        modules = [
            tuple(f"{root}.{number}.{parent}.{leaf}" for root in list_layer_roots(architecture)) for number in numbers
        ]
    matches = [
        any(target in name for target in targets for name in names)
        or any(pattern.fullmatch(name) for pattern in patterns for name in names)
        for names in modules
    ]
    return sum(matches) / len(matches) if matches else 0.0
