"""PRF004 eager-attention: eager attention stores the scores of long sequences in full.

## What it does
Reports eager attention for sequences of 2,048 tokens or more, with the size of the attention scores per layer.

## Why is this bad?
Eager attention stores heads x length x length scores per sequence and layer. In bf16, each score takes 6 bytes: 4 for
the fp32 softmax and 2 for its 16-bit copy. Flash and memory-efficient kernels store only statistics per row, and are
faster.

## Example
    attn_implementation: eager
    sequence_len: 8192

## Use instead
    attn_implementation: flash_attention_2      # or sdpa

## When it does not apply
Silent for unknown models. Silent for Gemma 2 and gpt-oss, which are trained with eager attention on purpose because of
soft-capping or attention sinks. Silent for Gemma 3 if transformers may be older than 4.57: releases 4.50 to 4.56
recommend eager attention for training.

## References
transformers 4.50.0 to 4.56.0 `models/gemma3/modeling_gemma3.py` and `gemma3n` (forward); 4.57.1 no longer has
the recommendation.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import list_key_changes
from cfglint_train.findings.finding import Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("PRF004", "eager-attention", "warning", needs={"activations.attention": ("eager",)})

_FIELD: Final = "activations.attention"
_MIN_LENGTH: Final = 2048
_EAGER_MODELS: Final = frozenset(("gemma2", "gpt_oss"))
_FORMERLY_EAGER_MODELS: Final = frozenset(("gemma3", "gemma3_text", "gemma3n", "gemma3n_text"))
_NOT_RECOMMENDED_SINCE: Final = "4.57"
"""First release of transformers that no longer recommends eager attention for training these models."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a run trains on long sequences with eager attention."""
    plan, model = run.plan, run.architecture
    length, micro = plan.sequence.length, plan.batch.micro
    if model is None or model.model_type in _EAGER_MODELS:
        return
    is_newer = run.main.releases.is_certainly_at_least("transformers", _NOT_RECOMMENDED_SINCE)
    if model.model_type in _FORMERLY_EAGER_MODELS and is_newer is not True:
        return
    if length is None or micro is None or length < _MIN_LENGTH:
        return
    scores = 6 * model.heads * length * length * micro
    prefix = "up to " if plan.sequence.padding == "longest" else ""
    yield Report(
        f"eager attention holds {prefix}{format_gib(scores)} of attention scores per layer ({length:,} "
        f"tokens x micro batch {micro})",
        run.find_place(_FIELD, "sequence.length"),
        help=_advise_fused_kernel(run),
        notes=(
            f"estimated gain: each forward pass avoids writing {format_gib(scores * model.layers)} of scores to GPU "
            f"memory and reading them back ({model.layers} layers)",
        ),
    )


def _advise_fused_kernel(run: Run) -> str | None:
    """Return the advice to use a fused kernel, or None if the files of the run cannot be edited to select it."""
    for kernel in ("sdpa", "flash"):
        try:
            list_key_changes(run, {_FIELD: kernel})
        except CannotEdit:
            continue
        return f"use a fused kernel: {format_changes(run, {_FIELD: kernel})}"
    return None
