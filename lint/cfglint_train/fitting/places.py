"""Room for a run on its GPUs, host and disk, if their capacity is stated or assumed."""

from __future__ import annotations

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.budget import VERDICTS, Phase, Resource
from cfglint_train.runs.run import Run

PLACES: Final[tuple[Resource, ...]] = ("gpu", "host", "disk")


def list_phases(run: Run) -> tuple[str, ...]:
    """Return the names of a run's phases, without `resume` unless the settings require resuming."""
    return tuple(phase.name for phase in run.estimate.phases if phase.name != "resume" or run.resumes)


def judge_place(run: Run, place: Resource) -> Judgement | None:
    """Return the verdict on the worst phase at `place`, or None if its capacity is unknown or nothing is estimated."""
    if run.hardware.get_capacity(place) is None:
        return None
    return judge(run, place, None if place == "gpu" else list_phases(run))


def is_lacking_room(judgement: Judgement) -> bool:
    """Return whether the expected size exceeds the capacity."""
    return judgement.budget.expected > judgement.capacity


def judge_host_and_disk(run: Run) -> tuple[Judgement, ...]:
    """Return the verdicts on the host and the disk, without those whose capacity is unknown."""
    return tuple(judgement for place in PLACES[1:] if (judgement := judge_place(run, place)) is not None)


def list_lacking(run: Run) -> tuple[Judgement, ...]:
    """Return the verdicts on the host and the disk, limited to places that are expected to lack room."""
    return tuple(filter(is_lacking_room, judge_host_and_disk(run)))


def fits(run: Run) -> bool:
    """Return whether the upper bound of every phase fits on the GPU, and on the host and the disk if known."""
    gpu = judge_place(run, "gpu")
    return gpu is not None and all(item.verdict == "fits" for item in (gpu, *judge_host_and_disk(run)))


def has_room(run: Run) -> bool:
    """Return whether every phase is expected to fit on the GPU, and on the host and the disk if their size is known."""
    gpu = judge_place(run, "gpu")
    return gpu is not None and not is_lacking_room(gpu) and not list_lacking(run)


def has_room_elsewhere(after: Run, before: Run) -> bool:
    """Return whether host and disk have room for the changed run, or at least lack no more than before."""
    expected_before = {judgement.resource: judgement.budget.expected for judgement in list_lacking(before)}
    return all(
        judgement.budget.expected <= expected_before.get(judgement.resource, 0) for judgement in list_lacking(after)
    )


def find_worst(run: Any) -> Judgement | None:
    """Return the worst judgement among GPU, host and disk, or None if no training step was estimated on the GPU."""
    gpu = judge_place(run, "gpu") if run.estimate.has_step else None
    if gpu is None:
        return None
    return max((gpu, *judge_host_and_disk(run)), key=lambda judgement: VERDICTS.index(judgement.verdict))


def find_corrected(run: Any) -> Run | None:
    """Return the run in which misspelled keys count as corrected, or None if that changes no verdict or size."""
    corrected = run.corrected if isinstance(run, Run) else None
    if corrected is None or not corrected.inputs.corrected_keys:
        return None
    needs, corrected_needs = ([*map(_list_needs, item.estimate.phases)] for item in (run, corrected))
    return corrected if needs != corrected_needs else None


def _list_needs(phase: Phase) -> tuple[object, ...]:
    return phase.name, *(budget and (budget.expected, budget.low) for budget in (phase.gpu, phase.host, phase.disk))


def choose_worse(run: Any) -> Any:
    """Return the run (or stated plan) as written or as corrected, whichever has the worse verdict or higher need.

    If both are the same, return the corrected run.
    """
    corrected = run.corrected if isinstance(run, Run) else None
    if corrected is None or corrected is run:
        return run
    candidates = [(worst, item) for item in (corrected, run) if (worst := find_worst(item)) is not None]
    if not candidates:
        return corrected
    return max(candidates, key=lambda pair: (VERDICTS.index(pair[0].verdict), pair[0].budget.expected))[1]
