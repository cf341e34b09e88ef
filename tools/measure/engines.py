"""Engines: train a model on one GPU, or under DDP, FSDP2 or ZeRO."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .cases import Case
from .models import build_optimizer


class Engine(NamedTuple):
    """The operations of a training loop for a model under a strategy."""

    forward: Callable[[dict[str, Any]], Any]
    backward: Callable[[Any], None]
    update: Callable[[], None]
    save: Callable[[str], None]


def build_engine(case: Case, model: Any, dry: bool) -> Engine:
    """Return the engine that trains a model under the case's strategy, wrapped or sharded as needed."""
    import torch

    device = "cpu" if dry else "cuda"
    amp = torch.autocast(device, torch.bfloat16) if case.precision.startswith("amp") else contextlib.nullcontext()

    def forward(inputs: dict[str, Any]) -> Any:
        with amp:
            return wrapped(**inputs, use_cache=False).loss

    if case.strategy.startswith("zero"):
        return _build_deepspeed(case, model, dry)
    wrapped: Any = torch.compile(model) if case.compiled else model
    if case.strategy == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    elif case.strategy == "fsdp2":
        wrapped = _shard_fully(model, device)
    trainable = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    optimizer = build_optimizer(case, trainable, dry)

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def save(folder: str) -> None:
        if case.strategy == "fsdp2":
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            torch.save(get_model_state_dict(wrapped, options=options), os.path.join(folder, "model.pt"))
        else:
            model.save_pretrained(folder)
        torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))

    return Engine(forward, lambda loss: loss.backward(), update, save)


def _shard_fully(model: Any, device: str) -> Any:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def _build_deepspeed(case: Case, model: Any, dry: bool) -> Engine:
    if dry:
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    deepspeed.init_distributed("gloo" if dry else "nccl")
    zero: dict[str, Any] = {"stage": int(case.strategy[-1]), "reduce_bucket_size": 16_777_216 if not dry else 10_000}
    if case.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if zero["stage"] == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    settings = {
        "train_micro_batch_size_per_gpu": case.micro, "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": 1.0, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero,
    }  # fmt: skip
    optimizer = build_optimizer(case._replace(optimizer="foreach" if case.offload else case.optimizer),
                              list(model.parameters()), dry)  # fmt: skip
    engine = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)[0]

    def save(folder: str) -> None:
        engine.save_16bit_model(folder)
        engine.save_checkpoint(folder)

    return Engine(lambda inputs: engine(**inputs, use_cache=False).loss, engine.backward, engine.step, save)


def start_distributed(dry: bool) -> None:
    """Join the launcher's process group, or create a group of one process if there is no launcher."""
    import torch
    import torch.distributed as dist

    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"),
                        ("MASTER_PORT", "29511")):  # fmt: skip
        os.environ.setdefault(name, value)
    if not dry:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        dist.init_process_group("gloo" if dry else "nccl")
