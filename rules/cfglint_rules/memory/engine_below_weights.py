"""MEM008 engine-below-weights: the inference engine gets too little GPU memory for its weights.

## What it does
Compares the model's 16-bit weights on each GPU of an engine with the share of GPU memory that the engine may use.

## Why is this bad?
The engine loads its weights and has no memory left for its cache. It stops with "No available memory for the cache
blocks" before the first rollout. Usually the share was chosen for a smaller model or a larger GPU.

## Example
    # cfglint: gpu=H100
    --actor.model_name_or_path Qwen/Qwen2.5-32B --vllm.tensor_parallel_size 1 --vllm.gpu_memory_utilization 0.5

## Use instead
    --actor.model_name_or_path Qwen/Qwen2.5-32B --vllm.tensor_parallel_size 4 --vllm.gpu_memory_utilization 0.5

## When it does not apply
Silent for models published with fewer than 16 bits per weight, for unknown models, and for engines started by another
program.

## References
OpenRLHF 0.11.2 `cli/train_ppo_ray.py` (create_vllm_engines: the actor's model); vLLM `v1/core/kv_cache_utils.py`
(_check_enough_kv_cache_memory); docs/memory/states.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.rollout import BYTES_PER_WEIGHT, compute_engine_weights
from cfglint_train.runs.run import Run

RULE: Final = Rule("MEM008", "engine-below-weights", "error", needs={"rollout.engine": ("vllm",)}, estimates=("gpu",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the engine's share of each GPU is smaller than its weights."""
    rollout, model, gpu_bytes = run.plan.rollout, run.architecture, run.hardware.gpu_bytes
    needed = compute_engine_weights(run.plan, model)
    if needed is None or model is None or gpu_bytes is None or not rollout.utilization:
        return
    engine_bytes = rollout.utilization * gpu_bytes
    if needed <= engine_bytes:
        return
    weight_size, tensor = format_gib(int(needed)), run.spell_key("rollout.tensor")
    weight_bytes = model.parameters * BYTES_PER_WEIGHT
    min_tensor_size = next(
        (2**n for n in range(1, 7) if weight_bytes / 2**n < engine_bytes and model.heads % 2**n == 0), None
    )
    yield Report(
        f"the engine's weights need {weight_size} per GPU, but `{run.spell_key('rollout.utilization')}` of "
        f"{rollout.utilization:g} allows {format_gib(int(engine_bytes))}: the engine does not start",
        run.find_place("rollout.utilization", "rollout.tensor", "rollout.engine"),
        help=f"set `{tensor}` to {min_tensor_size} or more, or give the engine a larger share of each GPU"
        if min_tensor_size
        else "give the engine a larger share of each GPU",
        notes=(f"{model.parameters:,} parameters x {BYTES_PER_WEIGHT} B / {tensor} {rollout.tensor}",)
        if (rollout.expert or 1) <= (rollout.tensor or 1)
        else (
            f"{model.expert_parameters:,} parameters of experts x {BYTES_PER_WEIGHT} B / "
            f"{run.spell_key('rollout.expert')} {rollout.expert}",
        ),
    )
