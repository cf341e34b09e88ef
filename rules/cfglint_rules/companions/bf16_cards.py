"""Support of the run's GPU for bf16."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.plan.certainty import Ground
from cfglint_train.runs.run import GPU, Run

AMPERE: Final = 8.0
"""Compute capability of the first GPUs with bf16 and with the kernels of FlashAttention 2."""


def may_lack_bf16(run: Run) -> bool:
    """Return whether the GPU has no bf16, or is not stated while a file name or comment names a GPU without bf16."""
    capability = run.hardware.compute_capability
    if capability is not None and capability < AMPERE:
        return True
    if run.hardware.gpu_origin.kind != "assumed":
        return False
    from cfglint_train.launches.named_cards import find_oldest_capability

    place = run.find_place("precision.compute")
    oldest_gpu = find_oldest_capability(dict.fromkeys((*(config.document for config in run.configs), place.document)))
    return oldest_gpu is not None and oldest_gpu[0] < AMPERE


def build_card_ground(run: Run) -> tuple[Ground, ...]:
    """Return the assumption that an unstated GPU supports bf16, or an empty tuple if the GPU is stated."""
    if run.hardware.gpu_origin.kind != "assumed" and run.hardware.gpu is not None:
        return ()
    note = "a GPU that has bf16 (Ampere or newer); set `gpu` to be sure"
    return (Ground(GPU, run.hardware.gpu, "assumed", note),)
