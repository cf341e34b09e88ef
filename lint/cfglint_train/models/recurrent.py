"""Recurrent and convolutional mixers of hybrid decoders: their kind and widths."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Recurrent

_DELTA: Final = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
_CONVOLUTIONS: Final = frozenset({"lfm2", "lfm2_moe"})


def read_recurrent(config: Mapping[str, Any]) -> Recurrent | None:
    """Return the mixer of a configuration, or None if there is no formula for it.

    The configuration must have every default written out.
    """
    family, hidden = config.get("model_type"), config.get("hidden_size")
    if not isinstance(hidden, int):
        return None
    if family in _DELTA:
        heads, size = _get_count(config, "linear_num_value_heads"), _get_count(config, "linear_key_head_dim")
        keys = _get_count(config, "linear_num_key_heads") * size
        return Recurrent("delta", heads * _get_count(config, "linear_value_head_dim"), keys, heads, size)
    if family in _CONVOLUTIONS:
        return Recurrent("convolution", hidden, 0, 0, 0)
    expanded = _get_count(config, "mamba_expand") * hidden
    if family == "granitemoehybrid":
        state = _get_count(config, "mamba_d_state")
        return Recurrent(
            "mamba2", expanded, _get_count(config, "mamba_n_groups") * state, _get_count(config, "mamba_n_heads"), state
        )
    if family == "falcon_h1":
        state = _get_count(config, "mamba_d_state")
        inner, inputs = _get_count(config, "mamba_d_ssm") or expanded, _get_count(config, "mamba_n_groups") * state
        return Recurrent("mamba2", inner, inputs, _get_count(config, "mamba_n_heads"), state)
    if family == "nemotron_h" and not config.get("moe_latent_size"):  # no formula for experts in a latent space
        heads, state = _get_count(config, "mamba_num_heads"), _get_count(config, "ssm_state_size")
        inner, inputs = heads * _get_count(config, "mamba_head_dim"), _get_count(config, "n_groups") * state
        return Recurrent("mamba2", inner, inputs, heads, state)
    if family == "jamba":
        rank = config.get("mamba_dt_rank")
        rank = rank if isinstance(rank, int) else -(-hidden // 16)
        return Recurrent("mamba", expanded, rank, 0, _get_count(config, "mamba_d_state"))
    return None


def _get_count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0
