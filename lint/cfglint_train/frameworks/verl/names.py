"""Settings of verl by concept, newest name first.

First the names of the PPO trainer's tree, then those of the supervised trainers', then those of EasyR1
(hiyouga/EasyR1 at b44b311, `verl/trainer/config.py`, `verl/workers/*/config.py`). `cfglint_schemas/verl.json` has the
releases of verl's own, `cfglint_schemas/easyr1.json` those of EasyR1; `tests/frameworks/test_verl.py` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Final

Names = tuple[str, ...]

_MODEL: Final = "actor_rollout_ref.model"
_ACTOR: Final = "actor_rollout_ref.actor"
_FSDP: Final = f"{_ACTOR}.fsdp_config"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_REFERENCE: Final = "actor_rollout_ref.ref"

MODEL: Final = (f"{_MODEL}.path", "model.path", "model.partial_pretrain", "worker.actor.model.model_path")
REMOTE_CODE: Final = (
    f"{_MODEL}.trust_remote_code",
    "model.trust_remote_code",
    "worker.actor.model.trust_remote_code",
)
LORA_RANK: Final = (f"{_MODEL}.lora_rank", "model.lora_rank", "worker.actor.model.lora.rank")
LORA_ALPHA: Final = (f"{_MODEL}.lora_alpha", "model.lora_alpha", "worker.actor.model.lora.alpha")
LORA_TARGETS: Final = (
    f"{_MODEL}.target_modules",
    "model.target_modules",
    "worker.actor.model.lora.target_modules",
)
CHECKPOINTING: Final = (
    f"{_MODEL}.enable_gradient_checkpointing",
    "model.enable_gradient_checkpointing",
    "worker.actor.model.enable_gradient_checkpointing",
)
ACTIVATION_OFFLOAD: Final = (f"{_MODEL}.enable_activation_offload", "model.enable_activation_offload")
LIGER: Final = (f"{_MODEL}.use_liger", "model.use_liger")
TILED_MLP: Final = (f"{_MODEL}.tiled_mlp.enabled", "model.tiled_mlp.enabled")
ATTENTION: Final = (
    f"{_MODEL}.override_config.attn_implementation",
    "model.override_config.attn_implementation",
)
FUSED_KERNELS: Final = (f"{_MODEL}.use_fused_kernels", "model.use_fused_kernels")
REMOVE_PADDING: Final = (
    f"{_MODEL}.use_remove_padding",
    "model.use_remove_padding",
    "use_remove_padding",
    "worker.actor.padding_free",
)

STRATEGY: Final = (f"{_ACTOR}.strategy", "engine.strategy", "model.strategy")
OTHER_ENGINES: Final[Mapping[str, str]] = {
    "megatron": "Megatron",
    "veomni": "VeOmni",
    "torchtitan": "TorchTitan",
    "automodel": "Automodel",
    "mindspeed": "MindSpeed",
    "fsdp_turbo": "FSDP-Turbo",
}
"""Engines whose memory is not estimated."""
MODEL_DTYPE: Final = (
    f"{_FSDP}.model_dtype",
    "engine.model_dtype",
    "model.fsdp_config.model_dtype",
    "worker.actor.fsdp.torch_dtype",
)
COMPUTE_DTYPE: Final = (
    f"{_FSDP}.mixed_precision.param_dtype",
    f"{_FSDP}.dtype",
    "engine.dtype",
    "worker.actor.fsdp.mp_param_dtype",
)
REDUCE_DTYPE: Final = ("worker.actor.fsdp.mp_reduce_dtype",)
WEIGHTS_SLEEP: Final = (f"{_FSDP}.param_offload", "worker.actor.offload.offload_params")
STATES_SLEEP: Final = (f"{_FSDP}.optimizer_offload", "worker.actor.offload.offload_optimizer")
OFFLOAD_POLICY: Final = (f"{_FSDP}.offload_policy", "engine.offload_policy")
CPU_OFFLOAD: Final = ("model.fsdp_config.cpu_offload", "worker.actor.fsdp.enable_cpu_offload")
SHARD_SIZE: Final = (f"{_FSDP}.fsdp_size", "engine.fsdp_size", "worker.actor.fsdp.fsdp_size")
RESHARD: Final = (
    f"{_FSDP}.reshard_after_forward",
    "engine.reshard_after_forward",
    "worker.actor.fsdp.enable_full_shard",
)
ORIGINAL_PARAMETERS: Final = ("worker.actor.fsdp.use_orig_params",)
RANK_0_LOADS: Final = ("worker.actor.fsdp.enable_rank0_init",)
FROZEN_VISION: Final = ("worker.actor.model.freeze_vision_tower",)
MIN_PARAMETERS: Final = (
    f"{_FSDP}.wrap_policy.min_num_params",
    "engine.wrap_policy.min_num_params",
    "model.fsdp_config.wrap_policy.min_num_params",
)
NO_SYNC: Final = (
    f"{_FSDP}.use_no_sync_for_gradient_accumulation",
    "engine.use_no_sync_for_gradient_accumulation",
)
ULYSSES: Final = (
    f"{_ACTOR}.ulysses_sequence_parallel_size",
    f"{_FSDP}.ulysses_sequence_parallel_size",
    "engine.ulysses_sequence_parallel_size",
    "ulysses_sequence_parallel_size",
    "worker.actor.ulysses_size",
    "worker.actor.ulysses_sequence_parallel_size",
)
HYBRID: Final = ("actor_rollout_ref.hybrid_engine", "worker.hybrid_engine")
POOL_SIZE: Final = ("rollout.nnodes", "rollout.n_gpus_per_node")
VEOMNI_ULYSSES: Final = (f"{_ACTOR}.veomni.ulysses_parallel_size",)
LEARNING_RATE: Final = (f"{_ACTOR}.optim.lr", "optim.lr", "worker.actor.optim.lr")
CLIPPING: Final = (f"{_ACTOR}.grad_clip", "optim.clip_grad", "worker.actor.max_grad_norm")
OPTIMIZER: Final = (f"{_ACTOR}.optim.optimizer", "optim.optimizer", "worker.actor.optim.strategy")
OPTIMIZER_MODULE: Final = (f"{_ACTOR}.optim.optimizer_impl", "optim.optimizer_impl")

DYNAMIC: Final = (f"{_ACTOR}.use_dynamic_bsz", "data.use_dynamic_bsz", "worker.actor.dynamic_batching")
MINI: Final = (f"{_ACTOR}.ppo_mini_batch_size", "worker.actor.global_batch_size")
BATCH: Final = ("data.train_batch_size",)
"""Sequences of a step of the supervised trainer."""
MICRO: Final = (
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
    "data.micro_batch_size_per_gpu",
    "worker.actor.micro_batch_size_per_device_for_update",
)
OLD_MICRO: Final = (f"{_ACTOR}.ppo_micro_batch_size", "data.micro_batch_size")
TOKENS: Final = (f"{_ACTOR}.ppo_max_token_len_per_gpu", "data.max_token_len_per_gpu")
ENTROPY: Final = (f"{_ACTOR}.entropy_coeff",)
COUNTS_ENTROPY: Final = (f"{_ACTOR}.calculate_entropy",)
COMPILE: Final = (f"{_ACTOR}.use_torch_compile",)
KL_LOSS: Final = (f"{_ACTOR}.use_kl_loss",)
KL_LOSS_COEFFICIENT: Final = (f"{_ACTOR}.kl_loss_coef",)
KL_REWARD: Final = ("algorithm.use_kl_in_reward",)
KL_REWARD_COEFFICIENT: Final = ("algorithm.kl_ctrl.kl_coef",)
WITHOUT_KL: Final = ("algorithm.disable_kl",)
KL_COEFFICIENT: Final = ("algorithm.kl_coef",)
CONTENTS: Final = (
    f"{_ACTOR}.checkpoint.save_contents",
    f"{_ACTOR}.checkpoint.contents",
    "checkpoint.save_contents",
    "trainer.checkpoint.save_contents",
)
MODEL_ONLY: Final = ("trainer.save_model_only",)

PROMPTS: Final = ("data.train_batch_size", "data.rollout_batch_size")
GENERATED: Final = ("data.mini_rollout_batch_size",)
PROMPT_LENGTH: Final = ("data.max_prompt_length",)
RESPONSE_LENGTH: Final = ("data.max_response_length",)
LENGTH: Final = ("data.max_length",)
WORKERS: Final = ("data.dataloader_num_workers", "data.num_workers")

ENGINE: Final = (f"{_ROLLOUT}.name", "worker.rollout.name")
TEMPERATURE: Final = (f"{_ROLLOUT}.temperature",)
SAMPLES: Final = (f"{_ROLLOUT}.n", "worker.rollout.n")
UTILIZATION: Final = (f"{_ROLLOUT}.gpu_memory_utilization", "worker.rollout.gpu_memory_utilization")
EXPERT: Final = (f"{_ROLLOUT}.expert_parallel_size",)
TENSOR: Final = (f"{_ROLLOUT}.tensor_model_parallel_size", "worker.rollout.tensor_parallel_size")
SLEEP: Final = (f"{_ROLLOUT}.free_cache_engine",)
EAGER: Final = (f"{_ROLLOUT}.enforce_eager", "worker.rollout.enforce_eager")
BUCKET: Final = (
    f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
    f"{_ROLLOUT}.update_weights_bucket_megabytes",
)
SCORE_MICRO: Final = (
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "worker.actor.micro_batch_size_per_device_for_experience",
)
SCORE_TOKENS: Final = (f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",)
REFERENCE_MICRO: Final = (f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu",)
REFERENCE_SHARD_SIZE: Final = (f"{_REFERENCE}.fsdp_config.fsdp_size",)
REFERENCE_TOKENS: Final = (f"{_REFERENCE}.log_prob_max_token_len_per_gpu",)
REFERENCE_DTYPE: Final = ("worker.ref.fsdp.torch_dtype",)
REFERENCE_OFFLOAD: Final = ("worker.ref.fsdp.enable_cpu_offload", "worker.ref.offload.offload_params")
"""Two settings, either of which keeps the reference on the host."""

ESTIMATOR: Final = ("algorithm.adv_estimator",)
CRITIC: Final = ("critic.enable",)
CRITIC_MODEL: Final = ("critic.model.path", "worker.critic.model.model_path")
CRITIC_WEIGHTS_SLEEP: Final = (
    "critic.fsdp.param_offload",
    "critic.model.fsdp_config.param_offload",
    "worker.critic.offload.offload_params",
)
CRITIC_STATES_SLEEP: Final = (
    "critic.fsdp.optimizer_offload",
    "critic.model.fsdp_config.optimizer_offload",
    "worker.critic.offload.offload_optimizer",
)
CRITIC_CPU_OFFLOAD: Final = ("worker.critic.fsdp.enable_cpu_offload",)
CRITIC_MINI: Final = ("worker.critic.global_batch_size",)
CRITIC_MICRO: Final = (
    "critic.ppo_micro_batch_size_per_gpu",
    "worker.critic.micro_batch_size_per_device_for_update",
)
CRITIC_SCORE_MICRO: Final = ("worker.critic.micro_batch_size_per_device_for_experience",)
CRITIC_TOKENS: Final = ("critic.ppo_max_token_len_per_gpu",)
CRITIC_DYNAMIC: Final = ("critic.use_dynamic_bsz", "worker.critic.dynamic_batching")
CRITIC_ULYSSES: Final = ("critic.ulysses_sequence_parallel_size",)

NODES: Final = ("trainer.nnodes",)
GPUS: Final = ("trainer.n_gpus_per_node",)
STEPS: Final = ("trainer.total_training_steps", "trainer.max_steps")
EPOCHS: Final = ("trainer.total_epochs", "trainer.total_episodes")
SAVE_FREQUENCY: Final = ("trainer.save_freq",)
TEST_FREQUENCY: Final = ("trainer.test_freq", "trainer.val_freq")
KEEP: Final = ("trainer.max_actor_ckpt_to_keep", "trainer.max_ckpt_to_keep", "trainer.save_limit")
FOLDER: Final = ("trainer.default_local_dir", "trainer.save_checkpoint_path")

USER_CODE: Final = (
    "actor_rollout_ref.model.external_lib",
    "critic.model.external_lib",
    "custom_reward_function.path",
    "reward.custom_reward_function.path",
    "reward_manager.module.path",
    "reward.reward_manager.module.path",
    "data.custom_cls.path",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
)
"""Settings that make the trainer or its workers import a user's module, which may register words."""
