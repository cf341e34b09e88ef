"""CKP003 save-exceeds-host: saving a checkpoint needs more host memory than a node has.

## What it does
Compares the host's peak memory during a save with the memory of a node. The peak includes the memory already in use and
the buffers of the save.

## Why is this bad?
The process is killed with exit code -9 at its first checkpoint, or at the very end of the run. The memory that a save
needs depends on the backend and is not documented:

- ZeRO-3 gathers the 16-bit model on rank 0 (2 bytes per parameter). Before 5.0.0, transformers gathers all of it even
  to save an adapter.
- ZeRO stages 0 to 2 copy the whole model to the host on *every* rank of the node.
- FSDP's full state dict puts the model and then the optimizer state on rank 0.

## Symptoms
Checkpoint host memory, OOM killer while saving, exit code -9.

## Example
    # cfglint: host-memory=512GB
    deepspeed: ds_z3_config.json             # DeepSeek-V2, 236B: the gather takes 439 GiB on node 0

## Use instead
    "stage3_gather_16bit_weights_on_model_save": false

Convert the checkpoint afterwards with `zero_to_fp32.py`.

## Fix safety
Unsafe: without the gather, no Hugging Face weights are written, not even at the end. Under FSDP, the fix sets
`save_only_model: true`, which gives up resuming. This fix is not offered if the run resumes from its own checkpoints.
There is no fix for ZeRO stages 0 to 2: use fewer ranks per node, or ZeRO-3.

## When it does not apply
Silent unless the host memory is stated (`--host-memory`, `# cfglint: host-memory=...`, settings). Silent if training
does not fit in host memory either, or needs as much as the save (HST001). If CKP001 reports a save
with `olmo_core`, the finding is a part of that.

## References
deepspeed 0.19.8 `runtime/engine.py` (`_zero3_consolidated_16bit_state_dict`); transformers 4.57.6 and 5.0.0
`trainer.py` (`save_model`); accelerate 1.11.0 `accelerator.py` (`get_state_dict`); hiyouga/LLaMA-Factory#3752, PR
#6843; huggingface/open-r1#675.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.resuming import find_resume_field
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import describe_verdict, format_breakdown, judge
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.plan.choices import FSDP
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP003",
    "save-exceeds-host",
    "error",
    fix="unsafe",
    writes=("checkpoint.gather", "checkpoint.model_only"),
    estimates=("host",),
    capacities=("host",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if saving does not fit in host memory or is tight."""
    judgement, step_judgement = judge(run, "host", ("save",)), judge(run, "host", STEP_PHASES)
    if judgement is None or judgement.verdict == "fits":
        return
    # The run does not reach a checkpoint, or the step needs at least as much.
    is_step_worse = step_judgement is not None and (
        step_judgement.verdict == "does not fit" or judgement.budget.expected <= step_judgement.budget.expected
    )
    is_metadata = run.plan.checkpoint.checkpointer == "olmo_core"
    fix = _build_fix(run)
    yield Report(
        f"saving {describe_verdict(judgement)}",
        run.find_place("checkpoint.gather", "checkpoint.state_dict", "checkpoint.strategy", "parallel.zero_stage"),
        judgement.severity,
        fix,
        notes=(format_breakdown(judgement.budget), *_explain_frozen(run)),
        help=None if fix is not None else _build_help(run, is_metadata),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
        left_to="CKP001" if is_metadata else "HST001" if is_step_worse else "",
    )


def _explain_frozen(run: Run) -> tuple[str, ...]:
    """Return a note on the release that gathers frozen weights for an adapter, or an empty tuple."""
    return ("transformers 5.0.0 and newer gather only the adapter",) if run.plan.checkpoint.gathers_frozen else ()


def _build_help(run: Run, is_metadata: bool) -> str:
    if is_metadata:
        return "use another checkpointer, fewer ranks, or hosts with more memory"
    if run.plan.parallel.strategy in FSDP:
        return "use a sharded state dict, or hosts with more memory"
    if run.plan.parallel.zero_stage == 3:
        return "use fewer ranks per node, or hosts with more memory"
    return "use fewer ranks per node, ZeRO stage 3, or hosts with more memory"


def _build_fix(run: Run) -> Fix | None:
    checkpoint, parallel = run.plan.checkpoint, run.plan.parallel
    if parallel.strategy == "zero" and parallel.zero_stage == 3 and checkpoint.gather:
        message = "save without gathering the 16-bit weights; convert with zero_to_fp32.py afterwards"
        return Fix("unsafe", message, {"checkpoint.gather": False})
    is_resuming = find_resume_field(run) is not None  # CKP006 would ask for the optimizer state again
    if (
        parallel.strategy in FSDP
        and checkpoint.state_dict == "full"
        and checkpoint.model_only is False
        and not is_resuming
    ):
        message = f"{format_changes(run, {'checkpoint.model_only': True})}; the run can no longer be resumed"
        return Fix("unsafe", message, {"checkpoint.model_only": True})
    return None
