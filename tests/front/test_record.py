"""`cfglint calibrate record`: the lines that it reads, what it refuses, and what it never writes."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.calibration import record as recording
from cfglint_train.calibration.compare import compare
from cfglint_train.calibration.logs import Figure, find_figures, read_figures
from cfglint_train.calibration.rows import read_rows
from cfglint_train.foundation.errors import UsageError
from cfglint_train.memory.budget import STEP_PHASES
from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY

GIB, MIB = 2**30, 2**20

AXOLOTL_0_12 = (
    "{'loss': 1.1, 'memory/max_mem_active(gib)': 17.3, 'memory/max_mem_allocated(gib)': 17.25, "
    "'memory/device_mem_reserved(gib)': 19.5, 'epoch': 0.1}"
)
AXOLOTL_0_13 = (
    "{'loss': '1.1', 'ppl': '3.0', 'memory/max_active (GiB)': '17.3', 'memory/max_allocated (GiB)': '17.25', "
    "'memory/device_reserved (GiB)': '19.5', 'tokens/total': 10}"
)
INSIDE = AXOLOTL_0_13.replace("17.25", "18.25")
LLAMAFACTORY = '{"current_steps": 5, "loss": 1.1, "lr": 1e-05, "vram_allocated": 17.25, "vram_reserved": 19.5}'
OLMO = "    throughput/device/tokens_per_second=5,012\n    System/Peak GPU Memory (MB)=17,250\n"
OLMO_CORE_1 = "[step=1/10,epoch=1]\n    system/GPU active mem (GiB)=17.25\n    system/GPU reserved mem (GiB)=19.50"
OLMO_CORE_2 = OLMO_CORE_1.replace("system/", "gpu_memory/")
SUMMARY = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   5120 MiB |  17664 MiB |  97043 GiB |  97038 GiB |
|       from large pool |   5000 MiB |  17600 MiB |  97000 GiB |  96995 GiB |
|---------------------------------------------------------------------------|
| Active memory         |   5120 MiB |  17700 MiB |  97043 GiB |  97038 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  19968 MiB |  19968 MiB |  19968 MiB |      0 B   |
"""
TRAINER_JSON = """\
{
    "before_init_mem_cpu": 1000,
    "before_init_mem_gpu": 1000,
    "epoch": 1.0,
    "init_mem_gpu_alloc_delta": 2000000000,
    "init_mem_gpu_peaked_delta": 5,
    "train_mem_cpu_peaked_delta": 7,
    "train_mem_gpu_alloc_delta": 6000000000,
    "train_mem_gpu_peaked_delta": 10000000000
}
"""
TRAINER_CONSOLE = """\
***** train metrics *****
  before_init_mem_gpu        =        0MB
  init_mem_gpu_alloc_delta   =     1024MB
  init_mem_gpu_peaked_delta  =        0MB
  train_mem_gpu_alloc_delta  =     2048MB
  train_mem_gpu_peaked_delta =    13312MB
"""
DEEPSPEED = """\
[2023-01-15 19:09:50,939] [INFO] [utils.py:827:see_memory_usage] After initializing ZeRO optimizer
[2023-01-15 19:09:50,940] [INFO] [utils.py:828:see_memory_usage] MA 9.02 GB         Max_MA 50.02 GB         CA 9.08 GB         Max_CA 9 GB 
[2023-01-15 19:09:50,939] [INFO] [utils.py:827:see_memory_usage] Engine before forward
[2023-01-15 19:09:50,940] [INFO] [utils.py:828:see_memory_usage] MA 9.02 GB         Max_MA 40.02 GB         CA 9.08 GB         Max_CA 9 GB 
[2023-01-15 19:09:50,940] [INFO] [utils.py:836:see_memory_usage] CPU Virtual Memory:  used = 4.05 GB, percent = 31.9%
[2023-01-15 19:09:52,476] [INFO] [utils.py:827:see_memory_usage] Engine after backward
[2023-01-15 19:09:52,477] [INFO] [utils.py:828:see_memory_usage] MA 10.02 GB         Max_MA 17.25 GB         CA 19.5 GB         Max_CA 20 GB 
[2023-01-15 19:09:52,476] [INFO] [utils.py:827:see_memory_usage] Engine after step
[2023-01-15 19:09:52,477] [INFO] [utils.py:828:see_memory_usage] MA 10.02 GB         Max_MA 12.08 GB         CA 19.5 GB         Max_CA 20 GB 
"""  # noqa: E501, W291 -- as DeepSpeed prints it
OOM_1_13 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 24.00 GiB total capacity; 20.50 GiB already "
    "allocated; 1.03 GiB free; 21.24 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
OOM_2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacty of 23.65 "
    "GiB of which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the "
    "allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated."
)
OOM_2_8 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 KiB. GPU 3 has a total capacity of 79.10 GiB "
    "of which 1.06 MiB is free. Process 71 has 79.09 GiB memory in use. Of the allocated memory 76.50 GiB is allocated "
    "by PyTorch, with 10.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.20 GiB is reserved by PyTorch "
    "but unallocated."
)
BOTH = {"allocated": 17.25 * GIB, "reserved": 19.5 * GIB}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(AXOLOTL_0_12, BOTH, id="axolotl 0.12"),
        pytest.param(AXOLOTL_0_13, BOTH, id="axolotl 0.13"),
        pytest.param(AXOLOTL_0_13.replace("'", '"'), BOTH, id="axolotl 0.13, trainer_state.json"),
        pytest.param(LLAMAFACTORY, BOTH, id="LLaMA-Factory 0.9"),
        pytest.param(OLMO, {"allocated": 17250 * 10**6}, id="OLMo 0.6"),
        pytest.param(OLMO_CORE_1, {"reserved": 19.5 * GIB}, id="OLMo-core 1.4"),
        pytest.param(OLMO_CORE_2, {"reserved": 19.5 * GIB}, id="OLMo-core 2.6"),
        pytest.param(SUMMARY, BOTH, id="memory_summary"),
        pytest.param(TRAINER_JSON, {"allocated": 18_000_001_000}, id="train_results.json"),
        pytest.param(TRAINER_CONSOLE, {"allocated": 16 * GIB}, id="train metrics"),
        pytest.param(TRAINER_CONSOLE + TRAINER_JSON, {"allocated": 18_000_001_000}, id="bytes before MB"),
        pytest.param(DEEPSPEED, {"allocated": 17.25 * GIB}, id="DeepSpeed"),
        pytest.param("torch.cuda.max_memory_allocated(): 18522046464", {"allocated": 17.25 * GIB}, id="bytes"),
        pytest.param("max_memory_reserved(device=0) = 19.5 GiB", {"reserved": 19.5 * GIB}, id="GiB"),
        pytest.param('{"max_memory_allocated": 17664 MiB}', {"allocated": 17.25 * GIB}, id="MiB"),
        pytest.param("1%\rmax_memory_allocated: 1GiB\r2%\rmax_memory_allocated: 2GiB", {"allocated": 2 * GIB}, id="CR"),
    ],
)
def test_the_peak_of_each_counter_is_read(tmp_path, text, expected):
    (tmp_path / "log").write_text(f"{text}\n", newline="")
    figures = read_figures(str(tmp_path / "log"))
    assert {figure.counter: figure.size for figure in figures} == expected
    assert not any(figure.is_bound for figure in figures)
    lower = text if "mem" not in text else re.sub(r"17\.25|17,250|17664|18522046464", "1", text)
    assert max(find_figures([*text.splitlines(), *lower.splitlines()], "log")) == max(figures)


@pytest.mark.parametrize(
    ("text", "size"),
    [(OOM_1_13, 22.76 * GIB), (OOM_2_1, 22.9 * GIB + 22 * MIB), (OOM_2_8, 76.5 * GIB + 512 * 2**10)],
)
@pytest.mark.parametrize("before", ["", LLAMAFACTORY, SUMMARY])
def test_what_ran_out_of_memory_is_a_lower_bound(text, size, before):
    [figure] = find_figures([*before.splitlines(), text], "log")
    assert figure == Figure("allocated", pytest.approx(size), "out of memory", is_bound=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no peak of GPU memory found"),
        ("GPU memory usage while training: 12.345GB (+10.100GB cache, +0.523GB misc)", "no peak of GPU memory found"),
        ("print(torch.cuda.max_memory_allocated() / 1024**3)", "no peak of GPU memory found"),
        ("torch.cuda.max_memory_allocated(): 17.25 GB", "`max_memory_allocated(): 17.25 GB` has no unit"),
        ("torch.cuda.max_memory_allocated(): 17.25", "has no unit that is certain; print bytes, or GiB"),
        ('"train_mem_gpu_peaked_delta": 7', "`before_init_mem_gpu` is missing"),
        (DEEPSPEED.split("Engine after backward")[0], "no peak of GPU memory found"),
        ("torch.cuda.max_memory_allocated(): 0 GiB", "no peak of GPU memory found"),
    ],
)
def test_other_lines_are_no_evidence(text, reason):
    with pytest.raises(UsageError, match=re.escape(reason)):
        find_figures(text.splitlines(), "log")


CONFIG = """\
base_model: {model}
adapter: lora
lora_r: 16
lora_target_modules: [q_proj, v_proj]
sequence_len: 2048
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 1
gradient_checkpointing: true
num_epochs: 1
optimizer: adamw_torch
learning_rate: 0.0001
bf16: true
flash_attention: true
datasets:
  - path: /secret-data/{user}/alpaca
    type: alpaca
output_dir: /secret-out/{user}
wandb_project: secret-project
"""
STATED = ("--gpu", "A100-80GB", "--gpus-per-node", "1", "--nodes", "1", "--release", "axolotl=0.13.1")
UNPADDED = ("--set", "pad_to_sequence_len=false")
ROWS = Path(".cfglint", "measurements.jsonl")


@pytest.fixture
def here(tmp_path) -> Path:
    root = tmp_path / "secret-repository"
    (root / ".git").mkdir(parents=True)
    user = getpass.getuser()
    (root / "secret-run.yaml").write_text(CONFIG.format(model="Qwen/Qwen2.5-7B", user=user))
    (root / "secret.log").write_text(f"[{socket.gethostname()}] /home/{user} {INSIDE}\n")
    return root


def record(here: Path, *arguments: str, config: str = "secret-run.yaml", log: str = "secret.log"):
    return run_cfglint("calibrate", "record", config, log, *(arguments or STATED), cwd=here)


def test_a_row_has_no_path_and_no_name(here):
    model = here / "models" / "secret-model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 8, "intermediate_size": 2816, "vocab_size": 32000, "torch_dtype": "bfloat16",
        "_name_or_path": "/secret-home/model", "architectures": ["LlamaForCausalLM"],
    }))  # fmt: skip
    (here / "local.yaml").write_text(CONFIG.format(model="./models/secret-model", user="me"))
    (here / "small.log").write_text("max_memory_allocated: 1.5 GiB\n")
    for outcome in (record(here), record(here, config="local.yaml", log="small.log")):
        assert outcome.code == 0, outcome.err
    text = (here / ROWS).read_text()
    assert "Qwen/Qwen2.5-7B" in text
    for private in ("secret", "/home", str(here), socket.gethostname(), "alpaca", "yaml"):
        assert private not in text
    rows = list(map(json.loads, text.splitlines()))
    assert [row["counter"] for row in rows] == ["allocated", "reserved", "allocated"]
    assert {row["release"] for row in rows} == {"0.13.1"}
    assert rows[2]["model"] == rows[2]["shape"]["id"] == ""
    names = {value for row in rows for value in row["plan"].values() if isinstance(value, str)}
    assert getpass.getuser() not in names


def test_every_run_has_its_estimate_without_names_and_paths(monkeypatch):
    monkeypatch.setattr(recording, "list_assumptions", lambda run: ())
    runs = api.estimate(REPOSITORY / "fixtures" / "fit", api.Options(isolated=True)).raw.runs
    runs = [run for run in runs if not run.plan.model.roles and not run.estimate.missing]
    assert len(runs) > 25
    for run in runs:  # `build_rows` raises an error if the estimate of the row differs
        [row] = recording.build_rows(run, [Figure("allocated", GIB, "a test")])
        texts = {value for value in row["plan"].values() if isinstance(value, str)}
        assert not any(set(text) & set("/~@") for text in texts)


LENGTH_CONFIGS = {
    "axolotl": ("secret-run.yaml", "sequence_len", ("--set", "sample_packing=false", *UNPADDED)),
    "llamafactory": ("run.yaml", "cutoff_len", ("--release", "transformers=5.6.0")),
    "openrlhf": ("run.sh", "max_len", ("--release", "openrlhf=0.9.3")),
}
RUN_YAML = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
output_dir: out
per_device_train_batch_size: 1
bf16: true
"""
RUN_SH = """\
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --dataset x --max_len 2048 --lora_rank 8 \\
  --train_batch_size 1 --micro_train_batch_size 1 --zero_stage 2 --bf16 --gradient_checkpointing --max_epochs 1
"""


@pytest.mark.parametrize("framework", LENGTH_CONFIGS)
def test_a_length_on_the_command_line_is_that_of_the_longest_sample(here, framework):
    config, key, arguments = LENGTH_CONFIGS[framework]
    (here / "run.yaml").write_text(RUN_YAML)
    (here / "run.sh").write_text(RUN_SH)
    (here / "length.log").write_text("max_memory_allocated: 18.25 GiB\n")
    refused = record(here, *STATED, *arguments, config=config, log="length.log")
    assert refused.code == 2
    assert "(the length with `--set`): every sequence has the full" in refused.err
    outcome = record(here, *STATED, *arguments, "--set", f"{key}=1830", config=config, log="length.log")
    assert outcome.code == 0, outcome.err
    [row] = map(json.loads, (here / ROWS).read_text().splitlines())
    assert row["framework"] == framework
    assert row["plan"]["sequence.length"] == 1830


def test_a_resumed_run_counts_unless_its_memory_peaks_while_it_resumes(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "list_assumptions", lambda run: ())
    options = api.Options(isolated=True, overrides={"resume_from_checkpoint": "secret"}, gpu="H200")
    [run] = api.estimate(REPOSITORY / "fixtures" / "fit" / "llamafactory-8b-1x8.yaml", options).raw.runs
    assert run.estimate.find_phase("resume").gpu is not None
    [row] = recording.build_rows(run, [Figure("allocated", GIB, "a test")])
    assert "secret" not in json.dumps(row)
    for name in (*STEP_PHASES, "save", "load"):
        run._estimate = run.estimate.drop_gpu(name)
    monkeypatch.setattr(recording, "build_rows", lambda run, figures: [row])
    with pytest.raises(UsageError, match="memory is expected to peak in resuming"):
        recording.record(run, [Figure("allocated", GIB, "a test")], str(tmp_path / ROWS))


def test_rows_are_evidence_for_calibrate_report(here):
    assert record(here).code == 0
    compared = list(compare(read_rows(str(here / ROWS))))
    assert [row.skipped for row in compared] == ["", ""]
    said = re.findall(
        r"measured ([\d.]+) GiB (\w+), .*; expected ([\d.]+) GiB \(([\d.]+) to ([\d.]+)\)", record(here).out
    )
    for row, (measured, counter, *expected) in zip(compared, said, strict=True):
        assert (counter, float(measured)) == (row.counter, pytest.approx(row.measured, abs=0.1))
        # `report` does not read the GPU, whose kind decides how large the cuBLAS workspaces are
        assert list(map(float, expected)) == pytest.approx([row.predicted, row.low, row.high], abs=0.15)


def test_a_row_is_added_once_and_the_rest_of_the_file_stays(here):
    first = record(here)
    assert f"{ROWS}: 2 added" in first.out
    assert "1 of 3 different set-ups" in first.out
    text = (here / ROWS).read_text().rstrip("\n")
    (here / ROWS).write_text(text)
    assert "already recorded" in record(here).out
    assert (here / ROWS).read_text() == text
    (here / "other.log").write_text("max_memory_allocated: 20 GiB\n")
    assert "1 added" in record(here, log="other.log").out
    assert (here / ROWS).read_text().startswith(f"{text}\n{{")
    elsewhere = here.parent / "mine" / "rows.jsonl"
    assert record(here, *STATED, "--to", str(elsewhere)).code == 0
    assert elsewhere.read_text().rstrip("\n") == text


@pytest.mark.parametrize(
    ("log", "arguments", "reason"),
    [
        (AXOLOTL_0_13, ("--gpus-per-node", "1"), "state what is assumed about the run: an 80 GB GPU; set `gpu`"),
        (
            AXOLOTL_0_13,
            (*STATED, "--set", "pad_to_sequence_len=false", "--set", "sample_packing=false"),
            "state what is assumed about the run (the length with `--set`): every sequence has the full `sequence_len`",
        ),
        (LLAMAFACTORY, STATED, "vram_allocated is a line of LLaMA-Factory, but the run is one of axolotl"),
        ("max_memory_allocated: 90 GiB", STATED, "90.0 GiB allocated do not fit on one GPU of 79.1 GiB"),
        ("max_memory_reserved: 79 GiB", STATED, "record the allocated memory"),
        ("nothing", STATED, "no peak of GPU memory found"),
        (AXOLOTL_0_13, (*STATED, "--isolated"), "say where to write with --to"),
        (AXOLOTL_0_13, (*STATED, "--to", "."), ""),
    ],
)
def test_what_is_no_evidence_is_refused_and_nothing_is_written(here, log, arguments, reason):
    (here / "secret.log").write_text(log)
    outcome = record(here, *arguments)
    assert outcome.code == 2
    assert reason in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not os.path.exists(here / ".cfglint")


def test_a_malformed_file_is_left_as_it_is(here):
    (here / ".cfglint").mkdir()
    (here / ROWS).write_text("{}\n")
    outcome = record(here)
    assert outcome.code == 2
    assert f"{ROWS}:1: `framework` must be one of" in outcome.err
    outcome = record(here, *STATED, "--isolated", "--to", str(ROWS))
    assert outcome.code == 2
    assert f"{ROWS}:1: `framework` must be one of" in outcome.err
    assert (here / ROWS).read_text() == "{}\n"


def test_a_file_with_several_runs_or_none_is_refused(here):
    (here / "train.sh").write_text("echo\n")
    outcome = record(here, config="train.sh")
    assert outcome.code == 2
    assert "train.sh: 0 runs; name a file with one" in outcome.err
    outcome = record(here, config="missing.yaml")
    assert outcome.code == 2
    outcome = record(here, log="missing.log")
    assert outcome.code == 2
    assert "missing.log: No such file or directory" in outcome.err
