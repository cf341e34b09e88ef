"""`cfglint why-oom`: the explanation, the estimate beside it, the change that fits, the row, and exit codes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.postmortem.logs import format_frames, format_message
from tests.support.command import run_cfglint
from tests.support.linting import FIXTURES

GIB = 2**30
SCHEMA = json.loads((Path(__file__).parent / "report.schema.json").read_text(encoding="utf-8"))

CONFIG = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 8192
micro_batch_size: 2
gradient_accumulation_steps: 4
sample_packing: true
pad_to_sequence_len: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
bf16: true
flash_attention: true
gradient_checkpointing: true
optimizer: adamw_torch
learning_rate: 0.0001
num_epochs: 1
output_dir: out
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
"""
MESSAGE = {
    "style": "new", "device": 0, "tried": "7.83 GiB", "total": "39.38 GiB", "free": "3.90 GiB",
    "allocated": "33.20 GiB", "idle": "1.10 GiB", "own": "35.46 GiB", "processes": [],
}  # fmt: skip
LOSS = [["torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss("]]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a configuration."""
    (tmp_path / "sft.yaml").write_text(CONFIG)
    return tmp_path


def change_config(**changes: str | None) -> str:
    """Return the configuration with changed keys, without those whose value is None."""
    lines = [line for line in CONFIG.splitlines() if line.partition(":")[0] not in changes]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in changes.items() if value is not None), ""])


def write_log(folder: Path, *lines: str, frames: list[list[str]] = LOSS, **changes: object) -> None:
    """Write `job.log`: some lines, a traceback and a message with changed sizes."""
    text = [*lines, *format_frames(frames), format_message({**MESSAGE, **changes}), ""]
    (folder / "job.log").write_text("\n".join(text))


def run_json(folder: Path, *words: str) -> dict:
    """Return the JSON report on `job.log`, which must match the schema."""
    outcome = run_cfglint("why-oom", "job.log", *words, "--output-format", "json", cwd=folder)
    document = json.loads(outcome.out)
    Draft202012Validator(SCHEMA).validate(document)
    assert outcome.code == (0 if document["explained"] else 1)
    return document


def test_the_allocation_is_matched_with_a_tensor_of_the_estimate(folder):
    write_log(folder, "  3%|#  | 9/352 [40:55<25:10, 264.19s/it]")
    outcome = run_cfglint("why-oom", "job.log", "sft.yaml", cwd=folder)
    assert outcome.code == 0
    assert "  where: forward (cross_entropy in functional.py), after 9 of 352 steps" in outcome.lines
    assert "  what: logits and loss, by traceback and size" in outcome.lines
    assert "  size: 7.83 GiB = logits: 2 x 8,192 tokens x 128,256 x 4 B" in outcome.lines
    assert "for a GPU with room for 38.1 GiB:" in outcome.lines
    assert "    liger_fused_linear_cross_entropy: true" in outcome.lines


def test_the_change_is_that_of_fit_on_the_gpu_of_the_log(folder):
    write_log(folder, allocated="20.00 GiB")
    document = run_json(folder, "sft.yaml")
    (failure,) = document["failures"]
    assert failure["estimate"]["needed"] == pytest.approx(27.83 * GIB, abs=2)
    assert document["room"] == int(39.38 * GIB)
    fits = run_cfglint("fit", "sft.yaml", "--gpu-memory", "39.38GiB", "--output-format", "json", cwd=folder)
    (run,) = json.loads(fits.out)["runs"]
    assert document["fit"]["solution"]["settings"] == run["solution"]["settings"]


def test_an_estimate_that_is_too_low_and_other_processes_narrow_the_room(folder):
    write_log(folder, allocated="34.50 GiB", processes=["2.00 GiB"])
    document = run_json(folder, "sft.yaml")
    (failure,) = document["failures"]
    shortage = failure["estimate"]["needed"] - failure["estimate"]["expected"]
    assert shortage > GIB
    assert failure["others"] == 2 * GIB
    assert document["room"] == pytest.approx(int(37.38 * GIB) - shortage, abs=2)
    outcome = run_cfglint("why-oom", "job.log", "sft.yaml", cwd=folder)
    assert "too low" in outcome.out
    assert "other processes hold 2.0 GiB" in outcome.out
    write_log(folder, total="60.00 GiB", own=None)
    assert "other processes or libraries hold 21.8 GiB" in run_cfglint("why-oom", "job.log", cwd=folder).out


def test_a_run_that_needed_more_than_the_upper_bound_is_probably_another_one(folder):
    write_log(folder, total="79.11 GiB", allocated="65.00 GiB", own="70.00 GiB")
    document = run_json(folder, "sft.yaml")
    assert document["failures"][0]["estimate"]["contradicted"] is True
    assert document["fit"] is None
    outcome = run_cfglint("why-oom", "job.log", "sft.yaml", cwd=folder)
    assert "check whether the job ran this configuration" in outcome.lines[-2]
    cluster = ("--gpu", "A100-80GB", "--nodes", "1", "--gpus-per-node", "1", "--release", "axolotl=0.13.1")
    refused = run_cfglint("why-oom", "job.log", "sft.yaml", "--row", *cluster, cwd=folder)
    assert (refused.code, refused.out) == (2, "")
    assert "it is probably that of another run; check whether the job ran this configuration" in refused.err
    command = ("calibrate", "record", "sft.yaml", "job.log", "--to", "rows.jsonl", *cluster)
    assert run_cfglint(*command, cwd=folder).code == 0  # the user says that it is this run's


def test_a_limit_of_the_job_is_its_capacity(folder):
    write_log(folder, free="9.90 GiB")
    text = (folder / "job.log").read_text().replace(" Of the allocated", " 36.00 GiB allowed; Of the allocated")
    (folder / "job.log").write_text(text)
    document = run_json(folder, "sft.yaml")
    assert document["failures"][0]["limit"] == 36 * GIB
    assert document["room"] < 36 * GIB
    assert document["failures"][0]["fragmented"] is False


@pytest.mark.parametrize(
    ("message", "component"),
    [
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "GPU context"),
        ("RuntimeError: CUDA error: out of memory", None),
    ],
)
def test_an_allocation_outside_of_the_pool_is_no_tensor_of_the_traceback(folder, message, component):
    (folder / "job.log").write_text("\n".join([*format_frames(LOSS), message]))
    assert run_json(folder, "sft.yaml")["failures"][0]["component"] == component


def test_a_full_disk_is_no_checkpoint_unless_the_log_says_so(folder):
    for path, phase in (("out/model-00001-of-00004.safetensors", "save"), ("cache/tmp1", None)):
        (folder / "job.log").write_text(f"OSError: [Errno 28] No space left on device: '{path}'\n")
        assert run_json(folder)["failures"][0]["phase"] == phase
        assert ("a checkpoint did not fit" in run_cfglint("why-oom", "job.log", cwd=folder).out) == (phase == "save")


def test_without_a_traceback_the_size_of_all_logits_is_enough(folder):
    write_log(folder, frames=[])
    (failure,) = run_json(folder, "sft.yaml")["failures"]
    assert (failure["component"], failure["basis"], failure["phase"]) == ("logits and loss", "size", None)


@pytest.mark.parametrize("tried", ["20.00 MiB", "2.00 MiB", "112.00 MiB", "5.10 GiB"])
def test_a_size_of_several_tensors_is_not_known(folder, tried):
    write_log(folder, frames=[], tried=tried)
    (failure,) = run_json(folder, "sft.yaml")["failures"]
    assert failure["component"] is None
    assert bool(failure["candidates"]) == (tried in ("112.00 MiB", "5.10 GiB"))
    assert "  what: not known" in run_cfglint("why-oom", "job.log", "sft.yaml", cwd=folder).lines


FULL = {"adapter": None, "lora_r": None, "lora_alpha": None, "lora_target_linear": None}
FSDP2 = {**FULL, "fsdp_version": "2", "fsdp_config": "{transformer_layer_cls_to_wrap: LlamaDecoderLayer}"}
LIGER = {"plugins": "[axolotl.integrations.liger.LigerPlugin]", "liger_fused_linear_cross_entropy": "true"}
EAGER = {"flash_attention": None, "attn_implementation": "eager", "sample_packing": None, "pad_to_sequence_len": None}
STAGE_1_AND_2, STAGE_3 = "deepspeed/runtime/zero/stage_1_and_2.py", "deepspeed/runtime/zero/stage3.py"
FORWARD = ["transformers/trainer.py", "compute_loss", ""]
BACKWARD = ["torch/_tensor.py", "backward", "torch.autograd.backward("]
STEP = ["accelerate/optimizer.py", "step", ""]


@pytest.mark.parametrize(
    ("changes", "frames", "tried", "component", "formula"),
    [
        pytest.param(
            LIGER,
            [FORWARD, ["liger_kernel/ops/fused_linear_cross_entropy.py", "fused_linear_cross_entropy_forward", ""]],
            "250.50 MiB", "logits and loss", "logits: 512 tokens of a chunk x 128,256 x 4 B", id="fused loss",
        ),
        pytest.param(
            {**FULL, "deepspeed": "zero2.json"},
            [[STAGE_1_AND_2, "__init__", "weights_partition.clone().float().detach())"]],
            "3.74 GiB", "master weights", "master weights: 8,030,261,248 trained elements / 8 ranks x 4 B",
            id="ZeRO-2's partition",
        ),
        pytest.param(
            {**FULL, "deepspeed": "zero2.json"},
            [BACKWARD, [STAGE_1_AND_2, "reduce_independent_p_g_buckets_and_remove_grads", ""]],
            "954.00 MiB", "gradient buckets", "gradient bucket: 500,000,000 elements of a bucket x 2 B",
            id="ZeRO-2's bucket",
        ),
        pytest.param(
            {**FULL, "deepspeed": "zero3.json"},
            [[STAGE_3, "step", ""], ["torch/optim/adamw.py", "_init_group", 'state["exp_avg"] = torch.zeros_like(']],
            "3.73 GiB", "optimizer state", "optimizer state: 1,000,000,000 elements of a sub-group x 4 B",
            id="ZeRO-3's sub-group",
        ),
        pytest.param(
            FSDP2,
            [FORWARD, ["torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather", ""]],
            "418.00 MiB", "gathered parameters", "gathered layer: 218,112,000 elements x 2 B", id="FSDP's layer",
        ),
        pytest.param(
            FSDP2,
            [BACKWARD, ["torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce", ""]],
            "418.00 MiB", "backward transients", "gradients of the layer: 218,112,000 elements x 2 B",
            id="FSDP's gradients",
        ),
        pytest.param(
            FULL,
            [STEP, ["torch/optim/adamw.py", "_multi_tensor_adamw", ""]],
            "1002.00 MiB", "optimizer step transients",
            "temporary of embed_tokens: 128,256 x 4,096 x 2 B or temporary of lm_head: 4,096 x 128,256 x 2 B",
            id="a matrix's update",
        ),
        pytest.param(
            EAGER,
            [FORWARD, ["transformers/models/llama/modeling_llama.py", "eager_attention_forward", "softmax("]],
            "16.00 GiB", "forward transients", "attention scores: 2 x 32 heads x 8,192 x 8,192 tokens x 4 B",
            id="attention scores",
        ),
    ],
)  # fmt: skip
def test_the_size_is_computed_from_the_configuration(folder, changes, frames, tried, component, formula):
    (folder / "sft.yaml").write_text(change_config(**changes))
    for stage in (2, 3):
        (folder / f"zero{stage}.json").write_text(json.dumps({"zero_optimization": {"stage": stage}}))
    write_log(folder, frames=frames, tried=tried)
    (failure,) = run_json(folder, "sft.yaml", "--nodes", "1", "--gpus-per-node", "8")["failures"]
    assert (failure["component"], failure["formula"]) == (component, formula)
    assert failure["basis"] == "traceback and size"


def test_a_token_budget_is_one_batch(folder):
    write_log(folder, frames=[], tried="13.60 GiB")
    script = str(FIXTURES / "threads" / "verl-855" / "train.sh")
    (failure,) = run_json(folder, script)["failures"]
    assert failure["formula"] == "logits: 24,000 tokens x 152,064 x 4 B"


def test_a_shorter_batch_is_shown(folder):
    write_log(folder, tried="3.50 GiB")
    (failure,) = run_json(folder, "sft.yaml")["failures"]
    assert "about 7,325 of 2 x 8,192 tokens x 128,256 x 4 B" in failure["formula"]
    assert failure["basis"] == "traceback"


def test_fragmentation_is_reported(folder):
    write_log(folder, tried="1.00 GiB", free="0.50 GiB", idle="6.00 GiB")
    assert run_json(folder, "sft.yaml")["failures"][0]["fragmented"] is True
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in run_cfglint("why-oom", "job.log", cwd=folder).out
    write_log(folder, idle="0.10 GiB")
    assert run_json(folder, "sft.yaml")["failures"][0]["fragmented"] is False


def test_without_a_configuration_the_log_alone_is_explained(folder):
    write_log(folder)
    document = run_json(folder)
    assert (document["fit"], document["failures"][0]["component"]) == (None, "logits and loss")


def test_standard_input_is_a_log(folder):
    write_log(folder)
    outcome = run_cfglint("why-oom", "-", "sft.yaml", cwd=folder, stdin=(folder / "job.log").read_bytes())
    assert "  what: logits and loss, by traceback and size" in outcome.lines


def test_the_row_is_one_that_calibrate_reads(folder):
    other = format_message({**MESSAGE, "tried": "9.00 GiB", "allocated": "30.00 GiB"})
    write_log(folder, *format_frames([["a.py", "f", "x"]]), other)
    with (folder / "job.log").open("a") as file:  # another rank, which needed less for a larger request
        file.write("\n".join([*format_frames(LOSS), other, ""]))
    cluster = ("--gpu", "A100-40GB", "--nodes", "1", "--gpus-per-node", "1", "--release", "axolotl=0.13.1")
    outcome = run_cfglint("why-oom", "job.log", "sft.yaml", "--row", *cluster, cwd=folder)
    assert outcome.code == 0, outcome.err
    (row,) = map(json.loads, outcome.lines)
    recorded = run_cfglint("calibrate", "record", "sft.yaml", "job.log", "--to", "rows.jsonl", *cluster, cwd=folder)
    assert recorded.code == 0, recorded.err
    assert json.loads((folder / "rows.jsonl").read_text()) == row
    assert row["outcome"] == "OOM"
    assert row["measured_gib"] == pytest.approx(41.03)


def test_a_row_needs_facts_that_are_stated(folder):
    write_log(folder)
    assert run_cfglint("why-oom", "job.log", "sft.yaml", "--row", cwd=folder).code == 2
    assert run_cfglint("why-oom", "job.log", "--row", cwd=folder).code == 2


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (None, ("sft.yaml",), "No such file"),
        (b"all is well\n", ("sft.yaml",), "no out-of-memory message"),
        (b"", (), "no out-of-memory message"),
        (b"\x1f\x8b\x08", (), "job.log: compressed; run `zcat job.log | cfglint why-oom -`"),
        (b"\x7fELF\x00\x01\x02\xff\xfe" * 999, (), "no out-of-memory message"),
        (b"CUDA error: out of memory", ("none.yaml",), "none.yaml"),
        (b"CUDA error: out of memory", ("job.log",), "job.log"),
        (b"CUDA error: out of memory", (".",), "2 runs; name a file with one"),
    ],
)
def test_bad_input_is_an_error(folder, content, words, message):
    (folder / "other.yaml").write_text(CONFIG)
    if content is not None:
        (folder / "job.log").write_bytes(content)
    outcome = run_cfglint("why-oom", "job.log", *words, cwd=folder)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""


def test_a_folder_is_no_log(folder):
    outcome = run_cfglint("why-oom", ".", cwd=folder)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.strip()


def test_a_long_log_is_read_in_little_memory(folder):
    write_log(folder)
    end = (folder / "job.log").read_bytes()
    with (folder / "job.log").open("r+b") as file:
        file.truncate(200 * 2**20)  # a hole, which reads as zeros
        file.seek(0, 2)
        file.write(b"\n" + end)
    tracemalloc.start()
    try:
        outcome = run_cfglint("why-oom", "job.log", cwd=folder)
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()
    assert "  what: logits and loss" in outcome.lines


def test_a_log_cannot_forge_the_report(folder):
    (folder / "job.log").write_bytes(b"\xff\xfe\x1b[2J ::error::x [Errno 28] No space left on device \x9b31m\n")
    outcome = run_cfglint("why-oom", "job.log", cwd=folder)
    assert "\x1b" not in outcome.out
    assert not any(line.startswith("::") for line in outcome.lines)


@pytest.mark.parametrize(
    ("line", "words", "expected"),
    [
        ("Detected 1 oom_kill event in StepId=1.0", (), "state --host-memory to find the smallest change that fits"),
        ("Detected 1 oom_kill event in StepId=1.0", ("--host-memory", "64GiB"), "for the stated hardware:"),
        ("memory: usage 67108864kB, limit 67108864kB, failcnt 1", (), "state --host-memory 64GiB to find the smallest"),
        ("OSError: [Errno 28] No space left on device", (), "state --disk to find the smallest change that fits"),
        ("OSError: [Errno 28] No space left on device", ("--disk", "1GiB"), "for the stated hardware:"),
        ("CUDA error: out of memory", ("--gpu", "H100"), "  the estimate fits: check whether the job ran this"),
        ("Last error: Cuda failure 2 'out of memory'", (), "  what: GPU context"),
        ("Out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:104857600kB", (), "held 100 GiB"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes", (), "4.0 GiB could not"),
        ("failed (exitcode: -9) local_rank: 0", (), "dmesg"),
        ("DataLoader worker (pid 5) is killed by signal: Bus error", (), "--shm-size"),
        ("ValueError: No available memory for the cache blocks.", (), "raise the share"),
        ("(9 GiB KV cache is needed, which is larger than the available KV cache memory", (), "lower that length"),
        ("Free memory on device (1/9 GiB) on startup is less than desired GPU memory utilization", (), "free the GPU"),
        ("Detected 1 oom_kill event in StepId=1.0", ("--host-memory", "4TB"), "  the estimate fits: check whether the"),
    ],
)
def test_other_resources_have_a_remedy(folder, line, words, expected):
    (folder / "job.log").write_text(f"{line}\n")
    outcome = run_cfglint("why-oom", "job.log", "sft.yaml", *words, cwd=folder)
    assert expected in outcome.out
    has_estimate = "oom_kill" in line or "Errno" in line
    assert not has_estimate or any(shown.startswith("  estimate: ") for shown in outcome.lines)


def test_ranks_are_listed(folder):
    lines = [f"[rank{rank}]: {format_message({**MESSAGE, 'device': rank})}" for rank in range(9)]
    (folder / "job.log").write_text("\n".join(lines))
    outcome = run_cfglint("why-oom", "job.log", cwd=folder)
    assert outcome.lines[0].endswith(", on 9 ranks: 0, 1, 2, 3, 4, 5, 6, 7, ...")
