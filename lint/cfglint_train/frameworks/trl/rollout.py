"""Lens for the rollouts of GRPO and RLOO: the generation settings and the inference engine."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, is_before, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.sequence import GENERATING_TRAINERS
from cfglint_train.frameworks.trl.settings import find_trainer, read_setting
from cfglint_train.plan.names import Field

# Plan field -> key and kind of value.
_GENERATION_KEYS: Final[dict[Field, tuple[str, str]]] = {
    "rollout.samples_per_prompt": ("num_generations", "integer"),
    "rollout.new_tokens": ("max_completion_length", "integer"),
    "rollout.kl_coefficient": ("beta", "number"),
    "rollout.gathers": ("ds3_gather_for_generation", "boolean"),
}
# Older keys of RLOO; TRL 0.22 to 0.24 copies their values over those of the newer keys (rloo_config.py, __post_init__).
_OLDER_KEYS: Final = {"num_generations": "rloo_k", "max_completion_length": "response_length", "beta": "kl_coef"}
_ENGINE_KEYS: Final[dict[Field, tuple[str, str]]] = {
    "rollout.utilization": ("vllm_gpu_memory_utilization", "number"),
    "rollout.tensor": ("vllm_tensor_parallel_size", "integer"),
    "rollout.sleep": ("vllm_enable_sleep_mode", "boolean"),
}


def is_generating(config: Config) -> bool:
    """Return whether the trainer generates its own completions."""
    return find_trainer(config) in GENERATING_TRAINERS


def _read_rollout(config: Config) -> Iterator[Triple]:
    if not is_generating(config):
        return
    for field, (newest_name, kind) in _GENERATION_KEYS.items():
        name = _OLDER_KEYS.get(newest_name, newest_name)
        if find_trainer(config) != "rloo" or config.get(name) is None:
            name = newest_name
        yield field, read_setting(config, name, kind), find_origin(config, name)
    if config.get("generation_batch_size") is not None and not is_before(config, "0.19"):
        # TRL 0.18 rounds the size down to a multiple of the micro batch of all ranks.
        yield (
            "rollout.completions",
            read_setting(config, "generation_batch_size", "integer"),
            config.get_origin("generation_batch_size"),
        )
    vllm = read_setting(config, "use_vllm", "boolean")
    origin = find_origin(config, "use_vllm")
    yield "rollout.engine", None if vllm is None else "vllm" if vllm else "hf", origin
    if vllm is False:
        yield "rollout.mode", "colocate", origin
    if not vllm:
        return
    mode = _find_mode(config)
    yield "rollout.mode", mode, find_origin(config, "vllm_mode")
    if mode == "colocate":
        for field, (name, kind) in _ENGINE_KEYS.items():
            value = read_setting(config, name, kind)
            yield field, value, find_origin(config, name)


def _find_mode(config: Config) -> Any:
    """Return the placement of vLLM: "pool", "server" or "colocate", or None if it is unknown.

    TRL 0.14 and 0.15 give vLLM its own GPU (`vllm_device`), 0.16 and 0.17 use a server, and later releases have
    `vllm_mode`.
    """
    if is_before(config, "0.18"):
        return "pool" if is_before(config, "0.16") else "server"
    mode = read_setting(config, "vllm_mode", "string")
    return mode if mode in ("colocate", "server") else None


_WRITABLE_KEYS: Final[dict[Field, str]] = {
    **{
        field: name
        for field, (name, _) in {**_GENERATION_KEYS, **_ENGINE_KEYS}.items()
        if field != "rollout.kl_coefficient"
    },
    "rollout.completions": "generation_batch_size",
}


def _write_rollout(config: Config, changes: Changes) -> list[Change]:
    if not is_generating(config):
        raise CannotEdit("the trainer does not generate")
    key_changes: list[Change] = []
    for field, value in changes.items():
        name = _WRITABLE_KEYS.get(field)
        if name is None or (field in _ENGINE_KEYS and _find_mode(config) != "colocate"):
            raise CannotEdit("fixes do not change how the run generates")
        refuse_override(config, (name,))
        key_changes.append(Set((*config.root, name), value, ("use_vllm", "num_generations", "max_completion_length")))
    return key_changes


LENSES: Final = (
    Custom(
        {
            **{field: parse_routes(name) for field, (name, _) in _GENERATION_KEYS.items()},
            "rollout.completions": parse_routes("generation_batch_size"),
            "rollout.engine": parse_routes("use_vllm"),
            "rollout.mode": parse_routes("vllm_mode"),
            **{field: parse_routes(name) for field, (name, _) in _ENGINE_KEYS.items()},
        },
        _read_rollout,
        _write_rollout,
    ),
)
