"""CKP001 olmo-core-checkpointer: OLMo's `olmo_core` checkpointer needs too much host memory on large jobs.

## What it does
Warns about `sharded_checkpointer: olmo_core` on more than 32 nodes. Under HYBRID_SHARD, it warns only if ranks x shard
group size also exceeds its value for 32 nodes under FULL_SHARD. It reports an error if the estimate exceeds the stated
host memory.

## Why is this bad?
With ai2-olmo-core 0.1.0, every rank gathers one Python object per tensor and shard from every rank, twice. The host
memory per rank is about 1.45 to 1.75 kB x tensors x ranks per shard group x ranks. Under FULL_SHARD it grows with the
square of the number of ranks.

For a 7B model (259 tensors, 8 GPUs per node), that is 197 GB per node on 32 nodes and 819 GB on 64. The job starts
normally, and hours later its first checkpoint runs out of host memory (allenai/OLMo#788).

## Symptoms
Checkpoint host memory, OOM killer while saving.

## Example
    # cfglint: nodes=64 gpus-per-node=8 host-memory=480GB
    sharded_checkpointer: olmo_core

## Use instead
    sharded_checkpointer: torch_legacy       # any torch, wrapped FSDP; or local, on torch below 2.3
    load_path_sharded_checkpointer: olmo_core

## Fix safety
The fix writes `local` if the target torch is known to be older than 2.3. `local` needs no collectives and no extra GPU
memory, but it rejects torch 2.3 and later. Otherwise the fix writes `torch_legacy`, which works on every torch with
wrapped FSDP. If wrapping is not set, the fix sets it too. Both checkpointers need the same number of ranks on resume.

If `load_path` names a sharded checkpoint, the fix adds `load_path_sharded_checkpointer`, so that the run can still read
it. With `try_load_latest_save` the fix is unsafe: a restart would read the old folder with the new checkpointer.

The fix is also safe with torch 2.6 and later. With those releases, ai2-olmo 0.6.0 cannot load any checkpoint, including
those of `olmo_core`, unless the job sets `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` (REL001). The fix therefore costs
nothing.

## When it does not apply
Silent under HYBRID_SHARD with few ranks per shard group. Silent under `distributed_strategy: ddp`, which saves only
unsharded checkpoints.

An alternative to the fix is to keep `olmo_core` and use HYBRID_SHARD with one replica per node. In the 7B example on 64
nodes, that needs 14 GB of host memory per node instead of 819 GB. In return, every GPU holds 16 bytes x parameters /
GPUs per node.

## References
ai2-olmo-core 0.1.0 `distributed/checkpoint.py` (`_get_global_save_plan_and_metadata`); ai2-olmo 0.6.0
`checkpoint.py`; allenai/OLMo#788.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.findings.verdicts import judge
from cfglint_train.findings.wording import format_changes
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP001",
    "olmo-core-checkpointer",
    "warning",
    particular=True,
    fix="safe",
    writes=("checkpoint.checkpointer", "parallel.wrapping"),
    estimates=("host",),
)

_FIELD: Final = "checkpoint.checkpointer"
_MAX_NODES: Final = 32
_GATHERING_NOTE: Final = (
    "`olmo_core` gathers metadata on every rank; its size grows with the square of the number of ranks"
)
_RESUMING_NOTE: Final = (
    "with torch 2.6 or later, ai2-olmo 0.6.0 cannot resume from any checkpoint, including `olmo_core`: `torch.load` "
    "rejects the trainer state (`weights_only`) unless the job sets TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the checkpointer is `olmo_core` and the job is too large or the host memory too small."""
    plan = run.plan
    if plan.checkpoint.checkpointer != "olmo_core" or plan.parallel.strategy == "ddp":
        return
    nodes, judgement = plan.launch.nodes, judge(run, "host", ("save",))
    is_large = nodes is not None and nodes > _MAX_NODES and not _has_little_metadata(run)
    exceeds_host = judgement is not None and judgement.verdict == "does not fit"
    if not is_large and not exceeds_host:
        return
    save = run.estimate.find_phase("save")
    host = save.host if save is not None else None
    needed = f"about {format_gib(host.expected)}" if host is not None else "a large amount"
    available = f"; {format_gib(judgement.capacity)} available" if judgement is not None else ""
    resuming_notes = (_RESUMING_NOTE,) if run.releases.is_at_least("torch", "2.6") is not False else ()
    prefix = f"on {nodes} nodes, " if nodes is not None else ""
    yield Report(
        f"{prefix}the first `olmo_core` checkpoint needs {needed} of host memory per node{available}",
        run.find_place(_FIELD),
        "error" if exceeds_host else "warning",
        _build_fix(run),
        help=_advise_hybrid_sharding(run),
        notes=(_GATHERING_NOTE, *resuming_notes),
    )


def _has_little_metadata(run: Run) -> bool:
    """Return whether ranks x shard group size is at most its value for 32 nodes under FULL_SHARD.

    The metadata grows with this product. Returns False if one of the factors is unknown.
    """
    plan = run.plan
    world, shard_size, gpus = plan.world_size, plan.parallel.shard_size, plan.launch.gpus_per_node
    if world is None or shard_size is None or gpus is None:
        return False
    return world * shard_size <= (_MAX_NODES * gpus) ** 2


def _advise_hybrid_sharding(run: Run) -> str | None:
    """Return the advice to shard within each node, or None if the run already shards in groups."""
    model, gpus, sharding = run.architecture, run.plan.launch.gpus_per_node, run.plan.parallel.sharding
    if sharding is not None and sharding.startswith("hybrid"):
        return None
    size = "16 bytes x parameters / GPUs per node"
    if model is not None and gpus:
        size = format_gib(16 * model.parameters / gpus)
    return (
        "alternatively, keep `olmo_core` and use HYBRID_SHARD with one replica per node, "
        f"which needs {size} of states per GPU"
    )


def _build_fix(run: Run) -> Fix:
    plan = run.plan
    is_old_torch = run.releases.is_at_least("torch", "2.3") is False
    changes: dict[Field, Any] = {_FIELD: "local" if is_old_torch else "torch_legacy"}
    reason = ""
    if not is_old_torch and plan.parallel.wrapping == "root":
        changes["parallel.wrapping"] = "block_and_size"
        reason = "; without wrapping by block, FSDP would gather the whole model at once"
    message = f"{format_changes(run, changes)}; needs the same number of ranks on resume{reason}"
    if plan.checkpoint.resume_latest:
        return Fix("unsafe", f"{message}; a restart would read the old checkpoint with the new checkpointer", changes)
    return Fix("safe", message, changes)
