"""Parameters of one rank under OLMo-core's tensor and pipeline parallelism: its own code on the meta device.

Prints JSON: {"whole": n, "tensor": {degree: n}, "stages": {"degree stages-per-rank": [n of each stage]}}. Needs
ai2-olmo-core 3.0.0.
"""

from __future__ import annotations

import json
from typing import Any

import torch.distributed as dist
from olmo_core.distributed.parallel.pipeline_parallel import PipelineScheduleType
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train.train_module.transformer.config import TransformerPipelineParallelConfig
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

SHAPE = {"d_model": 1024, "n_layers": 16, "n_heads": 16, "n_kv_heads": 8, "vocab_size": 32000}
"""Grouped queries; OLMo-core's rule derives the MLP's width from the hidden size."""


def build_model() -> Any:
    """Build the model on the meta device."""
    return TransformerConfig.llama_like(**SHAPE).build(init_device="meta")


def count_elements(model: Any) -> int:
    """Count the elements of this rank's parameters."""
    return sum(
        (parameter.to_local() if isinstance(parameter, DTensor) else parameter).numel()
        for parameter in model.parameters()
    )


def count_tensor_parallel(degree: int) -> int:
    """Count a rank's elements under tensor parallelism of `degree` ranks."""
    model = build_model()
    model.apply_tp(init_device_mesh("cpu", (degree,), mesh_dim_names=("tp",)))
    return count_elements(model)


def count_stage_layers(degree: int, schedule: str) -> list[int]:
    """Count the layers between the split points of a pipeline."""
    config = TransformerPipelineParallelConfig(degree=degree, schedule=PipelineScheduleType(schedule))
    points = [0, *config.get_split_points(SHAPE["n_layers"]), SHAPE["n_layers"]]
    return [after - before for before, after in zip(points, points[1:])]


if __name__ == "__main__":
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    whole = build_model()
    result = {
        "whole": count_elements(whole),
        "width": whole.blocks["0"].feed_forward.hidden_size,
        "tensor": {degree: count_tensor_parallel(degree) for degree in (8,)},
        "stages": {
            f"{degree} {name}": count_stage_layers(degree, name)
            for degree in (2, 4)
            for name in ("1F1B", "Interleaved1F1B")
        },
    }
    print(json.dumps(result))
