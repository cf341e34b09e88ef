"""Process pool: share work among copies of this process.

A copy (`fork`) has everything that was imported and read so far. A new interpreter would have to repeat that, which
costs more than the lint itself. Without `fork`, nothing is shared.

Neighbouring items are assigned together (files of one folder often train one model, whose layers are then computed
once). A process that has finished a block takes the next one, so that no process waits for another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from cfglint_train.foundation.typed import Any, Final, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_MIN_BLOCK: Final = 8
"""Minimum number of items in a block."""
_BLOCKS_PER_PROCESS: Final = 32
"""Blocks per process: more blocks separate more neighbours, fewer make processes wait for each other at the end."""
_MAX_BLOCKS: Final = 1024
"""Limit of the block numbers that fit into a pipe before they are read, on every system."""
_WIDTH: Final = 4
"""Bytes of a block number in the pipe."""


def can_copy() -> bool:
    """Return whether the system can copy a process."""
    return hasattr(os, "fork")


def count_processors() -> int:
    """Return the number of processes that can work at once; 1 if processes cannot be copied."""
    if not can_copy() or sys.platform == "darwin":
        return 1  # a forked Python on macOS may crash in system libraries
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gather(work: Callable[[Iterator[Item]], Outcome], items: Sequence[Item], processes: int) -> list[Outcome]:
    """Gather the outcomes of all processes: this process first, then its copies.

    `work` has to consume its iterator. Outcomes of copies are pickled. An exception in a copy is raised here. The
    blocks of a copy that died are done here, as one more outcome.
    """
    import pickle

    size = max(_MIN_BLOCK, len(items) // (_BLOCKS_PER_PROCESS * processes), -(-len(items) // _MAX_BLOCKS))
    blocks = [items[start : start + size] for start in range(0, len(items), size)]
    queue = _fill_queue(len(blocks))
    copies = [_start_copy(work, blocks, queue, pickle.dumps) for _ in range(processes - 1)]
    done_blocks: set[int] = set()
    try:
        outcomes = [work(_take_items(blocks, queue, done_blocks))]
    finally:
        answers = [_read_answer(*copy) for copy in copies]
        os.close(queue)
    for answer in filter(None, answers):
        block_numbers, outcome, error = pickle.loads(answer)
        if error is not None:
            raise error
        outcomes.append(outcome)
        done_blocks |= block_numbers
    lost = [item for number, block in enumerate(blocks) if number not in done_blocks for item in block]
    return [*outcomes, work(iter(lost))] if lost else outcomes


def _fill_queue(count: int) -> int:
    """Fill a pipe with the numbers of all blocks and return its reading end."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(_WIDTH, "big") for number in range(count)))
    os.close(writing)
    return reading


def _take_items(blocks: Sequence[Sequence[Item]], queue: int, block_numbers: set[int]) -> Iterator[Item]:
    """Yield the items of the blocks that this process takes, and add their numbers to `block_numbers`."""
    while number := os.read(queue, _WIDTH):
        at = int.from_bytes(number, "big")
        block_numbers.add(at)
        yield from blocks[at]


def _start_copy(
    work: Callable[[Iterator[Item]], Outcome],
    blocks: Sequence[Sequence[Item]],
    queue: int,
    dumps: Callable[[Any], bytes],
) -> tuple[int, int]:
    """Start a copy that works on its share; return its process number and the pipe that carries its answer."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    try:
        os.close(reading)
        block_numbers: set[int] = set()
        try:
            outcome = work(_take_items(blocks, queue, block_numbers))
            answer = dumps((block_numbers, outcome, None))
        except Exception as error:
            answer = dumps((block_numbers, None, error))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        status = 0
    finally:
        os._exit(status)  # a copy must never continue as the original


def _read_answer(process: int, reading: int) -> bytes | None:
    """Read the answer of a copy, or None if it died."""
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    return answer if status == 0 else None
