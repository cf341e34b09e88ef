"""Names of TRL, transformers and PEFT by which a script's runs are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cfglint_train.foundation.typed import Any, Final

_OTHER_TRAINERS: Final = tuple(
    f"{name}Trainer"
    for name in (
        "BCO", "Distillation", "GKD", "GOLD", "NashMD", "OnlineDPO", "PRM", "SDFT", "SDPO", "SSD", "TPO", "XPO",
    )
)  # fmt: skip
"""Trainers with the Trainer's arguments, whose other keys and memory are unknown."""

TRAINERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_OTHER_TRAINERS, ""),
    "SFTTrainer": "sft",
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "RewardTrainer": "reward",
    "GRPOTrainer": "grpo",
    "RLOOTrainer": "rloo",
    "ORPOTrainer": "orpo",
    "CPOTrainer": "cpo",
}
"""Trainers -> the command of `trl` that runs them; empty if only the Trainer's arguments are read."""

HF_TRAINERS: Final = ("Trainer", "Seq2SeqTrainer")
"""Trainers of transformers itself."""
PACKAGE_TRAINERS: Final[Mapping[str, Collection[str]]] = {"trl": TRAINERS, "transformers": HF_TRAINERS}

HF_CONFIGS: Final = ("TrainingArguments", "Seq2SeqTrainingArguments")
HF_DEFAULTS: Final[Mapping[str, Any]] = {"bf16": False, "fp16": False, "gradient_checkpointing": False}
"""Defaults of the Trainer's own class that differ from TRL's at some release."""

CONFIG_CLASSES: Final = frozenset(
    (
        "SFTConfig",
        "DPOConfig",
        "KTOConfig",
        "RewardConfig",
        "GRPOConfig",
        "RLOOConfig",
        "ORPOConfig",
        "CPOConfig",
        *(name.replace("Trainer", "Config") for name in _OTHER_TRAINERS),
        *HF_CONFIGS,
    )
)

PARSERS: Final = ("TrlParser", "HfArgumentParser")
PARSED_REASON: Final = "the command line sets it"
"""Reason why the objects of a dataclass parser may have further settings."""

POSITIONAL_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(CONFIG_CLASSES, ("output_dir",)),
    **dict.fromkeys(("SFTTrainer", "RewardTrainer", "ORPOTrainer", "CPOTrainer"), ("model", "args")),
    **dict.fromkeys(("DPOTrainer", "KTOTrainer"), ("model", "ref_model", "args")),
    **dict.fromkeys(("GRPOTrainer", "RLOOTrainer"), ("model", "reward_funcs", "args")),
    **dict.fromkeys(HF_TRAINERS, ("model", "args")),
    **dict.fromkeys(PARSERS, ("dataclass_types",)),
    "from_pretrained": ("pretrained_model_name_or_path",),
    "BitsAndBytesConfig": ("load_in_8bit", "load_in_4bit"),
}

KEYWORD_PREFIX: Final = "trainer."
"""Prefix of a setting that is passed to the trainer itself."""

TRAINER: Final = "_TRAINER_"
"""Call that makes the trainer, as a part of its run."""

ADAPTER: Final = "_LORA_"
"""Call of `LoraConfig`, as a part of its run."""

OLD_KEYWORDS: Final = frozenset((
    "max_seq_length", "packing", "dataset_num_proc", "dataset_text_field", "dataset_kwargs", "dataset_batch_size",
    "neftune_noise_alpha", "model_init_kwargs", "max_length", "max_prompt_length", "max_target_length", "beta",
    "loss_type", "label_smoothing", "precompute_ref_log_probs", "generate_during_eval", "truncation_mode",
))  # fmt: skip
"""Settings that older trainers of TRL accepted themselves (trl 0.9.6 trainer/*_trainer.py)."""

MODEL_ARGUMENTS: Final[Mapping[str, str]] = {
    "pretrained_model_name_or_path": "model_name_or_path",
    "revision": "model_revision",
    "trust_remote_code": "trust_remote_code",
    "attn_implementation": "attn_implementation",
    "torch_dtype": "dtype",
    "dtype": "dtype",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "device_map": "_DEVICE_MAP_",
}
"""Arguments of `from_pretrained` -> names in `ModelConfig`."""

QUANTIZATION_ARGUMENTS: Final[Mapping[str, str]] = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
    "bnb_4bit_quant_storage": "bnb_4bit_quant_storage",
}
QUANTIZATION_DEFAULTS: Final[Mapping[str, Any]] = {"bnb_4bit_quant_type": "fp4"}
"""Defaults of `BitsAndBytesConfig` that differ from `ModelConfig`."""

PARTIAL_LORA_ARGUMENTS: Final[Mapping[str, str]] = {
    "layers_to_transform": "_LAYERS_TO_TRANSFORM_",
    "exclude_modules": "_EXCLUDE_MODULES_",
    "rank_pattern": "_RANK_PATTERN_",
}
"""Arguments of `LoraConfig` that make adapters differ from layer to layer, or leave matrices without one."""

LORA_ARGUMENTS: Final[Mapping[str, str]] = {
    **PARTIAL_LORA_ARGUMENTS,
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "target_parameters": "lora_target_parameters",
    "modules_to_save": "lora_modules_to_save",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}
LORA_DEFAULTS: Final[Mapping[str, Any]] = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
"""Defaults of `LoraConfig` that differ from `ModelConfig`."""

DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}

ENUMERATIONS: Final = frozenset(("IntervalStrategy", "SaveStrategy", "EvaluationStrategy", "SchedulerType"))
"""Enumerations of transformers whose members have their lower-case names as values."""
