"""PRF008 small-bucket: gradients are reduced in buckets that are too small to use the links between GPUs well.

## What it does
Reports a stated `reduce_bucket_size` that holds less than half of 25 MiB, if a bucket of 25 MiB fits on the stated GPU.
25 MiB is the default of torch's DistributedDataParallel. The message gives the number of collectives per backward pass.

## Why is this bad?
Each bucket is one collective. A small bucket costs the latency of a collective across all ranks for only a few bytes.
With 1,000,000 elements per bucket, a model with 7.6 billion parameters needs 7,600 collectives in each backward pass.

## Example
    # cfglint: gpu=H100
    {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000}}

## Use instead
    {"zero_optimization": {"stage": 2, "reduce_bucket_size": 13107200}}

## Fix safety
Unsafe: it replaces a setting that works. The loss, the data and resuming are not affected. PRF005, PRF006, PRF007 and
PRF008 share the free memory in this order, so that all their fixes fit together. A file that several runs share is not
changed.

## When it does not apply
Silent if the size is not stated (`auto`), if the GPU is not stated, and for models or adapters whose gradients fit into
a single bucket.

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
    capacities=("gpu",),
)

_FIELD: Final = "parallel.reduce_bucket"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the stated bucket is too small and a larger bucket fits."""
    size = run.plan.parallel.reduce_bucket
    if not size or not run.is_stated(_FIELD):
        return
    from cfglint_train.fitting import speedups  # imports the fixer, needed only if a size is stated

    offer = speedups.find_speedup(run, "bucket")
    if offer is None:
        return
    trained, proposed = offer.before.weights.trained, offer.changes[_FIELD]
    yield Report(
        f"`{run.spell_key(_FIELD)}` of {size:,} elements causes {-(-trained // size):,} collectives per backward pass; "
        f"{-(-trained // proposed):,} would be enough",
        run.find_place(_FIELD),
        min_certainty="followed",
        fix=Fix("unsafe", format_changes(run, offer.changes), offer.changes, uses_estimate=True),
        notes=(
            f"estimated gain: the latency of {trained // size - trained // proposed:,} collectives per micro batch",
        ),
    )
