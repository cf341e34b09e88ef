"""PRF009 padded-to-limit: every sample is padded to the maximum length, and padding costs as much as real tokens.

## What it does
Reports runs that pad samples to the length limit instead of packing them or padding them to the longest in their batch.
An example is axolotl's `pad_to_sequence_len: true` without `sample_packing`. The note gives the possible gain as a
function of the mean length.

## Why is this bad?
Padding is computed like any other token but adds nothing to training. With a limit of 4,096 tokens and samples of
1,024, three quarters of the computation is spent on padding. Packing fills the same rows with real tokens.

## Example
    sequence_len: 4096
    sample_packing: false
    pad_to_sequence_len: true

## Use instead
    sequence_len: 4096
    sample_packing: false
    pad_to_sequence_len: false

## Fix safety
Unsafe: it replaces a setting that works, and memory use varies if lengths do. The loss is the same because
padding is masked. `sample_packing: true` saves more if the framework can pack this kind of data, but it puts more
samples into a step.

## When it does not apply
The rule is silent:

- for packed data, for compiled models (each new length triggers a recompilation), and for sequences split over several
  ranks
- for limits below 1,024 tokens
- for stages other than supervised fine-tuning, whose trainers have their own padding

Samples that are padded to the longest in their batch are not reported, even if the limit is far too high: only the data
shows their lengths.

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
    writes=("sequence.padding", "sequence.packing"),
)

_FIELD: Final = "sequence.padding"
_MIN_LIMIT: Final = 1024
"""Minimum length limit in tokens that is reported: most samples come close to a lower limit."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if samples are padded to the length limit."""
    length = run.plan.sequence.length
    if run.plan.method.stage != "sft" or not length or length < _MIN_LIMIT:
        return
    if run.plan.activations.compile or (run.plan.parallel.context or 1) > 1:
        return
    quarter = length // 4
    changes: dict[Field, Any] = {_FIELD: "longest"}
    if run.spell_key("sequence.packing") == run.spell_key(_FIELD):
        changes["sequence.packing"] = True  # one setting removes the padding by joining the samples
    yield Report(
        f"`{run.spell_key(_FIELD)}` pads every sample to `{run.spell_key('sequence.length')}` ({length:,} tokens): "
        "padding costs as much as real tokens",
        run.find_place(_FIELD),
        fix=Fix("unsafe", format_changes(run, changes), changes),
        notes=(
            f"estimated gain: 1 - mean length / {length:,} of the computation of a step; 75 % if samples have "
            f"{quarter:,} tokens",
        ),
    )
