"""Traces of decoders outside the grid, and of hybrids' layers with each kind alone (`hybrids.jsonl`).

python tests/oracles/trace_hybrids.py tests/memory/hybrids.jsonl [NAME ...]  (needs what `step_trace.py` needs). A line
is a small model, often with one kind of layer: for hybrids those with attention, and LFM2's short convolutions. Traces
on fake tensors cannot see the kernels of gated delta rules and Mamba, and cannot follow the code of Step 3.7 and
LongCat, which runs experts one by one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import trace_grid
import trace_rows
from trace_rows import _LATENT, _LOCAL, _MIXTURE, _ROUTED, _SMALL, _WIDE

from cfglint_train.memory.layers.families import FAMILIES

_FULL: Final = {"layer_types": ["full_attention"] * 4}
HYBRIDS: Final[dict[str, tuple[str, dict[str, Any], list[Any] | None]]] = {
    "qwen3_5_text": ("qwen3_5_text", {**_WIDE, **_FULL}, None),
    "qwen3_next": (
        "qwen3_next",
        {**_MIXTURE, **_FULL, "head_dim": 64, "shared_expert_intermediate_size": 384, "norm_topk_prob": True},
        None,
    ),
    "lfm2": ("lfm2", {**_SMALL, **_FULL, "block_auto_adjust_ff_dim": False}, None),
    "lfm2 convolutions": (
        "lfm2",
        {**_SMALL, "block_auto_adjust_ff_dim": False, "layer_types": ["conv"] * 4},
        ["convolution", 1024, 0, 0, 0],
    ),
    "nemotron_h attention": (
        "nemotron_h",
        {**_SMALL, "head_dim": 64, "layers_block_type": ["full_attention"] * 4},
        None,
    ),
    "nemotron_h mixture": (
        "nemotron_h",
        {
            **_ROUTED,
            "head_dim": 64,
            "moe_shared_expert_intermediate_size": 768,
            "layers_block_type": ["moe"] * 4,
        },
        None,
    ),
    "nemotron_h mlp": ("nemotron_h", {**_SMALL, "head_dim": 64, "layers_block_type": ["mlp"] * 4}, None),
}
"""Name -> family, configuration, and the mixer if it is not attention."""

_GEMMA4: Final = {
    **_WIDE,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "sliding_window": 100000,
    "global_head_dim": 64,
    "num_global_key_value_heads": 4,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "attention_k_eq_v": False,
    "final_logit_softcapping": 30.0,
}
_BESIDE: Final = {"enable_moe_block": True, "num_experts": 32, "top_k_experts": 4, "moe_intermediate_size": 384}
_SECOND: Final = {"hidden_size_per_layer_input": 128, "vocab_size_per_layer_input": 512}
_LLAMA4: Final = {
    **_SMALL,
    "intermediate_size": 384,
    "intermediate_size_mlp": 768,
    "num_local_experts": 8,
    "num_experts_per_tok": 1,
    "head_dim": 64,
    "interleave_moe_layer_step": 1,
    "moe_layers": [0, 1, 2, 3],
    "layer_types": ["chunked_attention"] * 4,
    "attention_chunk_size": 8192,
    "no_rope_layers": [1] * 4,
    "use_qk_norm": True,
}
HYBRIDS["llama4_text experts"] = ("llama4_text", _LLAMA4, None)
HYBRIDS["gemma4_text"] = ("gemma4_text", _GEMMA4, None)
HYBRIDS["gemma4_text experts"] = ("gemma4_text", {**_GEMMA4, **_BESIDE}, None)
HYBRIDS["gemma4_text second embedding"] = ("gemma4_text", {**_GEMMA4, **_SECOND}, None)
_TWO: Final = {"global_head_dim": 128, "num_global_key_value_heads": 2, "attention_k_eq_v": True}
_EIGHT: Final = {
    "num_hidden_layers": 8,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
    "sliding_window": 100000,
    "num_kv_shared_layers": 4,
}
_WIDER: Final = {"global_head_dim": 128, "use_double_wide_mlp": True}
HYBRIDS["gemma4_text two widths"] = ("gemma4_text", {**_GEMMA4, **_TWO}, None)
HYBRIDS["gemma4_text shared keys"] = ("gemma4_text", {**_GEMMA4, **_SECOND, **_EIGHT, **_WIDER}, None)
_UNIFIED: Final = {key: value for key, value in _GEMMA4.items() if key != "hidden_size_per_layer_input"}
HYBRIDS["gemma4_unified_text"] = ("gemma4_unified_text", {**_UNIFIED, **_TWO}, None)
HYBRIDS["gemma3n_text"] = (
    "gemma3n_text",
    {
        **_WIDE,
        **_SECOND,
        **_EIGHT,
        "laurel_rank": 64,
        "intermediate_size": [1408] * 8,
        "activation_sparsity_pattern": [0.95] * 4 + [0.0] * 4,
    },
    None,
)
HYBRIDS["granitemoehybrid attention"] = (
    "granitemoehybrid",
    {**_LOCAL, "shared_intermediate_size": 768, "layer_types": ["attention"] * 4},
    None,
)
_CHOSEN: Final = {"index_n_heads": 16, "index_head_dim": 32, "index_topk": 256, "mlp_layer_types": ["sparse"] * 4}
for _name in ("deepseek_v32", "glm_moe_dsa"):
    HYBRIDS[_name] = (_name, {**_LATENT, **_CHOSEN}, None)
HYBRIDS["mistral4"] = ("mistral4", {**_LATENT, "mlp_layer_types": ["sparse"] * 4}, None)
HYBRIDS["step3p5 dense"] = (
    "step3p5",
    {
        **_ROUTED,
        "head_dim": 64,
        "share_expert_dim": 384,
        "num_sliding_attention_heads": 24,
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
        "sliding_window": 100000,
        "mlp_layer_types": ["dense"] * 4,
        "num_local_experts": 32,
    },
    None,
)
_NO_GROUPS: Final = {key: value for key, value in _SMALL.items() if key != "num_key_value_heads"}
_KEPT: Final = {"hidden_dropout": 0, "attention_dropout": 0}
HYBRIDS["persimmon"] = ("persimmon", {**_NO_GROUPS, **_KEPT}, None)
HYBRIDS["stablelm_qk_norm"] = (
    "stablelm",
    {**_SMALL, **_KEPT, "qk_layernorm": True, "use_parallel_residual": True},
    None,
)
_FALCON: Final = {
    "vocab_size": 512,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "tie_word_embeddings": False,
}
HYBRIDS["falcon"] = ("falcon", {**_FALCON, **_KEPT, "multi_query": True}, None)
HYBRIDS["falcon_new"] = ("falcon", {**_FALCON, "num_kv_heads": 4, "new_decoder_architecture": True}, None)
HYBRIDS["gptj"] = (
    "gptj",
    {"vocab_size": 512, "n_embd": 512, "n_head": 16, "n_layer": 4, "n_positions": 8192, "rotary_dim": 16}
    | {"attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0, "tie_word_embeddings": False},
    None,
)
HYBRIDS["gpt_neo"] = (
    "gpt_neo",
    {
        "vocab_size": 512,
        "hidden_size": 512,
        "num_layers": 4,
        "num_heads": 16,
        "attention_types": [[["global", "local"], 2]],
        "embed_dropout": 0,
        "attention_dropout": 0,
        "resid_dropout": 0,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
    },
    None,
)


def line(name: str) -> dict[str, Any]:
    """Trace one model."""
    family, config, recurrent = HYBRIDS[name]
    small = trace_rows.SMALL_EAGER if FAMILIES[family].kernel == "eager" else trace_rows.SMALL
    small[family] = config
    if "experts" in name:
        trace_grid.EXPERTS[family] = ()
    else:
        trace_grid.EXPERTS.pop("gemma4_text", None)
    return {"name": name, "recurrent": recurrent, **trace_grid.line(family)}


def main(out: Path, requested: list[str]) -> None:
    """Trace the requested kinds (all by default); the lines of others stay as they are."""
    lines_by_name: dict[str, str] = {}
    if out.exists():
        for text in out.read_text(encoding="utf-8").splitlines()[1:]:
            lines_by_name[json.loads(text)["name"]] = text
    for name in requested or HYBRIDS:
        lines_by_name[name] = json.dumps(line(name))
    lines = [
        json.dumps({"tool": trace_grid.tool()}),
        *(lines_by_name[name] for name in HYBRIDS if name in lines_by_name),
    ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
