"""Decoder layers and losses of frameworks that cfglint does not lint, for the published rows of these frameworks.

Published measurements of litgpt, torchtitan and torchtune check the memory model against a GPU's own counters, so their
models are described like those of transformers. `install()` adds them to the tables of `memory/layers/` and
`memory/losses.py`; only the calibration calls it. The framework's name is a prefix of `model_type`: `litgpt:llama`.
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import FAMILIES, LEAVES, Family, Leaves
from cfglint_train.memory.layers.layer import PROGRAMS, Layer
from cfglint_train.memory.losses import OTHER_LOSSES, Loss
from cfglint_train.models.architecture import Experts


class LitGpt(Layer):
    """litgpt 0.4 to 0.5 (model.py, lora.py): one matrix for queries, keys and values; grouped heads are copied."""

    __slots__ = ()

    def _normalize_in_fp32(self, x: int, heads: float) -> int:
        """Compute x * rsqrt(mean(x * x) + eps) in fp32; the gradient of x * x needs two temporaries of x's width."""
        tape, width = self.tape, self.tape.width[x]
        full = self.cast(x, 4)
        squares = tape.apply((full,), width, 4, saves=(full,), scratch=8 * width)
        mean = tape.apply((squares,), heads, 4)
        root = tape.apply((mean,), heads, 4, saves_output=True, scratch=8 * heads)
        return tape.apply((full, root), width, 4, saves=(full, root), scratch=4 * width)

    def add_adapter(self, x: int, base: int, leaf: str) -> int:
        """Apply LoRA; if only some of the fused queries, keys and values have adapters, pad the rest with zeros."""
        tape, mode, shape = self.tape, self.mode, self.architecture
        parts = [part for part in ("q_proj", "k_proj", "v_proj") if part in mode.targets]
        if leaf != self.leaves.fused or not parts:
            return super().add_adapter(x, base, leaf)
        fan_in, width, rank, element = tape.width[x], tape.width[base], mode.rank * len(parts), tape.element[x]
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        out = sum({"q_proj": query}.get(part, key) for part in parts)
        inner = x
        if mode.dropout:
            mask = tape.add_tensor(fan_in, 1, needs=False)
            inner = tape.apply((inner,), fan_in, element, saves=(mask,))
        inner = tape.apply((inner,), rank, element, saves=(inner,), weight_gradient=fan_in * rank * mode.adapter)
        inner = tape.apply((inner,), out, element, saves=(inner,), weight_gradient=out * mode.rank * mode.adapter)
        if len(parts) < 3:
            inner = tape.apply((inner,), width, element, saves=(inner,))
        scaled = tape.apply((inner,), width, element)
        tape.hold(x, base)
        return tape.apply((base, scaled), width, element, alias=True)

    def apply_linear(self, x: int, width: float, leaf: str) -> int:
        """Apply a linear layer; the fused QKV matrix gets an adapter if one of its parts has one."""
        if leaf == self.leaves.fused and self.mode.rank and not self.has_adapter(leaf):
            base = super().apply_linear(x, width, leaf)
            return self.add_adapter(x, base, leaf) if self.mode.targets & {"q_proj", "k_proj", "v_proj"} else base
        return super().apply_linear(x, width, leaf)

    def build_attention(self, x: int) -> int:
        """Apply attention with a fused QKV matrix; grouped keys and values are copied once per query head."""
        tape, shape, element = self.tape, self.architecture, self.tape.element[x]
        query_width, key_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        fused = self.apply_linear(x, query_width + 2 * key_width, self.leaves.fused)
        grouped = 1 < shape.kv_heads < shape.heads
        if grouped:
            query, key, value = (self.copy(fused, query_width) for _ in range(3))
        else:
            query, key, value = (
                tape.view(fused, query_width),
                tape.view(fused, query_width),
                tape.view(fused, query_width),
            )
        query, key = self.rotate(query), self.rotate(key)
        query, key = tape.apply((query,), query_width, element), tape.apply((key,), query_width, element)
        out = self.attend(query, key, value, query_width)
        out = self.apply_linear(out, shape.hidden, self.leaves.out)
        tape.hold(x)
        return out


class LitGptAdapter(LitGpt):
    """litgpt's LLaMA-Adapter (adapter.py): queries also attend to ten learned prompts; a gate scales that output."""

    __slots__ = ()

    def attend(self, query: int, key: int, value: int, out_width: float) -> int:
        """Attend to tokens and to prompts: keep both outputs, and add the gated output of the prompts."""
        tape, element = self.tape, self.tape.element[query]
        out = super().attend(query, key, value, out_width)
        rows = tape.add_tensor(self.architecture.heads, 4, needs=False)
        prompts = tape.add_tensor(0, element)
        attended = tape.apply((query, prompts), out_width, element, saves=(query, rows), saves_output=True)
        gated = tape.apply((attended,), out_width, element, saves=(attended,), scratch=out_width * element)
        return tape.apply((out, gated), out_width, element, alias=True)


class LitGptAdapterV2(LitGptAdapter):
    """LLaMA-Adapter v2, with a learned scale and bias at each matrix and trained norms (litgpt adapter_v2.py)."""

    __slots__ = ()

    def apply_linear(self, x: int, width: float, leaf: str) -> int:
        """Compute scale * (x W^T + bias): the scale's gradient needs the value that it multiplies."""
        tape, element = self.tape, self.tape.element[x]
        out = super().apply_linear(x, width, leaf)
        shifted = tape.apply((out,), width, element, weight_gradient=width * element)
        return tape.apply(
            (shifted,), width, element, saves=(shifted,), scratch=width * element, weight_gradient=width * element
        )

    def apply_norm(self, x: int, heads: float = 1) -> int:
        """Apply a norm whose weight has a gradient."""
        mode, self.mode = self.mode, self.mode._replace(trained=True)
        out = super().apply_norm(x, heads)
        self.mode = mode
        return out


class NativeLayer(Layer):
    """torchtitan with torch's own RMSNorm, which keeps its input and the inverse RMS of each row."""

    __slots__ = ()

    def apply_norm(self, x: int, heads: float = 1) -> int:
        """Apply the norm in one kernel."""
        return self.apply_fused_norm(x, heads)

    def attend(self, query: int, key: int, value: int, out_width: float) -> int:
        """Attend; torchtitan's selective activation checkpointing does not keep the output of cuDNN's kernel."""
        if self.mode.attention != "cudnn":
            return super().attend(query, key, value, out_width)
        tape, element = self.tape, self.tape.element[query]
        rows = tape.add_tensor(self.architecture.heads, 4, needs=False)
        saves = query, self.repeat_heads(key, tape.width[query]), self.repeat_heads(value, out_width), rows
        return tape.apply(saves[:3], out_width, element, saves=saves, saves_output=True)


class AbsoluteMaxLayer(NativeLayer):
    """torchtitan with fp8 matrix products in eager mode, between pull requests #701 and #820.

    Selective activation checkpointing kept the absolute values from which the scales are computed. Those of the weights
    are in `setup.neighbours`.
    """

    __slots__ = ()

    def apply_linear(self, x: int, width: float, leaf: str) -> int:
        """Apply a linear layer and keep the absolute values of its input."""
        self.tape.apply((x,), self.tape.width[x], self.tape.element[x], mark="absolute")
        return super().apply_linear(x, width, leaf)


class NativeMixture(NativeLayer):
    """torchtitan's own mixture of experts (models/moe/moe.py), which applies scores after the experts."""

    __slots__ = ()

    def run_experts(self, x: int, experts: Experts) -> int:
        """Apply experts to tokens in expert order, padded by a copy; multiply the outputs by their scores in fp32.

        All published runs of this kind use expert parallelism: selective activation checkpointing keeps the results of
        both all-to-alls and of the sum (activation_checkpoint.py, `_get_save_ops`).
        """
        tape, mode, hidden = self.tape, self.mode, self.architecture.hidden
        chosen, width, element = experts.per_token, experts.intermediate, tape.element[x]
        count = experts.count * hidden * width
        indices = tape.add_tensor(chosen, 8 * 4, needs=False)
        full = self.cast(x, 4)
        gate = tape.apply(
            (full,), experts.count, 4, saves=(full,), weight_gradient=experts.count * hidden * mode.weight
        )
        scores = tape.apply((gate,), experts.count, 4, saves_output=True)
        weights = tape.apply((scores,), chosen, 4, saves=(indices,))
        rows = tape.apply((x,), chosen * hidden, element, mark="exchange")
        padded = tape.apply((rows,), chosen * hidden, element)
        first = self.activate(self.multiply_grouped(padded, chosen * width, count, 0))
        inner = self.multiply_gate(first, self.multiply_grouped(padded, chosen * width, count, 0))
        outer = self.multiply_grouped(inner, chosen * hidden, count, 0)
        back = tape.apply((outer,), chosen * hidden, element, mark="exchange")
        restored = self.cast(tape.apply((back,), chosen * hidden, element), 4)
        summed = tape.apply(
            (restored, weights), hidden, 4, saves=(restored, weights), scratch=4 * chosen * hidden, mark="sum"
        )
        total = self.cast(summed, element)
        if not experts.shared_intermediate:
            return total
        return tape.apply((total, self.build_mlp(x, experts.shared_intermediate)), hidden, element, alias=True)


class ScoredFirstMixture(NativeLayer):
    """torchtitan's mixture of experts as of August 2025, on ranks that hold all experts.

    Rows are multiplied by their scores in fp32 before the experts (experiments/llama4/model/moe.py,
    infra/expert_parallel.py at #1517).
    """

    __slots__ = ()

    def run_experts(self, x: int, experts: Experts) -> int:
        """Apply experts to tokens in expert order: copy them after a zero row, pad by another copy, scatter back."""
        tape, mode, hidden = self.tape, self.mode, self.architecture.hidden
        chosen, width, element = experts.per_token, experts.intermediate, tape.element[x]
        count = experts.count * hidden * width
        indices = tape.add_tensor(chosen, 8 * 4, needs=False)
        gate = tape.apply(
            (x,), experts.count, element, saves=(x,), weight_gradient=experts.count * hidden * mode.weight
        )
        scores = tape.apply((self.cast(gate, 4),), experts.count, 4, saves_output=True)
        weights = tape.apply((scores,), chosen, 4, saves=(indices,))
        rows = self.cast(tape.apply((x,), chosen * hidden, element), 4)
        scaled = self.cast(tape.apply((rows, weights), chosen * hidden, 4, saves=(rows, weights)), element)
        joined = tape.apply((scaled,), chosen * hidden, element)
        padded = tape.apply((joined,), chosen * hidden, element)
        first = self.activate(self.multiply_grouped(padded, chosen * width, count, 0))
        inner = self.multiply_gate(first, self.multiply_grouped(padded, chosen * width, count, 0))
        back = tape.apply((self.multiply_grouped(inner, chosen * hidden, count, 0),), chosen * hidden, element)
        shared = self.build_mlp(x, experts.shared_intermediate)
        return tape.apply((shared, back), hidden, element)


class HybridMixture(NativeMixture):
    """torchtitan's mixture over HybridEP with `non_blocking_capacity_factor` 1.0 (distributed/deepep/hybridep.py).

    Ranks do not wait for the number of tokens that they will receive. Instead, each reserves room for the worst case:
    all tokens of four ranks, each token with all of its chosen experts on this rank.
    """

    __slots__ = ()

    def run_experts(self, x: int, experts: Experts) -> int:
        """Apply experts to tokens as they arrive, without padding; apply scores before the return and the sum."""
        tape, mode, hidden = self.tape, self.mode, self.architecture.hidden
        capacity, width, element = 4 * experts.per_token, experts.intermediate, tape.element[x]
        count = experts.count * hidden * width
        full = self.cast(x, 4)
        gate = tape.apply(
            (full,), experts.count, 4, saves=(full,), weight_gradient=experts.count * hidden * mode.weight
        )
        scores = tape.apply((gate,), experts.count, 4, saves_output=True)
        rows = tape.apply((x,), capacity * hidden, element, mark="exchange")
        first = self.activate(self.multiply_grouped(rows, capacity * width, count, 0))
        inner = self.multiply_gate(first, self.multiply_grouped(rows, capacity * width, count, 0))
        outer = self.multiply_grouped(inner, capacity * hidden, count, 0)
        scaled = tape.apply((outer, scores), capacity * hidden, element, saves=(outer,))
        total = tape.apply((scaled,), hidden, element, mark="exchange")
        if not experts.shared_intermediate:
            return total
        return tape.apply((total, self.build_mlp(x, experts.shared_intermediate)), hidden, element, alias=True)


class GraphMixture(NativeMixture):
    """torchtitan's graph_trainer since #3429 with its `default` policy, which keeps every matrix product."""

    __slots__ = ()

    def build(self, x: int) -> int:
        """Build the layer; keep every matrix product except the last, whose sum is the next layer's input."""
        out = super().build(x)
        products = [operation for operation in self.tape.operations if operation.mark == "matrix"]
        for operation in products:
            operation.mark = "product"
        products[-1].mark = ""
        return out


_LLAMA: Final = Family(norm="rms_fp32", fused_query="views", program="litgpt", names="litgpt", quantized_head=True)

_FAMILIES: Final = {
    "litgpt:llama": _LLAMA,
    "litgpt:gemma": _LLAMA,
    "litgpt:gemma2": _LLAMA._replace(placement="sandwich", softcap=True),
    "litgpt:gpt_neox": _LLAMA._replace(norm="layer", placement="parallel2", mlp="gelu", names="litgpt_neox"),
    "torchtitan:llama": Family(rotary="fp32", program="native"),
    "torchtune:llama": Family(rotary="fp32"),
    "torchtune:gemma": Family(norm="rms_fp32", rotary="fp32"),
    "torchtitan:deepseek": Family(
        rotary="fp32", latent=True, experts="softmax_group", program="native-mixture", traced=False
    ),
    "torchtitan:llama4": Family(rotary="fp32", experts="softmax_top", program="native-scored", traced=False),
    "torchtitan:qwen3": Family(rotary="fp32", query_norm="head", program="native"),
    "composer:mpt": Family(norm="layer", rotary="none", fused_query="views", mlp="gelu", names="composer"),
    # DINOv2's blocks, whose LayerScale factors are trained; one image is a sequence of patches.
    "timm:vit": Family(
        norm="layer",
        rotary="none",
        fused_query="views",
        mlp="gated_fused",
        residual_scale=True,
        names="vision",
        traced=False,
    ),
    # Apertus with the fused activation kernel (nickjbrowning/XIELU), which keeps only its input.
    "xielu:apertus": FAMILIES["apertus"]._replace(mlp="gelu"),
    "litgpt:phi": _LLAMA._replace(norm="layer", placement="parallel", mlp="gelu", names="litgpt_neox"),
}


_LOSSES: Final = {
    # Fabric's bf16-true casts the logits to fp32; the head and the loss run over 128 tokens at a time. The trainer
    # holds the logits during the head's backward pass, whose gradients have 16 bits. A chunked head returns before the
    # soft cap (lora.py, GPT.forward).
    "litgpt-chunked": Loss(8, 4, 8, 128, 2, 8, 6, capped=False),
    # adapter_v2 also scales the logits, and keeps them in 16 bits for that.
    "litgpt-scaled": Loss(10, 6, 10, 128, 2, 8, 8),
    # Without adapters the head is not chunked.
    "litgpt-whole": Loss(8, 4, 8, 128, 0, 8),
    # transformers before 4.45: the logits in fp32, their shifted copy and the log-softmax; then two gradients.
    "upcast": Loss(12, 4, 12),
    # Qwen's own code without autocast: 16-bit logits, their shifted copy and the log-softmax; then two gradients.
    "qwen-half": Loss(6, 2, 6),
    # `upcast` if the caller holds the output during the backward pass.
    "upcast-kept": Loss(12, 8, 16),
    # unsloth's kernel overwrites the 16-bit logits with their gradient (unsloth 2024.8, kernels/cross_entropy_loss.py).
    "unsloth": Loss(2, 2, 2),
    # Megatron's vocab_parallel_cross_entropy: the fp32 logits become the softmax, then the gradient, in place.
    "megatron": Loss(6, 4, 6),
    # Megatron's fused loss, under torch.compile: the gradient is another fp32 tensor beside the softmax (megatron-core
    # 0.13.1 fusions/fused_cross_entropy.py, run on a CPU).
    "megatron-fused": Loss(6, 4, 10),
    # torch.compile over a loss on fp32 logits, which are overwritten with their gradient.
    "compiled-upcast": Loss(6, 4, 8),
    # torch.compile over the loss: 16-bit logits and their gradient, nothing in fp32.
    "compiled": Loss(4, 2, 4),
    # torchtune's and torchtitan's loss over eight chunks of the output: log-softmax of all, two gradients of one chunk.
    "chunked-output": Loss(6.5, 4, 5, pieces=8),
    # `chunked-output` with a compiled loss per chunk: 16-bit logits, which become their gradients chunk by chunk.
    "chunked-compiled": Loss(2, 2, 2.25, pieces=8),
}


def install() -> None:
    """Add the programs, families and losses to the tables of the memory model."""
    PROGRAMS.update(
        {
            "litgpt": LitGpt,
            "native": NativeLayer,
            "native-mixture": NativeMixture,
            "native-scored": ScoredFirstMixture,
            "native-graph": GraphMixture,
            "native-hybrid": HybridMixture,
            "native-absolute": AbsoluteMaxLayer,
        }
    )
    FAMILIES.update(_FAMILIES)
    FAMILIES["torchtitan-absolute:llama"] = _FAMILIES["torchtitan:llama"]._replace(program="native-absolute")
    FAMILIES["torchtitan-hybrid:deepseek"] = _FAMILIES["torchtitan:deepseek"]._replace(program="native-hybrid")
    for name in ("llama", "deepseek"):
        FAMILIES[f"torchtitan-graph:{name}"] = _FAMILIES[f"torchtitan:{name}"]._replace(program="native-graph")
    for program, code in (("litgpt-adapter", LitGptAdapter), ("litgpt-adapter_v2", LitGptAdapterV2)):
        PROGRAMS[program] = code
        for name, family in _FAMILIES.items():
            if family.program == "litgpt":
                FAMILIES[name.replace("litgpt", program)] = family._replace(program=program)
    OTHER_LOSSES.update(_LOSSES)
    LEAVES["litgpt"] = Leaves(fused="attn", out="o_proj")
    LEAVES["composer"] = Leaves(fused="Wqkv", out="out_proj", up="up_proj", down="down_proj")
    LEAVES["litgpt_neox"] = Leaves(fused="attn", out="o_proj", up="up_proj", down="down_proj")
