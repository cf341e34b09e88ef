"""CHK002 host-not-checked: a run needs a lot of host memory, but the host's memory is not stated.

## What it does
Reports how much host memory a node needs if that is more than many nodes have, and no flag, setting or comment states
the capacity. The estimate covers loading, training and resuming. The rule applies to these runs:

- runs that offload to the host
- runs whose inference engines or training states sleep, that is, move to the host while idle
- runs in which each rank loads the whole model

## Why is this bad?
Offloading a 236B model on six nodes needs more than 600 GiB on each node. If a node has less, the process is killed.
cfglint cannot check this without knowing the host's memory.

## Example
    deepspeed: zero3_bf16_cpuoffload_all.json        # 70B on one node, host memory not stated

## Use instead
    # cfglint: host-memory=1TB

## When it does not apply
Silent below 400 GiB per node. Silent if nothing is offloaded or sleeps and only one rank per node loads the model. If
the host memory is stated, HST001 checks that it is enough.

## References
docs/memory/host.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.findings.verdicts import format_breakdown, format_size, list_host_phases
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.components import LOADED_WEIGHTS, OFFLOADED, SLEEPING, SLEEPING_STATES
from cfglint_train.runs.run import Run

RULE: Final = Rule("CHK002", "host-not-checked", "info", estimates=("host",), unchecked="host", folds=True)

_OFFLOADED_COMPONENTS: Final = (*OFFLOADED, SLEEPING, SLEEPING_STATES, LOADED_WEIGHTS)

_MIN_REPORTED_BYTES: Final = 400 * 2**30
"""Smallest need in bytes that is reported: host memory that many nodes with eight GPUs have."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the run needs a lot of host memory and its capacity is not stated."""
    if run.hardware.get_capacity("host") is not None:
        return
    names = list_host_phases(run)
    host_budgets = [
        (phase, phase.host) for phase in run.estimate.phases if phase.name in names and phase.host is not None
    ]
    offloading = [
        (phase, host)
        for phase, host in host_budgets
        if any(size and component in _OFFLOADED_COMPONENTS for component, size in host.sizes)
    ]
    if not offloading:
        return
    phase, host = max(offloading, key=lambda pair: pair[1].expected)
    if host.expected < _MIN_REPORTED_BYTES:
        return
    from cfglint_rules.host.host_memory import reads_full_state_dict, suggest_sharded

    yield Report(
        f"host memory not checked: {phase.title} needs {format_size(host)} on one host, but its capacity is not stated",
        run.find_place("parallel.offload_optimizer", "parallel.offload_params", "model.id"),
        help="set `host-memory` to the memory of one node"
        + (f", or {suggest_sharded(run)}" if reads_full_state_dict(run, phase.name) else ""),
        notes=(format_breakdown(host),),
    )
