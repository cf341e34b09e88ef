"""Kinds of layers in a decoder, and the number of consecutive layers of each kind."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.models.architecture import Architecture


class Kind(Frozen):
    """Properties in which the layers of one model differ."""

    mixture: bool = False
    """True if the layer has experts (Nemotron-H: if it is an MLP, with or without experts)."""
    recurrent: bool = False
    """True if the layer has a mixer other than attention (`mixers.py`)."""
    other_attention: bool = False
    """True if the layer has the heads of `Architecture.attention` (Gemma 4's layers without a window)."""
    reuses_keys: bool = False
    """True if the layer reuses the keys and values of an earlier layer (Gemma 3n, 4)."""
    sparse: bool = False
    """True if the MLP zeroes all but the largest values of its gate (Gemma 3n)."""


PLAIN: Final = Kind()


def list_layer_runs(architecture: Architecture) -> list[tuple[Kind, int]]:
    """Return the runs of identical layers in order, or an empty list if a mixer has no formula.

    In hybrids, recurrent and attention layers alternate in small groups. The last attention layer is placed at the end,
    as in the models, and the others first: only the kinds at both ends affect the peak.
    """
    experts, layers, recurrent = architecture.experts, architecture.layers, architecture.recurrent_layers
    if recurrent and architecture.recurrent is None:
        return []
    family = FAMILIES.get(architecture.formula)
    if family is not None and family.placement == "single":  # a layer that is only an MLP counts as a mixture
        attention = architecture.full_attention_layers or 0
        rest = layers - recurrent - attention
        return _drop_empty((Kind(recurrent=True), recurrent), (PLAIN, attention), (Kind(mixture=True), rest))
    dense = layers
    if experts is not None:
        rest = layers - experts.dense_layers
        dense = experts.dense_layers + rest - rest // experts.every
    if recurrent in (0, layers):
        mixer = Kind(recurrent=bool(recurrent))
        runs = _drop_empty((mixer, dense), (mixer._replace(mixture=True), layers - dense))
        if architecture.sparse_layers:
            (kind, count), sparse = runs[0], architecture.sparse_layers
            runs = [*_drop_empty((kind._replace(sparse=True), sparse), (kind, count - sparse)), *runs[1:]]
        return _split_by_attention(architecture, runs) if architecture.attention is not None else runs
    mixtures = 2 * dense < layers  # then the attention layers are mixtures (in Jamba they are not)
    attending, attention = Kind(mixture=mixtures), layers - recurrent
    plain = min(recurrent, max(0, dense - (0 if mixtures else attention)))
    return _drop_empty(
        (attending, attention - 1),
        (Kind(recurrent=True), plain),
        (Kind(mixture=True, recurrent=True), recurrent - plain),
        (attending, 1),
    )


def _split_by_attention(architecture: Architecture, runs: list[tuple[Kind, int]]) -> list[tuple[Kind, int]]:
    """Return `runs` split by the kind of attention and by the reuse of keys."""
    attention, layers = architecture.attention, architecture.layers
    assert attention is not None
    if attention.reusing_layers:
        final, count = runs[-1]
        reusing = min(attention.reusing_layers, count)
        runs = [*runs[:-1], (final, count - reusing), (final._replace(reuses_keys=True), reusing)]
    if not attention.layers:
        return runs
    split: list[tuple[Kind, int]] = []
    for kind, count in runs:
        others = round(attention.layers * count / layers)
        first = min(others, 1) if attention.starts and not split else 0
        last = others - first if attention.ends else 0
        other = kind._replace(other_attention=True)
        split += [(other, others - last), (kind, count - others), (other, last)]
    return _drop_empty(*split)


def _drop_empty(*runs: tuple[Kind, int]) -> list[tuple[Kind, int]]:
    return [run for run in runs if run[1] > 0]
