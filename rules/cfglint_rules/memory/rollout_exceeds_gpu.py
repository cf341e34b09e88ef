"""MEM007 rollout-exceeds-gpu: the training step fits on the GPU, but the rollout does not.

## What it does
Estimates the memory for generation, for new weights on their way to the engine, and for the passes that score the
generated answers, on GPUs that training shares with the inference engine. It compares the result with the GPU's memory.
If MEM001 reports the training step, the rollout is part of that finding.

## Why is this bad?
The engine's share is a fraction of the whole card and ignores the memory that training holds. The job starts, then
fails with CUDA out of memory when the engine wakes up. Often only one side sleeps: the engine leaves the GPU during
training, but the training states stay there during generation.

## Symptoms
CUDA out of memory during generation, OOM in vLLM or SGLang, KV cache.

## Example
    # cfglint: gpu=H100
    --train.colocate_all --vllm.enable_sleep --vllm.gpu_memory_utilization 0.8

## Use instead
    --train.colocate_all --vllm.enable_sleep --ds.enable_sleep --vllm.gpu_memory_utilization 0.8

## Fix safety
Usually unsafe: with a smaller share, the engine generates fewer sequences at a time, and sleeping training states move
to the host and back in each iteration. Smaller batches for the scoring passes are safe.

## When it does not apply
Silent for engines on their own GPUs, and for engines whose share is unknown. A rollout that is only tight is reported
only if the GPU is stated.

## References
OpenRLHF 0.11.2 `trainer/ray/vllm_engine.py`, `trainer/ppo_trainer.py`; verl 0.9.1 `workers/engine_workers.py`
update_weights; TideDra/lmm-r1#43; docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import ROLLOUT_PHASE, describe_verdict, format_breakdown, judge
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.memory.budget import GENERATION, STEP_PHASES, SYNC
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.plan.names import Field

RULE: Final = Rule("MEM007", "rollout-exceeds-gpu", "error", fix="safe", estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the rollout does not fit, or is tight on a stated GPU."""
    judgement = judge(run, "gpu", (ROLLOUT_PHASE,))
    if judgement is None or judgement.verdict == "fits":
        return
    step = judge(run, "gpu", STEP_PHASES)
    subject, fields = _SUBJECTS.get(judgement.phase.event, ("scoring a micro batch of the rollout", ("rollout.micro",)))
    is_beside_engine = judgement.phase.event in _SUBJECTS
    yield Report(
        f"{subject} {describe_verdict(judgement)}",
        run.find_place(*fields, "model.id"),
        judgement.severity,
        notes=(format_breakdown(judgement.budget), *(_note_one_sided_sleep(run) if is_beside_engine else ())),
        min_certainty=judgement.min_certainty,
        assumed_severity=judgement.assumed_severity,
        find_remedy=partial(_find_remedy, run),
        grounds=judgement.grounds,
        quantity=judgement.quantity,
        left_to="" if step is None or step.verdict == "fits" else "MEM001",  # whose fix covers the rollout too
    )


_SUBJECTS: Final[dict[str, tuple[str, tuple[Field, ...]]]] = {
    GENERATION: ("generation alongside the training states", ("rollout.utilization", "rollout.engine")),
    SYNC: ("sending new weights to the awake engine", ("rollout.gathers", "rollout.tensor", "rollout.engine")),
}
"""For events beside the awake engine, the subject of the finding and the fields that decide its place."""


def _note_one_sided_sleep(run: Run) -> tuple[str, ...]:
    """Return a note if only the engine sleeps although the training states could sleep too."""
    rollout = run.plan.rollout
    if not rollout.sleep or rollout.train_sleep or run.plan.parallel.offload_optimizer == "cpu":
        return ()
    has_key = run.find_owner("rollout.train_sleep") is not None
    condition = f" unless `{run.spell_key('rollout.train_sleep')}` is on" if has_key else ""
    return (
        f"only the engine sleeps (`{run.spell_key('rollout.sleep')}`); the training states stay on the GPU during "
        f"generation{condition}",
    )


def _find_remedy(run: Run) -> tuple[Fix | None, str | None]:
    """Return the smallest change with which step and rollout fit, else a description of the hardware that they need."""
    if run.is_scenario:
        return None, None
    from cfglint_train.fitting.smallest import find_smallest_for  # imports the fixer, needed only if something is wrong

    solution = find_smallest_for(run, (*STEP_PHASES, ROLLOUT_PHASE))
    if solution is not None:
        return solution.fix, None
    from cfglint_train.fitting.hardware_needed import find_hardware_needed

    hardware = find_hardware_needed(run)
    return None, hardware.description if hardware else None
