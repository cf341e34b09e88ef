"""Matrices of a layer, with their adapters, built on a `Tape`.

Comments give the reason why PyTorch keeps a tensor.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import ALL_LINEAR, LEAVES, Family
from cfglint_train.memory.layers.kinds import PLAIN, Kind
from cfglint_train.memory.tape import Tape
from cfglint_train.models.architecture import Architecture, get_heads

# (IA)3 scales the inputs of these matrices, not the outputs.
FEED_FORWARD: Final = frozenset(("down_proj", "fc2", "dense_4h_to_h", "w2", "c_proj"))

# Temporary bytes per element while a PEFT method computes its dense matrix: LoHa's two products and their product, and
# FourierFT's spectrum with its complex transform.
_DENSE: Final = {"loha": 12, "fourierft": 12}


FUSED_PARTS: Final = frozenset(("norm", "rotary", "mlp"))
"""Parts of a layer for which Liger has kernels."""


class Mode(Frozen):
    """Properties besides the architecture that affect a layer's memory; sizes are bytes per element."""

    weight: int = 2
    """Bytes per element of the base weights in the forward pass."""
    trained: bool = True
    """True if the base weights get gradients."""
    autocast: bool = False
    attention: str = "flash"
    """Attention kernel: flash (saves query, key, value, output and one number per row), efficient (also repeats keys
    and values for each query head), eager (saves the scores), math (torch's fallback, in fp32).
    """
    sequence: int = 0
    """Keys per query if scores or a mask are kept (eager attention, or efficient with a mask), else 0."""
    several: bool = False
    """True if there are several sequences; always False unless keys are chosen for each query (DeepSeek V3.2)."""
    rank: int = 0
    targets: frozenset[str] = frozenset()
    method: str = "lora"
    """PEFT method of the adapters."""
    adapter: int = 4
    dropout: bool = False
    dora: bool = False
    """True if adapters scale each output of the adapted matrix by a trained magnitude (PEFT's DoRA)."""
    expert_ranks: tuple[int, int] = (0, 0)
    """Ranks of the adapters of fused experts: of gate and up, and of down; 0 without an adapter."""
    expert_parallel: int = 1
    """GPUs that share the experts of a layer."""
    quantized: bool = False
    dequantized: int = 2
    """Bytes per element of a quantized weight during its multiplication; 4 if it is dequantized and cast again."""
    as_given: bool = False
    """True if quantized matrices compute in 16 bits and return the format of their input (bitsandbytes 0.50.2,
    nn/modules.py). Under autocast, their adapters do not cast the input; without it, they cast their result before the
    sum (PEFT 0.21.2, tuners/lora/bnb.py, awq.py, hqq.py, eetq.py and aqlm.py: `requires_conversion`). Adapters of other
    matrices, and gptq.py, cast the input to the adapter's format.
    """
    clones: bool = False
    """True if adapters add to a copy of the product, as for bitsandbytes' 4-bit layer (PEFT, Linear4bit.forward)."""
    unpacks: bool = False
    """True if quantized weights are unpacked in the graph and the result stays for the backward pass. auto_gptq's torch
    kernel does so, with temporary 32-bit and 8-bit values.
    """
    unpacks_experts: bool = False
    """True if quantized fused experts are dequantized to 16 bits, outside the graph, whenever a layer reads them, and
    the products save these weights (bitsandbytes 0.49, nn/parametrize.py).
    """
    fuses_experts: bool = False
    """True if the experts' adapters are added to the products (axolotl 0.21.0,
    integrations/kernels/libs/scattermoe_lora); otherwise PEFT creates whole new weights.
    """
    keeps_inputs: bool = False
    """True if frozen base matrices save their inputs without need, as bitsandbytes' int8 kernel does, and its 4-bit
    kernel before release 0.43.1.
    """
    kernels: frozenset[str] = frozenset()
    """Parts of a layer that run in fused LoRA kernels: mlp, qkv, o."""
    liger: frozenset[str] = frozenset()
    """Parts of a layer that run in Liger's kernels, or in compiled code, which keeps the same: norm, rotary, mlp."""
    overwrites: bool = False
    """True if the backward passes of Liger's norms and gated units overwrite their inputs."""
    accumulates: bool = False
    """True if gradients of an earlier micro batch exist already."""


class Matrices:
    """Builder of a layer's matrix products and their adapters."""

    __slots__ = ("architecture", "family", "heads", "kind", "leaves", "mode", "returned", "tape")

    def __init__(self, architecture: Architecture, family: Family, mode: Mode, kind: Kind = PLAIN) -> None:
        """Start an empty layer with its own tape."""
        self.tape = Tape()
        self.mode = mode
        self.family = family
        self.leaves = LEAVES[family.names]
        self.architecture = architecture
        self.kind = kind
        self.heads = get_heads(architecture, kind.other_attention)
        self.returned: tuple[int, ...] = ()
        """Further outputs of attention, which the layer holds until it returns."""

    def cast(self, x: int, element: int) -> int:
        """Build a copy of `x` in another format, or return `x` if it has that format; its gradient is cast back."""
        tape = self.tape
        return x if tape.element[x] == element else tape.apply((x,), tape.width[x], element)

    def apply_linear(self, x: int, width: float, leaf: str) -> int:
        """Build x W^T.

        The input is saved for the weight's gradient; the input's gradient needs only the weight.
        """
        tape, mode = self.tape, self.mode
        fan_in = tape.width[x]
        adapted = mode.rank and self.has_adapter(leaf)
        if mode.kernels and self.is_in_lora_kernel(leaf) and tape.element[x] == 2:
            return self.apply_lora_kernel(x, width, ((fan_in, width),))
        if adapted and mode.method == "hra":
            return self.apply_reflections(x, width)
        if adapted and (mode.method == "oft" or (mode.method == "ia3" and leaf in FEED_FORWARD)):
            changed = self.cast(x, mode.adapter)
            if mode.method == "oft" and mode.autocast:  # the rotation is a product, (IA)3's scaling is not
                changed = self.cast(changed, 2)
            x, adapted = self.cast(self.apply_scaling(changed), tape.element[x]), False
        elements = fan_in * width
        as_given = mode.quantized and mode.as_given
        element = 2 if mode.autocast or as_given else tape.element[x]
        inner = self.cast(x, element)
        is_copied = mode.autocast and mode.weight == 4 and not mode.quantized
        # Autocast makes a 16-bit copy of an fp32 weight. The backward pass frees the copy, then casts the 16-bit
        # gradient to fp32: the gradient replaces the copy. A frozen weight's copy is not cached (torch,
        # autocast_mode.cpp, `cached_cast`): it stays if the input's gradient needs it.
        out = tape.apply(
            (inner,),
            width,
            element,
            saves=(inner,) if mode.trained or mode.keeps_inputs else (),
            fixed_scratch=mode.dequantized * elements if mode.quantized and not mode.unpacks else 0,
            weight_gradient=elements * mode.weight if mode.trained else 0,
            weight_copy=2 * elements if is_copied and mode.trained else 0,
            mark="matrix",
            unpacked=2 * elements if (mode.quantized and mode.unpacks) or (is_copied and not mode.trained) else 0,
            unpacking=3 * elements if mode.quantized and mode.unpacks else 0,
        )
        out = self.cast(out, tape.element[x]) if as_given else out
        if not adapted:
            return out
        if mode.method == "ia3":
            return self.cast(self.apply_scaling(out), tape.element[out])
        return self.add_adapter(x, out, leaf)

    def is_in_lora_kernel(self, leaf: str) -> bool:
        """Return whether a LoRA kernel runs a matrix of attention; query, key and value matrices run only together."""
        leaves, kernels = self.leaves, self.mode.kernels
        inputs = (leaves.query, leaves.key, leaves.value)
        if leaf == leaves.out:
            return "o" in kernels and self.has_adapter(leaf)
        return leaf in inputs and "qkv" in kernels and all(self.has_adapter(name) for name in inputs)

    def apply_lora_kernel(
        self,
        x: int,
        width: float,
        matrices: tuple[tuple[float, float], ...],
        kept: tuple[int, ...] = (),
        temporary: tuple[int, ...] = (),
    ) -> int:
        """Build matrices and their adapters as one autograd function (axolotl 0.18.0, kernels/lora.py).

        The function saves its input, the `kept` tensors, and 16-bit copies of the adapters. `temporary`: temporary
        tensors of its forward pass; its backward pass has temporaries of the same size.
        """
        tape, mode = self.tape, self.mode
        element = tape.element[x]
        adapters = mode.rank * sum(inputs + outputs for inputs, outputs in matrices)
        dropped = (tape.add_tensor(tape.width[x], element, needs=False),) if mode.dropout else ()
        largest = max(inputs * outputs for inputs, outputs in matrices)
        return tape.apply(
            (x, *temporary),
            width,
            element,
            saves=(x, *dropped, *kept),
            scratch=sum(tape.width[item] * tape.element[item] for item in temporary),
            fixed_scratch=mode.dequantized * largest if mode.quantized and not mode.unpacks else 0,
            weight_gradient=adapters * mode.adapter,
            weight_copy=2 * adapters if mode.adapter == 4 else 0,
            mark="matrix",
        )

    def has_adapter(self, leaf: str) -> bool:
        """Return whether a matrix has an adapter."""
        return leaf in self.mode.targets or ALL_LINEAR in self.mode.targets

    def add_adapter(self, x: int, base: int, leaf: str) -> int:
        """Build PEFT's LoRA, result + B(A(dropout(x))) * scale, or a method that adds another product.

        Every adapter casts x again to the adapter's format. MiSS sums the blocks of x instead of multiplying by A;
        AdaLoRA divides the product; LoHa and FourierFT multiply x by one dense matrix.
        """
        tape, mode = self.tape, self.mode
        fan_in, width, rank, base_element = tape.width[x], tape.width[base], mode.rank, tape.element[base]
        as_given = mode.quantized and mode.as_given
        if as_given and mode.clones:
            base = tape.apply((base,), width, base_element, alias=True)
        uncast = mode.autocast and (as_given or mode.method == "loha")
        inner = copy = x if uncast else self.cast(x, mode.adapter)
        if mode.dropout:
            mask = tape.add_tensor(fan_in, 1, needs=False)
            inner = tape.apply((inner,), fan_in, tape.element[inner], saves=(mask,))
        adapter_input = inner
        element = 2 if mode.autocast else mode.adapter
        is_copied = mode.autocast and mode.adapter == 4
        factors: tuple[tuple[float, float], ...] = ((fan_in, rank), (rank, width))
        if mode.method == "vera":
            inner, factors = self.apply_scaled_adapter(self.cast(inner, element), width), ()
        elif mode.method == "miss":
            inner, factors = tape.apply((inner,), rank, tape.element[inner]), factors[1:]
        elif mode.method in _DENSE:
            inner, factors = self.apply_dense_adapter(self.cast(inner, element), width), ()
        for fan, out in factors:
            inner = self.cast(inner, element)
            inner = tape.apply(
                (inner,),
                out,
                element,
                saves=(inner,),
                weight_gradient=fan * out * mode.adapter,
                weight_copy=2 * fan * out if is_copied else 0,
                mark="matrix",
            )
        if mode.dora:
            scaled = self.apply_dora(adapter_input, base, inner)
            element = tape.element[scaled]
        else:
            scaled = tape.apply((inner,), width, element, saves=(inner,) if mode.method == "adalora" else ())
        if as_given:  # under autocast the sum accepts both formats
            scaled, element = scaled if mode.autocast else self.cast(scaled, base_element), base_element
            scaled = tape.recast(scaled, base_element)
        total = tape.apply((tape.recast(base, element), scaled), width, element, alias=True)
        tape.hold(x, copy)  # local variables of the caller and the adapted layer
        return self.cast(total, base_element)

    def apply_dense_adapter(self, x: int, width: float) -> int:
        """Build x D^T with the dense matrix D of LoHa or FourierFT, which the graph keeps (PEFT 0.21.2, layer.py).

        LoHa multiplies two low-rank products, FourierFT transforms a sparse spectrum. Both work in fp32.
        """
        tape, mode = self.tape, self.mode
        elements = tape.width[x] * width
        return tape.apply(
            (x,),
            width,
            tape.element[x],
            saves=(x,),
            weight_gradient=mode.adapter,
            made=elements * tape.element[x],
            unpacking=_DENSE[mode.method] * elements,
            mark="matrix",
        )

    def apply_scaled_adapter(self, x: int, width: float) -> int:
        """Build VeRA: two frozen matrices, after each of which a trained vector scales the product."""
        tape, mode = self.tape, self.mode
        copied = 2 if mode.autocast else 0
        for fan, out in ((tape.width[x], mode.rank), (mode.rank, width)):
            x = tape.apply((x,), out, tape.element[x], unpacked=copied * fan * out, mark="matrix")
            x = self.cast(self.apply_scaling(x), tape.element[x])
        return x

    def apply_scaling(self, x: int) -> int:
        """Build x scaled by a trained vector ((IA)3, VeRA) or rotated in small blocks (OFT), which keeps x.

        Source: PEFT 0.21.2, tuners/ia3/layer.py, tuners/vera/layer.py, tuners/oft/layer.py.
        """
        tape, mode = self.tape, self.mode
        width = tape.width[x]
        element = tape.element[x] if mode.method == "oft" else max(tape.element[x], mode.adapter)
        return tape.apply((x,), width, element, saves=(x,), weight_gradient=mode.adapter * width)

    def apply_reflections(self, x: int, width: float) -> int:
        """Build HRA: x (W H)^T, where H is a product of Householder reflections (PEFT 0.21.2, tuners/hra/layer.py).

        The graph keeps the square matrix before each of the `rank` reflections and after the last, W H, and W in the
        adapter's format.
        """
        tape, mode = self.tape, self.mode
        fan_in = tape.width[x]
        element = 2 if mode.autocast else mode.adapter
        square, whole = fan_in * fan_in * element, fan_in * width * element
        inner = self.cast(x, element)
        copied = 0 if element == mode.weight and not mode.quantized else whole
        kept = (mode.rank + 1) * square + whole + copied
        gradient = mode.rank * fan_in * mode.adapter
        out = tape.apply(
            (inner,), width, element, saves=(inner,), weight_gradient=gradient, unpacked=kept, unpacking=2 * square,
            mark="matrix",
        )  # fmt: skip
        return self.cast(out, tape.element[x])

    def apply_dora(self, x: int, base: int, product: int) -> int:
        """Build DoRA: (m - 1) * W x + m * scale * B(A(x)).

        m is the trained magnitude of each output divided by the norm of W + scale * BA (PEFT 0.18.0 to 0.21.2,
        tuners/lora/dora.py). Without dropout, W x is the base's product. With dropout, it is computed again from x
        after dropout, with a copy of the frozen weight that stays for the gradient of x. The temporaries of the norm
        are freed when the adapter returns.
        """
        tape, mode = self.tape, self.mode
        fan_in, width, input_element, element = tape.width[x], tape.width[base], tape.element[x], tape.element[product]
        elements = fan_in * width
        converted = input_element if input_element != mode.weight or mode.quantized else 0  # W in the format of x
        # BA from the product with an identity matrix, cast to the format of x; BA scaled, and the sum with W.
        identity = fan_in * fan_in * (mode.adapter + (element if element != mode.adapter else 0))
        temporary = identity + elements * (
            element + (input_element if input_element != element else 0) + converted + 2 * input_element
        )
        stays = 0.0
        if mode.dropout:
            stays = element if element != input_element else converted
            base = tape.apply(
                (self.cast(x, element),), width, element, unpacked=stays * elements, unpacking=temporary, mark="matrix"
            )
        scaled_element = max(mode.adapter, element)
        whole = tape.apply(
            (base,),
            width,
            scaled_element,
            saves=(base,),
            scratch=scaled_element * width,
            weight_gradient=mode.adapter * width,
            unpacking=0 if mode.dropout else temporary,
        )
        low = tape.apply((product,), width, scaled_element, saves=(product,), scratch=scaled_element * width)
        return tape.apply((whole, tape.apply((low,), width, scaled_element)), width, scaled_element, alias=True)

    def copy(self, x: int, width: float) -> int:
        """Build a copy of a tensor, or of a part that is `width` elements wide."""
        return self.tape.apply((x,), width, self.tape.element[x])

    def multiply_stacked(self, rows: int, width: float, elements: float) -> int:
        """Build the product of each expert with its part of stacked weights."""
        mode = self.mode
        copy_bytes = 2 * elements if mode.autocast and mode.weight == 4 else 0
        return self.tape.apply(
            (rows,),
            width,
            self.tape.element[rows],
            saves=(rows,) if mode.trained else (),
            weight_gradient=elements * mode.weight if mode.trained else 0,
            weight_copy=copy_bytes if mode.trained else 0,
            unpacked=0 if mode.trained else copy_bytes,
        )

    def add(self, x: int, y: int) -> int:
        """Build the residual sum x + y with the family's dropout and scale; the sum itself saves nothing."""
        tape = self.tape
        if self.family.residual_dropout:
            mask = tape.add_tensor(tape.width[y], 1, needs=False)
            y = tape.apply((y,), tape.width[y], tape.element[y], saves=(mask,))
        if self.family.residual_scale:
            y = tape.apply((y,), tape.width[y], tape.element[y])
        if self.family.layer_scale:
            trained, width = self.mode.trained, tape.width[y]
            element = max(tape.element[y], self.mode.weight)
            y = tape.apply(
                (y,), width, element, saves=(y,) if trained else (), scratch=width * element if trained else 0
            )
        element = max(tape.element[x], tape.element[y])
        return tape.apply((x, tape.recast(y, element)), tape.width[x], element, alias=True)
