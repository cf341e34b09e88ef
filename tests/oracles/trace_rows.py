"""Steps that are traced for `lint/cfglint_train/calibration/data/traced.jsonl`, and the program that traces them.

python tests/oracles/trace_rows.py [ID ...]  (all rows by default; needs what `step_trace.py` needs). Rows that are not
traced again stay as they are, so a run over some ids leaves the others alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cfglint_train.models.attentions import count_sparse_layers, read_attention
from cfglint_train.models.dimensions import SHARED_WIDTH
from cfglint_train.models.hf_config import get_variant

TRACED = Path(__file__).parents[2] / "lint" / "cfglint_train" / "calibration" / "data" / "traced.jsonl"


class Row(NamedTuple):
    """A step to trace: the published model or small shape that it runs on, and the case."""

    id: str
    model: str
    step: dict[str, Any]


def _build_llama(
    hidden: int, layers: int, heads: int, kv: int, intermediate: int, vocab: int, **options: Any
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        **options,
    }


_TIED = {"tie_word_embeddings": True}
_UNTIED = {"tie_word_embeddings": False}

# Published shapes: (family, arguments of its configuration).
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3.2-1b": ("llama", _build_llama(2048, 16, 32, 8, 8192, 128256, head_dim=64, **_TIED)),
    "llama3.2-3b": ("llama", _build_llama(3072, 28, 24, 8, 8192, 128256, head_dim=128, **_TIED)),
    "llama3.1-8b": ("llama", _build_llama(4096, 32, 32, 8, 14336, 128256, **_UNTIED)),
    "llama3.1-70b": ("llama", _build_llama(8192, 80, 64, 8, 28672, 128256, **_UNTIED)),
    "llama2-7b": ("llama", _build_llama(4096, 32, 32, 32, 11008, 32000, **_UNTIED)),
    "mistral-7b": ("mistral", _build_llama(4096, 32, 32, 8, 14336, 32768, sliding_window=None, **_UNTIED)),
    "qwen2.5-0.5b": ("qwen2", _build_llama(896, 24, 14, 2, 4864, 151936, **_TIED)),
    "qwen2.5-7b": ("qwen2", _build_llama(3584, 28, 28, 4, 18944, 152064, **_UNTIED)),
    "qwen3-0.6b": ("qwen3", _build_llama(1024, 28, 16, 8, 3072, 151936, head_dim=128, **_TIED)),
    "qwen3-8b": ("qwen3", _build_llama(4096, 36, 32, 8, 12288, 151936, head_dim=128, **_UNTIED)),
    "gemma2-9b": ("gemma2", _build_llama(3584, 42, 16, 8, 14336, 256000, head_dim=256, **_TIED)),
    "gemma3-4b": ("gemma3_text", _build_llama(2560, 34, 8, 4, 10240, 262208, head_dim=256, **_TIED)),
    "phi3-mini": ("phi3", _build_llama(3072, 32, 32, 32, 8192, 32064, pad_token_id=0, **_UNTIED)),
    "mixtral-8x7b": (
        "mixtral",
        _build_llama(4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, **_UNTIED),
    ),
    "qwen3-30b-a3b": (
        "qwen3_moe",
        _build_llama(
            2048, 48, 32, 4, 6144, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128,
            num_experts_per_tok=8, norm_topk_prob=True, **_UNTIED,
        ),
    ),
    "deepseek-v2-lite": (
        "deepseek_v2",
        _build_llama(
            2048, 27, 16, 16, 10944, 102400, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2,
            num_experts_per_tok=6, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64,
            v_head_dim=128, first_k_dense_replace=1, **_UNTIED,
        ),
    ),
}  # fmt: skip

_SMALL = _build_llama(512, 4, 16, 4, 1408, 512, **_UNTIED)
_WIDE = {**_SMALL, "head_dim": 64}
_MIXTURE = {**_SMALL, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 384}
_LOCAL = {**_SMALL, "num_local_experts": 32, "num_experts_per_tok": 4, "intermediate_size": 384}
_ROUTED = {**_SMALL, "n_routed_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 384,
           "n_shared_experts": 1, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1}  # fmt: skip
_LATENT = {**_ROUTED, "num_key_value_heads": 16, "kv_lora_rank": 128, "q_lora_rank": 192, "qk_nope_head_dim": 32,
           "qk_rope_head_dim": 16, "v_head_dim": 32}  # fmt: skip

# Small shapes, one per family: the vocabulary is tiny, so that a layer, not the loss, determines the peak.
SMALL: dict[str, dict[str, Any]] = {
    "llama": _SMALL,
    "mistral": {**_SMALL, "sliding_window": None},
    "ministral3": {**_WIDE, "sliding_window": None},
    "qwen2": _SMALL,
    "qwen3": _WIDE,
    "gemma": _WIDE,
    "gemma3_text": _WIDE,
    "phi3": {**_SMALL, "pad_token_id": 0},
    "phi": _SMALL,
    "gpt_neox": {key: value for key, value in _SMALL.items() if key != "num_key_value_heads"}
    | {"intermediate_size": 2048},
    "gpt2": {"vocab_size": 512, "n_embd": 512, "n_head": 16, "n_layer": 4, "n_positions": 8192, "attn_pdrop": 0,
             "resid_pdrop": 0, "embd_pdrop": 0, "tie_word_embeddings": False},
    "starcoder2": {**_SMALL, "sliding_window": None, "residual_dropout": 0, "embedding_dropout": 0},
    "stablelm": {**_SMALL, "hidden_dropout": 0, "attention_dropout": 0},
    "opt": {"vocab_size": 512, "hidden_size": 512, "ffn_dim": 2048, "num_attention_heads": 16, "num_hidden_layers": 4,
            "dropout": 0, "attention_dropout": 0, "word_embed_proj_dim": 512, "max_position_embeddings": 8192,
            "tie_word_embeddings": False},
    "olmo": _SMALL,
    "olmo2": _SMALL,
    "olmo3": {**_SMALL, "sliding_window": 100000},
    "cohere": _SMALL,
    "cohere2": {**_SMALL, "sliding_window": 100000},
    "granite": _SMALL,
    "glm": {**_WIDE, "pad_token_id": 0},
    "glm4": {**_WIDE, "pad_token_id": 0},
    "seed_oss": _WIDE,
    "smollm3": {**_SMALL, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
    "apertus": _SMALL,
    "arcee": _SMALL,
    "nemotron": _SMALL,
    "exaone4": {**_SMALL, "sliding_window": 4096, "sliding_window_pattern": 4},
    "hunyuan_v1_dense": _WIDE,
    "ernie4_5": _WIDE,
    "helium": {**_SMALL, "head_dim": 32},
    "internlm3": {**_SMALL, "qkv_bias": False},
    "mixtral": {**_SMALL, "num_local_experts": 8, "num_experts_per_tok": 2},
    "phimoe": {**_SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 768,
               "sliding_window": None},
    "qwen2_moe": {**_MIXTURE, "shared_expert_intermediate_size": 768},
    "qwen3_moe": {**_MIXTURE, "head_dim": 64, "norm_topk_prob": True},
    "olmoe": {**_MIXTURE, "intermediate_size": 384},
    "granitemoe": _LOCAL,
    "minimax_m2": {**_LOCAL, "head_dim": 64, "rotary_dim": 32},
    "ernie4_5_moe": {**_SMALL, "moe_num_experts": 32, "moe_k": 4, "moe_intermediate_size": 384,
                     "moe_num_shared_experts": 1, "moe_layer_start_index": 0},
    "glm4_moe": {**_ROUTED, "head_dim": 64, "use_qk_norm": True},
    "dots1": {**_ROUTED, "num_key_value_heads": 16},
    "deepseek_v2": {**_LATENT, "q_lora_rank": None},
    "deepseek_v3": _LATENT,
    "glm4_moe_lite": {**_LATENT, "mlp_layer_types": ["sparse"] * 4},
    "gpt_bigcode": {"vocab_size": 512, "n_embd": 512, "n_head": 16, "n_layer": 4, "n_positions": 1024, "n_inner": 2048,
                    "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0, "tie_word_embeddings": False},
    "afmoe": {**_MIXTURE, "head_dim": 64, "layer_types": ["sliding_attention"] * 4, "sliding_window": 100000,
              "num_dense_layers": 0, "num_shared_experts": 1},
}  # fmt: skip

# transformers has no sdpa path for these.
SMALL_EAGER: dict[str, dict[str, Any]] = {
    "gemma2": _WIDE,
    "gpt_oss": {**_LOCAL, "head_dim": 64, "layer_types": ["full_attention"] * 4},
}

_MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointed": {"checkpointing": True},
    "eager": {"attention": "eager"},
    "eager-checkpointed": {"attention": "eager", "checkpointing": True},
    "masked": {"attention": "efficient", "padding": True},
    "amp": {"precision": "amp"},
    "amp-checkpointed": {"precision": "amp", "checkpointing": True},
    "lora": {"lora": 16},
    "lora-checkpointed": {"lora": 16, "checkpointing": True},
    "lora-autocast": {"lora": 16, "precision": "amp_bf16w"},
    "lora-autocast-checkpointed": {"lora": 16, "precision": "amp_bf16w", "checkpointing": True},
    "lora-dropout": {"lora": 16, "precision": "amp_bf16w", "lora_dropout": 0.05},
    "lora-dropout-checkpointed": {"lora": 16, "precision": "amp_bf16w", "lora_dropout": 0.05, "checkpointing": True},
    "accumulating": {"accumulate": True},
}

_EVERYWHERE = ("plain", "checkpointed")
_DENSE = ("llama", "qwen3", "gemma", "phi3", "olmo2", "gpt_neox", "cohere")
_MIXTURES = ("mixtral", "qwen3_moe", "deepseek_v3")


def list_small_rows() -> Iterator[Row]:
    """Yield each family's small shape, plain and checkpointed, and other modes for families that differ in kind."""
    for family in SMALL:
        modes = [*_EVERYWHERE]
        if family in _DENSE:
            modes = [*_MODES]
        elif family in _MIXTURES:
            modes += ["accumulating"]
        for mode in modes:
            yield Row(f"{family}-{mode}", family, {"sequence": 2048, "micro": 4, **_MODES[mode]})
    for family in SMALL_EAGER:
        for mode in ("eager", "eager-checkpointed"):
            yield Row(f"{family}-{mode}", family, {"sequence": 2048, "micro": 4, **_MODES[mode]})


def list_model_rows() -> Iterator[Row]:
    """Yield published shapes with the lengths and batches that people train them with."""
    for model, *steps in (
        ("llama3.2-1b", (2048, 1, {}), (512, 1, {}), (2048, 8, {}), (8192, 2, {"checkpointing": True}),
         (2048, 4, {"attention": "eager"}), (4096, 1, {"attention": "eager", "checkpointing": True}),
         (2048, 4, {"precision": "amp"}), (2048, 4, {"precision": "amp", "checkpointing": True}),
         (2048, 2, {"precision": "fp32", "attention": "efficient"}), (512, 1, {"accumulate": True}),
         (64, 1, {"accumulate": True}), (2048, 4, {"keep_outputs": True}),
         (2048, 4, {"attention": "efficient", "padding": True, "checkpointing": True})),
        ("llama3.2-3b", (4096, 2, {"attention": "fa2"}), (4096, 2, {"attention": "fa2", "checkpointing": True})),
        ("llama3.1-8b", (512, 1, {}), (2048, 1, {}), (4096, 2, {}), (8192, 1, {"checkpointing": True}),
         (8192, 4, {"checkpointing": True}), (2048, 2, {"attention": "efficient", "padding": True}),
         (2048, 1, {"precision": "amp"}), (4096, 4, {"precision": "amp", "checkpointing": True}),
         (2048, 1, {"optimizer": "foreach"}), (4096, 1, {"attention": "eager"}), (2048, 2, {"accumulate": True}),
         (2048, 2, {"lora": 16}), (2048, 2, {"lora": 16, "precision": "amp_bf16w"}),
         (2048, 2, {"lora": 16, "lora_targets": "q_proj,v_proj"}),
         (4096, 4, {"lora": 16, "precision": "amp_bf16w", "checkpointing": True}),
         (2048, 2, {"lora": 16, "precision": "amp_bf16w", "lora_dropout": 0.05}),
         (2048, 1, {"lora": 16, "precision": "amp"}),
         (2048, 1, {"lora": 16, "precision": "amp", "checkpointing": True})),
        ("llama3.1-70b", (4096, 1, {"checkpointing": True})),
        ("llama2-7b", (4096, 1, {}), (1024, 1, {"precision": "amp"})),
        ("mistral-7b", (4096, 2, {}), (8192, 2, {"checkpointing": True}),
         (4096, 1, {"lora": 64, "precision": "amp_bf16w", "checkpointing": True})),
        ("qwen2.5-0.5b", (2048, 8, {}), (1024, 2, {"optimizer": "foreach"}), (256, 1, {"optimizer": "single"})),
        ("qwen2.5-7b", (4096, 1, {}), (2048, 4, {"checkpointing": True}),
         (4096, 4, {"precision": "amp", "checkpointing": True})),
        ("qwen3-0.6b", (4096, 4, {}), (2048, 8, {"checkpointing": True})),
        ("qwen3-8b", (4096, 1, {}), (8192, 2, {"checkpointing": True})),
        ("gemma2-9b", (2048, 2, {"attention": "eager"}), (4096, 1, {"attention": "eager", "checkpointing": True})),
        ("gemma3-4b", (1024, 4, {})),
        ("phi3-mini", (2048, 4, {})),
        ("mixtral-8x7b", (2048, 1, {}), (4096, 2, {"checkpointing": True})),
        ("qwen3-30b-a3b", (4096, 1, {}), (4096, 4, {"checkpointing": True})),
        ("deepseek-v2-lite", (4096, 1, {}), (4096, 4, {"checkpointing": True})),
    ):  # fmt: skip
        for sequence, micro, options in steps:
            words = [f"{key}-{value}" if value is not True else key for key, value in options.items()]
            yield Row(
                "-".join([model, f"{sequence}x{micro}", *words]).replace(",", "+"),
                model,
                {"sequence": sequence, "micro": micro, **options},
            )


def rows() -> list[Row]:
    """List every row."""
    return [*list_model_rows(), *list_small_rows()]


def get_configuration(row: Row) -> tuple[str, dict[str, Any]]:
    """Return the family and configuration arguments of a row's model."""
    if row.model in MODELS:
        return MODELS[row.model]
    return row.model, SMALL.get(row.model) or SMALL_EAGER[row.model]


def architecture(row: Row) -> dict[str, Any]:
    """Describe the row's model as `lint.models.architecture` does, with parameter counts of the model class."""
    import step_trace
    import torch

    family, arguments = get_configuration(row)
    whole = step_trace.configuration(family, arguments)
    with torch.device("meta"):
        model = step_trace.built(whole, torch.bfloat16)
    config = whole.get_text_config()

    fields = config.to_dict()  # attributes that differ from layer to layer cannot be read

    def get_first(*names: str, default: Any = None) -> Any:
        values = (fields[name] if name in fields else getattr(config, name, None) for name in names)
        return next((value for value in values if value is not None), default)

    layers, hidden = get_first("num_hidden_layers", "n_layer"), get_first("hidden_size", "n_embd")
    heads = get_first("num_attention_heads", "n_head")
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    per_layer: dict[str, int] = {}
    for name, size in sizes.items():
        for stem in (".layers.", ".h."):
            if stem in name:
                index = name.split(stem)[1].split(".")[0]
                per_layer[index] = per_layer.get(index, 0) + size
    result: dict[str, Any] = {
        "id": row.model,
        "model_type": config.model_type,
        "layers": layers,
        "hidden": hidden,
        "vocab": config.vocab_size,
        "heads": heads,
        "kv_heads": 1 if getattr(config, "multi_query", False) else get_first("num_key_value_heads", default=heads),
        "head_dim": get_first("head_dim", default=hidden // heads),
        "intermediate": _find_width(get_first("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)),
        "tied": bool(config.tie_word_embeddings),
        "parameters": sum(sizes.values()),
        "tensors": len(sizes),
        "largest_tensor": max(sizes.values()),
        "layer_parameters": max(per_layer.values()),
    }
    experts = get_first("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if experts:
        width = get_first("moe_intermediate_size", "intermediate_size")
        shared = (
            get_first(
                "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=int(family == "llama4_text")
            )
            * width
        )
        result["experts"] = {
            "count": experts,
            "per_token": get_first("num_experts_per_tok", "moe_k", "top_k_experts"),
            "intermediate": width,
            "shared_intermediate": get_first(*SHARED_WIDTH, default=shared),
            "dense_layers": max(
                get_first("first_k_dense_replace", default=0), (get_first("mlp_layer_types") or []).count("dense")
            ),
        }
    if get_first("kv_lora_rank"):
        result["latent"] = {
            "q_rank": get_first("q_lora_rank", default=0),
            "kv_rank": config.kv_lora_rank,
            "nope_dim": config.qk_nope_head_dim,
            "rope_dim": config.qk_rope_head_dim,
            "v_dim": config.v_head_dim,
        }
    optional = {
        "streams": get_first("altup_num_inputs"),
        "sparse_layers": count_sparse_layers(fields),
        "variant": get_variant(fields),
    }
    result |= {name: value for name, value in optional.items() if value}
    uneven = read_attention(fields)
    if uneven is not None:
        result["attention"] = list(uneven)
    kinds = getattr(config, "layer_types", None) or []
    if "sliding_attention" in kinds and "full_attention" in kinds:
        result["window"], result["full_attention_layers"] = config.sliding_window, kinds.count("full_attention")
    if row.step.get("lora"):
        result["linears"] = list_linears(model)
    return result


def _find_width(widths: Any) -> int:
    """Return the width of all layers, or the largest if each layer has its own."""
    return int(max(widths) if isinstance(widths, list) else widths)


def list_linears(model: Any) -> list[list[Any]]:
    """List (leaf name, inputs, outputs, count) of the decoder's linear layers."""
    import torch
    from transformers.pytorch_utils import Conv1D

    counts: dict[tuple[str, int, int], int] = {}
    head = model.get_output_embeddings()
    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and module is not head:
            inputs, outputs = module.weight.shape[:: 1 if isinstance(module, Conv1D) else -1]
            key = (name.rsplit(".", 1)[-1], inputs, outputs)
            counts[key] = counts.get(key, 0) + 1
    modules: list[list[Any]] = [[*key, count] for key, count in counts.items()]
    fused: dict[tuple[str, int, int, int], int] = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3:
            wide = (name.rsplit(".", 1)[-1], *parameter.shape[1:], parameter.shape[0])
            fused[wide] = fused.get(wide, 0) + 1
    return modules + [[*wide, count, "decoder", experts] for (*wide, experts), count in fused.items()]


_DTYPES = {"bf16": "bf16", "amp_bf16w": "bf16", "fp32": "fp32", "amp": "fp32"}


def plan(step: dict[str, Any]) -> dict[str, Any]:
    """Return a row's step as plan fields."""
    lora, precision, padding = step.get("lora"), step.get("precision", "bf16"), step.get("padding", False)
    weight_format = _DTYPES[precision]
    attention = {"flash": "sdpa", "efficient": "sdpa", "fa2": "flash", "eager": "eager"}
    fields: dict[str, Any] = {
        "method.tuning": "lora" if lora else "full",
        "precision.params": weight_format,
        "precision.frozen": weight_format,
        "precision.compute": "fp32" if precision == "fp32" else "bf16",
        "precision.autocast": precision.startswith("amp"),
        "precision.grads": "fp32" if lora else weight_format,
        "precision.master": "none",
        "optimizer.name": "adamw",
        "optimizer.implementation": step.get("optimizer", "fused"),
        "batch.micro": step["micro"],
        "batch.accumulation": 2 if step.get("accumulate") else 1,
        "sequence.length": step["sequence"],
        "sequence.packing": not padding,
        "activations.attention": attention[step.get("attention", "flash")],
        "activations.checkpointing": "full" if step.get("checkpointing") else "none",
        "activations.fused_loss": "none",
        "activations.keeps_outputs": step.get("keep_outputs", False),
        "parallel.strategy": "none",
    }
    if lora:
        targets = step.get("lora_targets", "all-linear")
        fields["method.lora_rank"] = lora
        fields["method.lora_targets"] = targets.split(",")
        fields["method.lora_dropout"] = step.get("lora_dropout", 0.0)
        fields["precision.adapter"] = "fp32"
    return fields


def traced(row: Row) -> dict[str, Any]:
    """Trace a row."""
    import peft
    import torch
    import transformers
    from step_trace import Case, trace

    family, arguments = get_configuration(row)
    result = trace(Case(family, dict(arguments), **row.step))
    return {
        "id": row.id,
        "tool": f"step_trace.py: torch {torch.__version__}, transformers {transformers.__version__}, "
        f"peft {peft.__version__}",
        "architecture": architecture(row),
        "step": row.step,
        "plan": plan(row.step),
        "bytes": {name: getattr(result, name) for name in result._fields[2:9]},
        "peak_op": result.peak_op,
    }


def main(requested: list[str]) -> None:
    """Trace the requested rows (all by default) and rewrite the file."""
    lines: dict[str, str] = {}
    if TRACED.exists():
        for line in TRACED.read_text(encoding="utf-8").splitlines():
            lines[json.loads(line)["id"]] = line
    for row in rows():
        if not requested or row.id in requested:
            lines[row.id] = json.dumps(traced(row), sort_keys=False)
            print(row.id, json.loads(lines[row.id])["bytes"]["peak"], flush=True)
    TRACED.write_text("\n".join(lines.values()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
