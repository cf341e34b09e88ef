"""The fields of the plan: what one training job will do, in the field's own terms and in no framework's.

Fields are named `group.field` (`"batch.micro"`). `None` always means *unknown*; what is switched off has a value
(`"none"`, `False`, 0). Sizes are bytes and counts are elements unless a name says otherwise.
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
    """What is trained, and which part of it."""

    stage: str | None = None
    """pretrain, sft, dpo, kto, orpo, simpo, ipo, rm, prm, ppo, grpo, rloo, reinforce, ebft."""
    tuning: Tuning | None = None
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_targets: tuple[str, ...] | None = None
    """Module names (`q_proj`) or ends of paths (`self_attn.q_proj`); `("all-linear",)` is every linear layer but the
    head; empty is PEFT's default."""
    lora_target_pattern: str | None = None
    """A regular expression that whole paths of modules match, in place of names."""
    lora_target_parameters: tuple[str, ...] | None = None
    """Parameters (not modules) with an adapter: the fused experts of a mixture."""
    lora_modules_to_save: tuple[str, ...] | None = None
    """Modules trained in full beside the adapter (a second copy of each)."""
    lora_dropout: float | None = None
    """Dropout before the adapters; above 0 it keeps a mask and a copy of every adapter's input."""
    lora_dora: bool | None = None
    lora_kernels: bool | None = None
    """Fused LoRA kernels that keep fewer activations (axolotl's `lora_mlp_kernel` and its like)."""
    lora_kernel_parts: tuple[str, ...] | None = None
    """The parts of a layer that those kernels run: mlp, qkv, o; unknown is all three."""
    keeps_inputs: bool | None = None
    """Frozen 4-bit matrices keep their inputs for the backward pass (bitsandbytes before 0.43.1)."""
    quantization: str | None = None
    """How frozen base weights are held: none, nf4, fp4, int8, gptq, awq, hqq, eetq, aqlm, mxfp4, nvfp4, fp8."""
    double_quantization: bool | None = None
    quantized_experts: bool | None = None
    """Whether the fused experts of a mixture are quantised too; bitsandbytes alone leaves them in 16 bits."""
    unpacks_experts: bool | None = None
    """Quantised experts of a layer are unpacked together, and kept in 16 bits until its backward pass is done."""
    fuses_experts: bool | None = None
    """Kernels add the experts' adapters to each product: whole new weights W + BA are not made (ScatterMoE)."""
    reads_ahead: bool | None = None
    """16-bit weights are read onto the GPU ahead of their quantisation (transformers 5.0 to 5.3)."""
    block_size: int | None = None
    """For `oft`: the width of an orthogonal block; 0 where their number is stated."""
    blocks: int | None = None
    """For `oft`: how many blocks each matrix has; 0 where their width is stated."""
    virtual_tokens: int | None = None
    """For `prompt_tuning` and `prefix_tuning`: tokens before each sequence."""
    trainable_layers: int | None = None
    """For `freeze`: how many decoder layers are trained."""
    active_layers: int | None = None
    """Decoder layers that have gradients at a time, while the optimizer comes to hold the states of all (LISA)."""
    unfrozen: tuple[str, ...] | None = None
    """For `freeze`: patterns of the names of the parameters that are trained, instead of whole layers."""
    reference_model: ReferenceModel | None = None
    reference_offload: bool | None = None
    """Under ZeRO-3 the reference model's shards wait on the host; other stages keep the whole model on every GPU."""


class Role(Frozen):
    """One model of a job that holds several (actor, critic, reference, reward)."""

    name: str
    """actor, critic, reference, reward, ema."""
    model: str | None
    trained: bool
    nodes: int | None = None
    gpus_per_node: int | None = None
    pool: str | None = None
    """Roles with the same pool share its GPUs."""
    offload: bool | None = None
    """Weights wait on the host until they are used; the reference model's are `method.reference_offload`."""
    unstated: str = ""
    """The setting that would name its model, which is a default."""


class Model(Frozen):
    """The model as it is loaded."""

    id: str | None = None
    """Hub id, local path, or a framework's preset name."""
    revision: str | None = None
    overrides: tuple[tuple[str, Any], ...] | None = None
    """Keys of the model's own configuration that the run overrides, as (name, value)."""
    architecture: tuple[tuple[str, Any], ...] | None = None
    """The dimensions where the training configuration itself states them (OLMo), as (name, value)."""
    trust_remote_code: bool | None = None
    from_scratch: bool | None = None
    """Only the model's shape is taken; its weights are made anew."""
    rope_scaling: str | None = None
    """How positions beyond the model's own are scaled: none, linear, dynamic, yarn, llama3, ..."""
    dtype: Format | None = None
    """The number format that the weights are loaded in; what the run holds them in is under `precision`."""
    frozen_vision: bool | None = None
    frozen_projector: bool | None = None
    frozen_language: bool | None = None
    init_device: str | None = None
    """Where weights are first made: meta, cpu, cuda."""
    embeddings_fp32: bool | None = None
    """Embeddings, head and norms are kept in fp32 beside 16-bit layers."""
    roles: tuple[Role, ...] | None = None
    """The models of the job; where unstated, only the one that is trained."""
    host_experts: bool | None = None
    """Routed experts stay in host memory and are computed there (KTransformers)."""


class Precision(Frozen):
    """Number formats. `params` to `master` are what the run holds, whatever the configuration calls it.

    Under FSDP the shards have the format of `master` where there is one, else of `params`; what is gathered has that of
    `compute` where it is smaller.
    """

    compute: Compute | None = None
    """The format of the matrix products."""
    autocast: bool | None = None
    """torch.autocast casts weights that are held in another format."""
    params: Format | None = None
    """Trained weights as the forward pass holds them."""
    frozen: Format | None = None
    """Frozen weights where they are not quantised."""
    grads: Format | None = None
    accumulation: Format | None = None
    """Gradients between micro batches, where that differs from `grads`."""
    master: Format | None = None
    """A further copy of the trained weights for the optimizer."""
    experts: Format | None = None
    """Fused experts that the quantiser leaves out, where their format is not that of `frozen`."""
    adapter: Format | None = None
    """LoRA weights."""
    loaded: Format | None = None
    """Trained weights of the whole model while they wait on every GPU to be sharded or cast."""


class Optimizer(Frozen):
    """The optimizer as the framework will build it (a replacement under offload included)."""

    name: str | None = None
    """adamw, adam, sgd, lion, adafactor, muon, galore_adamw, apollo_adamw, adam_mini, came, lomo, adopt, ..."""
    implementation: Implementation | None = None
    state_bits: int | None = None
    """Bits of one element of a state tensor: 32, 16, 8, 4."""
    embedding_bits: int | None = None
    """The same of an embedding's state, where that differs."""
    rank: int | None = None
    """Of the projected gradients (GaLore, APOLLO)."""
    targets: tuple[str, ...] | None = None
    """Parts of the names of the matrices that are projected; `("all-linear",)` is every linear layer but the head."""
    projection: Projection | None = None
    paged: bool | None = None
    stated_name: str | None = None
    """The name as the configuration spells it."""
    learning_rate: float | None = None
    """The rate after the warm-up."""
    scheduler: str | None = None
    """How the rate changes, as transformers names it: constant, constant_with_warmup, linear, cosine, ..."""
    warmup_steps: int | None = None
    """Optimizer steps until the whole rate is reached, where they are stated as such."""
    clipping: float | None = None
    """The gradient norm above which gradients are scaled down; 0 is never."""


class Batch(Frozen):
    """How many sequences go where."""

    micro: int | None = None
    """Sequences per GPU and forward pass."""
    micro_tokens: int | None = None
    """The same in tokens, where it is stated so and is no whole number of sequences; `micro` is then unknown."""
    accumulation: int | None = None
    """Micro batches per optimizer step."""
    global_: int | None = None
    """Sequences per optimizer step over the whole job."""
    global_tokens: int | None = None
    """The same in tokens, where it is stated so and is no whole number of sequences; `global_` is then unknown."""
    eval_micro: int | None = None
    tokens_per_gpu: int | None = None
    """A token budget that replaces `micro` where batches are built by length."""
    pairs: bool | None = None
    """Each sequence is really two (chosen and rejected)."""
    auto_find: bool | None = None
    """The framework halves the batch itself when memory runs out."""
    steps: int | None = None
    """Optimizer steps of the whole run, where they are stated as such."""
    epochs: float | None = None
    """Passes over the data, which count where `steps` and `tokens` are unknown."""
    samples: int | None = None
    """Samples of one pass over the data, at most; prompts in PPO."""
    tokens: int | None = None
    """Tokens of the whole run, where its length is stated so."""


class SequenceLength(Frozen):
    """Tokens per sequence."""

    length: int | None = None
    """The longest sequence that can occur; memory is estimated for it."""
    packing: bool | None = None
    padding: Padding | None = None
    eval_length: int | None = None
    eval_packing: bool | None = None
    """Samples of an evaluation are packed; None: as in training."""
    dataset_length: int | None = None
    """The length that the data was prepared with, where the two must agree."""
    block_mask: bool | None = None
    """Each packed sequence carries a mask of length x length."""
    image_tokens: int | None = None
    """Tokens of one sequence that stand for images; they are a part of its length. 0 where it is text only."""


class Activations(Frozen):
    """What the forward pass keeps for the backward pass."""

    checkpointing: Checkpointing | None = None
    every: int | None = None
    """For `every_n`: of `every` blocks in a row, `of` are recomputed."""
    of: int | None = None
    budget: float | None = None
    """For `budget`: the share of activation memory that is kept."""
    tower: bool | None = None
    """Blocks of the vision tower are checkpointed; unknown: if decoder layers are."""
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
    """torch.compile covers the whole model, not one layer at a time."""
    compiled_loss: bool | None = None
    """torch.compile covers the loss, too, which a model of transformers computes itself."""
    compiled_head: bool | None = None
    """torch.compile covers the output layer, which computes the loss itself and returns no logits."""
    dropout: float | None = None
    keeps_outputs: bool | None = None
    """The caller keeps the logits alive during the backward pass."""
    passing_logits: int | None = None
    """Bytes per token and word of logits beside the loss's: of a reference model, or ignored by a reward model."""
    fused_evaluation: bool | None = None
    """Liger's fused loss makes no whole logits in an evaluation, either; None: it does."""
    scored_tokens: int | None = None
    """Tokens of a sequence that have logits, where those are not all."""


class Parallel(Frozen):
    """How the work and the states are spread over GPUs."""

    strategy: Strategy | None = None
    zero_stage: int | None = None
    sharding: Sharding | None = None
    shard_size: int | None = None
    """Ranks that share one copy of the states."""
    replicas: int | None = None
    """Copies of the states (hybrid sharding)."""
    tensor: int | None = None
    sequence_parallel: bool | None = None
    """Outside the matrices each tensor-parallel rank holds a part of the sequence."""
    split_vocabulary: SplitVocabulary | None = None
    pipeline: int | None = None
    schedule: Schedule | None = None
    stages: int | None = None
    """Stages of a pipeline that one rank runs."""
    context: int | None = None
    expert: int | None = None
    wrapping: Wrapping | None = None
    wrapping_group: int | None = None
    wrapped_classes: tuple[str, ...] | None = None
    """For `block`: the classes of the modules that are wrapped; None leaves them to the model."""
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
    """Elements of the local partition that one optimizer call takes."""
    secondary_partition: int | None = None
    """hpZ: ranks over which a second copy of the 16-bit weights is spread; 1 is off."""
    quantized_gather: bool | None = None
    """ZeRO++: weights are gathered in 8 bits."""
    quantized_frozen: bool | None = None
    """ZeRO++: partitions of frozen weights are kept in 8 bits."""
    cpu_efficient_loading: bool | None = None
    """Only one rank of a node reads the weights."""
    leaf_modules: bool | None = None
    """The experts of a mixture are gathered as one unit."""
    communication: str | None = None
    """The number format of gradient reduction."""
    defers_reduction: bool | None = None
    """FSDP: micro batches before the last keep whole gradients on every rank (`no_sync`)."""


class Checkpoint(Frozen):
    """What is saved, when, and how."""

    strategy: SaveStrategy | None = None
    interval: int | None = None
    """Optimizer steps between checkpoints (rollout iterations for PPO in OpenRLHF)."""
    per_epoch: int | None = None
    """Checkpoints of one pass over the data, where they are stated so."""
    interval_ephemeral: int | None = None
    """Steps between checkpoints of which only the newest is kept; 0 where there are none."""
    interval_unsharded: int | None = None
    """Steps between checkpoints that rank 0 writes whole; 0 where there are none."""
    keep: int | Literal["all"] | None = None
    """Checkpoints kept on disk."""
    rotates_first: bool | None = None
    """Old checkpoints are deleted before the new one is written, which makes `keep` the most there is at any time."""
    keep_unsharded: int | Literal["all"] | None = None
    """The same of those that rank 0 writes whole, which are beside the others."""
    model_only: bool | None = None
    """Optimizer state is left out; the run cannot be resumed."""
    gather: bool | None = None
    """ZeRO-3: the 16-bit weights are gathered on rank 0 at save."""
    state_dict: StateDict | None = None
    final: bool | None = None
    """The whole model is saved at the end, whatever `strategy` says."""
    checkpointer: str | None = None
    """OLMo: torch_legacy, torch_new, local, olmo_core."""
    load_checkpointer: str | None = None
    asynchronous: bool | None = None
    path: str | None = None
    load_path: str | None = None
    converted: bool | None = None
    """A script that starts the run makes whole weights of DeepSpeed's shards afterwards."""
    load_ranks: int | None = None
    """Ranks that wrote the checkpoint that the run resumes from, by its shards, if those are in the repository."""
    load_universal: bool | None = None
    """DeepSpeed's universal checkpoint is read, which any number of ranks can do."""
    final_path: str | None = None
    """Where the weights go at the end, where that is not `path` (OpenRLHF)."""
    resume_latest: bool | None = None
    """The run looks for its own newest checkpoint at start."""
    overwrite: bool | None = None
    remote: bool | None = None
    hf_export: bool | None = None
    """OpenRLHF: Hugging Face weights beside each DeepSpeed checkpoint."""
    deepspeed_checkpoint: bool | None = None
    load_best_at_end: bool | None = None
    at_start: bool | None = None
    """A checkpoint is saved before the first step, so that a save that cannot work fails at once."""
    load_optimizer: bool | None = None
    """Optimizer state is read from `load_path`, too."""


class Eval(Frozen):
    """Evaluation during training."""

    strategy: EvalStrategy | None = None
    interval: int | None = None
    enabled: bool | None = None
    """There is something to evaluate on and evaluation is switched on."""


class Logging(Frozen):
    """What makes the host wait for the GPU. Intervals are optimizer steps."""

    interval: int | None = None
    metrics_interval: int | None = None
    """Statistics of every parameter (OLMo), or collection of metrics (OLMo-core)."""
    metrics_enabled: bool | None = None
    """Those statistics are collected (W&B is on)."""
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
    """Batches that each worker keeps ready."""
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
    """The share of a GPU's whole memory that an engine may take."""
    engines: int | None = None
    tensor: int | None = None
    sleep: bool | None = None
    awake_at_save: bool | None = None
    """The weights of an engine that sleeps are back on the GPU while a checkpoint is written; None: they are not."""
    train_sleep: bool | None = None
    """Training states leave the GPU during generation."""
    gathers: bool | None = None
    """ZeRO-3: the training code generates with the whole model on every GPU (TRL's `ds3_gather_for_generation`)."""
    batch: int | None = None
    """Prompts per rollout."""
    samples_per_prompt: int | None = None
    completions: int | None = None
    """Completions that the framework divides into groups of `samples_per_prompt`, where that must come out even."""
    micro: int | None = None
    """Sequences per GPU in the forward passes that only score."""
    tokens_per_gpu: int | None = None
    new_tokens: int | None = None
    asynchronous: bool | None = None
    colocate_all: bool | None = None
    enforce_eager: bool | None = None
    advantage: str | None = None
    kl_coefficient: float | None = None


class Launch(Frozen):
    """How the job is started."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    groups: tuple[tuple[str, int], ...] | None = None
    """What the job asks the cluster for, where that is not nodes x GPUs per node: (who, GPUs) of each placement."""
    meets: bool | None = None
    """The processes of several nodes are given an address at which they meet."""
    launcher: str | None = None
    """torchrun, accelerate, deepspeed, llamafactory-cli, ray, python."""
    environment: tuple[tuple[str, str], ...] | None = None
    working_copy: bool | None = None
    """The job runs in a temporary copy of its working directory (`ray job submit` with `working_dir`)."""


class Plan(Frozen):
    """What one training job will do."""

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
        """Of the groups that differ in most plans, because every estimate looks its job up."""
        return hash((self.method, self.precision, self.activations, self.parallel))

    def get(self, field: Field) -> Any:
        """Return the value of `"group.field"`. Raises AttributeError for a name that is no field."""
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
        """Ranks that see different sequences: the world without tensor, pipeline and context parallelism."""
        others = (self.parallel.tensor or 1) * (self.parallel.pipeline or 1) * (self.parallel.context or 1)
        return None if self.world_size is None else max(1, self.world_size // others)

    @property
    def trains_adapter(self) -> bool:
        """Only an adapter is trained; the base model is frozen."""
        return self.method.tuning not in FULL_MODEL_TUNING


FULL_MODEL_TUNING: Final = (None, "full", "freeze")

FIELDS: Final[tuple[Field, ...]] = list_members(Field)
"""Every field, in the order of the records."""

_FIELDS_BY_NAME: Final[dict[str, Field]] = dict(zip(FIELDS, FIELDS))


def get_field(name: str) -> Field:
    """The field with a name. Raises KeyError with the name where there is none."""
    return _FIELDS_BY_NAME[name]


def validate_fields(values: Mapping[str, Any]) -> dict[Field, Any]:
    """Return values under the names of their fields. Raises KeyError with the first name that is no field."""
    return {get_field(name): value for name, value in values.items()}
