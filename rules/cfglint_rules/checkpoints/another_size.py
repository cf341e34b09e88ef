"""CKP010 resumed-at-another-size: a different number of ranks wrote the checkpoint, and it cannot be resharded.

## What it does
Counts the shards of the checkpoint that a run resumes from, if the checkpoint is in the repository. Reports the run if
its number of ranks differs and the checkpoint format does not allow that.

## Why is this bad?
DeepSpeed saves one partition of the optimizer states per rank and rejects a different number of ranks: "The
checkpoint being loaded used a DP world size of 8 but the current world size is 4". OLMo's `torch_legacy` and `local`
checkpointers read one file per rank. The job stops only after it has waited for its nodes and loaded the model.

## Example
    # cfglint: nodes=1 gpus-per-node=4
    deepspeed: ds_z3.json
    resume_from_checkpoint: out/checkpoint-500    # global_step500/ has the shards of 8 ranks

## Use instead
Use as many ranks as before. Alternatively, use DeepSpeed's universal checkpoints: run `ds_to_universal.py`, then set
`load_universal` in the `checkpoint` section.

## When it does not apply
The rule is silent:

- if the checkpoint is not in the repository or its shards cannot be counted
- for formats that any number of ranks can read: FSDP's state dicts, and OLMo's `torch_new` and `olmo_core`
- if the run looks for a checkpoint and none exists yet

## References
deepspeed 0.19.8 `runtime/engine.py` (_load_zero_checkpoint); ai2-olmo 0.6.0 `olmo/checkpoint.py`
(TorchLegacyShardedCheckpointer, LocalShardedCheckpointer); deepspeedai/DeepSpeed#2898, #6441.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("CKP010", "resumed-at-another-size", "error", needs={"checkpoint.load_ranks": ()})

_ONE_FILE_PER_RANK: Final = ("torch_legacy", "local")


def check(run: Run) -> Iterator[Report]:
    """Yield a report if a different number of ranks wrote the checkpoint and it cannot be resharded."""
    plan = run.plan
    written_ranks, nodes, gpus_per_node = plan.checkpoint.load_ranks, plan.launch.nodes, plan.launch.gpus_per_node
    if written_ranks is None or not nodes or not gpus_per_node:
        return
    ranks = nodes * gpus_per_node // ((plan.parallel.tensor or 1) * (plan.parallel.pipeline or 1))
    if ranks == written_ranks:
        return
    is_sharded = (
        plan.parallel.strategy == "zero" and bool(plan.parallel.zero_stage) and not plan.checkpoint.load_universal
    )
    if not is_sharded and plan.checkpoint.load_checkpointer not in _ONE_FILE_PER_RANK:
        return
    reason = (
        "DeepSpeed cannot redistribute the optimizer states and stops"
        if is_sharded
        else "the run stops because its checkpointer needs one file per rank"
    )
    yield Report(
        f"the run resumes on {ranks} ranks from a checkpoint of {written_ranks} ranks: {reason}",
        run.find_place("checkpoint.load_path", "checkpoint.resume_latest", "checkpoint.path"),
        help=f"use {written_ranks} ranks"
        + (", or convert the checkpoint with `ds_to_universal.py` and set `load_universal`" if is_sharded else ""),
    )
