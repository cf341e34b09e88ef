"""Traces of every family with a formula x checkpointing x attention x precision, for the test of the closed form.

python tests/oracles/trace_grid.py tests/memory/grid.jsonl [FAMILY ...]  (needs what `step_trace.py` needs; ten minutes
for all). In these shapes a layer's terms weigh as much as the loss: a hidden width of 1,024 and 8,192 words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

from trace_rows import SMALL, SMALL_EAGER, Row, architecture, plan

WIDTHS: Final = (
    "hidden_size", "n_embd", "intermediate_size", "ffn_dim", "moe_intermediate_size", "word_embed_proj_dim",
    "shared_expert_intermediate_size", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim", "rotary_dim", "head_dim",
)  # fmt: skip
VOCABULARY: Final = 8192

# PEFT's `all-linear` differs between releases for mixtures, so their targets are written out.
ATTENTION_MATRICES: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_b_proj")
_GATED: Final = ("gate_proj", "up_proj", "down_proj")
EXPERTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("mixtral", "minimax_m2"), ("w1", "w3", "w2")),
    **dict.fromkeys(
        (
            "qwen3_moe",
            "olmoe",
            "ernie4_5_moe",
            "glm4_moe",
            "dots1",
            "deepseek_v2",
            "deepseek_v3",
            "glm4_moe_lite",
            "deepseek_v32",
            "glm_moe_dsa",
            "afmoe",
            "qwen3_next",
        ),
        _GATED,
    ),
    **dict.fromkeys(("qwen2_moe", "granitemoe", "phimoe", "gpt_oss"), ()),
}

CHECKPOINTING: Final = {"none": {}, "full": {"checkpointing": True}}
ATTENTION: Final = {"flash": {}, "eager": {"attention": "eager"}}
PRECISION: Final = {"bf16": {}, "amp": {"precision": "amp"}, "lora": {"lora": 16, "precision": "amp_bf16w"}}


def build_shape(family: str) -> dict[str, Any]:
    """Return the family's small shape with doubled widths and a larger vocabulary."""
    small = SMALL.get(family) or SMALL_EAGER[family]
    wide = {key: _double(value) if key in WIDTHS and value else value for key, value in small.items()}
    wide["vocab_size"] = VOCABULARY
    if "head_dim" in small:
        wide["head_dim"] = small["head_dim"] if family != "helium" else 64
    return wide


def _double(value: Any) -> Any:
    return [2 * item for item in value] if isinstance(value, list) else 2 * value


def list_rows() -> Iterator[Row]:
    """Yield the whole grid; families without an sdpa path have eager rows only."""
    for family in (*SMALL, *SMALL_EAGER):
        for checkpointing, attention, precision in product(CHECKPOINTING, ATTENTION, PRECISION):
            if attention == "flash" and family in SMALL_EAGER:
                continue
            step: dict[str, Any] = {**CHECKPOINTING[checkpointing], **ATTENTION[attention], **PRECISION[precision]}
            if precision == "lora" and family in EXPERTS:
                step["lora_targets"] = ",".join((*ATTENTION_MATRICES, *EXPERTS[family]))
            yield Row(
                f"{family}-{checkpointing}-{attention}-{precision}", family, {"sequence": 1024, "micro": 4, **step}
            )


def families() -> list[str]:
    """List the families of the grid."""
    return [*SMALL, *SMALL_EAGER]


def get_mode(row: Row) -> str:
    """Return a row's checkpointing, attention and precision as one word."""
    return row.id.removeprefix(f"{row.model}-")


def trace_peaks(row: Row) -> list[int]:
    """Trace one step of the real code and return the peaks of its three phases."""
    from step_trace import Case, trace

    result = trace(Case(row.model, build_shape(row.model), **row.step))
    return [result.forward_peak, result.backward_peak, result.optimizer_peak]


def describe_architecture(family: str) -> dict[str, Any]:
    """Return the family's architecture, including its linear layers, in the estimate's terms."""
    import trace_rows

    trace_rows.MODELS[family] = (family, build_shape(family))
    return architecture(Row(family, family, {"lora": 1}))


def line(family: str) -> dict[str, Any]:
    """Return all data of a family.

    Modes that cannot run are left out: grouped products support only 16-bit numbers.
    """
    peaks: dict[str, list[int]] = {}
    for row in list_rows():
        if row.model == family:
            try:
                peaks[get_mode(row)] = trace_peaks(row)
            except (RuntimeError, AttributeError) as error:
                print(row.id, str(error)[:200], file=sys.stderr)
    targets = (*ATTENTION_MATRICES, *EXPERTS[family]) if family in EXPERTS else ("all-linear",)
    return {"family": family, "architecture": describe_architecture(family), "targets": targets, "peaks": peaks}


def list_plans() -> dict[str, dict[str, Any]]:
    """List the plan fields of every mode; the targets of adapters are the family's."""
    return {get_mode(row): plan(row.step) for row in list_rows() if row.model == "llama"}


def main(out: Path, requested: list[str]) -> None:
    """Trace the requested families (all by default); the lines of others stay as they are."""
    lines: dict[str, str] = {}
    if out.exists():
        for text in out.read_text(encoding="utf-8").splitlines()[1:]:
            lines[json.loads(text)["family"]] = text
    for family in requested or families():
        lines[family] = json.dumps(line(family))
    ordered = [lines[family] for family in families() if family in lines]
    out.write_text("\n".join([json.dumps({"tool": tool(), "plans": list_plans()}), *ordered]) + "\n", encoding="utf-8")


def tool() -> str:
    """Return the releases that produced the traces."""
    import peft
    import torch
    import transformers

    return f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
