"""Norms of a layer, as in transformers."""

from __future__ import annotations

from cfglint_train.memory.layers.matrices import Matrices


class Norms(Matrices):
    """Builder of the norms of a layer."""

    __slots__ = ()

    def apply_norm(self, x: int, heads: float = 1) -> int:
        """Build the family's norm over the width of `x`, or over each of `heads` parts of it."""
        kind = self.family.norm
        if "norm" in self.mode.liger and kind in ("rms", "rms_fp32"):
            return self.apply_fused_norm(x, heads)
        norms = {
            "rms": self.apply_rms_norm,
            "rms_fp32": self.apply_rms_norm_fp32,
            "layer": self.apply_layer_norm,
            "layer_1p": self.apply_layer_norm,
            "plain": self.apply_plain_norm,
            "centred": self.apply_centred_norm,
        }
        return norms[kind](x, heads)

    def _normalize_in_fp32(self, x: int, heads: float) -> int:
        """Build x / sqrt(mean(x^2) + eps) in fp32.

        The product saves both factors, a power its base, and rsqrt its result.
        """
        tape = self.tape
        width = tape.width[x]
        full = self.cast(x, 4)
        # The power's gradient is grad * (2 * x^1): two more tensors of the width.
        squares = tape.apply((full,), width, 4, saves=(full,), scratch=8 * width)
        mean = tape.apply((squares,), heads, 4)
        base = (mean,) if self.family.powers else ()
        root = tape.apply((mean,), heads, 4, saves=base, saves_output=True, scratch=8 * heads)
        # The root's gradient is summed from a tensor of the whole width.
        return tape.apply((full, root), width, 4, saves=(full, root), scratch=4 * width)

    def apply_rms_norm(self, x: int, heads: float) -> int:
        """Build Llama's norm: weight * normalized.to(format of x)."""
        tape, mode = self.tape, self.mode
        width, element = tape.width[x], tape.element[x]
        normalised = self._normalize_in_fp32(x, heads)
        inner = self.cast(normalised, element)
        out = tape.apply(
            (inner,),
            width,
            max(element, mode.weight),
            saves=(inner,) if mode.trained else (),
            scratch=width * element if mode.trained else 0,
            weight_gradient=width / heads * mode.weight if mode.trained else 0,
        )
        tape.hold(normalised)
        return out

    def apply_rms_norm_fp32(self, x: int, heads: float) -> int:
        """Build Gemma's and OLMo-2's norm: (normalized * weight).to(format of x), with an fp32 copy of the weight."""
        width, element = self.tape.width[x], self.tape.element[x]
        inner = self._normalize_in_fp32(x, heads)
        return self.cast(self._scale_in_fp32(inner, width, heads), element)

    def _scale_in_fp32(self, inner: int, width: float, heads: float) -> int:
        """Build the product with an fp32 copy of the weight."""
        trained, weight = self.mode.trained, self.mode.weight
        return self.tape.apply(
            (inner,),
            width,
            4,
            saves=(inner,) if trained else (),
            scratch=width * 4 if trained else 0,
            weight_gradient=width / heads * weight if trained else 0,
            weight_copy=width / heads * 4,
        )

    def apply_plain_norm(self, x: int, heads: float) -> int:
        """Build OLMo's norm: torch's LayerNorm without weights, on an fp32 copy of `x`."""
        tape = self.tape
        inner = self.cast(x, 4)
        rows = tape.add_tensor(heads, 8, needs=False)
        return self.cast(tape.apply((inner,), tape.width[x], 4, saves=(inner, rows)), tape.element[x])

    def apply_centred_norm(self, x: int, heads: float) -> int:
        """Build Cohere's norm: (x - mean) / deviation * weight in fp32, with the difference computed twice."""
        tape = self.tape
        width, element = tape.width[x], tape.element[x]
        full = self.cast(x, 4)
        first = tape.apply((full,), width, 4)
        squares = tape.apply((first,), width, 4, saves=(first,), scratch=8 * width)
        mean = tape.apply((squares,), heads, 4)
        second = tape.apply((full,), width, 4)
        root = tape.apply((mean,), heads, 4, saves_output=True, scratch=8 * heads)
        inner = tape.apply((second, root), width, 4, saves=(second, root), scratch=4 * width)
        return self.cast(self._scale_in_fp32(inner, width, heads), element)

    def apply_layer_norm(self, x: int, heads: float) -> int:
        """Build torch's LayerNorm, which saves its input and the mean and 1/deviation of each row.

        Autocast runs it in fp32; Nemotron casts its input to 16 bits instead.
        """
        tape, mode = self.tape, self.mode
        inner = self.cast(x, 2 if self.family.norm == "layer_1p" else 4) if mode.autocast else x
        rows = tape.add_tensor(heads, 8, needs=False)
        return tape.apply(
            (inner,),
            tape.width[x],
            tape.element[inner],
            saves=(inner, rows),
            weight_gradient=2 * tape.width[x] / heads * mode.weight if mode.trained else 0,
        )

    def apply_fused_norm(self, x: int, heads: float) -> int:
        """Build Liger's RMSNorm kernel, which saves its input and 1/root of each row.

        Its backward pass overwrites the gradient that it receives (liger-kernel 0.8.5, ops/rms_norm.py, `in_place`).
        """
        tape, mode = self.tape, self.mode
        row = tape.add_tensor(heads, 4, needs=False)
        weight = tape.width[x] / heads * mode.weight if mode.trained else 0
        return tape.apply(
            (x,), tape.width[x], tape.element[x], saves=(x, row), weight_gradient=weight, alias=mode.overwrites
        )
