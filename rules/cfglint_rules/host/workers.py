"""Data loader workers: check whether a node has too many, and whether host memory runs out because of them."""

from __future__ import annotations

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

MAX_THREADS: Final = 384
"""Maximum number of workers per node: the hardware threads of two processors with 96 cores.

Usual nodes with eight GPUs have fewer, so the limit leaves a margin.
"""
USUAL_WORKERS: Final = 8


def has_too_many_workers(run: Run) -> bool:
    """Return whether the number of workers is stated and all ranks of a node together start more than MAX_THREADS."""
    workers, ranks = run.plan.data.workers or 0, run.plan.launch.gpus_per_node or 0
    return workers * ranks > MAX_THREADS and run.is_stated("data.workers")


def is_caused_by_workers(judgement: Judgement) -> bool:
    """Return whether the verdict would be different with the usual number of workers per rank."""
    usual_judgement = judge(
        judgement.run.build_scenario({"data.workers": USUAL_WORKERS}), "host", (judgement.phase.name,)
    )
    return usual_judgement is not None and usual_judgement.verdict != judgement.verdict
