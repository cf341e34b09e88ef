"""Host memory of saving and loading: real runs of two ranks on a CPU, with gloo.

Each rank trains one step and then measures how much its resident memory grows at most while it builds the state dict
that a checkpoint writes (the kernel's high-water mark, reset before). On a CPU the model itself is in the same memory;
the growth is what a GPU would hand over to the host. As a program it takes a kind and prints one JSON line per rank:
python host_save.py KIND  (one of `KINDS`)
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

WIDTH = 1536
LAYERS = 64
PARAMETERS = LAYERS * WIDTH * WIDTH


def _read_status(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def measure_growth(action: Callable[[], Any]) -> int:
    """Measure by how many bytes resident memory grows at most while `action` runs and its result is alive."""
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = _read_status("VmRSS")
    result = action()
    peak = max(_read_status("VmHWM"), _read_status("VmRSS"))
    del result
    return peak - before


def _build_model(torch: Any, dtype: Any) -> Any:
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=dtype) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def measure_zero(stage: int, resumes: bool = False) -> int:
    """Measure DeepSpeed: `get_state_dict` of accelerate clones below stage 3, and gathers module by module at stage 3.

    `resumes`: load DeepSpeed's own checkpoint instead.
    """
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    deepspeed.init_distributed("gloo", verbose=False)
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 0,
            "reduce_bucket_size": 10_000_000,
        },
    }
    model = _build_model(torch, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    engine.backward(engine(torch.ones(1, WIDTH, dtype=torch.bfloat16)).sum())
    engine.step()
    if resumes:
        with tempfile.TemporaryDirectory() as scratch:
            folder = [scratch]
            torch.distributed.broadcast_object_list(folder, src=0)
            engine.save_checkpoint(folder[0], tag="a")
            torch.distributed.barrier()
            size = measure_growth(lambda: engine.load_checkpoint(folder[0], tag="a"))
            torch.distributed.barrier()
        return size
    if stage == 3:
        return measure_growth(engine._zero3_consolidated_16bit_state_dict)
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save

    return measure_growth(lambda: clone_tensors_for_torch_save(engine.module.state_dict()))


def measure_fsdp2() -> int:
    """Measure the full state dict of torch's FSDP2: fp32 weights on rank 0, as accelerate requests it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = _build_model(torch, torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.ones(1, WIDTH)).sum().backward()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=True)
    return measure_growth(lambda: get_model_state_dict(model, options=options))


def measure_deferred(version: int, reduced: str = "bfloat16") -> int:
    """Measure the gradients of a micro batch whose reduction FSDP defers, as accelerate's `no_sync` requests it.

    The shards are fp32, computed in bf16. A CPU holds them where a GPU would.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard

    dist.init_process_group("gloo")
    model, source, low = _build_model(torch, torch.float32), torch.ones(1, WIDTH), torch.bfloat16
    if version == 2:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=getattr(torch, reduced))
        for part in (*model, model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
        model.set_requires_gradient_sync(False)
        return measure_growth(lambda: model(source).sum().backward())
    precision = MixedPrecision(param_dtype=low, reduce_dtype=low)
    cpu = torch.device("cpu")
    units = [FullyShardedDataParallel(part, mixed_precision=precision, device_id=cpu) for part in model]
    model = FullyShardedDataParallel(torch.nn.Sequential(*units), mixed_precision=precision, device_id=cpu)
    with model.no_sync():
        return measure_growth(lambda: model(source).sum().backward())


def measure_file() -> int:
    """Measure the memory that safetensors needs to write a file of tensors on the host."""
    import torch
    from safetensors.torch import save_file

    tensors = {f"{index}.weight": torch.ones(WIDTH, WIDTH, dtype=torch.bfloat16) for index in range(LAYERS)}
    with tempfile.TemporaryDirectory() as folder:
        return measure_growth(lambda: save_file(tensors, os.path.join(folder, "model.safetensors")))


def measure_states() -> int:
    """Measure the optimizer's states as the HF Trainer loads them for one GPU: onto the host first."""
    import torch

    model = _build_model(torch, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimizer.pt")
        torch.save(optimizer.state_dict(), path)
        return measure_growth(lambda: torch.load(path, map_location="cpu", weights_only=True))


KINDS: dict[str, Callable[[], int]] = {
    "zero2": lambda: measure_zero(2),
    "zero3": lambda: measure_zero(3),
    "fsdp2": measure_fsdp2,
    "deferred1": lambda: measure_deferred(1),
    "deferred2": lambda: measure_deferred(2),
    "deferred2-fp32": lambda: measure_deferred(2, "float32"),
    "file": measure_file,
    "resume1": lambda: measure_zero(1, resumes=True),
    "resume2": lambda: measure_zero(2, resumes=True),
    "resume3": lambda: measure_zero(3, resumes=True),
    "states": measure_states,
}
ALONE = ("file", "states")


def main(kind: str, ranks: int) -> None:
    """Start the ranks and wait for them."""
    port = str(20_000 + os.getpid() % 20_000)
    started = []
    for rank in range(ranks):
        placed = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
            "MALLOC_MMAP_THRESHOLD_": "65536",  # freed memory goes back to the system at once
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), kind, "--rank"]
        started.append(subprocess.Popen(command, env={**os.environ, **placed}, stdout=subprocess.PIPE, text=True))
    for process in started:
        sys.stdout.write(process.communicate()[0])
    sys.exit(max(process.returncode for process in started))


if __name__ == "__main__":
    if "--rank" in sys.argv:
        size = KINDS[sys.argv[1]]()
        print("RESULT " + json.dumps({"rank": int(os.environ["RANK"]), "per_parameter": size / PARAMETERS}), flush=True)
    else:
        main(sys.argv[1], 1 if sys.argv[1] in ALONE else 2)
