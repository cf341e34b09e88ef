"""Memory that torch reserves beyond what it allocates: real steps replayed through the allocator (`allocator.py`).

A step of transformers' own code runs on fake tensors (`step_trace.py`). The order in which its storages are allocated
and freed is replayed through a model of the caching allocator, three steps in a row; the first creates the optimizer's
states, as on a GPU. With `lengths` every step has another length, drawn uniformly from 128 to the row's sequence
length; sizes in between are interpolated, because every storage grows with the tokens. As a program it prints the rows
of `ROWS` as JSON lines: python reserve_rows.py [ID ...]
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from allocator import CachingAllocator, OutOfMemoryError

GIB = 2**30
Events = list[tuple[int, int]]

# Vocabulary, hidden, intermediate, layers, heads, key heads.
SHAPES: dict[str, tuple[int, int, int, int, int, int]] = {
    "llama3.2-1b": (128256, 2048, 8192, 16, 32, 8),
    "llama2-7b": (32000, 4096, 11008, 32, 32, 32),
    "mistral-7b": (32768, 4096, 14336, 32, 32, 8),
    "qwen-1.8b": (151936, 2048, 5504, 24, 16, 16),
    "llama3.1-8b": (128256, 4096, 14336, 32, 32, 8),
}
MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "full-checkpointed": {"checkpointing": True},
    "amp": {"precision": "amp"},
    "amp-checkpointed": {"precision": "amp", "checkpointing": True},
    "lora": {"lora": 16, "precision": "amp_bf16w"},
    "lora-checkpointed": {"lora": 16, "precision": "amp_bf16w", "checkpointing": True},
    "foreach-checkpointed": {"checkpointing": True, "precision": "amp_bf16w", "optimizer": "foreach"},
}


class Row(NamedTuple):
    """One replay."""

    shape: str
    mode: str
    sequence: int
    micro: int = 1
    lengths: int = 0
    """Number of steps of different lengths; 0 means three steps of one length."""
    seed: int = 0

    @property
    def id(self) -> str:
        varying = f"-{self.lengths}lengths-{self.seed}" if self.lengths else ""
        return f"replay-{self.shape}-{self.mode}-{self.sequence}x{self.micro}{varying}"


ROWS = [
    *(Row(shape, mode, length, micro) for shape in SHAPES for mode in MODES for length, micro in ((512, 1), (2048, 4))),
    *(
        Row(shape, mode, length, 1, 120, seed)
        for shape, mode in (
            ("qwen-1.8b", "lora-checkpointed"),
            ("llama2-7b", "lora-checkpointed"),
            ("llama3.2-1b", "lora"),
            ("llama3.2-1b", "full"),
        )
        for length in (2048,)
        for seed in range(3)
    ),
    *(Row("llama3.1-8b", "full", length) for length in (1024, 2048, 4095, 4096)),
]


class StepRecorder:
    """A model whose steps are recorded."""

    def __init__(self, row: Row) -> None:
        import step_trace
        import torch
        import torch.optim.adam as adam
        from torch._subclasses.fake_tensor import FakeTensorMode

        step_trace.install_fake_cuda()
        adam._get_value = lambda value: 1.0 if isinstance(value, torch.Tensor) else value
        vocab, hidden, intermediate, layers, heads, keys = SHAPES[row.shape]
        config = {
            "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": keys, "max_position_embeddings": 8192,
        }  # fmt: skip
        self.case = step_trace.Case("llama", config, row.sequence, row.micro, **MODES[row.mode])
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.tracker = step_trace.LiveStorages(False)
        weight_dtype = {"bf16": torch.bfloat16, "amp_bf16w": torch.bfloat16, "amp": torch.float32}[self.case.precision]
        with self.fake:
            model = step_trace._build(self.case, weight_dtype)
            if self.case.lora:
                model = step_trace._adapt(self.case, model)
            if self.case.checkpointing:
                keywords = {"use_reentrant": False, "preserve_rng_state": False}
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
                if self.case.lora:
                    model.enable_input_require_grads()
            self.model = model.train()
            self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            choice = {"fused": {"fused": True}, "foreach": {"foreach": True}}[self.case.optimizer]
            self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, **choice)
            for tensor in (*model.parameters(), *model.buffers()):
                self.tracker.add(tensor, "held")

    def run_step(self, length: int) -> None:
        """Run one step of `length` tokens per sequence and record it in the tracker's events."""
        import torch

        amp = self.case.precision.startswith("amp")
        with self.fake, self.tracker:
            ids = torch.zeros(self.case.micro, length, dtype=torch.long, device="cuda")
            with torch.autocast("cuda", torch.bfloat16) if amp else contextlib.nullcontext():
                out = self.model(input_ids=ids, labels=ids, use_cache=False)
            loss = out.loss
            del out
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, 1.0, foreach=True)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            del ids, loss


def replay(allocator: CachingAllocator, events: Events, prefix: object) -> None:
    """Replay recorded events; storages that no event frees stay allocated."""
    for serial, size in events:
        name = (prefix, serial)
        if size:
            allocator.malloc(name, size)
        elif name in allocator:
            allocator.free(name)


def replay_fixed(row: Row) -> dict[str, Any]:
    """Replay three steps of one length."""
    recorder = StepRecorder(row)
    for _ in range(3):
        recorder.run_step(row.sequence)

    def run(capacity: int | None) -> CachingAllocator:
        allocator = CachingAllocator(capacity)
        replay(allocator, recorder.tracker.events, 0)
        return allocator

    return {"id": row.id, **compute_figures(run)}


def compute_figures(run: Callable[[int | None], CachingAllocator]) -> dict[str, Any]:
    """Measure what `run` allocates and reserves on an unlimited card, and the smallest card on which it runs.

    Shares are relative to the transient memory: the peak minus what lasts between steps.
    """
    free = run(None)
    low, high = free.peak_allocated, free.peak_reserved
    while high - low > 2**26:
        middle = (low + high) // 2
        try:
            run(middle)
            high = middle
        except OutOfMemoryError:
            low = middle
    moving = free.peak_allocated - free.allocated
    return {
        "lasting": free.allocated, "allocated": free.peak_allocated, "reserved": free.peak_reserved, "needed": high,
        "share": round((free.peak_reserved - free.peak_allocated) / moving, 4),
        "needed_share": round((high - free.peak_allocated) / moving, 4),
    }  # fmt: skip


def replay_varying(row: Row, cache: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """Replay steps of many lengths and return the reserved bytes and the smallest card on which all of them run."""
    key = row.shape, row.mode
    if key not in cache:
        recorder = StepRecorder(row)
        recorder.run_step(1024)  # creates the optimizer's states
        start = len(recorder.tracker.events)
        marks = []
        for length in (1024, 2048):
            recorder.run_step(length)
            marks.append(len(recorder.tracker.events))
        short, long = recorder.tracker.events[start : marks[0]], recorder.tracker.events[marks[0] : marks[1]]
        cache[key] = recorder.tracker.events[:start], short, long
    initial, short, long = cache[key]
    first = {serial: index for index, (serial, size) in enumerate(short) if size}
    second = {index: serial for index, (serial, size) in enumerate(long) if size}
    same = {first[serial]: serial for serial in first}
    pairs = {serial: (size, long[index][1]) for index, serial in same.items() for size in (short[index][1],)}
    assert len(short) == len(long)
    assert sorted(same) == sorted(second)

    def interpolate_events(length: int) -> Events:
        share = (length - 1024) / 1024
        interpolated: Events = []
        for serial, size in short:
            sizes = pairs.get(serial)
            if sizes is None or max(sizes) < 2**18:
                continue
            interpolated.append((serial, int(sizes[0] + share * (sizes[1] - sizes[0])) if size else 0))
        return interpolated

    draw = random.Random(row.seed)
    lengths = [draw.randint(128, row.sequence) for _ in range(row.lengths)]

    def run(capacity: int | None) -> CachingAllocator:
        allocator = CachingAllocator(capacity)
        replay(allocator, initial, "held")
        for turn, length in enumerate(lengths):
            replay(allocator, interpolate_events(length), turn)
        return allocator

    return {"id": row.id, **compute_figures(run)}


def main(requested: list[str]) -> None:
    """Print the requested rows (all by default)."""
    cache: dict[tuple[str, str], Any] = {}
    for row in ROWS:
        if not requested or any(name in row.id for name in requested):
            print(json.dumps(replay_varying(row, cache) if row.lengths else replay_fixed(row)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
