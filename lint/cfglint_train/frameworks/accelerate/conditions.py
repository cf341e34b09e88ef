"""Conditions that clauses of accelerate name in `also`."""

from __future__ import annotations

import math

from cfglint_train.documents.document import MISSING
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Lookup

_SIZES: Final = ("dp_replicate", "dp_shard", "tp", "cp")


def has_mesh_of_another_size(get_value: Lookup) -> bool:
    """Return whether the product of the sizes is neither 1 nor the number of processes (1 replicates the model)."""
    values = [get_value(f"parallelism_config.parallelism_config_{name}_size") for name in _SIZES]
    sizes = [1 if value is MISSING or value is None else value for value in values]
    processes = get_value("num_processes")
    if not all(isinstance(size, int) and size >= 1 for size in (*sizes, processes)):
        return False
    return math.prod(sizes) not in (1, processes)
