"""The records of the JSON reports, which the Python API returns: plain, typed, frozen values.

The reports make them, mask the credentials in their texts, and print them field by field. No later release removes a
field.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.fitting.moves import Basis
from cfglint_train.foundation.frozen import dataclass
from cfglint_train.memory.budget import Resource, Verdict
from cfglint_train.plan.certainty import Certainty


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
class Failure:
    """Something that kept cfglint from its work; `rule` is the code of the rule that crashed."""

    path: str
    line: int | None
    column: int | None
    rule: str | None
    message: str


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
    framework: str | None
    """None for a question or a plan file, which are of no framework."""
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
    basis: Basis
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
    files: tuple[str, ...]
    """The paths of the files that it changes, companions among them; none where it cannot be written."""
    expected: int
    low: int
    high: int
    verdict: Verdict
    slowdown: float
    elsewhere: tuple[Room, ...]
    """The host and the disk afterwards, where they lack room before."""


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
