"""PRF004 eager-attention: attention scores are materialised over long sequences.

## What it does
Reports eager attention for sequences of 2,048 tokens and more, with the size of the scores of one layer.

## Why is this bad?
Eager attention holds heads x length x length scores per sequence and layer (6 bytes each in bf16: the fp32 softmax
and its 16-bit copy); flash and memory-efficient kernels hold a row's statistics instead, and are faster.

## Example
    attn_implementation: eager
    sequence_len: 8192

## Use instead
    attn_implementation: flash_attention_2      # or sdpa

## When it does not apply
Silent for Gemma 2 and gpt-oss, whose soft-capped or sink attention is trained eagerly on purpose, and for Gemma 3
where transformers may be older than 4.57: 4.50 to 4.56 ask for eager attention in training.

## References
transformers 4.50.0 to 4.56.0 `models/gemma3/modeling_gemma3.py` and `gemma3n` (forward); not in 4.57.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import changes_of
from cfglint_train.findings.finding import Report
from cfglint_train.findings.wording import worded
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("PRF004", "eager-attention", "warning", needs={"activations.attention": ("eager",)})

_FIELD: Final = "activations.attention"
_LONG: Final = 2048
_ON_PURPOSE: Final = frozenset(("gemma2", "gpt_oss"))
_RECOMMENDED: Final = frozenset(("gemma3", "gemma3_text", "gemma3n", "gemma3n_text"))
_RECOMMENDED_BEFORE: Final = "4.57"
"""Of transformers, which asks for eager attention when it trains one of them."""


def check(run: Run) -> Iterator[Report]:
    """One report where eager attention meets long sequences."""
    plan, model = run.plan, run.architecture
    length, micro = plan.sequence.length, plan.batch.micro
    if model is None or model.model_type in _ON_PURPOSE:
        return
    newer = run.main.releases.certain("transformers", _RECOMMENDED_BEFORE)
    if model.model_type in _RECOMMENDED and newer is not True:
        return
    if length is None or micro is None or length < _LONG:
        return
    scores = 6 * model.heads * length * length * micro
    most = "up to " if plan.sequence.padding == "longest" else ""
    yield Report(
        f"eager attention holds {most}{gib(scores)} of attention scores per layer ({length:,} tokens x {micro})",
        run.place(_FIELD, "sequence.length"),
        help=_fused(run),
        notes=(
            f"estimated gain: {gib(scores * model.layers)} of scores are no longer written to the GPU's memory and "
            f"read again in each forward pass ({model.layers} layers)",
        ),
    )


def _fused(run: Run) -> str | None:
    """How the run's files switch a fused kernel on; None where they cannot."""
    for kernel in ("sdpa", "flash"):
        try:
            changes_of(run, {_FIELD: kernel})
        except CannotEdit:
            continue
        return f"use a fused kernel: {worded(run, {_FIELD: kernel})}"
    return None
