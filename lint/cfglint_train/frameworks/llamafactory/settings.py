"""Lookup of LLaMA-Factory settings that other settings depend on."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.names import Field

STAGE_NAMES: Final = {
    "pt": "pretrain",
    "sft": "sft",
    "rm": "rm",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
}


def is_on(config: Config, key: str) -> bool:
    """Return whether a switch is stated and true."""
    return config.get(key) is True


def is_switch(config: Config, key: str) -> bool:
    """Return whether a switch is a boolean or absent."""
    value = config.get(key)
    return value is None or isinstance(value, bool)


def get_stage(config: Config) -> str | None:
    """Return the stage as spelled in the file (`sft` by default), or None if it is unknown."""
    stated = config.get("stage", default="sft")
    return stated if isinstance(stated, str) and stated in STAGE_NAMES else None


def get_tuning(config: Config) -> Any:
    """Return the fine-tuning type as spelled in the file (`lora` by default)."""
    return config.get("finetuning_type", default="lora")


MEGATRON_KEYS: Final[Mapping[Field, str]] = {
    "parallel.tensor": "tensor_model_parallel_size",
    "parallel.pipeline": "pipeline_model_parallel_size",
    "parallel.context": "context_parallel_size",
    "parallel.expert": "expert_model_parallel_size",
}


def is_megatron(config: Config) -> bool:
    """Return whether the file is written for a Megatron backend, which only the environment can switch on."""
    return any(config.get(key) is not None for key in MEGATRON_KEYS.values())
