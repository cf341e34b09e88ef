"""Memory verdicts with misspelt keys, which count as the corrected keys in the lint that reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_rules.registry import RULES
from cfglint_train.documents.document import apply_edits
from tests.support.linting import build_options, fix, lint, read_contents

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


def select_options(*select: str):
    return build_options(
        select=select or ["KEY001", "MEM"], gpu="A100-80GB", nodes="1", gpus_per_node="8", axolotl="0.16.0"
    )


def lint_memory(folder: Path, *select: str) -> list[tuple[str, str, tuple[str, ...]]]:
    findings = lint(folder, select_options(*select)).findings
    return [(finding.code, finding.message, finding.notes) for finding in findings if finding.code.startswith("MEM")]


@pytest.mark.parametrize(
    ("length", "micro"),
    [("sequence_length", "micro_batch_size"), ("sequence_len", "micro_bach_size"), ("seq_length", "micro_batchsize")],
)
def test_the_verdict_is_that_of_the_corrected_file(here, length: str, micro: str) -> None:
    (here / "run.yaml").write_text(TEXT.format(length=length, micro=micro))
    misspelt = lint_memory(here)
    (here / "run.yaml").write_text(TEXT.format(length="sequence_len", micro="micro_batch_size"))
    corrected = lint_memory(here)
    assert corrected
    assert [verdict[:2] for verdict in misspelt] == [verdict[:2] for verdict in corrected]
    names = {name for name in (length, micro) if name not in ("sequence_len", "micro_batch_size")}
    assert all(any(f"counts `{name}` as" in note for note in verdict[2]) for verdict in misspelt for name in names)


def test_where_the_key_is_not_reported_the_file_counts_as_it_is(here) -> None:
    (here / "run.yaml").write_text(TEXT.format(length="sequence_length", micro="micro_batch_size"))
    assert not any("counts" in note for verdict in lint_memory(here, "MEM") for note in verdict[2])
    assert lint_memory(here, "MEM") != lint_memory(here)


def test_the_key_is_fixed_before_what_rests_on_it(here) -> None:
    (here / "run.yaml").write_text(TEXT.format(length="sequence_length", micro="micro_bach_size"))
    fix(here, select_options())
    fixed_files = read_contents(here)
    fix(here, select_options())
    assert read_contents(here) == fixed_files
    (here / "run.yaml").write_text(TEXT.format(length="sequence_len", micro="micro_batch_size"))
    fix(here, select_options())
    assert read_contents(here) == fixed_files


@pytest.mark.parametrize(
    ("micro", "code", "severity", "is_written"),
    [
        (14, "PRF005", "info", False),  # as written, the run needs the checkpointing
        (64, "MEM001", "warning", True),  # as meant, the run fits
        (128, "MEM001", "warning", True),
        (256, "MEM001", "error", True),
        (512, "MEM001", "error", True),
    ],
)
def test_severity_and_fix_are_those_of_the_corrected_file_where_it_fits_better(
    here, micro: int, code: str, severity: str, is_written: bool
) -> None:
    """The default length is twice as long, so that the run as written needs more."""
    atoms = {}
    for key in ("sequence_length", "sequence_len"):
        text = TEXT.format(length=key, micro="micro_batch_size").replace("16384", "256")
        (here / "run.yaml").write_text(text.replace("batch_size: 8", f"batch_size: {micro}"))
        findings = lint(here, select_options("KEY001", "MEM", "PRF", "CKP", "HST", "CHK")).findings
        atoms[key] = {atom.code: atom for finding in findings for atom in finding.atoms}
    misspelt, corrected = atoms.values()
    claims = [
        {(atom.code, atom.severity, repr(atom.intent and dict(atom.intent.changes))) for atom in group.values()}
        for group in (misspelt, corrected)
    ]
    assert claims[1] <= claims[0]
    for settled in misspelt.keys() - corrected.keys() - {"KEY001"}:
        assert misspelt[settled].severity != "error"
        assert misspelt[settled].intent is None
        assert misspelt[settled].help == "correct the misspelled key"
    assert misspelt[code].severity == severity
    assert any("as written; as meant" in note for note in misspelt[code].notes) is is_written
    assert is_written or code in corrected


def test_rules_without_an_estimate_judge_the_file_as_written(here) -> None:
    text = TEXT.format(length="sequence_length", micro="micro_bach_size").replace("learning_rate", "learning_rat")
    (here / "run.yaml").write_text(text.replace("sample_packing: true", "sample_packing: false\nval_set_siz: 0.1"))
    found = []
    for ignored in ((), ("KEY001",)):
        options = select_options("ALL")._replace(ignore=ignored)
        atoms = [atom for finding in lint(here, options).findings for atom in finding.atoms]
        kept = [atom for atom in atoms if not RULES[atom.code].estimates and atom.code != "KEY001"]
        found.append({(atom.code, atom.severity, atom.message, atom.notes) for atom in kept})
    assert found[0] == found[1] != set()


@pytest.mark.parametrize("misspelt", ["micro_batchsize", "gradient_accumulation_step"])
def test_the_fix_that_is_shown_is_the_one_that_is_written(here, misspelt: str) -> None:
    text = TEXT.format(length="sequence_len", micro="micro_batch_size").replace("batch_size: 8", "batch_size: 16")
    text = text.replace("accumulation_steps: 1", "accumulation_steps: 2")
    text = text.replace("optimizer:", "liger_fused_linear_cross_entropy: true\noptimizer:")
    text = text.replace("bf16:", "plugins: [axolotl.integrations.liger.LigerPlugin]\nbf16:")
    correct_key = {"micro_batchsize": "micro_batch_size", "gradient_accumulation_step": "gradient_accumulation_steps"}
    messages = []
    for source in (text, text.replace(correct_key[misspelt], misspelt)):
        (here / "run.yaml").write_text(source)
        [finding] = [candidate for candidate in lint(here, select_options()).findings if candidate.code == "MEM001"]
        assert finding.fix is not None
        messages.append((finding.message, finding.fix.applicability, finding.fix.message))
    assert messages[0] == messages[1]
    document = finding.fix.edits[0].document
    shown_fix = apply_edits(document.source, [candidate.edit for candidate in finding.fix.edits])
    assert f"{misspelt}:".encode() not in shown_fix
    fix(here, select_options(), unsafe=True)
    assert read_contents(here)["run.yaml"] == shown_fix


def test_a_key_of_a_companion_counts_too(here) -> None:
    (here / "run.yaml").write_text(
        TEXT.format(length="sequence_len", micro="micro_batch_size").replace("16384", "512") + "deepspeed: z3.json\n"
    )
    zero = '{"zero_optimization": {"%s": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}}\n'
    verdicts = []
    for key in ("stage", "stge"):
        (here / "z3.json").write_text(zero % key)
        verdicts.append([verdict[:2] for verdict in lint_memory(here)])
    assert verdicts[0] == verdicts[1]
