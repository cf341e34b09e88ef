"""Blueprints: a model as a list of counted weights, the basis of every closed-form parameter count.

A blueprint holds the outer weights (embedding, head, final norm) and each kind of block with its count. All totals are
computed from it, so no total is stated twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.models.architecture import Linear, ModelPart


class Weight(Frozen):
    """A matrix, with its bias if it has one, or a 3-D parameter of `experts` matrices if `experts` is not 0."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    experts: int = 0
    part: ModelPart = "decoder"
    linear: bool = True
    """False for matrices that adapters and quantizers do not treat as linear layers (a router, a convolution)."""

    @property
    def elements(self) -> int:
        """Elements including the bias."""
        return max(1, self.experts) * (self.inputs * self.outputs + (self.outputs if self.bias else 0))

    @property
    def pieces(self) -> list[int]:
        """Elements of each parameter tensor: the matrix and, if there is one, the bias."""
        matrix = max(1, self.experts) * self.inputs * self.outputs
        return [matrix, max(1, self.experts) * self.outputs] if self.bias else [matrix]


class Block(Frozen):
    """One kind of decoder layer."""

    count: int  # type: ignore[assignment]
    weights: tuple[Weight, ...]
    vectors: tuple[int, ...] = ()
    """Lengths of the norm weights, norm biases and other 1-D parameters."""

    @property
    def elements(self) -> int:
        """Elements of one layer of this kind."""
        return sum(weight.elements for weight in self.weights) + sum(self.vectors)

    @property
    def tensors(self) -> int:
        """Parameter tensors of one layer of this kind."""
        return sum(len(weight.pieces) for weight in self.weights) + len(self.vectors)


class Blueprint(Frozen):
    """A whole decoder."""

    outer: tuple[Weight, ...]
    vectors: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def parameters(self) -> int:
        """Elements of the whole model."""
        outer = sum(weight.elements for weight in self.outer) + sum(self.vectors)
        return outer + sum(block.count * block.elements for block in self.blocks)

    @property
    def tensors(self) -> int:
        """Parameter tensors of the whole model."""
        outer = sum(len(weight.pieces) for weight in self.outer) + len(self.vectors)
        return outer + sum(block.count * block.tensors for block in self.blocks)

    @property
    def largest_tensor(self) -> int:
        """Elements of the largest parameter tensor."""
        return max(size for weight in self._list_weights() for size in weight.pieces)

    @property
    def layer_parameters(self) -> int:
        """Elements of the largest decoder layer."""
        return max(block.elements for block in self.blocks)

    @property
    def expert_parameters(self) -> int:
        """Elements of all routed experts."""
        return sum(block.count * weight.elements for block in self.blocks for weight in block.weights if weight.experts)

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The linear layers, embeddings and expert parameters, one entry per name and shape."""
        counts: Counter[tuple[str, int, int, ModelPart, int]] = Counter()
        for weight in self.outer:
            if weight.linear:
                counts[(weight.name, weight.inputs, weight.outputs, weight.part, weight.experts)] += 1
        for block in self.blocks:
            for weight in block.weights:
                if weight.linear and block.count:
                    key = (weight.name, weight.inputs, weight.outputs, weight.part, weight.experts)
                    counts[key] += block.count
        return tuple(
            sorted(
                Linear(name, inputs, outputs, count, part, experts)
                for (name, inputs, outputs, part, experts), count in counts.items()
            )
        )

    def _list_weights(self) -> Iterator[Weight]:
        yield from self.outer
        for block in self.blocks:
            if block.count:
                yield from block.weights
