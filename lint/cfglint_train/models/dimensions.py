"""Model dimensions, read from a transformers `config.json`.

Model families use different keys for the same dimension (`hidden_size`, `n_embd`, `d_model`); the tables here list the
keys in the order in which they are tried. If a key is missing, transformers' class supplies a default; the defaults
that matter are in `families.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Experts, Latent

HfConfig = Mapping[str, Any]

HIDDEN: Final = ("hidden_size", "n_embd", "d_model", "dim")
LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
INTERMEDIATE: Final = (
    "intermediate_size_mlp",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "dense_intermediate_size",
    "d_ff",
)
VOCAB: Final = ("vocab_size", "padded_vocab_size")
CONTEXT: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
    "model_max_length",
)

EXPERTS: Final = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
PER_TOKEN: Final = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k")
EXPERT_WIDTH: Final = ("moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "intermediate_size")
SHARED_WIDTH: Final = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)
SHARED_COUNT: Final = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
DENSE_FIRST: Final = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
SPARSE_EVERY: Final = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period")

# Entries of `layer_types`, by the kind of layer that they stand for.
RECURRENT: Final = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent", "kda", "gdn"})
WINDOWED: Final = frozenset({"sliding_attention", "chunked_attention", "local_attention", "local"})
FULL: Final = frozenset({"full_attention", "attention", "global", "global_attention"})

# Period of the layers with full attention, for families whose configuration does not list these layers.
FULL_ATTENTION_PERIODS: Final = {
    "gemma2": 2,
    "gpt_oss": 2,
    "olmo3": 4,
    "cohere2": 4,
    "exaone4": 4,
    "gemma3": 6,
    "gemma3_text": 6,
}

# Encoder-decoder models; `num_layers` is the encoder's depth.
ENCODER_DECODERS: Final = frozenset({"t5", "mt5", "umt5"})

# Families whose window applies only if `use_sliding_window` is set.
WINDOW_SWITCH_FAMILIES: Final = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"})

# Keys of the decoder in configurations that wrap it.
DECODER_KEYS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
TOWER_KEYS: Final = ("vision_config", "audio_config", "encoder_config", "visual")
TOWER_LAYERS: Final = ("num_hidden_layers", "depth", "encoder_layers", "layers")
TOWER_HIDDEN: Final = ("hidden_size", "embed_dim", "d_model", "width")

MAX_DIMENSION: Final = 10**9
"""Upper limit of every dimension; a larger value counts as missing."""
MAX_LAYERS: Final = 10**4


class Dimensions(Frozen):
    """The decoder's dimensions in a configuration. Widths are elements."""

    model_type: str
    """The decoder's `model_type`."""
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    tied: bool
    experts: Experts | None
    sparse_layers: int
    """Number of layers that are a mixture of experts."""
    latent: Latent | None
    window: int | None
    full_attention_layers: int | None
    recurrent_layers: int
    context: int | None
    has_towers: bool
    """True if the configuration has towers besides the decoder."""
    tower_layers: int = 0
    tower_hidden: int = 0


def get_decoder_config(config: HfConfig) -> HfConfig:
    """Return the part of a configuration that describes the decoder: itself, or a nested part (`text_config`)."""
    for name in DECODER_KEYS:
        inner = config.get(name)
        if isinstance(inner, Mapping) and get_first(inner, HIDDEN) is not None:
            return inner
    return config


def get_first(config: HfConfig, names: tuple[str, ...]) -> Any:
    """Return the first of the named values that is present and not null, or None."""
    for name in names:
        value = config.get(name)
        if value is not None:
            return value
    return None


def read_dimensions(config: HfConfig, defaults: HfConfig | None = None) -> Dimensions | None:
    """Return the dimensions that a configuration states, or None if a required dimension is missing.

    `defaults` supplies keys that the configuration omits.
    """
    inner = get_decoder_config(config)
    present = {key: value for key, value in inner.items() if value is not None or key == "sliding_window"}
    settings: dict[str, Any] = {**(defaults or {}), **present}
    for group in ("attn_config", "ffn_config"):  # DBRX and MPT
        if isinstance(settings.get(group), Mapping):
            settings = {**settings[group], **settings}
    hidden, layers, vocab = (_parse_count(get_first(settings, names)) for names in (HIDDEN, LAYERS, VOCAB))
    layers = layers or len(_list_layer_kinds(settings, None))
    if layers and str(settings.get("model_type")) in ENCODER_DECODERS:
        layers += _parse_count(settings.get("num_decoder_layers")) or layers
    if not hidden or not layers or not vocab or layers > MAX_LAYERS:
        return None
    heads = _parse_count(get_first(settings, HEADS)) or 0
    kinds = _list_layer_kinds(settings, layers)
    recurrent = sum(kind in RECURRENT for kind in kinds) if kinds else _count_recurrent_layers(settings, layers)
    window, full = _read_window(settings, kinds, layers)
    if recurrent and not kinds and settings.get("model_type") != "falcon_h1":
        full = layers - recurrent
    experts, sparse = _read_experts(settings, layers)
    latent, tied = _read_latent(settings), config.get("tie_word_embeddings")
    towers = [tower for name in TOWER_KEYS if isinstance(tower := config.get(name), Mapping)]
    return Dimensions(
        model_type=str(settings.get("model_type") or config.get("model_type") or ""),
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=_count_kv_heads(settings, heads),
        head_dim=latent.nope_dim + latent.rope_dim if latent else _compute_head_dim(settings, hidden, heads),
        intermediate=_compute_intermediate(settings, hidden),
        tied=bool(settings.get("tie_word_embeddings", False) if tied is None else tied),
        experts=experts,
        sparse_layers=sparse,
        latent=latent,
        window=window,
        full_attention_layers=full,
        recurrent_layers=recurrent,
        context=_parse_count(get_first(settings, CONTEXT)),
        has_towers=bool(towers),
        tower_layers=sum(_parse_count(get_first(tower, TOWER_LAYERS)) or 0 for tower in towers),
        tower_hidden=sum(_parse_count(get_first(tower, TOWER_HIDDEN)) or 0 for tower in towers),
    )


def _parse_count(value: Any) -> int | None:
    """Return `value` as an integer, the largest integer of a list (one per layer), or None if it is invalid."""
    if isinstance(value, (list, tuple)):
        numbers = [_parse_count(item) for item in value]
        return max((number for number in numbers if number is not None), default=None)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= MAX_DIMENSION
        or value != int(value)
    ):
        return None
    return int(value)


def _compute_head_dim(settings: HfConfig, hidden: int, heads: int) -> int:
    return _parse_count(get_first(settings, ("head_dim", "kv_channels", "d_kv"))) or (hidden // heads if heads else 0)


def _count_kv_heads(settings: HfConfig, heads: int) -> int:
    if settings.get("model_type") in ("falcon", "RefinedWeb", "RefinedWebModel"):
        if settings.get("new_decoder_architecture"):
            return _parse_count(get_first(settings, KV_HEADS)) or heads
        return 1 if settings.get("multi_query", True) else heads
    if settings.get("model_type") == "gpt_bigcode":
        return 1 if settings.get("multi_query", True) else heads
    if settings.get("model_type") == "chatglm" and not settings.get("multi_query_attention"):
        return heads
    return _parse_count(get_first(settings, KV_HEADS)) or _parse_count(settings.get("kv_n_heads")) or heads


def _compute_intermediate(settings: HfConfig, hidden: int) -> int:
    if settings.get("model_type") == "mpt":  # transformers' class ignores expansion_ratio
        return 4 * hidden
    if settings.get("model_type") == "granitemoehybrid":
        return _parse_count(settings.get("shared_intermediate_size")) or 4 * hidden
    width = _parse_count(settings.get("block_ff_dim")) or _parse_count(get_first(settings, INTERMEDIATE))
    if width is None:
        return 4 * hidden
    if settings.get("model_type") == "qwen":  # its width counts both halves of the gated MLP
        return width // 2
    if settings.get("model_type") == "lfm2" and settings.get("block_auto_adjust_ff_dim", True):
        multiplier = settings.get("block_ffn_dim_multiplier", 1.0)
        if not isinstance(multiplier, (int, float)) or not 0 < multiplier < 100:
            multiplier = 1.0
        width = int(multiplier * int(2 * width / 3))
        multiple = _parse_count(settings.get("block_multiple_of")) or 256
        return multiple * -(-width // multiple)
    return width


def _list_layer_kinds(settings: HfConfig, layers: int | None) -> list[str]:
    kinds = settings.get("layer_types") or settings.get("layers_block_type")
    if isinstance(kinds, (list, tuple)):
        return [str(kind) for kind in kinds[:layers]]
    pattern = settings.get("hybrid_override_pattern")  # Nemotron-H: M mamba, * attention, - MLP, E experts
    if isinstance(pattern, str):
        return [{"M": "mamba", "*": "attention"}.get(letter, "mlp") for letter in pattern]
    return []


def _read_window(settings: HfConfig, kinds: list[str], layers: int) -> tuple[int | None, int | None]:
    """Return the attention window and, if only some layers have full attention, their number."""
    size = _parse_count(get_first(settings, ("sliding_window", "attention_chunk_size")))
    if kinds:
        windowed = sum(kind in WINDOWED for kind in kinds)
        full = sum(kind in FULL for kind in kinds)
        is_complete = all(kind in WINDOWED | FULL | RECURRENT | {"mlp", "moe"} for kind in kinds)
        return (size if windowed else None), (None if full == layers or not is_complete else full)
    if not size or settings.get("use_sliding_window") is False:
        return None, None
    pattern = _parse_count(settings.get("sliding_window_pattern") or settings.get("_sliding_window_pattern"))
    if pattern:
        return size, layers // pattern
    model_type = str(settings.get("model_type"))
    if model_type in WINDOW_SWITCH_FAMILIES and not settings.get("use_sliding_window"):
        return None, None
    full = 0
    if model_type in FULL_ATTENTION_PERIODS:
        full = layers // FULL_ATTENTION_PERIODS[model_type]
    elif model_type in ("qwen2", "qwen3", "qwen2_moe"):
        first_windowed = min(layers, _parse_count(settings.get("max_window_layers", 28)) or 0)
        full = layers - (first_windowed + 1) // 2 if model_type == "qwen2_moe" else first_windowed
    return (None, None) if full == layers else (size, full)


def _count_recurrent_layers(settings: HfConfig, layers: int) -> int:
    model_type = settings.get("model_type")
    if model_type in ("mamba", "mamba2", "falcon_mamba", "falcon_h1"):
        return layers
    period = _parse_count(settings.get("attn_layer_period"))  # Jamba
    if period:
        offset = _parse_count(settings.get("attn_layer_offset")) or 0
        return sum(index % period != offset for index in range(layers))
    return 0


def _read_experts(settings: HfConfig, layers: int) -> tuple[Experts | None, int]:
    count = _parse_count(get_first(settings, EXPERTS))
    if not count or count < 2 or settings.get("enable_moe_block") is False:
        return None, 0
    width = _parse_count(get_first(settings, EXPERT_WIDTH)) or _compute_intermediate(
        settings, _parse_count(get_first(settings, HIDDEN)) or 0
    )
    shared = _parse_count(get_first(settings, SHARED_WIDTH))
    if shared is None:
        default_count = 1 if settings.get("model_type") == "llama4_text" else 0
        shared = (_parse_count(get_first(settings, SHARED_COUNT)) or default_count) * width
    dense, period = (
        _parse_count(get_first(settings, DENSE_FIRST)) or 0,
        _parse_count(get_first(settings, SPARSE_EVERY)) or 1,
    )
    sparse = [_is_mixture(settings, index, dense, period) for index in range(layers)]
    if True not in sparse:  # some families state a number of experts although no layer uses experts
        return None, 0
    if period == 1 and not settings.get("layers_block_type"):
        dense = sparse.index(True)
    per_token = _parse_count(get_first(settings, PER_TOKEN)) or 1
    return Experts(count, per_token, width, shared, dense, period), sum(sparse)


def _is_mixture(settings: HfConfig, index: int, dense: int, period: int) -> bool:
    """Return whether the layer at `index` is a mixture of experts, which families state in different ways."""
    for name in ("mlp_layer_types", "moe_layer_types"):
        kinds = settings.get(name)
        if isinstance(kinds, (list, tuple)) and index < len(kinds):
            return bool(kinds[index] != "dense")
    if isinstance(settings.get("moe_layers"), (list, tuple)):  # Llama 4
        return index in settings["moe_layers"]
    pattern = settings.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern[index : index + 1] == "E"
    kinds = settings.get("layers_block_type")
    if isinstance(kinds, (list, tuple)) and ("moe" in kinds or "mlp" in kinds):  # Nemotron-H; Jamba lists mixers only
        return bool(kinds[index : index + 1] == ["moe"])
    dense_too = settings.get("mlp_only_layers")
    if index < dense or (isinstance(dense_too, (list, tuple)) and index in dense_too):
        return False
    offset = _parse_count(settings.get("expert_layer_offset"))
    if offset is not None:
        return index % period == offset
    return period == 1 or (index + 1) % period == 0


def _read_latent(settings: HfConfig) -> Latent | None:
    rank = _parse_count(settings.get("kv_lora_rank"))
    if not rank:
        return None
    rope = _parse_count(settings.get("qk_rope_head_dim")) or 0
    nope = _parse_count(settings.get("qk_nope_head_dim")) or 0
    value = _parse_count(settings.get("v_head_dim")) or nope
    return Latent(_parse_count(settings.get("q_lora_rank")) or 0, rank, nope, rope, value)
