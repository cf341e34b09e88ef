"""What the Python API hands out: plain, typed, frozen values that no later release takes away.

They mirror the JSON reports field by field, and are made from them, so that one place decides what is shown and what is
masked. Only the API imports this module: `dataclasses` takes longer to import than a file takes to lint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.fitting.ladder import Ladder
from cfglint_train.fixing.loop import Fixed
from cfglint_train.foundation.redact import redaction
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import Resource, Verdict
from cfglint_train.plan.certainty import Certainty
from cfglint_train.reports import estimate, fit, json
from cfglint_train.reports.escape import plain
from cfglint_train.runs.run import Run


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of a file, and the text that replaces it. Lines and columns count from 1; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What would settle a finding. Without edits it is advice: nothing can write it, and the message says why."""

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class RelatedPlace:
    """A further place of a finding. Lines and columns count from 1; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str


@dataclass(frozen=True, slots=True)
class Ground:
    """A fact that a finding rests on: a plan field, a fact about the hardware or a package, with its grade."""

    fact: str
    value: str | float | bool | None
    grade: Certainty
    note: str
    """Where it comes from, or how to state it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's statement about a place. Lines and columns (in characters) count from 1; the end is exclusive."""

    code: str
    name: str
    severity: Severity
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    """The headline."""
    help: str | None
    """What to do."""
    notes: tuple[str, ...]
    related: tuple[RelatedPlace, ...]
    certainty: Certainty
    """The lowest grade among the facts of `rests_on`."""
    rests_on: tuple[Ground, ...]
    fix: Fix | None


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A configuration: its framework and what it is to a run."""

    path: str
    framework: str
    role: Literal["main", "companion"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that kept cfglint from its work; `rule` is the code of the rule that crashed."""

    path: str
    line: int | None
    column: int | None
    rule: str | None
    message: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is no configuration, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnsupportedFiles:
    """Files that look like those of a tool that cfglint does not support."""

    framework: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was made, and the files that it changed."""

    path: str
    code: str
    message: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A fix that could not be made, and why."""

    path: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A run whose memory could not be checked: the setting that is missing, by path and line, and the remedy."""

    path: str
    line: int
    message: str
    help: str | None


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a budget: its bytes, how they come about, and the ids of the evidence."""

    name: str
    bytes: int
    formula: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """A peak in bytes: `expected` is the sum of the components, the truth is expected in `low`..`high`."""

    expected: int
    low: int
    high: int
    capacity: int | None
    """The capacity; None if unstated."""
    verdict: Verdict | None
    rests_on: tuple[str, ...]
    """Published rows of comparable jobs, whose residuals bound the interval of a GPU."""
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run (load, forward, backward, ...), for its worst rank and its worst host."""

    name: str
    event: str
    """The moment of the peak, in words."""
    gpu: Budget | None
    host: Budget | None
    disk: Budget | None


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a run, where the catalogue or a folder has it."""

    id: str
    parameters: int


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The memory budget of one run."""

    path: str
    framework: str
    release: str | None
    model: Model | None
    nodes: int | None
    gpus_per_node: int | None
    gpu: str | None
    phases: tuple[Phase, ...]
    missing: tuple[str, ...]
    """Plan fields (or `model`) without which a phase could not be computed."""
    not_checked: NotChecked | None
    """Why no training step was estimated; None where one was."""
    assumptions: tuple[str, ...]
    """The assumptions, each with the way to state the fact."""
    assumed: tuple[str, ...]
    """The facts that no file states: `gpu`, `model`, `fork`, plan fields."""
    not_counted: tuple[str, ...]
    """Misspelt keys that are left out, each with what it may be meant to be."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a run needs of its hosts or its disk, where their size is stated. Sizes are bytes."""

    place: Resource
    phase: str
    expected: int
    low: int
    high: int
    capacity: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rung:
    """One change of a run by itself. Sizes are bytes."""

    name: str
    settings: tuple[str, ...]
    """`micro_batch_size: 16 -> 2`, one for each setting."""
    place: Resource
    """Where it saves memory: on the GPU, else where room is lacking."""
    saved: int
    after: int
    """The highest expected peak there with it."""
    slowdown: float
    """The factor on the time of a step."""
    basis: Literal["measured", "derived", "rough"]
    """How well the slowdown is known."""
    source: str
    gives_up: str
    safe: bool
    """Loss, data and resuming stay as they are."""
    chosen: bool
    """It is part of the change that is proposed."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The change with which a run fits. Sizes are bytes."""

    applicability: Applicability
    settings: tuple[str, ...]
    expected: int
    low: int
    high: int
    verdict: Verdict
    slowdown: float
    elsewhere: tuple[Room, ...] = ()
    """The host and the disk afterwards, where they lack room before."""
    files: tuple[str, ...] = ()
    """The paths of the files that it changes, companions among them; none where it cannot be written."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What would hold a run that no change of its files makes fit."""

    need: int
    """Bytes of one GPU."""
    nodes: int | None
    gpus: int | None
    gpu: str | None
    settings: tuple[str, ...]
    """The changes with which that holds it."""
    beside: Mapping[Resource, int]
    """What is needed of a host and of the disk, where they lack room on the nodes that there are."""


@dataclass(frozen=True, slots=True)
class RunFit:
    """What one run needs, the changes that lower that, and the one that is proposed. Sizes are bytes."""

    path: str
    framework: str
    phase: str | None
    """The phase that needs most of a GPU; None where the run is not estimated."""
    expected: int | None
    low: int | None
    high: int | None
    capacity: int | None
    verdict: Verdict | None
    elsewhere: tuple[Room, ...]
    """Its hosts and its disk, where their size is stated."""
    rungs: tuple[Rung, ...]
    solution: Solution | None
    """None where it fits as it is, or where nothing makes it fit."""
    holding: Holding | None
    offload: str | None
    """What moving the optimizer to a host would do whose memory is not stated, where no smaller change is enough."""
    largest: int | None
    """The largest value of the size that was asked for; 0 where not even 1 fits."""
    assumptions: tuple[str, ...]


def findings(result: Result) -> tuple[Finding, ...]:
    """The findings of a lint."""
    return tuple(_finding(one) for one in json.document(result)["findings"])


def _finding(one: dict[str, Any]) -> Finding:
    return Finding(
        **{
            **one,
            "notes": tuple(one["notes"]),
            "related": tuple(RelatedPlace(**place) for place in one["related"]),
            "rests_on": tuple(Ground(**ground) for ground in one["rests_on"]),
            "fix": None if one["fix"] is None else _fix(one["fix"]),
        }
    )


def _fix(one: dict[str, Any]) -> Fix:
    return Fix(one["applicability"], one["message"], tuple(Edit(**edit) for edit in one["edits"]))


def files(result: Result) -> tuple[CheckedFile, ...]:
    """The configurations of a lint."""
    return tuple(CheckedFile(**one) for one in json.document(result)["files"])


def failures(result: Result) -> tuple[Failure, ...]:
    """What kept a lint from its work."""
    return tuple(Failure(**one) for one in json.document(result)["errors"])


def not_checked(result: Result) -> tuple[NotChecked, ...]:
    """The runs of a lint whose memory could not be checked."""
    return tuple(NotChecked(**one) for one in json.document(result)["not_checked"])


def unsupported(result: Result) -> tuple[UnsupportedFiles, ...]:
    """The files of a lint that look like those of tools that are not supported, by tool."""
    found = json.document(result)["unsupported"]
    return tuple(UnsupportedFiles(one["framework"], tuple(one["paths"])) for one in found)


def skipped(result: Result) -> tuple[SkippedFile, ...]:
    """The files that a lint left out."""
    return tuple(SkippedFile(plain(one.path), plain(one.reason)) for one in result.skipped)


def applied(fixed: Fixed) -> tuple[Applied, ...]:
    """The fixes that were made."""
    redact = redaction(fixed.result.secrets)
    return tuple(
        Applied(plain(one.path), one.code, plain(redact(one.message)), tuple(map(plain, sorted(one.files))))
        for one in fixed.applied
    )


def refused(fixed: Fixed) -> tuple[Refused, ...]:
    """The fixes that could not be made."""
    redact = redaction(fixed.result.secrets)
    return tuple(Refused(plain(one.path), one.code, plain(redact(one.reason))) for one in fixed.refused)


def run_estimate(run: Run) -> RunEstimate:
    """The budget of a run."""
    one = estimate.document([run])["runs"][0]
    return RunEstimate(
        **{
            **one,
            "model": None if one["model"] is None else Model(**one["model"]),
            "phases": tuple(_phase(phase) for phase in one["phases"]),
            "missing": tuple(one["missing"]),
            "not_checked": None if one["not_checked"] is None else NotChecked(**one["not_checked"]),
            "assumptions": tuple(one["assumptions"]),
            "assumed": tuple(one["assumed"]),
            "not_counted": tuple(one["not_counted"]),
        }
    )


def run_fits(ladders: tuple[Ladder, ...]) -> tuple[RunFit, ...]:
    """The ladders of runs."""
    return tuple(_run_fit(one) for one in fit.document(ladders)["runs"])


def _run_fit(one: dict[str, Any]) -> RunFit:
    solution, holding = one["solution"], one["holding"]
    return RunFit(
        **{
            **one,
            "elsewhere": tuple(Room(**room) for room in one["elsewhere"]),
            "rungs": tuple(Rung(**{**rung, "settings": tuple(rung["settings"])}) for rung in one["rungs"]),
            "solution": solution and _solution(solution),
            "holding": holding and Holding(**{**holding, "settings": tuple(holding["settings"])}),
            "assumptions": tuple(one["assumptions"]),
        }
    )


def _solution(one: dict[str, Any]) -> Solution:
    rooms = tuple(Room(**room) for room in one["elsewhere"])
    files, settings = tuple(one["files"]), tuple(one["settings"])
    return Solution(**{**one, "settings": settings, "files": files, "elsewhere": rooms})


def _phase(one: dict[str, Any]) -> Phase:
    return Phase(one["name"], one["event"], *(None if one[place] is None else _budget(one[place]) for place in _PLACES))


_PLACES = ("gpu", "host", "disk")


def _budget(one: dict[str, Any]) -> Budget:
    parts = tuple(_component(part) for part in one["components"])
    return Budget(**{**one, "rests_on": tuple(one["rests_on"]), "components": parts})


def _component(one: dict[str, Any]) -> Component:
    return Component(**{**one, "evidence": tuple(one["evidence"])})
