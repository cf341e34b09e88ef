"""Data workers beyond what a node can run at once, and whether they alone exceed the host's memory."""

from __future__ import annotations

from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

THREADS: Final = 384
"""Hardware threads of two processors of 96 cores, more than usual nodes of eight GPUs have: a margin."""
USUAL: Final = 8


def too_many(run: Run) -> bool:
    """Whether the stated workers of all ranks are more processes than a node can run at once."""
    workers, ranks = run.plan.data.workers or 0, run.plan.launch.gpus_per_node or 0
    return workers * ranks > THREADS and run.stated("data.workers")


def are_the_cause(judgement: Judgement) -> bool:
    """Whether the verdict is a kinder one with the usual number of workers."""
    usual = judge(judgement.run.under({"data.workers": USUAL}), "host", (judgement.phase.name,))
    return usual is not None and usual.verdict != judgement.verdict
