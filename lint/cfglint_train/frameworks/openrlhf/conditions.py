"""Python conditions of the clauses in OpenRLHF's `refusals.json` (`also`)."""

from __future__ import annotations

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.lens import Lookup

_GPUS: Final = 8
"""Default number of GPUs per node of every role since 0.2.6."""


def engines_elsewhere(value: Lookup) -> bool:
    """Return whether the engines and the actor occupy different numbers of GPUs."""
    nodes, gpus = (
        _replace_missing(value("--actor.num_nodes"), 1),
        _replace_missing(value("--actor.num_gpus_per_node"), _GPUS),
    )
    engines, tensor_parallel_size = (
        value("--vllm.num_engines"),
        _replace_missing(value("--vllm.tensor_parallel_size"), 1),
    )
    return (
        all(isinstance(count, int) for count in (nodes, gpus, engines, tensor_parallel_size))
        and nodes * gpus != engines * tensor_parallel_size
    )


def reference_elsewhere(value: Lookup) -> bool:
    """Return whether the reference and the actor have different numbers of nodes, or of GPUs per node."""
    return _have_different_gpus(value, "actor", "ref")


def _have_different_gpus(value: Lookup, role: str, other: str) -> bool:
    sizes = [
        [_replace_missing(value(f"--{name}.{size}"), default) for name in (role, other)]
        for size, default in (("num_nodes", 1), ("num_gpus_per_node", _GPUS))
    ]
    is_known = not any(isinstance(size, Unknown) for pair in sizes for size in pair)
    return is_known and any(first != second for first, second in sizes)


def _count_gpus(value: Lookup, role: str) -> int | None:
    """Return the number of GPUs of a role, or None if it is unknown."""
    nodes = _replace_missing(value(f"--{role}.num_nodes"), 1)
    gpus = _replace_missing(value(f"--{role}.num_gpus_per_node"), _GPUS)
    is_known = all(isinstance(count, int) and count > 0 for count in (nodes, gpus))
    return int(nodes * gpus) if is_known else None


def _replace_missing(value: Any, default: int) -> Any:
    return default if value is MISSING else value


def reward_elsewhere(value: Lookup) -> bool:
    """Return whether the reward model and the critic have different numbers of nodes, or of GPUs per node."""
    return _have_different_gpus(value, "critic", "reward")


def too_few_batches(value: Lookup) -> bool:
    """Return whether a rollout has fewer micro batches than the actor has data-parallel processes.

    Source: OpenRLHF 0.7.2 to 0.11.2 `cli/train_ppo_ray.py`; the default micro batch is 8 before 0.10.0.
    """
    micro_batch = 1 if parse_release(str(value("@release"))) >= parse_release("0.10.0") else 8
    samples, prompts, rows, nodes, gpus, ring, tensor = (
        _replace_missing(value(name), default)
        for name, default in (
            ("--rollout.n_samples_per_prompt", 1),
            ("--rollout.batch_size", 1024),
            ("--rollout.micro_batch_size", micro_batch),
            ("--actor.num_nodes", 1),
            ("--actor.num_gpus_per_node", _GPUS),
            ("--ds.ring_attn_size", 1),
            ("--ds.tensor_parallel_size", 1),
        )
    )
    counts = (samples, prompts, rows, nodes, gpus, ring, tensor)
    is_known = all(isinstance(count, int) and count > 0 for count in counts)
    return is_known and samples * prompts // rows < nodes * gpus // ring // tensor


def engines_uneven(value: Lookup) -> bool:
    """Return whether neither the number of engines nor that of the actor's GPUs divides the other."""
    engines, actors = value("--vllm.num_engines"), _count_gpus(value, "actor")
    is_known = isinstance(engines, int) and engines > 0 and actors is not None
    return is_known and bool(actors % engines) and bool(engines % actors)


def critic_uneven(value: Lookup) -> bool:
    """Return whether the number of the actor's GPUs is no multiple of the critic's."""
    critics, actors = _count_gpus(value, "critic"), _count_gpus(value, "actor")
    return critics is not None and actors is not None and bool(actors % critics)
