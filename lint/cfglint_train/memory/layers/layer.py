"""Decoder layers as transformers writes them, operation by operation, on a `Tape`.

One program serves all families; a family is a row of `FAMILIES`: which norm and where, which attention, which MLP.
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
    """Builds one layer."""

    __slots__ = ()

    def mix(self, x: int) -> int:
        """Attention, the family's other mixer, or (Falcon-H1) both side by side."""
        shape = self.architecture.recurrent
        if not self.kind.recurrent or shape is None:
            return self.attention(x)
        from cfglint_train.memory.layers.mixers import MIXERS  # few models have one

        mixed = MIXERS[shape.kind](self, x, shape)
        if not self.family.beside:
            return mixed
        tape, hidden = self.tape, self.architecture.hidden
        scaled = [tape.apply((item,), hidden, tape.element[item]) for item in (mixed, self.attention(x))]
        return tape.apply(scaled, hidden, tape.element[mixed], alias=True)

    def entering(self, x: int) -> int:
        """What attention reads, from the layer's input."""
        if self.family.placement == "altup":
            x = self.tape.view(self.predicted(x), self.architecture.hidden)
        return self.norm(x)

    def build(self, x: int) -> int:
        """The whole layer."""
        out = self.parts(x)
        self.tape.hold(*self.returned)
        return out

    def parts(self, x: int) -> int:
        """Attention and feed-forward part, their norms and sums."""
        placement = self.family.placement
        if placement == "altup":
            return self.altup(x)
        if placement == "single":
            inner = self.norm(x)
            return self.add(x, self.feed_forward(inner) if self.kind.mixture else self.mix(inner))
        if placement == "double":
            x = self.add(x, self.attention(self.norm(x)))
            inner = self.norm(x)
            beside = self.feed_forward(inner)
            x = self.add(x, self.mlp(inner, self.architecture.intermediate))
            x = self.add(x, self.attention(self.norm(x)))
            return self.add(self.add(x, self.mlp(self.norm(x), self.architecture.intermediate)), beside)
        if placement == "sandwich":
            x = self.add(x, self.norm(self.mix(self.norm(x))))
            if self.family.experts == "beside":
                return self.per_layer(self.add(x, self.norm(self.both(x))))
            return self.add(x, self.norm(self.feed_forward(self.norm(x))))
        if placement == "post":
            x = self.add(x, self.norm(self.mix(x)))
            return self.add(x, self.norm(self.feed_forward(x)))
        if placement == "parallel":
            inner = self.norm(x)
            return self.add(x, self.add(self.attention(inner), self.feed_forward(inner)))
        if placement == "parallel2":
            return self.add(x, self.add(self.attention(self.norm(x)), self.feed_forward(self.norm(x))))
        x = self.add(x, self.mix(self.norm(x)))
        return self.add(x, self.feed_forward(self.norm(x)))


PROGRAMS: Final[dict[str, type[Layer]]] = {"transformers": Layer}
"""Code that builds decoder layers. Evidence rows of other code add theirs (`calibration/foreign.py`)."""


def residual_bytes(family: Family, mode: Mode) -> int:
    """Bytes of one element of the residual stream. LayerNorm makes a mixture's input fp32 under autocast, and so its
    output; the lengths that Gemma 3n's streams are scaled to are powers, which are computed in fp32.
    """
    wide = family.placement == "altup" or (family.norm == "layer" and family.experts != "none")
    if mode.autocast and (mode.weight == 4 or wide):
        return 4
    return mode.weight


def layer_cost(architecture: Architecture, mode: Mode, kind: Kind = PLAIN, input_needs: bool = True) -> Cost | None:
    """What one decoder layer of a kind costs; None for a family without a formula.

    `input_needs`: autograd follows the layer's input.
    """
    family = FAMILIES.get(architecture.formula)
    if family is None:
        return None
    layer = PROGRAMS[family.program](architecture, family, mode, kind)
    width = architecture.hidden * architecture.streams
    source = layer.tape.tensor(width, residual_bytes(family, mode), input_needs)
    return layer.tape.cost(source, layer.build(source), mode.accumulates)
