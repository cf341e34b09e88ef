"""Build a `Setup`, the input of the memory model, from a plan.

`read_setup(plan, architecture)` returns a `Setup`, or None, and a reader that lists the missing plan fields. If an
unstated field has a neutral default (no packing, the default bucket), the default is used and the field is `assumed`.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.attention_kernel import choose_attention_kernel
from cfglint_train.memory.batch import Batch, compute_flow, count_filled_tokens
from cfglint_train.memory.colocated_models import find_colocated_models
from cfglint_train.memory.formats import (
    Formats,
    FrozenWeights,
    get_element_bytes,
    read_formats,
    read_frozen_weights,
    read_loaded_bytes,
    read_quantized_gather,
)
from cfglint_train.memory.job import Job
from cfglint_train.memory.layers.families import FAMILIES, Family
from cfglint_train.memory.layers.layer import compute_residual_bytes
from cfglint_train.memory.layers.matrices import FUSED_PARTS, Mode
from cfglint_train.memory.plan_reader import MODEL, Reader
from cfglint_train.memory.ranks import ModelPart, Ranks, read_model_part, read_ranks
from cfglint_train.memory.setup import Checkpointing, Compiled, LossChoice, Offload, Setup, Sharding
from cfglint_train.memory.trained import OTHER_METHODS, Trained, compute_shares, read_trained, restrict_to_one_layer
from cfglint_train.memory.updates import Optimizer, build_optimizer, read_choice
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.length import compute_max_steps
from cfglint_train.plan.names import Field

# DeepSpeed's default reduce_bucket_size, in elements (zero/config.py).
_DEFAULT_BUCKET: Final = 500_000_000

RL_STAGES: Final = frozenset(("ppo", "grpo", "rloo", "reinforce", "ebft"))
SCORING_STAGES: Final = frozenset(("rm", "prm"))


def read_setup(
    plan: Plan, architecture: Architecture, last_stage: bool = True, unreadable: frozenset[Field] = frozenset()
) -> tuple[Setup | None, Reader]:
    """Return the setup, or None if essential fields are unknown, and the reader, which lists these in `missing`.

    `last_stage`: build the setup of the pipeline's last stage instead of the first. `unreadable`: fields that are set
    to a value that cannot be determined.
    """
    setup_and_job, reader = read_setup_and_job(plan, architecture, last_stage, unreadable)
    return None if setup_and_job is None else setup_and_job[0], reader


def read_setup_and_job(
    plan: Plan, architecture: Architecture, last_stage: bool = True, unreadable: frozenset[Field] = frozenset()
) -> tuple[tuple[Setup, Job] | None, Reader]:
    """Return the setup with its job, or None if essential fields are unknown, and the reader."""
    reader = Reader(plan, unreadable)
    setup_and_job = _read_from(reader, architecture, last_stage)
    if not unreadable:
        return setup_and_job, reader
    undetermined = [field for field in reader.undetermined if field not in SINGLE_PHASE_FIELDS]
    reader.missing += [field for field in undetermined if field not in reader.missing]
    return None if undetermined else setup_and_job, reader


SINGLE_PHASE_FIELDS: Final = frozenset(("batch.eval_micro", "sequence.eval_length"))
"""Fields that only one phase needs; the other phases are estimated even if these are undetermined."""


def _read_from(reader: Reader, architecture: Architecture, last_stage: bool) -> tuple[Setup, Job] | None:
    strategy, tuning = reader.require("parallel.strategy"), reader.require("method.tuning")
    budget = reader.get_number("batch.tokens_per_gpu")
    micro, length = 1 if budget else reader.require_count("batch.micro"), reader.require_count("sequence.length")
    if strategy is None or tuning is None or micro is None or length is None:
        return None
    accumulation = reader.assume("batch.accumulation", 1)
    job, ranks, job_reader = build_job(drop_batch(reader.plan), architecture, last_stage, accumulation)
    reader.include(job_reader)
    if job is None:
        return None
    flow = count_filled_tokens(reader, budget, length, ranks) if budget else 0, micro, length
    return _add_batch(reader, job.setup, length, compute_flow(reader, tuning, ranks.context, flow)), job


_NO_BATCH: Final = Plan()


def drop_batch(plan: Plan) -> Plan:
    """Return the plan with only the fields that `build_job` and checkpoints depend on.

    Drop the sequence, all of the batch except the length of the run, and stated model dimensions, which are already
    part of the architecture.
    """
    model = plan.model
    if model.overrides is not None or model.architecture is not None:
        model = model._replace(overrides=None, architecture=None)
    if plan.checkpoint.strategy == "epoch":
        batch = _NO_BATCH.batch._replace(steps=plan.batch.steps, epochs=plan.batch.epochs)
    else:
        steps, batch = compute_max_steps(plan), _NO_BATCH.batch
        if steps is not None:
            batch = batch._replace(steps=steps)
    return plan._replace(model=model, batch=batch, sequence=_NO_BATCH.sequence)


def drop_output(plan: Plan) -> Plan:
    """Return the plan with only the groups of fields that `_build_setup` depends on: no length, output or data."""
    empty = _NO_BATCH
    return plan._replace(
        batch=empty.batch, checkpoint=empty.checkpoint, eval=empty.eval, logging=empty.logging, data=empty.data
    )


@lru_cache(maxsize=256)
def build_job(
    plan: Plan, architecture: Architecture, last_stage: bool, accumulation: int
) -> tuple[Job | None, Ranks, Reader]:
    """Return the job of a plan without a batch (None if fields are missing), its ranks, and the reader."""
    setup, ranks, reader = _build_job_setup(drop_output(plan), architecture, last_stage, accumulation)
    return None if setup is None else Job(setup, plan), ranks, reader


@lru_cache(maxsize=256)
def _build_job_setup(
    plan: Plan, architecture: Architecture, last_stage: bool, accumulation: int
) -> tuple[Setup | None, Ranks, Reader]:
    """Return the setup of a job (None if fields are missing), its ranks, and the reader.

    Jobs that differ only in what they read and write share it.
    """
    reader = Reader(plan)
    strategy, tuning = reader.require("parallel.strategy"), reader.require("method.tuning")
    ranks = read_ranks(reader, strategy)
    if ranks.expert > 1 and not ranks.fsdp and strategy != "ddp":
        reader.missing.append("parallel.expert")  # cfglint has no formula for DeepSpeed's mixture of experts
        return None, ranks, reader
    rank_architecture, part = read_model_part(reader, ranks, architecture, accumulation, last_stage)
    formats = read_formats(reader, tuning not in ("full", "freeze"), ranks.fsdp)
    if formats is None:
        return None, ranks, reader
    trained = read_trained(reader, rank_architecture, tuning, ranks)
    if trained is None:
        return None, ranks, reader
    choice = read_choice(reader, ranks, formats.master or formats.held)
    if choice is not None and choice.is_blockwise:
        trained = restrict_to_one_layer(trained, rank_architecture)
        formats = formats._replace(master=4.0)  # the layer's fp32 copy, which the optimizer updates
        choice = choice._replace(updated=4.0)
    optimizer = build_optimizer(reader, rank_architecture, choice, trained, tuning)
    setup = _build_setup(
        reader, (architecture, rank_architecture), part, ranks, formats, trained, optimizer, accumulation
    )
    return setup, ranks, reader


def _add_batch(reader: Reader, job: Setup, length: int, flow: tuple[int, int, int | None, int]) -> Setup:
    """Return the setup of a job, completed with its batch. `length` is the sequence length in tokens."""
    architecture, mode = job.architecture, job.mode
    sequences, tokens, evaluation_tokens, whole_length = flow
    kernel, keys = choose_attention_kernel(reader, job, sequences, length)
    chooses_keys = sequences > 1 and architecture.attention is not None and architecture.attention.index_heads > 0
    if chooses_keys or kernel != mode.attention or keys:
        mode = mode._replace(attention=kernel, sequence=keys, several=chooses_keys)
    scored = reader.get_number("activations.scored_tokens")
    batch = Batch(
        sequences,
        length,
        tokens,
        job.batch.accumulation,
        evaluation_tokens,
        _count_image_tokens(reader, job) * sequences,
        min(1.0, scored / whole_length) if scored else 1.0,
        None if _has_varying_lengths(reader) else 0.0,
    )
    return job._replace(batch=batch, mode=mode)


def _build_setup(
    reader: Reader,
    models: tuple[Architecture, Architecture],
    part: ModelPart,
    ranks: Ranks,
    formats: Formats,
    trained: Trained,
    optimizer: Optimizer,
    accumulation: int,
) -> Setup:
    """Return the setup of a job before its batch is added: the default `Batch`, one sequence of one token.

    `models`: the architecture of the whole model, and of the rank's part.
    """
    whole, architecture = models
    mode = _build_mode(reader, ranks, formats, trained, accumulation)
    if optimizer.updates == "within" and not ranks.fsdp:  # updates during the backward pass free gradients
        mode = mode._replace(accumulates=True)
    frozen = read_frozen_weights(reader, architecture, trained.frozen, ranks.zero_stage)
    weights = _add_gradient_shares(reader, architecture, part, ranks, trained, optimizer)
    checkpointing = _read_checkpointing(reader)
    neighbours = find_colocated_models(reader, architecture, ranks, formats, optimizer.state)
    return Setup(
        architecture=architecture,
        whole=whole,
        ranks=ranks,
        part=part,
        weights=weights,
        frozen_weights=frozen,
        formats=_complete_formats(reader, formats, ranks, trained, frozen, mode, FAMILIES.get(architecture.formula)),
        optimizer=optimizer,
        offload=_read_offload(reader, ranks),
        batch=Batch(accumulation=accumulation),
        mode=mode,
        checkpointing=checkpointing,
        loss=_read_loss(reader),
        compiled=_read_compiled(reader),
        sharding=_read_sharding(reader, ranks, accumulation),
        neighbours=neighbours,
        approximate=_is_approximate(reader, architecture, mode),
    )


def _add_gradient_shares(
    reader: Reader, architecture: Architecture, part: ModelPart, ranks: Ranks, trained: Trained, optimizer: Optimizer
) -> Trained:
    """Return the trained weights, completed with the shares of them that get gradients."""
    tuning = reader.get("method.tuning")
    share, active = compute_shares(
        reader, architecture, tuning, trained, ranks.strategy == "zero" and ranks.zero_stage > 0
    )
    decoder = not _has_frozen_decoder(reader)
    return trained._replace(
        share=share,
        active=active,
        head_trained=tuning == "full" and decoder and optimizer.updates != "block" and part.ends,
        trains_tower=_has_trained_tower(reader, tuning),
        trains_decoder=decoder,
    )


def _complete_formats(
    reader: Reader,
    formats: Formats,
    ranks: Ranks,
    trained: Trained,
    frozen: FrozenWeights,
    mode: Mode,
    family: Family | None,
) -> Formats:
    """Return the formats, completed with those of the residual stream, gathered weights and further models."""
    get = reader.get
    return formats._replace(
        loaded=read_loaded_bytes(reader),
        residual=compute_residual_bytes(family or FAMILIES["llama"], mode),
        reference=formats.unquantized if get("method.reference_model") == "full" else 0.0,
        host_experts=formats.unquantized if get("model.host_experts") else 0.0,
        communication=get_element_bytes(get("parallel.communication") or "fp32"),
        unit_bytes=_compute_unit_bytes(formats, frozen, trained, mode),
        quantized_gather=read_quantized_gather(reader) if ranks.zero_stage == 3 else 0.0,
    )


def _read_offload(reader: Reader, ranks: Ranks) -> Offload:
    return Offload(
        parameters=reader.is_offloaded("parallel.offload_params"),
        optimizer=reader.is_offloaded("parallel.offload_optimizer"),
        reference=ranks.zero_stage == 3 and reader.get_flag("method.reference_offload"),
        activations=reader.is_offloaded("activations.offload"),
        pinned=reader.get("parallel.pin_memory") is not False,
    )


def _read_sharding(reader: Reader, ranks: Ranks, accumulation: int) -> Sharding:
    get, flag, number = reader.get, reader.get_flag, reader.get_number
    zero = ranks.strategy == "zero" and ranks.zero_stage > 0
    return Sharding(
        reduce_bucket=reader.assume("parallel.reduce_bucket", _DEFAULT_BUCKET) if zero else 0,
        overlap=flag("parallel.overlap_comm") or (ranks.zero_stage == 3 and get("parallel.overlap_comm") is None),
        reduce_scatter=get("parallel.reduce_scatter") is not False,
        prefetch_bucket=number("parallel.prefetch_bucket"),
        persistence=number("parallel.persistence_threshold"),
        live=number("parallel.max_live_parameters"),
        sub_group=number("parallel.sub_group"),
        secondary=get("parallel.secondary_partition") or 1,
        wrapping=_read_wrapping(reader, ranks),
        reshard=get("parallel.reshard_after_forward") is not False and get("parallel.sharding") != "shard_grad_op",
        leaf_modules=flag("parallel.leaf_modules"),
        defers_reduction=flag("parallel.defers_reduction") and accumulation > 1,
    )


def _read_wrapping(reader: Reader, ranks: Ranks) -> str:
    """Return how FSDP divides the model into units.

    For FSDP1, the Trainer replaces the policy by PEFT's if an adapter is trained, which wraps each layer (transformers
    4.39.0 to 5.23.0, trainer.py; PEFT 0.21.2 utils/other.py, fsdp_auto_wrap_policy).
    """
    wrapping: str = reader.get("parallel.wrapping") or "block"
    is_replaced = wrapping == "root" and ranks.strategy == "fsdp1" and reader.get("method.tuning") == "lora"
    return "block" if is_replaced else wrapping


def _read_compiled(reader: Reader) -> Compiled:
    layers, loss = reader.get_flag("activations.compile"), reader.get_flag("activations.compiled_loss")
    return Compiled(layers, layers and (loss or reader.get_flag("activations.compiled_model")), layers and loss)


def _read_checkpointing(reader: Reader) -> Checkpointing:
    method, tower = reader.assume("activations.checkpointing", "none"), reader.get("activations.tower")
    recomputed, kept = 1.0, 0.0
    if method == "every_n":
        period, of = reader.get("activations.every"), reader.get("activations.of")
        recomputed = of / period if period and of is not None else 1.0
    elif method == "budget":
        kept = reader.get_number("activations.budget")
    reentrant = reader.get_flag("activations.reentrant")
    return Checkpointing(method, recomputed, kept, reentrant, method != "none" if tower is None else tower)


def _compute_unit_bytes(formats: Formats, frozen: FrozenWeights, trained: Trained, mode: Mode) -> float:
    """Return the bytes per element of a gathered decoder layer; frozen quantized weights are gathered as stored."""
    if not mode.quantized or not trained.frozen:
        return formats.gathered
    return min(formats.gathered, (frozen.bytes - frozen.unsharded) / trained.frozen)


def _has_varying_lengths(reader: Reader) -> bool:
    """Return whether batches have different lengths."""
    if reader.get("sequence.packing") or reader.get("sequence.padding") in ("max_length", "none"):
        return False
    return bool(reader.get("method.stage") != "pretrain")


# Quantization formats for which `Mode.as_given` and `Mode.clones` hold.
_AS_GIVEN: Final = frozenset(("nf4", "fp4", "int8", "awq", "hqq", "eetq", "aqlm"))
_CLONED: Final = frozenset(("nf4", "fp4"))


def _build_mode(reader: Reader, ranks: Ranks, formats: Formats, trained: Trained, accumulation: int) -> Mode:
    """Return the properties other than architecture and batch that a layer's memory depends on."""
    get = reader.get
    quantization = get("method.quantization") or "none"
    adapter = bool(trained.leaves) or get("method.tuning") not in ("full", "freeze")
    frozen = _has_frozen_decoder(reader)
    weight = 4 if (formats.unquantized if frozen else formats.gathered) == 4 else 2
    return Mode(
        weight=weight,
        trained=not adapter and not frozen,
        autocast=formats.autocast and (get("precision.compute") or "bf16") != "fp32",
        rank=trained.rank,
        targets=trained.leaves,
        method=get("method.tuning") or "lora",
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
        kernels=_list_lora_kernels(reader) if trained.leaves else frozenset(),
        liger=_list_liger_parts(reader),
        overwrites=bool(get("activations.liger_layers")) and not get("activations.compile"),
        accumulates=not ranks.fsdp and (accumulation > 1 or ranks.zero_stage > 1),
    )


def _list_liger_parts(reader: Reader) -> frozenset[str]:
    """Return the parts of a layer that run in Liger's kernels or in compiled code.

    torch.compile keeps the same tensors as Liger's kernels: inputs of matrix products, no intermediate results.
    """
    compiled, parts = reader.get("activations.compile"), reader.get("activations.liger_parts")
    if not compiled and not reader.get("activations.liger_layers"):
        return frozenset()
    return FUSED_PARTS if compiled or parts is None else frozenset(parts)


def _list_lora_kernels(reader: Reader) -> frozenset[str]:
    """Return the parts of a layer that run in fused LoRA kernels.

    The result is empty with DoRA because its kernels keep the same tensors as unfused code.
    """
    if not reader.get("method.lora_kernels") or reader.get("method.lora_dora"):
        return frozenset()
    parts = reader.get("method.lora_kernel_parts")
    return frozenset(("mlp", "qkv", "o") if parts is None else parts)


def _has_frozen_decoder(reader: Reader) -> bool:
    """Return whether the decoder is frozen and only the tower or projector trains; gradients still flow through."""
    return reader.get("method.tuning") == "full" and bool(reader.get("model.frozen_language"))


def _has_trained_tower(reader: Reader, tuning: str) -> bool:
    """Return whether the vision tower is trained.

    Only full fine-tuning trains it: adapters are added to the decoder's matrices, and `freeze` trains the last layers.
    """
    return tuning == "full" and not reader.get("model.frozen_vision")


def _count_image_tokens(reader: Reader, job: Setup) -> int:
    """Return the number of image tokens of a sequence.

    If the number is unknown, so are the activations of a trained tower. A frozen tower keeps no activations.
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


def _read_loss(reader: Reader) -> LossChoice:
    kind: str = reader.assume("activations.fused_loss", "none")
    compiled = kind == "none" and reader.get("activations.compile") and reader.get("activations.compiled_head")
    stage = reader.get("method.stage")
    return LossChoice(
        kind="compiled" if compiled else kind,
        keeps_logits=reader.get_flag("activations.keeps_outputs"),
        passing_logits=reader.get_number("activations.passing_logits"),
        fused_evaluation=reader.get_flag("activations.fused_evaluation"),
        scores=stage in SCORING_STAGES,
        policy=stage in RL_STAGES,
    )


_CHUNKED: Final = frozenset(("liger_pairs", "liger_unpaired", "liger_policy", "liger_distilled"))


_MEASURED_FUSED: Final = frozenset(("llama", "mistral", "qwen2"))
"""Families with Llama's norm, rotary embedding and gated MLP; Liger 0.8.5's kernels were measured on these (row
liger-1b).
"""


def _is_approximate(reader: Reader, architecture: Architecture, mode: Mode) -> bool:
    is_peft_method = reader.get("method.tuning") in OTHER_METHODS
    fused = bool(mode.liger) and not (mode.overwrites and architecture.formula in _MEASURED_FUSED)
    if is_peft_method or fused or any(mode.expert_ranks) or reader.get("precision.compute") == "fp8":
        return True
    if reader.get("precision.experts") == "fp32":  # the experts' matrix products run in fp32, too
        return True
    if reader.plan.activations.fused_loss in _CHUNKED:  # the sizes decide how much these kernels fuse
        return True
    return bool(reader.get("activations.tiled_mlp") or reader.get("method.lora_kernels"))
