"""Gemma 3n's layers (transformers 5.23, gemma3n/modeling_gemma3n.py), with several copies of the residual stream.

Only one copy passes through attention and the MLP. All copies are predicted before that and corrected afterwards.
"""

from __future__ import annotations

from cfglint_train.memory.layers.attention import Attention
from cfglint_train.memory.layers.families import PER_LAYER
from cfglint_train.memory.layers.mlp import FeedForward


class AltUp(Attention, FeedForward):
    """Builder of a layer with several streams, and of the operations that split and join them."""

    __slots__ = ()

    def build_altup(self, x: int) -> int:
        """Build the whole layer. `x` holds the streams side by side."""
        tape, shape = self.tape, self.architecture
        hidden, streams, element = shape.hidden, shape.streams, tape.element[x]
        predictions = self.predict_streams(x)
        active = tape.view(predictions, hidden)
        normed = self.apply_norm(active)
        laurel = self.apply_linear(
            self.apply_linear(normed, self.count_matrix_outputs("linear_left"), "linear_left"), hidden, "linear_right"
        )
        laurel = self.add(normed, self.apply_norm(laurel))
        attended = self.apply_norm(self.build_attention(normed))
        gated = self.add(active, attended)
        middle = tape.apply((tape.apply((gated, laurel), hidden, element, alias=True),), hidden, element)
        inner = self.apply_norm(middle)
        wide = self.build_mlp(inner, shape.intermediate)
        wide_normed = self.apply_norm(wide)
        out = self.add(middle, wide_normed)
        # The change made by the layer, times a factor for each stream, is added to all streams.
        factors = self.apply_linear(self._route_modalities(out), streams, "correction_coefs")
        factors = tape.apply((factors,), streams, tape.element[factors])
        changed = tape.apply((out, tape.view(predictions, hidden)), hidden, element)
        copies = tape.apply((changed,), streams * hidden, element)
        whole = streams * hidden * element
        product = tape.apply((copies, factors), streams * hidden, element, saves=(copies, factors), scratch=whole)
        corrected = self._add_in_place(product, predictions)
        first = self.copy(tape.view(corrected, hidden), hidden)
        trained = self.mode.trained
        first = tape.apply(
            (first,),
            hidden,
            element,
            saves=(first,) if trained else (),
            scratch=hidden * element if trained else 0,
            weight_gradient=hidden * self.mode.weight if trained else 0,
        )
        result = self._add_in_place(
            corrected, self.project_second_embedding(first, self.count_matrix_outputs(PER_LAYER))
        )
        # The function's local variables keep all of these alive until it returns.
        tape.hold(predictions, normed, laurel, attended, gated, middle, inner, wide, wide_normed, out, corrected)
        return result

    def spread_streams(self, x: int) -> int:
        """Build the streams of an embedding: the embedding itself, and projections scaled to its length."""
        tape, shape = self.tape, self.architecture
        length = self._compute_length(x)
        parts = [
            self._scale_to_length(self.apply_linear(x, shape.hidden, "0"), length) for _ in range(shape.streams - 1)
        ]
        return tape.apply((x, *parts), shape.hidden * shape.streams, tape.element[length])

    def join_streams(self, x: int) -> int:
        """Build the mean of the streams, each projected and scaled to the first one's length."""
        tape, shape = self.tape, self.architecture
        length = self._compute_length(tape.view(x, shape.hidden))
        others = [tape.view(x, shape.hidden) for _ in range(shape.streams - 1)]
        parts = [self._scale_to_length(self.apply_linear(stream, shape.hidden, "0"), length) for stream in others]
        return tape.apply((x, *parts), shape.hidden, tape.element[length])

    def _compute_length(self, x: int) -> int:
        """Build the root mean square; autocast computes powers in fp32."""
        tape, width = self.tape, self.tape.width[x]
        x = self.cast(x, 4) if self.mode.autocast else x
        square = tape.apply((x,), width, tape.element[x], saves=(x,))
        return tape.apply((square,), 1, tape.element[x], saves_output=True)

    def _scale_to_length(self, x: int, length: int) -> int:
        """Scale `x` to a length: `x * length / |x|`."""
        tape, width = self.tape, self.tape.width[x]
        x = self.cast(x, self.mode.weight)
        own_length, element = self._compute_length(x), tape.element[length]
        product = tape.apply((tape.recast(x, element), length), width, element, saves=(x, length))
        return tape.apply((product, own_length), width, element, saves=(product, own_length))

    def predict_streams(self, x: int) -> int:
        """Build the prediction of all streams: products of the streams with factors from the active stream."""
        tape, hidden, streams = self.tape, self.architecture.hidden, self.architecture.streams
        factors = self.apply_linear(self._route_modalities(tape.view(x, hidden)), streams**2, "prediction_coefs")
        low = self.cast(x, tape.element[factors])
        mixed = tape.apply((low, factors), streams * hidden, tape.element[low], saves=(low, factors))
        # The product has a different layout and is copied back.
        return self.cast(self.copy(self._add_in_place(mixed, x), streams * hidden), tape.element[x])

    def _route_modalities(self, x: int) -> int:
        """Build one number per stream from a single stream `x`."""
        tape, streams = self.tape, self.architecture.streams
        routed = self.apply_linear(self.copy(self.apply_norm(x), tape.width[x]), streams, "modality_router")
        return self.cast(tape.apply((self.cast(routed, 4),), streams, 4, saves_output=True), tape.element[x])

    def _add_in_place(self, x: int, y: int) -> int:
        """Build `x += y`, which needs no new storage and passes its gradient to both."""
        tape = self.tape
        total = tape.apply((x, y), tape.width[x], tape.element[x], alias=True)
        tape.storage_of[total] = tape.storage_of.get(x, x)
        return total
