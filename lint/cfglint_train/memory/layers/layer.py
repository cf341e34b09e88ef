"""Decoder layers as in transformers, built operation by operation on a `Tape`.

One program builds all families. A row of `FAMILIES` states the norms of a family and their positions, its attention and
its MLP.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.altup import AltUp
from cfglint_train.memory.layers.families import FAMILIES, Family
from cfglint_train.memory.layers.kinds import PLAIN, Kind
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.tape import Cost
from cfglint_train.models.architecture import Architecture


class Layer(AltUp):
    """Builder of one decoder layer."""

    __slots__ = ()

    def mix(self, x: int) -> int:
        """Build attention, the family's other mixer, or both side by side (Falcon-H1)."""
        shape = self.architecture.recurrent
        if not self.kind.recurrent or shape is None:
            return self.build_attention(x)
        from cfglint_train.memory.layers.mixers import MIXERS  # few models have another mixer

        mixed = MIXERS[shape.kind](self, x, shape)
        if not self.family.beside:
            return mixed
        tape, hidden = self.tape, self.architecture.hidden
        scaled = [tape.apply((item,), hidden, tape.element[item]) for item in (mixed, self.build_attention(x))]
        return tape.apply(scaled, hidden, tape.element[mixed], alias=True)

    def prepare_attention_input(self, x: int) -> int:
        """Build the input of attention from the layer's input."""
        if self.family.placement == "altup":
            x = self.tape.view(self.predict_streams(x), self.architecture.hidden)
        return self.apply_norm(x)

    def build(self, x: int) -> int:
        """Build the whole layer and return its output."""
        out = self.build_parts(x)
        self.tape.hold(*self.returned)
        return out

    def build_parts(self, x: int) -> int:
        """Build attention and the feed-forward part with their norms and residual sums."""
        placement = self.family.placement
        if placement == "altup":
            return self.build_altup(x)
        if placement == "single":
            inner = self.apply_norm(x)
            return self.add(x, self.build_feed_forward(inner) if self.kind.mixture else self.mix(inner))
        if placement == "double":
            x = self.add(x, self.build_attention(self.apply_norm(x)))
            inner = self.apply_norm(x)
            experts_out = self.build_feed_forward(inner)
            x = self.add(x, self.build_mlp(inner, self.architecture.intermediate))
            x = self.add(x, self.build_attention(self.apply_norm(x)))
            return self.add(
                self.add(x, self.build_mlp(self.apply_norm(x), self.architecture.intermediate)), experts_out
            )
        if placement == "sandwich":
            x = self.add(x, self.apply_norm(self.mix(self.apply_norm(x))))
            if self.family.experts == "beside":
                return self.add_per_layer_embedding(self.add(x, self.apply_norm(self.build_mlp_and_experts(x))))
            return self.add(x, self.apply_norm(self.build_feed_forward(self.apply_norm(x))))
        if placement == "post":
            x = self.add(x, self.apply_norm(self.mix(x)))
            return self.add(x, self.apply_norm(self.build_feed_forward(x)))
        if placement == "parallel":
            inner = self.apply_norm(x)
            return self.add(x, self.add(self.build_attention(inner), self.build_feed_forward(inner)))
        if placement == "parallel2":
            return self.add(
                x, self.add(self.build_attention(self.apply_norm(x)), self.build_feed_forward(self.apply_norm(x)))
            )
        x = self.add(x, self.mix(self.apply_norm(x)))
        return self.add(x, self.build_feed_forward(self.apply_norm(x)))


PROGRAMS: Final[dict[str, type[Layer]]] = {"transformers": Layer}
"""Code that builds decoder layers; `calibration/foreign.py` adds programs for evidence rows of other code."""


def compute_residual_bytes(family: Family, mode: Mode) -> int:
    """Return the bytes of one element of the residual stream.

    Under autocast, LayerNorm returns fp32, so the input and output of a mixture of experts are fp32. Gemma 3n's streams
    become fp32 because they are scaled to lengths computed as powers, which run in fp32.
    """
    wide = family.placement == "altup" or (family.norm == "layer" and family.experts != "none")
    if mode.autocast and (mode.weight == 4 or wide):
        return 4
    return mode.weight


def compute_layer_cost(
    architecture: Architecture, mode: Mode, kind: Kind = PLAIN, input_needs: bool = True
) -> Cost | None:
    """Return the cost of one decoder layer of a kind, or None for a family without a formula.

    `input_needs`: whether the layer's input needs a gradient.
    """
    family = FAMILIES.get(architecture.formula)
    if family is None:
        return None
    layer = PROGRAMS[family.program](architecture, family, mode, kind)
    width = architecture.hidden * architecture.streams
    source = layer.tape.add_tensor(width, compute_residual_bytes(family, mode), input_needs)
    return layer.tape.compute_cost(source, layer.build(source), mode.accumulates)
