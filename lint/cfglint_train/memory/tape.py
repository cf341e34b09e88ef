"""A small autograd: the tensors that a layer saves for its backward pass, and the memory that this pass adds.

A layer is written once, as the operations of its forward pass (`memory/layers/`). Each tensor has a *width* in
elements per token and a *size* in bytes per token. Each operation lists the tensors that PyTorch saves for its backward
pass, according to `tools/autograd/derivatives.yaml` and the models' own code. This yields

* the saved bytes per token, with each storage counted once, and
* the backward pass: gradients are allocated, saved tensors are freed, weight gradients stay. Its **moments** are pairs
  (bytes per token, fixed bytes); the largest for a given number of tokens is the peak.

Weights are not counted here, because they are states; the copies that autocast, PEFT and unpacking make are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfglint_train.foundation.frozen import Frozen

Moment = tuple[float, float]
"""Bytes per token, and fixed bytes that do not depend on the tokens."""


class Operation:
    """An operation of the forward pass.

    The class is not a record because each operation is read about twenty times and a record's fields are slower.
    """

    __slots__ = (
        "alias", "fixed_scratch", "inputs", "made", "mark", "output", "saved", "scratch", "unpacked", "unpacking",
        "weight_copy", "weight_gradient",
    )  # fmt: skip
    output: int
    inputs: tuple[int, ...]
    saved: tuple[int, ...]
    alias: bool
    """True if the output's gradient is also the gradient of every input, without new storage."""
    scratch: float
    """Temporary bytes per token of the operation's backward pass."""
    fixed_scratch: float
    """Temporary bytes of its forward and backward pass that do not depend on the tokens (a dequantized weight)."""
    weight_gradient: float
    """Bytes of the weight gradients that its backward pass computes and that stay."""
    weight_copy: float
    """Bytes of weight copies that its forward pass saves and its backward pass frees."""
    made: float
    """Bytes of a weight that the forward pass creates only for this operation (PEFT's sum of a fused expert weight and
    its adapter). The weight is kept like a saved tensor, and its gradient has the same size.
    """
    mark: str
    """Kind of operation for selective recomputation: matrix, attention, or empty."""
    unpacked: float
    """Bytes of a weight without gradient that the forward pass unpacks or copies for this operation and keeps."""
    unpacking: float
    """Temporary bytes of unpacking the weight."""


class SelectedOutputs(Frozen):
    """Outputs of a layer that selective recomputation keeps in addition to the layer's input, in bytes per token."""

    kept: float
    unsaved: float
    """Part of `kept` that the backward pass does not need; the layer holds it in addition to its saved tensors."""
    unused: float
    """Part of `unsaved` that recomputing the saved tensors does not need either; compiled code drops it."""


class Cost(Frozen):
    """Memory cost of a layer."""

    saved: float
    """Bytes per token that the forward pass leaves for the backward pass."""
    fixed_saved: float
    """Bytes of weight copies that the forward pass leaves (autocast caches them)."""
    made: float
    """Bytes of weights that the forward pass creates or unpacks and leaves."""
    saved_input: float
    """Bytes per token of the layer's input if it is one of the saved tensors, else 0."""
    forward: tuple[Moment, ...]
    """Moments of the forward pass, including the tensors saved so far, without the input."""
    backward: tuple[Moment, ...]
    """Moments of the backward pass, including what is left of `saved`, `fixed_saved` and `made`, and the weight
    gradients computed so far, without the input.
    """
    inference: tuple[Moment, ...]
    """Moments of a forward pass without gradients, which saves nothing."""
    weight_gradients: float
    """Bytes of all weight gradients of the layer."""
    recompute: tuple[Moment, ...]
    """Moments of the forward pass that a checkpointed layer repeats when its backward pass first needs a saved tensor,
    including the gradients that are held by then. It stops when the last tensor is saved (torch's early stop).
    """
    attention: SelectedOutputs
    """Outputs kept if selective recomputation keeps those of attention."""
    operations: SelectedOutputs
    """Outputs kept if selective recomputation keeps those of attention and of every second matrix product (torchtitan,
    OLMo-core).
    """

    @property
    def copies(self) -> float:
        """Bytes of weights that the forward pass copies, creates or unpacks, and leaves."""
        return self.fixed_saved + self.made


def compute_peak(moments: tuple[Moment, ...], tokens: int) -> float:
    """Return the highest moment for `tokens` tokens, in bytes."""
    highest = 0.0
    for per_token, fixed in moments:
        size = per_token * tokens + fixed
        if size > highest:
            highest = size
    return highest


class Tape:
    """A recorded forward pass that `compute_cost` replays forward and backward. A tensor is its index in the lists."""

    __slots__ = ("born", "element", "last_use", "needs", "operations", "storage_of", "width")

    def __init__(self) -> None:
        """Create an empty tape."""
        self.width: list[float] = []
        self.element: list[int] = []
        self.needs: list[bool] = []
        self.operations: list[Operation] = []
        self.storage_of: dict[int, int] = {}
        """View -> the tensor whose storage it shares; also external tensors, which have no storage here."""
        self.born: list[int] = []
        self.last_use: list[int] = []
        """Index of the operation after which the forward pass frees each tensor, unless the tensor is saved."""

    def add_tensor(self, width: float, element: int, needs: bool = True) -> int:
        """Add a tensor of `width` elements per token, each of `element` bytes; `needs`: whether it needs a gradient."""
        self.width.append(width)
        self.element.append(element)
        self.needs.append(needs)
        self.born.append(len(self.operations))
        self.last_use.append(len(self.operations))
        return len(self.width) - 1

    def add_external_tensor(self, width: float, element: int) -> int:
        """Add a tensor that another layer computed and holds: saving it costs nothing, but it has a gradient."""
        tensor = self.add_tensor(width, element)
        self.storage_of[tensor] = tensor
        return tensor

    def hold(self, *tensors: int) -> None:
        """Record that local variables of the model's code still hold these tensors when the latest operation runs."""
        latest, last_use, storage_of = len(self.operations) - 1, self.last_use, self.storage_of
        for item in tensors:
            if last_use[item] < latest:
                last_use[item] = latest
            if item in storage_of and last_use[storage_of[item]] < latest:
                last_use[storage_of[item]] = latest

    def apply(
        self,
        inputs: Sequence[int],
        width: float,
        element: int,
        *,
        saves: Sequence[int] = (),
        saves_output: bool = False,
        alias: bool = False,
        scratch: float = 0,
        fixed_scratch: float = 0,
        weight_gradient: float = 0,
        weight_copy: float = 0,
        made: float = 0,
        mark: str = "",
        unpacked: float = 0,
        unpacking: float = 0,
    ) -> int:
        """Record an operation and return its output, of `width` elements per token; see `Operation` for the options."""
        needs, storage_of = self.needs, self.storage_of
        output = self.add_tensor(width, element, weight_gradient > 0 or True in [needs[item] for item in inputs])
        saved = (*saves, output) if saves_output else tuple(saves)
        if storage_of:
            saved = tuple([storage_of.get(item, item) for item in saved])
        operation = Operation()
        operation.output, operation.inputs, operation.saved, operation.alias = output, tuple(inputs), saved, alias
        operation.scratch, operation.fixed_scratch = scratch, fixed_scratch
        operation.weight_gradient, operation.weight_copy, operation.made = weight_gradient, weight_copy, made
        operation.mark, operation.unpacked, operation.unpacking = mark, unpacked, unpacking
        self.operations.append(operation)
        self.hold(*inputs, output)
        return output

    def recast(self, x: int, element: int) -> int:
        """Return `x` as read by an operation that computes in another format.

        The forward pass copies nothing, but the gradient is cast back.
        """
        if self.element[x] == element:
            return x
        output = self.apply((x,), self.width[x], element)
        self.storage_of[output] = self.storage_of.get(x, x)
        return output

    def view(self, x: int, width: float) -> int:
        """Return a part of `x` without its own storage: saving the part saves `x`.

        The gradients of slices have the full width and are summed in one storage.
        """
        output = self.apply((x,), width, self.element[x])
        self.storage_of[output] = self.storage_of.get(x, x)
        return output

    def compute_cost(self, source: int, output: int, accumulates: bool = False) -> Cost:
        """Return the cost of the layer from its input `source` to its `output`.

        `accumulates`: whether each weight gradient is added to an existing gradient and then freed.
        """
        size = [width * element for width, element in zip(self.width, self.element)]
        storage = size.copy()
        for item in (source, *self.storage_of):
            storage[item] = 0
        saves = [operation.saved if self.needs[operation.output] else () for operation in self.operations]
        holders: dict[int, int] = {}
        for items in saves:
            for item in items:
                holders[item] = holders.get(item, 0) + 1
        source_bytes = size[source] if source in holders else 0
        saved = sum(storage[item] for item in holders)
        forward, copies = self._run_forward(storage, holders)
        made = sum(operation.made + operation.unpacked for operation in self.operations if self.needs[operation.output])
        backward, gradients, waiting = self._run_backward(
            size, storage, saves, holders, (saved, copies + made, output, accumulates)
        )
        last = max((index for index, items in enumerate(saves) if items), default=-1)
        again = [(bytes_ + waiting, fixed) for bytes_, fixed in forward[:last]] or [(waiting, 0.0)]
        return Cost(
            saved + source_bytes,
            copies,
            made,
            source_bytes,
            _find_hull(forward),
            _find_hull(backward),
            _find_hull(self._run_forward(storage, {})[0]),
            gradients,
            _find_hull(again),
            self._select_outputs(size, storage, holders, False),
            self._select_outputs(size, storage, holders, True),
        )

    def _select_outputs(
        self, size: list[float], storage: list[float], saved: Mapping[int, int], matrices: bool
    ) -> SelectedOutputs:
        """Return the outputs that selective recomputation keeps.

        These are the outputs of attention with its row statistics and, if `matrices`, the outputs of the first, third,
        fifth, ... matrix product.
        """
        kept = unsaved = products = 0.0
        chosen: set[int] = set()
        for operation in self.operations:
            if not operation.mark:
                continue
            if operation.mark == "matrix":
                products += 1
                if not (matrices and products % 2):
                    continue
            chosen.add(operation.output)
            kept += size[operation.output]
            unsaved += 0 if operation.output in saved else size[operation.output]
            if operation.mark == "attention":  # one number per row and head is kept with it
                kept += sum(storage[item] for item in operation.saved if not self.needs[item])
        needed = set(saved)
        for operation in reversed(self.operations):
            output = operation.output
            if output not in chosen and (output in needed or self.storage_of.get(output) in needed):
                needed.update(operation.inputs)
                needed.update([self.storage_of.get(item, item) for item in operation.inputs])
        return SelectedOutputs(kept, unsaved, sum([size[item] for item in chosen - needed]))

    def _run_forward(self, storage: list[float], holders: Mapping[int, int]) -> tuple[list[Moment], float]:
        change = [0.0] * (len(self.operations) + 1)
        for item, (born, last, size) in enumerate(zip(self.born, self.last_use, storage)):
            change[born] += size
            if item not in holders:
                change[last + 1] -= size
        live = copies = made = 0.0
        moments: list[Moment] = []
        for operation, difference in zip(self.operations, change):
            live += difference
            copies += operation.weight_copy
            new = operation.made + operation.unpacked
            moments.append((live, copies + made + new + operation.unpacking + operation.fixed_scratch))
            made += new if holders and self.needs[operation.output] else 0
        return moments, copies

    def _run_backward(
        self,
        size: list[float],
        storage: list[float],
        saves: list[tuple[int, ...]],
        holders: dict[int, int],
        start: tuple[float, float, int, bool],
    ) -> tuple[list[Moment], float, float]:
        saved, fixed, output, accumulates = start
        live, gradients, whole = saved + size[output], 0.0, 0.0
        waiting: float | None = None
        moments: list[Moment] = [(live, fixed)]
        # A gradient is [bytes per token, number of holders]; aliases share a gradient.
        pending: dict[int, list[float]] = {output: [size[output], 1]}
        needs = self.needs
        for operation, items in zip(reversed(self.operations), reversed(saves)):
            gradient = pending.pop(operation.output, None)
            if gradient is None or not needs[operation.output]:
                continue
            if items and waiting is None:
                waiting = live - saved
            inputs = [item for item in operation.inputs if needs[item]]
            live += 0 if operation.alias else sum([size[item] for item in inputs])
            whole += operation.weight_gradient
            gradients = operation.weight_gradient if accumulates else whole
            moments.append((live + operation.scratch, fixed + gradients + operation.made + operation.fixed_scratch))
            for item in inputs:
                new = gradient if operation.alias else [size[item], 0]
                old = pending.get(item)
                if old is None:
                    new[1] += 1
                    pending[item] = new
                elif old[1] == 1:  # accumulated in place
                    live -= 0 if operation.alias else size[item]
                else:  # another operation reads the old gradient: the sum is a third tensor
                    moments.append((live + size[item], fixed + gradients))
                    old[1] -= 1
                    live += size[item] if operation.alias else 0
                    pending[item] = [size[item], 1]
            gradient[1] -= 1
            if not gradient[1]:
                live -= gradient[0]
            fixed -= operation.weight_copy + operation.made + operation.unpacked
            for item in items:
                holders[item] -= 1
                if not holders[item]:
                    live -= storage[item]
        return moments, whole, waiting or size[output]


def _find_hull(moments: list[Moment]) -> tuple[Moment, ...]:
    """Return the moments that no other moment matches or exceeds in both bytes per token and fixed bytes."""
    kept: list[Moment] = []
    for per_token, fixed in sorted(moments, reverse=True):
        if not kept or fixed > kept[-1][1]:
            kept.append((per_token, fixed))
    return tuple(kept)
