"""The budgets of one estimate: what a moment has, what torch's allocator and the driver add, and the bounds of both.

A search makes thousands of estimates: comparisons are written out, as a call of `max` costs as much as ten of them.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import comparable, reserve, transients
from cfglint_train.memory.activations import activations
from cfglint_train.memory.budget import Budget, Phase
from cfglint_train.memory.calibration import CoefficientTable, Residual, table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import ENGINE, GRADIENTS, LOGITS, PAGED, RESERVE, UPDATE
from cfglint_train.memory.job import Job
from cfglint_train.memory.layers.families import runs_traced_code
from cfglint_train.memory.phase_fields import DISK_FIELDS, NO_FIELDS
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.setup import Setup

if TYPE_CHECKING:
    from cfglint_train.plan.names import Field


Sized = tuple[float, float, dict[Component, float], str]
"""A moment of a training step: bytes of what it has beside what exists all the time, those of them in the pools of
other streams, the parts that they are made of, and the event's name.
"""


class Step(Frozen):
    """What all moments of a training step share, in bytes."""

    others: float
    """At the highest moment without the loss, in the pool of the main stream."""
    most: float
    """There, if that and the loss shared no block."""
    whole_logits: bool
    apart: float
    """In whose blocks nothing else fits."""
    engine: float
    """Of a rollout engine."""


def weighed(parts: dict[Component, float]) -> tuple[tuple[tuple[Component, int], ...], float, float, float]:
    """The sizes of parts, and how much of them lasts, follows the tokens, and comes and goes."""
    lasting = flowing = passing = 0.0
    sizes: list[tuple[Component, int]] = []
    for component, size in parts.items():
        if size:
            sizes.append((component, int(size)))
            if component.flows:
                flowing += size
            else:
                lasting += size
            if component.passes:
                passing += size
    return tuple(sizes), lasting, flowing, passing


class Uncertainty:
    """What bounds the budgets of a job on one GPU, whatever its batch."""

    def __init__(self, job: Job, hardware: Hardware | None, compared: Residual | None) -> None:
        setup, known, self.job = job.setup, table(), job
        ranks = setup.ranks
        self.between: tuple[Phase, list[Phase]] | None = None
        """Loading, and the other phases between steps, once they were estimated."""
        self.paged = job.lasting.get(PAGED, 0.0)
        self.held = weighed(job.lasting)
        self.capacity: int | None = None if hardware is None else hardware.capacity("gpu")
        flowing, jobs = flow_residual(setup, known), compared or comparable.residual(setup, known.residuals)
        self.gaps = reserve.gaps(setup.checkpointing.method not in ("none", "selective_ops"))
        held_high = known.residuals["states"].high
        self.flowing_high, self.held_most = 1 + flowing.high, 1 + held_high
        self.factors = (1 + flowing.low, self.flowing_high, self.held_most, 1 + jobs.low, 1 + jobs.high)
        """Times what is expected that the bounds of every moment are: of what follows the tokens, the upper one of what
        lasts, and of all where comparable jobs are less certain."""
        self.reach = 1 + max(flowing.high, held_high, jobs.high)
        """How much more than is expected there may be of anything."""
        wider = held_high if flowing.high > jobs.high else max(held_high, jobs.high)
        self.held_high = (self.held[1] + self.held[2]) * (1 + wider)
        """What exists all the time in the bounds that usually are the wider ones (`edges`)."""
        self.elsewhere, self.stream_part = job.streams
        self.streams_pass = self.stream_part is not None and self.stream_part.passes
        self.whole = ranks.parameter_shards > 1 and job.plan.model.init_device == "cuda"
        self.leftovers = transients.leftovers(setup, self.whole)
        self.ahead = transients.read_ahead(setup) if job.plan.method.reads_ahead else 0.0
        self.pinned = transients.pinned(setup) if self.ahead else 0.0
        modern = hardware is None or (hardware.compute_capability or 9.0) >= 9.0
        # DeepSpeed makes a process group of one rank, too, and NCCL loads its kernels whatever the number of ranks.
        group = "nccl" if ranks.world > 1 else "nccl-kernels" if ranks.strategy == "zero" else ""
        self.around, self.workspace_high, self.context_low, self.around_low, self.around_high = reserve.around(
            modern, group
        )

    def edges(self, lasting: float, flowing: float, paged: float) -> tuple[float, float]:
        """The bounds of what a moment has, by what its parts say of themselves or by what comparable jobs showed,
        whichever is wider. The lower one leaves managed memory out.
        """
        flow_low, flow_high, held_most, jobs_low, jobs_high = self.factors
        least = lasting - paged
        low, low_of_jobs = least + flowing * flow_low, (least + flowing) * jobs_low
        high, high_of_jobs = lasting * held_most + flowing * flow_high, (lasting + flowing) * jobs_high
        return low if low < low_of_jobs else low_of_jobs, high if high > high_of_jobs else high_of_jobs


@lru_cache(maxsize=256)
def uncertainty_of(job: Job, hardware: Hardware | None, compared: Residual | None) -> Uncertainty:
    """Return the uncertainty of a job on a GPU. `compared`: how far jobs like it were from their estimates, if that is
    not what the table says.
    """
    return Uncertainty(job, hardware, compared)


class PhaseBudget:
    """Makes the budgets of the phases of one estimate."""

    def __init__(self, setup: Setup, reader: Reader, known: Uncertainty) -> None:
        plan = reader.plan
        self.setup, self.reader, self.plan = setup, reader, plan
        self.known, self.job = known, known.job
        self.flow = activations(setup)
        self.basis = (setup, plan, known.capacity)
        self.lengths = None if setup.batch.records == 0 else reserve.lengths(setup.batch.records)

    def gpu(
        self, phase: str, parts: dict[Component, float], fields: frozenset[Field] = NO_FIELDS, steady: bool = True
    ) -> Budget:
        """The budget of one moment outside of steps. `steady`: what exists all the time comes on top of `parts`."""
        known = self.known
        found, lasting, flowing, passing = weighed(parts)
        paged = parts.get(PAGED, 0.0)
        if steady:
            paged = known.paged
            held, lasts, flows, _ = known.held
            found, lasting, flowing = held + found, lasting + lasts, flowing + flows
        low, high = known.edges(lasting, flowing, paged)
        spare = known.gaps.between(passing)
        return self._budget(phase, found, fields, paged, (low, high, high), spare, (0.0, 0.0))

    def step(self, phase: str, step: Step, moments: list[Sized], best: Sized) -> Budget:
        """The budget of the forward or backward pass or the update, `best` of whose `moments` has most bytes. Another
        may be less certain, or have less in the pools of other streams: each bound is the highest of all.
        """
        known = self.known
        others, most, whole_logits, apart, engine = step
        total, inside, parts, _ = best
        if engine:
            parts[ENGINE] = engine
        found, lasting, flowing, passing = weighed(parts)
        held, lasts, flows, _ = known.held
        low, high = known.edges(lasting + lasts, flowing + flows, known.paged)
        reserved, top, leaving = high - inside, total - inside, 0.0
        sharded = self.setup.ranks.parameter_shards > 1
        for moment in moments:
            size, elsewhere, own, _ = moment
            if sharded:
                left = size - own.get(GRADIENTS, 0.0) - (elsewhere if known.streams_pass else 0.0)
                if left > leaving:
                    leaving = left
            if moment is best:
                continue
            if size - elsewhere > top:
                top = size - elsewhere
            size += engine + lasts + flows
            largest = size * known.reach
            if size <= low and largest <= high and largest - elsewhere <= reserved:
                continue
            _, lasting_, flowing_, _ = weighed(own)
            edges = known.edges(lasting_ + engine + lasts, flowing_ + flows, known.paged)
            low, high, reserved = max(low, edges[0]), max(high, edges[1]), max(reserved, edges[1] - elsewhere)
        top += engine
        gaps, most = known.gaps, most + engine
        pools = known.elsewhere + top - total - engine
        pools = pools if pools > 0 else 0.0
        highest = reserved - known.held_high
        highest = (highest if highest > top else top) / known.flowing_high
        spare_low, spare, spare_high = gaps.of_step(others, most, top, highest)
        alone_low, alone, alone_high = gaps.apart
        kept, kept_high = apart * alone, apart * alone_high
        if self.lengths is not None:
            loss = parts.get(LOGITS, 0.0)
            beside = passing - (inside if known.streams_pass else 0.0) - loss - parts.get(UPDATE, 0.0)
            beside = beside if beside > 0 else 0.0
            grown, most = self.lengths.kept(loss, beside) if whole_logits else self.lengths.kept(0.0, beside + loss)
            grown -= spare
            kept, kept_high = kept if kept > grown else grown, kept_high + most
        if sharded:  # what steps leave is verified on one rank only
            left = gaps.between(leaving)[2]
            spare_high = spare_high if spare_high > left else left
        if known.leftovers or known.pinned:  # what making the model left, where this moment does not need it
            rest = lasts + known.leftovers + known.elsewhere - (lasting + lasts + flowing + flows + spare + pools)
            kept, kept_high = max(kept, rest), max(kept_high, rest + known.pinned)
        return self._budget(
            phase,
            held + found,
            NO_FIELDS,
            known.paged,
            (low, high, reserved + known.elsewhere),
            (spare_low + apart * alone_low, spare, spare_high),
            (kept, kept_high),
            pools,
        )

    def _budget(
        self,
        phase: str,
        found: tuple[tuple[Component, int], ...],
        fields: frozenset[Field],
        paged: float,
        bounds: tuple[float, float, float],
        spare: tuple[float, float, float],
        kept: tuple[float, float],
        pools: float = 0.0,
    ) -> Budget:
        """A GPU's budget. `bounds`: low and high of what is allocated, and high with the pools of other streams, which
        are `pools` beyond what is allocated. `spare`: what torch's allocator has beyond that, at least, as expected and
        at most. `kept`: what it gives back before an allocation fails, as expected and at most.
        """
        known = self.known
        low, high, reserved = bounds
        reserved += spare[2] * known.flowing_high
        managed = paged * known.held_most - known.workspace_high
        low += known.around_low
        spans = (low - known.context_low, high - managed, reserved - managed + kept[1], spare[0] + pools)
        sizes = (*found, *known.around, (RESERVE, int(spare[1] + pools)))
        top = int(known.around_high + reserved)
        return Budget("gpu", sizes, int(low), top, fields, spans, int(kept[0]), phase, self.basis)

    def host(self, phase: str, parts: dict[Component, float], fields: frozenset[Field] = NO_FIELDS) -> Budget:
        """A budget of one node."""
        coefficients = table().coefficients
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        low = high = 0.0
        for component, size in sizes:
            _, least, expected, most, _, _ = coefficients[component.coefficient]
            low += size * least / expected
            high += size * most / expected
        return Budget("host", sizes, int(low), int(high), fields, phase=phase, basis=self.basis)

    def disk(self, phase: str, parts: dict[Component, float]) -> Budget:
        """A budget of the job's checkpoints: arithmetic."""
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        total = sum([size for _, size in sizes])
        return Budget("disk", sizes, total, total, DISK_FIELDS, phase=phase, basis=self.basis)


_PARTLY: Final = frozenset(("selective", "fine_grained", "budget", "every_n"))
"""Ways of recomputing a part of what a layer keeps."""


def flow_residual(setup: Setup, known: CoefficientTable) -> Residual:
    """The residual that belongs to what follows the tokens."""
    ranks = setup.ranks
    untraced = known.residuals["untraced"]
    if ranks.tensor > 1 and ranks.sequence_split == 1:  # between all of it on every rank and an even share
        return untraced._replace(low=(1 + untraced.low) / ranks.tensor - 1)
    if ranks.tensor * ranks.pipeline * ranks.context * ranks.expert > 1:
        return untraced
    if setup.compiled.layers:
        return known.residuals["compiled"]
    unsure = setup.approximate or setup.checkpointing.method in _PARTLY
    return untraced if unsure or not runs_traced_code(setup.architecture) else known.residuals["traced"]
