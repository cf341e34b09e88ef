"""What GRPO and RLOO generate, and with what."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.sequence import GENERATES
from cfglint_train.frameworks.trl.settings import stated, trainer_of
from cfglint_train.plan.names import Field

# Plan field -> key, kind of value.
_GENERATED: Final[dict[Field, tuple[str, str]]] = {
    "rollout.samples_per_prompt": ("num_generations", "integer"),
    "rollout.new_tokens": ("max_completion_length", "integer"),
    "rollout.kl_coefficient": ("beta", "number"),
    "rollout.gathers": ("ds3_gather_for_generation", "boolean"),
}
_ENGINE: Final[dict[Field, tuple[str, str]]] = {
    "rollout.utilization": ("vllm_gpu_memory_utilization", "number"),
    "rollout.tensor": ("vllm_tensor_parallel_size", "integer"),
    "rollout.sleep": ("vllm_enable_sleep_mode", "boolean"),
}


def generates(config: Config) -> bool:
    """Whether the trainer makes its own completions."""
    return trainer_of(config) in GENERATES


def _read(config: Config) -> Iterator[Triple]:
    if not generates(config):
        return
    for field, (name, kind) in _GENERATED.items():
        yield field, stated(config, name, kind), origin_of(config, name)
    if config.get("generation_batch_size") is not None and not before(config, "0.19"):
        # 0.18 rounds what does not come out even down.
        yield (
            "rollout.completions",
            stated(config, "generation_batch_size", "integer"),
            config.origin("generation_batch_size"),
        )
    vllm = stated(config, "use_vllm", "boolean")
    origin = origin_of(config, "use_vllm")
    yield "rollout.engine", None if vllm is None else "vllm" if vllm else "hf", origin
    if vllm is False:
        yield "rollout.mode", "colocate", origin
    if not vllm:
        return
    mode = _mode(config)
    yield "rollout.mode", mode, origin_of(config, "vllm_mode")
    if mode == "colocate":
        for field, (name, kind) in _ENGINE.items():
            value = stated(config, name, kind)
            yield field, value, origin_of(config, name)


def _mode(config: Config) -> Any:
    """Where vLLM runs: 0.14 and 0.15 put it on a GPU of its own (`vllm_device`), 0.16 and 0.17 into a server."""
    if before(config, "0.18"):
        return "pool" if before(config, "0.16") else "server"
    mode = stated(config, "vllm_mode", "string")
    return mode if mode in ("colocate", "server") else None


_WRITTEN: Final[dict[Field, str]] = {
    **{field: name for field, (name, _) in {**_GENERATED, **_ENGINE}.items() if field != "rollout.kl_coefficient"},
    "rollout.completions": "generation_batch_size",
}


def _write(config: Config, changes: Changes) -> list[Change]:
    if not generates(config):
        raise CannotEdit("the trainer generates nothing")
    written: list[Change] = []
    for field, value in changes.items():
        name = _WRITTEN.get(field)
        if name is None or (field in _ENGINE and _mode(config) != "colocate"):
            raise CannotEdit("no fix changes what generates")
        refuse_override(config, (name,))
        written.append(Set((*config.root, name), value, ("use_vllm", "num_generations", "max_completion_length")))
    return written


LENSES: Final = (
    Custom(
        {
            **{field: names(name) for field, (name, _) in _GENERATED.items()},
            "rollout.completions": names("generation_batch_size"),
            "rollout.engine": names("use_vllm"),
            "rollout.mode": names("vllm_mode"),
            **{field: names(name) for field, (name, _) in _ENGINE.items()},
        },
        _read,
        _write,
    ),
)
