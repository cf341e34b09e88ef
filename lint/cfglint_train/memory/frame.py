"""The budgets of one estimate: what a moment has, what torch's allocator and the driver add, and the bounds of both."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import comparable, reserve, transients
from cfglint_train.memory.budget import Budget
from cfglint_train.memory.calibration import Residual, Table, table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import ENGINE, GRADIENTS, LOGITS, PAGED, RESERVE, UPDATE
from cfglint_train.memory.events import Event, gathered, steady
from cfglint_train.memory.layers.families import runs_traced_code
from cfglint_train.memory.phase_fields import NO_FIELDS, SAVE_FIELDS
from cfglint_train.memory.reader import Reader
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.states import States

if TYPE_CHECKING:
    from cfglint_train.plan.names import Field


Sized = tuple[float, float, Event]
"""A moment of a training step: bytes of what it has beside what exists all the time, those of them in the pools of
other streams, and the event.
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


class Frame:
    """What all phases of one estimate share."""

    def __init__(
        self, setup: Setup, reader: Reader, hardware: Hardware | None, held: States, compared: Residual | None
    ) -> None:
        self.setup, self.reader, plan = setup, reader, reader.plan
        self.steady = steady(setup, held)
        self.paged = self.steady.get(PAGED, 0.0)
        self.held = self._weighed(self.steady)
        self.gathered = gathered(setup)
        self.plan = plan
        self.table = table()
        self.capacity: int | None = None if hardware is None else hardware.capacity("gpu")
        self.basis = (setup, plan, self.capacity)
        self.read = reader.fields
        flowing, jobs = flow_residual(setup, self.table), compared or comparable.residual(setup, self.table.residuals)
        self.gaps = reserve.gaps(setup.checkpointing not in ("none", "selective_ops"))
        held_high = self.table.residuals["states"].high
        self.factors = (flowing.low, flowing.high, held_high, jobs.low, jobs.high)
        """What every event's bounds are made with, taken apart once."""
        self.flowing_high = 1 + flowing.high
        self.reach = 1 + max(flowing.high, held_high, jobs.high)
        """How much more than is expected there may be of anything."""
        wider = held_high if flowing.high > jobs.high else max(held_high, jobs.high)
        self.held_high = (self.held[1] + self.held[2]) * (1 + wider)
        """What exists all the time in the bounds that usually are the wider ones (`_edges`)."""
        self.lengths = None if setup.records == 0 else reserve.lengths(setup.records)
        self.elsewhere, self.stream_part = transients.streams(setup, self.gathered)
        self.streams_pass = self.stream_part is not None and self.stream_part.passes
        self.whole = setup.parameter_shards > 1 and plan.model.init_device == "cuda"
        self.leftovers = transients.leftovers(setup, self.whole)
        self.ahead = transients.read_ahead(setup) if plan.method.reads_ahead else 0.0
        self.pinned = transients.pinned(setup) if self.ahead else 0.0
        modern = hardware is None or (hardware.compute_capability or 9.0) >= 9.0
        # DeepSpeed makes a process group of one rank, too, and NCCL loads its kernels whatever the number of ranks.
        group = "nccl" if setup.world > 1 else "nccl-kernels" if setup.strategy == "zero" else ""
        self.around, self.workspace_high, self.context_low, self.around_low, self.around_high = reserve.around(
            modern, group
        )

    @staticmethod
    def _weighed(parts: dict[Component, float]) -> tuple[tuple[tuple[Component, int], ...], float, float, float]:
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

    def streamed(self, parts: Mapping[Component, float]) -> float:
        """What of an event lies in the pools of other streams."""
        return min(self.elsewhere, parts.get(self.stream_part, 0.0)) if self.stream_part is not None else 0.0

    def gpu(self, parts: dict[Component, float], fields: frozenset[Field] = NO_FIELDS, steady: bool = True) -> Budget:
        """The budget of one moment outside of steps. `steady`: what exists all the time comes on top of `parts`."""
        found, lasting, flowing, passing = self._weighed(parts)
        paged = parts.get(PAGED, 0.0)
        if steady:
            paged = self.paged
            held, lasts, flows, _ = self.held
            found, lasting, flowing = held + found, lasting + lasts, flowing + flows
        low, high = self._edges(lasting, flowing, paged)
        spare = self.gaps.between(passing)
        return self._budget(found, fields, paged, (low, high, high), spare, (0.0, 0.0))

    def step(self, step: Step, moments: list[Sized], best: Sized) -> Budget:
        """The budget of the forward or backward pass or the update, `best` of whose `moments` has most bytes. Another
        may be less certain, or have less in the pools of other streams: each bound is the highest of all.
        """
        total, inside, event = best
        parts = event.passing
        if step.engine:
            parts[ENGINE] = step.engine
        found, lasting, flowing, passing = self._weighed(parts)
        held, lasts, flows, _ = self.held
        low, high = self._edges(lasting + lasts, flowing + flows, self.paged)
        reserved = high - inside
        top = total - inside
        for other in moments:
            top = max(top, other[0] - other[1])
            bytes_ = other[0] + step.engine + lasts + flows
            most = bytes_ * self.reach
            if other is best or (bytes_ <= low and most <= high and most - other[1] <= reserved):
                continue
            _, lasting_, flowing_, _ = self._weighed(other[2].passing)
            edges = self._edges(lasting_ + step.engine + lasts, flowing_ + flows, self.paged)
            low, high, reserved = max(low, edges[0]), max(high, edges[1]), max(reserved, edges[1] - other[1])
        top += step.engine
        gaps, most = self.gaps, step.most + step.engine
        pools = max(0.0, self.elsewhere + top - total - step.engine)
        spare_low, spare = gaps.of_step(step.others, most, top)
        above = max(top, reserved - self.held_high) / self.flowing_high
        spare_high = gaps.highest(step.others, most, above)
        kept, kept_high = step.apart * gaps.apart.expected, step.apart * gaps.apart.high
        if self.lengths is not None:
            loss = parts.get(LOGITS, 0.0)
            others = max(0.0, passing - (inside if self.streams_pass else 0.0) - loss - parts.get(UPDATE, 0.0))
            grown = self.lengths.kept(loss, others) if step.whole_logits else self.lengths.kept(0.0, others + loss)
            kept, kept_high = max(kept, grown[0] - spare), kept_high + grown[1]
        if self.setup.parameter_shards > 1:  # what steps leave is verified on one rank only
            spare_high = max(spare_high, gaps.between(max([self._passing(moment) for moment in moments]))[2])
        if self.leftovers or self.pinned:  # what making the model left, where this moment does not need it
            rest = lasts + self.leftovers + self.elsewhere - (lasting + lasts + flowing + flows + spare + pools)
            kept, kept_high = max(kept, rest), max(kept_high, rest + self.pinned)
        return self._budget(
            held + found,
            NO_FIELDS,
            self.paged,
            (low, high, reserved + self.elsewhere),
            (spare_low + step.apart * gaps.apart.low, spare, spare_high),
            (kept, kept_high),
            pools,
        )

    def _passing(self, moment: Sized) -> float:
        """What comes and goes at a moment in the pool of the main stream."""
        total, inside, event = moment
        return total - event.passing.get(GRADIENTS, 0.0) - (inside if self.streams_pass else 0.0)

    def _budget(
        self,
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
        low, high, reserved = bounds
        reserved += spare[2] * self.flowing_high
        managed = paged * (1 + self.factors[2]) - self.workspace_high
        low += self.around_low
        spans = (low - self.context_low, high - managed, reserved - managed + kept[1], spare[0] + pools)
        sizes = (*found, *self.around, (RESERVE, int(spare[1] + pools)))
        top = int(self.around_high + reserved)
        return Budget("gpu", sizes, int(low), top, self.read, fields, spans, int(kept[0]), self.basis)

    def _edges(self, lasting: float, flowing: float, paged: float) -> tuple[float, float]:
        """The bounds of what a moment has, by what its parts say of themselves or by what comparable jobs showed,
        whichever is wider. The lower one leaves managed memory out.
        """
        flow_low, flow_high, states_high, jobs_low, jobs_high = self.factors
        least = lasting - paged
        return (
            min(least + flowing * (1 + flow_low), (least + flowing) * (1 + jobs_low)),
            max(lasting * (1 + states_high) + flowing * (1 + flow_high), (lasting + flowing) * (1 + jobs_high)),
        )

    def host(self, parts: dict[Component, float], fields: frozenset[Field] = NO_FIELDS) -> Budget:
        """A budget of one node."""
        known = self.table.coefficients
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        low = high = 0.0
        for component, size in sizes:
            _, least, expected, most, _, _ = known[component.coefficient]
            low += size * least / expected
            high += size * most / expected
        return Budget("host", sizes, int(low), int(high), self.read, fields, basis=self.basis)

    def disk(self, parts: dict[Component, float]) -> Budget:
        """A budget of the job's checkpoints: arithmetic."""
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        total = sum([size for _, size in sizes])
        return Budget("disk", sizes, total, total, self.read, SAVE_FIELDS, basis=self.basis)


_PARTLY: Final = frozenset(("selective", "fine_grained", "budget", "every_n"))
"""Ways of recomputing a part of what a layer keeps."""


def flow_residual(setup: Setup, known: Table) -> Residual:
    """The residual that belongs to what follows the tokens."""
    untraced = known.residuals["untraced"]
    if setup.tensor > 1 and setup.sequence_split == 1:  # between all of it on every rank and an even share
        return untraced._replace(low=(1 + untraced.low) / setup.tensor - 1)
    if setup.tensor * setup.pipeline * setup.context * setup.expert > 1:
        return untraced
    if setup.compile:
        return known.residuals["compiled"]
    unsure = setup.approximate or setup.checkpointing in _PARTLY
    return untraced if unsure or not runs_traced_code(setup.architecture) else known.residuals["traced"]
