"""A memory verdict counts what a misspelt key is meant to be, in the lint that reports the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents.document import apply
from tests.support.linting import contents, fix, lint, options

TEXT = """\
base_model: meta-llama/Llama-3.2-3B-Instruct
datasets:
  - path: data/meadow.jsonl
    type: chat_template
{length}: 16384
{micro}: 8
gradient_accumulation_steps: 1
gradient_checkpointing: true
sample_packing: true
pad_to_sequence_len: true
bf16: true
optimizer: adamw_torch
learning_rate: 1.0e-5
output_dir: out
"""


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def chosen(*select: str):
    return options(select=select or ["KEY001", "MEM"], gpu="A100-80GB", nodes="1", gpus_per_node="8", axolotl="0.16.0")


def memory(folder: Path, *select: str) -> list[tuple[str, str, tuple[str, ...]]]:
    found = lint(folder, chosen(*select)).findings
    return [(one.code, one.message, one.notes) for one in found if one.code.startswith("MEM")]


@pytest.mark.parametrize(
    ("length", "micro"),
    [("sequence_length", "micro_batch_size"), ("sequence_len", "micro_bach_size"), ("seq_length", "micro_batchsize")],
)
def test_the_verdict_is_that_of_the_corrected_file(here, length: str, micro: str) -> None:
    (here / "run.yaml").write_text(TEXT.format(length=length, micro=micro))
    misspelt = memory(here)
    (here / "run.yaml").write_text(TEXT.format(length="sequence_len", micro="micro_batch_size"))
    right = memory(here)
    assert right
    assert [one[:2] for one in misspelt] == [one[:2] for one in right]
    names = {name for name in (length, micro) if name not in ("sequence_len", "micro_batch_size")}
    assert all(any(f"counts `{name}` as" in note for note in one[2]) for one in misspelt for name in names)


def test_where_the_key_is_not_reported_the_file_counts_as_it_is(here) -> None:
    (here / "run.yaml").write_text(TEXT.format(length="sequence_length", micro="micro_batch_size"))
    assert not any("counts" in note for one in memory(here, "MEM") for note in one[2])
    assert memory(here, "MEM") != memory(here)


def test_the_key_is_fixed_before_what_rests_on_it(here) -> None:
    (here / "run.yaml").write_text(TEXT.format(length="sequence_length", micro="micro_bach_size"))
    fix(here, chosen())
    once = contents(here)
    fix(here, chosen())
    assert contents(here) == once
    (here / "run.yaml").write_text(TEXT.format(length="sequence_len", micro="micro_batch_size"))
    fix(here, chosen())
    assert contents(here) == once


@pytest.mark.parametrize("misspelt", ["micro_batchsize", "gradient_accumulation_step"])
def test_the_fix_that_is_shown_is_the_one_that_is_written(here, misspelt: str) -> None:
    text = TEXT.format(length="sequence_len", micro="micro_batch_size").replace("batch_size: 8", "batch_size: 16")
    text = text.replace("accumulation_steps: 1", "accumulation_steps: 2")
    text = text.replace("optimizer:", "liger_fused_linear_cross_entropy: true\noptimizer:")
    text = text.replace("bf16:", "plugins: [axolotl.integrations.liger.LigerPlugin]\nbf16:")
    right = {"micro_batchsize": "micro_batch_size", "gradient_accumulation_step": "gradient_accumulation_steps"}
    messages = []
    for source in (text, text.replace(right[misspelt], misspelt)):
        (here / "run.yaml").write_text(source)
        [found] = [one for one in lint(here, chosen()).findings if one.code == "MEM001"]
        assert found.fix is not None
        messages.append((found.message, found.fix.applicability, found.fix.message))
    assert messages[0] == messages[1]
    document = found.fix.edits[0].document
    shown = apply(document.source, [one.edit for one in found.fix.edits])
    assert f"{misspelt}:".encode() not in shown
    fix(here, chosen(), unsafe=True)
    assert contents(here)["run.yaml"] == shown


def test_a_key_of_a_companion_counts_too(here) -> None:
    (here / "run.yaml").write_text(
        TEXT.format(length="sequence_len", micro="micro_batch_size").replace("16384", "512") + "deepspeed: z3.json\n"
    )
    zero = '{"zero_optimization": {"%s": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}}\n'
    found = []
    for key in ("stage", "stge"):
        (here / "z3.json").write_text(zero % key)
        found.append([one[:2] for one in memory(here)])
    assert found[0] == found[1]
