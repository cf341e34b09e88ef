"""DeepSpeed's own engine on a CPU, for any number of ranks in one process: bytes that one rank holds.

torch's "fake" process group replaces the other ranks: its collectives move nothing, so sizes are right and values are
not; clipping and overflow checks are off. Sizes are those of live storages, which would be the allocated bytes on a
GPU; with offload the engine's host buffers are recognised because they are pinned. As a program it takes one JSON
object and prints one:  python zero_engine.py '{"world": 8, "stage": 2, "settings": {...}}'
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

WIDTH = 512
LAYERS = 8
PARAMETERS = LAYERS * WIDTH * WIDTH


def build_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Build DeepSpeed's settings: small buckets, no prefetch, and the job's own settings."""
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": job.get("accumulation", 1),
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": job["stage"],
            "reduce_bucket_size": 1000,
            "reduce_scatter": False,
            "overlap_comm": False,
            "stage3_max_live_parameters": 0,
            "stage3_prefetch_bucket_size": 0,
            "stage3_param_persistence_threshold": 0,
            "sub_group_size": 10**12,
            **job.get("zero", {}),
        },
    }
    if not job.get("fp32"):
        settings["bf16"] = {"enabled": True, "check_grad_overflow": False, **job.get("bf16", {})}
    return {**settings, **job.get("settings", {})}


def start_deepspeed(world: int) -> None:
    """Import DeepSpeed and start it as rank 0 of `world` on a CPU; the process group is fake."""
    os.environ.update(
        DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="29999",
    )  # fmt: skip
    import torch._dynamo  # noqa: F401 (zero.Init patches Tensor.__new__, which breaks a later import)
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    import deepspeed

    # The shared-memory communicator waits for ranks that do not exist.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed(dist_backend="fake", dist_init_required=False, verbose=False)


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Measure the bytes per parameter of one rank: between steps, after the backward pass, and at the peaks."""
    world = job["world"]
    start_deepspeed(world)
    import deepspeed
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class LiveStorages(TorchDispatchMode):
        """Live storages and their highest total."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, tuple[Any, int]] = {}
            self.peak = 0

        def see(self, tensor: Any) -> None:
            if tensor.device.type != "cpu":  # the engine keeps shapes as meta tensors
                return
            storage = tensor.untyped_storage()
            if storage.nbytes() and (storage._cdata not in self.known or self.known[storage._cdata][0].expired()):
                self.known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

        def total(self) -> int:
            for key in [key for key, (reference, _) in self.known.items() if reference.expired()]:
                del self.known[key]
            return sum(size for _, size in self.known.values())

        def everything(self) -> None:
            for item in gc.get_objects():
                if isinstance(item, torch.Tensor):
                    self.see(item)
                    if item.is_leaf and item.grad is not None:
                        self.see(item.grad)

        def lap(self) -> int:
            peak, self.peak = max(self.peak, self.total()), self.total()
            return peak

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
            self.peak = max(self.peak, self.total())
            return result

    def build_model() -> Any:
        return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])

    settings = build_settings(job)
    live = LiveStorages()
    with live:
        if job["stage"] == 3:
            with deepspeed.zero.Init(config_dict_or_path=settings):
                built = build_model()
        else:
            built = build_model() if job.get("fp32") else build_model().bfloat16()
        choice = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}
        optimizer = torch.optim.AdamW(built.parameters(), lr=1e-4, **choice[job.get("optimizer", "fused")])
        engine = deepspeed.initialize(model=built, config=settings, optimizer=optimizer)[0]
        gc.collect()
        live.everything()
        sizes: dict[str, float] = {}
        rows = torch.randn(1, WIDTH, dtype=torch.float32 if job.get("fp32") else torch.bfloat16)
        for _ in range(3):
            for _ in range(job.get("accumulation", 1)):
                loss = engine(rows).float().sum()
                live.lap()
                engine.backward(loss)
                del loss
                gc.collect()
                live.everything()
                sizes["backward"], sizes["after backward"] = live.lap(), live.total()
                engine.step()
            gc.collect()
            sizes["step"], sizes["steady"] = live.lap(), live.total()
    return {name: size / PARAMETERS for name, size in sizes.items()}


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # the fake group has no other ranks
