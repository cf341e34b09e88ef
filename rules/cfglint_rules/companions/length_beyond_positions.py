"""XFL005 length-beyond-positions: the sequence length exceeds the number of positions that the model supports.

## What it does
Compares the sequence length with the number of positions that the model was trained for (`max_position_embeddings`),
unless RoPE scaling is set.

## Why is this bad?
A model with learned positions (GPT-2, OPT) stops with an index error at the first longer sequence. A model with rotary
positions runs, but it was never trained on the later positions, and its attention scores there are unreliable.

## Example
    model_name_or_path: meta-llama/Llama-2-7b-hf    # 4,096 positions
    cutoff_len: 16384

## Use instead
    cutoff_len: 16384
    rope_scaling: linear

## Fix safety
Unsafe: the fix lowers the length to the number of positions, so the framework truncates or drops longer samples. There
is no fix that sets `rope_scaling`.

## When it does not apply
The rule is silent for:

- runs with `rope_scaling`
- models without absolute positions (ALiBi, relative positions, recurrent layers)
- packed samples, because the positions start again with each sample
- models that only the name of a folder identifies: the copy's `config.json` may state more positions

If data is not packed, the length is only an upper limit. Ignore the rule if all samples fit the positions.

## References
axolotl 0.18.0 `loaders/model.py` (_adjust_model_config raises the number but does not extend the embedding table);
LLaMA-Factory 0.9.5 `model/model_utils/rope.py` (configure_rope); huggingface/transformers `config.json`
(max_position_embeddings, n_positions).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "XFL005",
    "length-beyond-positions",
    "warning",
    fix="unsafe",
    needs={"sequence.packing": (False,), "model.rope_scaling": ("none",)},
    writes=("sequence.length",),
)

_LEARNED_EMBEDDINGS: Final = frozenset(("wpe", "embed_positions"))
"""Modules that hold learned position embeddings (transformers: GPT-2, OPT)."""
_UNBOUNDED_MODELS: Final = frozenset(("bloom", "mpt", "t5", "mt5", "umt5", "falcon_mamba", "mamba", "mamba2"))
"""Model types with ALiBi, relative positions or recurrent layers."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if sequences may exceed the model's positions."""
    model, length = run.architecture, run.plan.sequence.length
    if model is None or model.context is None or length is None or length <= model.context:
        return
    if run.plan.model.from_scratch or not run.is_stated("sequence.length"):
        return
    if model.model_type in _UNBOUNDED_MODELS or model.recurrent_layers:
        return
    has_learned_positions = any(linear.name in _LEARNED_EMBEDDINGS for linear in model.linears)
    untrained_text = "later positions are untrained, and no RoPE scaling is set"
    outcome = "the first longer sample stops the run" if has_learned_positions else untrained_text
    key = run.spell_key("sequence.length")
    yield Report(
        f"`{key}` is {length:,}, but the model has {model.context:,} positions: {outcome}",
        run.find_place("sequence.length"),
        fix=Fix(
            "unsafe",
            f"set {key}: {model.context}, which truncates or drops longer samples",
            {"sequence.length": model.context},
        ),
    )
