"""Memory readings from torch's allocator, the driver and the process, in bytes."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class Readings:
    """Counters of torch's allocator by phase, and of the driver; None in a dry run."""

    def __init__(self, dry: bool, shared: bool = False) -> None:
        """Reset the allocator's peak counters, except in a dry run."""
        import torch

        self.shared = shared
        """True if other processes use the GPU, so that the driver's figure includes their memory."""
        self.cuda = None if dry else torch.cuda
        self.phases: dict[str, dict[str, int | None]] = {}
        if self.cuda is not None:
            self.cuda.reset_peak_memory_stats()

    def record_phase(self, phase: str) -> None:
        """Record the peaks since the last call if they are the highest of the phase, and the memory in use now."""
        if self.cuda is None:
            self.phases.setdefault(phase, {"allocated": None, "reserved": None, "now": None})
            return
        self.cuda.synchronize()
        counters = self.phases.setdefault(phase, {"allocated": 0, "reserved": 0, "now": 0})
        counters["allocated"] = max(counters["allocated"] or 0, self.cuda.max_memory_allocated())
        counters["reserved"] = max(counters["reserved"] or 0, self.cuda.max_memory_reserved())
        counters["now"] = self.cuda.memory_allocated()
        self.cuda.reset_peak_memory_stats()

    def find_peak(self) -> dict[str, int | None]:
        """Return the highest peaks of all phases except `init` and `save`."""
        if self.cuda is None:
            return {"allocated": None, "reserved": None}
        steps = [counters for phase, counters in self.phases.items() if phase not in ("init", "save")]
        return {key: max((counters[key] or 0) for counters in steps) for key in ("allocated", "reserved")}

    def sum_blocks(self) -> dict[str, int]:
        """Return the total bytes of the allocator's blocks by segment type (small, large) and state."""
        if self.cuda is None:
            return {}
        sizes: dict[str, int] = {}
        for segment in self.cuda.memory_snapshot():
            for block in segment["blocks"]:
                key = f"{segment['segment_type']}-{block['state']}"
                sizes[key] = sizes.get(key, 0) + block["size"]
        return sizes

    def read_driver_usage(self) -> int | None:
        """Return the GPU memory in use beyond the allocator's reserve, or None in a dry run or on a shared GPU."""
        if self.cuda is None or self.shared:
            return None
        free, total = self.cuda.mem_get_info()
        return int(total - free - self.cuda.memory_reserved())


def read_resident() -> int:
    """Return the resident memory of the process in bytes, or 0 if /proc does not provide it."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def record_host_peak(record: dict[str, int]) -> Iterator[None]:
    """Record resident memory before a `with` block and its peak during the block, sampled every 2 ms."""
    gc.collect()
    record["before"] = record["peak"] = read_resident()
    is_done = threading.Event()

    def update_peak() -> None:
        while not is_done.wait(0.002):
            record["peak"] = max(record["peak"], read_resident())

    thread = threading.Thread(target=update_peak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
        record["peak"] = max(record["peak"], read_resident())
