"""Records of the JSON reports, also returned by the Python API: plain, typed, frozen values.

The reports build these records, mask credentials in their strings, and print them field by field. Later releases never
remove a field.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.findings.finding import Applicability, Severity
from cfglint_train.fitting.moves import Basis
from cfglint_train.foundation.frozen import dataclass
from cfglint_train.foundation.typed import Literal
from cfglint_train.memory.budget import Resource, Verdict
from cfglint_train.plan.certainty import Certainty


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of a file and its replacement text. Lines and columns count from 1; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A remedy for a finding; without edits it is advice that cfglint cannot apply, for the reason in `message`."""

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class RelatedPlace:
    """A secondary location of a finding. Lines and columns count from 1; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str


@dataclass(frozen=True, slots=True)
class Ground:
    """A fact that a finding rests on, with its grade: a plan field, or a fact about hardware or a package."""

    fact: str
    value: str | float | bool | None
    grade: Certainty
    note: str
    """Source of the fact, or how to state it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule. Lines and columns (in characters) count from 1; the end is exclusive."""

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
    """The remedy."""
    notes: tuple[str, ...]
    related: tuple[RelatedPlace, ...]
    certainty: Certainty
    """The lowest grade among the facts in `rests_on`."""
    rests_on: tuple[Ground, ...]
    fix: Fix | None
    also: tuple[str, ...]
    """Codes of the findings that are part of this one: other causes that the same fix settles."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A problem that kept cfglint from checking; `rule` is the code of a rule that crashed."""

    path: str
    line: int | None
    column: int | None
    rule: str | None
    message: str


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A run whose memory could not be checked: the missing setting, by path and line, and the remedy."""

    path: str
    line: int
    message: str
    help: str | None


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a budget: its size in bytes, the formula, and the ids of the evidence."""

    name: str
    bytes: int
    formula: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnRuns:
    """The user's own measured runs that moved the interval of an estimate."""

    narrowed: int
    """Number of set-ups that narrowed it; 0 if none did."""
    widened: int
    """Number of set-ups outside of their own interval that widened it; 0 if none did."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A peak in bytes: `expected` is the sum of the components; `low` and `high` bound the true value."""

    expected: int
    low: int
    high: int
    capacity: int | None
    """Capacity in bytes; None if not stated."""
    verdict: Verdict | None
    rests_on: tuple[str, ...]
    """Published measurements of comparable jobs, whose residuals bound the interval of a GPU."""
    own_runs: OwnRuns | None
    """The user's own runs that moved `low` and `high`; None if none did."""
    components: tuple[Component, ...]
    percent: int | None = None
    """`expected` in percent of the capacity, rounded; None if the capacity is not stated."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A bar of the timeline: the peak on one GPU while a part of the run lasts. Sizes are in bytes."""

    step: str
    """load, rollout, step 1, step 2, every step, evaluation, save, resume, or a model's role."""
    phase: str
    expected: int
    low: int
    high: int
    percent: int | None
    """`expected` in percent of the capacity, rounded; None if the capacity is unknown."""
    verdict: Verdict | None
    kinds: Mapping[str, int]
    """Bytes by kind of memory: weights, gradients, optimizer, activations, logits, buffers, engine, reserve."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that decides the memory of a run, with the origin of its value."""

    name: str
    key: str
    """The key as the configuration spells it; empty for hardware."""
    value: str | int | bool
    origin: str
    """`from your file`, `from your settings`, `from defaults`, `derived` or `assumed`."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run (load, forward, backward, ...), on its worst rank and its worst host."""

    name: str
    event: str
    """Description of the moment of the peak."""
    gpu: Budget | None
    host: Budget | None
    disk: Budget | None


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a run, if it is in the catalogue or a readable folder."""

    id: str
    parameters: int


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The memory budget of one run."""

    path: str
    framework: str | None
    """Framework of the config; None for a question or a plan file, which have no framework."""
    release: str | None
    model: Model | None
    nodes: int | None
    gpus_per_node: int | None
    gpu: str | None
    phases: tuple[Phase, ...]
    book: int | None
    """Bytes to book per GPU: the bound that 95 % of the published measurements of other frameworks respect."""
    missing: tuple[str, ...]
    """Plan fields (or `model`) whose absence kept a phase from being estimated."""
    not_checked: NotChecked | None
    """Reason why no training step was estimated, or None if one was."""
    assumptions: tuple[str, ...]
    """Assumptions, each with a way to state the fact."""
    assumed: tuple[str, ...]
    """Facts that no file states: `gpu`, `model`, `fork`, plan fields."""
    not_counted: tuple[str, ...]
    """Misspelled keys that the estimate ignores, each with the likely intended key."""
    corrected: RunEstimate | None = None
    """Estimate in which misspelled keys count as the keys that they clearly stand for; None if nothing changes."""
    worst: Room | None = None
    """The phase that decides the verdict, on the GPU, the host or the disk; None without an estimated step."""
    timeline: tuple[Moment, ...] = ()
    """GPU memory from loading to resuming, in the order of the run."""
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """The memory that a phase needs at a place, if its capacity is known. Sizes are in bytes."""

    place: Resource
    phase: str
    expected: int
    low: int
    high: int
    capacity: int
    verdict: Verdict
    percent: int | None = None
    """`expected` in percent of the capacity, rounded."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One change to a run, applied by itself. Sizes are in bytes."""

    name: str
    settings: tuple[str, ...]
    """One string per setting, for example `micro_batch_size: 16 -> 2`."""
    place: Resource
    """Resource that the change saves: GPU memory, or the resource that is too small."""
    saved: int
    after: int
    """Highest expected peak of that resource after the change."""
    slowdown: float
    """Factor on the time per step."""
    basis: Basis
    """Evidence for the slowdown."""
    source: str
    gives_up: str
    safe: bool
    """True if loss, data and resuming stay the same."""
    chosen: bool
    """True if the change is part of the proposed solution."""
    verdict: Verdict
    """Verdict on that resource after the change."""
    loss: str
    """Reason why a change that is faster than the solution and expected to fit was not chosen, or empty."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The change that makes a run fit. Sizes are in bytes."""

    applicability: Applicability
    settings: tuple[str, ...]
    files: tuple[str, ...]
    """Paths of the files to change, including companions; empty if cfglint cannot write the change."""
    expected: int
    low: int
    high: int
    verdict: Verdict
    own_runs: OwnRuns | None
    """The user's own runs that moved `low` and `high`; None if none did."""
    slowdown: float
    elsewhere: tuple[Room, ...]
    """The host and the disk after the change, if they were too small before."""
    timeline: tuple[Moment, ...] = ()
    """GPU memory after the change, in the order of the run."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Hardware on which a run fits that no change to its files makes fit on the current hardware."""

    need: int
    """Bytes per GPU."""
    nodes: int | None
    gpus: int | None
    gpu: str | None
    settings: tuple[str, ...]
    """Changes that the run needs in addition to the hardware."""
    beside: Mapping[Resource, int]
    """Bytes needed on a host and on disk, if the hosts or disks of the current nodes are too small."""


@dataclass(frozen=True, slots=True)
class RunFit:
    """Memory needs of one run, the changes that lower them, and the proposed change. Sizes are in bytes."""

    path: str
    framework: str
    phase: str | None
    """The phase with the highest GPU peak; None if no training step was estimated."""
    expected: int | None
    low: int | None
    high: int | None
    capacity: int | None
    verdict: Verdict | None
    own_runs: OwnRuns | None
    """The user's own runs that moved `low` and `high`; None if none did."""
    elsewhere: tuple[Room, ...]
    """Hosts and disk, if their capacity is stated."""
    rungs: tuple[Rung, ...]
    solution: Solution | None
    """None if the run fits unchanged, or if nothing makes it fit."""
    holding: Holding | None
    offload: str | None
    """Effect of offloading the optimizer to a host of unknown capacity, if no smaller change is enough."""
    largest: int | None
    """Largest value of the requested size whose upper bound fits; 0 if not even that of 1 fits."""
    largest_expected: int | None
    """Largest value that is expected to fit; it is tight if it is above `largest`."""
    not_checked: NotChecked | None
    """Reason why no training step was estimated, or None if one was."""
    assumptions: tuple[str, ...]
    cost: RunCost | None
    """Time and cost without the change, or None if a fact that they need is not stated."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The worst phase of a run at one place (gpu, host or disk). Sizes are in bytes."""

    place: Resource
    phase: str
    expected: int
    low: int
    high: int
    capacity: int | None
    """Capacity in bytes; None if not stated."""
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class RunCost:
    """Time and cost of a run at a throughput and a price that the user stated."""

    tokens: int
    is_limit: bool
    """True if the run may see fewer tokens: samples may be shorter, or the data set smaller."""
    hours: float
    price: float | None
    """Price of all GPUs; None if no price or no number of GPUs is stated."""
    currency: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One side of a comparison: a run in the terms of the plan; None means unknown."""

    path: str
    framework: str
    release: str | None
    model: str | None
    gpus: int | None
    peaks: tuple[Peak, ...]
    batch: int | None
    """Sequences per optimizer step."""
    tokens_per_step: int | None
    """Tokens per optimizer step, if every sequence has the full length."""
    sequence_length: int | None
    cost: RunCost | None
    not_checked: str | None
    """Reason why no peak is estimated; None if the training step is."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of the plan, or a fact about the hardware, that differs between two runs; None means unknown."""

    field: str
    before: str | float | bool | None
    after: str | float | bool | None


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that differs between two runs of one framework, and that no changed field of the plan shows."""

    framework: str
    """The framework that reads the setting: that of the run, or that of its DeepSpeed or accelerate file."""
    key: str
    before: str | float | bool | None
    """The value as written, or by default; None if the setting is unset and its default unknown."""
    after: str | float | bool | None


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """A package whose release differs between two runs; None means unknown."""

    package: str
    before: str | None
    after: str | None
    keys: tuple[str, ...]
    """Keys that mean something else in the later run: changed defaults of unset keys, changed states of set ones."""


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run before and after a change; a new run has no `before`, a removed run no `after`."""

    kind: Literal["changed", "new", "removed", "same"]
    before: RunFacts | None
    after: RunFacts | None
    slowdown: float | None
    """Factor on the time per token; None if no effect on it is known."""
    uncounted: tuple[str, ...]
    """Changed fields whose effect on the speed is unknown, and `releases` if these differ; empty without `slowdown`."""
    fields: tuple[FieldChange, ...]
    settings: tuple[SettingChange, ...]
    """Other settings that differ; empty if the runs are of two frameworks."""
    releases: tuple[ReleaseChange, ...]
    new_findings: tuple[Finding, ...]
    gone_findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs that a change affects, and the number of runs that it does not affect."""

    runs: tuple[RunChange, ...]
    unchanged: int
