"""Tracebacks: the phase and the kind of tensor for functions of torch, DeepSpeed, transformers and others.

`stacks.json` has the stack of every large allocation in real training steps, with its tensor; it is written by
`tests/oracles/allocation_stacks.py`.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from cfglint_train.postmortem.messages import read_log
from cfglint_train.postmortem.tracebacks import Place, locate_allocation
from tests.postmortem.logs import HERE, format_frames

STAGE_1_AND_2, STAGE_3 = "deepspeed/runtime/zero/stage_1_and_2.py", "deepspeed/runtime/zero/stage3.py"
TRAINER, FUNCTIONAL = "transformers/trainer.py", "bitsandbytes/functional.py"
ADAM, QUANTIZER = "torch/optim/adam.py", "transformers/quantizers/quantizer_bnb_4bit.py"
SETUP = ["deepspeed/runtime/engine.py", "_configure_zero_optimizer", ""]
FORWARD = [TRAINER, "compute_loss", ""]
TENSORS = "transformers/trainer_pt_utils.py"
DEQUANTIZE = ["bitsandbytes/autograd/_functions.py", "forward", ""]


def locate(frames: list[list[str]]) -> Place:
    """Return the place of a log's only failure, whose traceback has these frames."""
    lines = [*format_frames(frames), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    (failure,) = read_log(["\n".join(lines)])
    return locate_allocation(failure.message.frames)


@pytest.mark.parametrize(
    ("phase", "part", "frames"),
    [
        ("load", "master", [SETUP, [STAGE_3, "_create_fp32_partitions", ""]]),
        ("load", "weights", [SETUP, [STAGE_1_AND_2, "flatten_dense_tensors_aligned", ""]]),
        ("optimizer step", None, [[STAGE_1_AND_2, "step", ""], [STAGE_1_AND_2, "flatten_dense_tensors_aligned", ""]]),
        ("load", None, [SETUP, [STAGE_1_AND_2, "initialize_optimizer_states", ""]]),
        ("load", "optimizer", [SETUP, [STAGE_3, "initialize_optimizer_states", ""], [ADAM, "_init_group", ""]]),
        ("load", "weights", [[QUANTIZER, "create_quantized_param", ""], [FUNCTIONAL, "quantize_4bit", ""]]),
        ("forward", "layer", [FORWARD, DEQUANTIZE, [FUNCTIONAL, "dequantize_4bit", ""]]),
        ("save", "weights", [[TRAINER, "_save_checkpoint", ""], ["torch/nn/modules/module.py", "state_dict", ""]]),
        ("save", "gathered", [[TRAINER, "save_model", ""], ["torch/distributed/fsdp/_flat_param.py", "unshard", ""]]),
        ("save", None, [[TRAINER, "_save_checkpoint", ""]]),
        ("load", "weights", [["trl/trainer/dpo_trainer.py", "__init__", ""], [TRAINER, "__init__", ""]]),
        ("resume", None, [[TRAINER, "_load_optimizer_and_scheduler", ""], ["torch/serialization.py", "load", ""]]),
        ("eval", "logits", [[TRAINER, "evaluation_loop", ""], [TENSORS, "nested_concat", ""]]),
        ("rollout", "sent", [["trl/trainer/grpo_trainer.py", "_move_model_to_vllm", ""]]),
        ("rollout", "engine", [["vllm/worker/worker.py", "initialize_cache", ""]]),
    ],
)  # fmt: skip
def test_the_innermost_function_decides(phase, part, frames):
    assert locate(frames)[:2] == (phase, part)


def test_no_allocation_of_a_real_step_is_named_wrong():
    recorded = json.loads((HERE / "stacks.json").read_text(encoding="utf-8"))
    results = Counter[str]()
    for row in recorded["allocations"]:
        frames = [recorded["frames"][number] for number in row["frames"]]
        place = locate(frames)
        assert place.phase in (row["phase"], None), frames
        assert place.part in (row["part"], None), (row, frames[-3:])
        ends_in_engine = frames[-1][1] == "_engine_run_backward"
        results["named" if place.part else "ends in torch's C++ engine" if ends_in_engine else "not named"] += 1
    assert results == {"named": 330, "ends in torch's C++ engine": 17, "not named": 2}
