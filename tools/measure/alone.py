"""One GPU: a process for each case, forked from one that has imported the libraries."""

from __future__ import annotations

import multiprocessing
import os
import time

from .cases import Case
from .rows import SCHEMA, append, done, row_of

EXPANDABLE = "expandable_segments:True"
PRELOADED = ["torch", "transformers", "transformers.models.llama.modeling_llama"]
"""Imported once, before the processes of the cases are forked. None of them touches a GPU."""


def one(case: Case, path: str, dry: bool, shared: bool) -> None:
    """A case in this process."""
    if case.expandable:
        os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = EXPANDABLE
        import torch

        if not dry:
            torch.cuda.memory._set_allocator_settings(EXPANDABLE)  # torch reads the variable when it is imported
    row = row_of(case, dry, shared)
    append(path, row)
    print(f"{row['id']}: {row['outcome']}", flush=True)


def alone(wanted: list[Case], path: str, minutes: float, dry: bool, shared: bool) -> None:
    """Every case in a process of its own, so that none inherits another's cache."""
    deadline = time.monotonic() + minutes * 60
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    for case in wanted:
        left = deadline - time.monotonic()
        if left < case.seconds and not dry:
            print(f"{case.id}: no time left")
            continue
        process = processes.Process(target=one, args=(case, path, dry, shared))
        process.start()
        process.join(600 if dry else max(20.0, min(left + 20, 3 * case.seconds + 20)))
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode and case.id not in done(path):
            append(path, {"schema": SCHEMA, "id": case.id, "outcome": "crash",
                          "error": f"exit status {process.exitcode}", "config": case._asdict(),
                          "dry": dry, "rank": 0, "world": 1})  # fmt: skip
