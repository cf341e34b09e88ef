"""Conditions of axolotl's clauses that need code: the functions that `also` in `refusals.json` names."""

from __future__ import annotations

import re

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.axolotl.settings import is_sharegpt
from cfglint_train.frameworks.lens import Lookup


def fsdp1(value: Lookup) -> bool:
    """Return whether FSDP version 1 is in use."""
    return _find_fsdp_version(value) == 1


def fsdp2(value: Lookup) -> bool:
    """Return whether FSDP version 2 is in use and `fsdp_config` is set."""
    return _find_fsdp_version(value) == 2 and bool(value("fsdp_config"))


def _find_fsdp_version(value: Lookup) -> int | None:
    """Return the FSDP version that axolotl uses, 1 or 2, or None if FSDP is off or the version is unknown."""
    names = ("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version", "fsdp_config", "fsdp")
    values = [value(name) for name in names]
    release = parse_release(value("@release"))
    if any(isinstance(item, Unknown) for item in values):
        return None
    if not values[4] and (not values[3] or release < parse_release("0.12.0")):
        return None
    stated = next((item for item in values[:3] if item is not MISSING and item is not None), None)
    if stated is not None:
        return int(stated) if str(stated) in ("1", "2") else None
    return 2 if release >= parse_release("0.20.0") else 1


def has_sharegpt(value: Lookup) -> bool:
    """Return whether any data set has the type sharegpt."""
    return any(is_sharegpt(item) for item in value("datasets"))


def has_no_regex(value: Lookup) -> bool:
    """Return whether any LoRA target module is not a valid regular expression."""
    for pattern in value("lora_target_modules"):
        try:
            re.compile(pattern if isinstance(pattern, str) else "")
        except (re.error, RecursionError, OverflowError):
            return True
    return False


def is_saved_below_ray(value: Lookup) -> bool:
    """Return whether the output path is relative, so that a Ray worker saves below its own working folder."""
    path = value("output_dir")
    return isinstance(path, str) and not path.startswith(("/", "~", "$")) and "://" not in path


def sizes_miss_world(value: Lookup) -> bool:
    """Return whether the parallel sizes do not multiply to the number of GPUs."""
    return _divide_world(value) == "sizes"


def shards_without_fsdp(value: Lookup) -> bool:
    """Return whether `dp_shard_size` divides GPUs although FSDP is off."""
    return _divide_world(value) == "fsdp"


_SIZES: Final = (
    "expert_parallel_size",
    "tensor_parallel_size",
    "context_parallel_size",
    "sequence_parallel_degree",  # the old name of context_parallel_size, which replaces it
    "dp_replicate_size",
)


def _divide_world(value: Lookup) -> Literal["fits", "sizes", "fsdp"]:
    """Divide the GPUs by the parallel sizes as axolotl does, and return whether they fit, or the reason if not.

    axolotl divides without a remainder. A product above the world fails in torch's `init_device_mesh`, a smaller one in
    accelerate's `_validate_accelerator`. Source: axolotl 0.12.0 to 0.18.0 utils/distributed.py
    (_get_parallel_config_kwargs).
    """
    world, shards = value("@ranks"), value("dp_shard_size")
    sizes = [value(name) for name in _SIZES]
    shards = None if shards is MISSING else shards
    is_sharing_gpus = value("use_ray") or value("trl.use_vllm")  # some of the GPUs may not train
    if not isinstance(world, int) or is_sharing_gpus or not all(_is_size(size) for size in (*sizes, shards)):
        return "fits"
    expert, tensor, context, sequence, replicas = (size if isinstance(size, int) and size > 1 else 1 for size in sizes)
    context = context if context > 1 else sequence
    plugins = value("plugins")
    if not isinstance(plugins, list) or not any(str(name).endswith("ExpertParallelPlugin") for name in plugins):
        expert = 1
    if world % expert:
        return "sizes"
    rest = world // expert // tensor // context
    product = expert * tensor * context * replicas
    if shards is None and replicas == 1:
        product, rest = product * max(rest, 1), 1
    rest //= replicas
    has_fsdp = bool(value("fsdp") or value("fsdp_config"))
    if shards is not None and shards > 1:
        if rest > 1 and not has_fsdp:
            return "fsdp"
        product, rest = product * shards, rest // shards
        if replicas == 1:
            product, rest = product * max(rest, 1), 1
    elif rest > 1 and has_fsdp:
        product, rest = product * rest, 1
    return "sizes" if rest > 1 or product != world else "fits"


def _is_size(size: Any) -> bool:
    return size is MISSING or size is None or (isinstance(size, int) and not isinstance(size, bool))
