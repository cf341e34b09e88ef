"""A model of torch's CUDA caching allocator: the segments that it requests from the driver.

Written from c10/cuda/CUDACachingAllocator.cpp (torch 2.13), default settings: sizes are rounded up to 512 bytes; up to
1 MiB they come from segments of 2 MiB, below 10 MiB from segments of 20 MiB, above from segments of their own, rounded
up to 2 MiB; the smallest free block that is large enough serves a request and is split if enough is left; neighbouring
blocks of a segment are merged when both are free; every stream has its own pools. When the driver has no more memory,
segments that are entirely free are given back first.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable

MIB = 2**20
SMALL = MIB


class OutOfMemoryError(Exception):
    """Request that the card cannot serve even after all cached segments are given back."""


class _Block:
    __slots__ = ("after", "before", "key", "pool", "size")

    def __init__(self, size: int, pool: tuple[bool, Hashable]) -> None:
        self.size = size
        self.pool = pool
        self.before: _Block | None = None
        self.after: _Block | None = None
        self.key: tuple[int, int] | None = None
        """Position among the free blocks, or None while the block is allocated."""


class CachingAllocator:
    """An allocator whose allocations have names; all amounts are bytes."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.reserved = self.allocated = 0
        self.peak_reserved = self.peak_allocated = 0
        self.retries = 0
        """Number of times that cached segments had to be given back."""
        self._serial = 0
        self._live: dict[Hashable, _Block] = {}
        self._free: dict[tuple[bool, Hashable], list[tuple[int, int, _Block]]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._live

    def malloc(self, name: Hashable, size: int, stream: Hashable = 0) -> None:
        """Allocate `size` bytes under `name`.

        Raise OutOfMemoryError if the card has no room.
        """
        size = max(512, -(-size // 512) * 512)
        pool = (size <= SMALL, stream)
        free = self._free.setdefault(pool, [])
        index = bisect.bisect_left(free, (size,))
        if index < len(free):
            block = free.pop(index)[2]
            block.key = None
        else:
            block = _Block(self._reserve_segment(size), pool)
        surplus = block.size - size
        if surplus >= 512 if pool[0] else surplus > SMALL:
            remainder = _Block(surplus, pool)
            remainder.before, remainder.after = block, block.after
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, size
            self._release(remainder)
        self._live[name] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def free(self, name: Hashable) -> None:
        """Free the block of `name`.

        Raise KeyError if the name is not allocated.
        """
        block = self._live.pop(name)
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is None or neighbour.key is None:
                continue
            self._take(neighbour)
            block.size += neighbour.size
            if neighbour is block.before:
                block.before = neighbour.before
                if block.before is not None:
                    block.before.after = block
            else:
                block.after = neighbour.after
                if block.after is not None:
                    block.after.before = block
        self._release(block)

    def _reserve_segment(self, size: int) -> int:
        segment_size = 2 * MIB if size <= SMALL else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.capacity is not None and self.reserved + segment_size > self.capacity:
            self.retries += 1
            self._empty_cache()
            if self.reserved + segment_size > self.capacity:
                raise OutOfMemoryError(f"{segment_size} bytes beside {self.reserved} of {self.capacity}")
        self.reserved += segment_size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return segment_size

    def _empty_cache(self) -> None:
        for free in self._free.values():
            for entry in [entry for entry in free if entry[2].before is None and entry[2].after is None]:
                free.remove(entry)
                self.reserved -= entry[0]

    def _release(self, block: _Block) -> None:
        self._serial += 1
        block.key = (block.size, self._serial)
        bisect.insort(self._free.setdefault(block.pool, []), (*block.key, block))

    def _take(self, block: _Block) -> None:
        free = self._free[block.pool]
        assert block.key is not None
        free.pop(bisect.bisect_left(free, block.key))
        block.key = None
