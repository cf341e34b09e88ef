"""Blocks of vision towers on fake tensors: bytes that they keep, and their peaks (`tests/memory/towers.jsonl`).

python tests/oracles/trace_towers.py tests/memory/towers.jsonl  (needs what `step_trace.py` needs). A tower's blocks run
alone, so that neither grids of images nor the decoder matter: input, blocks, backward pass.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

KINDS: Final[dict[str, tuple[str, str, str]]] = {
    "siglip": ("siglip.modeling_siglip", "SiglipEncoderLayer", "SiglipVisionConfig"),
    "clip": ("clip.modeling_clip", "CLIPEncoderLayer", "CLIPVisionConfig"),
    "pixtral": ("pixtral.modeling_pixtral", "PixtralAttentionLayer", "PixtralVisionConfig"),
    "qwen2_vl": ("qwen2_vl.modeling_qwen2_vl", "Qwen2VLVisionBlock", "Qwen2VLVisionConfig"),
    "qwen2_5_vl": ("qwen2_5_vl.modeling_qwen2_5_vl", "Qwen2_5_VLVisionBlock", "Qwen2_5_VLVisionConfig"),
    "qwen3_vl": ("qwen3_vl.modeling_qwen3_vl", "Qwen3VLVisionBlock", "Qwen3VLVisionConfig"),
    "glm4v": ("glm4v.modeling_glm4v", "Glm4vVisionBlock", "Glm4vVisionConfig"),
    "kimi_k25": ("kimi_k25.modeling_kimi_k25", "Kimi_K25VisionEncoderLayer", "Kimi_K25VisionConfig"),
    "internvl": ("internvl.modeling_internvl", "InternVLVisionLayer", "InternVLVisionConfig"),
    "llama4": ("llama4.modeling_llama4", "Llama4VisionEncoderLayer", "Llama4VisionConfig"),
}
"""Kind -> module, block and configuration of transformers."""

SIZES: Final = {"hidden": 1024, "heads": 16, "intermediate": 3072, "layers": 4, "patches": 4096}
MODES: Final = {
    f"{kept}-{precision}": {"checkpointing": kept == "full", "precision": precision}
    for kept in ("none", "full")
    for precision in ("bf16", "amp", "frozen")
}


class _SingleImageLengths:
    """A stand-in for the cumulative lengths of one image: every difference is the whole length."""

    def __getitem__(self, _: Any) -> _SingleImageLengths:
        return self

    def __sub__(self, _: Any) -> _SingleImageLengths:
        return self

    def tolist(self) -> list[int]:
        return [SIZES["patches"]]


def _find_block(kind: str) -> tuple[Any, Any]:
    module, block, configuration = KINDS[kind]
    code = importlib.import_module(f"transformers.models.{module}")
    config = getattr(code, configuration)(
        hidden_size=SIZES["hidden"],
        intermediate_size=SIZES["intermediate"],
        num_attention_heads=SIZES["heads"],
        num_heads=SIZES["heads"],
        embed_dim=SIZES["hidden"],
        mlp_ratio=SIZES["intermediate"] // SIZES["hidden"],
        out_hidden_size=SIZES["intermediate"],
    )
    config._attn_implementation = "sdpa"
    return getattr(code, block), config


def traced(kind: str, checkpointing: bool, precision: str) -> list[int]:
    """Trace the bytes on top of weights and input: after the forward pass, its peak, and the backward peak."""
    import torch
    from step_trace import FakeTensorMode, LiveStorages, attention_op, install_fake_cuda

    install_fake_cuda()
    torch.nn.functional.scaled_dot_product_attention = attention_op("flash")
    block, config = _find_block(kind)
    patches, hidden = SIZES["patches"], SIZES["hidden"]
    head = hidden // SIZES["heads"]
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        dtype = torch.float32 if precision == "amp" else torch.bfloat16
        torch.set_default_dtype(dtype)  # fake parameters cannot be converted
        blocks = torch.nn.ModuleList(block(config) for _ in range(SIZES["layers"]))
        torch.set_default_dtype(torch.float32)
        blocks.train()
        blocks.requires_grad_(precision != "frozen")
        flat = kind.startswith(("qwen", "glm", "kimi"))
        pixels = torch.empty(*((patches, hidden) if flat else (1, patches, hidden)), dtype=dtype)
        pixels.requires_grad_(precision != "frozen")
        angles = torch.empty(patches, head, dtype=torch.float32 if flat else dtype)
        extra: dict[str, Any] = {"attention_mask": None}
        if kind == "pixtral":
            extra["position_embeddings"] = (angles, angles.clone())
        if flat:
            extra = {"cu_seqlens": _SingleImageLengths(), "position_embeddings": (angles, angles.clone())}
        if kind == "llama4":
            extra = {"freqs_ci": torch.empty(patches, 1, head // 2, dtype=torch.complex64)}
        if kind == "internvl":
            extra = {}
        live = LiveStorages(False)
        for tensor in (*blocks.parameters(), *blocks.buffers(), pixels, angles):
            live.add(tensor, "held")
        for item in (*extra.get("position_embeddings", ()), *filter(None.__ne__, [extra.get("freqs_ci")])):
            live.add(item, "held")
        base = live.bytes
        cast = torch.autocast("cuda", torch.bfloat16) if precision == "amp" else contextlib.nullcontext()
        with live:
            live.phase = "forward"
            with cast:
                x = pixels
                for layer in blocks:
                    x = (
                        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False, **extra)
                        if checkpointing
                        else layer(x, **extra)
                    )
                    x = x[0] if isinstance(x, tuple) else x
            after = live.bytes
            live.phase = "backward"
            if precision != "frozen":
                x.sum().backward()
        return [after - base, live.peaks["forward"] - base, max(0, live.peaks["backward"] - base)]


def main(out: Path) -> None:
    """Trace all kinds and modes."""
    import torch
    import transformers

    tool = f"torch {torch.__version__}, transformers {transformers.__version__}"
    lines = [json.dumps({"tool": tool, "sizes": SIZES, "modes": MODES})]
    for kind in KINDS:
        bytes_ = {name: traced(kind, **mode) for name, mode in MODES.items()}  # type: ignore[arg-type]
        lines.append(json.dumps({"kind": kind, "bytes": bytes_}))
        print(lines[-1], flush=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
