"""From a plan to the peaks of its phases, each with an interval.

The expected value of a phase is its highest event (`events.py`) plus what torch's allocator and the driver add. The
bounds put every part at the edge of what the calibration's rows allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import comparable, host, reserve, rollout, transients
from cfglint_train.memory.activations import Activations, activations
from cfglint_train.memory.budget import Budget, Estimate, Phase
from cfglint_train.memory.calibration import Residual, Table, table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    BACKWARD,
    BUCKETS,
    ENGINE,
    FORWARD,
    FROZEN,
    GATHERED,
    GRADIENTS,
    HOST_EXPERTS,
    IDLE_MODELS,
    LOGITS,
    MASTER,
    OFFLOADED_ACTIVATIONS,
    OPTIMIZER,
    PAGED,
    PARAMETERS,
    REFERENCE,
    RESERVE,
    SLEEPING,
    SLEEPING_STATES,
    UPDATE,
    WAITING,
    WEIGHT_COPIES,
    WORKERS,
)
from cfglint_train.memory.events import Event, gathered, steady, step_events
from cfglint_train.memory.layers.families import runs_traced_code
from cfglint_train.memory.logits import evaluation_bytes, evaluation_chunk, head
from cfglint_train.memory.phase_fields import (
    EVAL_FIELDS,
    HOST_FIELDS,
    LOAD_FIELDS,
    NO_FIELDS,
    RESUME_FIELDS,
    ROLLOUT_FIELDS,
    SAVE_FIELDS,
    SAVE_HOST_FIELDS,
)
from cfglint_train.memory.reader import MODEL, Reader
from cfglint_train.memory.resume import resume
from cfglint_train.memory.save import save
from cfglint_train.memory.setup import Setup, read
from cfglint_train.memory.states import States, states
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan

if TYPE_CHECKING:
    from cfglint_train.memory.reader import Missing
    from cfglint_train.plan.names import Field


class _Frame:
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
        flowing, jobs = _residual(setup, self.table), compared or comparable.residual(setup, self.table.residuals)
        self.gaps = reserve.gaps(setup.checkpointing not in ("none", "selective_ops"))
        held_high = self.table.residuals["states"].high
        self.factors = (flowing.low, flowing.high, held_high, jobs.low, jobs.high)
        """What every event's bounds are made with, taken apart once."""
        self.lengths = None if setup.records == 0 else reserve.lengths(setup.records)
        self.elsewhere, self.stream_part = transients.streams(setup, self.gathered)
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

    def gpu(
        self,
        parts: dict[Component, float],
        fields: frozenset[Field] = NO_FIELDS,
        step: tuple[float, float, bool] | None = None,
        steady: bool = True,
    ) -> Budget:
        """The budget of one event. `steady`: what exists all the time comes on top of `parts`. `step`: of the forward
        or backward pass or the update, with the bytes of the step's highest moment without the loss, and of all that
        would exist at once if that and the loss shared no block; and whether the logits are whole.
        """
        flow_low, flow_high, states_high, jobs_low, jobs_high = self.factors
        found, lasting, flowing, passing = self._weighed(parts)
        if steady:
            paged = self.paged
            held, lasts, flows, _ = self.held
            found, lasting, flowing = held + found, lasting + lasts, flowing + flows
        else:
            paged = parts.get(PAGED, 0.0)
        pools = kept = kept_high = inside = 0.0
        if step and self.stream_part is not None:
            inside = self.streamed(parts)
            pools = self.elsewhere - inside
            passing -= inside if self.stream_part.passes else 0.0
        spare_low, spare, spare_high = (
            self.gaps.between(passing) if step is None else self.gaps.of_step(*step[:2], sum(parts.values()) - inside)
        )
        if step and self.lengths is not None:
            loss = parts.get(LOGITS, 0.0)
            others = max(0.0, passing - loss - parts.get(UPDATE, 0.0))
            grown = self.lengths.kept(loss, others) if step[2] else self.lengths.kept(0.0, others + loss)
            kept, kept_high = max(0.0, grown[0] - spare), grown[1]
        if self.setup.parameter_shards > 1:  # what steps leave is verified on one rank only
            spare_high = max(spare_high, self.gaps.between(passing)[2])
        spare_high *= 1 + flow_high
        if step and (self.leftovers or self.pinned):  # what making the model left, where this moment does not need it
            rest = self.held[1] + self.leftovers + self.elsewhere - (lasting + flowing + spare + pools)
            kept, kept_high = max(kept, rest), max(kept_high, rest + self.pinned)
        low = self.around_low + lasting - paged + flowing * (1 + flow_low)
        flowing_high, reserve_high = flowing * (1 + flow_high), spare_high + pools
        high = self.around_high + lasting * (1 + states_high) + flowing_high + reserve_high
        allocated_low = low - self.context_low
        allocated_high = self.workspace_high + (lasting - paged) * (1 + states_high) + flowing_high
        # What the parts say of themselves, or what comparable jobs showed, whichever is wider.
        less = (lasting - paged + flowing) * jobs_low - flowing * flow_low
        if less < 0:
            low, allocated_low = low + less, allocated_low + less
        more = (lasting + flowing) * jobs_high - lasting * states_high - flowing * flow_high
        if more > 0:
            high, allocated_high = high + more, allocated_high + more
        reserved_high = allocated_high + reserve_high
        spans = (allocated_low, allocated_high, reserved_high + kept_high, spare_low + pools)
        sizes = (*found, *self.around, (RESERVE, int(spare + pools)))
        return Budget("gpu", sizes, int(low), int(high), self.read, fields, spans, int(kept), self.basis)

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


def _residual(setup: Setup, known: Table) -> Residual:
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


# Replaces an unknown model, to find out what else is unknown.
_ANY: Final = Architecture("", "llama", 1, 1, 1, 1, 1, 1, 1, False, 1, 1, 1, 1)


def estimate(
    plan: Plan,
    architecture: Architecture | None,
    hardware: Hardware | None = None,
    unreadable: frozenset[Field] = frozenset(),
) -> Estimate:
    """The peak of every phase, with what is missing for the others. `hardware` may be None.

    `unreadable`: fields that are stated, with a value that cannot be determined; nothing usual is taken for them.
    """
    if architecture is None:
        lacking = read(plan, _ANY, unreadable=unreadable)[1].missing
        return Estimate((), tuple(dict.fromkeys((MODEL, *lacking))))
    setup, reader = read(plan, architecture, unreadable=unreadable)
    if setup is None:
        return Estimate((), tuple(reader.missing), reader.fields, tuple(reader.assumed))
    found = of_setup(setup, reader, hardware)
    if setup.pipeline > 1:
        first, reader = read(plan, architecture, ends=False, unreadable=unreadable)
        assert first is not None
        found = higher(found, of_setup(first, reader, hardware))
    if plan.model.roles:
        others = tuple(_groups(plan, architecture, hardware, unreadable))
        found = found._replace(phases=(*found.phases, *others))
    return found


def _groups(
    plan: Plan, architecture: Architecture, hardware: Hardware | None, unreadable: frozenset[Field]
) -> Iterator[Phase]:
    """The highest moment of each model that has GPUs of its own."""
    from cfglint_train.memory.groups import groups, scored_tokens

    for role, own, model in groups(plan, architecture):
        setup, reader = read(own, model, unreadable=unreadable)
        if setup is None:
            continue
        if role.trained:
            steps = [phase for phase in of_setup(setup, reader, hardware).phases if phase.name in _OF_A_STEP]
            worst = max(steps, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
            if worst is not None:
                yield Phase(role.name, f"{worst.name}, {worst.event}", worst.gpu)
            continue
        flow, tokens = activations(setup), scored_tokens(reader)
        if flow is not None and tokens is not None:
            frame = _Frame(setup, reader, hardware, states(setup), None)
            parts = {**frame.steady, **_scoring(frame, flow, tokens)}
            yield Phase(role.name, "a micro batch is scored", frame.gpu(parts, ROLLOUT_FIELDS, steady=False))


_OF_A_STEP: Final = ("forward", "backward", "optimizer step")


def _scoring(frame: _Frame, flow: Activations, tokens: int) -> dict[Component, float]:
    """What a pass without gradients makes of so many tokens: a layer's tensors, then logits and log-probabilities."""
    from cfglint_train.memory.groups import SCORING_BYTES

    setup = frame.setup
    words = 0.0 if setup.scores else tokens * setup.architecture.vocab * SCORING_BYTES
    layer = flow.inference * tokens / setup.tokens
    return {GATHERED: frame.gathered[0], **({LOGITS: words} if words > layer else {FORWARD: layer})}


def higher(one: Estimate, other: Estimate) -> Estimate:
    """Of a pipeline's last and first stage the one that needs more of a GPU, phase by phase; the host and the disk are
    those of both.
    """
    phases = []
    for phase in one.phases:
        twin = other.phase(phase.name)
        if twin is not None and twin.gpu is not None and phase.gpu is not None:
            if twin.gpu.expected > phase.gpu.expected:
                phase = phase._replace(event=f"first stage: {twin.event}", gpu=twin.gpu)
            else:
                phase = phase._replace(event=f"last stage: {phase.event}")
        phases.append(phase)
    return one._replace(phases=tuple(phases))


def of_setup(
    setup: Setup, reader: Reader, hardware: Hardware | None = None, compared: Residual | None = None
) -> Estimate:
    """The same for a setup that was read from a plan (and changed in what no plan can say). `compared`: how far jobs
    like it were from their estimates, where that is not what the table says.
    """
    missing = list(reader.missing)
    held = states(setup)
    frame = _Frame(setup, reader, hardware, held, compared)
    flow = activations(setup)
    if flow is None:
        missing.append(MODEL)
    phases = [
        _load(frame, held),
        *_step(frame, held, flow, missing),
        _eval(frame, held, flow),
        _save(frame),
        _resume(frame),
        _rollout(frame, held, flow, missing),
    ]
    found = tuple(phase for phase in phases if phase is not None)
    return Estimate(found, tuple(dict.fromkeys(missing)), reader.fields, tuple(reader.assumed))


def _resident(frame: _Frame, woken: bool = False) -> float:
    """What a rollout engine holds of the GPU while the job trains; `woken`: or while a checkpoint is written."""
    plan = frame.plan
    if plan.rollout.mode != "colocate" or plan.rollout.engine in (None, "none", "hf"):
        return 0.0
    if plan.rollout.sleep:
        return rollout.residue(frame.setup, plan, woken)
    return rollout.pool(plan, frame.capacity) or 0.0


def _load(frame: _Frame, held: States) -> Phase:
    """Before the first step: the weights as they are read, or cast and with the copies that making the optimizer needs.

    DeepSpeed casts them in place, one tensor after the other, before it flattens them: the embedding is the first.
    """
    setup = frame.setup
    steady = {PARAMETERS: held.parameters, FROZEN: held.frozen, REFERENCE: held.reference}
    parts, event = steady, "the weights on the GPU"
    if setup.loaded and setup.loaded * setup.trained > held.parameters:
        parts, event = {**steady, PARAMETERS: setup.loaded * setup.trained}, "the whole model is on every GPU"
    elif frame.whole:
        parts, event = {**steady, FROZEN: setup.frozen_bytes}, "the whole model is on every GPU"
        if setup.strategy == "fsdp2":
            parts[FROZEN] += held.frozen - setup.frozen_weights.scales
            event = "shards are made beside the whole model"
    if setup.zero_stage in (1, 2) and setup.trained:
        if setup.loaded > setup.gathered and setup.head_trained:
            parts[BACKWARD] = setup.gathered * transients.head_elements(setup)
        flat = {**steady, BACKWARD: _flattened(frame, held)}
        if sum(flat.values()) > sum(parts.values()):
            parts, event = flat, "DeepSpeed flattens the weights"
    if frame.ahead:
        parts, event = {**parts, FROZEN: setup.frozen_bytes + frame.ahead}, "16-bit weights wait to be quantised"
    budget = frame.gpu(parts, LOAD_FIELDS if frame.whole or frame.ahead else NO_FIELDS, steady=False)
    if frame.ahead:  # how far the threads run ahead depends on the disk
        low, high, reserved, least = budget.spans
        budget = budget._replace(low=int(budget.low - frame.ahead), spans=(low - frame.ahead, high, reserved, least))
    staged = host.loading(setup, frame.plan)
    return Phase("load", event, budget, None if staged is None else frame.host(staged, LOAD_FIELDS))


def _flattened(frame: _Frame, held: States) -> float:
    """Bytes beside the weights while DeepSpeed makes its optimizer: the flat copy of the weights, which it makes on the
    CPU where the GPU has no room for it (stage_1_and_2.py, flatten_on_accelerator), or a rank's fp32 partition.
    """
    setup = frame.setup
    flat, local = setup.trained * setup.gathered, setup.trained / setup.optimizer_shards * 8
    whole = flat + held.parameters + held.frozen + held.reference + frame.context_low
    if frame.capacity is not None and whole > frame.capacity:
        return local
    return max(flat, local)


def _step(frame: _Frame, held: States, flow: Activations | None, missing: list[Missing]) -> list[Phase]:
    """Forward pass, backward pass and optimizer step, each with its highest event."""
    setup = frame.setup
    best: dict[str, Event] = {}
    highest: dict[str, float] = {}
    end = head(setup)
    loss = others = 0.0
    for event in step_events(setup, held, flow, end, frame.steady, frame.gathered):
        total = sum(event.passing.values())  # what lasts is the same for all
        logits = event.passing.get(LOGITS, 0.0) if end.logits else 0.0  # in pieces they share blocks like others
        loss, others = max(loss, logits), max(others, total - logits - frame.streamed(event.passing))
        if total > highest.get(event.phase, -1.0):
            best[event.phase], highest[event.phase] = event, total
    if flow is None:
        best.pop("backward", None)
    if setup.optimizer is None:
        best.clear()
    engine = _resident(frame)
    most = others + loss + end.logits + reserve.never_shared(setup, flow)
    parts = {
        **host.offloaded(setup),
        OFFLOADED_ACTIVATIONS: host.checkpointed(setup),
        HOST_EXPERTS: setup.host_experts,
        WORKERS: host.workers(setup, frame.plan),
        WAITING: host.waiting(setup, frame.plan),
        SLEEPING: rollout.host(setup, frame.plan),
        IDLE_MODELS: host.idle_models(setup),
        SLEEPING_STATES: host.asleep(setup, frame.plan),
    }
    phases = []
    for name in ("forward", "backward", "optimizer step"):
        found = best.get(name)
        if found is None:
            continue
        on_host = frame.host(parts, HOST_FIELDS) if name == "optimizer step" else None
        found.passing[ENGINE] = engine
        budget = frame.gpu(found.passing, step=(others, most + engine, bool(end.logits)))
        phases.append(Phase(name, found.name, budget, on_host))
    return phases


def _eval(frame: _Frame, held: States, flow: Activations | None) -> Phase | None:
    """Evaluation between steps: no gradients, nothing is kept, but the logits are whole."""
    setup, plan = frame.setup, frame.plan
    if setup.evaluation_tokens is None or flow is None or plan.eval.enabled is False or plan.eval.strategy == "no":
        return None
    if setup.policy or setup.scores:
        return None
    tokens = setup.evaluation_tokens
    share = tokens / setup.tokens
    parts = {
        BUCKETS: transients.held_bucket(setup),
        GATHERED: frame.gathered[0],
        WEIGHT_COPIES: flow.copies,
        FORWARD: flow.inference * share,
        LOGITS: tokens * setup.architecture.vocab * evaluation_bytes(setup) + evaluation_chunk(setup),
    }
    if setup.zero_stage == 3:
        parts[GRADIENTS] = held.accumulated
    return Phase("eval", "the loss of an evaluation batch", frame.gpu(parts, EVAL_FIELDS))


def _save(frame: _Frame) -> Phase | None:
    """A checkpoint: between steps, when gradients are gone."""
    setup, plan = frame.setup, frame.plan
    if setup.optimizer is None:
        return None
    found = save(setup, plan)
    if found is None:
        return None
    parts = {
        BUCKETS: transients.held_bucket(setup),
        ENGINE: _resident(frame, woken=True),
    }
    for component, size in found.gpu.items():
        parts[component] = parts.get(component, 0.0) + size
    on_host = {**host.offloaded(setup), WORKERS: host.workers(setup, plan), **found.host}
    on_disk = {component: size * found.copies for component, size in found.disk.items()}
    return Phase(
        "save",
        found.event,
        frame.gpu(parts, SAVE_FIELDS),
        frame.host(on_host, SAVE_HOST_FIELDS),
        frame.disk(on_disk),
    )


def _resume(frame: _Frame) -> Phase | None:
    """A checkpoint is loaded again, beside what is offloaded."""
    found = resume(frame.setup, frame.plan)
    if found is None:
        return None
    parts = {**host.offloaded(frame.setup), **found.host}
    return Phase("resume", found.event, None, frame.host(parts, RESUME_FIELDS))


def _rollout(frame: _Frame, states: States, flow: Activations | None, missing: list[Missing]) -> Phase | None:
    """Generation on the GPUs of the training job, or the passes that score what was generated."""
    plan = frame.plan
    size = rollout.pool(plan, frame.capacity)
    if size is None:
        missing.append("rollout.utilization")
    gathered = rollout.whole(frame.setup, plan)
    if not size and not gathered and not plan.model.roles:
        return None
    asleep = (MASTER, OPTIMIZER, PAGED) if plan.rollout.train_sleep else ()
    held = {component: size for component, size in frame.steady.items() if component not in asleep}
    if not asleep:
        held[BUCKETS] = transients.held_bucket(frame.setup)
        if frame.setup.zero_stage == 3:
            held[GRADIENTS] = states.accumulated
    found = []
    if size or gathered:
        parts = {**held, ENGINE: size or 0.0, GATHERED: gathered}
        found.append(Phase("rollout", "generation", frame.gpu(parts, ROLLOUT_FIELDS, steady=False)))
    if plan.model.roles and flow is not None:
        from cfglint_train.memory.groups import scored_tokens

        tokens = scored_tokens(frame.reader)
        if tokens is not None:
            parts = {**held, **_scoring(frame, flow, tokens), ENGINE: _resident(frame)}
            found.append(Phase("rollout", "a micro batch is scored", frame.gpu(parts, ROLLOUT_FIELDS, steady=False)))
    return max(found, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
