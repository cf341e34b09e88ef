"""Attention features of models whose layers differ in their heads, share keys and values, or select keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Attention

_HEADS: Final = ("num_attention_heads", "num_key_value_heads", "head_dim")


def read_attention(config: Mapping[str, Any]) -> Attention | None:
    """Return the attention features of a decoder's configuration, in which every default must be written out.

    The result is None if `num_attention_heads`, `num_key_value_heads` and `head_dim` hold for every layer, and no layer
    shares or selects keys.
    """
    attention_features = Attention(
        reusing_layers=_get_count(config, "num_kv_shared_layers"),
        index_heads=_get_count(config, "index_n_heads"),
        index_dim=_get_count(config, "index_head_dim"),
    )
    different_layers = _find_different_layers(config)
    first = next(iter(different_layers.values()), None)
    layers = _get_count(config, "num_hidden_layers")
    if first is not None and len(different_layers) < layers:
        heads, kv_heads, head_dim = (_get_count(first, name) or _get_count(config, name) for name in _HEADS)
        attention_features = attention_features._replace(
            layers=len(different_layers),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            values_are_keys=config.get("attention_k_eq_v") is True,
            starts=0 in different_layers,
            ends=layers - 1 in different_layers,
        )
    return None if attention_features == Attention() else attention_features


def count_sparse_layers(config: Mapping[str, Any]) -> int:
    """Return the number of leading layers whose MLP zeroes a share of its gate activations (Gemma 3n)."""
    pattern = config.get("activation_sparsity_pattern")
    if not isinstance(pattern, Sequence):
        return 0
    return next((index for index, share in enumerate(pattern) if not share), len(pattern))


def _find_different_layers(config: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the indices of the layers with different heads, each with its changed settings."""
    layer_configs = config.get("per_layer_config")
    if not isinstance(layer_configs, Mapping):
        return {}
    return {
        int(index): changes
        for index, changes in layer_configs.items()
        if isinstance(changes, Mapping)
        and any(_get_count(changes, name) not in (0, _get_count(config, name)) for name in _HEADS)
    }


def _get_count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0
