"""Decoder layers of each model family as a table, and the blueprints built from it.

Every row was read from the family's class in transformers 5.23. `tests/models/` verifies it: random configurations are
built on the meta device and compared tensor by tensor. Families marked `remote` have no class in transformers; their
rows follow the repository's own modeling file and are verified against the published parameter count.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.models.blueprint import Block, Blueprint, Weight
from cfglint_train.models.dimensions import HEADS, INTERMEDIATE, KV_HEADS, Dimensions, HfConfig, get_first

Switch = bool | str
"""True, False, or the configuration key that decides; `=1` after the key makes True its default (`use_bias=1`)."""

LLAMA_NAMES: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED_MLP: Final = ("gate_proj", "up_proj", "down_proj")
PLAIN_MLP: Final = ("up_proj", "down_proj")


class Family(Frozen):
    """A family of decoders."""

    attention: tuple[str, ...] = LLAMA_NAMES
    """Leaf names: four are query, key, value and output; two are fused query-key-value and output."""
    mlp: tuple[str, ...] = GATED_MLP
    """Leaf names: gate, up, down; or up, down (`gated` false); or fused gate-and-up, down (`gated` true)."""
    gated: bool = True
    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    qk_norm: Literal["", "head", "full"] = ""
    """Extent of the query and key norms: one head's width, all heads (`full`), or empty without these norms."""
    qk_norm_key: Switch = True
    norms: int = 2
    """Number of norms in a layer."""
    norm_bias: bool = False
    final_norm: bool = True
    head_bias: Switch = False
    embedding: str = "embed_tokens"
    positions: int | None = None
    """Rows of the learned position embedding beyond the context; None if positions are not learned."""
    embedding_norm: bool = False
    extras: tuple[int, ...] = ()
    """Lengths of further 1-D parameters of a layer."""
    sinks: bool = False
    """True if each head has a learned logit (an attention sink)."""
    router: str = ""
    """Leaf name of the router if it is a linear layer; empty if it is a bare parameter."""
    router_bias: bool = False
    expert_bias: bool = False
    correction: bool = False
    """True if the router's score correction is a parameter rather than a buffer."""
    shared: str = ""
    """Kind of shared experts: `gated` adds a linear gate with one output, `plain` does not; empty if there are none."""
    defaults: Mapping[str, Any] = {}
    """Values of keys that a `config.json` may omit, if they differ from the common defaults."""
    remote: bool = False


_MIXTURE: Final = Family()
_LATENT: Final = Family(qkv_bias="attention_bias", o_bias="attention_bias", shared="plain")
_TIED: Final = {"tie_word_embeddings": True}
_GLM_DEFAULTS: Final = {"attention_bias": True}
_GEMMA: Final = Family(qkv_bias="attention_bias", o_bias="attention_bias", defaults={**_TIED, "head_dim": 256})
_WINDOW: Final = {"sliding_window": 4096}
_MISTRAL: Final = Family(defaults=_WINDOW)
_GPT2: Final = Family(
    attention=("c_attn", "c_proj"),
    mlp=("c_fc", "c_proj"),
    gated=False,
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm_bias=True,
    embedding="wte",
    positions=0,
    defaults=_TIED,
)

FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "ministral3": Family(),
    "qwen2": Family(qkv_bias=True, defaults=_WINDOW),
    "qwen3": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", defaults={**_WINDOW, "head_dim": 128}
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(norms=4, defaults={**_GEMMA.defaults, **_WINDOW}),
    "gemma3_text": _GEMMA._replace(norms=4, qk_norm="head", defaults={**_GEMMA.defaults, **_WINDOW}),
    "phi": Family(
        attention=("q_proj", "k_proj", "v_proj", "dense"),
        mlp=("fc1", "fc2"),
        gated=False,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norms=1,
        norm_bias=True,
        head_bias=True,
    ),
    "phi3": Family(attention=("qkv_proj", "o_proj"), mlp=("gate_up_proj", "down_proj")),
    "gpt_neox": Family(
        attention=("query_key_value", "dense"),
        mlp=("dense_h_to_4h", "dense_4h_to_h"),
        gated=False,
        qkv_bias="attention_bias=1",
        o_bias="attention_bias=1",
        mlp_bias=True,
        norm_bias=True,
        embedding="embed_in",
    ),
    "gptj": Family(
        attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        mlp=("fc_in", "fc_out"),
        gated=False,
        mlp_bias=True,
        norms=1,
        norm_bias=True,
        head_bias=True,
        embedding="wte",
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "starcoder2": Family(
        mlp=("c_fc", "c_proj"),
        gated=False,
        qkv_bias="use_bias=1",
        o_bias="use_bias=1",
        mlp_bias="use_bias=1",
        norm_bias=True,
        defaults=_TIED,
    ),
    "stablelm": Family(qkv_bias="use_qkv_bias", norm_bias=True),
    "olmo": Family(qkv_bias="attention_bias", o_bias="attention_bias", norms=0, final_norm=False),
    "olmo2": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "olmo3": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full", defaults=_WINDOW),
    "cohere": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="full",
        qk_norm_key="use_qk_norm",
        norms=1,
        defaults=_TIED,
    ),
    "cohere2": Family(qkv_bias="attention_bias", o_bias="attention_bias", norms=1, defaults={**_TIED, **_WINDOW}),
    "granite": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"),
    "glm": Family(
        mlp=("gate_up_proj", "down_proj"), qkv_bias="attention_bias=1", defaults={**_GLM_DEFAULTS, "head_dim": 128}
    ),
    "glm4": Family(
        mlp=("gate_up_proj", "down_proj"),
        qkv_bias="attention_bias=1",
        norms=4,
        defaults={**_GLM_DEFAULTS, "head_dim": 128},
    ),
    "seed_oss": Family(
        qkv_bias="attention_bias=1", o_bias="attention_out_bias", mlp_bias="mlp_bias", defaults={"head_dim": 128}
    ),
    "smollm3": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias", defaults=_TIED),
    "apertus": Family(
        mlp=PLAIN_MLP,
        gated=False,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="head",
        extras=(1, 1),
    ),
    "arcee": Family(
        mlp=PLAIN_MLP, gated=False, qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias"
    ),
    "nemotron": Family(
        mlp=PLAIN_MLP,
        gated=False,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        norm_bias=True,
    ),
    "exaone4": Family(qk_norm="head", defaults=_WINDOW),
    "hunyuan_v1_dense": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head"),
    "ernie4_5": Family(
        qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", defaults={**_TIED, "head_dim": 128}
    ),
    "mpt": Family(attention=("Wqkv", "out_proj"), mlp=PLAIN_MLP, gated=False, embedding="wte", defaults=_TIED),
    "falcon": Family(
        attention=("query_key_value", "dense"),
        mlp=("dense_h_to_4h", "dense_4h_to_h"),
        gated=False,
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias="bias",
        norm_bias=True,
        embedding="word_embeddings",
        defaults={**_TIED, "parallel_attn": True},
    ),
    "bloom": Family(
        attention=("query_key_value", "dense"),
        mlp=("dense_h_to_4h", "dense_4h_to_h"),
        gated=False,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm_bias=True,
        embedding="word_embeddings",
        embedding_norm=True,
        defaults=_TIED,
    ),
    "opt": Family(
        attention=("q_proj", "k_proj", "v_proj", "out_proj"),
        mlp=("fc1", "fc2"),
        gated=False,
        qkv_bias="enable_bias=1",
        o_bias="enable_bias=1",
        mlp_bias="enable_bias=1",
        norm_bias=True,
        positions=2,
        defaults=_TIED,
    ),
    # mixtures of experts
    "mixtral": _MIXTURE,
    "qwen2_moe": Family(qkv_bias=True, shared="gated", defaults=_WINDOW),
    "qwen3_moe": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", defaults={**_WINDOW, "head_dim": 128}
    ),
    "olmoe": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "granitemoe": Family(qkv_bias="attention_bias", o_bias="attention_bias"),
    "minimax_m2": Family(qk_norm="full", defaults={"head_dim": 128}),
    "phimoe": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm_bias=True,
        head_bias="lm_head_bias",
        router="router",
    ),
    "gpt_oss": Family(
        qkv_bias="attention_bias=1",
        o_bias="attention_bias=1",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        defaults={"head_dim": 64, "sliding_window": 128},
    ),
    "glm4_moe": Family(qkv_bias="attention_bias", qk_norm="head", qk_norm_key="use_qk_norm", shared="plain"),
    "ernie4_5_moe": Family(
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        head_bias="use_bias",
        shared="plain",
        correction=True,
        defaults=_TIED,
    ),
    # multi-head latent attention
    "deepseek_v2": _LATENT._replace(mlp_bias="mlp_bias"),
    "deepseek_v3": _LATENT,
    "kimi_k2": _LATENT._replace(remote=True),
    "glm4_moe_lite": _LATENT._replace(defaults={"first_k_dense_replace": 1}),
    # no class in transformers
    "qwen": Family(
        attention=("c_attn", "c_proj"),
        mlp=("w1", "w2", "c_proj"),
        qkv_bias=True,
        embedding="wte",
        remote=True,
    ),
    "baichuan": Family(attention=("W_pack", "o_proj"), remote=True),
    "internlm": Family(qkv_bias="bias=1", o_bias="bias=1", remote=True),
    "internlm2": Family(attention=("wqkv", "wo"), mlp=("w1", "w3", "w2"), embedding="tok_embeddings", remote=True),
    "btlm": Family(
        attention=("c_attn", "c_proj"),
        mlp=("c_fc", "c_fc2", "c_proj"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm_bias=True,
        embedding="wte",
        defaults=_TIED,
        remote=True,
    ),
    "chatglm": Family(
        attention=("query_key_value", "dense"),
        mlp=("dense_h_to_4h", "dense_4h_to_h"),
        qkv_bias="add_qkv_bias",
        o_bias="add_bias_linear",
        mlp_bias="add_bias_linear",
        embedding="word_embeddings",
        remote=True,
    ),
    "orion": Family(norm_bias=True, remote=True),
    "minicpm": Family(defaults=_TIED, remote=True),
    "deepseek": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        shared="plain",
        defaults={"attention_bias": False},
        remote=True,
    ),
    "mimo": Family(qkv_bias=True, remote=True),
}
"""Families by `model_type`. `mimo` excludes its multi-token-prediction layer, which training frameworks do not load."""


def build_blueprint(dimensions: Dimensions, config: HfConfig, labels: int | None = None) -> Blueprint | None:
    """Return the weights of a decoder, or None for an unknown family, an unsupported variant or a model with towers.

    `labels` replaces the head with a score layer of that many outputs, as in a reward model.
    """
    family = FAMILIES.get(dimensions.model_type)
    if family is None or dimensions.has_towers or _is_unsupported(dimensions, config):
        return None
    settings = {**family.defaults, **config}
    hidden = dimensions.hidden
    outer = [Weight(family.embedding, dimensions.vocab, hidden, part="embedding")]
    if family.positions is not None and dimensions.context:
        name = "wpe" if family.embedding == "wte" else "embed_positions"
        outer.append(Weight(name, dimensions.context + family.positions, hidden, part="embedding"))
    if labels is not None:
        outer.append(Weight("score", hidden, labels, part="head"))
    elif not dimensions.tied:
        outer.append(Weight("lm_head", hidden, dimensions.vocab, _is_on(family.head_bias, settings), part="head"))
    norm = (hidden, hidden) if family.norm_bias else (hidden,)
    outer_vectors = norm * (int(family.final_norm) + int(family.embedding_norm))
    if dimensions.tied and labels is None and _is_on(family.head_bias, settings):
        outer_vectors += (dimensions.vocab,)
    attention = (
        _build_latent_attention(dimensions, family, settings)
        if dimensions.latent
        else _build_attention(dimensions, family, settings)
    )
    vectors = norm * _count_norms(family, settings) + _list_head_vectors(dimensions, family, settings) + family.extras
    dense = Block(
        dimensions.layers - dimensions.sparse_layers,
        (*attention, *_build_mlp(family, hidden, dimensions.intermediate, _is_on(family.mlp_bias, settings))),
        vectors,
    )
    if dimensions.experts is None:
        return Blueprint(tuple(outer), outer_vectors, (dense,))
    mixture = Block(dimensions.sparse_layers, (*attention, *_build_mixture(dimensions, family, settings)), vectors)
    return Blueprint(tuple(outer), outer_vectors, tuple(block for block in (dense, mixture) if block.count))


def _is_unsupported(dimensions: Dimensions, config: HfConfig) -> bool:
    """Return whether the configuration is a variant whose layout differs from its family's row in the table."""
    projected = get_first(config, ("word_embed_proj_dim",))
    if dimensions.model_type == "opt" and projected not in (None, dimensions.hidden):
        return True
    if any(isinstance(get_first(config, names), (list, tuple)) for names in (HEADS, KV_HEADS, INTERMEDIATE)):
        return True  # layers of different widths
    return bool(
        config.get("qk_layernorm")
        or config.get("norm_type") not in (None, "low_precision_layernorm")
        or (dimensions.model_type == "phimoe" and not dimensions.experts)
    )


def _is_on(switch: Switch, settings: HfConfig) -> bool:
    if isinstance(switch, bool):
        return switch
    key, _, default = switch.partition("=")
    value = settings.get(key)
    return bool(default) if value is None else bool(value)


def _count_norms(family: Family, settings: HfConfig) -> int:
    if settings.get("model_type") == "stablelm" and settings.get("use_parallel_residual"):
        return 1
    if settings.get("model_type") == "falcon":
        if settings.get("new_decoder_architecture"):
            return 1 if settings.get("num_ln_in_parallel_attn") == 1 else 2
        return 1 if settings.get("parallel_attn") else 2
    return family.norms


def _list_head_vectors(dimensions: Dimensions, family: Family, settings: HfConfig) -> tuple[int, ...]:
    vectors: tuple[int, ...] = (dimensions.heads,) if family.sinks else ()
    if dimensions.latent:
        ranks = (dimensions.latent.q_rank, dimensions.latent.kv_rank)
        vectors += tuple(rank for rank in ranks if rank)
    if family.qk_norm and _is_on(family.qk_norm_key, settings):
        heads = (dimensions.heads, dimensions.kv_heads) if family.qk_norm == "full" else (1, 1)
        vectors += tuple(count * dimensions.head_dim for count in heads)
    return vectors


def _build_attention(dimensions: Dimensions, family: Family, settings: HfConfig) -> tuple[Weight, ...]:
    query, key = dimensions.heads * dimensions.head_dim, dimensions.kv_heads * dimensions.head_dim
    bias, out_bias = _is_on(family.qkv_bias, settings), _is_on(family.o_bias, settings)
    widths = (query, key, key) if len(family.attention) == 4 else (query + 2 * key,)
    inputs = tuple(Weight(name, dimensions.hidden, width, bias) for name, width in zip(family.attention, widths))
    return (*inputs, Weight(family.attention[-1], query, dimensions.hidden, out_bias))


def _build_latent_attention(dimensions: Dimensions, family: Family, settings: HfConfig) -> tuple[Weight, ...]:
    latent = dimensions.latent
    assert latent is not None
    hidden, heads = dimensions.hidden, dimensions.heads
    bias = _is_on(family.qkv_bias, settings)
    width = heads * (latent.nope_dim + latent.rope_dim)
    query = (
        (Weight("q_a_proj", hidden, latent.q_rank, bias), Weight("q_b_proj", latent.q_rank, width))
        if latent.q_rank
        else (Weight("q_proj", hidden, width),)
    )
    return (
        *query,
        Weight("kv_a_proj_with_mqa", hidden, latent.kv_rank + latent.rope_dim, bias),
        Weight("kv_b_proj", latent.kv_rank, heads * (latent.nope_dim + latent.v_dim)),
        Weight("o_proj", heads * latent.v_dim, hidden, _is_on(family.o_bias, settings)),
    )


def _build_mlp(family: Family, hidden: int, width: int, bias: bool) -> tuple[Weight, ...]:
    up, down = family.mlp[:-1], family.mlp[-1]
    fused = 2 * width if family.gated and len(up) == 1 else width
    return (*(Weight(name, hidden, fused, bias) for name in up), Weight(down, width, hidden, bias))


def _build_mixture(dimensions: Dimensions, family: Family, settings: HfConfig) -> tuple[Weight, ...]:
    experts = dimensions.experts
    assert experts is not None
    hidden, width, count = dimensions.hidden, experts.intermediate, experts.count
    bias = family.expert_bias
    # gpt-oss, the only family with expert biases, stores matrices as (inputs, outputs); nn.Linear and the other
    # families store (outputs, inputs).
    gate_up, down = ((hidden, 2 * width), (width, hidden)) if bias else ((2 * width, hidden), (hidden, width))
    weights = [
        Weight(family.router or "gate", hidden, count, family.router_bias, linear=bool(family.router)),
        Weight("gate_up_proj", *gate_up, bias, count),
        Weight("down_proj", *down, bias, count),
    ]
    if family.correction:
        weights.append(Weight("e_score_correction_bias", 1, count, linear=False))
    if experts.shared_intermediate and family.shared:
        weights += _build_mlp(family, hidden, experts.shared_intermediate, _is_on(family.mlp_bias, settings))
        if family.shared == "gated":
            weights.append(Weight("shared_expert_gate", hidden, 1))
    return tuple(weights)
