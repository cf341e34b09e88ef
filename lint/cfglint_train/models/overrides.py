"""Overrides of a model's own configuration, applied to its architecture (axolotl's `overrides_of_model_config`).

An override that may change a shape makes a catalogue entry unknown, because the changed model's counts could only be
guessed. A key in `FIELD_BY_KEY` is harmless if it repeats the entry's value; a key in `SHAPE_KEYS` always makes the
entry unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models import dimensions
from cfglint_train.models.architecture import Architecture

FIELD_BY_KEY: Final[Mapping[str, str]] = {
    **dict.fromkeys(dimensions.HIDDEN, "hidden"),
    **dict.fromkeys(dimensions.LAYERS, "layers"),
    **dict.fromkeys(dimensions.HEADS, "heads"),
    **dict.fromkeys(dimensions.KV_HEADS, "kv_heads"),
    **dict.fromkeys(dimensions.INTERMEDIATE, "intermediate"),
    **dict.fromkeys(dimensions.VOCAB, "vocab"),
    "head_dim": "head_dim",
    "tie_word_embeddings": "tied",
}
"""Key -> the architecture's field whose value an override must repeat."""

SHAPE_KEYS: Final = frozenset(
    (
        *dimensions.EXPERTS,
        *dimensions.PER_TOKEN,
        *dimensions.EXPERT_WIDTH,
        *dimensions.SHARED_WIDTH,
        *dimensions.SHARED_COUNT,
        *dimensions.DENSE_FIRST,
        *dimensions.SPARSE_EVERY,
        "attention_bias",
        "mlp_bias",
        "use_qk_norm",
        "layer_types",
        "layers_block_type",
        "hybrid_override_pattern",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "model_type",
        "architectures",
    )
).difference(FIELD_BY_KEY)
"""Keys that change shapes or counts, and that cannot be compared with a field of the architecture."""


def merge_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parsed `config.json` with `overrides`: mappings are merged, other values replaced."""
    result = dict(config)
    for key, value in overrides.items():
        old_value = result.get(key)
        is_mergeable = isinstance(old_value, Mapping) and isinstance(value, Mapping)
        result[key] = merge_overrides(old_value, value) if is_mergeable else value  # type: ignore[arg-type]
    return result


def apply_overrides(architecture: Architecture, overrides: Mapping[str, Any]) -> Architecture | None:
    """Return an architecture with `overrides`, or None if they may change a shape."""
    positions = any(linear.name in ("wpe", "embed_positions") for linear in architecture.linears)
    for key, value in _flatten(overrides):
        field = FIELD_BY_KEY.get(key)
        if key in SHAPE_KEYS or (field is not None and getattr(architecture, field) != value):
            return None
        if key in dimensions.CONTEXT and isinstance(value, int):
            if positions and value != architecture.context:
                return None
            architecture = architecture._replace(context=value)
        if key == "sliding_window" and architecture.window and isinstance(value, int):
            architecture = architecture._replace(window=value)
    return architecture


def _flatten(overrides: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in overrides.items():
        if key in dimensions.DECODER_KEYS and isinstance(value, Mapping):
            yield from _flatten(value)
        else:
            yield key, value
