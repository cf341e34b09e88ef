"""PRF008 small-bucket: gradients are reduced in pieces that are too small for the links.

## What it does
Reports a stated `reduce_bucket_size` that holds less than half of 25 MiB, the default of torch's
DistributedDataParallel, where a bucket of 25 MiB fits a stated GPU. The note counts the collectives per backward pass.

## Why is this bad?
Each bucket is one collective, and a small one costs the latency of all ranks for few bytes. With 1,000,000 elements a
model of 7 billion parameters makes 7,600 of them in each backward pass.

## Example
    # cfglint: gpu=H100
    {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000}}

## Use instead
    {"zero_optimization": {"stage": 2, "reduce_bucket_size": 13107200}}

## Fix safety
Unsafe: it replaces a choice that works. Loss, data and resuming stay as they are. Free memory is offered
once, in the order PRF005, PRF006, PRF007, PRF008, so that all these fixes together fit. A file that several runs share
is not rewritten.

## When it does not apply
Silent for sizes that no file states (`auto`), where no file states the GPU, and for models (or adapters) that fit into
one bucket.

## References
torch 2.9 `nn/parallel/distributed.py` (bucket_cap_mb, 25 MiB); PyTorch Distributed, arXiv:2006.15704, section 5.2
(bucket sizes); deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py` (reduce_bucket_size).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PRF008",
    "small-bucket",
    "info",
    fix="unsafe",
    needs={"parallel.reduce_bucket": ()},
    writes=("parallel.reduce_bucket",),
    estimates=("gpu",),
)

_FIELD: Final = "parallel.reduce_bucket"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if larger buckets fit."""
    size = run.plan.parallel.reduce_bucket
    if not size or not run.is_stated(_FIELD):
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only if a size is stated

    offer = speedups.find_speedup(run, "bucket")
    if offer is None:
        return
    trained, proposed = offer.before.weights.trained, offer.changes[_FIELD]
    yield Report(
        f"`{run.spell_key(_FIELD)}` of {size:,} elements makes {-(-trained // size):,} collectives in each backward "
        "pass; "
        f"{-(-trained // proposed):,} would do",
        run.find_place(_FIELD),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(
            f"estimated gain: the latency of {trained // size - trained // proposed:,} collectives per micro batch",
        ),
    )
