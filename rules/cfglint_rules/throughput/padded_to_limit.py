"""PRF009 padded-to-limit: every sample is padded to the longest length that is allowed.

## What it does
Reports samples that are neither packed nor padded to the longest of their batch, but to the limit
(`pad_to_sequence_len: true` without `sample_packing` in axolotl). The note says what that costs by the mean length.

## Why is this bad?
Padding is computed like any other token and counts for nothing. With a limit of 4,096 tokens and samples of 1,024,
three quarters of the arithmetic of a step are spent on padding. Packed samples fill the same rows.

## Example
    sequence_len: 4096
    sample_packing: false
    pad_to_sequence_len: true

## Use instead
    sequence_len: 4096
    sample_packing: false
    pad_to_sequence_len: false

## Fix safety
Unsafe: it replaces a choice that works (lengths that do not change keep the memory constant). The loss is the same,
because padding is masked. `sample_packing: true` saves more where the framework packs this kind of data; it puts more
samples into a step.

## When it does not apply
Silent for packed data, compiled models (each new length is compiled again), several ranks per sequence, limits below
1,024 tokens, and stages other than supervised fine-tuning, whose trainers pad in their own ways. Short samples under a
long limit that are padded to the longest of their batch are not reported: only the data shows how long they are.

## References
axolotl 0.21.0 `core/builders/causal.py` (pad_to_sequence_len: pad_to_multiple_of is the whole length).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF009",
    "padded-to-limit",
    "info",
    fix="unsafe",
    needs={"sequence.padding": ("max_length",), "sequence.packing": (False,)},
    writes=("sequence.padding",),
)

_FIELD: Final = "sequence.padding"
_MIN_LIMIT: Final = 1024
"""Length limit in tokens below which most samples come close to it."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if samples are padded to the limit."""
    length = run.plan.sequence.length
    if run.plan.method.stage != "sft" or not length or length < _MIN_LIMIT:
        return
    if run.plan.activations.compile or (run.plan.parallel.context or 1) > 1:
        return
    quarter = length // 4
    changes: dict[Field, Any] = {_FIELD: "longest"}
    yield Report(
        f"every sample is padded to `{run.spell_key('sequence.length')}` of {length:,} tokens "
        f"(`{run.spell_key(_FIELD)}`), and "
        "padding is computed like any other token",
        run.find_place(_FIELD),
        fix=Fix("unsafe", format_changes(run, changes), changes),
        notes=(
            f"estimated gain: 1 - mean length / {length:,} of the arithmetic of a step; 75 % where samples have "
            f"{quarter:,} tokens",
        ),
    )
