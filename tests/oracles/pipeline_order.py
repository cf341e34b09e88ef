"""Stages whose activations a pipeline rank holds at once, in the order that torch's own schedules run.

Prints JSON: [schedule, ranks, stages per rank, micro batches, [most at once, for each rank]]. Needs only torch.
"""

from __future__ import annotations

import json
import re
from typing import Any

from torch.distributed.pipelining import schedules

CASES = [
    (name, ranks, each, count)
    for name, each in (("1F1B", 1), ("GPipe", 1), ("Interleaved1F1B", 2), ("Interleaved1F1B", 4), ("LoopedBFS", 2),
                       ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2))
    for ranks in (2, 4, 8)
    for count in (ranks, 2 * ranks, 4 * ranks)
]  # fmt: skip


class Stage:
    """A stage with the attributes that a schedule reads before it runs."""

    def __init__(self, index: int, ranks: int, total: int) -> None:
        self.stage_index, self.num_stages = index, total
        self.group_size = ranks
        self.group: Any = None
        self.is_first, self.is_last = index == 0, index == total - 1
        self.has_backward = True
        self.submod: Any = None
        self.device: Any = None
        self.stage_index_to_group_rank = {stage: stage % ranks for stage in range(total)}
        self.group_rank = self.stage_index_to_group_rank[index]


def count_in_flight(name: str, ranks: int, stages_per_rank: int, count: int) -> list[int]:
    """Count, for each rank, the most forward passes of stages that wait for their backward pass."""
    kind = schedules.get_schedule_class(name)
    if stages_per_rank == 1:
        peaks = []
        for rank in range(ranks):
            schedule = kind(Stage(rank, ranks, ranks), n_microbatches=count, loss_fn=lambda *_: 0)
            peaks.append(_find_peak(schedule._get_pipeline_order()[rank]))
        return peaks
    total = ranks * stages_per_rank
    indices = (0, total - 1) if name == "ZBVZeroBubble" else range(0, total, ranks)
    stages = [Stage(index, ranks, total) for index in indices]
    if name == "ZBVZeroBubble":  # in the shape of a V: the first rank has the first and the last stage
        for stage in stages:
            stage.stage_index_to_group_rank = {index: min(index, total - 1 - index) for index in range(total)}
            stage.group_rank = 0
    schedule = kind(stages, n_microbatches=count, loss_fn=lambda *_: 0)
    return [_find_peak(schedule.pipeline_order[rank]) for rank in range(ranks)]


def _find_peak(actions: list[Any]) -> int:
    running = peak = 0
    for action in actions:
        word = re.sub(r"\d+", "", str(action)) if action is not None else ""
        if word == "F":
            running += 1
            peak = max(peak, running)
        elif word in ("B", "W"):  # both parts of the backward pass, or only the second
            running -= 1
    return peak


if __name__ == "__main__":
    for case in CASES:
        print(json.dumps([*case, count_in_flight(*case)]), flush=True)
