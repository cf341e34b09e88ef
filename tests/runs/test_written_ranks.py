"""Ranks that wrote a checkpoint, counted only if the checkpoint is in the repository."""

from __future__ import annotations

import pytest

from tests.support.linting import list_runs

RUN = """\
# cfglint: nodes=1 gpus-per-node=4
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
dataset: alpaca
template: qwen
output_dir: out
bf16: true
deepspeed: z3.json
"""


def write_shards(folder, *ranks: int) -> None:
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()


def count_load_ranks(folder) -> int | None:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "run.yaml").write_text(RUN)
    (folder / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    (run,) = list_runs(folder)
    return run.plan.checkpoint.load_ranks


@pytest.mark.parametrize(("ranks", "expected"), [((0, 1), 2), ((0, 2), None), ((), None)])
def test_shards_are_counted_where_none_is_missing(ranks, expected, tmp_path):
    write_shards(tmp_path / "out" / "checkpoint-5" / "global_step5", *ranks)
    assert count_load_ranks(tmp_path) == expected


def test_the_newest_checkpoint_counts(tmp_path):
    write_shards(tmp_path / "out" / "checkpoint-900" / "global_step900", 0, 1)
    write_shards(tmp_path / "out" / "checkpoint-1000" / "global_step1000", 0, 1, 2)
    assert count_load_ranks(tmp_path) == 3


@pytest.mark.parametrize("link", ["out", "out/checkpoint-5", "out/checkpoint-5/global_step5"])
def test_a_link_that_leads_out_is_not_followed(link, tmp_path):
    real, here = tmp_path / "real", tmp_path / "here"
    write_shards(real / "out" / "checkpoint-5" / "global_step5", 0, 1)
    (here / link).parent.mkdir(parents=True)
    (here / link).symlink_to(real / link, target_is_directory=True)
    assert count_load_ranks(here) is None
