"""Memory of ZeRO-3's streams: DeepSpeed's own engine on a scale model, replayed through torch's allocator.

The engine trains a Llama of `transformers` on a CPU in one process (see `zero_engine.py`), with every width, the tokens
and DeepSpeed's sizes divided by `SCALE` or its square. Sizes of matrices and activations thus shrink alike, and the
recorded ones are multiplied by the square of `SCALE` again. A stream is a label here: what is allocated while DeepSpeed
has selected a stream belongs to that stream's pool in the replay (`allocator.py`). Copies from the host are made as on
a GPU. What no CPU shows is how late blocks are freed that another stream still uses (`record_stream`): they are freed
at once, or `LATE` allocations later, as if the GPU ran about a layer behind the host.

As a program it takes one JSON object and prints one:  python zero_gathers.py '{"layers": 4, "live": 300000000}'
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from allocator import CachingAllocator
from zero_engine import start_deepspeed

SCALE = 32
LATE = 20
STEPS = 3
SHAPE = {"vocab": 128256, "hidden": 2048, "inner": 8192, "layers": 4, "heads": 32, "kv": 8, "tokens": 2048, "world": 8}


class Event(NamedTuple):
    """A storage that is allocated, or freed if `size` is 0."""

    serial: int
    size: int
    stream: str
    shared: bool
    """True if another stream used the storage."""


def build_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Build DeepSpeed's settings, with sizes in elements of the scale model."""
    area, hidden = SCALE * SCALE, job["hidden"]
    zero = {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": job.get("bucket", hidden * hidden) // area,
        "stage3_prefetch_bucket_size": job.get("prefetch", int(0.9 * hidden * hidden)) // area,
        "stage3_param_persistence_threshold": hidden // SCALE + 1,  # norms stay whole
        "stage3_max_live_parameters": job.get("live", 10**9) // area,
        "stage3_max_reuse_distance": job.get("live", 10**9) // area,
    }
    if job.get("offload", True):
        zero["offload_param"] = zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
        "bf16": {"enabled": True, "check_grad_overflow": False},
    }


def record(job: dict[str, Any]) -> list[Event]:
    """Record the storages of a few steps' forward and backward passes, in bytes of the whole model."""
    world = job["world"]
    start_deepspeed(world)
    import deepspeed
    import torch
    import transformers
    from deepspeed.accelerator import get_accelerator
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Stream:
        """A stream that only has a name."""

        made = 0

        def __init__(self, *_args: Any, **_keywords: Any) -> None:
            Stream.made += 1
            self.name = f"stream {Stream.made}"

        def wait_stream(self, _other: Any) -> None:
            """Do nothing."""

        def synchronize(self) -> None:
            """Do nothing."""

    class Finished:
        """A CUDA event that has always happened."""

        def record(self, *_args: Any) -> None:
            """Do nothing."""

        def query(self) -> bool:
            """Return True."""
            return True

        def synchronize(self) -> None:
            """Do nothing."""

    main = Stream()
    main.name = "main"
    selected = [main]

    @contextlib.contextmanager
    def select(stream: Stream | None) -> Iterator[None]:
        selected.append(stream or main)
        try:
            yield
        finally:
            selected.pop()

    accelerator = get_accelerator()
    type(accelerator).Stream, type(accelerator).Event = Stream, Finished
    accelerator.stream, accelerator.current_stream = select, lambda *_: selected[-1]
    accelerator.default_stream = lambda *_: main
    accelerator.is_synchronized_device = lambda: False
    accelerator.handles_memory_backpressure = accelerator.resolves_data_dependency = lambda: False
    shared: set[int] = set()
    torch.Tensor.record_stream = lambda self, _stream: shared.add(self.untyped_storage()._cdata)
    convert = torch.Tensor.to

    def convert_or_copy(self: Any, *args: Any, **keywords: Any) -> Any:
        """Copy a shard that is on the host; on a CPU, `to` would return the shard itself."""
        is_shard = hasattr(self, "ds_numel") and not hasattr(self, "ds_id")
        to_device = bool(args) and isinstance(args[0], (str, torch.device))
        return self.clone() if job.get("offload", True) and is_shard and to_device else convert(self, *args, **keywords)

    torch.Tensor.to = convert_or_copy
    events: list[Event] = []

    class Storages(TorchDispatchMode):
        """Live storages; those that exist before a pass are not recorded."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, tuple[Any, int, str]] = {}
            self.recording, self.serial = False, 0

        def drop_freed(self) -> None:
            for key in [key for key, (reference, _, _) in self.known.items() if reference.expired()]:
                _, serial, stream = self.known.pop(key)
                if serial:
                    events.append(Event(serial, 0, stream, key in shared))
                shared.discard(key)

        def see(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            if tensor.device.type != "cpu" or not storage.nbytes() or storage._cdata in self.known:
                return
            self.serial += self.recording
            stream = selected[-1].name
            self.known[storage._cdata] = (StorageWeakRef(storage), self.serial if self.recording else 0, stream)
            if self.recording:
                events.append(Event(self.serial, storage.nbytes() * SCALE * SCALE, stream, False))

        def see_all(self) -> None:
            gc.collect()
            self.drop_freed()
            for item in gc.get_objects():
                if isinstance(item, torch.Tensor):
                    self.see(item)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            self.drop_freed()
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf)
            return result

    settings = build_settings(job)
    config = transformers.LlamaConfig(
        vocab_size=job["vocab"] // SCALE, hidden_size=job["hidden"] // SCALE, intermediate_size=job["inner"] // SCALE,
        num_hidden_layers=job["layers"], num_attention_heads=job["heads"], num_key_value_heads=job["kv"],
        tie_word_embeddings=False, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model = transformers.LlamaForCausalLM(config).bfloat16()
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    engine = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)[0]
    storages = Storages()
    with storages:
        ids = torch.zeros(1, job["tokens"] // SCALE, dtype=torch.long)
        for _ in range(STEPS):
            storages.see_all()
            storages.recording = True
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            del loss
            gc.collect()
            storages.drop_freed()
            storages.recording = False
            engine.step()
    return events


def replay(events: list[Event], late: int) -> dict[str, tuple[int, int]]:
    """Return the highest allocated bytes and the reserved bytes of each stream.

    Blocks that another stream used are freed `late` allocations late.
    """
    pools = {event.stream: CachingAllocator() for event in events}
    waiting: deque[tuple[int, Event]] = deque()
    for turn, event in enumerate(events):
        while waiting and waiting[0][0] <= turn:
            freed = waiting.popleft()[1]
            pools[freed.stream].free(freed.serial)
        if event.size:
            pools[event.stream].malloc(event.serial, event.size)
        elif event.shared:
            waiting.append((turn + 2 * late, event))  # every second event frees
        else:
            pools[event.stream].free(event.serial)
    return {name: (pool.peak_allocated, pool.reserved) for name, pool in pools.items()}


def measure(job: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that all streams but the main one allocate, reserve, and reserve with blocks freed late."""
    events = record({**SHAPE, **job})
    at_once, late = (
        [figures for name, figures in replay(events, turns).items() if name != "main"] for turns in (0, LATE)
    )
    allocated, reserved = (sum(figures[index] for figures in at_once) for index in (0, 1))
    return {"allocated": allocated, "reserved": reserved, "late": sum(figures[1] for figures in late)}


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # the fake group has no other ranks
