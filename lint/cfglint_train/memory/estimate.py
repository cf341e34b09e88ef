"""From a plan to the peaks of its phases, each with an interval.

The expected value of a phase is its highest event (`events.py`) plus what torch's allocator and the driver add. The
bounds put every part at the edge of what the calibration's rows allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import host, reserve, rollout
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
    LOGITS,
    MASTER,
    OFFLOADED_ACTIVATIONS,
    OPTIMIZER,
    PAGED,
    PARAMETERS,
    REFERENCE,
    WAITING,
    WEIGHT_COPIES,
    WORKERS,
)
from cfglint_train.memory.events import step_events
from cfglint_train.memory.job import Job
from cfglint_train.memory.logits import evaluation_bytes, evaluation_chunk, head
from cfglint_train.memory.phase_budget import PhaseBudget, Sized, Step, Uncertainty, uncertainty_of
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
from cfglint_train.memory.plan_reader import MODEL, Reader
from cfglint_train.memory.resume import resume
from cfglint_train.memory.save import save
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read, read_with_job
from cfglint_train.memory.size import CHECKPOINTS, counted
from cfglint_train.memory.states import partition
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan

if TYPE_CHECKING:
    from cfglint_train.memory.plan_reader import Missing
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
    given, reader = read_with_job(plan, architecture, unreadable=unreadable)
    if given is None:
        return Estimate((), tuple(reader.missing), reader.fields, tuple(reader.assumed))
    setup, job = given
    found = of_setup(setup, reader, hardware, job=job)
    if setup.ranks.pipeline > 1:
        first, reader = read_with_job(plan, architecture, ends=False, unreadable=unreadable)
        if first is None:  # a stage without a trained element
            return Estimate((), tuple(reader.missing), reader.fields, tuple(reader.assumed))
        found = higher(found, of_setup(first[0], reader, hardware, job=first[1]))
    if plan.model.roles:
        others = tuple(_groups(plan, architecture, hardware, unreadable))
        found = found._replace(phases=(*found.phases, *others))
    return found


def _groups(
    plan: Plan, architecture: Architecture, hardware: Hardware | None, unreadable: frozenset[Field]
) -> Iterator[Phase]:
    """The highest moment of each model that has GPUs of its own."""
    from cfglint_train.memory.groups import groups

    for role, own, model in groups(plan, architecture):
        given, reader = read_with_job(own, model, unreadable=unreadable)
        if given is None:
            continue
        setup, job = given
        if role.trained:
            steps = [phase for phase in of_setup(setup, reader, hardware, job=job).phases if phase.name in _OF_A_STEP]
            worst = max(steps, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
            if worst is not None:
                yield Phase(role.name, f"{worst.name}, {worst.event}", worst.gpu)
            continue
        phase = _scored(PhaseBudget(setup, reader, uncertainty_of(job, hardware, None)))
        if phase is not None:
            yield phase._replace(name=role.name)


_OF_A_STEP: Final = ("forward", "backward", "optimizer step")
SCORED: Final = "scored"


def _scored(budgets: PhaseBudget) -> Phase | None:
    """Return the pass of a model that only scores."""
    parts = _scoring(budgets)
    if parts is None:
        return None
    budget = budgets.gpu(SCORED, {**budgets.job.lasting, **parts}, ROLLOUT_FIELDS, steady=False)
    return Phase(SCORED, "a micro batch is scored", budget)


def _scoring(budgets: PhaseBudget) -> dict[Component, float] | None:
    """Return what a pass without gradients makes: a layer's tensors, then logits and log-probabilities."""
    from cfglint_train.memory.groups import SCORING_BYTES, scored_tokens

    setup, flow = budgets.setup, budgets.flow
    known = None if flow is None else scored_tokens(budgets.reader)
    if flow is None or known is None:
        return None
    tokens = counted(known, "tokens", setup.weights.trained)
    words = 0.0 if setup.loss.scores else tokens * setup.architecture.vocab * SCORING_BYTES
    layer = flow.stack.inference(tokens)
    return {GATHERED: budgets.job.gathered[0], **({LOGITS: words} if words > layer else {FORWARD: layer})}


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
    setup: Setup,
    reader: Reader,
    hardware: Hardware | None = None,
    compared: Residual | None = None,
    job: Job | None = None,
) -> Estimate:
    """The same for a setup that was read from a plan (and changed in what no plan can say). `compared`: how far jobs
    like it were from their estimates, where that is not what the table says. `job`: the setup's, where nothing was
    changed.
    """
    budgets = PhaseBudget(setup, reader, uncertainty_of(job or Job(setup, reader.plan), hardware, compared))
    missing = list(reader.missing)
    if budgets.flow is None:
        missing.append(MODEL)
    load, further = _between_steps(budgets.known)
    phases = (load, *_step(budgets), _eval(budgets), *further, _rollout(budgets, missing))
    found = tuple([phase for phase in phases if phase is not None])
    return Estimate(found, tuple(dict.fromkeys(missing)), reader.fields, tuple(reader.assumed))


def phases_of(budgets: PhaseBudget, name: str) -> Iterable[Phase | None]:
    """Return the phases that are computed together with the named one."""
    if name in _OF_A_STEP:
        return _step(budgets)
    computed = {
        "load": _load,
        "eval": _eval,
        "save": _save,
        "resume": _resume,
        "rollout": lambda budgets: _rollout(budgets, []),
        SCORED: _scored,
    }
    return (computed[name](budgets),)


def _between_steps(known: Uncertainty) -> tuple[Phase, list[Phase]]:
    """Loading, and saving and resuming, which no batch changes."""
    if known.between is None:
        budgets = PhaseBudget(known.job.setup, Reader(known.job.plan), known)
        further = (_save(budgets), _resume(budgets))
        known.between = _load(budgets), [phase for phase in further if phase is not None]
    return known.between


def _resident(budgets: PhaseBudget, woken: bool = False) -> float:
    """What a rollout engine holds of the GPU while the job trains; `woken`: or while a checkpoint is written."""
    plan = budgets.plan
    if plan.rollout.mode != "colocate" or plan.rollout.engine in (None, "none", "hf"):
        return 0.0
    if plan.rollout.sleep:
        return rollout.residue(budgets.setup, plan, woken)
    return rollout.pool(plan, budgets.known.capacity) or 0.0


def _load(budgets: PhaseBudget) -> Phase:
    """Before the first step: the weights as they are read, or cast and with the copies that making the optimizer needs.

    DeepSpeed casts them in place, one tensor after the other, before it flattens them: the embedding is the first.
    """
    setup, held, known = budgets.setup, budgets.job.held, budgets.known
    weights, formats = setup.weights, setup.formats
    steady = {PARAMETERS: held.parameters, FROZEN: held.frozen, REFERENCE: held.reference}
    parts, event = steady, "the weights on the GPU"
    if formats.loaded and formats.loaded * weights.trained > held.parameters:
        parts = {**steady, PARAMETERS: formats.loaded * weights.trained}
        event = "the whole model is on every GPU"
    elif known.whole:
        parts, event = {**steady, FROZEN: setup.frozen_bytes}, "the whole model is on every GPU"
        if setup.ranks.strategy == "fsdp2":
            parts[FROZEN] += held.frozen - setup.frozen_weights.scales
            event = "shards are made beside the whole model"
    if setup.ranks.zero_stage in (1, 2) and weights.trained:
        if formats.loaded > formats.gathered and weights.head_trained:
            parts[BACKWARD] = formats.gathered * budgets.job.head_elements
        flat = {**steady, BACKWARD: _flattened(budgets)}
        if sum(flat.values()) > sum(parts.values()):
            parts, event = flat, "DeepSpeed flattens the weights"
    if known.ahead:
        parts, event = {**parts, FROZEN: setup.frozen_bytes + known.ahead}, "16-bit weights wait to be quantised"
    budget = budgets.gpu("load", parts, LOAD_FIELDS if known.whole or known.ahead else NO_FIELDS, steady=False)
    if known.ahead:  # how far the threads run ahead depends on the disk
        low, high, reserved, least = budget.spans
        budget = budget._replace(low=int(budget.low - known.ahead), spans=(low - known.ahead, high, reserved, least))
    staged = host.loading(setup, budgets.plan)
    return Phase("load", event, budget, None if staged is None else budgets.host("load", staged, LOAD_FIELDS))


def _flattened(budgets: PhaseBudget) -> float:
    """Bytes beside the weights while DeepSpeed makes its optimizer: the flat copy of the weights, which it makes on the
    CPU where the GPU has no room for it (stage_1_and_2.py, flatten_on_accelerator), or a rank's fp32 partition.
    """
    setup, held = budgets.setup, budgets.job.held
    flat, local = setup.weights.trained * setup.formats.gathered, partition(setup) * 8
    whole = flat + held.parameters + held.frozen + held.reference + budgets.known.context_low
    if budgets.known.capacity is not None and whole > budgets.known.capacity:
        return local
    return max(flat, local)


_BYTES: Final = itemgetter(0)


def _step(budgets: PhaseBudget) -> list[Phase]:
    """Forward pass, backward pass and optimizer step, each with its highest event."""
    setup, flow = budgets.setup, budgets.flow
    moments: dict[str, list[Sized]] = {name: [] for name in _OF_A_STEP}
    end = head(setup)
    others = loss = 0.0
    pool, stream_part = budgets.job.streams
    whole_logits = bool(end.logits)
    for phase, name, parts in step_events(budgets.job, setup, flow, end):
        total = sum(parts.values())  # what lasts is the same for all
        inside = parts.get(stream_part, 0.0) if stream_part is not None else 0.0
        if inside > pool:
            inside = pool
        logits = parts.get(LOGITS, 0.0) if whole_logits else 0.0  # in pieces they share blocks like others
        if logits > loss:
            loss = logits
        rest = total - logits - inside
        if rest > others:
            others = rest
        moments[phase].append((total, inside, parts, name))
    if flow is None:
        moments["backward"].clear()
    if setup.optimizer.state is None:
        moments.clear()
    shared = Step(
        others, others + loss + end.logits, whole_logits, reserve.never_shared(setup, flow), _resident(budgets)
    )
    flowing = {OFFLOADED_ACTIVATIONS: host.checkpointed(setup), WAITING: host.waiting(setup, budgets.plan)}
    on_the_host = {**budgets.job.on_the_host, **flowing}
    phases = []
    for name, found in moments.items():
        if not found:
            continue
        on_host = budgets.host(name, on_the_host, HOST_FIELDS) if name == "optimizer step" else None
        best = max(found, key=_BYTES)
        phases.append(Phase(name, best[3], budgets.step(name, shared, found, best), on_host))
    return phases


def _eval(budgets: PhaseBudget) -> Phase | None:
    """Evaluation between steps, or behind them: no gradients, nothing is kept, but the logits are whole."""
    setup, plan, flow = budgets.setup, budgets.plan, budgets.flow
    if setup.batch.evaluation_tokens is None or flow is None:
        return None
    if not plan.eval.enabled and (plan.eval.enabled is False or plan.eval.strategy == "no"):
        return None  # enabled without a strategy: once, when the training is over
    if setup.loss.policy or setup.loss.scores:
        return None
    tokens = setup.batch.evaluation_tokens
    parts = {
        BUCKETS: budgets.job.base[BUCKETS],
        GATHERED: budgets.job.gathered[0],
        WEIGHT_COPIES: flow.copies,
        FORWARD: flow.stack.inference(tokens),
        LOGITS: tokens * setup.architecture.vocab * evaluation_bytes(setup) + evaluation_chunk(setup),
    }
    if setup.ranks.zero_stage == 3:
        parts[GRADIENTS] = budgets.job.held.accumulated
    return Phase("eval", "the loss of an evaluation batch", budgets.gpu("eval", parts, EVAL_FIELDS))


def _save(budgets: PhaseBudget) -> Phase | None:
    """A checkpoint: between steps, when gradients are gone."""
    setup, plan = budgets.setup, budgets.plan
    if setup.optimizer.state is None:
        return None
    found = save(setup, plan)
    if found is None:
        return None
    parts = {BUCKETS: budgets.job.base[BUCKETS], ENGINE: _resident(budgets, woken=bool(plan.rollout.awake_at_save))}
    for component, size in found.gpu.items():
        parts[component] = parts.get(component, 0.0) + size
    on_host = {**host.offloaded(setup), WORKERS: host.workers(setup, plan), **found.host}
    copies = counted(found.copies, CHECKPOINTS, setup.weights.trained)
    on_disk = {component: copies * size for component, size in found.disk.items()}
    return Phase(
        "save",
        found.event,
        budgets.gpu("save", parts, SAVE_FIELDS),
        budgets.host("save", on_host, SAVE_HOST_FIELDS),
        budgets.disk("save", on_disk),
    )


def _resume(budgets: PhaseBudget) -> Phase | None:
    """A checkpoint is loaded again, beside what is offloaded."""
    found = resume(budgets.setup, budgets.plan)
    if found is None:
        return None
    parts = {**host.offloaded(budgets.setup), **found.host}
    return Phase("resume", found.event, None, budgets.host("resume", parts, RESUME_FIELDS))


def _rollout(budgets: PhaseBudget, missing: list[Missing]) -> Phase | None:
    """Generation on the GPUs of the training job, or the passes that score what was generated."""
    plan = budgets.plan
    if plan.rollout.engine in (None, "none") and not plan.model.roles:
        return None
    size = rollout.pool(plan, budgets.known.capacity)
    if size is None:
        missing.append("rollout.utilization")
    gathered = rollout.whole(budgets.setup, plan)
    if not size and not gathered and not plan.model.roles:
        return None
    asleep = (MASTER, OPTIMIZER, PAGED) if plan.rollout.train_sleep else ()
    held = {component: size for component, size in budgets.job.lasting.items() if component not in asleep}
    if not asleep:
        held[BUCKETS] = budgets.job.base[BUCKETS]
        if budgets.setup.ranks.zero_stage == 3:
            held[GRADIENTS] = budgets.job.held.accumulated
    found = []
    if size or gathered:
        parts = {**held, ENGINE: size or 0.0, GATHERED: gathered}
        found.append(Phase("rollout", "generation", budgets.gpu("rollout", parts, ROLLOUT_FIELDS, steady=False)))
    scored = _scoring(budgets) if plan.model.roles else None
    if scored is not None:
        budget = budgets.gpu("rollout", {**held, **scored, ENGINE: _resident(budgets)}, ROLLOUT_FIELDS, steady=False)
        found.append(Phase("rollout", "a micro batch is scored", budget))
    return max(found, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
