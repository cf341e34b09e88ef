"""Properties of the families of decoder layers, one row of `FAMILIES` per family.

A family that is not in the table has no formula; cfglint does not guess.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.models.architecture import Architecture

ALL_LINEAR: Final = "all-linear"

PER_LAYER: Final = "per_layer_input_gate"
"""Leaf name of the matrix that gates the second embedding (Gemma 3n, 4)."""


class Family(Frozen):
    """Structure of a family's decoder layer."""

    norm: str = "rms"
    """rms (Llama: the weight multiplies the 16-bit result), rms_fp32 (it multiplies in fp32: Gemma, OLMo-2), layer
    (torch's LayerNorm), layer_1p (Nemotron's), plain (LayerNorm in fp32 without a weight: OLMo), centred (a LayerNorm
    in fp32, written as separate operations: Cohere).
    """
    powers: bool = False
    """Norms compute the root as a power, which saves its base for the backward pass (Gemma 3n, 4)."""
    placement: str = "pre"
    """Norms around attention and MLP: pre (one before each), sandwich (one before and one after each), post (one after
    each), parallel (one norm for both, side by side), parallel2 (two norms, side by side), single (each layer is only a
    mixer, attention or an MLP), double (LongCat: attention and MLP with pre norms twice, and experts beside the first
    MLP), altup (Gemma 3n, `altup.py`).
    """
    query_norm: str = "none"
    """Norm of queries and keys: none, head (each head), bare (each head, without a weight), full (the whole width)."""
    value_norm: bool = False
    """Values pass through a norm without a weight (Gemma 4)."""
    rotary: str = "whole"
    """Rotary embedding: none, whole, complex (in fp32, as complex numbers: Llama 4), part (of each head; the
    parts are joined in another layout, which the output matrix copies), fp32 (in fp32, then cast).
    """
    rotary_first: bool = False
    """Queries and keys are rotated before they are normalized."""
    fused_query: str = "none"
    """Use of one matrix for queries, keys and values: none, views (of its output, which is kept whole), copies,
    broadcast (copies of keys and values for each query head).
    """
    latent: bool = False
    """Multi-head latent attention."""
    scores_fp32: bool = False
    """Queries and keys are multiplied in fp32 (eager attention only)."""
    softmax_fp32: bool = True
    """The softmax of the scores is computed in fp32 (eager attention only)."""
    kernel: str = "flash"
    """Kernel used for sdpa: flash, masked (there is always a mask, which flash attention does not accept), math (keys
    have a single head, which no other kernel broadcasts), eager (transformers supports nothing else for the family).
    """
    flash: bool = True
    """Flash attention is used if the config selects it by name."""
    attention_dropout: bool = False
    """The published configurations use dropout on probabilities (eager attention only: kernels save only a seed)."""
    softcap: bool = False
    """Scores pass through a tanh (eager attention only)."""
    capped: bool = False
    """Logits pass through a tanh."""
    mlp: str = "gated"
    """Kind of MLP: gated, gated_fused (one matrix for gate and up), gelu, new_gelu, quick_gelu, relu, relu2, xielu."""
    experts: str = "none"
    """Router: none, softmax_top (Qwen, Mixtral), sigmoid (MiniMax), sigmoid_group (DeepSeek-V3, GLM), softmax_group
    (DeepSeek-V2), softmax_given (in the format of its input: Mistral 4), top_softmax (Granite), sparse_mixer
    (Phi-3.5-MoE), beside (Gemma 4, whose experts run beside an MLP), everywhere (Llama 4).
    """
    clamped: bool = False
    """The experts use gpt-oss's clamped gated unit."""
    beside: bool = False
    """Attention and the recurrent mixer run side by side in each layer (Falcon-H1)."""
    joined: bool = False
    """Attention runs image by image, and concatenation copies the outputs."""
    output_gate: str = ""
    """Leaf name of a matrix whose sigmoid scales attention's output (Trinity), or `query` for half of the query matrix
    (Qwen3.5).
    """
    gate_per_head: bool = False
    """The output gate has one value per head."""
    limited: bool = False
    """Both factors of a gated unit are clamped (Step 3.5)."""
    sinks: bool = False
    """The softmax includes a learned score in addition to those of the keys (explicit in eager attention)."""
    router_fp32: bool = True
    """The routing weights, and with them the experts' weighted outputs, stay in fp32."""
    shared_gate: bool = False
    """The shared expert's output is scaled by a sigmoid gate (Qwen2-MoE)."""
    shared_first: bool = False
    """The shared expert runs before the routed experts."""
    names: str = "llama"
    """Key in `LEAVES` of the leaf names of the matrices."""
    layer_scale: bool = False
    """The outputs of attention and MLP are multiplied by a vector of weights (InternVL's tower)."""
    residual_scale: bool = False
    """The outputs of attention and MLP are multiplied by a constant before they are added (Granite, MiniCPM)."""
    residual_dropout: bool = False
    """The outputs of attention and MLP pass through a dropout before they are added (Seed-OSS)."""
    traced: bool = True
    """`calibration/data/traced.jsonl` has rows traced from the family's code."""
    program: str = "transformers"
    """Key in `PROGRAMS` of the code that builds the layer."""
    quantized_head: bool = False
    """A quantizer also converts the output matrix."""


class Leaves(Frozen):
    """Leaf module names of a layer's matrices."""

    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    fused: str = "qkv_proj"
    out: str = "o_proj"
    gate: str = "gate_proj"
    up: str = "up_proj"
    gate_up: str = "gate_up_proj"
    down: str = "down_proj"


LEAVES: Final[dict[str, Leaves]] = {
    "llama": Leaves(),
    "phi": Leaves(out="dense", up="fc1", down="fc2"),
    "neox": Leaves(fused="query_key_value", out="dense", up="dense_h_to_4h", down="dense_4h_to_h"),
    "gpt2": Leaves(fused="c_attn", out="c_proj", up="c_fc", down="c_proj"),
    "starcoder": Leaves(up="c_fc", down="c_proj"),
    "opt": Leaves(out="out_proj", up="fc1", down="fc2"),
    "qwen": Leaves(fused="c_attn", out="c_proj", gate="w1", up="w2", down="c_proj"),
    "internlm2": Leaves(fused="wqkv", out="wo", gate="w1", up="w3", down="w2"),
    "baichuan": Leaves(fused="W_pack"),
    "lfm2": Leaves(out="out_proj", gate="w1", up="w3", down="w2"),
    "vision": Leaves(fused="qkv", out="out_proj", up="fc1", down="fc2"),
    "gptj": Leaves(out="out_proj", up="fc_in", down="fc_out"),
    "gpt_neo": Leaves(out="out_proj", up="c_fc", down="c_proj"),
    "granitemoehybrid": Leaves(gate_up="input_linear", down="output_linear"),
    "chatglm": Leaves(fused="query_key_value", out="dense", gate_up="dense_h_to_4h", down="dense_4h_to_h"),
}

_LLAMA = Family()
_QWEN3 = Family(query_norm="head")
_GEMMA2 = Family(norm="rms_fp32", placement="sandwich", softcap=True, capped=True)
_GEMMA4 = Family(
    norm="rms_fp32",
    powers=True,
    placement="sandwich",
    query_norm="head",
    value_norm=True,
    experts="beside",
    capped=True,
)
_OLMO2 = Family(norm="rms_fp32", placement="post", query_norm="full", rotary="fp32")
_GLM = Family(rotary="part", mlp="gated_fused")
_COHERE = Family(norm="centred", placement="parallel", rotary="fp32")
_QWEN3_MOE = Family(query_norm="head", experts="softmax_top", router_fp32=False)
_DEEPSEEK3 = Family(latent=True, experts="sigmoid_group")
# Every query has its own mask of keys, which flash attention does not accept.
_SPARSE = _DEEPSEEK3._replace(kernel="masked", flash=False)

_QWEN35 = Family(norm="rms_fp32", query_norm="head", rotary="part", output_gate="query", traced=False)
_QWEN35_MOE = _QWEN35._replace(experts="softmax_top", router_fp32=False, shared_gate=True, shared_first=True)
_FALCON = Family(
    norm="layer",
    placement="parallel",
    fused_query="copies",
    mlp="gelu",
    names="neox",
    softmax_fp32=False,
    kernel="math",
    traced=False,
)
_TOWER = Family(norm="layer", fused_query="views", rotary="fp32", joined=True, mlp="gelu", names="vision")

FAMILIES: Final[dict[str, Family]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral": _LLAMA,
    "ministral3": _LLAMA,
    "qwen2": _LLAMA,
    "qwen2_vl_text": _LLAMA,
    "qwen2_5_vl_text": _LLAMA,
    "smollm3": _LLAMA,
    "internlm3": _LLAMA,
    "seed_oss": Family(residual_dropout=True, attention_dropout=True),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "hunyuan_v1_dense": _QWEN3._replace(rotary_first=True),
    "exaone4": Family(placement="post", query_norm="head"),
    "ernie4_5": Family(rotary="fp32"),
    "granite": Family(residual_scale=True),
    "helium": Family(norm="rms_fp32"),
    "gemma": Family(norm="rms_fp32"),
    "gemma2": _GEMMA2,
    "gemma3_text": Family(norm="rms_fp32", placement="sandwich", query_norm="head"),
    "phi3": Family(fused_query="views", rotary="part", mlp="gated_fused"),
    "glm": _GLM,
    "glm4": _GLM._replace(placement="sandwich"),
    "phi": Family(norm="layer", placement="parallel", rotary="part", mlp="new_gelu", names="phi"),
    "gpt_neox": Family(
        norm="layer", placement="parallel2", fused_query="views", rotary="part", mlp="gelu", names="neox"
    ),
    "gpt2": Family(norm="layer", rotary="none", fused_query="views", mlp="new_gelu", names="gpt2", softmax_fp32=False),
    "gpt_bigcode": Family(norm="layer", rotary="none", fused_query="views", mlp="gelu", names="gpt2"),
    "gptj": Family(
        norm="layer",
        placement="parallel",
        rotary="part",
        mlp="new_gelu",
        names="gptj",
        kernel="eager",
        scores_fp32=True,
    ),
    "gpt_neo": Family(norm="layer", rotary="none", mlp="new_gelu", names="gpt_neo", kernel="eager", scores_fp32=True),
    "persimmon": Family(norm="layer", query_norm="head", fused_query="views", rotary="part", mlp="relu2", names="neox"),
    "starcoder2": Family(norm="layer", mlp="gelu", names="starcoder"),
    "stablelm": Family(norm="layer", rotary="part"),
    "stablelm_qk_norm": Family(norm="layer", placement="parallel", query_norm="head", rotary="part"),
    "opt": Family(norm="layer", rotary="none", mlp="relu", names="opt"),
    "nemotron": Family(norm="layer_1p", rotary="part", mlp="relu2"),
    "arcee": Family(mlp="relu2"),
    "apertus": Family(query_norm="head", mlp="xielu"),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "olmo": Family(norm="plain", rotary="fp32"),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmo2_without_qk_norm": _OLMO2._replace(query_norm="none", traced=False),
    "mixtral": Family(experts="softmax_top"),
    "phimoe": Family(norm="layer", experts="sparse_mixer", router_fp32=False),
    "qwen2_moe": Family(experts="softmax_top", router_fp32=False, shared_gate=True, shared_first=True),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "olmoe": Family(query_norm="full", experts="softmax_top", router_fp32=False),
    "granitemoe": Family(experts="top_softmax", router_fp32=False, residual_scale=True),
    "gpt_oss": Family(
        norm="rms_fp32",
        rotary="part",
        softmax_fp32=False,
        sinks=True,
        experts="top_softmax",
        clamped=True,
        router_fp32=False,
    ),
    "minimax_m2": Family(query_norm="full", rotary="part", experts="sigmoid"),
    "ernie4_5_moe": Family(rotary="fp32", experts="softmax_group", router_fp32=False, shared_first=True),
    "glm4_moe": Family(query_norm="head", rotary="part", experts="sigmoid_group"),
    "dots1": Family(query_norm="head", experts="sigmoid_group"),
    "deepseek_v2": Family(latent=True, experts="softmax_group"),
    "deepseek_v3": _DEEPSEEK3,
    "kimi_k2": _DEEPSEEK3,
    "deepseek_v32": _SPARSE,
    "glm_moe_dsa": _SPARSE,
    "glm4_moe_lite": _DEEPSEEK3,
    "afmoe": Family(
        norm="rms_fp32",
        placement="sandwich",
        query_norm="head",
        output_gate="gate_proj",
        experts="sigmoid",
        shared_first=True,
    ),
    # Its experts run one by one, which a trace on fake tensors cannot follow; its dense layers are traced.
    "step3p5": Family(
        norm="rms_fp32",
        query_norm="head",
        rotary="part",
        output_gate="g_proj",
        gate_per_head=True,
        experts="sigmoid",
        limited=True,
        shared_first=True,
        flash=False,
        traced=False,
    ),
    "longcat_flash": Family(placement="double", latent=True, experts="softmax_top", traced=False),
    "mistral4": Family(latent=True, experts="softmax_given"),
    # Vision towers (`models/towers.py`), traced block by block (`tests/memory/towers.jsonl`).
    "vision:siglip": Family(norm="layer", rotary="none", mlp="gelu", names="vision"),
    "vision:clip": Family(norm="layer", rotary="none", mlp="quick_gelu", names="vision"),
    "vision:pixtral": Family(),
    "vision:qwen2_vl": _TOWER._replace(mlp="quick_gelu"),
    "vision:qwen2_5_vl": Family(fused_query="views", rotary="fp32", joined=True, names="vision"),
    "vision:qwen3_vl": _TOWER,
    "vision:glm4v": Family(fused_query="views", rotary="fp32", joined=True, names="vision"),
    "vision:kimi_k25": _TOWER._replace(fused_query="none"),
    "vision:internvl": Family(norm="layer", rotary="none", mlp="gelu", names="vision", layer_scale=True),
    "vision:llama4": Family(norm="layer", rotary="complex", mlp="gelu", names="vision"),
    "llama4_text": Family(
        query_norm="bare",
        rotary="complex",
        rotary_first=True,
        softmax_fp32=False,
        experts="everywhere",
        traced=False,
    ),
    "gemma3n_text": _GEMMA4._replace(placement="altup", experts="none", traced=False),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    # Hybrids: their attention layers are traced; their other mixers follow the kernels' code (`mixers.py`).
    "qwen3_next": _QWEN35_MOE,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "lfm2": Family(query_norm="head", names="lfm2", traced=False),
    "lfm2_moe": Family(query_norm="head", names="lfm2", experts="sigmoid", router_fp32=False, traced=False),
    # Its attention and its MLPs are traced, Mamba-2 is not.
    "nemotron_h": Family(
        norm="rms_fp32", placement="single", rotary="none", mlp="relu2", experts="sigmoid_group", traced=False
    ),
    "granitemoehybrid": Family(
        rotary="none",
        mlp="gated_fused",
        names="granitemoehybrid",
        experts="top_softmax",
        router_fp32=False,
        residual_scale=True,
        traced=False,
    ),
    "falcon_h1": Family(beside=True, traced=False),
    "jamba": Family(rotary="none", experts="softmax_top", traced=False),
    # Code outside transformers, or code in it that cannot be traced: built like the related families above.
    "qwen": Family(fused_query="views", names="qwen", traced=False),
    "baichuan": Family(fused_query="views", names="baichuan", traced=False),
    "chatglm": Family(fused_query="views", rotary="part", mlp="gated_fused", names="chatglm", traced=False),
    "internlm": Family(traced=False),
    "internlm2": Family(fused_query="views", names="internlm2", traced=False),
    "mimo": Family(traced=False),
    "orion": Family(norm="layer", traced=False),
    "falcon": _FALCON,
    "falcon_new": _FALCON._replace(placement="parallel2", fused_query="broadcast", kernel="masked"),
    "glm4v_text": _GLM._replace(placement="sandwich", traced=False),
    "mllama_text_model": Family(traced=False),
    "olmo_v1": Family(norm="rms_fp32", fused_query="views", rotary="fp32", query_norm="full", traced=False),
}


def has_formula(architecture: Architecture) -> bool:
    """Return whether cfglint has a formula for the model's layers."""
    return architecture.formula in FAMILIES


@lru_cache(maxsize=256)
def is_traced(architecture: Architecture) -> bool:
    """Return whether the model runs the code from which the family's rows were traced.

    Other code with the same shapes (OLMo's) is recognized by the different names of its matrices.
    """
    family = FAMILIES.get(architecture.formula)
    if family is None or not family.traced:
        return False
    leaves = LEAVES[family.names]
    return not architecture.linears or any(linear.name in (leaves.out, leaves.down) for linear in architecture.linears)
