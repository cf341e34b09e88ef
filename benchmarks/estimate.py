"""Measure the time of one estimate: python benchmarks/estimate.py [REPEATS].

Prints microseconds per estimate: for the first one of a job, whose layers are recorded anew, and for the following
ones, which is the cost of a search over batches. Within a round, every estimate has a different micro batch or length,
so that data derived once per job is reused but results are not. The target is 120 microseconds for the following
estimates, on an idle machine.
"""

from __future__ import annotations

import sys
import time

from cfglint_train.memory import activations, logits, setup_builder
from cfglint_train.memory.estimate import estimate
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.plan.fields import Plan

SHAPE = Architecture(
    "Llama-3.1-8B", "llama", 32, 4096, 128256, 32, 8, 128, 14336, False, 8_030_261_248, 291, 525336576, 218_112_000,
    linears=(
        Linear("q_proj", 4096, 4096, 32), Linear("k_proj", 4096, 1024, 32), Linear("v_proj", 4096, 1024, 32),
        Linear("o_proj", 4096, 4096, 32), Linear("gate_proj", 4096, 14336, 32), Linear("up_proj", 4096, 14336, 32),
        Linear("down_proj", 14336, 4096, 32), Linear("lm_head", 4096, 128256, 1, "head"),
    ),
)  # fmt: skip

COMMON = {
    "precision.compute": "bf16",
    "optimizer.name": "adamw",
    "optimizer.implementation": "fused",
    "batch.accumulation": 4,
    "batch.eval_micro": 1,
    "sequence.length": 4096,
    "activations.attention": "flash",
    "activations.checkpointing": "full",
    "activations.fused_loss": "none",
    "checkpoint.strategy": "steps",
    "checkpoint.gather": True,
    "launch.nodes": 4,
    "launch.gpus_per_node": 8,
}
ZERO = {
    "method.tuning": "full",
    "precision.params": "bf16",
    "precision.master": "fp32",
    "optimizer.state_bits": 32,
    "parallel.strategy": "zero",
    "parallel.zero_stage": 3,
    "parallel.reduce_bucket": 16_777_216,
}
LORA = {
    "method.tuning": "lora",
    "method.lora_rank": 16,
    "method.lora_targets": ("all-linear",),
    "precision.adapter": "fp32",
    "precision.params": "fp32",
    "precision.autocast": True,
    "parallel.strategy": "ddp",
}


# Estimates per timed round. The best of many short rounds excludes other load on the machine.
ROUND = 20


def main(repeats: int) -> None:
    """Print the times for a ZeRO-3 job and a LoRA job."""
    for name, fields in (("ZeRO-3", ZERO), ("LoRA", LORA)):
        plan = Plan().replace({**COMMON, **fields})
        plans = [
            plan.replace({"batch.micro": micro, "sequence.length": length})
            for micro in (1, 2, 4, 8)
            for length in range(1024, 8193, 1024)
        ]
        firsts = []
        for _ in range(20):
            activations.build_stack.cache_clear()
            logits.compute_head_cost.cache_clear()
            setup_builder.build_job.cache_clear()
            start = time.perf_counter()
            estimate(plans[0], SHAPE, None)
            firsts.append(time.perf_counter() - start)
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            for turn in range(ROUND):
                estimate(plans[turn % len(plans)], SHAPE, None)
            best = min(best, (time.perf_counter() - start) / ROUND)
        print(f"{name:8s} first {min(firsts) * 1e6:7.1f} us, then {best * 1e6:6.1f} us")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
