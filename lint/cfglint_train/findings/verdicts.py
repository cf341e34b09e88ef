"""Verdicts on estimates: the worst phase, whether it fits, and the grounds."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.findings.finding import Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import (
    STEP_PHASES,
    VERDICTS,
    Budget,
    Phase,
    Resource,
    Verdict,
    compute_verdict,
    rank_budget,
)
from cfglint_train.plan.certainty import Certainty, Ground
from cfglint_train.runs.assumptions import SHORT_SAMPLE
from cfglint_train.runs.run import Run

"""Phases of a training step."""
EDGE_PHASES: Final = ("load", "save")
"""Phases before and between the training steps."""
EVALUATION_PHASE: Final = "eval"
ROLLOUT_PHASE: Final = "rollout"
"""Rollout phase of an RL run; it alternates with the training step on the same GPUs, so rules never judge it alone."""
HOST_PHASES: Final = ("load", *STEP_PHASES, ROLLOUT_PHASE)
"""Phases of every run whose host memory is checked, apart from saving, which has rules of its own."""


class Judgement(Frozen):
    """An estimate compared with a capacity."""

    phase: Phase
    budget: Budget
    capacity: int
    verdict: Verdict
    run: Run
    resource: Resource
    phases: tuple[str, ...] | None
    """Names of the phases that were compared, or None for all of them."""

    @property
    def high(self) -> int:
        """Highest upper bound of the compared phases, which may be that of a phase with a lower expected size."""
        compared = (item for item in self.run.estimate.phases if self.phases is None or item.name in self.phases)
        budgets: list[Budget | None] = [getattr(item, self.resource) for item in compared]
        return max(budget.high for budget in budgets if budget is not None)

    @property
    def quantity(self) -> str:
        """Name of the judged quantity; rules that judge the same one report one disease."""
        return name_quantity(self.resource, self.phases)

    @property
    def severity(self) -> Severity:
        """Severity of a report on the estimate.

        Error if even the lower bound exceeds the capacity, info if that depends on the assumption in `grounds` and no
        candidate release makes it true, and warning otherwise.
        """
        if self.verdict != "does not fit":
            return "warning"
        if not self.grounds:
            return "error"
        return "info" if self.run.compute_once(_find_filling_release) is None else "warning"

    @property
    def grounds(self) -> tuple[Ground, ...]:
        """Assumption behind a "does not fit" verdict: every sequence of a batch has the full length.

        Empty for other verdicts, and if the batch does not fit even with a single full-length sequence.
        """
        samples = _count_full_length_samples(self) if self.verdict == "does not fit" else None
        if samples is None:
            return ()
        filling_release = self.run.compute_once(_find_filling_release)
        exception = (
            "if one has it and the others are short, it may fit"
            if filling_release is None
            else f"{self.run.framework.title} {filling_release} and older always fill them"
        )
        batch = "a rank's update" if self.run.plan.batch.tokens_per_gpu else "a batch"
        note = f"all {samples} sequences of {batch} have the full length; {exception}"
        return (Ground("sequence.length", self.run.plan.sequence.length, "assumed", note),)

    @property
    def min_certainty(self) -> Certainty:
        """Lowest certainty of the facts at which the verdict is reported: a tight fit only if nothing is assumed."""
        return "followed" if self.verdict == "tight" else "assumed"

    @property
    def assumed_severity(self) -> Severity | None:
        """Severity of a report on the estimate that rests on an assumption, or None for `severity`."""
        return "info" if self.verdict == "probably does not fit" else None


def name_quantity(resource: Resource, phases: Iterable[str] | None = None) -> str:
    """Return the name of the quantity that `judge` compares with a capacity."""
    return f"{resource}: {', '.join(phases or ('all phases',))}"


def judge(run: Run, resource: Resource, phases: Iterable[str] | None = None) -> Judgement | None:
    """Return the verdict on the worst of `phases` (default: all phases).

    Return None if no phase is estimated, or if the capacity of `resource` is unknown: the host's memory and disk are
    often not stated. The verdict is computed once and shared by all rules. The returned verdict
    refers to the caller's `run`, which records the fields that the calling rule reads.
    """
    key = (resource, tuple(phases) if phases is not None else None)
    judgements = run.verdicts
    if key not in judgements:
        judgements[key] = _judge_worst_phase(run, resource, key[1])
    judgement: Judgement | None = judgements[key]
    return None if judgement is None else judgement._replace(run=run)


def _judge_worst_phase(run: Run, resource: Resource, phase_names: tuple[str, ...] | None) -> Judgement | None:
    capacity = run.hardware.get_capacity(resource)
    if capacity is None:  # checked before the run is estimated, because the host's memory is often not stated
        return None
    budgets = [
        (phase, budget)
        for phase in run.estimate.phases
        if (phase_names is None or phase.name in phase_names) and (budget := getattr(phase, resource)) is not None
    ]
    if not budgets:
        return None
    phase, budget = max(budgets, key=lambda pair: rank_budget(pair[1], capacity))
    return Judgement(phase, budget, capacity, compute_verdict(budget, capacity), run, resource, phase_names)


def list_host_phases(run: Run) -> tuple[str, ...]:
    """Return the phases of a run whose host memory is checked.

    Resuming counts only if it is requested. Otherwise the run is not expected to find an earlier checkpoint.
    """
    return (*HOST_PHASES, "resume") if run.resumes else HOST_PHASES


def find_worse_evaluation(run: Run) -> Judgement | None:
    """Return the verdict on the evaluation if it is worse than the verdict on the training step.

    Return None if it is not worse, or if either is not estimated.
    """
    judgement, step = judge(run, "gpu", (EVALUATION_PHASE,)), judge(run, "gpu", STEP_PHASES)
    if judgement is None or step is None:
        return None
    return judgement if VERDICTS.index(judgement.verdict) > VERDICTS.index(step.verdict) else None


def describe_verdict(judgement: Judgement) -> str:
    """Return the verdict with its sizes: `probably does not fit: 83.2 GiB expected (79.4 to 88.8), ...`."""
    budget, location = judgement.budget, _LOCATIONS[judgement.resource]
    words = "is tight" if judgement.verdict == "tight" else judgement.verdict
    return f"{words} {location}: {format_size(budget, ' expected')}, {format_gib(judgement.capacity)} available"


_LOCATIONS: Final = {"gpu": "on one GPU", "host": "on one host", "disk": "on the disk"}


def format_breakdown(budget: Budget, limit: int = 4) -> str:
    """Return the largest components: `states 73.2 GiB, optimizer step transients 7.5 GiB, ...`.

    Weights, optimizer state and other state kept between steps are added up as `states`, because they are sharded and
    offloaded together.
    """
    sizes: dict[str, int] = {}
    for component, size in budget.sizes:
        name = "states" if component.state else component.name
        sizes[name] = sizes.get(name, 0) + size
    parts = sorted((size, name) for name, size in sizes.items() if size > 0)[::-1]
    shown = [f"{name} {format_gib(size)}" for size, name in parts[:limit]]
    rest = sum(size for size, _ in parts[limit:])
    return ", ".join([*shown, f"other {format_gib(rest)}"] if rest else shown)


def format_size(budget: Budget, suffix: str = "") -> str:
    """Return the expected size with its interval: `73.2 GiB (70.1 to 79.8)`."""
    return f"{format_gib(budget.expected)}{suffix}{format_interval(budget.low, budget.high)}"


def format_interval(lowest: int, highest: int) -> str:
    """Return ` (70.1 to 79.8)`, or an empty string if both ends are the same."""
    low, high = (f"{size / 2**30:.1f}" for size in (lowest, highest))
    return f" ({low} to {high})" if low != high else ""


def describe_own_runs(budget: Budget) -> str:
    """Return the effect of the user's own runs on the interval, `narrowed by 3 of your runs`, or an empty string."""
    if budget.own_runs is None:
        return ""
    return describe_effects(budget.own_runs.narrowed, budget.own_runs.widened)


def describe_effects(narrowed: int, widened: int) -> str:
    """Return the numbers of the user's runs that narrowed and widened an interval: `narrowed by 3 of your runs`."""
    effects = (("narrowed", narrowed), ("widened", widened))
    return f"{' and '.join(f'{effect} by {count}' for effect, count in effects if count)} of your runs"


def _find_filling_release(run: Run) -> str | None:
    """Return the newest candidate release that fills all packs to the full length, or None if no candidate does.

    A token budget is filled only as far as a rank has sequences.
    """
    if run.plan.batch.tokens_per_gpu:
        return None
    package, fills_packs = run.framework.manifest.package, run.framework.traits.fills_packs
    candidates = run.main.releases.find_candidates(package).releases
    return next((item for item in reversed(candidates) if fills_packs(run.main.replace_release(package, item))), None)


def _count_full_length_samples(judgement: Judgement) -> int | None:
    """Return the number of samples if a packed batch does not fit only because all of them have the full length.

    Return None otherwise. A packed batch with a single full-length sample may fit. A padded batch is as long as its
    longest sample, so a single full-length sample decides.
    """
    run = judgement.run
    plan = run.plan
    length, packs = plan.sequence.length, plan.sequence.packing
    samples, budget = plan.batch.micro, plan.batch.tokens_per_gpu
    if judgement.phase.name == EVALUATION_PHASE:
        samples, packs = plan.batch.eval_micro, packs and plan.sequence.eval_packing is not False
    elif judgement.phase.name == "rollout":
        samples, budget = plan.rollout.micro, plan.rollout.tokens_per_gpu
    elif budget:
        sequences, ranks = plan.batch.global_, plan.world_size
        samples = sequences * (plan.parallel.context or 1) // ranks if sequences and ranks else None
    if budget and length is not None and length >= budget:
        return None
    is_packed = packs and (bool(budget) or not run.framework.traits.fills_packs(run.main))
    if not is_packed or length is None or samples is None or samples < 2 or length <= SHORT_SAMPLE:
        return None
    mean_length = (length + (samples - 1) * SHORT_SAMPLE) // samples
    milder = judge(run.build_scenario({"sequence.length": mean_length}), judgement.resource, (judgement.phase.name,))
    return None if milder is not None and milder.verdict == "does not fit" else samples
