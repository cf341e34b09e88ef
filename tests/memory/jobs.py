"""Plans and architectures that the tests of the memory model share."""

from __future__ import annotations

from typing import Any

from cfglint_train.memory.budget import Budget, Estimate
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.plan.fields import Plan

GIB = 2**30

BASE: dict[str, Any] = {
    "method.tuning": "full",
    "precision.params": "bf16",
    "precision.compute": "bf16",
    "precision.autocast": False,
    "precision.grads": "bf16",
    "precision.master": "none",
    "optimizer.name": "adamw",
    "optimizer.implementation": "fused",
    "batch.micro": 1,
    "batch.accumulation": 1,
    "sequence.length": 2048,
    "sequence.packing": True,
    "activations.attention": "flash",
    "activations.checkpointing": "full",
    "activations.fused_loss": "none",
    "parallel.strategy": "none",
}

ZERO: dict[str, Any] = {
    "parallel.strategy": "zero",
    "precision.master": "fp32",
    "optimizer.state_bits": 32,
    "parallel.reduce_bucket": 1_000_000,
    "parallel.reduce_scatter": False,
    "parallel.overlap_comm": False,
    "parallel.sub_group": 10**12,
    "parallel.max_live_parameters": 0,
    "launch.nodes": 1,
}


def make_plan(**changes: Any) -> Plan:
    """Build a plan for one GPU with some fields changed; `__` in a keyword is the dot of a field."""
    return Plan().replace({**BASE, **{name.replace("__", "."): value for name, value in changes.items()}})


def make_zero(stage: int, ranks: int, **changes: Any) -> Plan:
    """Build a DeepSpeed plan."""
    fields = {**BASE, **ZERO, "parallel.zero_stage": stage, "launch.gpus_per_node": ranks}
    return Plan().replace({**fields, **{name.replace("__", "."): value for name, value in changes.items()}})


def make_llama(
    parameters: int, layers: int, hidden: int, heads: int, kv: int, intermediate: int, vocab: int, tied: bool = False
) -> Architecture:
    """Build a Llama with a published number of parameters."""
    head = hidden // heads
    linears = (
        Linear("q_proj", hidden, hidden, layers),
        Linear("k_proj", hidden, kv * head, layers),
        Linear("v_proj", hidden, kv * head, layers),
        Linear("o_proj", hidden, hidden, layers),
        Linear("gate_proj", hidden, intermediate, layers),
        Linear("up_proj", hidden, intermediate, layers),
        Linear("down_proj", intermediate, hidden, layers),
        Linear("lm_head", hidden, vocab, 1, "head"),
        Linear("embed_tokens", hidden, vocab, 1, "embedding"),
    )
    return Architecture(
        "a llama", "llama", layers, hidden, vocab, heads, kv, head, intermediate, tied, parameters, 9 * layers + 3,
        vocab * hidden, (parameters - vocab * hidden * (1 if tied else 2)) // layers, linears=linears,
    )  # fmt: skip


LLAMA_3B = make_llama(3_212_749_824, 28, 3072, 24, 8, 8192, 128256, tied=True)
LLAMA_8B = make_llama(8_030_261_248, 32, 4096, 32, 8, 14336, 128256)


def make_states_only(parameters: int) -> Architecture:
    """Build a model with negligible activations: a small vocabulary and hidden size."""
    return make_llama(parameters, 2, 64, 4, 4, 128, 64)._replace(largest_tensor=4096, layer_parameters=parameters // 3)


def get_gpu(estimate: Estimate, phase: str) -> Budget:
    """Return the GPU budget of a phase."""
    phase_ = estimate.find_phase(phase)
    assert phase_ is not None, (phase, estimate.missing)
    assert phase_.gpu is not None
    return phase_.gpu


def sum_parts(budget: Budget, *names: str) -> int:
    """Sum the bytes of the named components."""
    return sum(size for component, size in budget.sizes if component.name in names)
