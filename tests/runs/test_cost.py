"""Time and cost: only from what the user stated, and nothing where a fact is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.hardware.catalogue import Price
from cfglint_train.runs.cost import Cost, compute_cost
from tests.support.command import run_cfglint
from tests.support.linting import change_directory

STATED = "# cfglint: gpu=H100 gpus-per-node=8 nodes=1 tokens-per-second=50000\n"
PACKED = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
output_dir: ./out
micro_batch_size: 2
gradient_accumulation_steps: 8
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
learning_rate: 0.0002
max_steps: 1000
"""
UNPACKED = PACKED.replace("sample_packing: true\npad_to_sequence_len: true\n", "")
LIMITED = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca_en
template: qwen
cutoff_len: 2048
max_samples: 12800
num_train_epochs: 2
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
bf16: true
output_dir: out
"""
TOKENS = 1000 * 2 * 8 * 8 * 4096


def compute(folder: Path, text: str, **options: str) -> Cost | None:
    (folder / "run.yaml").write_text(text)
    with change_directory(folder):
        (run,) = api.estimate("run.yaml", api.Options(**options)).raw.runs
    return compute_cost(run)


def test_the_time_is_the_tokens_over_the_throughput_and_the_cost_that_of_all_gpus(tmp_path: Path) -> None:
    hours = TOKENS / 50_000 / 3600
    assert compute(tmp_path, STATED + PACKED) == Cost(TOKENS, False, hours, None)
    cost = compute(tmp_path, STATED + PACKED, price_per_gpu_hour="2.5 EUR")
    assert cost == Cost(TOKENS, False, hours, Price(2.5 * 8 * hours, "EUR"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (UNPACKED, TOKENS),  # samples may be shorter
        (LIMITED, 2 * 12800 * 2048),  # the data set may be smaller
    ],
)
def test_a_limit_is_called_a_limit(tmp_path: Path, text: str, tokens: int) -> None:
    cost = compute(tmp_path, STATED + text)
    assert cost is not None
    assert (cost.tokens, cost.is_limit) == (tokens, True)


@pytest.mark.parametrize(
    "text",
    [
        PACKED,  # no throughput
        STATED + PACKED.replace("max_steps: 1000\n", "num_epochs: 3\n"),  # no size of the data set
        STATED + LIMITED.replace("max_samples: 12800\n", ""),
        STATED.replace("gpus-per-node=8 nodes=1 ", "") + PACKED,  # the global batch rests on assumed GPUs
    ],
)
def test_nothing_is_guessed(tmp_path: Path, text: str) -> None:
    assert compute(tmp_path, text) is None


def test_rates_of_another_gpu_do_not_count(tmp_path: Path) -> None:
    settings = (
        '[hardware]\ngpu = "A100"\ngpus-per-node = 8\nnodes = 1\ntokens-per-second = 9e3\nprice-per-gpu-hour = 2.4\n'
    )
    (tmp_path / "cfglint.toml").write_text(settings)
    cost = compute(tmp_path, PACKED)
    assert cost is not None
    assert cost.price == Price(2.4 * 8 * cost.hours)
    assert compute(tmp_path, PACKED, gpu="H100") is None
    assert compute(tmp_path, PACKED, gpu="A100") == cost


def test_fit_and_the_job_summary_show_time_and_cost(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(STATED + PACKED)
    flags = ("run.yaml", "--price-per-gpu-hour", "2.5 EUR")
    assert "time, cost: 2.9 h, 58.25 EUR at the stated throughput" in run_cfglint("fit", *flags, cwd=tmp_path).out
    summary = run_cfglint("check", *flags, "--output-format", "markdown", cwd=tmp_path).out
    assert "| Verdict | Time, cost |" in summary
    assert "| 2.9 h, 58.25 EUR |" in summary
    assert (
        "Time, cost"
        not in run_cfglint("check", "run.yaml", "--gpu", "A100", "--output-format=markdown", cwd=tmp_path).out
    )
