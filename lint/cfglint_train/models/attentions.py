"""The attention of models whose layers have different heads, or share or choose their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Attention

_HEADS: Final = ("num_attention_heads", "num_key_value_heads", "head_dim")


def attention(config: Mapping[str, Any]) -> Attention | None:
    """What a decoder's configuration with all defaults written out says of its attention; None where all layers have
    the heads that `num_attention_heads`, `num_key_value_heads` and `head_dim` state.
    """
    found = Attention(
        reusing_layers=_whole(config, "num_kv_shared_layers"),
        index_heads=_whole(config, "index_n_heads"),
        index_dim=_whole(config, "index_head_dim"),
    )
    others = _others(config)
    first = next(iter(others.values()), None)
    layers = _whole(config, "num_hidden_layers")
    if first is not None and len(others) < layers:
        heads, kv_heads, head_dim = (_whole(first, name) or _whole(config, name) for name in _HEADS)
        found = found._replace(
            layers=len(others),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            values_are_keys=config.get("attention_k_eq_v") is True,
            starts=0 in others,
            ends=layers - 1 in others,
        )
    return None if found == Attention() else found


def sparse_layers(config: Mapping[str, Any]) -> int:
    """Layers, from the first one on, whose MLP keeps a share of its gate only (Gemma 3n)."""
    pattern = config.get("activation_sparsity_pattern")
    if not isinstance(pattern, Sequence):
        return 0
    return next((index for index, share in enumerate(pattern) if not share), len(pattern))


def _others(config: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """The layers that differ, by their places, each with what it has instead."""
    stated = config.get("per_layer_config")
    if not isinstance(stated, Mapping):
        return {}
    return {
        int(index): changes
        for index, changes in stated.items()
        if isinstance(changes, Mapping)
        and any(_whole(changes, name) not in (0, _whole(config, name)) for name in _HEADS)
    }


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0
