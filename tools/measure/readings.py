"""Readings of memory: torch's allocator, the driver, and the process."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class Readings:
    """Counters of torch's allocator and of the driver at named moments."""

    def __init__(self, dry: bool, shared: bool = False) -> None:
        import torch

        self.shared = shared
        """Other processes use the card, so that the driver's figure is not this one's."""
        self.cuda = None if dry else torch.cuda
        self.phases: dict[str, dict[str, int | None]] = {}
        if self.cuda is not None:
            self.cuda.reset_peak_memory_stats()

    def record_phase(self, phase: str) -> None:
        """The peaks since the last mark, kept where they are the highest of their phase."""
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
        """The highest of the training phases."""
        if self.cuda is None:
            return {"allocated": None, "reserved": None}
        steps = [counters for phase, counters in self.phases.items() if phase not in ("init", "save")]
        return {key: max((counters[key] or 0) for counters in steps) for key in ("allocated", "reserved")}

    def sum_blocks(self) -> dict[str, int]:
        """Bytes of live blocks by the size class that the allocator gives them."""
        if self.cuda is None:
            return {}
        sizes: dict[str, int] = {}
        for segment in self.cuda.memory_snapshot():
            for block in segment["blocks"]:
                key = f"{segment['segment_type']}-{block['state']}"
                sizes[key] = sizes.get(key, 0) + block["size"]
        return sizes

    def read_driver_usage(self) -> int | None:
        """What the card gives all processes beyond this one's reserve."""
        if self.cuda is None or self.shared:
            return None
        free, total = self.cuda.mem_get_info()
        return int(total - free - self.cuda.memory_reserved())


def read_resident() -> int:
    """Resident memory of the process, in bytes; 0 where /proc does not say."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def record_host_peak(record: dict[str, int]) -> Iterator[None]:
    """The highest resident memory during a block, sampled every 2 ms, beside what it was before."""
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
