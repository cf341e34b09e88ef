"""Summary of a run for the page: plain values that processes can exchange."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.findings.verdicts import describe_own_runs
from cfglint_train.fitting.places import choose_worse
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib, format_parameters
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.booking import find_booking
from cfglint_train.memory.budget import Budget, Phase, Verdict, compute_verdict, rank_budget
from cfglint_train.memory.explanation import explain
from cfglint_train.reports.answer import compare_written, describe_missing, find_gap
from cfglint_train.reports.estimate import (
    format_cluster_size,
    list_assumption_notes,
    list_not_counted,
    mark_assumed,
)
from cfglint_train.runs.run import GPU, Run
from cfglint_train.whatif.grid import Axis
from cfglint_train.whatif.plan_file import StatedPlan

PLACES: Final = ("gpu", "host", "disk")
MIN_LENGTH: Final = 512
"""Shortest sequence length of the grid in tokens, unless the run's own is shorter; below it, memory hardly changes."""


class PhaseSummary(Frozen):
    """The peak of a phase on a resource. Sizes are in bytes."""

    name: str
    title: str
    """Phase as a phrase with its article: `the backward pass`."""
    event: str
    expected: int
    low: int
    high: int
    verdict: Verdict | None
    parts: tuple[tuple[str, int], ...]
    own_runs: str = ""
    """Effect of the user's own runs on the interval, in words; empty if there is none."""


class ResourceSummary(Frozen):
    """The phases on one resource."""

    place: str
    """One of gpu, host and disk."""
    capacity: int | None
    phases: tuple[PhaseSummary, ...]
    worst: int
    """Index of the phase with the worst verdict, or else the highest peak."""
    formulas: tuple[tuple[str, int, str], ...]
    """Components of that peak, largest first: name, bytes, formula."""


class RunSummary(Frozen):
    """The summary of a run."""

    path: str
    facts: tuple[str, ...]
    """Framework, model, cluster and method as text."""
    places: tuple[ResourceSummary, ...]
    axes: tuple[Axis, ...]
    """Axes of the what-if grid (micro batch, sequence length); empty if the run's own values are unknown."""
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]
    not_counted: tuple[str, ...]
    """Misspelled keys that the estimate ignores."""
    corrections: tuple[str, ...] = ()
    """The answers as written and as meant if they differ, else the misspelled keys that count as meant."""
    gaps: tuple[str, ...] = ()
    """The reason why no training step was estimated, with the remedy; empty if one was."""


def summarised(run: Run | StatedPlan) -> RunSummary:
    """Summarize a run (or stated plan), as written or as meant, whichever is worse, as plain values."""
    comparison = tuple([line.strip() for line in compare_written(run)])
    run = choose_worse(run)
    return RunSummary(
        run.main.document.path if isinstance(run, Run) else run.path,
        tuple(_describe_run(run)),
        tuple(_summarize_resources(run)),
        _choose_axes(run) if run.estimate.has_step else (),
        tuple(list_assumption_notes(run)),
        tuple(describe_missing(run)),
        tuple(list_not_counted(run)),
        comparison or (tuple(key.description for key in run.inputs.corrected_keys) if isinstance(run, Run) else ()),
        () if (gap := find_gap(run)) is None else (f"{gap.message}; {gap.help}",),
    )


def _choose_axes(run: Run | StatedPlan) -> tuple[Axis, ...]:
    """Return axes of micro batches and lengths around the run's own values, or nothing if these are unknown."""
    micro, length = run.plan.batch.micro, run.plan.sequence.length
    if not micro or not length:
        return ()
    largest_micro = max(8, 2 * micro)
    micros = {micro, *(2**power for power in range(largest_micro.bit_length()) if 2**power <= largest_micro)}
    shortest = min(MIN_LENGTH, length)
    lengths = {length, *(candidate for power in range(5) if (candidate := length * 2**power // 4) >= shortest)}
    return (
        Axis("micro batch", "batch.micro", tuple(sorted(micros))[-6:]),
        Axis("sequence length", "sequence.length", tuple(sorted(lengths))),
    )


def _describe_run(run: Run | StatedPlan) -> Iterator[str]:
    plan, model = run.plan, run.architecture
    if isinstance(run, Run):
        yield f"{run.framework.title} {run.releases.get(run.framework.name) or ''}".rstrip()
    else:
        yield run.title
    if model is not None:
        yield f"{plan.model.id or model.id}, {format_parameters(model.parameters)} parameters"
    else:
        yield f"{plan.model.id}, not in the catalogue" if plan.model.id else "model not stated"
    nodes, local = format_cluster_size(run, "launch.nodes"), format_cluster_size(run, "launch.gpus_per_node")
    yield f"{nodes} x {local} {run.hardware.gpu or 'GPUs'}{mark_assumed(run, GPU)}"
    if plan.parallel.strategy == "zero":
        yield f"ZeRO stage {plan.parallel.zero_stage}"
    elif plan.parallel.strategy not in (None, "none"):
        yield str(plan.parallel.strategy)
    method = " ".join(filter(None, (plan.method.tuning, plan.method.stage)))
    if method:
        yield method
    booking = find_booking(run.estimate.phases)
    if booking is not None:
        yield f"book at least {format_gib(booking[0])} per GPU"


def _summarize_resources(run: Run | StatedPlan) -> Iterator[ResourceSummary]:
    for resource in PLACES:
        budgets: list[tuple[Phase, Budget]] = [
            (phase, budget) for phase in run.estimate.phases if (budget := getattr(phase, resource)) is not None
        ]
        if not budgets:
            continue
        capacity = run.hardware.get_capacity(resource)
        phases = tuple(
            PhaseSummary(
                phase.name,
                phase.title,
                phase.event,
                budget.expected,
                budget.low,
                budget.high,
                None if capacity is None else compute_verdict(budget, capacity),
                tuple((component.name, size) for component, size in budget.sizes if size),
                describe_own_runs(budget),
            )
            for phase, budget in budgets
        )
        worst = max(range(len(phases)), key=lambda number: rank_budget(budgets[number][1], capacity))
        parts = sorted((part for part in explain(budgets[worst][1]) if part.bytes), key=lambda part: -part.bytes)
        yield ResourceSummary(
            resource, capacity, phases, worst, tuple((part.name, part.bytes, part.formula) for part in parts)
        )
