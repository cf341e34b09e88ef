"""GPU memory beyond the allocated bytes, held by torch's allocator and the driver (docs/memory/allocator.md)."""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.activations import Activations
from cfglint_train.memory.calibration import Coefficient, load_table
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import CONTEXT, WORKSPACES
from cfglint_train.memory.setup import Setup


@lru_cache(maxsize=8)
def compute_overheads(modern: bool, group: str) -> tuple[tuple[tuple[Component, int], ...], float, float, float, float]:
    """Return the GPU memory outside torch's allocator, and the cuBLAS workspaces.

    The result has the components, the high bound of the workspaces, the low bound of the context, and both bounds of
    the sum. `modern`: compute capability 9.0 or later. `group`: coefficient of the process group, or empty.
    """
    coefficients = load_table().coefficients
    workspace, context = coefficients["workspace-sm90" if modern else "workspace-sm80"], coefficients["context"]
    nccl = coefficients[group] if group else None
    parts = ((WORKSPACES, int(workspace.expected)), (CONTEXT, int(context.expected + (nccl.expected if nccl else 0))))
    low = context.low + (nccl.low if nccl else 0)
    high = context.high + (nccl.high if nccl else 0)
    return parts, workspace.high, low, workspace.low + low, workspace.high + high


Range = tuple[float, float, float]
"""Low, expected and high value of a coefficient."""


def _get_range(coefficient: Coefficient) -> Range:
    return coefficient.low, coefficient.expected, coefficient.high


class Gaps(Frozen):
    """Coefficients of the bytes reserved beyond the allocated bytes, in the pool of the main stream."""

    apart: Range
    split: Range
    fragmentation: Range

    def estimate_step(
        self, highest_without_loss: float, highest_unshared: float, total: float, highest: float
    ) -> Range:
        """Return the bytes reserved beyond the allocated bytes at a moment of a step.

        `total`: expected temporary bytes of the moment; `highest`: their upper bound. `highest_without_loss`: the
        step's highest moment without the loss. `highest_unshared`: sum of that moment and the loss, as if they shared
        no block.
        """
        room = highest_unshared - total if highest_unshared > total else 0.0
        room_high = highest_unshared - highest if highest_unshared > highest else 0.0
        (apart_low, apart, apart_high), (split_low, split, split_high) = self.apart, self.split
        return (
            room * apart_low + highest_without_loss * split_low,
            room * apart + highest_without_loss * split,
            room_high * apart_high + highest_without_loss * split_high,
        )

    def estimate_between_steps(self, temporary: float) -> Range:
        """Return the bytes reserved beyond the allocated bytes between steps, for `temporary` allocated bytes."""
        low, expected, high = self.fragmentation
        return temporary * low, temporary * expected, temporary * high


@lru_cache(maxsize=2)
def load_gaps(recomputes: bool) -> Gaps:
    """Return the coefficients of a job that recomputes layers (`recomputes`) or keeps their activations."""
    coefficients, suffix = load_table().coefficients, "-checkpointed" if recomputes else ""
    return Gaps(*[_get_range(coefficients[f"{name}{suffix}"]) for name in ("apart", "split", "fragmentation")])


class Lengths(Frozen):
    """Coefficients of the cached blocks that batches of other lengths leave behind.

    A batch that is longer than all before it finds no block for its largest tensors; the smaller blocks of earlier
    batches stay cached.
    """

    records: tuple[float, float]
    """Expected and highest total of the batches longer than all earlier ones, as in `Batch.records`."""
    pieces: Range

    def estimate_cached(self, loss: float, others: float) -> tuple[float, float]:
        """Return the expected and highest cached bytes.

        `loss`: bytes of a batch's whole logits. `others`: its other temporary bytes, whose smaller tensors fit into the
        blocks of the loss.
        """
        expected, high = self.records
        _, usual, most = self.pieces
        usual, most = others * usual, others * most
        return expected * (loss if loss > usual else usual), high * (loss if loss > most else most)


def list_length_coefficients(setup: Setup) -> tuple[str, ...]:
    """Return the ids of the coefficients that `load_lengths` uses for a setup."""
    if setup.batch.records == 0:
        return ()
    return ("cached", "records") if setup.batch.records is None else ("cached",)


@lru_cache(maxsize=8)
def load_lengths(records: float | None) -> Lengths:
    """Return the coefficients for batches in a known order (`records`: see `Batch`) or an unknown order (None)."""
    coefficients = load_table().coefficients
    _, expected, high = _get_range(coefficients["records"]) if records is None else (0.0, records, records)
    return Lengths((expected, high), _get_range(coefficients["cached"]))


def compute_unshared_activations(setup: Setup, flow: Activations | None) -> float:
    """Return the bytes of activations whose blocks are too small for any gradient.

    This happens if a matrix is larger than a tensor of the micro batch, but not with adapters or sharded gradients. The
    activations then fill whole segments, which torch does not join, but frees before an allocation fails.
    """
    if flow is None or setup.weights.adapters or setup.ranks.gradient_shards > 1:
        return 0.0
    return (
        flow.kept
        if setup.batch.tokens * setup.formats.residual < setup.architecture.hidden * setup.mode.weight
        else 0.0
    )
