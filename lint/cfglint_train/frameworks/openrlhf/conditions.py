"""Python conditions of the clauses in OpenRLHF's `refusals.json` (`also`)."""

from __future__ import annotations

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.foundation.typed import Any, Final
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
    sizes = [
        [_replace_missing(value(f"--{role}.{name}"), default) for role in ("actor", "ref")]
        for name, default in (("num_nodes", 1), ("num_gpus_per_node", _GPUS))
    ]
    is_known = not any(isinstance(size, Unknown) for pair in sizes for size in pair)
    return is_known and any(actor != reference for actor, reference in sizes)


def _replace_missing(value: Any, default: int) -> Any:
    return default if value is MISSING else value
