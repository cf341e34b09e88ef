"""MEM003 unfused-loss: the loss holds full logits over a large vocabulary, although a fused loss is available.

## What it does
Reports a loss that holds full logits in two cases: the logits take at least a quarter of the GPU's memory, or the step
does not fit or is tight and a fused loss improves that verdict. The severity follows the verdict of the step as it is.
If the step fits, the finding is an info.

## Why is this bad?
Cross-entropy over full logits costs up to 12 bytes x tokens x vocabulary in the backward pass. With a vocabulary of
128,256 that is 1.5 MB per token, often more than all activations after checkpointing. A fused linear cross-entropy
(Liger, Cut Cross-Entropy) never holds the full logits.

## Example
    base_model: meta-llama/Llama-3.2-3B
    micro_batch_size: 4
    sequence_len: 4096
    gradient_checkpointing: true

## Use instead
    plugins:
      - axolotl.integrations.liger.LigerPlugin
    liger_fused_linear_cross_entropy: true

axolotl ignores the key unless the plugin is loaded, so the fix writes both.

## Fix safety
The fix is the smallest change that makes the step fit (`cfglint fit`), applied as a whole. It is offered only if that
change includes the fused loss, which MEM001 then says in the same finding. Safe: the loss is the same up to rounding.
It requires the liger-kernel package. LLaMA-Factory supports the package only for pretraining and supervised
fine-tuning, so the fix is offered only there.

## When it does not apply
Silent if an adapter is trained on `lm_head`: Liger's loss reads the frozen base weight, so the adapter would get no
gradient. Silent if the framework offers no fused loss for the run.

## References
docs/memory/loss.md; docs/fit.md; Liger-Kernel, arXiv:2410.10989; Cut Cross-Entropy, arXiv:2411.09009.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.memory.components import LOGITS
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.moves import Move

RULE: Final = Rule(
    "MEM003",
    "unfused-loss",
    "warning",
    fix="safe",
    needs={"activations.fused_loss": ("none", "chunked", "compiled_shifted")},
    estimates=("gpu",),
)

_FIELD: Final = "activations.fused_loss"
_MIN_SHARE = 0.25


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a fused loss is available and would free a quarter of the GPU or improve the verdict."""
    if run.architecture is None:
        return
    judgement = judge(run, "gpu", STEP_PHASES)
    if judgement is None:
        return
    logits = sum(size for component, size in judgement.budget.sizes if component is LOGITS)
    is_fitting, is_small = judgement.verdict == "fits", logits < _MIN_SHARE * judgement.capacity
    if is_fitting and is_small:
        return
    find_better_loss = cache(partial(_find_better_loss, run, judgement, is_small))
    subject = (
        f"logits take {format_gib(logits)} of {format_gib(judgement.budget.expected)} in {judgement.phase.title}"
        if logits
        else "the loss holds full logits"
    )
    yield Report(
        f"{subject} (vocabulary {run.architecture.vocab:,}); a fused loss avoids them",
        run.find_place(_FIELD, "batch.micro"),
        "info" if is_fitting else judgement.severity,
        min_certainty="followed" if is_fitting else judgement.min_certainty,
        confirm=lambda: find_better_loss() is not None,
        assumed_severity=judgement.assumed_severity,
        find_remedy=lambda: _find_remedy(run, find_better_loss()),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
    )


def _find_better_loss(run: Run, judgement: Judgement, changes_verdict: bool) -> Move | None:
    """Return the change to a fused loss that needs less memory, or None if there is none.

    With `changes_verdict`, the change must also improve the verdict.
    """
    from cfglint_train.fitting.moves import find_move  # imports the fixer, needed only if something is wrong

    move = find_move(run, _FIELD)
    fused = None if move is None else judge(run.replace_fields(move.changes), "gpu", STEP_PHASES)
    if fused is None or fused.budget.expected >= judgement.budget.expected:
        return None
    return None if changes_verdict and fused.verdict == judgement.verdict else move


def _find_remedy(run: Run, move: Move | None) -> tuple[Fix | None, str | None]:
    """Return the fix, or without one, help that names the settings of the fused loss."""
    from cfglint_rules.memory.fitting import find_remedy_with
    from cfglint_train.fitting import words  # imports the fixer, needed only if something is wrong

    fix, _ = find_remedy_with(run, _FIELD)
    if fix is not None:
        return fix, None
    settings = words.format_settings(run, {} if move is None else move.changes)
    return None, f"set {', '.join(f'`{setting}`' for setting in settings)}"
