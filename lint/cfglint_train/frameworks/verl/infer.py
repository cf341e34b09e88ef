"""Fields that follow from verl's settings: the engine, the batch, and the models on the GPUs of the pool.

Sources: verl 0.3.0.post1 to 0.9.1 (`workers/fsdp_workers.py`, `workers/engine/fsdp/transformer_impl.py`,
`workers/engine_workers.py`, `trainer/ppo/`, `utils/checkpoint/`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Config, is_before
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.lenses import COUNT, get_context_size, has_adapter, is_dynamic
from cfglint_train.frameworks.verl.settings import find_origin, has_known_tree, is_complete, is_ppo, is_stated, read
from cfglint_train.plan.fields import Role
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

_REPLACED_ATTENTION: Final = ("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text")
"""Models whose attention is replaced if padding is removed or the sequence is split (verl 0.9.1)."""
POOL: Final = "global"
"""Name of the GPU pool that all models of a job share (trainer/main_ppo.py, `global_pool`)."""

_FIXED_VALUES: Final[tuple[tuple[Field, Any], ...]] = (
    ("precision.master", "none"),
    ("precision.autocast", True),
    ("precision.loaded", "none"),
    ("activations.reentrant", False),
    ("parallel.sharding", "full_shard"),
    ("parallel.communication", "fp32"),
    ("parallel.offload_optimizer", "none"),
    ("checkpoint.state_dict", "sharded"),
    ("model.rope_scaling", "none"),
)


def infer(job: Job) -> None:
    """Infer the engine, the batch, and the models of a job."""
    config, plan = job.main, job.plan
    for field, value in _FIXED_VALUES:
        plan.infer(field, value, "verl builds it so")
    infer_precision(job)
    infer_engine(job)
    _infer_attention(job)
    if not is_ppo(config):
        plan.infer("sequence.packing", False, "a trainer that always pads")
        plan.infer("sequence.padding", "max_length", "a trainer that always pads")
    infer_batch(job)
    keep = plan.get("checkpoint.keep")
    if keep is not None:
        # utils/checkpoint/checkpoint_manager.py: with 1, the old one is removed only after the new one is written.
        plan.infer("checkpoint.rotates_first", keep == "all" or keep > 1, "ensure_checkpoint_capacity")
    if is_ppo(config):
        _infer_rollout(job)
        _infer_roles(job)


def infer_precision(job: Job) -> None:
    """Infer the formats that follow from the dtype of the weights."""
    plan = job.plan
    dtype = plan.get("precision.params")
    fields: tuple[Field, ...] = ("precision.grads", "precision.frozen", "precision.adapter")
    for field in fields:
        plan.infer(field, dtype, "model_dtype")
    if plan.get("optimizer.name") is not None and dtype is not None:
        plan.infer(
            "optimizer.state_bits", 32 if dtype == "fp32" else 16, "optimizer states have the dtype of the weights"
        )


def _infer_attention(job: Job) -> None:
    """Infer flash attention where verl replaces the layers' own (`models/transformers/monkey_patch.py`)."""
    is_replaced = job.architecture is not None and job.architecture.model_type in _REPLACED_ATTENTION
    is_packed = read(job.main, PLAIN.boolean, *key.REMOVE_PADDING) or get_context_size(job.main) > 1
    if is_replaced and is_packed and job.plan.get("activations.attention") == "eager":
        note = "verl replaces the attention of this model"
        job.plan.put("activations.attention", "flash", Origin("inferred", note=note))


def infer_engine(job: Job) -> None:
    """Infer how FSDP shards and wraps the model."""
    config, plan = job.main, job.plan
    is_offloaded = bool(read(config, PLAIN.boolean, *key.CPU_OFFLOAD))
    plan.infer("parallel.offload_params", "cpu" if is_offloaded else "none", "cpu_offload of FSDP")
    minimum = read(config, PLAIN.integer, *key.MIN_PARAMETERS)
    plan.infer("parallel.wrapping", "size" if minimum else "block", "wrap_policy")
    size, world = read(config, PLAIN.integer, *key.SHARD_SIZE), plan.world_size
    if world is not None:
        is_hybrid = size is not None and 0 < size < world
        plan.infer("parallel.shard_size", size if is_hybrid else world, "fsdp_size")
        plan.infer("parallel.replicas", world // size if is_hybrid and size else 1, "fsdp_size")
        if is_hybrid:
            plan.put("parallel.sharding", "hybrid_shard", Origin("inferred", note="fsdp_size"))
    plan.infer("parallel.defers_reduction", bool(read(config, PLAIN.boolean, *key.NO_SYNC)), "one reduction per step")


def infer_batch(job: Job) -> None:
    """Infer the micro batch of the old spelling, and the micro batches of an optimizer step."""
    config, plan = job.main, job.plan
    ranks, sequences = plan.world_size, plan.get("batch.global_")
    context = get_context_size(config)
    if plan.get("batch.micro") is None and is_dynamic(config) is False and ranks:
        whole = read(config, COUNT, *key.OLD_MICRO)
        if whole is not None:
            share = max(1, whole // max(1, ranks // context))
            origin = find_origin(config, *key.OLD_MICRO)
            plan.put("batch.micro", share, origin._replace(kind="inferred", note="of all ranks"))
    micro, length, tokens = plan.get("batch.micro"), plan.get("sequence.length"), plan.get("batch.tokens_per_gpu")
    if not ranks or not sequences:
        return
    share = max(1, sequences * context // ranks)
    if micro:
        plan.infer("batch.accumulation", max(1, share // micro), "mini batch / ranks / micro batch")
    elif tokens and length:
        plan.infer("batch.accumulation", 2 if share * length > tokens else 1, "the token budget")


def _infer_rollout(job: Job) -> None:
    config, plan = job.main, job.plan
    tokens = [read(config, COUNT, *names) for names in (key.SCORE_TOKENS, key.REFERENCE_TOKENS)]
    budgets = [value for value in tokens if value is not None]
    if budgets and is_dynamic(config):
        plan.infer("rollout.tokens_per_gpu", max(budgets), "log_prob_max_token_len_per_gpu")
    _infer_losses(job)
    if _always_sleeps(config):
        plan.put("rollout.sleep", True, Origin("inferred", note="no setting keeps the engine awake"))
    if plan.get("rollout.engine") == "vllm":
        # Level 2 of vLLM's sleep discards the weights, which the trainer sends again (0.6.1); LoRA keeps them.
        discards = not is_before(config, "0.6.1") and not has_adapter(config)
        plan.infer("rollout.sleep_discards", discards, "level of vLLM's sleep")
        # Releases before 0.6.0 require vLLM up to 0.8.5 (extra `vllm`), whose share is of what is not yet in use.
        is_new = config.releases.is_certainly_at_least("vllm", "0.9.0") is True
        plan.infer("rollout.includes_training", is_before(config, "0.6.0") and not is_new, "vLLM up to 0.8.5")
    bucket = read(config, COUNT, *key.BUCKET)
    plan.infer("rollout.sync_bucket", 0 if bucket is None else bucket << 20, "update_weights_bucket_megabytes")
    # update_weights of workers/engine_workers.py, the only workers since 0.8.0. Those before collect the weights first:
    # 0.7.1 workers/fsdp_workers.py (rollout_mode), 0.5.0 workers/sharding_manager/fsdp_vllm.py (__enter__).
    plan.infer("rollout.wakes_first", not is_before(config, "0.8.0"), "order of update_weights")


def _always_sleeps(config: Config) -> bool:
    """Return whether the engine sleeps whatever `free_cache_engine` says: vLLM 0.7.0 and later, and SGLang.

    Earlier ones keep their cache. Source: verl 0.3.0.post1 and 0.4.1 `workers/sharding_manager/fsdp_vllm.py` and
    `fsdp_sglang.py` (__exit__); 0.5.0 reads the setting, and so do copies that pass it to vLLM. Only a stated vLLM is
    an earlier one: the `vllm<=0.6.3` of verl's own setup.py stayed in copies whose code supports later ones.
    """
    is_old_vllm = config.releases.is_stated("vllm") and config.releases.is_certainly_at_least("vllm", "0.7.0") is False
    copy = config.evidence.vocabulary
    modes = None if copy is None else copy.code.find_passed_values("__init__", "LLM", "enable_sleep_mode")
    if modes and True not in modes:
        return False
    return is_before(config, "0.5.0") and not is_before(config, "0.2.0.dev") and not is_old_vllm


def _infer_losses(job: Job) -> None:
    """Infer how log-probabilities and entropy are computed (utils/torch_functional.py, workers/engine/fsdp/)."""
    config, plan = job.main, job.plan
    if read(config, PLAIN.boolean, *key.FUSED_KERNELS):
        plan.infer("activations.fused_loss", "policy_fused", "use_fused_kernels")
        return
    coefficient = read(config, PLAIN.number, *key.ENTROPY)
    if coefficient is None:
        return
    # 0.8.0 workers/engine/fsdp/transformer_impl.py, prepare_model_outputs: with padding, the logits of all tokens are
    # cut out of the padded ones, and their entropy is not compiled. Earlier code takes those of the answers only.
    is_padded = read(config, PLAIN.boolean, *key.REMOVE_PADDING) is False and not is_before(config, "0.8.0")
    if coefficient != 0 or read(config, PLAIN.boolean, *key.COUNTS_ENTROPY):
        is_compiled = read(config, PLAIN.boolean, *key.COMPILE) is not False and not is_padded
        plan.infer(
            "activations.fused_loss", "policy_entropy" if is_compiled else "policy_entropy_eager", "entropy_coeff"
        )
        return
    if is_padded:
        plan.infer("activations.fused_loss", "policy_padded", "use_remove_padding")
        return
    temperature = read(config, PLAIN.number, *key.TEMPERATURE)
    is_scaled = is_before(config, "0.9.0") or temperature != 1
    plan.infer("activations.fused_loss", "policy_scaled" if is_scaled else "policy", "log-probabilities of the answers")


def needs_reference(config: Config) -> bool | None:
    """Return whether the trainer builds a reference model, or None if that is unknown."""
    answers = [read(config, PLAIN.boolean, *names) for names in (key.KL_LOSS, key.KL_REWARD)]
    return True if any(answers) else None if None in answers else False


def needs_critic(config: Config) -> bool | None:
    """Return whether the trainer builds a critic (trainer/ppo/utils.py need_critic), or None if that is unknown."""
    stated = read(config, PLAIN.boolean, *key.CRITIC)
    if stated is not None:
        return bool(stated)
    if not has_known_tree(config) and not is_stated(config, *key.ESTIMATOR):
        return None  # the tree of another program may have another default
    estimator = read(config, PLAIN.string, *key.ESTIMATOR)
    return None if estimator is None else estimator == "gae"


def _infer_roles(job: Job) -> None:
    roles = tuple(_list_roles(job))
    if roles and is_complete(job.main):
        job.plan.infer("model.roles", roles, "the models of trainer/ppo/ray_trainer.py")


def _keeps_root(config: Config) -> bool:
    """Return whether the reference's root unit stays gathered after its passes.

    workers/engine/fsdp/transformer_impl.py (EngineEvalModeCtx), which all workers use since 0.8.0, frees it only if
    `fsdp_size` is stated. Those before free it on several GPUs (0.7.1 workers/fsdp_workers.py, compute_ref_log_prob).
    """
    size = read(config, PLAIN.integer, *key.REFERENCE_SHARD_SIZE)
    return not is_before(config, "0.8.0") and (size or 0) <= 0


def _list_roles(job: Job) -> Iterator[Role]:
    """Yield the models that share the GPUs, or none if which they are is unknown."""
    config, plan = job.main, job.plan
    model, nodes, gpus = plan.get("model.id"), plan.get("launch.nodes"), plan.get("launch.gpus_per_node")
    reference, critic = needs_reference(config), needs_critic(config)
    if reference is None or critic is None:
        return
    yield Role("actor", model, True, nodes, gpus, POOL)
    if has_adapter(config):
        plan.infer("method.reference_model", "adapter-off" if reference else "none", "the actor without its adapter")
    else:
        plan.infer("method.reference_model", "none", "the reference is a role")
        if reference:
            plan.infer("method.reference_offload", True, "FSDP keeps the reference on the host")
            yield Role("reference", model, False, nodes, gpus, POOL, offload=True, keeps_root=_keeps_root(config))
    if critic:
        source = read(config, PLAIN.string, *key.CRITIC_MODEL)
        tokens = read(config, COUNT, *key.CRITIC_TOKENS)
        is_filled = bool(read(config, PLAIN.boolean, *key.CRITIC_DYNAMIC))
        yield Role(
            "critic",
            source or model,
            True,
            nodes,
            gpus,
            POOL,
            offload=bool(read(config, PLAIN.boolean, *key.CRITIC_WEIGHTS_SLEEP)),
            states_offload=bool(read(config, PLAIN.boolean, *key.CRITIC_STATES_SLEEP)),
            micro=None if is_filled else read(config, COUNT, *key.CRITIC_MICRO),
            tokens_per_gpu=tokens * (read(config, COUNT, *key.CRITIC_ULYSSES) or 1) if is_filled and tokens else None,
        )
