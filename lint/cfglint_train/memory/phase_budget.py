"""Budgets of an estimate: components, overheads of torch's allocator and the driver, and the bounds of both.

A search makes thousands of estimates. Comparisons are therefore written out: calling `max` costs ten times as much.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import comparable, reserve, transients
from cfglint_train.memory.activations import Activations, compute_activations
from cfglint_train.memory.budget import Budget, Phase
from cfglint_train.memory.calibration import CoefficientTable, Residual, load_table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import ACTIVATIONS, ENGINE, GRADIENTS, LOGITS, PAGED, RESERVE, UPDATE
from cfglint_train.memory.job import Job
from cfglint_train.memory.layers.families import is_traced
from cfglint_train.memory.phase_fields import DISK_FIELDS, NO_FIELDS
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.reserve import Range
from cfglint_train.memory.setup import Setup

if TYPE_CHECKING:
    from cfglint_train.plan.names import Field


Sized = tuple[float, float, dict[Component, float], str]
"""A moment of a training step: total bytes in addition to the lasting ones, the part of them in the pools of other
streams, the bytes by component, and the event's name.
"""


class Step(Frozen):
    """Amounts of a training step that its moments share, in bytes."""

    highest_without_loss: float
    """Highest moment without whole logits, in the pool of the main stream."""
    highest_unshared: float
    """Sum of that moment and the loss, as if they shared no block."""
    highest_recomputed: float
    """`highest_without_loss` if every layer were recomputed from its input."""
    inputs: float
    """Upper limit of a moment's activations in that case; infinite if layers are recomputed anyway."""
    whole_logits: bool
    unshared: float
    """Bytes of tensors whose blocks no other tensor can use."""
    engine: float
    """Bytes that a rollout engine holds."""


def weigh_parts(parts: dict[Component, float]) -> tuple[tuple[tuple[Component, int], ...], float, float, float]:
    """Return the nonzero sizes, and the sums of lasting, token-dependent and temporary bytes.

    Temporary bytes are also part of one of the other two sums.
    """
    lasting = flowing = temporary = 0.0
    sizes: list[tuple[Component, int]] = []
    for component, size in parts.items():
        if size:
            sizes.append((component, int(size)))
            if component.flows:
                flowing += size
            else:
                lasting += size
            if component.passes:
                temporary += size
    return tuple(sizes), lasting, flowing, temporary


class Uncertainty:
    """Factors and amounts for the bounds of a job's GPU budgets that do not depend on the batch."""

    def __init__(self, job: Job, hardware: Hardware | None, residual: Residual | None) -> None:
        """Derive the factors and fixed amounts of a job on a GPU."""
        setup, coefficient_table, self.job = job.setup, load_table(), job
        ranks = setup.ranks
        self.phases_between_steps: tuple[Phase, list[Phase]] | None = None
        """Load phase and the other phases between steps; None until they are estimated."""
        self.paged = job.lasting.get(PAGED, 0.0)
        self.held = weigh_parts(job.lasting)
        self.capacity: int | None = None if hardware is None else hardware.get_capacity("gpu")
        flowing, jobs = (
            find_flow_residual(setup, coefficient_table),
            residual or comparable.find_residual(setup, coefficient_table.residuals),
        )
        self.gaps = reserve.load_gaps(setup.checkpointing.method not in ("none", "selective_ops"))
        self.gaps_if_recomputed = reserve.load_gaps(True)
        held_high = coefficient_table.residuals["states"].high
        self.flow_factor, self.held_factor = 1 + flowing.high, 1 + held_high
        self.factors = (1 + flowing.low, self.flow_factor, self.held_factor, 1 + jobs.low, 1 + jobs.high)
        """Factors from a moment's expected value to its bounds: low and high for token-dependent parts, high for
        lasting parts, and low and high for the total, according to comparable jobs.
        """
        self.exact_inputs = has_exact_inputs(setup)
        self.highest_factor = 1 + max(flowing.high, held_high, jobs.high)
        """Highest factor from an expected value to its upper bound."""
        wider = held_high if flowing.high > jobs.high else max(held_high, jobs.high)
        self.held_high = (self.held[1] + self.held[2]) * (1 + wider)
        """Contribution of `held` to the upper bound that is usually the wider one (see `compute_bounds`)."""
        self.other_streams, self.stream_part = job.streams
        self.other_streams_high = self.other_streams
        if ranks.zero_stage == 3 and self.other_streams:
            gathers = coefficient_table.coefficients["gathers"]
            if setup.offload.parameters:
                self.other_streams_high *= gathers.high
                self.other_streams *= gathers.expected
            else:  # measured runs need no more than the gathers
                self.other_streams_high = transients.compute_zero_pools(setup) * gathers.expected
        self.streams_pass = self.stream_part is not None and self.stream_part.passes
        self.whole = ranks.parameter_shards > 1 and job.plan.model.init_device == "cuda"
        self.leftovers = transients.compute_leftovers(setup, self.whole)
        self.ahead = transients.compute_read_ahead(setup) if job.plan.method.reads_ahead else 0.0
        self.pinned = transients.compute_pinned_pages(setup) if self.ahead else 0.0
        modern = hardware is None or (hardware.compute_capability or 9.0) >= 9.0
        # DeepSpeed creates a process group even for one rank, and NCCL loads its kernels for any number of ranks.
        group = "nccl" if ranks.world > 1 else "nccl-kernels" if ranks.strategy == "zero" else ""
        self.overheads, self.workspace_high, self.context_low, self.overheads_low, self.overheads_high = (
            reserve.compute_overheads(modern, group)
        )

    def weigh_moment(
        self, parts: dict[Component, float]
    ) -> tuple[tuple[tuple[Component, int], ...], float, float, float]:
        """Return the result of `weigh_parts` for a moment of a step; exact inputs of layers count as lasting."""
        sizes, lasting, flowing, temporary = weigh_parts(parts)
        exact = parts.get(ACTIVATIONS, 0.0) if self.exact_inputs else 0.0
        return sizes, lasting + exact, flowing - exact, temporary

    def compute_bounds(self, lasting: float, flowing: float, paged: float) -> tuple[float, float]:
        """Return the bounds of a moment: on each side, the wider of the bounds from its parts and from comparable jobs.

        The lower bound excludes managed memory (`paged`).
        """
        flow_low, flow_high, held_factor, jobs_low, jobs_high = self.factors
        lasting_low = lasting - paged
        low, low_of_jobs = lasting_low + flowing * flow_low, (lasting_low + flowing) * jobs_low
        high, high_of_jobs = lasting * held_factor + flowing * flow_high, (lasting + flowing) * jobs_high
        return low if low < low_of_jobs else low_of_jobs, high if high > high_of_jobs else high_of_jobs


@lru_cache(maxsize=256)
def build_uncertainty(job: Job, hardware: Hardware | None, residual: Residual | None) -> Uncertainty:
    """Return the uncertainty of a job on a GPU.

    `residual`: observed error of comparable jobs, in place of the calibration table's.
    """
    return Uncertainty(job, hardware, residual)


class PhaseBudget:
    """Builder of the budgets of one estimate."""

    def __init__(self, setup: Setup, reader: Reader, uncertainty: Uncertainty) -> None:
        """Prepare the budgets of a setup that `reader` has read from its plan."""
        plan = reader.plan
        self.setup, self.reader, self.plan = setup, reader, plan
        self.uncertainty, self.job = uncertainty, uncertainty.job
        self.basis = (setup, plan, uncertainty.capacity)
        self.lengths = None if setup.batch.records == 0 else reserve.load_lengths(setup.batch.records)

    @cached_property
    def flow(self) -> Activations | None:
        """Activations of the step, which the phases between steps do not need; None for a family without a formula."""
        return compute_activations(self.setup)

    def build_gpu_budget(
        self,
        phase: str,
        parts: dict[Component, float],
        fields: frozenset[Field] = NO_FIELDS,
        steady: bool = True,
        fragments: bool = True,
    ) -> Budget:
        """Return the GPU budget of a moment between steps.

        `steady`: whether the lasting parts are added to `parts`. `fragments`: whether the temporary parts are many
        blocks; a single large block has a segment of its own.
        """
        uncertainty = self.uncertainty
        sizes, lasting, flowing, temporary = weigh_parts(parts)
        paged = parts.get(PAGED, 0.0)
        if steady:
            paged = uncertainty.paged
            held, lasts, flows, _ = uncertainty.held
            sizes, lasting, flowing = held + sizes, lasting + lasts, flowing + flows
        low, high = uncertainty.compute_bounds(lasting, flowing, paged)
        spare = uncertainty.gaps.estimate_between_steps(temporary if fragments else 0.0)
        return self._bound_gpu_budget(phase, sizes, fields, paged, (low, high, high), spare, (0.0, 0.0))

    def build_step_budget(self, phase: str, step: Step, moments: list[Sized], highest_moment: Sized) -> Budget:
        """Return the GPU budget of the forward pass, the backward pass or the optimizer step.

        `highest_moment` is the largest of `moments`. Because another moment may be less certain, or have less in the
        pools of other streams, each bound is the highest over all moments.
        """
        uncertainty = self.uncertainty
        highest_without_loss, highest_unshared, _, inputs, whole_logits, unshared, engine = step
        total, in_stream, parts, _ = highest_moment
        if engine:
            parts[ENGINE] = engine
        sizes, lasting, flowing, temporary = uncertainty.weigh_moment(parts)
        held, lasts, flows, _ = uncertainty.held
        low, high = uncertainty.compute_bounds(lasting + lasts, flowing + flows, uncertainty.paged)
        reserved, top, leaving = high - in_stream, total - in_stream, 0.0
        sharded = self.setup.ranks.parameter_shards > 1
        for moment in moments:
            size, in_other_streams, moment_parts, _ = moment
            if sharded:
                left_bytes = self._count_leaving(moment)
                if left_bytes > leaving:
                    leaving = left_bytes
            if moment is highest_moment:
                continue
            if size - in_other_streams > top:
                top = size - in_other_streams
            size += engine + lasts + flows
            largest = size * uncertainty.highest_factor
            if size <= low and largest <= high and largest - in_other_streams <= reserved:
                continue
            _, lasting_, flowing_, _ = uncertainty.weigh_moment(moment_parts)
            edges = uncertainty.compute_bounds(lasting_ + engine + lasts, flowing_ + flows, uncertainty.paged)
            low, high, reserved = max(low, edges[0]), max(high, edges[1]), max(reserved, edges[1] - in_other_streams)
        top += engine
        gaps, highest_unshared = uncertainty.gaps, highest_unshared + engine
        pools = uncertainty.other_streams + top - total - engine
        pools = pools if pools > 0 else 0.0
        top_with_factor = reserved - uncertainty.held_high
        top_with_factor = (top_with_factor if top_with_factor > top else top) / uncertainty.flow_factor
        spare_low, spare, spare_high = gaps.estimate_step(highest_without_loss, highest_unshared, top, top_with_factor)
        alone_low, alone, alone_high = gaps.apart
        kept, kept_high = unshared * alone, unshared * alone_high
        if inputs < math.inf:
            recomputed_low, recomputed, recomputed_high = self._estimate_recomputed_spare(step, moments, top, reserved)
            spare_low = max(spare_low, recomputed_low)
            kept, spare = max(spare + kept, recomputed) - max(spare, recomputed), max(spare, recomputed)
            kept_high = max(spare_high + kept_high, recomputed_high) - max(spare_high, recomputed_high)
            spare_high = max(spare_high, recomputed_high)
        if self.lengths is not None:
            loss = parts.get(LOGITS, 0.0)
            passing_rest = temporary - (in_stream if uncertainty.streams_pass else 0.0) - loss - parts.get(UPDATE, 0.0)
            passing_rest = passing_rest if passing_rest > 0 else 0.0
            grown, highest_unshared = (
                self.lengths.estimate_cached(loss, passing_rest)
                if whole_logits
                else self.lengths.estimate_cached(0.0, passing_rest + loss)
            )
            grown -= spare
            kept, kept_high = kept if kept > grown else grown, kept_high + highest_unshared
        if sharded:  # memory that steps leave cached was verified only on one rank
            left_bytes = gaps.estimate_between_steps(leaving)[2]
            spare_high = spare_high if spare_high > left_bytes else left_bytes
        if (
            uncertainty.leftovers or uncertainty.pinned
        ):  # memory that building the model left and that this moment does not use
            rest = (
                lasts
                + uncertainty.leftovers
                + uncertainty.other_streams
                - (lasting + lasts + flowing + flows + spare + pools)
            )
            kept, kept_high = max(kept, rest), max(kept_high, rest + uncertainty.pinned)
        return self._bound_gpu_budget(
            phase,
            held + sizes,
            NO_FIELDS,
            uncertainty.paged,
            (low, high, reserved + uncertainty.other_streams_high),
            (spare_low + unshared * alone_low, spare, spare_high),
            (kept, kept_high),
            pools,
        )

    def _estimate_recomputed_spare(self, step: Step, moments: list[Sized], top: float, reserved: float) -> Range:
        """Return the bytes beyond `top` that the step would reserve if every layer were recomputed from its input.

        Kept activations add blocks and take none away, so the step reserves at least as much. This decides where the
        peak has few activations: at the last gradients and the update. `top` and `reserved`: the highest moment in the
        pool of the main stream, expected and upper bound; the high result is relative to `reserved`, in expected bytes.
        """
        uncertainty, gaps, engine = self.uncertainty, self.uncertainty.gaps_if_recomputed, step.engine
        _, lasts, flows, _ = uncertainty.held
        recomputed_top = recomputed_reserved = leaving = 0.0
        for moment in moments:
            size, in_other_streams, parts, _ = moment
            activations = parts.get(ACTIVATIONS, 0.0)
            dropped = activations - step.inputs if activations > step.inputs else 0.0
            size -= dropped
            recomputed_top = max(recomputed_top, size - in_other_streams)
            leaving = max(leaving, self._count_leaving(moment) - dropped)
            largest = (size + engine + lasts + flows) * uncertainty.highest_factor
            if largest - in_other_streams > recomputed_reserved:
                _, lasting, flowing, _ = uncertainty.weigh_moment(parts)
                lasting += lasts + engine - parts.get(ENGINE, 0.0)
                high = uncertainty.compute_bounds(lasting, flowing + flows - dropped, uncertainty.paged)[1]
                recomputed_reserved = max(recomputed_reserved, high - in_other_streams)
        recomputed_top += engine
        top_with_factor = max(recomputed_top, recomputed_reserved - uncertainty.held_high) / uncertainty.flow_factor
        highest_unshared = step.highest_unshared + step.highest_recomputed - step.highest_without_loss + engine
        low, expected, high = gaps.estimate_step(
            step.highest_recomputed, highest_unshared, recomputed_top, top_with_factor
        )
        high += (recomputed_reserved - reserved) / uncertainty.flow_factor
        if self.setup.ranks.parameter_shards > 1:
            high = max(high, gaps.estimate_between_steps(leaving)[2])
        return low + recomputed_top - top, expected + recomputed_top - top, high

    def _count_leaving(self, moment: Sized) -> float:
        """Return the bytes of a moment that a later step may find cached but unusable."""
        size, in_other_streams, parts, _ = moment
        return size - parts.get(GRADIENTS, 0.0) - (in_other_streams if self.uncertainty.streams_pass else 0.0)

    def _bound_gpu_budget(
        self,
        phase: str,
        parts: tuple[tuple[Component, int], ...],
        fields: frozenset[Field],
        paged: float,
        bounds: tuple[float, float, float],
        spare: tuple[float, float, float],
        cached: tuple[float, float],
        pools: float = 0.0,
    ) -> Budget:
        """Return a GPU budget with the overheads of the driver and the allocator.

        `bounds`: low and high bound of the allocated bytes, and the high bound with the pools of other streams; `pools`
        is the excess of these pools over their allocated bytes. `spare`: low, expected and high value of the further
        bytes that torch's allocator holds. `cached`: expected and high value of the bytes that it frees before an
        allocation fails.
        """
        uncertainty = self.uncertainty
        low, high, reserved = bounds
        reserved += spare[2] * uncertainty.flow_factor
        managed = paged * uncertainty.held_factor - uncertainty.workspace_high
        low += uncertainty.overheads_low
        spans = (low - uncertainty.context_low, high - managed, reserved - managed + cached[1], spare[0] + pools)
        sizes = (*parts, *uncertainty.overheads, (RESERVE, int(spare[1] + pools)))
        top = int(uncertainty.overheads_high + reserved)
        return Budget("gpu", sizes, int(low), top, fields, spans, int(cached[0]), phase, self.basis)

    def build_host_budget(
        self, phase: str, parts: dict[Component, float], fields: frozenset[Field] = NO_FIELDS
    ) -> Budget:
        """Return the host budget of one node, with the range of each component's coefficient."""
        coefficients = load_table().coefficients
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        low = high = 0.0
        for component, size in sizes:
            _, low_value, expected, high_value, _, _ = coefficients[component.coefficient]
            low += size * low_value / expected
            high += size * high_value / expected
        return Budget("host", sizes, int(low), int(high), fields, phase=phase, basis=self.basis)

    def build_disk_budget(self, phase: str, parts: dict[Component, float]) -> Budget:
        """Return the disk budget of the job's checkpoints, whose bounds equal the expected value."""
        sizes = tuple([(component, int(size)) for component, size in parts.items() if size])
        total = sum([size for _, size in sizes])
        return Budget("disk", sizes, total, total, DISK_FIELDS, phase=phase, basis=self.basis)


def has_exact_inputs(setup: Setup) -> bool:
    """Return whether the layers keep only their inputs, whose size no kernel and no split changes."""
    ranks, checkpointing = setup.ranks, setup.checkpointing
    is_split = ranks.tensor * ranks.pipeline * ranks.context * ranks.expert > 1
    return checkpointing.method == "full" and checkpointing.recomputed == 1 and not is_split


_PARTLY: Final = frozenset(("selective", "fine_grained", "budget", "every_n"))
"""Checkpointing methods that recompute only some of the saved tensors."""


def find_flow_residual(setup: Setup, coefficient_table: CoefficientTable) -> Residual:
    """Return the residual that applies to the token-dependent parts of a setup."""
    ranks = setup.ranks
    untraced = coefficient_table.residuals["untraced"]
    if ranks.tensor > 1 and ranks.sequence_split == 1:  # each rank holds between an even share and the whole
        return untraced._replace(low=(1 + untraced.low) / ranks.tensor - 1)
    if ranks.tensor * ranks.pipeline * ranks.context * ranks.expert > 1:
        return untraced
    if setup.compiled.layers:
        return coefficient_table.residuals["compiled"]
    unsure = setup.approximate or setup.checkpointing.method in _PARTLY
    return untraced if unsure or not is_traced(setup.architecture) else coefficient_table.residuals["traced"]
