"""Keys that distinguish TRL's recipes from the files of other tools that also use `model_name_or_path`."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final

# Keys of TRL's own classes (`ScriptArguments`, `ModelConfig`, trainers' config classes) that the Trainer lacks.
OWN_KEYS: Final = frozenset((
    "dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split", "dataset_mixture", "dataset_mixer",
    "dataset_splits", "dataset_text_field", "dataset_num_proc", "dataset_prompt_column", "torch_dtype", "dtype",
    "attn_implementation", "use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules",
    "lora_modules_to_save", "lora_task_type", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type",
    "use_bnb_nested_quant", "max_seq_length", "max_length", "max_prompt_length", "max_completion_length", "packing",
    "padding_free", "assistant_only_loss", "completion_only_loss", "beta", "loss_type", "num_generations",
    "num_iterations", "reward_funcs", "reward_weights", "reward_model_name_or_path", "use_vllm", "vllm_mode",
    "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size", "vllm_server_host", "generation_batch_size",
    "steps_per_generation", "scale_rewards", "log_completions", "mask_truncated_completions", "desirable_weight",
    "undesirable_weight", "precompute_ref_log_probs", "sync_ref_model", "model_init_kwargs", "activation_offloading",
    "use_liger_loss", "center_rewards_coefficient", "accelerate_config", "rpo_alpha", "label_smoothing",
))  # fmt: skip

# A recipe has at least one of these keys, which no transformers script accepts.
DISTINCTIVE_KEYS: Final = OWN_KEYS - {
    "dataset_name", "dataset_config", "torch_dtype", "dtype", "attn_implementation", "max_length", "max_seq_length",
    "lora_alpha", "lora_dropout", "beta", "label_smoothing", "load_in_4bit", "load_in_8bit",
}  # fmt: skip

TRAINING_KEYS: Final = frozenset((
    "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "num_train_epochs", "max_steps",
    "output_dir", "bf16", "gradient_checkpointing",
))  # fmt: skip

# Keys of other tools that also have `model_name_or_path`: LLaMA-Factory, LMFlow, transformers' own examples, axolotl,
# OpenRLHF, open-instruct, and accelerate's example training loops, whose options open-instruct copied.
FOREIGN_KEYS: Final = frozenset((
    "stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "flash_attn", "pref_loss", "infer_backend",
    "export_dir", "quantization_bit", "block_size", "dataset_path", "base_model", "actor_rollout_ref", "defaults",
    "task_name", "max_source_length", "max_target_length", "max_seq_len", "conv_mode", "vision_tower",
    "mm_projector_type", "model_max_length", "lora_enable", "micro_train_batch_size", "with_tracking",
    "checkpointing_steps", "use_slow_tokenizer",
))  # fmt: skip

TRAINERS: Final = ("sft", "dpo", "grpo", "kto", "rloo", "reward", "orpo", "cpo")
"""Entry points of the vocabulary that belong to a single trainer."""

ANY_TRAINER: Final = "any"
"""Entry point for a recipe with an unknown trainer; it has the settings of all trainers."""

LAUNCHER_FILES: Final = ("accelerate_config", "config_file")
"""Options whose value `trl` passes to the launcher as its config file: a path, or the name of a file in TRL."""
