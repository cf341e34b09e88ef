"""From an estimate to a verdict: which phase decides, whether it fits, and what the answer rests on."""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.findings.finding import Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import VERDICTS, Budget, Phase, Resource, Verdict, compute_verdict
from cfglint_train.plan.certainty import Certainty, Ground
from cfglint_train.runs.assumptions import SHORT_SAMPLE
from cfglint_train.runs.run import Run

STEP_PHASES: Final = ("forward", "backward", "optimizer step")
"""The phases of a training step."""
EVALUATION_PHASE: Final = "eval"
ROLLOUT_PHASE: Final = "rollout"
"""It takes turns with the training step, on the same GPUs, and no rule looks at it by itself."""


class Judgement(Frozen):
    """An estimate compared with a capacity."""

    phase: Phase
    budget: Budget
    capacity: int
    verdict: Verdict
    run: Run
    resource: Resource

    @property
    def severity(self) -> Severity:
        """An error where the lower bound exceeds the capacity. Information where it does so only on the premise that
        `grounds` names.
        """
        if self.verdict != "does not fit":
            return "warning"
        return "info" if self.grounds else "error"

    @property
    def grounds(self) -> tuple[Ground, ...]:
        """What a verdict of "does not fit" takes for granted of the data, where it would fall without: that every
        sequence of a micro batch has the full length. That one has it, and the others are short, may be assumed.
        """
        samples = _count_full_length_samples(self) if self.verdict == "does not fit" else None
        if samples is None:
            return ()
        note = (
            f"all {samples} sequences of a batch have the full length; if one has it and the others are short, it may "
            "fit"
        )
        return (Ground("sequence.length", self.run.plan.sequence.length, "assumed", note),)

    @property
    def min_certainty(self) -> Certainty:
        """The grade of facts from which on it is reported: what may fit needs known facts."""
        return "assumed" if self.verdict == "does not fit" else "followed"


def judge(run: Run, resource: Resource, phases: Iterable[str] | None = None) -> Judgement | None:
    """The verdict on the worst of the phases (all of them by default).

    None where nothing could be estimated, or where the host's memory or the disk is not stated. It is worked out once
    for all rules, of what no rule reads itself; what follows from it is read of the run of the rule that asks.
    """
    key = (resource, tuple(phases) if phases is not None else None)
    judgements = run.verdicts
    if key not in judgements:
        judgements[key] = _judge_worst_phase(run, resource, key[1])
    judgement: Judgement | None = judgements[key]
    return None if judgement is None else judgement._replace(run=run)


def _judge_worst_phase(run: Run, resource: Resource, phase_names: tuple[str, ...] | None) -> Judgement | None:
    capacity = run.hardware.get_capacity(resource)
    if capacity is None:  # before the run is estimated: the host's memory is often not stated
        return None
    budgets = [
        (phase, budget)
        for phase in run.estimate.phases
        if (phase_names is None or phase.name in phase_names) and (budget := getattr(phase, resource)) is not None
    ]
    if not budgets:
        return None
    phase, budget = max(budgets, key=lambda pair: (pair[1].low > capacity, pair[1].high > capacity, pair[1].expected))
    return Judgement(phase, budget, capacity, compute_verdict(budget, capacity), run, resource)


def find_worse_evaluation(run: Run) -> Judgement | None:
    """The verdict on an evaluation, where it is worse than that on the training step; None where it is not, and where
    either is not estimated.
    """
    judgement, step = judge(run, "gpu", (EVALUATION_PHASE,)), judge(run, "gpu", STEP_PHASES)
    if judgement is None or step is None:
        return None
    return judgement if VERDICTS.index(judgement.verdict) > VERDICTS.index(step.verdict) else None


def describe_verdict(judgement: Judgement) -> str:
    """What the verdict is and the sizes: `probably does not fit: 83.2 GiB expected (79.4 to 88.8), ...`."""
    budget, location = judgement.budget, _LOCATIONS[judgement.resource]
    words = "is tight" if judgement.verdict == "tight" else judgement.verdict
    return f"{words} {location}: {format_size(budget, ' expected')}, {format_gib(judgement.capacity)} available"


_LOCATIONS: Final = {"gpu": "on one GPU", "host": "on one host", "disk": "on the disk"}


def format_breakdown(budget: Budget, limit: int = 4) -> str:
    """The largest components in words: `states 73.2 GiB, optimizer step transients 7.5 GiB, ...`.

    What is kept from step to step counts as one: it is sharded and offloaded together.
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
    """The expected size with its interval: `73.2 GiB (70.1 to 79.8)`."""
    return f"{format_gib(budget.expected)}{suffix}{format_interval(budget)}"


def format_interval(budget: Budget) -> str:
    """Return ` (70.1 to 79.8)`, or nothing if both ends are the same."""
    low, high = (f"{size / 2**30:.1f}" for size in (budget.low, budget.high))
    return f" ({low} to {high})" if low != high else ""


def _count_full_length_samples(judgement: Judgement) -> int | None:
    """The sequences of a batch, where it does not fit only if all of them have the full length: where samples are put
    end to end, and it may fit with one such and short ones behind it. Else None.

    A padded batch is as long as its longest sample: there one is enough.
    """
    run = judgement.run
    plan = run.plan
    length, samples, packs = plan.sequence.length, plan.batch.micro, plan.sequence.packing
    if judgement.phase.name == EVALUATION_PHASE:
        samples, packs = plan.batch.eval_micro, packs and plan.sequence.eval_packing is not False
    is_packed = packs and not run.framework.traits.fills_packs(run.main) and not plan.batch.tokens_per_gpu
    if not is_packed or length is None or samples is None or samples < 2 or length <= SHORT_SAMPLE:
        return None
    mean_length = (length + (samples - 1) * SHORT_SAMPLE) // samples
    milder = judge(run.build_scenario({"sequence.length": mean_length}), judgement.resource, (judgement.phase.name,))
    return None if milder is not None and milder.verdict == "does not fit" else samples
