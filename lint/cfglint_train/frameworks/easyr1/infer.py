"""Fields that follow from EasyR1's settings: the engine, the batch, and the models on the GPUs.

Sources: hiyouga/EasyR1 v0.3.0 to v0.3.2 and b44b311 (0.3.3.dev0), `verl/workers/fsdp_workers.py`,
`verl/workers/sharding_manager/fsdp_vllm.py`, `verl/workers/rollout/vllm_rollout_spmd.py`, `verl/trainer/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.easyr1.lenses import read_length
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Config, is_before, parse_routes
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.infer import POOL, infer_batch, infer_engine, infer_precision
from cfglint_train.frameworks.verl.lenses import COUNT, DTYPE, get_context_size, has_adapter, is_dynamic
from cfglint_train.frameworks.verl.settings import find_route, read
from cfglint_train.plan.fields import Role
from cfglint_train.plan.names import Field

_FIXED_VALUES: Final[tuple[tuple[Field, Any], ...]] = (
    ("precision.master", "none"),
    ("precision.autocast", False),  # FSDP's mixed precision casts
    ("activations.reentrant", False),
    ("parallel.sharding", "full_shard"),
    ("checkpoint.state_dict", "sharded"),
    ("checkpoint.rotates_first", True),  # utils/checkpoint/checkpoint_manager.py: remove_obsolete_ckpt
    ("model.rope_scaling", "none"),
    ("rollout.sleep_discards", False),  # level 1 of vLLM's sleep
    ("rollout.sync_bucket", 0),
)


def infer(job: Job) -> None:
    """Infer the engine, the batch, and the models of a job."""
    config, plan = job.main, job.plan
    for field, value in _FIXED_VALUES:
        plan.infer(field, value, "EasyR1 builds it so")
    _infer_formats(job)
    _infer_sharding(job)
    infer_batch(job)
    _infer_scoring(job)
    # vLLM up to 0.8.5 has a share of what is not yet in use.
    is_old = config.releases.is_certainly_at_least("vllm", "0.9.0") is False
    plan.infer("rollout.includes_training", is_old, "vLLM up to 0.8.5")
    plan.infer("rollout.wakes_first", not is_before(config, "0.3.1"), "order of fsdp_vllm.py")
    loss = "policy_scaled" if plan.get("sequence.packing") else "policy_cut"
    plan.infer("activations.fused_loss", loss, "log_probs_from_logits of flash-attn")
    _infer_roles(job)


def _infer_formats(job: Job) -> None:
    """Infer the formats of the weights: those of a frozen base or a reference are not those of the trained weights."""
    infer_precision(job)
    config, plan = job.main, job.plan
    has_copy = read(config, OMEGACONF.boolean, *key.RANK_0_LOADS)
    if has_copy is not None:
        plan.infer("precision.loaded", "none" if has_copy else plan.get("precision.params"), "enable_rank0_init")
    frozen = read(config, DTYPE, *key.REFERENCE_DTYPE) or "bf16"
    plan.infer("precision.frozen", "bf16" if has_adapter(config) else frozen, "frozen weights are bf16")


def _infer_sharding(job: Job) -> None:
    """Infer FSDP1's sharding; without `enable_full_shard`, weights stay gathered after the forward pass."""
    infer_engine(job)
    plan = job.plan
    if plan.get("parallel.reshard_after_forward") is False:
        is_hybrid = plan.get("parallel.sharding") == "hybrid_shard"
        kind = "hybrid_shard_zero2" if is_hybrid else "shard_grad_op"
        plan.infer("parallel.sharding", kind, "enable_full_shard")


def _infer_scoring(job: Job) -> None:
    """Infer the token budget of the passes that only score, if their batches are filled up to the longest samples."""
    config, plan = job.main, job.plan
    micro, length = read(config, COUNT, *key.SCORE_MICRO), read_length(config)
    if micro and length and is_dynamic(config):
        tokens = micro * length // get_context_size(config)
        plan.infer("rollout.tokens_per_gpu", tokens, "micro_batch_size_per_device_for_experience of the longest")


def _infer_roles(job: Job) -> None:
    roles = tuple(_list_roles(job))
    if roles:
        job.plan.infer("model.roles", roles, "the models of trainer/ray_trainer.py")


def needs_critic(config: Config) -> bool | None:
    """Return whether the trainer builds a critic, or None if that is unknown."""
    estimator = read(config, OMEGACONF.string, *key.ESTIMATOR)
    return None if estimator is None else estimator == "gae"


def _list_roles(job: Job) -> Iterator[Role]:
    """Yield the models that share the GPUs, or none if which they are is unknown."""
    config, plan = job.main, job.plan
    model, nodes, gpus = plan.get("model.id"), plan.get("launch.nodes"), plan.get("launch.gpus_per_node")
    is_without, critic = read(config, OMEGACONF.boolean, *key.WITHOUT_KL), needs_critic(config)
    if is_without is None or critic is None:
        return
    yield Role("actor", model, True, nodes, gpus, POOL)
    if has_adapter(config):
        plan.infer("method.reference_model", "none" if is_without else "adapter-off", "the actor without its adapter")
    else:
        plan.infer("method.reference_model", "none", "the reference is a role")
        if not is_without:
            offload = any(read(config, OMEGACONF.boolean, name) for name in key.REFERENCE_OFFLOAD)
            plan.infer("method.reference_offload", offload, "enable_cpu_offload or offload_params of `worker.ref`")
            yield Role("reference", model, False, nodes, gpus, POOL, offload=offload)
    if critic:
        source, micro = read(config, OMEGACONF.string, *key.CRITIC_MODEL), read(config, COUNT, *key.CRITIC_MICRO)
        is_filled, length = _fills_critic(config), read_length(config)
        weights, states = (
            any(read(config, OMEGACONF.boolean, *names) for names in (key.CRITIC_CPU_OFFLOAD, sleep))
            for sleep in (key.CRITIC_WEIGHTS_SLEEP, key.CRITIC_STATES_SLEEP)
        )
        yield Role(
            "critic",
            source,
            True,
            nodes,
            gpus,
            POOL,
            offload=weights,
            unstated="" if source else "worker.critic.model.model_path",
            states_offload=states,
            micro=None if is_filled else micro,
            tokens_per_gpu=micro * length if is_filled and micro and length else None,
        )


def _fills_critic(config: Config) -> bool:
    """Return whether the critic's micro batches are filled up to the longest samples; before 0.3.2, none are."""
    has_setting = find_route(config, parse_routes(*key.CRITIC_DYNAMIC)) is not None
    return has_setting and bool(read(config, OMEGACONF.boolean, *key.CRITIC_DYNAMIC))
