"""Runs on one GPU, with one process per case, forked from a process that has already imported the libraries."""

from __future__ import annotations

import multiprocessing
import os
import time

from .cases import Case
from .rows import SCHEMA, append_row, build_row, list_finished

EXPANDABLE = "expandable_segments:True"
PRELOADED = ["torch", "transformers", "transformers.models.llama.modeling_llama"]
"""Modules that are imported once, before the processes of the cases are forked. None of them uses a GPU on import."""


def run_case(case: Case, path: str, dry: bool, shared: bool) -> None:
    """Run a case in this process and append its row to the file `path`."""
    if case.expandable:
        os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = EXPANDABLE
        import torch

        if not dry:
            torch.cuda.memory._set_allocator_settings(
                EXPANDABLE
            )  # torch only reads the variable on import, which has already happened
    row = build_row(case, dry, shared)
    append_row(path, row)
    print(f"{row['id']}: {row['outcome']}", flush=True)


def run_alone(selected: list[Case], path: str, minutes: float, dry: bool, shared: bool) -> None:
    """Run every case in its own process, so that it does not inherit the allocator cache of another case.

    Cases whose upper bound of seconds exceeds the remaining time are skipped. A case that takes much longer than its
    bound is killed and gets a row with outcome `crash`.
    """
    deadline = time.monotonic() + minutes * 60
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    for case in selected:
        seconds_left = deadline - time.monotonic()
        if seconds_left < case.seconds and not dry:
            print(f"{case.id}: no time left")
            continue
        process = processes.Process(target=run_case, args=(case, path, dry, shared))
        process.start()
        process.join(600 if dry else max(20.0, min(seconds_left + 20, 3 * case.seconds + 20)))
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode and case.id not in list_finished(path):
            append_row(path, {"schema": SCHEMA, "id": case.id, "outcome": "crash",
                          "error": f"exit status {process.exitcode}", "config": case._asdict(),
                          "dry": dry, "rank": 0, "world": 1})  # fmt: skip
