"""Data workers beyond what a node can run at once, and whether they alone exceed the host's memory."""

from __future__ import annotations

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

MAX_THREADS: Final = 384
"""Hardware threads of two processors of 96 cores, more than usual nodes of eight GPUs have: a margin."""
USUAL_WORKERS: Final = 8


def has_too_many_workers(run: Run) -> bool:
    """Whether the stated workers of all ranks are more processes than a node can run at once."""
    workers, ranks = run.plan.data.workers or 0, run.plan.launch.gpus_per_node or 0
    return workers * ranks > MAX_THREADS and run.is_stated("data.workers")


def is_caused_by_workers(judgement: Judgement) -> bool:
    """Whether the verdict is a kinder one with the usual number of workers."""
    usual_judgement = judge(
        judgement.run.build_scenario({"data.workers": USUAL_WORKERS}), "host", (judgement.phase.name,)
    )
    return usual_judgement is not None and usual_judgement.verdict != judgement.verdict
