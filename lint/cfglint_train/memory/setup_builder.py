"""From a plan to what memory depends on.

`read(plan, architecture)` returns a `Setup`, or says which plan fields it lacks. An unstated field that has a usual
neutral value (no packing, no bucket of its own) is taken as that value, and named in `assumed`.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.typed import Final
from cfglint_train.memory import adapters
from cfglint_train.memory.attention_kernel import attention_kernel
from cfglint_train.memory.batch import Batch, filled, flow_of
from cfglint_train.memory.colocated_models import colocated_models_of
from cfglint_train.memory.formats import (
    Formats,
    FrozenWeights,
    element,
    formats_of,
    frozen_weights,
    loaded,
    quantized_gather,
)
from cfglint_train.memory.job import Job
from cfglint_train.memory.layers.families import FAMILIES, Family
from cfglint_train.memory.layers.layer import residual_bytes
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.plan_reader import MODEL, Reader
from cfglint_train.memory.ranks import ModelPart, Ranks, part_of, ranks_of
from cfglint_train.memory.setup import Checkpointing, Compiled, LossChoice, Offload, Setup, Sharding
from cfglint_train.memory.trained import Trained, one_layer, shares, trained_of
from cfglint_train.memory.updates import Optimizer, chosen, optimizer_of
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import most_steps
from cfglint_train.plan.names import Field

# DeepSpeed's own reduce_bucket_size, in elements (zero/config.py).
_BUCKET: Final = 500_000_000

RL_STAGES: Final = frozenset(("ppo", "grpo", "rloo", "reinforce", "ebft"))
SCORING_STAGES: Final = frozenset(("rm", "prm"))


def read(
    plan: Plan, architecture: Architecture, ends: bool = True, unreadable: frozenset[Field] = frozenset()
) -> tuple[Setup | None, Reader]:
    """The setup, or None where essential fields are unknown (they are in the reader's `missing`). `ends`: of a
    pipeline's last stage, else of its first. `unreadable`: fields that are stated, with a value that cannot be
    determined.
    """
    found, reader = read_with_job(plan, architecture, ends, unreadable)
    return None if found is None else found[0], reader


def read_with_job(
    plan: Plan, architecture: Architecture, ends: bool = True, unreadable: frozenset[Field] = frozenset()
) -> tuple[tuple[Setup, Job] | None, Reader]:
    """The same with the job of the setup."""
    reader = Reader(plan, unreadable)
    found = _read(reader, architecture, ends)
    if not unreadable:
        return found, reader
    blind = [field for field in reader.blind if field not in OF_ONE_PHASE]
    reader.missing += [field for field in blind if field not in reader.missing]
    return None if blind else found, reader


OF_ONE_PHASE: Final = frozenset(("batch.eval_micro", "sequence.eval_length"))
"""Fields without which the other phases can be determined."""


def _read(reader: Reader, architecture: Architecture, ends: bool) -> tuple[Setup, Job] | None:
    strategy, tuning = reader.need("parallel.strategy"), reader.need("method.tuning")
    budget = reader.number("batch.tokens_per_gpu")
    micro, length = 1 if budget else reader.count("batch.micro"), reader.count("sequence.length")
    if strategy is None or tuning is None or micro is None or length is None:
        return None
    accumulation = reader.assume("batch.accumulation", 1)
    job, ranks, read_before = job_of(_without_batch(reader.plan), architecture, ends, accumulation)
    reader.repeat(read_before)
    if job is None:
        return None
    flow = filled(reader, budget, length, ranks) if budget else 0, micro, length
    return _with_batch(reader, job.setup, length, flow_of(reader, tuning, ranks.context, flow)), job


_NO_BATCH: Final = Plan()


def _without_batch(plan: Plan) -> Plan:
    """The fields that `job_of` and checkpoints follow from: of the batch only how long the run is. What is stated
    of the model's dimensions is in the architecture.
    """
    model = plan.model
    if model.overrides is not None or model.architecture is not None:
        model = model._replace(overrides=None, architecture=None)
    if plan.checkpoint.strategy == "epoch":
        batch = _NO_BATCH.batch._replace(steps=plan.batch.steps, epochs=plan.batch.epochs)
    else:
        steps, batch = most_steps(plan), _NO_BATCH.batch
        if steps is not None:
            batch = batch._replace(steps=steps)
    return plan._replace(model=model, batch=batch, sequence=_NO_BATCH.sequence)


@lru_cache(maxsize=256)
def job_of(plan: Plan, architecture: Architecture, ends: bool, accumulation: int) -> tuple[Job | None, Ranks, Reader]:
    """The job of a plan that states no batch, its ranks, and what was read."""
    reader = Reader(plan)
    strategy, tuning = reader.need("parallel.strategy"), reader.need("method.tuning")
    ranks = ranks_of(reader, strategy)
    if ranks.expert > 1 and not ranks.fsdp and strategy != "ddp":
        reader.missing.append("parallel.expert")  # DeepSpeed's own mixtures have no formula here
        return None, ranks, reader
    own, part = part_of(reader, ranks, architecture, accumulation, ends)
    formats = formats_of(reader, tuning not in ("full", "freeze"), ranks.fsdp)
    if formats is None:
        return None, ranks, reader
    trained = trained_of(reader, own, tuning, ranks)
    if trained is None:
        return None, ranks, reader
    choice = chosen(reader, ranks, formats.master or formats.held)
    if choice is not None and choice.one_layer:
        trained = one_layer(trained, own)
        formats = formats._replace(master=4.0)  # the layer's fp32 copy, which is what it updates
        choice = choice._replace(updated=4.0)
    optimizer = optimizer_of(reader, own, choice, trained, tuning)
    setup = _setup(reader, (architecture, own), part, ranks, formats, trained, optimizer, accumulation)
    return Job(setup, plan), ranks, reader


def _with_batch(reader: Reader, job: Setup, length: int, flow: tuple[int, int, int | None, int]) -> Setup:
    """Return the setup of a job with a batch of sequences of such a length."""
    architecture, mode = job.architecture, job.mode
    sequences, tokens, evaluation_tokens, whole_length = flow
    kernel, keys = attention_kernel(reader, job, sequences, length)
    several = sequences > 1 and architecture.attention is not None and architecture.attention.index_heads > 0
    if several or kernel != mode.attention or keys:
        mode = mode._replace(attention=kernel, sequence=keys, several=several)
    scored = reader.number("activations.scored_tokens")
    batch = Batch(
        sequences,
        length,
        tokens,
        job.batch.accumulation,
        evaluation_tokens,
        _image_tokens(reader, job) * sequences,
        min(1.0, scored / whole_length) if scored else 1.0,
        None if _varying(reader) else 0.0,
    )
    return job._replace(batch=batch, mode=mode)


def _setup(
    reader: Reader,
    models: tuple[Architecture, Architecture],
    part: ModelPart,
    ranks: Ranks,
    formats: Formats,
    trained: Trained,
    optimizer: Optimizer,
    accumulation: int,
) -> Setup:
    """Return everything in one record, for one sequence of one token. `models`: the whole one, and the rank's part."""
    whole, architecture = models
    mode = _mode(reader, ranks, formats, trained, accumulation)
    if optimizer.updates == "within" and not ranks.fsdp:  # a weight that is updated at once gives up its gradient, too
        mode = mode._replace(accumulates=True)
    frozen = frozen_weights(reader, architecture, trained.frozen, ranks.zero_stage)
    weights = _weights(reader, architecture, part, ranks, trained, optimizer)
    checkpointing = _checkpointing(reader)
    neighbours = colocated_models_of(reader, architecture, ranks, formats, optimizer.state)
    return Setup(
        architecture=architecture,
        whole=whole,
        ranks=ranks,
        part=part,
        weights=weights,
        frozen_weights=frozen,
        formats=_formats(reader, formats, ranks, trained, frozen, mode, FAMILIES.get(architecture.formula)),
        optimizer=optimizer,
        offload=_offload(reader, ranks),
        batch=Batch(accumulation=accumulation),
        mode=mode,
        checkpointing=checkpointing,
        loss=_loss(reader),
        compiled=_compiled(reader),
        sharding=_sharding(reader, ranks, accumulation),
        neighbours=neighbours,
        approximate=_approximate(reader, architecture, mode),
    )


def _weights(
    reader: Reader, architecture: Architecture, part: ModelPart, ranks: Ranks, trained: Trained, optimizer: Optimizer
) -> Trained:
    """Return the trained elements with what of them has gradients."""
    tuning = reader.get("method.tuning")
    share, active = shares(reader, architecture, tuning, trained, ranks.strategy == "zero" and ranks.zero_stage > 0)
    decoder = not _freezes_decoder(reader)
    return trained._replace(
        share=share,
        active=active,
        head_trained=tuning == "full" and decoder and optimizer.updates != "block" and part.ends,
        trains_tower=_trains_tower(reader, tuning),
        trains_decoder=decoder,
    )


def _formats(
    reader: Reader,
    formats: Formats,
    ranks: Ranks,
    trained: Trained,
    frozen: FrozenWeights,
    mode: Mode,
    family: Family | None,
) -> Formats:
    """Return the formats with those of what flows, and of models beside the trained one."""
    get = reader.get
    return formats._replace(
        loaded=loaded(reader),
        residual=residual_bytes(family or FAMILIES["llama"], mode),
        reference=formats.unquantized if get("method.reference_model") == "full" else 0.0,
        host_experts=formats.unquantized if get("model.host_experts") else 0.0,
        communication=element(get("parallel.communication") or "fp32"),
        unit_bytes=_unit_bytes(formats, frozen, trained, mode),
        quantized_gather=quantized_gather(reader) if ranks.zero_stage == 3 else 0.0,
    )


def _offload(reader: Reader, ranks: Ranks) -> Offload:
    return Offload(
        parameters=reader.offloads("parallel.offload_params"),
        optimizer=reader.offloads("parallel.offload_optimizer"),
        reference=ranks.zero_stage == 3 and reader.flag("method.reference_offload"),
        activations=reader.offloads("activations.offload"),
        pinned=reader.get("parallel.pin_memory") is not False,
    )


def _sharding(reader: Reader, ranks: Ranks, accumulation: int) -> Sharding:
    get, flag, number = reader.get, reader.flag, reader.number
    zero = ranks.strategy == "zero" and ranks.zero_stage > 0
    return Sharding(
        reduce_bucket=reader.assume("parallel.reduce_bucket", _BUCKET) if zero else 0,
        overlap=flag("parallel.overlap_comm"),
        reduce_scatter=get("parallel.reduce_scatter") is not False,
        prefetch_bucket=number("parallel.prefetch_bucket"),
        persistence=number("parallel.persistence_threshold"),
        live=number("parallel.max_live_parameters"),
        sub_group=number("parallel.sub_group"),
        secondary=get("parallel.secondary_partition") or 1,
        wrapping=get("parallel.wrapping") or "block",
        reshard=get("parallel.reshard_after_forward") is not False and get("parallel.sharding") != "shard_grad_op",
        leaf_modules=flag("parallel.leaf_modules"),
        defers_reduction=flag("parallel.defers_reduction") and accumulation > 1,
    )


def _compiled(reader: Reader) -> Compiled:
    layers, loss = reader.flag("activations.compile"), reader.flag("activations.compiled_loss")
    return Compiled(layers, layers and (loss or reader.flag("activations.compiled_model")), layers and loss)


def _checkpointing(reader: Reader) -> Checkpointing:
    how, tower = reader.assume("activations.checkpointing", "none"), reader.get("activations.tower")
    recomputed, kept = 1.0, 0.0
    if how == "every_n":
        every, of = reader.get("activations.every"), reader.get("activations.of")
        recomputed = of / every if every and of is not None else 1.0
    elif how == "budget":
        kept = reader.number("activations.budget")
    reentrant = reader.flag("activations.reentrant")
    return Checkpointing(how, recomputed, kept, reentrant, how != "none" if tower is None else tower)


def _unit_bytes(formats: Formats, frozen: FrozenWeights, trained: Trained, mode: Mode) -> float:
    """Bytes of an element of a gathered decoder layer: of quantised weights where those are frozen."""
    if not mode.quantized or not trained.frozen:
        return formats.gathered
    return min(formats.gathered, (frozen.bytes - frozen.scales) / trained.frozen)


def _varying(reader: Reader) -> bool:
    """Whether batches have different lengths."""
    if reader.get("sequence.packing") or reader.get("sequence.padding") in ("max_length", "none"):
        return False
    return bool(reader.get("method.stage") != "pretrain")


# Formats whose matrices have a layer of PEFT's own that casts as `Mode.as_given` says; and `Mode.clones`.
_AS_GIVEN: Final = frozenset(("nf4", "fp4", "int8", "awq", "hqq", "eetq", "aqlm"))
_CLONED: Final = frozenset(("nf4", "fp4"))


def _mode(reader: Reader, ranks: Ranks, formats: Formats, trained: Trained, accumulation: int) -> Mode:
    """What a layer's memory depends on beside the architecture and the batch."""
    get = reader.get
    quantization = get("method.quantization") or "none"
    adapter = bool(trained.leaves) or get("method.tuning") not in ("full", "freeze")
    frozen = _freezes_decoder(reader)
    weight = 4 if (formats.unquantized if frozen else formats.gathered) == 4 else 2
    return Mode(
        weight=weight,
        trained=not adapter and not frozen,
        autocast=formats.autocast and (get("precision.compute") or "bf16") != "fp32",
        rank=trained.rank,
        targets=trained.leaves,
        adapter=int(formats.held) if adapter else 4,
        dropout=adapter and bool(get("method.lora_dropout")),
        dora=adapter and bool(get("method.lora_dora")),
        expert_ranks=trained.experts,
        expert_parallel=ranks.expert,
        quantized=quantization != "none",
        as_given=quantization in _AS_GIVEN,
        clones=quantization in _CLONED,
        unpacks_experts=bool(get("method.unpacks_experts")),
        fuses_experts=bool(get("method.fuses_experts")),
        keeps_inputs=adapter and (get("method.quantization") == "int8" or bool(get("method.keeps_inputs"))),
        kernels=_kernels(reader) if trained.leaves else frozenset(),
        # torch.compile keeps what Liger's kernels keep: inputs of matrix products, not the steps between them.
        liger=bool(get("activations.liger_layers")) or bool(get("activations.compile")),
        overwrites=bool(get("activations.liger_layers")) and not get("activations.compile"),
        accumulates=not ranks.fsdp and (accumulation > 1 or ranks.zero_stage > 1),
    )


def _kernels(reader: Reader) -> frozenset[str]:
    """The parts of a layer that fused LoRA kernels run; with DoRA they keep what plain code keeps."""
    if not reader.get("method.lora_kernels") or reader.get("method.lora_dora"):
        return frozenset()
    parts = reader.get("method.lora_kernel_parts")
    return frozenset(("mlp", "qkv", "o") if parts is None else parts)


def _freezes_decoder(reader: Reader) -> bool:
    """Whether only the tower or the projector is trained; the gradient passes through the decoder all the same."""
    return reader.get("method.tuning") == "full" and bool(reader.get("model.frozen_language"))


def _trains_tower(reader: Reader, tuning: str) -> bool:
    """Adapters are put on the decoder's matrices, and `freeze` trains its last layers."""
    return tuning == "full" and not reader.get("model.frozen_vision")


def _image_tokens(reader: Reader, job: Setup) -> int:
    """Tokens of a sequence that are images. Where the number is unknown, a trained tower's activations are not known;
    a frozen one leaves nothing behind.
    """
    tower, trained = job.architecture.tower, job.weights.trains_tower
    if tower is None:
        return 0
    tokens: int | None = reader.get("sequence.image_tokens")
    if tokens is None and not trained:
        reader.assumed.append("sequence.image_tokens")
    elif trained and (tokens is None or (tokens and not tower.kind)):
        reader.missing.append("sequence.image_tokens" if tokens is None else MODEL)
    return tokens or 0


def _loss(reader: Reader) -> LossChoice:
    kind: str = reader.assume("activations.fused_loss", "none")
    compiled = kind == "none" and reader.get("activations.compile") and reader.get("activations.compiled_head")
    stage = reader.get("method.stage")
    return LossChoice(
        kind="compiled" if compiled else kind,
        keeps_logits=reader.flag("activations.keeps_outputs"),
        passing_logits=reader.number("activations.passing_logits"),
        fused_evaluation=reader.flag("activations.fused_evaluation"),
        scores=stage in SCORING_STAGES,
        policy=stage in RL_STAGES,
    )


_CHUNKED: Final = frozenset(("liger_pairs", "liger_unpaired", "liger_policy", "liger_distilled"))


_MEASURED_FUSED: Final = frozenset(("llama", "mistral", "qwen2"))
"""Families whose norm, rotation and gated unit are Llama's, whose kernels of Liger 0.8.5 were measured (liger-1b)."""


def _approximate(reader: Reader, architecture: Architecture, mode: Mode) -> bool:
    alike = reader.get("method.tuning") in adapters.KINDS
    fused = mode.liger and not (mode.overwrites and architecture.formula in _MEASURED_FUSED)
    if alike or fused or any(mode.expert_ranks) or reader.get("precision.compute") == "fp8":
        return True
    if reader.get("precision.experts") == "fp32":  # the experts' matrix products run in fp32, too
        return True
    if reader.plan.activations.fused_loss in _CHUNKED:  # kernels fuse more or less, by their sizes
        return True
    return bool(reader.get("activations.tiled_mlp") or reader.get("method.lora_kernels"))
