"""HST001 host-memory-exceeded: training needs more host memory than a node has.

## What it does
Compares the host's peak memory during loading, training and resuming with the memory of a node. The peak includes
offloaded states of every model with their pinned buffers, and weights that every rank loads. It also includes data
workers with their batches, sleeping inference engines, and states read on resume. CKP003 covers saving.

## Why is this bad?
The kernel or Ray kills a process (exit code -9), and the training log does not give the reason. Offloading moves 16 to
20 bytes per parameter to the host. Pinned buffers are rounded up to powers of two.

## Symptoms
Host out of memory, CPU RAM, OOM killer, killed by SIGKILL, exit code -9, exit code 137.

## Example
    # cfglint: host-memory=1TB
    deepspeed: zero3_bf16_cpuoffload_all.json        # 70B: 18 bytes x 70.6e9 = 1.27 TB on one node

## Use instead
Use more nodes, use smaller states (LoRA, or 8-bit states without offload), or do not offload parameters.

The help suggests more nodes, fewer ranks or fewer workers only if that lowers this run's peak. For example, fewer ranks
per node do not shrink offloaded and sharded states if the number of nodes stays the same.

To resume from a full state dict under FSDP, rank 0 reads all optimizer states, and under FSDP1 each rank reads all
weights. A sharded state dict is read in parts. Checkpoints that exist already keep their kind.

## Fix safety
Safe: if FSDP loads the model on each rank (`cpu_ram_efficient_loading: false`), the fix lets one rank per node read it
and send it to the others. It is offered only if the run then fits. Unsafe if `sync_module_states: false` is stated,
which the fix must override.

## When it does not apply
Silent unless the host memory is stated. If it is not, CHK002 reports how much a run with offloading needs. Resuming
counts only if the run is set to resume, not if the framework looks for a checkpoint by default. If host memory is tight
only because of too many data workers, HST002 reports it.

## References
docs/memory/host.md; axolotl #1439; OpenRLHF #171, #1013; torch 2.13 `CachingHostAllocator.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_rules.host.workers import has_too_many_workers, is_caused_by_workers
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import (
    ROLLOUT_PHASE,
    Judgement,
    describe_verdict,
    format_breakdown,
    judge,
    list_host_phases,
)
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.memory.components import OFFLOADED
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "HST001",
    "host-memory-exceeded",
    "error",
    fix="safe",
    writes=("parallel.cpu_efficient_loading",),
    estimates=("host",),
    capacities=("host",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if loading, training or resuming does not fit in host memory or is tight."""
    judgement = judge(run, "host", list_host_phases(run))
    if judgement is None or judgement.verdict == "fits":
        return
    is_left = judgement.verdict != "does not fit" and has_too_many_workers(run) and is_caused_by_workers(judgement)
    yield Report(
        f"{judgement.phase.title} {describe_verdict(judgement)}",
        run.find_place(*_list_causes(judgement)),
        judgement.severity,
        notes=(format_breakdown(judgement.budget), *_explain_loading(judgement)),
        find_remedy=partial(_find_remedy, judgement),
        min_certainty=judgement.min_certainty,
        assumed_severity=judgement.assumed_severity,
        grounds=judgement.grounds,
        quantity=judgement.quantity,
        left_to="HST002" if is_left else "",
    )


_CAUSES: Final[tuple[Field, ...]] = (
    "parallel.offload_optimizer",
    "parallel.offload_params",
    "rollout.sleep",
    "data.workers",
    "model.id",
)


def _list_causes(judgement: Judgement) -> tuple[Field, ...]:
    """Return the fields that decide how much memory the phase needs, the most important first."""
    if _is_loaded_by_every_rank(judgement):
        return ("parallel.cpu_efficient_loading", *_CAUSES)
    return (
        ("checkpoint.state_dict", *_CAUSES) if reads_full_state_dict(judgement.run, judgement.phase.name) else _CAUSES
    )


def _is_loaded_by_every_rank(judgement: Judgement) -> bool:
    """Return whether the model is loaded and a setting makes every rank read it."""
    return judgement.phase.name == "load" and judgement.run.plan.parallel.cpu_efficient_loading is False


def reads_full_state_dict(run: Run, phase: str) -> bool:
    """Return whether a phase resumes from a full state dict under FSDP."""
    return phase == "resume" and run.plan.parallel.strategy in FSDP and run.plan.checkpoint.state_dict == "full"


def suggest_sharded(run: Run) -> str:
    """Return the remedy for a resume from a full state dict, with the key of a file of the run if one has it."""
    field: Field = "checkpoint.state_dict"
    owner = run.find_owner(field)
    has_key = owner is not None and bool(owner[1].keys[field])
    setting = f"`{run.spell_key(field)}: SHARDED_STATE_DICT`" if has_key else "SHARDED_STATE_DICT"
    return f"save with {setting}, which is read in parts"


def _find_remedy(judgement: Judgement) -> tuple[Fix | None, str]:
    """Return the fix and the help for the phase."""
    fix = _build_loading_fix(judgement)
    return fix, _build_help(judgement, fix)


def _build_loading_fix(judgement: Judgement) -> Fix | None:
    """Return the fix that lets one rank per node read the model, or None if the phase still does not fit with it."""
    if not _is_loaded_by_every_rank(judgement):
        return None
    run = judgement.run
    changes: dict[Field, Any] = {"parallel.cpu_efficient_loading": True}
    after = judge(run.replace_fields(changes), "host", list_host_phases(run))
    if after is None or after.verdict != "fits":
        return None
    overrides_broadcast = run.plan.parallel.broadcasts_weights is False and run.is_stated("parallel.broadcasts_weights")
    return Fix("unsafe" if overrides_broadcast else "safe", format_changes(run, changes), changes)


def _explain_loading(judgement: Judgement) -> tuple[str, ...]:
    """Return a note on why every rank loads the model into host memory, or an empty tuple if that is not inferred."""
    origin = judgement.run.get_origin("model.init_device")
    return (origin.note,) if origin is not None and origin.kind == "inferred" and judgement.phase.name == "load" else ()


_MAX_REMAINING_SHARE: Final = 0.95
"""Maximum need of the phase after a remedy, as a share of its need before, for the remedy to be suggested."""


def _build_help(judgement: Judgement, fix: Fix | None) -> str:
    """Return the remedies for the phase in addition to the fix.

    A change to the nodes, ranks, workers or a sleep option is suggested only if it lowers the peak enough on its own.
    """
    run, launch = judgement.run, judgement.run.plan.launch
    candidates: list[tuple[str, Field, int]] = [
        ("more nodes", "launch.nodes", 2 * (launch.nodes or 1)),
        ("fewer ranks per node", "launch.gpus_per_node", max(1, (launch.gpus_per_node or 1) // 2)),
        (f"fewer workers (`{run.spell_key('data.workers')}`)", "data.workers", (run.plan.data.workers or 0) // 2),
    ]
    resources = [
        name
        for name, fact, value in candidates
        if _compute_remaining_share(judgement, run.build_scenario({fact: value})) < _MAX_REMAINING_SHARE
    ]
    remedies = [f"use {_join_alternatives(resources)}"] if resources else []
    if fix is None and _is_loaded_by_every_rank(judgement):
        remedies.append(f"let one rank per node load the weights (`{run.spell_key('parallel.cpu_efficient_loading')}`)")
    if reads_full_state_dict(judgement.run, judgement.phase.name):
        remedies.append(suggest_sharded(run))
    if run.plan.model.init_device == "cpu" and judgement.phase.name == "load":
        remedies.append("load the weights directly onto the GPUs")
    if any(size and component in OFFLOADED for component, size in judgement.budget.sizes):
        remedies.append("offload less")
    sleep_options = [
        f"`{run.spell_key(field)}`"
        for field in _SLEEP_FIELDS
        if run.plan.get(field) and _is_better_without(judgement, field)
    ]
    if sleep_options:
        remedies.append(f"disable {_join_alternatives(sleep_options)}")
    return ", or ".join(remedies) or "use hosts with more memory"


def _join_alternatives(names: list[str]) -> str:
    """Join names as `a, b or c`."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


_SLEEP_FIELDS: Final[tuple[Field, ...]] = ("rollout.train_sleep", "rollout.weights_sleep", "rollout.sleep")


def _is_better_without(judgement: Judgement, field: Field) -> bool:
    """Return whether the run needs less host memory without a sleep option and is still expected to fit on the GPUs."""
    run = judgement.run.replace_fields({field: False})
    gpu = judge(run, "gpu", (*STEP_PHASES, ROLLOUT_PHASE))
    return (
        _compute_remaining_share(judgement, run) < _MAX_REMAINING_SHARE
        and gpu is not None
        and gpu.verdict in ("fits", "tight")
    )


def _compute_remaining_share(judgement: Judgement, run: Run) -> float:
    """Return the host memory that the phase needs in `run`, as a share of its need in the judged run.

    Returns 1.0 if `run` has no estimate for the phase.
    """
    phase = run.estimate.find_phase(judgement.phase.name)
    budget = None if phase is None else phase.host
    return 1.0 if budget is None else budget.expected / max(1, judgement.budget.expected)
