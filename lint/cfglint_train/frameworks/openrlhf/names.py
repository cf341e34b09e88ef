"""Flags of OpenRLHF by concept: the dotted name (0.10.2 and later) first, then the flat ones.

`cfglint_schemas/openrlhf.json` has the releases of each; `tests/frameworks/test_openrlhf.py` compares the two.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final

Names = tuple[str, ...]

MODEL: Final = ("--actor.model_name_or_path", "--model.model_name_or_path", "--pretrain")
IPO: Final = ("--model.ipo_enable", "--ipo")
PRETRAIN_MODE: Final = ("--model.pretrain_mode_enable", "--pretrain_mode")
LORA_RANK: Final = ("--ds.lora.rank", "--lora_rank")
LORA_TARGETS: Final = ("--ds.lora.target_modules", "--target_modules")
FOUR_BITS: Final = ("--ds.load_in_4bit", "--load_in_4bit")
DTYPE: Final = ("--ds.param_dtype", "--param_dtype")
BF16: Final = ("--bf16",)
GRADIENT_DTYPE: Final = ("--ds.grad_accum_dtype", "--grad_accum_dtype")
OPTIMIZER: Final = ("--actor.optim", "--optim")
LEARNING_RATE: Final = ("--actor.adam.lr", "--adam.lr", "--actor_learning_rate", "--learning_rate")
DYNAMIC_BATCH: Final = ("--train.dynamic_batch_enable", "--use_dynamic_batch")
TRAIN_TOKENS: Final = ("--train.max_tokens_per_gpu", "--train_max_tokens_per_gpu")
ROLLOUT_TOKENS: Final = ("--rollout.max_tokens_per_gpu", "--rollout_max_tokens_per_gpu")
MAX_LENGTH: Final = ("--data.max_len", "--max_len")
PROMPT_LENGTH: Final = ("--prompt_max_len",)
GENERATED_LENGTH: Final = ("--generate_max_len",)
NEW_TOKENS: Final = ("--rollout.max_new_tokens", "--max_new_tokens")
PACKING: Final = ("--ds.packing_samples", "--packing_samples")
CHECKPOINTING: Final = (
    "--actor.gradient_checkpointing_enable",
    "--model.gradient_checkpointing_enable",
    "--gradient_checkpointing",
)
REENTRANT: Final = (
    "--actor.gradient_checkpointing_reentrant",
    "--model.gradient_checkpointing_reentrant",
    "--gradient_checkpointing_use_reentrant",
)
ATTENTION: Final = ("--ds.attn_implementation", "--attn_implementation")
FLASH_ATTENTION: Final = ("--flash_attn",)
ZERO_STAGE: Final = ("--ds.zero_stage", "--zero_stage")
ADAM_OFFLOAD: Final = ("--ds.adam_offload", "--adam_offload")
OVERLAP_COMM: Final = ("--ds.overlap_comm", "--overlap_comm")
NO_TRACE_CACHE: Final = ("--disable_trace_cache",)
EPOCHS: Final = ("--train.max_epochs", "--max_epochs")
EPISODES: Final = ("--train.num_episodes", "--num_episodes")
SAVE_STEPS: Final = ("--ckpt.save_steps", "--save_steps")
EVAL_STEPS: Final = ("--eval.steps", "--eval_steps")
EVAL_DATA: Final = ("--eval.dataset", "--eval_dataset")
ENGINES: Final = ("--vllm.num_engines", "--vllm_num_engines")
ESTIMATOR: Final = ("--algo.advantage.estimator", "--advantage_estimator")
KL_COEFFICIENT: Final = ("--algo.kl.init_coef", "--init_kl_coef")
COLOCATE_ALL: Final = ("--train.colocate_all", "--colocate_all_models")
COLOCATE_REFERENCE: Final = ("--train.colocate_actor_ref", "--colocate_actor_ref")
COLOCATE_REWARD: Final = ("--train.colocate_critic_reward", "--colocate_critic_reward")
ASYNCHRONOUS: Final = ("--train.async_enable", "--async_train")
REMOTE_REWARD: Final = ("--reward.remote_url", "--remote_rm_url")
AGENT_FUNCTION: Final = ("--train.agent_func_path", "--agent_func_path")
REWARD_MODEL: Final = ("--reward.model_name_or_path", "--reward_pretrain")
CRITIC_MODEL: Final = ("--critic.model_name_or_path", "--critic_pretrain")
REFERENCE_OFFLOAD: Final = ("--ref.offload", "--ref_reward_offload", "--ref_offload")
REWARD_OFFLOAD: Final = ("--reward.offload", "--ref_reward_offload")
EMA: Final = ("--train.enable_ema", "--enable_ema")


def list_node_flags(role: str) -> Names:
    """Return the flags that state the number of nodes of a role."""
    return (f"--{role}.num_nodes", f"--{role}_num_nodes")


def list_gpu_flags(role: str) -> Names:
    """Return the flags that state the number of GPUs per node of a role."""
    return (f"--{role}.num_gpus_per_node", f"--{role}_num_gpus_per_node")
