"""PRF003 host-sync-every-step: a setting makes the host wait for the GPU on every step.

## What it does
Reports runs that empty the CUDA cache on every step (`torch_empty_cache_steps: 1`, `gc_steps: 1`). Reports runs whose
ranks synchronize on every step to check for cancellation (OLMo's `canceled_check_interval: 1`).

`include_num_input_tokens_seen`, which gathers a count from all ranks for every micro batch, is reported as an info.

## Why is this bad?
A GPU stays busy as long as the host runs ahead of it. Each of these settings makes the host wait for the GPU. The
Trainer's own check for NaN does the same for every micro batch, so counting tokens adds little more than its
communication.

Emptying the cache also forces the allocator to request all memory from the driver again. The transformers docs put the
cost at about 10 % of the step. The peak drops only if free memory is fragmented, because the cache returns only blocks
that no tensor uses.

## Example
    torch_empty_cache_steps: 1

## Use instead
    torch_empty_cache_steps: 50

Alternatively, remove the key if the run fits without it.

## When it does not apply
Silent for metrics that are logged on every step (`logging_steps: 1`): each metric reads only one number. Silent for
OLMo-core, which checks for cancellation in a separate thread.

## References
transformers 5.23.0 `trainer.py` (_track_num_input_tokens, logging_nan_inf_filter, torch_empty_cache_steps); ai2-olmo
0.6.0 `train.py` (check_if_cancelled: rank 0 asks W&B, all ranks wait; every 50 steps by default). transformers 5.8.0
`training_args.py` (torch_empty_cache_steps: "lowering peak VRAM usage at a cost of about 10% slower performance");
torch 2.13 `cuda/memory.py` (empty_cache: no more memory for PyTorch, but less fragmentation in certain cases).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("PRF003", "host-sync-every-step", "warning")


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every setting that makes the host wait."""
    logging = run.plan.logging
    if logging.count_tokens:
        yield Report(
            f"`{run.spell_key('logging.count_tokens')}` counts tokens across all ranks for every micro batch: the host "
            "waits each time",
            run.find_place("logging.count_tokens"),
            "info",
            help=f"remove `{run.spell_key('logging.count_tokens')}` unless you need the count",
        )
    if logging.empty_cache_interval == 1:
        yield Report(
            f"`{run.spell_key('logging.empty_cache_interval')}` empties the CUDA cache on every step: steps are "
            "slower, and only fragmentation may shrink",
            run.find_place("logging.empty_cache_interval"),
            help=f"remove `{run.spell_key('logging.empty_cache_interval')}` if the run fits without it, "
            "or empty the cache every 50 steps",
        )
    if logging.cancel_check_interval == 1 and run.framework.traits.waits_for_cancel:
        yield Report(
            f"`{run.spell_key('logging.cancel_check_interval')}` makes all ranks check for cancellation on every "
            "step: each step waits for the slowest rank",
            run.find_place("logging.cancel_check_interval"),
            help=f"set `{run.spell_key('logging.cancel_check_interval')}` to 50, the default",
        )
