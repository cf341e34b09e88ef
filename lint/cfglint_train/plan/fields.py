"""Plan fields: the settings of one training job in framework-independent terms.

Fields are named `group.field` (`"batch.micro"`). `None` always means *unknown*; a feature that is switched off has a
value (`"none"`, `False`, 0). Sizes are bytes and counts are elements unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal, list_members
from cfglint_train.plan.names import Field

if TYPE_CHECKING:
    from cfglint_train.plan.choices import (
        ActivationOffload,
        Checkpointing,
        Compute,
        Engine,
        EngineMode,
        EvalStrategy,
        Format,
        FusedLoss,
        Implementation,
        Offload,
        Padding,
        Projection,
        ReferenceModel,
        SaveStrategy,
        Schedule,
        Sharding,
        SplitVocabulary,
        StateDict,
        Strategy,
        Tuning,
        Wrapping,
    )

ALL: Final = "all"


class Method(Frozen):
    """The training method and the trained part of the model."""

    stage: str | None = None
    """pretrain, sft, dpo, kto, orpo, simpo, ipo, rm, prm, ppo, grpo, rloo, reinforce or ebft."""
    tuning: Tuning | None = None
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_targets: tuple[str, ...] | None = None
    """Module names or path suffixes (`self_attn.q_proj`); `["all-linear"]`: all but the head; empty: PEFT's default."""
    lora_target_pattern: str | None = None
    """Regular expression that must match whole module paths."""
    lora_target_parameters: tuple[str, ...] | None = None
    """Parameters that get an adapter (fused experts)."""
    lora_modules_to_save: tuple[str, ...] | None = None
    """Modules that are trained in full, on a second copy of their weights."""
    lora_dropout: float | None = None
    """Dropout of the adapters' inputs; above 0, a mask and a copy of every input are kept."""
    lora_dora: bool | None = None
    lora_kernels: bool | None = None
    """True if fused kernels that keep fewer activations are used (axolotl's `lora_mlp_kernel`)."""
    lora_kernel_parts: tuple[str, ...] | None = None
    """Parts that use these kernels: mlp, qkv, o; if unknown, all of them."""
    keeps_inputs: bool | None = None
    """True if frozen 4-bit matrices keep their inputs (bitsandbytes before 0.43.1)."""
    quantization: str | None = None
    """Format of frozen base weights: none, nf4, fp4, int8, gptq, awq, hqq, eetq, aqlm, mxfp4, nvfp4 or fp8."""
    double_quantization: bool | None = None
    quantized_experts: bool | None = None
    """True if fused experts are quantized too; bitsandbytes alone leaves them in 16 bits."""
    unpacks_experts: bool | None = None
    """True if a layer's experts are unpacked and kept in 16 bits until its backward pass ends."""
    fuses_experts: bool | None = None
    """True if kernels add the experts' adapters to each product, without forming W + BA (ScatterMoE)."""
    reads_ahead: bool | None = None
    """True if 16-bit weights reach the GPU before they are quantized (transformers 5.0 to 5.3)."""
    block_size: int | None = None
    """`oft`: width of a block; 0 if `blocks` is set instead."""
    blocks: int | None = None
    """`oft`: blocks per matrix; 0 if `block_size` is set instead."""
    virtual_tokens: int | None = None
    """`prompt_tuning` and `prefix_tuning`: tokens before each sequence."""
    trainable_layers: int | None = None
    """`freeze`: trained decoder layers."""
    active_layers: int | None = None
    """Layers with gradients at the same time; over the run, all layers get optimizer states (LISA)."""
    unfrozen: tuple[str, ...] | None = None
    """`freeze`: name patterns of trained parameters, instead of layers."""
    reference_model: ReferenceModel | None = None
    reference_offload: bool | None = None
    """True if the reference model's shards stay on the host (ZeRO-3; other stages keep it whole on every GPU)."""


class Role(Frozen):
    """One model of a job with several models (actor, critic, reference, reward)."""

    name: str
    """actor, critic, reference, reward or ema; policy for an actor that waits while another model is updated."""
    model: str | None
    trained: bool
    nodes: int | None = None
    gpus_per_node: int | None = None
    pool: str | None = None
    """Name of a GPU pool, which roles of the same pool share."""
    offload: bool | None = None
    """True if the weights stay on the host between uses; for the reference model, see `method.reference_offload`."""
    unstated: str = ""
    """The setting that should name the role's model, if it is not set; else empty."""
    states_offload: bool | None = None
    """True if the optimizer states of a trained model stay on the host between its updates; the actor's:
    `rollout.train_sleep`.
    """
    micro: int | None = None
    """Sequences per GPU in the updates of a trained model on the actor's GPUs, if the actor's batch does not count."""
    tokens_per_gpu: int | None = None
    """Token budget that replaces `micro`."""
    keeps_root: bool | None = None
    """True if the weights of an untrained model outside its layers stay gathered on each GPU after a pass of FSDP1."""


class Model(Frozen):
    """The model as it is loaded."""

    id: str | None = None
    """Hub id, local path, or a framework's preset name."""
    revision: str | None = None
    overrides: tuple[tuple[str, Any], ...] | None = None
    """Keys of the model's configuration that the run overrides."""
    architecture: tuple[tuple[str, Any], ...] | None = None
    """Dimensions that the training configuration states (OLMo)."""
    trust_remote_code: bool | None = None
    from_scratch: bool | None = None
    """True if weights are initialized rather than loaded."""
    rope_scaling: str | None = None
    """Position scaling: none, linear, dynamic, yarn, llama3, ..."""
    dtype: Format | None = None
    """Format of the loaded weights."""
    frozen_vision: bool | None = None
    frozen_projector: bool | None = None
    frozen_language: bool | None = None
    init_device: str | None = None
    """Device that creates the weights: meta, cpu or cuda."""
    embeddings_fp32: bool | None = None
    """True if embeddings, head and norms are fp32 while layers are 16-bit."""
    roles: tuple[Role, ...] | None = None
    """Models of the job; if unknown, only the trained model."""
    host_experts: bool | None = None
    """True if routed experts are kept and computed on the host (KTransformers)."""


class Precision(Frozen):
    """Number formats that the run uses, regardless of the configuration's own terms.

    FSDP shards have the format of `master`, or else of `params`; gathered weights have that of `compute` if it is
    smaller.
    """

    compute: Compute | None = None
    autocast: bool | None = None
    """True if torch.autocast casts weights in other formats."""
    params: Format | None = None
    """Trained weights in the forward pass."""
    frozen: Format | None = None
    """Frozen weights that are not quantized."""
    grads: Format | None = None
    accumulation: Format | None = None
    """Gradients that are accumulated over micro batches, if their format differs from `grads`."""
    master: Format | None = None
    """The optimizer's copy of the trained weights."""
    experts: Format | None = None
    """Fused experts that are not quantized, if their format differs from `frozen`."""
    adapter: Format | None = None
    """LoRA weights."""
    loaded: Format | None = None
    """Whole trained weights on every GPU before sharding or casting."""
    tf32: bool | None = None
    """True if matrix products of fp32 matrices run on tensor cores in TF32."""


class Optimizer(Frozen):
    """The optimizer as the framework builds it, including a replacement under offload."""

    name: str | None = None
    """adamw, adam, sgd, lion, adafactor, muon, galore_adamw, apollo_adamw, adam_mini, came, lomo, adopt, ..."""
    implementation: Implementation | None = None
    state_bits: int | None = None
    """Bits per state element: 32, 16, 8 or 4."""
    embedding_bits: int | None = None
    """Bits per state element of embeddings, if they differ from `state_bits`."""
    rank: int | None = None
    """Rank of the projected gradients (GaLore, APOLLO)."""
    targets: tuple[str, ...] | None = None
    """Substrings of the names of projected matrices, or `["all-linear"]`."""
    projection: Projection | None = None
    paged: bool | None = None
    stated_name: str | None = None
    """Name as the configuration spells it."""
    learning_rate: float | None = None
    """Learning rate after the warm-up."""
    scheduler: str | None = None
    """Name as in transformers: constant, linear, cosine, ..."""
    warmup_steps: int | None = None
    """Optimizer steps of the warm-up."""
    clipping: float | None = None
    """Maximum gradient norm; 0: off."""


class Batch(Frozen):
    """Batch sizes and the length of the run."""

    micro: int | None = None
    """Sequences per GPU and forward pass."""
    micro_tokens: int | None = None
    """Tokens per GPU and forward pass, if not a whole number of sequences; replaces `micro`."""
    accumulation: int | None = None
    """Micro batches per optimizer step."""
    global_: int | None = None
    """Sequences per optimizer step."""
    global_tokens: int | None = None
    """Tokens per optimizer step, if not a whole number of sequences; replaces `global`."""
    eval_micro: int | None = None
    tokens_per_gpu: int | None = None
    """Token budget that replaces `micro` if batches are built by length."""
    pairs: bool | None = None
    """True if each sequence is a pair (chosen, rejected)."""
    auto_find: bool | None = None
    """True if the framework halves the batch when memory runs out."""
    steps: int | None = None
    """Optimizer steps of the run."""
    epochs: float | None = None
    """Passes over the data, used if `steps` and `tokens` are unknown."""
    samples: int | None = None
    """Maximum samples per epoch; prompts in PPO."""
    tokens: int | None = None
    """Tokens of the run."""


class SequenceLength(Frozen):
    """Tokens per sequence."""

    length: int | None = None
    """Maximum length; memory is estimated for it."""
    packing: bool | None = None
    padding: Padding | None = None
    eval_length: int | None = None
    eval_packing: bool | None = None
    """Packing in evaluation; if unknown, the same as in training."""
    dataset_length: int | None = None
    """Sequence length of the prepared data, if `length` must agree with it."""
    block_mask: bool | None = None
    """True if packed sequences have a length x length mask."""
    image_tokens: int | None = None
    """Image tokens per sequence, which its length includes."""


class Activations(Frozen):
    """Activations that the forward pass keeps for the backward pass."""

    checkpointing: Checkpointing | None = None
    every: int | None = None
    """`every_n`: of `every` consecutive blocks, `of` are recomputed."""
    of: int | None = None
    budget: float | None = None
    """`budget`: share of activation memory that is kept."""
    tower: bool | None = None
    """True if vision blocks are checkpointed; if unknown, the same as decoder layers."""
    reentrant: bool | None = None
    offload: ActivationOffload | None = None
    attention: str | None = None
    """eager, sdpa, flash (2), flash3, flex, xformers, sage, ..."""
    fused_loss: FusedLoss | None = None
    liger_layers: bool | None = None
    """True if Liger's fused norm, rotary embedding and gated MLP are used."""
    liger_parts: tuple[str, ...] | None = None
    """Parts of a layer that use them: norm, rotary, mlp; if unknown, all of them."""
    tiled_mlp: bool | None = None
    compile: bool | None = None
    compiled_model: bool | None = None
    """True if torch.compile covers the whole model rather than single layers."""
    compiled_loss: bool | None = None
    """True if torch.compile also covers the loss inside a transformers model."""
    compiled_head: bool | None = None
    """True if torch.compile covers an output layer that computes the loss and returns no logits."""
    dropout: float | None = None
    keeps_outputs: bool | None = None
    """True if the caller keeps the logits during the backward pass."""
    passing_logits: int | None = None
    """Bytes per token and vocabulary entry of other logits: a reference model's, or unused logits of a reward model."""
    fused_evaluation: bool | None = None
    """True if Liger's fused loss avoids logits in evaluations too (default: yes)."""
    scored_tokens: int | None = None
    """Tokens per sequence whose logits are computed, if not all."""


class Parallel(Frozen):
    """Distribution of the work and the states over GPUs."""

    strategy: Strategy | None = None
    zero_stage: int | None = None
    sharding: Sharding | None = None
    shard_size: int | None = None
    """Ranks that share one copy of the states."""
    replicas: int | None = None
    """Copies of the states (hybrid sharding)."""
    tensor: int | None = None
    sequence_parallel: bool | None = None
    """True if tensor-parallel ranks also split the sequence outside the matrices."""
    split_vocabulary: SplitVocabulary | None = None
    pipeline: int | None = None
    schedule: Schedule | None = None
    stages: int | None = None
    """Pipeline stages per rank."""
    context: int | None = None
    expert: int | None = None
    wrapping: Wrapping | None = None
    wrapping_group: int | None = None
    wrapped_classes: tuple[str, ...] | None = None
    """`block`: wrapped classes; if unknown, the model's own."""
    reshard_after_forward: bool | None = None
    use_orig_params: bool | None = None
    offload_params: Offload | None = None
    offload_optimizer: Offload | None = None
    pin_memory: bool | None = None
    reduce_bucket: int | None = None
    overlap_comm: bool | None = None
    contiguous_gradients: bool | None = None
    reduce_scatter: bool | None = None
    prefetch_bucket: int | None = None
    persistence_threshold: int | None = None
    """ZeRO-3: number of elements up to which a parameter stays whole on every rank."""
    max_live_parameters: int | None = None
    max_reuse_distance: int | None = None
    sub_group: int | None = None
    """ZeRO-3: elements that the optimizer updates at once."""
    secondary_partition: int | None = None
    """hpZ: ranks that share a second 16-bit copy; 1: off."""
    quantized_gather: bool | None = None
    """True if ZeRO++ gathers weights in 8 bits."""
    quantized_frozen: bool | None = None
    """True if ZeRO++ keeps frozen partitions in 8 bits."""
    cpu_efficient_loading: bool | None = None
    """True if one rank per node reads the weights."""
    broadcasts_weights: bool | None = None
    """True if FSDP1 sends rank 0's weights to the other ranks."""
    leaf_modules: bool | None = None
    """True if a layer's experts are gathered as one unit."""
    communication: str | None = None
    """Format in which gradients are reduced."""
    defers_reduction: bool | None = None
    """True if FSDP keeps whole gradients on every rank until the last micro batch (`no_sync`)."""


class Checkpoint(Frozen):
    """Content, timing and format of checkpoints."""

    strategy: SaveStrategy | None = None
    interval: int | None = None
    """Optimizer steps (in OpenRLHF PPO, rollout iterations) between checkpoints."""
    per_epoch: int | None = None
    """Checkpoints per epoch."""
    interval_ephemeral: int | None = None
    """Steps between temporary checkpoints, which replace each other; 0: none."""
    interval_unsharded: int | None = None
    """Steps between whole checkpoints from rank 0; 0: none."""
    keep: int | Literal["all"] | None = None
    """Checkpoints kept on disk."""
    rotates_first: bool | None = None
    """True if old checkpoints are deleted before the new one is written."""
    keep_unsharded: int | Literal["all"] | None = None
    """Whole checkpoints kept in addition."""
    model_only: bool | None = None
    """True if checkpoints have no optimizer state, so that the run cannot resume from them."""
    gather: bool | None = None
    """True if ZeRO-3 gathers 16-bit weights on rank 0 to save them."""
    gathers_frozen: bool | None = None
    """True if that gather includes frozen weights although only an adapter is saved."""
    state_dict: StateDict | None = None
    final: bool | None = None
    """True if the model is saved at the end, regardless of `strategy`."""
    checkpointer: str | None = None
    """OLMo: torch_legacy, torch_new, local or olmo_core."""
    load_checkpointer: str | None = None
    asynchronous: bool | None = None
    path: str | None = None
    load_path: str | None = None
    converted: bool | None = None
    """True if the launch script converts DeepSpeed's shards to whole weights."""
    load_ranks: int | None = None
    """Ranks that wrote the checkpoint to resume from."""
    load_universal: bool | None = None
    """True if the run loads a universal checkpoint of DeepSpeed."""
    final_path: str | None = None
    """Folder of the final weights, if not `path` (OpenRLHF)."""
    resume_latest: bool | None = None
    """True if the run resumes from the newest checkpoint."""
    overwrite: bool | None = None
    remote: bool | None = None
    hf_export: bool | None = None
    """True if the run also writes Hugging Face weights (OpenRLHF)."""
    frozen: bool | None = None
    """True if checkpoints of an adapter also hold the frozen weights."""
    deepspeed_checkpoint: bool | None = None
    load_best_at_end: bool | None = None
    at_start: bool | None = None
    """True if the run also saves before the first step."""
    load_optimizer: bool | None = None
    """True if the run also reads optimizer state from `load_path`."""


class Eval(Frozen):
    """Evaluation during training."""

    strategy: EvalStrategy | None = None
    interval: int | None = None
    enabled: bool | None = None
    """True if evaluation is on and has data."""


class Logging(Frozen):
    """Logging, and other work that makes the host wait for the GPU. Intervals are in optimizer steps."""

    interval: int | None = None
    metrics_interval: int | None = None
    """Interval of parameter statistics (OLMo) or metrics (OLMo-core)."""
    metrics_enabled: bool | None = None
    """True if statistics are collected (W&B is on)."""
    cancel_check_interval: int | None = None
    gc_interval: int | None = None
    count_tokens: bool | None = None
    """True if input tokens are counted on every step."""
    empty_cache_interval: int | None = None
    profiler: bool | None = None


class Data(Frozen):
    """The input pipeline."""

    workers: int | None = None
    """Loader processes per rank."""
    prefetch: int | None = None
    """Batches that each worker loads ahead."""
    pin_memory: bool | None = None
    preprocessing_workers: int | None = None
    streaming: bool | None = None
    held_out: float | None = None
    """Share of the training data that is held out for evaluation, or the number of samples from 1 on."""
    token_dtype: str | None = None
    """Format of the token files (uint16)."""
    template: str | None = None
    """Chat template, as the framework names it."""


class Rollout(Frozen):
    """Generation during reinforcement learning."""

    engine: Engine | None = None
    mode: EngineMode | None = None
    utilization: float | None = None
    """Share of GPU memory that an engine may use."""
    includes_training: bool | None = None
    """True if the share includes what training holds when the engine starts (default: no)."""
    engines: int | None = None
    tensor: int | None = None
    expert: int | None = None
    """Ranks of an engine that share its routed experts (default: those that share the other weights)."""
    sleep: bool | None = None
    awake_at_save: bool | None = None
    """True if a sleeping engine's weights are on the GPU during saves (default: no)."""
    train_sleep: bool | None = None
    """True if training states leave the GPU during generation."""
    weights_sleep: bool | None = None
    """True if the trained weights leave the GPU during generation, and return for each pass."""
    sleep_discards: bool | None = None
    """True if a sleeping engine keeps no copy of its weights on the host (vLLM's level 2)."""
    sync_bucket: int | None = None
    """Bytes of the buffer in which new weights reach an engine on the same GPU; 0: one tensor at a time."""
    wakes_first: bool | None = None
    """True if an engine's weights are on the GPU before training collects the new ones (default: no)."""
    gathers: bool | None = None
    """True if every GPU gathers the whole model to generate under ZeRO-3 (`ds3_gather_for_generation`), or to send an
    adapter to an engine.
    """
    batch: int | None = None
    """Prompts per rollout."""
    samples_per_prompt: int | None = None
    completions: int | None = None
    """Completions that `samples_per_prompt` must divide."""
    micro: int | None = None
    """Sequences per GPU in scoring passes."""
    tokens_per_gpu: int | None = None
    new_tokens: int | None = None
    asynchronous: bool | None = None
    colocate_all: bool | None = None
    enforce_eager: bool | None = None
    advantage: str | None = None
    kl_coefficient: float | None = None


class Launch(Frozen):
    """The launch of the job."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    groups: tuple[tuple[str, int], ...] | None = None
    """GPUs per placement, if the job is not `nodes` x `gpus_per_node`."""
    meets: bool | None = None
    """True if the nodes of the job share a rendezvous address."""
    launcher: str | None = None
    """torchrun, accelerate, deepspeed, llamafactory-cli, ray or python."""
    environment: tuple[tuple[str, str], ...] | None = None
    visible_gpus: int | None = None
    """GPUs per node that the batch system grants or `CUDA_VISIBLE_DEVICES` lists."""
    working_copy: bool | None = None
    """True if the job runs in a temporary copy of the working directory (`ray job submit`)."""


class Plan(Frozen):
    """The settings of one training job."""

    method: Method = Method()
    model: Model = Model()
    precision: Precision = Precision()
    optimizer: Optimizer = Optimizer()
    batch: Batch = Batch()
    sequence: SequenceLength = SequenceLength()
    activations: Activations = Activations()
    parallel: Parallel = Parallel()
    checkpoint: Checkpoint = Checkpoint()
    eval: Eval = Eval()
    logging: Logging = Logging()
    data: Data = Data()
    rollout: Rollout = Rollout()
    launch: Launch = Launch()

    def __hash__(self) -> int:
        """Hash only the groups that usually differ, because every estimate looks up its job by the plan."""
        return hash((self.method, self.precision, self.activations, self.parallel))

    def get(self, field: Field) -> Any:
        """Return the value of `"group.field"`, or raise `AttributeError` for an unknown field."""
        group, name = field.split(".")
        return getattr(getattr(self, group), name)

    def replace(self, changes: Mapping[Field, Any]) -> Plan:
        """Return the plan with some fields changed."""
        groups: dict[str, dict[str, Any]] = {}
        for field, value in changes.items():
            group, name = field.split(".")
            groups.setdefault(group, {})[name] = value
        return self._replace(**{group: getattr(self, group)._replace(**values) for group, values in groups.items()})

    @property
    def world_size(self) -> int | None:
        """Number of GPUs of the job, or None if it is unknown."""
        return (self.launch.nodes or 0) * (self.launch.gpus_per_node or 0) or None

    @property
    def data_parallel(self) -> int | None:
        """Number of data-parallel ranks, or None if the world size is unknown.

        It is the world size divided by the degrees of tensor, pipeline and context parallelism.
        """
        others = (self.parallel.tensor or 1) * (self.parallel.pipeline or 1) * (self.parallel.context or 1)
        return None if self.world_size is None else max(1, self.world_size // others)

    @property
    def trains_adapter(self) -> bool:
        """True if only an adapter is trained and the base model is frozen."""
        return self.method.tuning not in FULL_MODEL_TUNING


FULL_MODEL_TUNING: Final = (None, "full", "freeze")

FIELDS: Final[tuple[Field, ...]] = list_members(Field)
"""Every field, in the order of the records."""

_FIELDS_BY_NAME: Final[dict[str, Field]] = dict(zip(FIELDS, FIELDS))


def get_field(name: str) -> Field:
    """Return the field with this name, or raise `KeyError` if there is none."""
    return _FIELDS_BY_NAME[name]


def validate_fields(values: Mapping[str, Any]) -> dict[Field, Any]:
    """Return the values by field, or raise `KeyError` for the first name that is not a field."""
    return {get_field(name): value for name, value in values.items()}
