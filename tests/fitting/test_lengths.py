"""Shorter sequences: the last resort, and lengths that stay multiples."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.fitting.moves import _generate_halves
from cfglint_train.fitting.smallest import find_smallest
from cfglint_train.runs.run import Run
from tests.support.linting import list_runs

AXOLOTL = """\
# cfglint: gpu=A100-80GB nodes=1 gpus-per-node=8{host}
base_model: meta-llama/Llama-3.1-8B
datasets: [{{path: d, type: chat_template}}]
sequence_len: {length}
micro_batch_size: 1
gradient_accumulation_steps: 1
gradient_checkpointing: true
sample_packing: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_fused_linear_cross_entropy: true
bf16: true
optimizer: adamw_torch
deepspeed: {{zero_optimization: {{stage: 3}}}}
output_dir: out
"""


def read_run(folder: Path, length: int, host: str = "") -> Run:
    (folder / "run.yaml").write_text(AXOLOTL.format(length=length, host=host), encoding="utf-8")
    [run] = list_runs(folder)
    return run


@pytest.mark.parametrize(
    ("length", "halves"),
    [
        (8192, [4096, 2048, 1024, 512]),
        (2049, [1024, 512]),
        (4098, [2048, 1024, 512]),
        (5000, [2496, 1248, 624]),
        (3072, [1536, 768]),
        (600, []),
    ],
)
def test_halves_stay_multiples(length: int, halves: list[int]) -> None:
    assert [half for half, _ in _generate_halves(length, 512)] == halves


def test_samples_are_not_cut_where_offloading_is_enough(tmp_path: Path) -> None:
    """The step needs about 85 GiB, and about 72 GiB with the optimizer on the host."""
    run = read_run(tmp_path, 114688)
    whole = find_smallest(run)
    assert whole is not None
    assert "sequence.length" not in whole.changes
    solution = find_smallest(read_run(tmp_path, 114688, " host-memory=1TiB"))
    assert solution is not None
    assert solution.changes == {"activations.offload": "cpu"}


def test_samples_are_cut_where_nothing_else_is_enough(tmp_path: Path) -> None:
    solution = find_smallest(read_run(tmp_path, 1 << 20))
    assert solution is not None
    assert solution.changes["sequence.length"] < 1 << 19
