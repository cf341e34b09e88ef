"""Formats of weights and gradients, and the bytes of one element in each."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.models.architecture import Architecture

DTYPE_BYTES: Final[Mapping[str, float]] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

# Bytes of one quantized element with its scales: bitsandbytes' nf4 and fp4 hold 4 bits and one fp32 scale per block of
# 64, with double quantization an 8-bit scale and one fp32 per 256 scales; int8 one scale per row (neglected); GPTQ and
# AWQ 4 bits, a 16-bit scale and a 4-bit zero per group of 128; HQQ 4 bits, two 16-bit numbers per group of 64; MXFP4
# one byte per 32; NVFP4 one byte per 16.
QUANTIZED_BYTES: Final = {
    "nf4": 0.5 + 4 / 64,
    "fp4": 0.5 + 4 / 64,
    "int8": 1.0,
    "int4": 0.5 + 4 / 128,
    "gptq": 0.5 + 2.5 / 128,
    "awq": 0.5 + 2.5 / 128,
    "hqq": 0.5 + 4 / 64,
    "eetq": 1.0,
    "aqlm": 0.25,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "fp8": 1.0,
}
DOUBLE_QUANTIZED_BYTES: Final = 0.5 + 1 / 64 + 4 / (64 * 256)

# DeepSpeed's quantizer: 8 bits, and an fp32 scale per group of about 8,000 elements (partition_parameters.py).
QUANTIZED_PARTITION: Final = 1 + 4 / 8000


class FrozenWeights(Frozen):
    """The frozen weights of the whole model, by format."""

    quantized: int = 0
    quantized_bytes: float = 0.0
    """Bytes of one quantized element, with its scales."""
    fp32: int = 0
    """Number of elements kept in 32 bits."""
    plain: int = 0
    plain_bytes: float = 0.0
    unsharded_bytes: float = 0.0
    """Bytes of one quantized element that every rank holds on its GPU, even if FSDP or ZeRO-3 shards or offloads the
    weights. bitsandbytes keeps the scales of 4-bit weights beside the parameter (`Params4bit.quant_state`). GPTQ and
    AWQ keep weights and scales as buffers, and only parameters are sharded (auto_gptq 0.7.1, autoawq 0.2.9).
    """

    @property
    def unsharded(self) -> float:
        """Bytes of quantized weights or scales that every rank holds."""
        return self.quantized * self.unsharded_bytes

    @property
    def bytes(self) -> float:
        """Bytes of all frozen weights."""
        return self.quantized * self.quantized_bytes + self.fp32 * 4 + self.plain * self.plain_bytes


_NOTHING: Final = FrozenWeights()


class Formats(Frozen):
    """Bytes per element of weights, gradients and the residual stream, by use."""

    held: float
    """Trained weight as stored between steps (a shard or the whole)."""
    gathered: float
    """Weight as the forward pass reads it."""
    master: float
    """Separate master copy of a trained weight; 0 if there is none."""
    gradient: float
    """Gradient as the backward pass computes it."""
    accumulated: float
    """Gradient as accumulated between micro batches."""
    unquantized: float
    """Frozen weight that is not quantized."""
    autocast: bool
    loaded: float = 0.0
    """Weight of a model that waits whole on every GPU to be sharded or cast; 0 if the model does not."""
    residual: int = 2
    """Residual stream."""
    reference: float = 0.0
    """Weight of the reference model, a second whole model; 0 if there is none."""
    host_experts: float = 0.0
    """Weight of routed experts that stay on the host; 0 if there are none."""
    communication: float = 4.0
    """Gradient while it is reduced."""
    unit_bytes: float = 0.0
    """Weight of a gathered decoder layer, quantized or not."""
    quantized_gather: float = 0.0
    """Overhead of gathering in 8 bits, in addition to the gathered weights; 0 if this is off."""


def get_element_bytes(dtype: str) -> float:
    """Return the bytes of one element with its scales; 2 for an unknown format."""
    return DTYPE_BYTES.get(dtype, QUANTIZED_BYTES.get(dtype, 2))


def read_formats(reader: Reader, adapter: bool, fsdp: bool) -> Formats | None:
    """Return the formats of a job, or None if the format of the weights is unknown.

    FSDP keeps its shards in the wider of the master weights' and the weights' formats. It gathers in the compute format
    if that is smaller.
    """
    get = reader.get
    compute = get("precision.compute") or "bf16"
    params = get("precision.adapter") if adapter else None
    params = params or reader.require("precision.params")
    if params is None:
        return None
    plain = get_element_bytes(get("precision.frozen") or compute)
    held, master = get_element_bytes(params), get("precision.master") or "none"
    master_copy = 0.0 if master == "none" else get_element_bytes(master)
    gathered = plain if adapter else held
    gradient = get_element_bytes(get("precision.grads") or params)
    accumulated = get_element_bytes(get("precision.accumulation") or get("precision.grads") or params)
    if fsdp:
        gathered = min(gathered, get_element_bytes(compute))
        held, master_copy = max(held, master_copy), 0.0
        accumulated = held
        gradient = held if adapter else gathered
    return Formats(held, gathered, master_copy, gradient, accumulated, plain, bool(get("precision.autocast")))


def count_quantized_elements(architecture: Architecture, kind: str, experts: bool) -> int:
    """Return the number of elements that a quantizer converts: linear layers without embedding, head and norms.

    A quantizer of `nn.Linear` modules skips fused experts unless `experts` is set; MXFP4 (gpt-oss) converts only
    experts.
    """
    if kind == "mxfp4" and architecture.experts is not None:
        return architecture.expert_parameters
    quantized = sum(
        item.elements
        for item in architecture.linears
        if item.part in ("decoder", "tower", "projector") and (experts or not item.experts)
    )
    if architecture.linears:
        return quantized
    rest = architecture.parameters - architecture.embedding_parameters
    return rest if experts else rest - architecture.expert_parameters


def read_frozen_weights(reader: Reader, architecture: Architecture, elements: int, zero_stage: int) -> FrozenWeights:
    """Return the formats of `elements` frozen elements; under ZeRO++ all of them have 8 bits if that is smaller."""
    if not elements:
        return _NOTHING
    weights = _read_loaded_weights(reader, architecture, elements)
    if zero_stage == 3 and reader.get("parallel.quantized_frozen") and weights.bytes > elements * QUANTIZED_PARTITION:
        return FrozenWeights(elements, QUANTIZED_PARTITION)
    return weights


def _read_loaded_weights(reader: Reader, architecture: Architecture, elements: int) -> FrozenWeights:
    plain = get_element_bytes(reader.get("precision.frozen") or reader.get("precision.compute") or "bf16")
    kind = reader.get("method.quantization") or "none"
    if kind == "none":
        kind = architecture.quantization if reader.get("method.quantization") is None else "none"
    if kind not in QUANTIZED_BYTES:
        if plain < 4 or reader.get("model.embeddings_fp32") is not False:
            return FrozenWeights(plain=elements, plain_bytes=plain)
        embeddings = min(elements, architecture.embedding_parameters)
        compute = get_element_bytes(reader.get("precision.compute") or "bf16")
        return FrozenWeights(fp32=elements - embeddings, plain=embeddings, plain_bytes=compute)
    each = QUANTIZED_BYTES[kind]
    unsharded = each if kind in ("gptq", "awq") else 0.0
    if kind in ("nf4", "fp4"):
        if reader.get("method.double_quantization"):
            each = DOUBLE_QUANTIZED_BYTES
        unsharded = each - 0.5
    # A checkpoint that is published quantized also has quantized experts.
    experts = bool(reader.get("method.quantized_experts")) or kind in ("fp8", "nvfp4", architecture.quantization)
    quantized = min(elements, count_quantized_elements(architecture, kind, experts))
    upcast = 0
    if reader.get("model.embeddings_fp32"):
        upcast = architecture.embedding_parameters
    if not experts and reader.get("precision.experts") == "fp32":
        upcast += architecture.expert_parameters
    upcast = min(elements - quantized, upcast)
    return FrozenWeights(quantized, each, upcast, elements - quantized - upcast, plain, unsharded)


def read_quantized_gather(reader: Reader) -> float:
    """Return the bytes per element that gathering in 8 bits needs; 0 if it is off.

    These are the 8-bit weights and, under bf16, the fp16 weights to which they are first converted.
    """
    if not reader.get("parallel.quantized_gather"):
        return 0.0
    return 3.0 if reader.get("precision.compute") == "bf16" else 1.0


def read_loaded_bytes(reader: Reader) -> float:
    """Return the bytes per element of a model that waits whole on every GPU to be sharded or cast; 0 if none does."""
    dtype = reader.get("precision.loaded")
    return 0.0 if dtype in (None, "none") else get_element_bytes(dtype)
