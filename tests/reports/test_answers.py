"""First line of the output: whether a run fits, with the same words and figures as the details below it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.command import run_cfglint
from tests.support.linting import FIXTURES

FITS = """\
base_model: meta-llama/Llama-3.2-3B
datasets: [{path: data.jsonl, type: alpaca}]
sequence_len: 4096
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 4
learning_rate: 2e-5
optimizer: adamw_torch_fused
bf16: true
attn_implementation: flash_attention_2
output_dir: out
deepspeed: z3.json
"""
ZERO_3 = """\
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto",
 "gradient_accumulation_steps": "auto", "train_batch_size": "auto", "gradient_clipping": "auto"}
"""
DOES_NOT = FITS.replace("micro_batch_size: 1", "micro_batch_size: 4")
CLUSTER = ("--gpu", "H100", "--nodes", "1", "--gpus-per-node", "8", "--release", "axolotl=0.21.0")


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "z3.json").write_text(ZERO_3)
    (tmp_path / "config.yaml").write_text(FITS)
    return tmp_path


def get_first_line(*arguments: str, cwd: Path) -> str:
    return run_cfglint(*arguments, cwd=cwd).lines[0]


def test_what_fits_says_how_much_more_would(here):
    answer = get_first_line("estimate", "config.yaml", *CLUSTER, cwd=here)
    match = re.fullmatch(
        r"fits: ([\d.]+) of ([\d.]+) GiB; largest micro batch (\d+); (tight|\w.*fit) from ([\d,]+) tokens", answer
    )
    assert match is not None, answer
    expected, capacity, batch, verdict, tokens = match.groups()
    assert get_first_line("fit", "config.yaml", *CLUSTER, cwd=here) == answer
    assert get_first_line("config.yaml", *CLUSTER, cwd=here) == f"fits: {expected} of {capacity} GiB"
    # The details below have the same figures and words, and so do the commands for each figure.
    report = json.loads(
        run_cfglint("fit", "config.yaml", *CLUSTER, "--max", "micro_batch", "--format", "json", cwd=here).out
    )
    assert report["runs"][0]["verdict"] == "fits"
    assert f"{report['runs'][0]['expected'] / 2**30:.1f}" == expected
    assert report["runs"][0]["largest"] == int(batch)
    length = int(tokens.replace(",", ""))
    for size, expected_verdict in ((length, verdict), (length - 200, "fits")):
        (here / "config.yaml").write_text(FITS.replace("4096", str(size)))
        assert get_first_line("config.yaml", *CLUSTER, cwd=here).startswith(f"{expected_verdict}: "), size


def test_what_is_tight_says_where_it_ends(here):
    answer = get_first_line("estimate", "config.yaml", *CLUSTER, cwd=here)
    length = int(re.search(r"from ([\d,]+) tokens", answer)[1].replace(",", ""))
    (here / "config.yaml").write_text(FITS.replace("4096", str(length)))
    answer = get_first_line("estimate", "config.yaml", *CLUSTER, cwd=here)
    assert re.fullmatch(
        r"tight: [\d.]+ of [\d.]+ GiB in the backward pass; "
        r"(probably )?does not fit from [\d,]+ tokens",
        answer,
    ), answer


def test_what_does_not_fit_says_the_smallest_change(here):
    (here / "config.yaml").write_text(DOES_NOT)
    answer = get_first_line("fit", "config.yaml", *CLUSTER, cwd=here)
    assert re.fullmatch(r"does not fit: [\d.]+ of [\d.]+ GiB in the backward pass; smallest change: \S.+", answer)
    assert get_first_line("estimate", "config.yaml", *CLUSTER, cwd=here) == answer
    outcome = run_cfglint("config.yaml", *CLUSTER, cwd=here)
    assert outcome.lines[:2] == [answer, ""]
    assert outcome.lines[2].startswith("config.yaml:")
    # Rules that do not estimate do not compute an answer.
    assert "fit" not in run_cfglint("config.yaml", *CLUSTER, "--select", "SYN", cwd=here).out


def test_an_assumed_gpu_is_marked(here):
    assert re.match(
        r"fits: [\d.]+ of [\d.]+ GiB \(80 GB GPU assumed; set --gpu\)", get_first_line("config.yaml", cwd=here)
    )


def test_what_was_not_estimated_says_why(here):
    (here / "config.yaml").write_text(FITS.replace("Llama-3.2-3B", "Unknown-3B"))
    answer = "not estimated: `meta-llama/Unknown-3B` is not in the catalogue of models"
    for command in ([], ["estimate"], ["fit"]):
        assert get_first_line(*command, "config.yaml", *CLUSTER, cwd=here) == answer


def test_a_companion_alone_has_no_answer(here):
    assert run_cfglint("z3.json", cwd=here).lines == ["No findings in 1 file."]
    for command in ("estimate", "fit"):
        assert (
            get_first_line(command, "z3.json", cwd=here)
            == "not estimated: the file does not describe a training run by itself"
        )


def test_the_worst_of_several_runs_is_named_first(here):
    (here / "worse.yaml").write_text(DOES_NOT)
    for command in ("estimate", "fit"):
        answer = get_first_line(command, "config.yaml", "worse.yaml", *CLUSTER, cwd=here)
        assert answer.startswith("worst of 2 runs: worse.yaml: does not fit: ")


def test_a_misspelt_key_counts_as_what_it_is_meant_to_be(here):
    (here / "config.yaml").write_text(DOES_NOT.replace("micro_batch_size", "micro_batch_sze"))
    assert get_first_line("config.yaml", *CLUSTER, cwd=here).startswith("does not fit: ")


MISSPELT = """\
# cfglint: openrlhf=0.8.9 gpu=A100-80GB gpus-per-node=8 nodes=1
deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --dataset d --zero_stage 3 --bf16 \\
  --flash_attn --gradient_checkpoint --train_batch_size 64 --micro_train_batch_size 8 --max_len 2048 --save_path ck
"""


def test_the_worse_of_as_written_and_as_meant_is_the_verdict(here):
    """Without the misspelt key, the run does not fit; as meant, it does."""
    (here / "run.sh").write_text(MISSPELT)
    lines = [run_cfglint(*command, "run.sh", cwd=here).lines for command in ((), ("estimate",), ("fit",))]
    answers = {line[0].partition(";")[0] for line in lines}
    assert len(answers) == 1
    assert answers.pop().startswith("does not fit: ")
    for command in lines[1:]:
        assert any(line.startswith("  as written  does not fit: ") for line in command)
        assert any(line.startswith("  as meant    fits: ") for line in command)
    assert any(" warning MEM001 " in line for line in lines[0])
    assert any("as written; as meant (counts `--gradient_checkpoint`" in line for line in lines[0])
    assert {line[0].partition("; ")[2] for line in lines} == {"smallest change: correct the misspelled keys"}
    page = run_cfglint("estimate", "--output-format", "html", "run.sh", cwd=here).out
    assert "As meant: Fits: " in page
    assert '<h1 class="does-not-fit">Does not fit: ' in page
    assert "<code>correct the misspelled keys</code>" in page


def test_a_correction_that_is_not_enough_is_proposed_with_the_change_that_is(here):
    """As meant, the run needs less than as written, but does not fit either."""
    long = DOES_NOT.replace("sequence_len: 4096", "sequence_length: 256").replace("batch_size: 4", "batch_size: 256")
    (here / "config.yaml").write_text(long)
    answers = {get_first_line(*command, "config.yaml", *CLUSTER, cwd=here) for command in ((), ("estimate",), ("fit",))}
    change = "smallest change: correct the misspelled keys, "
    assert len(answers) == 1
    assert change in (answer := answers.pop())
    (here / "config.yaml").write_text(long.replace("sequence_length", "sequence_len"))
    assert get_first_line("fit", "config.yaml", *CLUSTER, cwd=here).endswith(answer.partition(change)[2])
    (here / "config.yaml").write_text(long)
    run_cfglint("--fix", "--unsafe-fixes", "--select", "KEY001,MEM001", "config.yaml", *CLUSTER, cwd=here)
    assert get_first_line("estimate", "config.yaml", *CLUSTER, cwd=here).startswith("fits: ")


def test_a_misspelt_key_that_changes_no_size_counts_as_meant_in_every_report(here):
    """The micro batch is the default in both cases."""
    (here / "config.yaml").write_text(FITS.replace("micro_batch_size", "micro_batchsize"))
    counted = "counts `micro_batchsize` as `micro_batch_size`"
    outputs = [run_cfglint(command, "config.yaml", *CLUSTER, cwd=here).out for command in ("estimate", "fit")]
    assert len({output.splitlines()[0] for output in outputs}) == 1
    for output in outputs:
        assert f"  {counted}" in output.splitlines()
        assert "not counted" not in output
    [report] = json.loads(run_cfglint("estimate", "config.yaml", *CLUSTER, "--format", "json", cwd=here).out)["runs"]
    assert f"{counted}, as meant" in report["assumptions"]
    assert report["not_counted"] == []


def test_the_fixed_file_is_named_and_its_fix_has_the_peak_of_the_answer(here):
    """The finding is at the stage of the DeepSpeed file, and its fix changes the recipe."""
    for name in ("llamafactory-70b-1x8.yaml", "z3.json"):
        shutil.copy(FIXTURES / "fit" / name, here / name)
    command = ("llamafactory-70b-1x8.yaml", "--gpu", "A100-40GB", "--nodes", "1", "--gpus-per-node", "8")
    outcome = run_cfglint("--fix", "--unsafe-fixes", "--select", "MEM001", *command, cwd=here)
    match = re.match(r"fixed: llamafactory-70b-1x8.yaml: MEM001 .* -> ([\d.]+) GiB\)", outcome.err)
    assert match is not None, outcome.err
    assert f": {match[1]} of " in get_first_line("estimate", *command, cwd=here)


def test_a_plan_gets_an_answer(here):
    (here / "plan.json").write_text(
        json.dumps(
            {
                "model": {"id": "meta-llama/Llama-3.1-8B"},
                "batch": {"micro": 1},
                "sequence": {"length": 2048},
                "launch": {"nodes": 1, "gpus_per_node": 8},
                "method": {"tuning": "lora", "lora_rank": 16, "stage": "sft", "lora_targets": ["q_proj"]},
                "precision": {"params": "bf16", "compute": "bf16", "grads": "bf16"},
                "optimizer": {"name": "adamw"},
                "parallel": {"strategy": "none"},
                "activations": {"checkpointing": "full", "attention": "flash"},
            }
        )
    )
    answer = get_first_line("estimate", "--plan", "plan.json", "--gpu", "H100", cwd=here)
    assert re.fullmatch(r"fits: [\d.]+ of [\d.]+ GiB; largest micro batch \d+; \w+ from [\d,]+ tokens", answer)


def test_reports_for_programs_have_no_answer(here):
    for form in ("concise", "grouped", "github", "json-lines"):
        assert "fits:" not in run_cfglint("config.yaml", *CLUSTER, "--output-format", form, cwd=here).out
    assert "fits:" not in run_cfglint("config.yaml", *CLUSTER, "--quiet", cwd=here).out
    (here / "other.yaml").write_text(FITS.replace("output_dir: out", "output_dir: other"))
    assert "fits:" not in run_cfglint("config.yaml", "other.yaml", *CLUSTER, cwd=here).out


# --- tables below the answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
@pytest.mark.parametrize("terminal", [True, False])
def test_tables_keep_to_the_width(here, columns, terminal):
    (here / "config.yaml").write_text(DOES_NOT)
    environment = {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    grid = ("--what-if", "micro_batch=1,2,4", "sequence=1024,2048,4096,8192")
    for command in (("estimate",), ("fit",), ("fit", "--max", "micro_batch"), ("estimate", *grid)):
        outcome = run_cfglint(*command, "config.yaml", cwd=here, environment=environment, terminal=terminal)
        assert max(map(len, outcome.lines)) <= columns, command
        assert len(outcome.lines) > 5


def test_no_row_is_empty_and_no_interval_without_width(here):
    out = run_cfglint("estimate", "config.yaml", *CLUSTER, cwd=here).out
    assert " 0.00 GiB" not in out
    assert all(low != high for low, high in re.findall(r"\(([\d.]+) to ([\d.]+)\)", out))
    assert re.search(r"^    save +35\.9 GiB$", out, re.M)
