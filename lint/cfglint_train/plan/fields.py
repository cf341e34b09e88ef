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
    """pretrain, sft, dpo, kto, orpo, simpo, ipo, rm, prm, ppo, grpo, rloo, reinforce, ebft."""
    tuning: Tuning | None = None
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_targets: tuple[str, ...] | None = None
    """Module names (`q_proj`) or ends of paths (`self_attn.q_proj`); `("all-linear",)` is every linear layer except the
    head; empty is PEFT's default.
    """
    lora_target_pattern: str | None = None
    """A regular expression for whole paths of modules, instead of names."""
    lora_target_parameters: tuple[str, ...] | None = None
    """Parameters (not modules) with an adapter: the fused experts of a mixture."""
    lora_modules_to_save: tuple[str, ...] | None = None
    """Modules trained in full in addition to the adapter (a second copy of each)."""
    lora_dropout: float | None = None
    """Dropout before the adapters; above 0 it keeps a mask and a copy of every adapter's input."""
    lora_dora: bool | None = None
    lora_kernels: bool | None = None
    """Fused LoRA kernels that keep fewer activations (axolotl's `lora_mlp_kernel` and similar)."""
    lora_kernel_parts: tuple[str, ...] | None = None
    """The parts of a layer that these kernels run: mlp, qkv, o; unknown means all three."""
    keeps_inputs: bool | None = None
    """Frozen 4-bit matrices keep their inputs for the backward pass (bitsandbytes before 0.43.1)."""
    quantization: str | None = None
    """Format of frozen base weights: none, nf4, fp4, int8, gptq, awq, hqq, eetq, aqlm, mxfp4, nvfp4, fp8."""
    double_quantization: bool | None = None
    quantized_experts: bool | None = None
    """The fused experts of a mixture are quantised too; bitsandbytes alone leaves them in 16 bits."""
    unpacks_experts: bool | None = None
    """Quantised experts of a layer are unpacked together and kept in 16 bits until its backward pass is done."""
    fuses_experts: bool | None = None
    """Kernels add the experts' adapters to each product, so that no whole weights W + BA are created (ScatterMoE)."""
    reads_ahead: bool | None = None
    """16-bit weights are read onto the GPU ahead of their quantisation (transformers 5.0 to 5.3)."""
    block_size: int | None = None
    """For `oft`: the width of an orthogonal block; 0 if the number of blocks is stated."""
    blocks: int | None = None
    """For `oft`: the number of blocks of each matrix; 0 if their width is stated."""
    virtual_tokens: int | None = None
    """For `prompt_tuning` and `prefix_tuning`: tokens before each sequence."""
    trainable_layers: int | None = None
    """For `freeze`: the number of decoder layers that are trained."""
    active_layers: int | None = None
    """Decoder layers that have gradients at a time; over the run the optimizer gets states for all layers (LISA)."""
    unfrozen: tuple[str, ...] | None = None
    """For `freeze`: name patterns of the trained parameters, instead of whole layers."""
    reference_model: ReferenceModel | None = None
    reference_offload: bool | None = None
    """Under ZeRO-3, the reference model's shards wait on the host; other stages keep the whole model on every GPU."""


class Role(Frozen):
    """One model of a job with several models (actor, critic, reference, reward)."""

    name: str
    """actor, critic, reference, reward, ema."""
    model: str | None
    trained: bool
    nodes: int | None = None
    gpus_per_node: int | None = None
    pool: str | None = None
    """Roles with the same pool share its GPUs."""
    offload: bool | None = None
    """Weights wait on the host until they are used; for the reference model this is `method.reference_offload`."""
    unstated: str = ""
    """The setting that would name its model, if the model is a default."""


class Model(Frozen):
    """The model as it is loaded."""

    id: str | None = None
    """Hub id, local path, or a framework's preset name."""
    revision: str | None = None
    overrides: tuple[tuple[str, Any], ...] | None = None
    """Keys of the model's own configuration that the run overrides, as (name, value)."""
    architecture: tuple[tuple[str, Any], ...] | None = None
    """The dimensions if the training configuration itself states them (OLMo), as (name, value)."""
    trust_remote_code: bool | None = None
    from_scratch: bool | None = None
    """Only the model's shape is used; its weights are initialized."""
    rope_scaling: str | None = None
    """Scaling of positions beyond the model's context: none, linear, dynamic, yarn, llama3, ..."""
    dtype: Format | None = None
    """The number format in which the weights are loaded; the run's own formats are under `precision`."""
    frozen_vision: bool | None = None
    frozen_projector: bool | None = None
    frozen_language: bool | None = None
    init_device: str | None = None
    """Device on which weights are created: meta, cpu, cuda."""
    embeddings_fp32: bool | None = None
    """Embeddings, head and norms are kept in fp32 while the layers are 16-bit."""
    roles: tuple[Role, ...] | None = None
    """The models of the job; if unknown, only the trained model."""
    host_experts: bool | None = None
    """Routed experts stay in host memory and are computed there (KTransformers)."""


class Precision(Frozen):
    """Number formats. `params` to `master` are the formats that the run holds, whatever the configuration calls them.

    Under FSDP the shards have the format of `master` if it is set, else of `params`; gathered weights have the format
    of `compute` if it is smaller.
    """

    compute: Compute | None = None
    """The format of the matrix products."""
    autocast: bool | None = None
    """torch.autocast casts weights that are held in another format."""
    params: Format | None = None
    """Trained weights as the forward pass holds them."""
    frozen: Format | None = None
    """Frozen weights that are not quantised."""
    grads: Format | None = None
    accumulation: Format | None = None
    """Gradients between micro batches, if this differs from `grads`."""
    master: Format | None = None
    """An additional copy of the trained weights for the optimizer."""
    experts: Format | None = None
    """Fused experts that the quantiser leaves out, if their format differs from `frozen`."""
    adapter: Format | None = None
    """LoRA weights."""
    loaded: Format | None = None
    """Trained weights of the whole model while they wait on every GPU to be sharded or cast."""


class Optimizer(Frozen):
    """The optimizer as the framework builds it, including a replacement under offload."""

    name: str | None = None
    """adamw, adam, sgd, lion, adafactor, muon, galore_adamw, apollo_adamw, adam_mini, came, lomo, adopt, ..."""
    implementation: Implementation | None = None
    state_bits: int | None = None
    """Bits per element of a state tensor: 32, 16, 8, 4."""
    embedding_bits: int | None = None
    """Bits per element of an embedding's state, if different."""
    rank: int | None = None
    """Rank of the projected gradients (GaLore, APOLLO)."""
    targets: tuple[str, ...] | None = None
    """Parts of the names of the projected matrices; `("all-linear",)` is every linear layer except the head."""
    projection: Projection | None = None
    paged: bool | None = None
    stated_name: str | None = None
    """The name as the configuration spells it."""
    learning_rate: float | None = None
    """The rate after the warm-up."""
    scheduler: str | None = None
    """Schedule of the rate, as transformers names it: constant, constant_with_warmup, linear, cosine, ..."""
    warmup_steps: int | None = None
    """Optimizer steps until the full rate is reached, if stated as steps."""
    clipping: float | None = None
    """Gradient norm above which gradients are scaled down; 0 disables clipping."""


class Batch(Frozen):
    """Batch sizes and the length of the run."""

    micro: int | None = None
    """Sequences per GPU and forward pass."""
    micro_tokens: int | None = None
    """Tokens per GPU and forward pass, if stated in tokens and not a whole number of sequences; `micro` is then
    unknown.
    """
    accumulation: int | None = None
    """Micro batches per optimizer step."""
    global_: int | None = None
    """Sequences per optimizer step over the whole job."""
    global_tokens: int | None = None
    """Tokens per optimizer step, if stated in tokens and not a whole number of sequences; `global_` is then unknown."""
    eval_micro: int | None = None
    tokens_per_gpu: int | None = None
    """A token budget that replaces `micro` if batches are built by length."""
    pairs: bool | None = None
    """Each sequence is two sequences (chosen and rejected)."""
    auto_find: bool | None = None
    """The framework halves the batch itself if memory runs out."""
    steps: int | None = None
    """Optimizer steps of the whole run, if stated as steps."""
    epochs: float | None = None
    """Passes over the data; they count if `steps` and `tokens` are unknown."""
    samples: int | None = None
    """Upper limit of the samples of one pass over the data; prompts in PPO."""
    tokens: int | None = None
    """Tokens of the whole run, if its length is stated in tokens."""


class SequenceLength(Frozen):
    """Tokens per sequence."""

    length: int | None = None
    """The longest possible sequence; memory is estimated for it."""
    packing: bool | None = None
    padding: Padding | None = None
    eval_length: int | None = None
    eval_packing: bool | None = None
    """Samples of an evaluation are packed; if unknown, as in training."""
    dataset_length: int | None = None
    """The length that the data was prepared with, if the two must agree."""
    block_mask: bool | None = None
    """Each packed sequence carries a mask of length x length."""
    image_tokens: int | None = None
    """Tokens of one sequence that represent images, as part of its length; 0 for text only."""


class Activations(Frozen):
    """Activations that the forward pass keeps for the backward pass."""

    checkpointing: Checkpointing | None = None
    every: int | None = None
    """For `every_n`: of `every` consecutive blocks, `of` are recomputed."""
    of: int | None = None
    budget: float | None = None
    """For `budget`: the share of activation memory that is kept."""
    tower: bool | None = None
    """Blocks of the vision tower are checkpointed; if unknown, like decoder layers."""
    reentrant: bool | None = None
    offload: ActivationOffload | None = None
    attention: str | None = None
    """eager, sdpa, flash (2), flash3, flex, xformers, sage, or another implementation's own name."""
    fused_loss: FusedLoss | None = None
    liger_layers: bool | None = None
    """Liger's fused norm, rotary and gated unit."""
    tiled_mlp: bool | None = None
    compile: bool | None = None
    compiled_model: bool | None = None
    """torch.compile covers the whole model rather than one layer at a time."""
    compiled_loss: bool | None = None
    """torch.compile also covers the loss that a model of transformers computes itself."""
    compiled_head: bool | None = None
    """torch.compile covers the output layer, which computes the loss itself and returns no logits."""
    dropout: float | None = None
    keeps_outputs: bool | None = None
    """The caller keeps the logits alive during the backward pass."""
    passing_logits: int | None = None
    """Bytes per token and vocabulary entry of logits other than the loss's: of a reference model, or ignored by a
    reward model.
    """
    fused_evaluation: bool | None = None
    """Liger's fused loss also avoids whole logits in an evaluation; if unknown, it does."""
    scored_tokens: int | None = None
    """Tokens of a sequence that have logits, if not all."""


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
    """Outside the matrices, each tensor-parallel rank holds a part of the sequence."""
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
    """For `block`: the classes of the wrapped modules; if unknown, the model's own."""
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
    """Elements of a whole parameter."""
    max_live_parameters: int | None = None
    max_reuse_distance: int | None = None
    sub_group: int | None = None
    """Elements of the local partition that one optimizer call processes."""
    secondary_partition: int | None = None
    """hpZ: ranks that share a second copy of the 16-bit weights; 1 disables it."""
    quantized_gather: bool | None = None
    """ZeRO++: weights are gathered in 8 bits."""
    quantized_frozen: bool | None = None
    """ZeRO++: partitions of frozen weights are kept in 8 bits."""
    cpu_efficient_loading: bool | None = None
    """Only one rank per node reads the weights."""
    leaf_modules: bool | None = None
    """The experts of a mixture are gathered as one unit."""
    communication: str | None = None
    """The number format of gradient reduction."""
    defers_reduction: bool | None = None
    """FSDP: micro batches before the last keep whole gradients on every rank (`no_sync`)."""


class Checkpoint(Frozen):
    """Checkpoints: their content, times and format."""

    strategy: SaveStrategy | None = None
    interval: int | None = None
    """Optimizer steps between checkpoints (rollout iterations for PPO in OpenRLHF)."""
    per_epoch: int | None = None
    """Checkpoints per pass over the data, if stated like this."""
    interval_ephemeral: int | None = None
    """Steps between temporary checkpoints, which replace each other; 0 disables them."""
    interval_unsharded: int | None = None
    """Steps between checkpoints that rank 0 writes whole; 0 disables them."""
    keep: int | Literal["all"] | None = None
    """Checkpoints kept on disk."""
    rotates_first: bool | None = None
    """Old checkpoints are deleted before the new checkpoint is written, so that there are never more than `keep`."""
    keep_unsharded: int | Literal["all"] | None = None
    """Checkpoints kept on disk of those that rank 0 writes whole, in addition to the others."""
    model_only: bool | None = None
    """Optimizer state is left out, so the run cannot be resumed."""
    gather: bool | None = None
    """ZeRO-3: the 16-bit weights are gathered on rank 0 at save."""
    state_dict: StateDict | None = None
    final: bool | None = None
    """The whole model is saved at the end, whatever `strategy` is."""
    checkpointer: str | None = None
    """OLMo: torch_legacy, torch_new, local, olmo_core."""
    load_checkpointer: str | None = None
    asynchronous: bool | None = None
    path: str | None = None
    load_path: str | None = None
    converted: bool | None = None
    """A script that starts the run converts DeepSpeed's shards to whole weights afterwards."""
    load_ranks: int | None = None
    """Ranks that wrote the checkpoint from which the run resumes, by its shards, if they are in the repository."""
    load_universal: bool | None = None
    """DeepSpeed's universal checkpoint is read, which any number of ranks can load."""
    final_path: str | None = None
    """Folder of the final weights, if it differs from `path` (OpenRLHF)."""
    resume_latest: bool | None = None
    """The run looks for its own newest checkpoint at start."""
    overwrite: bool | None = None
    remote: bool | None = None
    hf_export: bool | None = None
    """OpenRLHF: Hugging Face weights in addition to each DeepSpeed checkpoint."""
    deepspeed_checkpoint: bool | None = None
    load_best_at_end: bool | None = None
    at_start: bool | None = None
    """A checkpoint is saved before the first step, so that a save that cannot work fails early."""
    load_optimizer: bool | None = None
    """Optimizer state is also read from `load_path`."""


class Eval(Frozen):
    """Evaluation during training."""

    strategy: EvalStrategy | None = None
    interval: int | None = None
    enabled: bool | None = None
    """Evaluation is switched on and there is data to evaluate on."""


class Logging(Frozen):
    """Logging and other work that makes the host wait for the GPU. Intervals are optimizer steps."""

    interval: int | None = None
    metrics_interval: int | None = None
    """Interval for statistics of every parameter (OLMo), or for collecting metrics (OLMo-core)."""
    metrics_enabled: bool | None = None
    """These statistics are collected (W&B is on)."""
    cancel_check_interval: int | None = None
    gc_interval: int | None = None
    count_tokens: bool | None = None
    """The number of input tokens is counted on every step (`include_num_input_tokens_seen`)."""
    empty_cache_interval: int | None = None
    profiler: bool | None = None


class Data(Frozen):
    """The input pipeline."""

    workers: int | None = None
    """Loader processes per rank."""
    prefetch: int | None = None
    """Batches that each worker prefetches."""
    pin_memory: bool | None = None
    preprocessing_workers: int | None = None
    streaming: bool | None = None
    token_dtype: str | None = None
    """The number format of the token files (uint16)."""
    template: str | None = None
    """The chat template, as the framework names it."""


class Rollout(Frozen):
    """Generation during reinforcement learning."""

    engine: Engine | None = None
    mode: EngineMode | None = None
    utilization: float | None = None
    """The share of a GPU's whole memory that an engine may use."""
    engines: int | None = None
    tensor: int | None = None
    sleep: bool | None = None
    awake_at_save: bool | None = None
    """The weights of a sleeping engine are back on the GPU while a checkpoint is written; if unknown, they are not."""
    train_sleep: bool | None = None
    """Training states leave the GPU during generation."""
    gathers: bool | None = None
    """ZeRO-3: the training code generates with the whole model on every GPU (TRL's `ds3_gather_for_generation`)."""
    batch: int | None = None
    """Prompts per rollout."""
    samples_per_prompt: int | None = None
    completions: int | None = None
    """Completions that the framework divides into groups of `samples_per_prompt`, if this must divide evenly."""
    micro: int | None = None
    """Sequences per GPU in forward passes that only score."""
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
    """GPUs requested from the cluster as (name, GPUs) per placement, if they are not nodes x GPUs per node."""
    meets: bool | None = None
    """The processes of several nodes have a rendezvous address."""
    launcher: str | None = None
    """torchrun, accelerate, deepspeed, llamafactory-cli, ray, python."""
    environment: tuple[tuple[str, str], ...] | None = None
    working_copy: bool | None = None
    """The job runs in a temporary copy of its working directory (`ray job submit` with `working_dir`)."""


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
        """Hash the groups that differ in most plans, because every estimate looks up its job."""
        return hash((self.method, self.precision, self.activations, self.parallel))

    def get(self, field: Field) -> Any:
        """Return the value of `"group.field"`. Raise `AttributeError` for an unknown field."""
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
        """GPUs of the job."""
        return (self.launch.nodes or 0) * (self.launch.gpus_per_node or 0) or None

    @property
    def data_parallel(self) -> int | None:
        """Data-parallel ranks: the world size divided by tensor, pipeline and context parallelism."""
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
    """Return the field with a name. Raise `KeyError` if there is none."""
    return _FIELDS_BY_NAME[name]


def validate_fields(values: Mapping[str, Any]) -> dict[Field, Any]:
    """Return the values with their names checked as fields. Raise `KeyError` for the first unknown name."""
    return {get_field(name): value for name, value in values.items()}
