"""PAR003 no-meeting-point: several nodes start without a rendezvous address and never find each other.

## What it does
Checks launches on two or more nodes. It reports `torchrun --nnodes` without `--master_addr` or `--rdzv_endpoint`, and
accelerate's `num_machines` without `main_process_ip`. For LLaMA-Factory's launcher, it reports `NNODES` without
`MASTER_ADDR`.

## Why is this bad?
torchrun and LLaMA-Factory default to 127.0.0.1: each node waits for the others at its own address until it times out.
accelerate passes the missing address on as the host name `None`. The job trains nothing, but you pay for all nodes.

## Symptoms
Hangs at start, rendezvous timeout, NCCL timeout.

## Example
    torchrun --nnodes 2 --nproc_per_node 8 scripts/train.py config.yaml

## Use instead
    torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node-0:29500 scripts/train.py config.yaml

## When it does not apply
The rule is silent:

- for DeepSpeed's launcher, even if accelerate starts it, because it reads the first host from its hostfile
- for launches whose options are in a variable that cfglint cannot read
- for scripts that set `PET_MASTER_ADDR` or `PET_RDZV_ENDPOINT`, which torchrun reads
- for an accelerate file that no script names, because the launch may add the address once a cluster has assigned the
  nodes
- for an accelerate file without `machine_rank`, because all nodes share that file

A scheduler such as Kubeflow may set the `PET_` variables outside the script. For torchrun, the finding is therefore a
warning.

## References
torch 2.13 `distributed/run.py` (get_args_parser, config_from_args: the rendezvous is `static` by default, where every
node has rank 0 unless `--node_rank` says otherwise); accelerate 1.15.0 `utils/launch.py` (prepare_multi_gpu_env,
prepare_simple_launcher_cmd_env, prepare_deepspeed_cmd_env); LLaMA-Factory 0.9.5 `launcher.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.certainty import Ground
from cfglint_train.runs.run import Run

RULE: Final = Rule("PAR003", "no-meeting-point", "error", needs={"launch.meets": (False,)})

# Further settings that an address requires: without them, every node assumes that it is the first node (rank 0).
_FURTHER_ARGUMENTS: Final = {
    "rdzv_endpoint": "and pass `--rdzv_backend c10d`",
    "main_process_ip": "and give each node its `--machine_rank`",
    "MASTER_ADDR": "and `NODE_RANK` to the rank of each node",
}


def check(run: Run) -> Iterator[Report]:
    """Yield a report if several nodes start without an address at which they can meet."""
    nodes, origin = run.plan.launch.nodes, run.get_origin("launch.meets")
    if origin is None or not nodes or nodes < 2 or not run.is_stated("launch.nodes"):
        return
    further_arguments = _FURTHER_ARGUMENTS.get(origin.key.lstrip("-"))
    if further_arguments is None:
        return
    # No script starts the run, so the launch may pass the option that is missing from the launcher's file.
    can_be_unseen = origin.framework and run.inputs.is_sharding_known is None
    note = f"the launch has no `--{origin.key}`; set `{origin.key}` to be sure"
    yield Report(
        f"{nodes} nodes start without `{origin.key}`: they never find each other",
        run.find_place("launch.meets", "launch.nodes"),
        help=f"set `{origin.key}` to the address of the first node, {further_arguments}",
        grounds=(Ground("launch.meets", False, "assumed", note),) if can_be_unseen else (),
    )
