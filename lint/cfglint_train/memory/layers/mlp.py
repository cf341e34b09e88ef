"""Feed-forward parts of a layer, dense or a mixture of experts, as in transformers."""

from __future__ import annotations

from cfglint_train.memory.layers.families import PER_LAYER
from cfglint_train.memory.layers.norms import Norms
from cfglint_train.models.architecture import Experts


class FeedForward(Norms):
    """Builder of the feed-forward part of a layer."""

    __slots__ = ()

    def activate(self, x: int) -> int:
        """Build silu or gelu, which saves its input. Under Liger, return `x`: the product includes the activation."""
        tape = self.tape
        if "mlp" in self.mode.liger:
            return x
        return tape.apply((x,), tape.width[x], tape.element[x], saves=(x,))

    def build_mlp(self, x: int, intermediate: float) -> int:
        """Build the dense feed-forward part."""
        tape, leaves, kind, hidden = self.tape, self.leaves, self.family.mlp, self.architecture.hidden
        if self.is_lora_kernel_mlp(x):  # gate and up are saved, their product is recomputed
            parts = [tape.add_tensor(intermediate, tape.element[x], needs=False) for _ in range(3)]
            matrices = ((hidden, intermediate), (hidden, intermediate), (intermediate, hidden))
            return self.apply_lora_kernel(x, hidden, matrices, (parts[0], parts[1]), (parts[2],))
        if kind == "new_gelu":
            # 0.5 * x * (1 + tanh(c * (x + 0.044715 * x^3))): x for two products and the power, the tanh and its sum.
            inner = self.apply_linear(x, intermediate, leaves.up)
            element = tape.element[inner]
            half = tape.apply((inner,), intermediate, element)
            inner = self.cast(inner, 4) if self.mode.autocast else inner  # autocast computes powers in fp32
            element = tape.element[inner]
            cube = tape.apply((inner,), intermediate, element, saves=(inner,))
            curve = tape.apply((cube,), intermediate, element, saves_output=True)
            total = tape.apply((curve,), intermediate, element, alias=True)
            product = (tape.recast(half, element), total)
            return self.apply_linear(tape.apply(product, intermediate, element, saves=product), hidden, leaves.down)
        if kind in ("relu", "relu2", "xielu"):
            inner = self.apply_linear(x, intermediate, leaves.up)
            return self.apply_linear(self.apply_pointwise(inner, kind), hidden, leaves.down)
        if kind == "quick_gelu":  # x * sigmoid(1.702 x)
            inner = self.apply_linear(x, intermediate, leaves.up)
            element = tape.element[inner]
            curve = tape.apply((tape.apply((inner,), intermediate, element),), intermediate, element, saves_output=True)
            product = (inner, curve)
            return self.apply_linear(tape.apply(product, intermediate, element, saves=product), hidden, leaves.down)
        if kind == "gelu":
            return self.apply_linear(self.activate(self.apply_linear(x, intermediate, leaves.up)), hidden, leaves.down)
        if kind == "gated_fused":
            both = self.apply_linear(x, 2 * intermediate, leaves.gate_up)
            gate, up = self.activate(tape.view(both, intermediate)), tape.view(both, intermediate)
        else:
            gate = self.apply_linear(x, intermediate, leaves.gate)
            if self.kind.sparse:  # the excess over mean and deviation: the deviation saves its input, relu its result
                element = tape.element[gate]
                gate = tape.apply((gate,), intermediate, element, saves=(gate,), saves_output=True)
            gate, up = self.activate(gate), self.apply_linear(x, intermediate, leaves.up)
        return self.apply_linear(self.multiply_gate(gate, up), hidden, leaves.down)

    def is_lora_kernel_mlp(self, x: int) -> bool:
        """Return whether a LoRA kernel runs the MLP: it must be gated, with adapters on all three matrices."""
        mode, leaves = self.mode, self.leaves
        if "mlp" not in mode.kernels or self.kind.mixture or self.family.mlp != "gated" or self.tape.element[x] != 2:
            return False
        return all(self.has_adapter(leaf) for leaf in (leaves.gate, leaves.up, leaves.down))

    def apply_pointwise(self, x: int, kind: str) -> int:
        """Build an activation of several kernels: relu, its square, or xIELU.

        relu saves its result, which is all that its square needs. xIELU saves its input, products of its formula and a
        mask.
        """
        tape = self.tape
        width, element = tape.width[x], tape.element[x]
        if kind == "xielu":
            # Autocast computes softplus and expm1 in fp32; the trained factors need a third product.
            inner = 4 if self.mode.autocast else element
            parts = [tape.add_tensor(width, inner, needs=False) for _ in range(3 if self.mode.trained else 2)]
            mask = tape.add_tensor(width, 1, needs=False)
            # The mask is used before the products' gradients are computed.
            return tape.apply((x,), width, inner, saves=(x, *parts, mask), scratch=3 * width * inner - width)
        active = tape.apply((x,), width, element, saves_output=True)
        if kind == "relu":
            return active
        square = self.cast(active, 4) if self.mode.autocast else active  # autocast computes powers in fp32
        inner = tape.element[square]
        return tape.apply((square,), width, inner, saves=(square,), scratch=2 * width * inner)

    def multiply_gate(self, gate: int, up: int) -> int:
        """Build act(gate) * up.

        The product saves both factors, and clamps save their inputs. Liger's kernel overwrites the factors with their
        gradients (liger-kernel 0.8.5, ops/swiglu.py and geglu.py).
        """
        tape = self.tape
        if self.family.limited:
            gate, up = (tape.apply((item,), tape.width[item], tape.element[item], saves=(item,)) for item in (gate, up))
        width, element = tape.width[up], tape.element[up]
        scratch = -2 * width * element if self.mode.overwrites and "mlp" in self.mode.liger else 0
        return tape.apply((gate, up), width, element, saves=(gate, up), scratch=scratch)

    def build_feed_forward(self, x: int) -> int:
        """Build the MLP or the mixture of experts."""
        experts = self.architecture.experts if self.kind.mixture else None
        out = self.build_mlp(x, self.architecture.intermediate) if experts is None else self.run_experts(x, experts)
        self.tape.hold(x)
        return out

    def run_all_experts(self, x: int, experts: Experts) -> int:
        """Build Llama 4's mixture.

        Every expert processes every token; the token's input is scaled by its score for that expert, usually 0.
        """
        tape, mode, hidden, element = self.tape, self.mode, self.architecture.hidden, self.tape.element[x]
        count, width = experts.count, experts.intermediate
        indices = tape.add_tensor(experts.per_token, 8, needs=False)
        logits = self.apply_linear(x, count, "router")
        best = tape.apply((logits,), experts.per_token, tape.element[logits], saves=(indices,))
        spread = tape.apply((best,), count, tape.element[logits], saves=(indices,))
        scores = self.cast(tape.apply((self.cast(spread, 4),), count, 4, saves_output=True), tape.element[logits])
        copies = tape.apply((x,), count * hidden, element)
        rows = tape.apply(
            (copies, scores), count * hidden, element, saves=(copies, scores), scratch=count * hidden * element
        )
        low = 2 if mode.autocast else element
        rows = self.cast(rows, low)
        gate_up = self.multiply_stacked(rows, 2 * count * width, 2 * hidden * width * count)
        gate, up = self.activate(tape.view(gate_up, count * width)), tape.view(gate_up, count * width)
        outer = self.multiply_stacked(self.multiply_gate(gate, up), count * hidden, hidden * width * count)
        side = self.build_mlp(x, experts.shared_intermediate)
        summed = tape.apply((outer,), hidden, tape.element[outer])
        tape.hold(rows)
        return tape.apply((side, summed), hidden, tape.element[side], alias=True)

    def build_mlp_and_experts(self, x: int) -> int:
        """Build Gemma 4's MLP and, in a mixture, the experts beside it.

        Both read `x`, and each has its own norm.
        """
        experts = self.architecture.experts if self.kind.mixture else None
        # In the smallest model, the MLP of layers that reuse keys is twice as wide.
        ups = [item for item in self.architecture.linears if item.name == self.leaves.up and item.part == "decoder"]
        widths = sorted(item.outputs for item in ups) or [self.architecture.intermediate]
        dense = self.build_mlp(self.apply_norm(x), widths[-1] if self.kind.reuses_keys else widths[0])
        if experts is None:
            return dense
        first = self.apply_norm(dense)
        second = self.apply_norm(self.run_experts(x, experts))
        return self.tape.apply((first, second), self.architecture.hidden, self.tape.element[first], alias=True)

    def add_per_layer_embedding(self, x: int) -> int:
        """Build the sum with the second embedding of each token, which Gemma 4's small models add in every layer."""
        width = self.count_matrix_outputs(PER_LAYER)
        return self.add(x, self.project_second_embedding(x, width)) if width else x

    def count_matrix_outputs(self, leaf: str) -> int:
        """Return the number of outputs of a matrix, or 0 if the model lacks it."""
        return next((item.outputs for item in self.architecture.linears if item.name == leaf), 0)

    def project_second_embedding(self, x: int, width: int) -> int:
        """Build the term that the second embedding, `width` elements per token, adds to a layer's output."""
        tape = self.tape
        gate = self.activate(self.apply_linear(x, width, PER_LAYER))
        embedding = tape.add_tensor(width, self.mode.weight)  # a sum with the embedding, in the embedding's format
        element = max(tape.element[gate], self.mode.weight)
        gate = tape.recast(gate, element)
        whole = self.architecture.layers * width * self.mode.weight  # the gradient of one part is as large as the whole
        product = tape.apply((gate, embedding), width, element, saves=(gate, embedding), scratch=whole)
        return self.apply_norm(self.apply_linear(product, self.architecture.hidden, "per_layer_projection"))

    def route_tokens(self, x: int, experts: Experts) -> int:
        """Build the router and return the weights of the chosen experts: `per_token` numbers per token."""
        tape, mode, kind = self.tape, self.mode, self.family.experts
        count, chosen, element = experts.count, experts.per_token, tape.element[x]
        indices = tape.add_tensor(chosen, 8, needs=False)
        if kind == "beside":  # a norm without a weight, times a trained scale and a constant
            x = self.cast(self._normalize_in_fp32(x, 1), element)
            width = tape.width[x]
            scale = width * mode.weight if mode.trained else 0
            x = tape.apply((x,), width, element, saves=(x,) if mode.trained else (), weight_gradient=scale)
            x = tape.apply((x,), width, element)
        if kind in ("sigmoid_group", "softmax_group"):  # in fp32, with a copy of the input and of the weight
            x = self.cast(x, 4)
        low = 2 if mode.autocast else tape.element[x]  # autocast multiplies in 16 bits regardless of the input
        logits = tape.apply(
            (x,),
            count,
            low,
            saves=(x,) if mode.trained else (),
            weight_gradient=tape.width[x] * count * mode.weight if mode.trained else 0,
        )
        if kind == "top_softmax":
            best = tape.apply((self.cast(logits, 4),), chosen, 4, saves=(indices,))
            weights = tape.apply((best,), chosen, 4, saves_output=True)
            return weights if self.family.router_fp32 else self.cast(weights, element)
        if kind == "sparse_mixer":  # per chosen expert: a mask, a softmax and its gather
            masks = tape.add_tensor(chosen * count, 1, needs=False)
            scores = tape.apply((logits,), chosen * count, tape.element[logits], saves=(masks,), saves_output=True)
            return tape.apply((scores,), chosen, tape.element[scores], saves=(indices,))
        if kind in ("sigmoid", "sigmoid_group"):  # the chosen scores are gathered and divided by their sum
            precise = low if kind == "sigmoid_group" else 4
            scores = tape.apply((self.cast(logits, precise),), count, precise, saves_output=True)
            bias = tape.add_tensor(chosen, 8, needs=False)
            return tape.apply((scores,), chosen, precise, saves=(indices, bias), saves_output=True)
        precise = element if kind == "softmax_given" and not mode.autocast else 4
        scores = tape.apply((self.cast(logits, precise),), count, precise, saves_output=True)
        chosen_scores = tape.apply((scores,), chosen, precise, saves=(indices,), saves_output=True)
        return chosen_scores if self.family.router_fp32 else self.cast(chosen_scores, element)

    def run_experts(self, x: int, experts: Experts) -> int:
        """Build the mixture: grouped matrix products of the tokens sorted by expert (transformers 5's grouped_mm)."""
        tape, mode, hidden = self.tape, self.mode, self.architecture.hidden
        if self.family.experts == "everywhere":
            return self.run_all_experts(x, experts)
        chosen, width = experts.per_token, experts.intermediate
        shared = experts.shared_intermediate
        side = self.build_mlp(x, shared) if shared and self.family.shared_first else None
        weights = self.route_tokens(x, experts)
        order = tape.add_tensor(chosen, 8 * 3, needs=False)
        matrix = experts.count // mode.expert_parallel * hidden * width
        x = self.apply_norm(x) if self.family.experts == "beside" else x
        chosen_rows = tape.apply((x,), chosen * hidden, tape.element[x], saves=(order,))
        rows = self.cast(chosen_rows, mode.weight)
        halves = 1 if self.family.mlp == "relu2" else 2  # gate and up
        inner = self.multiply_grouped(rows, halves * chosen * width, halves * matrix, mode.expert_ranks[0])
        if halves == 1:
            active = self.apply_pointwise(inner, self.family.mlp)
        elif self.family.clamped:
            active = self.apply_clamped_unit(inner, chosen * width)
        else:
            active = self.multiply_gate(
                self.activate(tape.view(inner, chosen * width)), tape.view(inner, chosen * width)
            )
        # The product casts its input: autocast computed relu's square in fp32.
        outer = self.multiply_grouped(self.cast(active, mode.weight), chosen * hidden, matrix, mode.expert_ranks[1])
        precise = max(tape.element[outer], tape.element[weights])
        outer = tape.recast(outer, precise)
        # The weights' gradient is summed from a tensor of the whole width.
        weighted = tape.apply(
            (outer, weights), chosen * hidden, precise, saves=(outer, weights), scratch=chosen * hidden * precise
        )
        back = tape.apply((weighted,), chosen * hidden, precise)
        summed = tape.apply((back,), hidden, precise)
        tape.hold(chosen_rows, outer, weights)  # local variables of the function
        total = self.cast(summed, tape.element[x])
        if not shared:
            return total
        if side is None:
            side = self.build_mlp(x, shared)
        if self.family.shared_gate:
            gate = self.apply_linear(x, 1, "shared_expert_gate")
            gate = tape.apply((gate,), 1, tape.element[gate], saves_output=True)
            side = tape.apply((gate, side), hidden, tape.element[side], saves=(gate, side))
        return tape.apply((total, side), hidden, tape.element[x], alias=True)

    def apply_clamped_unit(self, both: int, width: float) -> int:
        """Build gpt-oss's unit: (up + 1) * gate * sigmoid(alpha * gate), with gate and up clamped first.

        The clamps save their input.
        """
        tape = self.tape
        element = tape.element[both]
        gate = tape.apply((tape.view(both, width),), width, element, saves=(both,))
        up = tape.apply((tape.view(both, width),), width, element, saves=(both,))
        curve = tape.apply((tape.apply((gate,), width, element),), width, element, saves_output=True)
        curved = tape.apply((gate, curve), width, element, saves=(gate, curve))
        raised = tape.apply((up,), width, element)
        return tape.apply((raised, curved), width, element, saves=(raised, curved))

    def multiply_grouped(self, rows: int, width: float, elements: float, rank: int) -> int:
        """Build one grouped product with `elements` weights, adapted if `rank` is positive.

        PEFT adapts fused experts by creating whole new weights, W + BA, which are saved for the backward pass. Their
        gradient has the same size before it becomes that of A and B. Unpacked experts are also whole new weights:
        without an adapter they are saved, with an adapter they are added to BA and freed.
        """
        tape, mode, experts = self.tape, self.mode, self.architecture.experts
        assert experts is not None
        fan_in, fan_out = self.tape.width[rows] / experts.per_token, width / experts.per_token
        adapter = experts.count // mode.expert_parallel * rank * (fan_in + fan_out)
        bias = tape.add_tensor(width, tape.element[rows], needs=False) if self.family.clamped else None
        out = tape.apply(
            (rows,),
            width,
            tape.element[rows],
            saves=(rows,) if mode.trained or rank else (),
            weight_gradient=elements * mode.weight if mode.trained else adapter * mode.adapter,
            weight_copy=2 * adapter if mode.autocast and mode.adapter == 4 else 0,
            made=elements * mode.weight if rank and not mode.fuses_experts else 0,
            unpacked=2 * elements if mode.unpacks_experts and not rank else 0,
            unpacking=2 * elements if mode.unpacks_experts and rank else 0,
        )
        # gpt-oss gathers each token's copy of its expert's bias.
        return out if bias is None else tape.apply((out, bias), width, tape.element[out], alias=True)
