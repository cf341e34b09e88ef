"""Options of `accelerate launch`, which override the settings in accelerate's config file.

Source: accelerate 1.15.0 `commands/launch.py` (_validate_launch_command): a stated option overrides the file, and a
switch replaces the file's distributed type. Without a switch and without a file, the FSDP and DeepSpeed options are not
read.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.accelerate.settings import build_deepspeed_route

_SWITCHES: Final = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU"}
EXCLUSIVE_SWITCHES: Final = frozenset(("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp"))
"""Mutually exclusive switches: accelerate 0.20.3 to 1.15.0 raise ValueError if two of them are set
(_validate_launch_command).
"""
_DEEPSPEED_OPTIONS: Final = frozenset((
    "deepspeed_config_file", "deepspeed_moe_layer_cls_names", "gradient_accumulation_steps", "gradient_clipping",
    "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device", "offload_param_nvme_path",
    "zero3_init_flag", "zero3_save_16bit_model", "zero_stage",
))  # fmt: skip
_TOP_LEVEL_OPTIONS: Final = frozenset(("gpu_ids", "mixed_precision", "num_machines", "num_processes"))


def read_launcher_options(options: Mapping[str, Any]) -> Mapping[Route, tuple[str, Any]]:
    """Return the settings that the options state, by route, each with the name of its option.

    Return an empty mapping if accelerate does not read the options or rejects them.
    """
    settings: dict[Route, tuple[str, Any]] = {}
    for name, value in options.items():
        if name in _SWITCHES:
            settings[("distributed_type",)] = name, _SWITCHES[name]
        elif name.startswith("fsdp_"):
            settings[("fsdp_config", name)] = name, value
        elif name in _DEEPSPEED_OPTIONS:
            settings[build_deepspeed_route(name)] = name, value
        elif name in _TOP_LEVEL_OPTIONS:
            settings[(name,)] = name, value
    # `multi_gpu` alone only means several processes; it does not make accelerate read the other options.
    is_effective = not _SWITCHES.keys().isdisjoint(options.keys() - {"multi_gpu"}) or "config_file" in options
    return settings if is_effective and len(EXCLUSIVE_SWITCHES & options.keys()) < 2 else {}
