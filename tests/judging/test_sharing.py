"""Fixes and shared files: a fix spares the files that other runs of the same lint read."""

from __future__ import annotations

import pytest

from cfglint_train.judging.collector import Ledger
from cfglint_train.judging.sharing import list_changed_files
from tests.support.linting import build_options, lint

RUN = """\
# cfglint: nodes=1 gpus-per-node=8 gpu=A100-80GB host-memory={memory}
model_name_or_path: meta-llama/Llama-3.1-70B
stage: sft
do_train: true
finetuning_type: full
dataset: identity
template: llama3
cutoff_len: 1024
output_dir: out/{name}
deepspeed: ds.json
per_device_train_batch_size: 1
bf16: true
"""
DEEPSPEED = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}
}
"""


def lint_runs(folder, *memories):
    for number, memory in enumerate(memories):
        (folder / f"run{number}.yaml").write_text(RUN.format(memory=memory, name=number))
    (folder / "ds.json").write_text(DEEPSPEED)
    return lint(folder, build_options(("CKP003",)))


def collect_findings(result, severity):
    """Return the findings of a lint as its collector has them if all have this severity."""
    ledger = Ledger()
    for run in result.runs:
        ledger.add_run(run)
    ledger.add([finding._replace(severity=severity) for finding in result.findings], 0)
    return list(ledger.list_findings())


def test_a_fix_names_the_files_that_it_changes(tmp_path):
    (finding,) = lint_runs(tmp_path, "100GB").findings
    assert list_changed_files(finding) == {"ds.json"}


@pytest.mark.parametrize(("memories", "offered"), [(("100GB",), True), (("100GB", "2TB"), False)])
def test_advice_leaves_a_file_that_another_run_reads(memories, offered, tmp_path):
    (finding,) = collect_findings(lint_runs(tmp_path, *memories), "info")
    assert (finding.intent is not None) == offered
    assert ("in a copy of ds.json: another run also uses it" in (finding.help or "")) != offered


def test_what_a_run_cannot_do_without_is_offered_as_unsafe(tmp_path):
    (finding,) = collect_findings(lint_runs(tmp_path, "100GB", "2TB"), "error")
    assert finding.intent.applicability == "unsafe"
