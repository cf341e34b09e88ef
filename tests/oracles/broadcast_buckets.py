"""Buckets in which torch's FSDP1 broadcasts a unit's weights, computed by torch's own function.

python tests/oracles/broadcast_buckets.py BYTES ...  prints the bytes in each bucket for tensors of these sizes in this
order. Needs torch; run under 2.13.0.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors
from torch.distributed.fsdp._init_utils import PARAM_BROADCAST_BUCKET_SIZE


def main(sizes: list[int]) -> None:
    """Print the buckets as lists of bytes, and whether a single tensor is flattened without a copy."""
    tensors = [torch.empty(size // 2, dtype=torch.bfloat16, device="meta") for size in sizes]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [PARAM_BROADCAST_BUCKET_SIZE])
    single = torch.empty(4)
    print(
        json.dumps(
            {
                "buckets": [[sizes[index] for index in bucket] for bucket in buckets],
                "view": _flatten_dense_tensors([single]).data_ptr() == single.data_ptr(),
            }
        )
    )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
