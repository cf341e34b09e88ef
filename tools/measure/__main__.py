"""Measure the GPU memory of real training steps.

Needs torch and transformers, and peft, trl, flash_attn, deepspeed, bitsandbytes and liger_kernel for the cases that use
them. The folder imports nothing from cfglint and uses relative imports, so it can be copied to a cluster and run as
`measure`.

    python -m tools.measure --out rows                             one GPU, all cases in order of value
    torchrun --nproc-per-node 8 -m tools.measure --out rows        DDP, FSDP2 and ZeRO on these ranks
    deepspeed --module tools.measure --out rows                    the same, started by DeepSpeed
    python -m tools.measure --list | --dry-run --out rows          the cases | the code paths on a CPU, without figures

Each case adds one JSON line to `rows/rows.jsonl` (`rows/rows-RANK.jsonl` for several ranks). Cases that already have a
row with outcome `ok` or `oom` are skipped, so a run can be continued. A case only starts if its upper bound of seconds
fits into the rest of `--minutes`. `cfglint calibrate add rows/rows.jsonl` stores the rows, and `cfglint calibrate
report --rows rows/rows.jsonl` compares the estimates with them.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time

from .alone import run_alone
from .cases import Case, list_cases
from .engines import start_distributed
from .rows import append_row, build_row, list_finished


def run_distributed(options: argparse.Namespace, selected: list[Case], path: str) -> None:
    """Run the cases in the launcher's processes until no time is left; rank 0's clock decides for all ranks."""
    import torch
    import torch.distributed as dist

    start_distributed(options.dry_run)
    deadline = time.monotonic() + options.minutes * 60
    for case in selected:
        has_time = torch.tensor([float(time.monotonic() + case.seconds < deadline)])
        if not options.dry_run:
            has_time = has_time.cuda()
        dist.broadcast(has_time, 0)
        if not bool(has_time.item()):
            break
        row = build_row(case, options.dry_run)
        append_row(path, row)
        print(f"{case.id} rank {row['rank']}: {row['outcome']}", flush=True)
        gc.collect()
        if not options.dry_run:
            torch.cuda.empty_cache()
        dist.barrier()


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", help="output folder for the rows")
    parser.add_argument("--minutes", type=float, default=30.0, help="do not start a case after this time (default: 30)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only cases whose id contains WORD")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on a CPU, without figures")
    parser.add_argument(
        "--shared", action="store_true", help="other processes use the GPU: do not record driver memory"
    )
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    selected = [
        case for case in list_cases(world_size) if not options.only or any(word in case.id for word in options.only)
    ]
    if options.list:
        for case in selected:
            print(f"{case.id:<36} {case.seconds:>4} s")
        print(f"{len(selected)} cases, about {sum(case.seconds for case in selected) // 60} minutes at most")
        return 0
    if not options.out:
        parser.error("--out is required")
    if options.dry_run:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    else:
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # queries the driver without starting CUDA in this process
        import torch

        if not torch.cuda.is_available():
            parser.error("no CUDA device; --dry-run runs the same code on a CPU")
    os.makedirs(options.out, exist_ok=True)
    rank = os.environ.get("RANK", "0")
    path = os.path.join(options.out, "rows.jsonl" if world_size == 1 else f"rows-{rank}.jsonl")
    finished = list_finished(path)
    selected = [case for case in selected if case.id not in finished]
    if world_size == 1:
        run_alone(selected, path, options.minutes, options.dry_run, options.shared)
    else:
        run_distributed(options, selected, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
