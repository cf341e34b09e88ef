"""Peak memory of each phase of a plan, with an interval.

The expected value of a phase is its highest event (`events.py`) plus the overhead of torch's allocator and the driver.
For the bounds, every part has the lowest or highest value that the calibration measurements allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import itemgetter

from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import host, reserve, rollout
from cfglint_train.memory.budget import GENERATION, STEP_PHASES, SYNC, Budget, Estimate, Phase
from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    ACTIVATIONS,
    BACKWARD,
    BUCKETS,
    CONTEXT,
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
    SYNCED,
    WAITING,
    WEIGHT_COPIES,
    WORKERS,
)
from cfglint_train.memory.events import compute_mask_bytes, generate_step_events
from cfglint_train.memory.job import Job
from cfglint_train.memory.logits import (
    build_head,
    compute_evaluation_bytes,
    compute_evaluation_chunk,
    compute_scored_logits,
)
from cfglint_train.memory.phase_budget import PhaseBudget, Sized, Step, Uncertainty, build_uncertainty
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
from cfglint_train.memory.resume import estimate_resume
from cfglint_train.memory.save import estimate_save
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import build_job, drop_batch, read_setup, read_setup_and_job
from cfglint_train.memory.size import CHECKPOINTS, label_count
from cfglint_train.memory.states import count_partition_elements
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan

if TYPE_CHECKING:
    from cfglint_train.memory.plan_reader import Missing
    from cfglint_train.plan.names import Field


# Placeholder for an unknown model, used to find out which other fields are missing.
_PLACEHOLDER_MODEL: Final = Architecture("", "llama", 1, 1, 1, 1, 1, 1, 1, False, 1, 1, 1, 1)


def estimate(
    plan: Plan,
    architecture: Architecture | None,
    hardware: Hardware | None = None,
    unreadable: frozenset[Field] = frozenset(),
) -> Estimate:
    """Estimate the peak of every phase that can be computed, and list the missing inputs of the others.

    `architecture` and `hardware` are None if unknown. `unreadable`: fields whose value is undetermined; no default
    replaces them.
    """
    compute = _estimate_once if _is_hashable(plan) else _estimate
    return compute(plan, architecture, hardware, unreadable)


def _is_hashable(plan: Plan) -> bool:
    """Return whether a plan has no stated dimensions of its model, which may contain lists."""
    return plan.model.overrides is None and plan.model.architecture is None


def _estimate(
    plan: Plan, architecture: Architecture | None, hardware: Hardware | None, unreadable: frozenset[Field]
) -> Estimate:
    if architecture is None:
        missing = read_setup(plan, _PLACEHOLDER_MODEL, unreadable=unreadable)[1].missing
        return Estimate((), tuple(dict.fromkeys((MODEL, *missing))))
    setup_and_job, reader = read_setup_and_job(plan, architecture, unreadable=unreadable)
    if setup_and_job is None:
        phases = _estimate_without_batch(plan, architecture, hardware, reader)
        return Estimate(phases, tuple(reader.missing), reader.fields, tuple(reader.assumed))
    setup, job = setup_and_job
    result = estimate_setup(setup, reader, hardware, job=job)
    if setup.ranks.pipeline > 1:
        first, reader = read_setup_and_job(plan, architecture, last_stage=False, unreadable=unreadable)
        if first is None:  # a stage without a trained element
            return Estimate((), tuple(reader.missing), reader.fields, tuple(reader.assumed))
        result = merge_stages(result, estimate_setup(first[0], reader, hardware, job=first[1]))
    if plan.model.roles:
        role_phases = tuple(_estimate_groups(plan, architecture, hardware, unreadable))
        result = result._replace(phases=(*result.phases, *role_phases))
    return result


_estimate_once: Final = lru_cache(maxsize=256)(_estimate)
"""`_estimate`, with the last results kept: rules, searches and scenarios lead to equal plans."""


def estimate_checkpoint(
    plan: Plan, architecture: Architecture, hardware: Hardware | None, unreadable: frozenset[Field]
) -> Phase | None:
    """Return host and disk of the phase that saves a checkpoint, or None if `estimate` has no such phase.

    Most fields that decide what is saved change no other phase, so the steps are not estimated.
    """
    setup_and_job, reader = read_setup_and_job(plan, architecture, unreadable=unreadable)
    if setup_and_job is None:
        phases = _estimate_without_batch(plan, architecture, hardware, reader)
    elif (
        setup_and_job[0].ranks.pipeline > 1
        and read_setup_and_job(plan, architecture, last_stage=False, unreadable=unreadable)[0] is None
    ):
        return None
    else:
        phases = tuple(_build_phases_between_steps(build_uncertainty(setup_and_job[1], hardware, None))[1])
    return next((phase._replace(gpu=None) for phase in phases if phase.name == "save"), None)


_BATCH_FIELDS: Final = frozenset(("batch.micro", "sequence.length"))


def _estimate_without_batch(
    plan: Plan, architecture: Architecture, hardware: Hardware | None, reader: Reader
) -> tuple[Phase, ...]:
    """Return host and disk of the phases that do not depend on the batch, or nothing if more than the batch is missing.

    `reader`: the reader of the whole job.
    """
    if not _BATCH_FIELDS.issuperset(reader.missing):
        return ()
    accumulation = plan.batch.accumulation or 1
    job, ranks, job_reader = build_job(drop_batch(plan), architecture, True, accumulation)
    if job is None or job_reader.missing or ranks.pipeline > 1 or reader.unreadable.intersection(job_reader.fields):
        return ()
    load, later = _build_phases_between_steps(build_uncertainty(job, hardware, None))
    phases = [phase._replace(gpu=None) for phase in (load, *later)]
    return tuple([phase for phase in phases if phase.host is not None or phase.disk is not None])


def _estimate_groups(
    plan: Plan, architecture: Architecture, hardware: Hardware | None, unreadable: frozenset[Field]
) -> Iterator[Phase]:
    """Yield one phase per model with its own GPUs: the highest step phase if it is trained, else its scoring pass."""
    from cfglint_train.memory.groups import generate_groups

    for role, role_plan, model in generate_groups(plan, architecture):
        compute = _estimate_group_once if _is_hashable(role_plan) else _estimate_group
        phase = compute(role_plan, model, hardware, unreadable, role.trained)
        if phase is not None:
            yield phase._replace(name=role.name)


def _estimate_group(
    plan: Plan, model: Architecture, hardware: Hardware | None, unreadable: frozenset[Field], is_trained: bool
) -> Phase | None:
    """Return the phase of a model with a plan of its own, or None if it cannot be estimated."""
    setup_and_job, reader = read_setup_and_job(plan, model, unreadable=unreadable)
    if setup_and_job is None:
        return None
    setup, job = setup_and_job
    if not is_trained:
        return _build_scoring_phase(PhaseBudget(setup, reader, build_uncertainty(job, hardware, None)))
    steps = _build_step_phases(PhaseBudget(setup, reader, build_uncertainty(job, hardware, None)))
    worst = max(steps, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
    return None if worst is None else Phase("", f"{worst.name}, {worst.event}", worst.gpu)


_estimate_group_once: Final = lru_cache(maxsize=256)(_estimate_group)
"""`_estimate_group`, with the last results kept: most changes of a job leave its other models' plans as they are."""


SCORED: Final = "scored"


def _build_scoring_phase(budgets: PhaseBudget) -> Phase | None:
    """Return the forward pass of a model that only scores, or None if its layers or tokens are unknown."""
    parts = _compute_scoring_parts(budgets)
    if parts is None:
        return None
    budget = budgets.build_gpu_budget(SCORED, {**budgets.job.lasting, **parts}, ROLLOUT_FIELDS, steady=False)
    return Phase(SCORED, "scoring a micro batch", budget)


def _compute_scoring_parts(budgets: PhaseBudget) -> dict[Component, float] | None:
    """Return the temporaries of a pass without gradients, or None if they cannot be computed.

    These are gathered weights, and the larger of a layer's tensors and the logits with log-probabilities.
    """
    from cfglint_train.memory.groups import count_scoring_tokens

    setup, flow = budgets.setup, budgets.flow
    scored = None if flow is None else count_scoring_tokens(budgets.reader)
    if flow is None or scored is None:
        return None
    tokens = label_count(scored, "tokens", setup.weights.trained)
    logits = compute_scored_logits(setup, tokens)
    layer = flow.stack.compute_inference(tokens)
    return {GATHERED: budgets.job.gathered[0], **({LOGITS: logits} if logits > layer else {FORWARD: layer})}


def merge_stages(last_stage: Estimate, first_stage: Estimate) -> Estimate:
    """Return, for each phase, the GPU budget of the pipeline stage that needs more memory.

    The host and disk budgets are those of `last_stage`. Each bound is the higher of the two stages' bounds.
    """
    phases = []
    for phase in last_stage.phases:
        first_phase = first_stage.find_phase(phase.name)
        if first_phase is not None and first_phase.gpu is not None and phase.gpu is not None:
            first, last = first_phase.gpu, phase.gpu
            low, high = max(first.low, last.low), max(first.high, last.high)
            if first.expected > last.expected:
                phase = phase._replace(
                    event=f"first stage: {first_phase.event}", gpu=first._replace(low=low, high=high)
                )
            else:
                phase = phase._replace(event=f"last stage: {phase.event}", gpu=last._replace(low=low, high=high))
        phases.append(phase)
    return last_stage._replace(phases=tuple(phases))


def estimate_setup(
    setup: Setup,
    reader: Reader,
    hardware: Hardware | None = None,
    residual: Residual | None = None,
    job: Job | None = None,
) -> Estimate:
    """Estimate a setup that was read from a plan, possibly with changes that no plan can express.

    `residual`: observed error of comparable jobs, in place of the calibration table's. `job`: the job of an unchanged
    setup; if it is None, a job is derived from `setup`.
    """
    budgets = PhaseBudget(setup, reader, build_uncertainty(job or Job(setup, reader.plan), hardware, residual))
    missing = list(reader.missing)
    if budgets.flow is None:
        missing.append(MODEL)
    load, later = _build_phases_between_steps(budgets.uncertainty)
    phases = (
        load,
        *_build_step_phases(budgets),
        _build_eval_phase(budgets),
        *later,
        _build_rollout_phase(budgets, missing),
    )
    present = tuple([phase for phase in phases if phase is not None])
    return Estimate(present, tuple(dict.fromkeys(missing)), reader.fields, tuple(reader.assumed))


def build_phases(budgets: PhaseBudget, name: str) -> Iterable[Phase | None]:
    """Return the phase called `name` and those that are computed together with it."""
    if name in STEP_PHASES:
        return _build_step_phases(budgets)
    computed = {
        "load": _build_load_phase,
        "eval": _build_eval_phase,
        "save": _build_save_phase,
        "resume": _build_resume_phase,
        "rollout": lambda budgets: _build_rollout_phase(budgets, []),
        SCORED: _build_scoring_phase,
    }
    return (computed[name](budgets),)


def _build_phases_between_steps(uncertainty: Uncertainty) -> tuple[Phase, list[Phase]]:
    """Return the load phase, and the save and resume phases, which do not depend on the batch and are cached."""
    if uncertainty.phases_between_steps is None:
        budgets = PhaseBudget(uncertainty.job.setup, Reader(uncertainty.job.plan), uncertainty)
        later = (_build_save_phase(budgets), _build_resume_phase(budgets))
        uncertainty.phases_between_steps = _build_load_phase(budgets), [phase for phase in later if phase is not None]
    return uncertainty.phases_between_steps


def _compute_engine_bytes(budgets: PhaseBudget, woken: bool = False) -> float:
    """Return the bytes that a rollout engine holds on the GPU while the job trains.

    `woken`: whether a sleeping engine's weights are back on the GPU, for example while a checkpoint is written.
    """
    plan = budgets.plan
    if plan.rollout.mode != "colocate" or plan.rollout.engine in (None, "none", "hf"):
        return 0.0
    if plan.rollout.sleep:
        return rollout.compute_sleep_residue(budgets.setup, plan, woken)
    return _compute_engine_pool(budgets) or 0.0


def _compute_engine_pool(budgets: PhaseBudget) -> float | None:
    """Return the bytes of an awake engine on a shared GPU, or None if unknown.

    SGLang takes a share of what is free when it starts: beside the trainer's context and the weights that do not sleep
    (0.5.8, model_executor/model_runner_kv_cache_mixin.py profile_max_num_token). vLLM's share includes these at first
    (0.8.5, v1/worker/gpu_worker.py determine_available_memory).
    """
    capacity: float | None = budgets.uncertainty.capacity
    if capacity is None:
        return rollout.compute_engine_pool(budgets.plan, None)
    held = budgets.job.held
    context = label_count(dict(budgets.uncertainty.overheads)[CONTEXT], "B of the context", capacity)
    started = context + (0.0 if budgets.plan.rollout.weights_sleep else held.parameters + held.frozen)
    if budgets.plan.rollout.engine == "sglang":
        return rollout.compute_engine_pool(budgets.plan, capacity - started)
    pool = rollout.compute_engine_pool(budgets.plan, capacity)
    return max(0.0, pool - started) if pool and budgets.plan.rollout.includes_training else pool


def _build_load_phase(budgets: PhaseBudget) -> Phase:
    """Return the load phase: the weights as they are read or cast, and the copies made to create the optimizer.

    DeepSpeed casts the weights in place, tensor by tensor and starting with the embedding, before it flattens them.
    """
    setup, held, uncertainty = budgets.setup, budgets.job.held, budgets.uncertainty
    weights, formats = setup.weights, setup.formats
    steady = {PARAMETERS: held.parameters, FROZEN: held.frozen, REFERENCE: held.reference}
    parts, event = steady, "the weights on the GPU"
    if formats.loaded and formats.loaded * weights.trained > held.parameters:
        parts = {**steady, PARAMETERS: formats.loaded * weights.trained}
        event = "the whole model is on every GPU"
    elif uncertainty.whole:
        parts, event = {**steady, FROZEN: setup.frozen_bytes}, "the whole model is on every GPU"
        if setup.ranks.strategy == "fsdp2":
            parts[FROZEN] += held.frozen - setup.frozen_weights.unsharded
            event = "shards are created next to the whole model"
    if setup.ranks.zero_stage in (1, 2) and weights.trained:
        if formats.loaded > formats.gathered and weights.head_trained:
            parts[BACKWARD] = formats.gathered * budgets.job.head_elements
        flat = {**steady, BACKWARD: _compute_flattened_bytes(budgets)}
        if sum(flat.values()) > sum(parts.values()):
            parts, event = flat, "DeepSpeed flattens the weights"
    if uncertainty.ahead:
        parts, event = {**parts, FROZEN: setup.frozen_bytes}, "16-bit weights before they are quantized"
    fields = LOAD_FIELDS if uncertainty.whole or uncertainty.ahead else NO_FIELDS
    budget = budgets.build_gpu_budget("load", parts, fields, steady=False, fragments=False)
    if uncertainty.ahead:
        budget = _add_read_ahead(budget, uncertainty.ahead)
    on_host = host.compute_loading(setup, budgets.plan)
    return Phase(
        "load", event, budget, None if on_host is None else budgets.build_host_budget("load", on_host, LOAD_FIELDS)
    )


def _add_read_ahead(budget: Budget, ahead: float) -> Budget:
    """Return the budget of loading with the 16-bit weights that wait for the quantizer, `ahead` bytes at most.

    transformers 5.0 to 5.3 submit every tensor to their threads at once (core_model_loading.py): the threads bound
    only the copies in progress, not the tensors that wait. All may wait, but no more than that, so that the upper
    bound has no margin on them; if the disk is slower than the quantizer, almost none do. Expect all: of Qwen2.5-7B,
    13.47 of 15.23 GB were reserved (huggingface/transformers#44576).
    """
    sizes = tuple((part, size + int(ahead) if part == FROZEN else size) for part, size in budget.sizes)
    low, high, reserved, least = budget.spans
    return budget._replace(
        sizes=sizes, high=budget.high + int(ahead), spans=(low, high + ahead, reserved + ahead, least)
    )


def _compute_flattened_bytes(budgets: PhaseBudget) -> float:
    """Return the bytes that DeepSpeed needs beside the weights while it creates its optimizer.

    This is the larger of the flat copy of the weights and the rank's fp32 partition, unless that is on the host. If the
    GPU has no room for the copy, DeepSpeed makes it on the CPU (stage_1_and_2.py, flatten_on_accelerator), and only the
    partition counts.
    """
    setup, held = budgets.setup, budgets.job.held
    flat = setup.weights.trained * setup.formats.gathered
    local = 0.0 if setup.offload.optimizer else count_partition_elements(setup) * 8
    total = flat + held.parameters + held.frozen + held.reference + budgets.uncertainty.context_low
    if budgets.uncertainty.capacity is not None and total > budgets.uncertainty.capacity:
        return local
    return max(flat, local)


_BYTES: Final = itemgetter(0)


def _build_step_phases(budgets: PhaseBudget) -> list[Phase]:
    """Return the forward pass, the backward pass and the optimizer step, each with its highest event."""
    setup, flow = budgets.setup, budgets.flow
    moments: dict[str, list[Sized]] = {name: [] for name in STEP_PHASES}
    end = build_head(setup)
    others = recomputed = loss = 0.0
    inputs = math.inf
    if flow is not None and setup.checkpointing.method == "none":
        inputs = flow.inputs + end.cost.saved * setup.batch.tokens + compute_mask_bytes(setup)
    pool, stream_part = budgets.job.streams
    bucket, reduced = budgets.job.bucket, 0.0
    if (
        pool and setup.ranks.zero_stage == 3 and setup.offload.parameters
    ):  # the copy that a reduce-scatter sends lies in the reduce stream's pool
        reduced = bucket - budgets.job.base[BUCKETS]
    whole_logits = bool(end.logits)
    for phase, name, parts in generate_step_events(budgets.job, setup, flow, end):
        total = sum(parts.values())  # the lasting parts are the same for all events
        in_stream = parts.get(stream_part, 0.0) if stream_part is not None else 0.0
        if reduced and parts[BUCKETS] == bucket:
            in_stream += reduced
        if in_stream > pool:
            in_stream = pool
        logits = parts.get(LOGITS, 0.0) if whole_logits else 0.0  # chunked logits share blocks with other tensors
        if logits > loss:
            loss = logits
        rest = total - logits - in_stream
        if rest > others:
            others = rest
        kept = parts.get(ACTIVATIONS, 0.0)
        if kept > inputs:
            rest -= kept - inputs
        if rest > recomputed:
            recomputed = rest
        moments[phase].append((total, in_stream, parts, name))
    if flow is None:
        moments["backward"].clear()
    if setup.optimizer.state is None:
        moments.clear()
    shared = Step(
        others,
        others + loss + end.logits,
        recomputed,
        inputs,
        whole_logits,
        reserve.compute_unshared_activations(setup, flow),
        _compute_engine_bytes(budgets),
    )
    activation_parts = {
        OFFLOADED_ACTIVATIONS: host.compute_offloaded_activations(setup),
        WAITING: host.compute_waiting_batches(setup, budgets.plan),
    }
    host_parts = {**budgets.job.on_the_host, **activation_parts}
    phases = []
    for name, events in moments.items():
        if not events:
            continue
        on_host = budgets.build_host_budget(name, host_parts, HOST_FIELDS) if name == "optimizer step" else None
        highest = max(events, key=_BYTES)
        phases.append(Phase(name, highest[3], budgets.build_step_budget(name, shared, events, highest), on_host))
    return phases


def _build_eval_phase(budgets: PhaseBudget) -> Phase | None:
    """Return the evaluation phase, or None if the run has none or its batch or layers are unknown.

    Evaluation computes no gradients and keeps no activations, but most losses compute whole logits in it.
    """
    setup, plan, flow = budgets.setup, budgets.plan, budgets.flow
    if setup.batch.evaluation_tokens is None or flow is None:
        return None
    if not plan.eval.enabled and (plan.eval.enabled is False or plan.eval.strategy == "no"):
        return None  # an evaluation enabled without a strategy still runs once, after training
    if setup.loss.policy or setup.loss.scores:
        return None
    tokens = setup.batch.evaluation_tokens
    parts = {
        BUCKETS: budgets.job.base[BUCKETS],
        GATHERED: budgets.job.gathered[0],
        WEIGHT_COPIES: flow.copies,
        FORWARD: flow.stack.compute_inference(tokens),
        LOGITS: tokens * setup.architecture.vocab * compute_evaluation_bytes(setup) + compute_evaluation_chunk(setup),
    }
    if setup.ranks.zero_stage == 3:
        parts[GRADIENTS] = budgets.job.held.accumulated
    return Phase("eval", "the loss of an evaluation batch", budgets.build_gpu_budget("eval", parts, EVAL_FIELDS))


def _build_save_phase(budgets: PhaseBudget) -> Phase | None:
    """Return the phase that saves a checkpoint between steps, without gradients, or None if none is estimated."""
    setup, plan = budgets.setup, budgets.plan
    if setup.optimizer.state is None:
        return None
    checkpoint = estimate_save(setup, plan)
    if checkpoint is None:
        return None
    parts = {
        BUCKETS: budgets.job.base[BUCKETS],
        ENGINE: _compute_engine_bytes(budgets, woken=bool(plan.rollout.awake_at_save)),
    }
    for component, size in checkpoint.gpu.items():
        parts[component] = parts.get(component, 0.0) + size
    on_host = {**host.compute_offloaded(setup), WORKERS: host.compute_worker_memory(setup, plan), **checkpoint.host}
    copies = label_count(checkpoint.copies, CHECKPOINTS, setup.weights.trained)
    on_disk = {component: copies * size for component, size in checkpoint.disk.items()}
    return Phase(
        "save",
        checkpoint.event,
        budgets.build_gpu_budget("save", parts, SAVE_FIELDS),
        budgets.build_host_budget("save", on_host, SAVE_HOST_FIELDS),
        budgets.build_disk_budget("save", on_disk),
    )


def _build_resume_phase(budgets: PhaseBudget) -> Phase | None:
    """Return the phase that loads a checkpoint on GPU and host, or None if none is estimated."""
    loaded = estimate_resume(budgets.setup, budgets.plan)
    if loaded is None:
        return None
    on_gpu = None
    if loaded.gpu is not None and budgets.setup.optimizer.state is not None:
        # Under stage 3, DeepSpeed allocates its gradient buffers with the engine, otherwise in the first backward pass.
        buffers = budgets.job.base if budgets.setup.ranks.zero_stage == 3 else {}
        on_gpu = budgets.build_gpu_budget("resume", {**buffers, **loaded.gpu}, RESUME_FIELDS, fragments=False)
    on_host = None
    if loaded.host:
        parts = {**host.compute_offloaded(budgets.setup), **loaded.host}
        on_host = budgets.build_host_budget("resume", parts, RESUME_FIELDS)
    return Phase("resume", loaded.event, on_gpu, on_host)


def _build_rollout_phase(budgets: PhaseBudget, missing: list[Missing]) -> Phase | None:
    """Return the rollout phase on the training GPUs, or None: generation, scoring, or sending weights to the engine.

    The event that needs most decides. Weights that sleep leave the GPU only during generation.

    `rollout.utilization` is added to `missing` if the engine's memory is unknown.
    """
    plan = budgets.plan
    if plan.rollout.engine in (None, "none") and not plan.model.roles:
        return None
    size = _compute_engine_pool(budgets)
    if size is None:
        missing.append("rollout.utilization")
    gathered = rollout.compute_gathered_model(budgets.setup, plan)
    if not size and not gathered and not plan.model.roles:
        return None
    asleep = (MASTER, OPTIMIZER, PAGED) if plan.rollout.train_sleep else ()
    lasting = {component: size for component, size in budgets.job.lasting.items() if component not in asleep}
    if not asleep:
        lasting[BUCKETS] = budgets.job.base[BUCKETS]
        if budgets.setup.ranks.zero_stage == 3:
            lasting[GRADIENTS] = budgets.job.held.accumulated
    candidates = []

    def add(event: str, parts: dict[Component, float], away: tuple[Component, ...] = ()) -> None:
        parts = {**{component: size for component, size in lasting.items() if component not in away}, **parts}
        budget = budgets.build_gpu_budget("rollout", parts, ROLLOUT_FIELDS, steady=False, fragments=event != SYNC)
        candidates.append(Phase("rollout", event, budget))

    if size or gathered:
        away = (PARAMETERS, FROZEN) if plan.rollout.weights_sleep else ()
        add(GENERATION, {ENGINE: size or 0.0, GATHERED: gathered}, away)
    scored = _compute_scoring_parts(budgets) if plan.model.roles else None
    if scored is not None:
        add("scoring a micro batch", {**scored, ENGINE: _compute_engine_bytes(budgets)})
    synced = rollout.compute_sync(budgets.setup, plan) if size else None
    if synced is not None:
        for bytes_, is_woken in zip(synced, (bool(plan.rollout.wakes_first), True), strict=True):
            add(SYNC, {SYNCED: bytes_, ENGINE: _compute_engine_bytes(budgets, is_woken)})
    return max(candidates, key=lambda phase: phase.gpu.expected if phase.gpu is not None else 0, default=None)
