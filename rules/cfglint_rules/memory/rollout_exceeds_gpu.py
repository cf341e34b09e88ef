"""MEM007 rollout-exceeds-gpu: the training step fits a GPU, and the rollout beside the training states does not.

## What it does
Estimates generation, and the passes that score what was generated, on GPUs that training and the inference engine
share, and compares them with the GPU's memory. Where the training step does not fit either, MEM001 reports that alone.

## Why is this bad?
An engine is sized on an empty GPU: it takes its share of the whole card and does not see what training holds of it.
The job loads, and dies of CUDA out of memory when the engine wakes up. Often only one side sleeps: the engine leaves
the GPU while the model trains, and the training states stay there while the engine generates.

## Example
    # cfglint: gpu=H100
    --train.colocate_all --vllm.enable_sleep --vllm.gpu_memory_utilization 0.8

## Use instead
    --train.colocate_all --vllm.enable_sleep --ds.enable_sleep --vllm.gpu_memory_utilization 0.8

## Fix safety
Unsafe, in general: a smaller share generates fewer sequences at a time, and states that sleep go to the host and back
in each iteration. Smaller batches of the passes that only score are safe.

## When it does not apply
Silent for engines on GPUs of their own, and for engines whose share is unknown. What is merely tight is reported on a
stated GPU only.

## References
OpenRLHF 0.11.2 `trainer/ray/vllm_engine.py`, `trainer/ppo_trainer.py`; TideDra/lmm-r1#43; docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import ROLLOUT, STEP, breakdown, judge, outcome
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM007", "rollout-exceeds-gpu", "error", fix="safe", estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """One report where only the rollout does not fit, or is tight on a stated GPU."""
    judgement = judge(run, "gpu", (ROLLOUT,))
    if judgement is None or judgement.verdict == "fits":
        return
    step = judge(run, "gpu", STEP)
    if step is None or step.verdict != "fits":
        return  # MEM001's fix holds the rollout, too
    generates = judgement.phase.event == "generation"
    what = "generation beside the training states" if generates else "scoring a micro batch of the rollout"
    yield Report(
        f"{what} {outcome(judgement)}",
        run.place(*(("rollout.utilization", "rollout.engine") if generates else ("rollout.micro",)), "model.id"),
        judgement.severity,
        notes=(breakdown(judgement.budget), *(_one_side(run) if generates else ())),
        minimum=judgement.minimum,
        remedy=partial(_remedy, run),
        grounds=judgement.grounds,
    )


def _one_side(run: Run) -> tuple[str, ...]:
    """That the engine sleeps and training does not, where it could."""
    rollout = run.plan.rollout
    if not rollout.sleep or rollout.train_sleep or run.plan.parallel.offload_optimizer == "cpu":
        return ()
    return (
        f"only the engine sleeps ({run.spell('rollout.sleep')}); the training states stay on the GPU during "
        f"generation unless {run.spell('rollout.train_sleep')} is on",
    )


def _remedy(run: Run) -> tuple[Fix | None, str | None]:
    """The smallest change with which step and rollout fit, or what would hold them."""
    if run.is_corner:
        return None, None
    from cfglint_train.fitting.smallest import smallest_of  # with the fixer, and only where something is wrong

    solution = smallest_of(run, (*STEP, ROLLOUT))
    if solution is not None:
        return solution.fix, None
    from cfglint_train.fitting.hardware_needed import holding

    held = holding(run)
    return None, held.words if held else None
