"""What memory depends on, read out of a plan once and for all: sizes, shards and formats without unknowns.

`read(plan, architecture)` returns a `Setup`, or says which plan fields it lacks. An unstated field that has a usual
neutral value (no packing, no bucket of its own) is taken as that value, and named in `assumed`.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory import adapters
from cfglint_train.memory.attention_kernel import attention_kernel
from cfglint_train.memory.batch import Batch, batch_of, filled
from cfglint_train.memory.formats import (
    Formats,
    FrozenWeights,
    element,
    formats_of,
    frozen_weights,
    loaded,
    quantized_gather,
)
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.layer import residual_bytes
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.neighbours import Neighbour, neighbours_of
from cfglint_train.memory.ranks import Part, Ranks, part_of, ranks_of
from cfglint_train.memory.reader import MODEL, Reader
from cfglint_train.memory.trained import Trained, one_layer, shares, trained_of
from cfglint_train.memory.updates import Optimizer, chosen, optimizer_of
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field

# DeepSpeed's own reduce_bucket_size, in elements (zero/config.py).
_BUCKET: Final = 500_000_000

RL_STAGES: Final = frozenset(("ppo", "grpo", "rloo", "reinforce", "ebft"))
SCORING_STAGES: Final = frozenset(("rm", "prm"))


class Setup(Frozen):
    """One training job as memory sees it. Elements are parameters, sizes bytes, for one rank unless said otherwise."""

    architecture: Architecture
    """What one rank computes with: its part under tensor, pipeline and expert parallelism."""
    whole: Architecture
    strategy: str
    zero_stage: int
    world: int
    local: int
    """Ranks of one node."""
    nodes: int
    shards: int
    """Ranks that share one copy of what is sharded."""
    parameter_shards: int
    gradient_shards: int
    optimizer_shards: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    sequence_split: int
    """Tensor-parallel ranks that share a sequence outside the matrices; 1 where each has all of it."""
    head_split: int
    """Ranks that share the output matrix, although each has all logits."""
    in_flight: float
    """Micro batches whose activations a stage of a pipeline holds at once."""
    ends: bool
    """The rank has the output matrix and the loss."""
    # what is held
    trained: int
    """Elements with a gradient, of the whole model."""
    computed: int
    """Of these the ones whose gradients a rank itself computes: of experts that ranks share, its own."""
    frozen: int
    frozen_weights: FrozenWeights
    """The frozen ones by format."""
    frozen_bytes: float
    """Of the whole model, quantised parts included."""
    adapters: int
    """Elements of adapters among the trained ones."""
    reference_bytes: float
    """Of a second whole model; 0 without one."""
    offload_reference: bool
    """The shards of `reference_bytes` wait on the host."""
    neighbours: tuple[Neighbour, ...]
    loaded: float
    """Bytes of an element of the whole model as it waits on every GPU to be sharded; 0 where it does not."""
    held: float
    """Bytes of a trained element as it is kept between steps (a shard or the whole)."""
    gathered: float
    """Bytes of an element of the weights as the forward pass reads them."""
    master: float
    """Bytes of a further copy of a trained element; 0 without one."""
    gradient: float
    """Bytes of a gradient element as the backward pass makes it."""
    accumulated: float
    """Bytes of a gradient element between micro batches."""
    optimizer: float | None
    """Bytes of optimizer state per trained element; None for an optimizer without a formula."""
    optimizer_scratch: str
    """fused, foreach, single: how the optimizer goes over the tensors."""
    scratch: tuple[float, float, float]
    """Bytes that one call makes: per element of all it updates, per element of the largest tensor, and besides."""
    updates: str
    """after (the backward pass), within (each weight as its gradient is there), block (one decoder layer at a time)."""
    paged: bool
    offload_parameters: bool
    offload_optimizer: bool
    pinned: bool
    # what flows
    tokens: int
    """Of one micro batch on one GPU."""
    length: int
    sequences: int
    accumulation: int
    evaluation_tokens: int | None
    mode: Mode
    residual: int
    """Bytes of an element of the residual stream."""
    checkpointing: str
    recomputed: float
    """Share of the layers that run their forward pass again."""
    kept: float
    """For a budget: share of the activations that is kept."""
    reentrant: bool
    offload_activations: bool
    loss: str
    keeps_logits: bool
    passing_logits: int
    """Bytes per token and word of logits beside those of the loss, its own included."""
    scored: float
    """Share of the tokens that have logits."""
    scores: bool
    """The model ends in a score per sequence rather than in logits."""
    image_tokens: int
    """Of one micro batch on one GPU, among `tokens`."""
    trains_tower: bool
    recomputes_tower: bool
    """Blocks of the tower are checkpointed."""
    trains_decoder: bool
    """The decoder's own weights get gradients, or an adapter beside them."""
    policy: bool
    """Log-probabilities of reinforcement learning rather than a mean loss."""
    trained_layers: int
    """Decoder layers that keep activations."""
    trained_share: float
    """Of the weights of those layers."""
    active: float
    """Share of the trained elements that have gradients at a time."""
    head_trained: bool
    compile: bool
    compiled_model: bool
    """The whole model, not one layer at a time."""
    compiled_loss: bool
    """Within the compiled model."""
    # buckets and gathers, in elements
    reduce_bucket: int
    overlap: bool
    reduce_scatter: bool
    prefetch_bucket: int
    persistence: int
    live: int
    sub_group: int
    secondary: int
    quantized_gather: float
    """Bytes that gathering in 8 bits takes per element beside the weights themselves; 0 where it is off."""
    wrapping: str
    reshard: bool
    communication: float
    unit_bytes: float
    """Bytes of an element of a gathered decoder layer, quantised or not."""
    leaf_modules: bool
    """The experts of a mixture are gathered as one unit."""
    approximate: bool
    """Kernels without traced rows run (fused layers or adapters, tiled MLPs, fp8)."""
    host_experts: float
    """Bytes of routed experts that stay on the host."""
    records: float | None
    """The batches that were each the longest so far, as multiples of the longest, itself left out: 0 where all have one
    length; None where lengths differ, in an order that is not known."""
    defers_reduction: bool
    """Micro batches before the last keep whole gradients."""

    @property
    def frozen_sharded(self) -> float:
        """Bytes of the frozen weights that ranks divide among them: all but the scales of 4 bits."""
        return self.frozen_bytes - self.frozen_weights.scales

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.architecture.layers


def read(
    plan: Plan, architecture: Architecture, ends: bool = True, unreadable: frozenset[Field] = frozenset()
) -> tuple[Setup | None, Reader]:
    """The setup, or None where essential fields are unknown (they are in the reader's `missing`). `ends`: of a
    pipeline's last stage, else of its first. `unreadable`: fields that are stated, with a value that cannot be
    determined.
    """
    reader = Reader(plan, unreadable)
    setup = _read(reader, architecture, ends)
    blind = tuple(field for field in reader.blind if field not in OF_ONE_PHASE)
    reader.missing += [field for field in blind if field not in reader.missing]
    return None if blind else setup, reader


OF_ONE_PHASE: Final = frozenset(("batch.eval_micro", "sequence.eval_length", "method.lora_targets"))
"""Fields without which the other phases can be determined, or that the usual value bounds: an adapter on all linear
layers is the largest."""


def _read(reader: Reader, architecture: Architecture, ends: bool) -> Setup | None:
    strategy, tuning = reader.need("parallel.strategy"), reader.need("method.tuning")
    budget = reader.number("batch.tokens_per_gpu")
    micro, length = 1 if budget else reader.count("batch.micro"), reader.count("sequence.length")
    if strategy is None or tuning is None or micro is None or length is None:
        return None
    ranks = ranks_of(reader, strategy)
    if ranks.expert > 1 and not ranks.fsdp and strategy != "ddp":
        reader.missing.append("parallel.expert")  # DeepSpeed's own mixtures have no formula here
        return None
    accumulation = reader.assume("batch.accumulation", 1)
    part = part_of(reader, ranks, architecture, accumulation, ends)
    formats = formats_of(reader, tuning not in ("full", "freeze"), ranks.fsdp)
    if formats is None:
        return None
    trained = trained_of(reader, part.architecture, tuning, ranks)
    choice = chosen(reader, ranks, formats.master or formats.held)
    if choice is not None and choice.one_layer:
        trained = one_layer(trained, part.architecture)
        formats = formats._replace(master=4.0)  # the layer's fp32 copy, which is what it updates
        choice = choice._replace(updated=4.0)
    optimizer = optimizer_of(reader, part.architecture, choice, trained, tuning)
    batch = batch_of(
        reader, tuning, ranks.context, (filled(reader, budget, length, ranks), micro, length, accumulation)
    )
    return _setup(reader, architecture, part, ranks, formats, trained, optimizer, batch)


def _setup(
    reader: Reader,
    whole: Architecture,
    part: Part,
    ranks: Ranks,
    formats: Formats,
    trained: Trained,
    optimizer: Optimizer,
    batch: Batch,
) -> Setup:
    """Everything in one record."""
    get, flag, number, assume = reader.get, reader.flag, reader.number, reader.assume
    architecture, tuning, stage = part.architecture, get("method.tuning"), get("method.stage")
    zero = ranks.strategy == "zero" and ranks.zero_stage > 0
    family = FAMILIES.get(architecture.formula)
    mode = _mode(reader, architecture, ranks, formats, batch, trained)
    if optimizer.updates == "within" and not ranks.fsdp:  # a weight that is updated at once gives up its gradient, too
        mode = mode._replace(accumulates=True)
    if architecture.attention is not None and architecture.attention.index_heads:
        mode = mode._replace(several=batch.sequences > 1)
    frozen = frozen_weights(reader, architecture, trained.frozen, ranks.zero_stage)
    share, active = shares(reader, architecture, tuning, trained, zero)
    checkpointing, recomputed, kept = _checkpointing(reader)
    tower, whole_length = get("activations.tower"), batch.length + batch.virtual
    return Setup(
        architecture=architecture,
        whole=whole,
        strategy=ranks.strategy,
        zero_stage=ranks.zero_stage,
        world=ranks.nodes * ranks.local,
        local=ranks.local,
        nodes=ranks.nodes,
        shards=ranks.shards,
        parameter_shards=ranks.parameters,
        gradient_shards=ranks.gradients,
        optimizer_shards=ranks.optimizer,
        tensor=ranks.tensor,
        pipeline=ranks.pipeline,
        context=ranks.context,
        expert=ranks.expert,
        sequence_split=ranks.tensor if get("parallel.sequence_parallel") else 1,
        head_split=part.head_split,
        in_flight=part.in_flight,
        ends=part.ends,
        trained=trained.trained,
        computed=trained.trained - trained.away,
        frozen=trained.frozen,
        frozen_weights=frozen,
        frozen_bytes=frozen.bytes,
        adapters=trained.adapters,
        reference_bytes=architecture.parameters * formats.plain if get("method.reference_model") == "full" else 0.0,
        offload_reference=ranks.zero_stage == 3 and flag("method.reference_offload"),
        neighbours=neighbours_of(reader, architecture, ranks, formats, optimizer.state),
        loaded=loaded(reader),
        held=formats.held,
        gathered=formats.gathered,
        master=formats.master,
        gradient=formats.gradient,
        accumulated=formats.accumulated,
        optimizer=optimizer.state,
        optimizer_scratch=optimizer.implementation,
        scratch=optimizer.scratch,
        updates=optimizer.updates,
        paged=flag("optimizer.paged"),
        offload_parameters=reader.offloads("parallel.offload_params"),
        offload_optimizer=reader.offloads("parallel.offload_optimizer"),
        pinned=get("parallel.pin_memory") is not False,
        tokens=batch.tokens,
        length=batch.length,
        sequences=batch.sequences,
        accumulation=batch.accumulation,
        evaluation_tokens=batch.evaluation_tokens,
        mode=mode,
        residual=residual_bytes(family or FAMILIES["llama"], mode),
        checkpointing=checkpointing,
        recomputed=recomputed,
        kept=kept,
        reentrant=flag("activations.reentrant"),
        offload_activations=reader.offloads("activations.offload"),
        loss=assume("activations.fused_loss", "none"),
        keeps_logits=flag("activations.keeps_outputs"),
        passing_logits=number("activations.passing_logits"),
        scored=min(1.0, (number("activations.scored_tokens") or whole_length) / whole_length),
        scores=stage in SCORING_STAGES,
        image_tokens=_image_tokens(reader, architecture, tuning) * batch.sequences,
        trains_tower=_trains_tower(reader, tuning),
        recomputes_tower=checkpointing != "none" if tower is None else tower,
        trains_decoder=not _freezes_decoder(reader),
        policy=stage in RL_STAGES,
        trained_layers=trained.layers,
        trained_share=share,
        active=active,
        head_trained=tuning == "full" and not _freezes_decoder(reader) and optimizer.updates != "block" and part.ends,
        compile=flag("activations.compile"),
        compiled_model=flag("activations.compile")
        and (flag("activations.compiled_model") or flag("activations.compiled_loss")),
        compiled_loss=flag("activations.compile") and flag("activations.compiled_loss"),
        reduce_bucket=assume("parallel.reduce_bucket", _BUCKET) if zero else 0,
        overlap=flag("parallel.overlap_comm"),
        reduce_scatter=get("parallel.reduce_scatter") is not False,
        prefetch_bucket=number("parallel.prefetch_bucket"),
        persistence=number("parallel.persistence_threshold"),
        live=number("parallel.max_live_parameters"),
        sub_group=number("parallel.sub_group"),
        secondary=get("parallel.secondary_partition") or 1,
        quantized_gather=quantized_gather(reader) if ranks.zero_stage == 3 else 0.0,
        wrapping=get("parallel.wrapping") or "block",
        reshard=get("parallel.reshard_after_forward") is not False and get("parallel.sharding") != "shard_grad_op",
        communication=element(get("parallel.communication") or "fp32"),
        unit_bytes=_unit_bytes(formats, frozen, trained, mode),
        leaf_modules=flag("parallel.leaf_modules"),
        approximate=_approximate(reader, architecture, mode),
        host_experts=float(architecture.expert_parameters * formats.plain) if flag("model.host_experts") else 0.0,
        records=None if _varying(reader, stage) else 0.0,
        defers_reduction=flag("parallel.defers_reduction") and batch.accumulation > 1,
    )


def _checkpointing(reader: Reader) -> tuple[str, float, float]:
    """How activations are checkpointed, the share of the layers that run again, and the share that a budget keeps."""
    how = reader.assume("activations.checkpointing", "none")
    if how == "every_n":
        every, of = reader.get("activations.every"), reader.get("activations.of")
        return how, of / every if every and of is not None else 1.0, 0.0
    return how, 1.0, reader.number("activations.budget") if how == "budget" else 0.0


def _unit_bytes(formats: Formats, frozen: FrozenWeights, trained: Trained, mode: Mode) -> float:
    """Bytes of an element of a gathered decoder layer: of quantised weights where those are frozen."""
    if not mode.quantized or not trained.frozen:
        return formats.gathered
    return min(formats.gathered, (frozen.bytes - frozen.scales) / trained.frozen)


def _varying(reader: Reader, stage: str | None) -> bool:
    """Whether batches have different lengths."""
    if reader.get("sequence.packing") or reader.get("sequence.padding") in ("max_length", "none"):
        return False
    return stage != "pretrain"


# Formats whose matrices have a layer of PEFT's own that casts as `Mode.as_given` says; and `Mode.clones`.
_AS_GIVEN: Final = frozenset(("nf4", "fp4", "int8", "awq", "hqq", "eetq", "aqlm"))
_CLONED: Final = frozenset(("nf4", "fp4"))


def _mode(
    reader: Reader, architecture: Architecture, ranks: Ranks, formats: Formats, batch: Batch, trained: Trained
) -> Mode:
    """What a layer's memory depends on beside the architecture."""
    get = reader.get
    quantization = get("method.quantization") or "none"
    adapter = bool(trained.leaves) or get("method.tuning") not in ("full", "freeze")
    frozen = _freezes_decoder(reader)
    weight = 4 if (formats.plain if frozen else formats.gathered) == 4 else 2
    autocast = formats.autocast and (get("precision.compute") or "bf16") != "fp32"
    kernel, sequence = attention_kernel(
        reader, architecture, batch.sequences, batch.length, fp32=weight == 4 and not autocast
    )
    return Mode(
        weight=weight,
        trained=not adapter and not frozen,
        autocast=autocast,
        attention=kernel,
        sequence=sequence,
        rank=trained.rank,
        targets=trained.leaves,
        adapter=int(formats.held) if adapter else 4,
        dropout=adapter and bool(get("method.lora_dropout")),
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
        accumulates=not ranks.fsdp and (batch.accumulation > 1 or ranks.zero_stage > 1),
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


def _image_tokens(reader: Reader, architecture: Architecture, tuning: str) -> int:
    """Tokens of a sequence that are images. Where the number is unknown, a trained tower's activations are not known;
    a frozen one leaves nothing behind.
    """
    if architecture.tower is None:
        return 0
    trained = _trains_tower(reader, tuning)
    tokens: int | None = reader.get("sequence.image_tokens")
    if tokens is None and not trained:
        reader.assumed.append("sequence.image_tokens")
    elif trained and (tokens is None or (tokens and not architecture.tower.kind)):
        reader.missing.append("sequence.image_tokens" if tokens is None else MODEL)
    return tokens or 0


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
