"""Sizes of single tensors of a job, against which the size of a failed allocation is compared.

torch's allocator rounds requests of 10 MiB and more up to 2 MiB, and asks for 20 MiB or 2 MiB for smaller ones
(c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`). It prints that size with two decimals.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import MIB
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.components import MASTER, OPTIMIZER
from cfglint_train.memory.logits import count_chunk_tokens, count_liger_chunk_tokens, count_scored_tokens
from cfglint_train.memory.losses import CHUNKED_LOSSES, RECOMPUTED_LOSSES
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import format_number
from cfglint_train.memory.states import count_partition_elements
from cfglint_train.memory.transients import count_root_elements, count_sub_group_elements, count_unit_elements
from cfglint_train.plan.choices import FSDP
from cfglint_train.postmortem.tracebacks import Part

_STEP: Final = 2 * MIB
_SMALLEST: Final = 20 * MIB
"""Requests of up to this size do not show the size of the tensor."""

TRAINING: Final = ("forward", "backward")
PASSES: Final = ("forward", "backward", "eval", "rollout")


class Tensor(Frozen):
    """A tensor that a job allocates in some phases."""

    part: Part
    phases: tuple[str, ...]
    bytes: float
    factors: tuple[str, ...]
    """Factors of the bytes, with units; the first may be the tokens."""
    token_bytes: float = 0.0
    """Bytes per token if shorter batches need less, else 0."""
    name: str = ""
    """Name in words."""
    is_matrix: bool = False
    """True if weights, gradients, states and copies of a matrix have this size."""

    @property
    def text(self) -> str:
        """Computation of the bytes."""
        return f"{self.name}: {' x '.join(self.factors)}"


def is_meaningful(tried: float) -> bool:
    """Return whether the size of a request shows the size of a tensor."""
    return tried > _SMALLEST


def has_size(tensor: Tensor, tried: float, resolution: float) -> bool:
    """Return whether a request of `tried` bytes, printed with a resolution, is that of a tensor."""
    rounded = -(-int(tensor.bytes) // _STEP) * _STEP
    return min(abs(rounded - tried), abs(tensor.bytes - tried)) <= resolution


def count_tokens(tensor: Tensor, tried: float, resolution: float) -> int | None:
    """Return the tokens with which a tensor has the size of a request, or None if it cannot have it."""
    if not tensor.token_bytes or tried > tensor.bytes + _STEP + resolution:
        return None
    return max(1, round(tried / tensor.token_bytes))


def list_tensors(setup: Setup) -> list[Tensor]:
    """Return the tensors of a job that are larger than 10 MiB."""
    tensors = (*_list_logits(setup), *_list_layer_values(setup), *_list_matrices(setup), *_list_flat_tensors(setup))
    return [tensor for tensor in tensors if tensor.bytes > 10 * MIB]


def _format_tokens(setup: Setup, length: int | None = None) -> str:
    batch = setup.batch
    if length is None and batch.sequences * batch.length != batch.tokens:
        return f"{batch.tokens:,} tokens"
    tokens = f"{length or batch.length:,} tokens"
    return tokens if batch.sequences == 1 else f"{batch.sequences:,} x {tokens}"


def _list_logits(setup: Setup) -> Iterator[Tensor]:
    """Yield logits and their copies: all tokens, and all but the last of each sequence."""
    vocab, batch = setup.architecture.vocab, setup.batch
    if setup.loss.scores or not setup.part.ends:
        return
    kind = setup.loss.kind
    is_whole = kind not in ("liger", "cce", "tiles", "chunked_logits", *CHUNKED_LOSSES, *RECOMPUTED_LOSSES)
    phases = PASSES if is_whole else ("eval", "rollout")
    for element in (2, 4):
        scored = count_scored_tokens(setup)
        lengths = [(scored, _format_tokens(setup) if scored == batch.tokens else f"{format_number(scored)} tokens")]
        if batch.sequences * batch.length == batch.tokens and batch.length > 1:
            shifted = batch.length - 1
            lengths.append((batch.sequences * shifted, _format_tokens(setup, shifted)))
        for tokens, text in lengths:
            yield Tensor(
                "logits", phases, tokens * vocab * element, (text, f"{vocab:,}", f"{element} B"), vocab * element,
                "logits",
            )  # fmt: skip
        chunk = 0.0
        if kind == "liger":
            chunk = count_liger_chunk_tokens(batch.tokens, setup.architecture.hidden, vocab)
        elif kind in CHUNKED_LOSSES:
            chunk = count_chunk_tokens(setup, CHUNKED_LOSSES[kind])
        if chunk:
            chunk = min(chunk, batch.tokens)
            texts = (f"{format_number(chunk)} tokens of a chunk", f"{vocab:,}", f"{element} B")
            yield Tensor("logits", TRAINING, chunk * vocab * element, texts, vocab * element, "logits")


def _list_layer_values(setup: Setup) -> Iterator[Tensor]:
    """Yield the values of a layer: hidden states, the MLP's, the heads', and attention scores where they exist."""
    shape, batch = setup.architecture, setup.batch
    tokens = _format_tokens(setup)
    widths = {"hidden states": shape.hidden, "values of the MLP": shape.intermediate}
    widths["heads"] = shape.heads * shape.head_dim
    widths["keys or values"] = shape.kv_heads * shape.head_dim
    if shape.experts is not None:
        widths["values of the experts"] = shape.experts.per_token * shape.experts.intermediate
        widths["inputs of the experts"] = shape.experts.per_token * shape.hidden
    if shape.gated:
        widths["gate and up of the MLP"] = 2 * shape.intermediate
    for element in (2, 4):
        for name, width in widths.items():
            texts = (tokens, f"{width:,}", f"{element} B")
            yield Tensor("layer", PASSES, batch.tokens * width * element, texts, width * element, name)
        if setup.mode.attention in ("eager", "math") or setup.mode.sequence:
            for name, heads in (("attention scores", shape.heads), ("attention mask", 1)):
                texts = (f"{batch.sequences:,}", f"{heads:,} heads", f"{batch.length:,} x {batch.length:,} tokens")
                size = batch.sequences * heads * batch.length**2 * element
                yield Tensor("layer", PASSES, size, (*texts, f"{element} B"), size / batch.tokens, name)


def _list_matrices(setup: Setup) -> Iterator[Tensor]:
    """Yield single matrices: as loaded, gathered, dequantized, their gradients, and what an optimizer keeps of each."""
    shape, formats, ranks, frozen = setup.architecture, setup.formats, setup.ranks, setup.frozen_weights
    is_trained = setup.weights.adapters == 0 and setup.weights.trained > 0
    is_flat = ranks.strategy in ("zero", "fsdp1")
    shards = ranks.parameter_shards if ranks.strategy == "fsdp2" else 1
    seen = set()
    for linear in shape.linears:
        if (key := (linear.inputs, linear.outputs, linear.experts)) in seen:
            continue
        seen.add(key)
        shown = (
            *((f"{linear.experts:,} experts",) if linear.experts else ()),
            f"{linear.inputs:,}",
            f"{linear.outputs:,}",
        )
        elements = max(1, linear.experts) * linear.inputs * linear.outputs
        is_quantized = frozen.quantized > 0 and linear.part == "decoder"

        def build(
            part: Part,
            phases: tuple[str, ...],
            element: float,
            name: str,
            shards: int = 1,
            shown: tuple[str, ...] = shown,
            elements: int = elements,
        ) -> Tensor:
            divided = (f"{element:g} B" if shards == 1 else f"{element:g} B / {shards:,} ranks",)
            return Tensor(part, phases, elements * element / shards, (*shown, *divided), 0.0, name, is_matrix=True)

        loaded = {2.0, 4.0, formats.held}
        if is_quantized:  # scales are tensors of their own
            loaded |= {1.0 if frozen.quantized_bytes >= 1 else 0.5}
        for element in sorted(loaded):
            yield build("weights", ("load", "save"), element, f"weights of {linear.name}")
        if is_quantized:
            yield build("layer", PASSES, 2, f"dequantized {linear.name}")
        if ranks.parameter_shards > 1 or ranks.zero_stage == 3:
            yield build("gathered", (*PASSES, "save"), formats.gathered, f"gathered {linear.name}")
        if is_trained:
            for element in sorted({setup.mode.weight, int(formats.gradient), int(formats.accumulated)} - {0}):
                yield build("gradients", ("backward",), element, f"gradient of {linear.name}")
            if not is_flat:
                held = formats.master or formats.held
                yield build("update", ("optimizer step",), held, f"temporary of {linear.name}", shards)
                yield build("optimizer", ("optimizer step",), held, f"state of {linear.name}", shards)


def _list_flat_tensors(setup: Setup) -> Iterator[Tensor]:
    """Yield the flat tensors of DeepSpeed's partitions and buckets, and of FSDP's units."""
    ranks, formats, sharding = setup.ranks, setup.formats, setup.sharding
    trained = setup.weights.trained
    if ranks.strategy == "zero" and trained:
        local = count_partition_elements(setup)
        counts = [(local, f"{trained:,} trained elements / {ranks.optimizer_shards:,} ranks")]
        if ranks.zero_stage == 3:
            group = count_sub_group_elements(setup)
            counts.append((group, f"{format_number(group)} elements of a sub-group"))
        for count, text in counts:
            yield Tensor("master", ("load",), 4 * count, (text, "4 B"), 0.0, MASTER.name)
            yield Tensor("optimizer", ("load", "optimizer step"), 4 * count, (text, "4 B"), 0.0, OPTIMIZER.name)
            for element in sorted({2.0, 4.0, formats.gradient}):
                yield Tensor("update", ("optimizer step",), element * count, (text, f"{element:g} B"), 0.0, "temporary")
        whole = (f"{trained:,} trained elements", f"{formats.gathered:g} B")
        if ranks.zero_stage < 3:
            yield Tensor("weights", ("load",), formats.gathered * trained, whole, 0.0, "flattened weights")
        bucket = sharding.reduce_bucket
        texts = (f"{bucket:,} elements of a bucket", f"{formats.gradient:g} B")
        yield Tensor("buckets", ("load", "backward"), formats.gradient * bucket, texts, 0.0, "gradient bucket")
    if ranks.strategy not in FSDP:
        return
    for name, count, element in (
        ("layer", count_unit_elements(setup), formats.unit_bytes),
        ("embedding and head", count_root_elements(setup), formats.gathered),
    ):
        text = f"{format_number(count)} elements"
        gathered = (text, f"{element:g} B")
        yield Tensor("gathered", (*PASSES, "save"), element * count, gathered, 0.0, f"gathered {name}")
        sent = formats.communication
        reduced = (text, f"{sent:g} B")
        yield Tensor("reduction", ("backward",), sent * count, reduced, 0.0, f"gradients of the {name}")
        if ranks.strategy == "fsdp1":
            shard = (text, f"{formats.held:g} B / {ranks.parameter_shards:,} ranks")
            size = formats.held * count / ranks.parameter_shards
            yield Tensor("weights", ("load",), size, shard, 0.0, f"shard of the {name}")
            if setup.weights.adapters == 0:
                yield Tensor("optimizer", ("optimizer step",), size, shard, 0.0, f"state of the {name}")
                yield Tensor("update", ("optimizer step",), size, shard, 0.0, f"temporary of the {name}")
