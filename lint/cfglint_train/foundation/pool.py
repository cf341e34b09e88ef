"""Process pool: work shared among forks of this process.

A forked process has everything that was imported and read so far. A new interpreter would have to repeat that, which
takes longer than the lint itself. Without `fork`, this process does all the work.

Items are assigned in blocks of neighbors: the files in a folder often train the same model, whose layers are then
computed only once. A process that finishes a block takes the next block, so that no process is idle.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import Any, Final, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_MIN_BLOCK: Final = 8
"""Minimum number of items in a block."""
_BLOCKS_PER_PROCESS: Final = 32
"""Blocks per process: more blocks separate more neighbors; with fewer blocks, processes wait longer at the end."""
_MAX_BLOCKS: Final = 1024
"""Maximum number of blocks; on every system, a pipe can hold this many block numbers."""
_WIDTH: Final = 4
"""Size of a block number in the pipe, in bytes."""


def can_copy() -> bool:
    """Return whether the system can fork a process."""
    return hasattr(os, "fork")


def count_processors() -> int:
    """Return the number of processors that this process may use; 1 if processes cannot be forked safely."""
    if not can_copy() or sys.platform == "darwin":
        return 1  # a forked Python on macOS may crash in system libraries
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gather(work: Callable[[Iterator[Item]], Outcome], items: Sequence[Item], processes: int) -> list[Outcome]:
    """Run `work` in several processes and return their outcomes: this process first, then the forked processes.

    `work` must consume its iterator. Outcomes of forked processes are pickled, and their exceptions are raised here. If
    a forked process died, this process repeats its blocks, which adds an outcome to the list.
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
        messages = [_read_answer(*copy) for copy in copies]
        os.close(queue)
    for message in filter(None, messages):
        block_numbers, outcome, error, answers = pickle.loads(message)
        filesystem.add_answers(answers)
        if error is not None:
            raise error
        outcomes.append(outcome)
        done_blocks |= block_numbers
    lost = [item for number, block in enumerate(blocks) if number not in done_blocks for item in block]
    return [*outcomes, work(iter(lost))] if lost else outcomes


def _fill_queue(count: int) -> int:
    """Write the numbers of all blocks to a pipe, and return its read end."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(_WIDTH, "big") for number in range(count)))
    os.close(writing)
    return reading


def _take_items(blocks: Sequence[Sequence[Item]], queue: int, block_numbers: set[int]) -> Iterator[Item]:
    """Yield the items of the blocks that this process takes, and add the blocks' numbers to `block_numbers`."""
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
    """Start a forked process on its share of the work; return its process ID and the pipe to read its answer from."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    try:
        os.close(reading)
        block_numbers: set[int] = set()
        filesystem.forget_answers()  # the first process has them
        try:
            outcome = work(_take_items(blocks, queue, block_numbers))
            filesystem.note_modules()
            answer = dumps((block_numbers, outcome, None, filesystem.get_answers()))
        except Exception as error:
            answer = dumps((block_numbers, None, error, None))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        status = 0
    finally:
        os._exit(status)  # a forked process must never continue as this process


def _read_answer(process: int, reading: int) -> bytes | None:
    """Return the pickled answer of a forked process, or None if it died. Waits for its end."""
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    return answer if status == 0 else None
