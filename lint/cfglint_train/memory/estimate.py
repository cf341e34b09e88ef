"""From a plan to the peaks of its phases, each with an interval.

The expected value of a phase is its highest event (`events.py`) plus what torch's allocator and the driver add. The
bounds put every part at the edge of what the calibration's rows allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import host, reserve, rollout, transients
from cfglint_train.memory.activations import Activations, activations
from cfglint_train.memory.budget import Estimate, Phase
from cfglint_train.memory.calibration import Residual
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
    SLEEPING,
    SLEEPING_STATES,
    WAITING,
    WEIGHT_COPIES,
    WORKERS,
)
from cfglint_train.memory.events import step_events
from cfglint_train.memory.frame import Frame, Sized, Step
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
            frame = Frame(setup, reader, hardware, states(setup), None)
            parts = {**frame.steady, **_scoring(frame, flow, tokens)}
            yield Phase(role.name, "a micro batch is scored", frame.gpu(parts, ROLLOUT_FIELDS, steady=False))


_OF_A_STEP: Final = ("forward", "backward", "optimizer step")


def _scoring(frame: Frame, flow: Activations, tokens: int) -> dict[Component, float]:
    """What a pass without gradients makes of so many tokens: a layer's tensors, then logits and log-probabilities."""
    from cfglint_train.memory.groups import SCORING_BYTES

    setup = frame.setup
    words = 0.0 if setup.scores else tokens * setup.architecture.vocab * SCORING_BYTES
    layer = flow.stack.inference(tokens)
    return {GATHERED: frame.gathered[0], **({LOGITS: words} if words > layer else {FORWARD: layer})}


def higher(one: Estimate, other: Estimate) -> Estimate:
    """Of a pipeline's last and first stage the one that needs more of a GPU, phase by phase; the host and the disk are
    those of both.
    """
    phases = []
    for phase in one.phases:
        twin = other.phase(phase.name)
        if twin is not None and twin.gpu is not None and phase.gpu is not None:
            first, last = twin.gpu, phase.gpu
            low, high = max(first.low, last.low), max(first.high, last.high)
            if first.expected > last.expected:
                phase = phase._replace(event=f"first stage: {twin.event}", gpu=first._replace(low=low, high=high))
            else:
                phase = phase._replace(event=f"last stage: {phase.event}", gpu=last._replace(low=low, high=high))
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
    frame = Frame(setup, reader, hardware, held, compared)
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


def _resident(frame: Frame, woken: bool = False) -> float:
    """What a rollout engine holds of the GPU while the job trains; `woken`: or while a checkpoint is written."""
    plan = frame.plan
    if plan.rollout.mode != "colocate" or plan.rollout.engine in (None, "none", "hf"):
        return 0.0
    if plan.rollout.sleep:
        return rollout.residue(frame.setup, plan, woken)
    return rollout.pool(plan, frame.capacity) or 0.0


def _load(frame: Frame, held: States) -> Phase:
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


def _flattened(frame: Frame, held: States) -> float:
    """Bytes beside the weights while DeepSpeed makes its optimizer: the flat copy of the weights, which it makes on the
    CPU where the GPU has no room for it (stage_1_and_2.py, flatten_on_accelerator), or a rank's fp32 partition.
    """
    setup = frame.setup
    flat, local = setup.trained * setup.gathered, setup.trained / setup.optimizer_shards * 8
    whole = flat + held.parameters + held.frozen + held.reference + frame.context_low
    if frame.capacity is not None and whole > frame.capacity:
        return local
    return max(flat, local)


def _step(frame: Frame, held: States, flow: Activations | None, missing: list[Missing]) -> list[Phase]:
    """Forward pass, backward pass and optimizer step, each with its highest event."""
    setup = frame.setup
    moments: dict[str, list[Sized]] = {name: [] for name in _OF_A_STEP}
    end = head(setup)
    loss = others = 0.0
    streams = frame.stream_part is not None
    for event in step_events(setup, held, flow, end, frame.steady, frame.gathered):
        parts = event.passing
        total = sum(parts.values())  # what lasts is the same for all
        inside = frame.streamed(parts) if streams else 0.0
        logits = parts.get(LOGITS, 0.0) if end.logits else 0.0  # in pieces they share blocks like others
        loss, others = max(loss, logits), max(others, total - logits - inside)
        moments[event.phase].append((total, inside, event))
    if flow is None:
        moments["backward"].clear()
    if setup.optimizer is None:
        moments.clear()
    shared = Step(
        others,
        others + loss + end.logits,
        bool(end.logits),
        reserve.never_shared(setup, flow),
        _resident(frame),
    )
    on_the_host = {
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
    for name, found in moments.items():
        if not found:
            continue
        on_host = frame.host(on_the_host, HOST_FIELDS) if name == "optimizer step" else None
        best = max(found, key=itemgetter(0))
        phases.append(Phase(name, best[2].name, frame.step(shared, found, best), on_host))
    return phases


def _eval(frame: Frame, held: States, flow: Activations | None) -> Phase | None:
    """Evaluation between steps: no gradients, nothing is kept, but the logits are whole."""
    setup, plan = frame.setup, frame.plan
    if setup.evaluation_tokens is None or flow is None or plan.eval.enabled is False or plan.eval.strategy == "no":
        return None
    if setup.policy or setup.scores:
        return None
    tokens = setup.evaluation_tokens
    parts = {
        BUCKETS: transients.held_bucket(setup),
        GATHERED: frame.gathered[0],
        WEIGHT_COPIES: flow.copies,
        FORWARD: flow.stack.inference(tokens),
        LOGITS: tokens * setup.architecture.vocab * evaluation_bytes(setup) + evaluation_chunk(setup),
    }
    if setup.zero_stage == 3:
        parts[GRADIENTS] = held.accumulated
    return Phase("eval", "the loss of an evaluation batch", frame.gpu(parts, EVAL_FIELDS))


def _save(frame: Frame) -> Phase | None:
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


def _resume(frame: Frame) -> Phase | None:
    """A checkpoint is loaded again, beside what is offloaded."""
    found = resume(frame.setup, frame.plan)
    if found is None:
        return None
    parts = {**host.offloaded(frame.setup), **found.host}
    return Phase("resume", found.event, None, frame.host(parts, RESUME_FIELDS))


def _rollout(frame: Frame, states: States, flow: Activations | None, missing: list[Missing]) -> Phase | None:
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
