"""Keys that distinguish LLaMA-Factory's settings from those of other tools that use `model_name_or_path`."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final

# Keys of LLaMA-Factory's argument classes that other tools with `model_name_or_path` do not have.
OWN_KEYS: Final = frozenset((
    "stage", "finetuning_type", "template", "cutoff_len", "dataset", "dataset_dir", "eval_dataset", "lora_target",
    "plot_loss", "overwrite_cache", "preprocessing_num_workers", "flash_attn", "enable_liger_kernel", "pref_loss",
    "freeze_trainable_layers", "use_unsloth", "pure_bf16", "additional_target", "quantization_bit", "neat_packing",
    "disable_gradient_checkpointing", "adapter_name_or_path", "infer_backend", "export_dir", "visual_inputs",
))  # fmt: skip

TRAINING_KEYS: Final = frozenset(
    ("dataset", "do_train", "per_device_train_batch_size", "learning_rate", "tokenized_path")
)

# Keys of other tools, such as TRL and other Trainer scripts, whose YAML files also have `model_name_or_path`.
FOREIGN_KEYS: Final = frozenset((
    "base_model", "dataset_name", "dataset_mixer", "datasets", "torch_dtype", "attn_implementation", "lora_r",
    "lora_target_modules", "lora_modules_to_save", "script_args", "dataset_text_field", "max_seq_length",
    "chat_template", "actor_rollout_ref", "defaults", "hydra", "merge_method", "models", "slices",
))  # fmt: skip

METHOD_KEYS: Final = frozenset(("stage", "finetuning_type"))
"""Keys of the training method. A file with both keys and other settings is recognized without a model.

The launch or the parser's default may name the model instead.
"""
