"""The five founding stories of cfglint, from configuration to finding to fixed file.

fixtures/cases/<case>/expected.txt lists every finding, fixtures/cases/<case>/fixed/ is the case after `cfglint --fix`.
`CFGLINT_UPDATE=1 pytest tests/test_cases.py` rewrites both; read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, fix, lint, read_contents

FOLDER = REPOSITORY / "fixtures" / "cases"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
SIZES = re.compile(r"[0-9][0-9,.]*(?: to [0-9.]+)?(?= GiB|\))|(?<=GiB: ).*?(?=; |$)")
UPDATE = bool(os.environ.get("CFGLINT_UPDATE"))
UNSAFE = {"3-openrlhf-16b"}
"""Cases whose fix is unsafe: a smaller batch depends on maximum lengths and an assumed GPU."""


@pytest.fixture
def copied(tmp_path):
    def copy(case: str) -> Path:
        ignored = shutil.ignore_patterns("expected.txt", "fixed")
        return Path(shutil.copytree(FOLDER / case, tmp_path / case, ignore=ignored))

    return copy


def format_findings(folder: Path) -> list[str]:
    lines = []
    for finding in lint(folder).findings:
        place = f"{finding.path}:{finding.start.line}:{finding.start.column}"
        # tests/memory checks the memory model's figures against measurements and traces; this test checks the wording.
        message, advice = finding.message, finding.help
        if finding.code.startswith("MEM"):
            message, advice = SIZES.sub("...", message), SIZES.sub("...", advice or "")
        lines.append(f"{place} {finding.severity} {finding.code} {message}")
        if advice:
            lines.append(f"    help: {advice}")
        if finding.fix is not None:
            lines.append(f"    fix ({finding.fix.applicability}): {finding.fix.message}")
    return lines


def find_findings(folder: Path, code: str, path: str = ""):
    return [finding for finding in lint(folder).findings if finding.code == code and finding.path.startswith(path)]


def test_there_are_five():
    assert [case[0] for case in CASES] == list("12345")


@pytest.mark.parametrize("case", CASES)
def test_findings_are_the_expected_ones(case, copied):
    lines = format_findings(copied(case))
    expected = FOLDER / case / "expected.txt"
    if UPDATE:
        expected.write_text("".join(f"{line}\n" for line in lines))
    assert lines == expected.read_text().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_fix_writes_the_fixed_files_and_nothing_twice(case, copied):
    folder = copied(case)
    fixed = fix(folder, unsafe=case in UNSAFE)
    assert fixed.applied
    assert fixed.result.troubles == ()
    if UPDATE:
        shutil.rmtree(FOLDER / case / "fixed", ignore_errors=True)
        shutil.copytree(folder, FOLDER / case / "fixed")
    assert read_contents(folder) == read_contents(FOLDER / case / "fixed")
    assert fix(folder, unsafe=case in UNSAFE).applied == ()


def test_1_the_checkpointer_exceeds_the_host(copied):
    """Reproduce allenai/OLMo#788: 819 GB per node at 64 nodes by the formula, with 480 GB available."""
    folder = copied("1-olmo-64-nodes")
    [finding] = find_findings(folder, "CKP001")
    assert finding.severity == "error"
    assert "64 nodes" in finding.message
    assert "749 GiB" in finding.message
    assert "HYBRID_SHARD" in (finding.help or "")
    fix(folder)
    # The run's torch is unknown, and ai2-olmo 0.6.0 allows torch 2.3, in which `local` fails to start.
    assert "sharded_checkpointer: torch_legacy" in (folder / "olmo-7b.yaml").read_text()
    assert not [remaining for remaining in lint(folder).findings if remaining.severity == "error"]


def test_2_the_optimizer_step_exceeds_the_gpu(copied):
    """Reproduce hiyouga/LLaMA-Factory#7532: 16 bytes x 235.74e9 / 48 ranks, plus the last sub-group's fp32 copy."""
    folder = copied("2-llamafactory-236b")
    [finding] = find_findings(folder, "MEM001", "ds_z3_config.json")
    assert finding.severity == "error"
    assert "optimizer step" in finding.message
    assert "states 73.2 GiB" in finding.notes[0]
    assert "3.4 GiB for the last one" in finding.notes[1]  # the failed allocation in the issue
    assert "optimizer step transients" in finding.notes[0]
    assert "zero_optimization.offload_optimizer" in (finding.help or "")
    assert finding.run is not None
    # The run failed to allocate the last sub-group's share in fp32; the other sub-groups had their states by then.
    elements = finding.run.architecture.parameters / 48
    assert elements % 1e9 * 4 / 2**30 == pytest.approx(3.39, abs=0.01)
    [saved] = find_findings(folder, "CKP002", "zero3.yaml")
    assert saved.fix is not None
    assert saved.fix.applicability == "unsafe"  # it disables resuming
    fix(folder)
    assert "save_only_model: true" not in (folder / "zero3.yaml").read_text()
    fix(folder, build_options(("CKP002",)), unsafe=True)
    assert "save_only_model: true" in (folder / "zero3.yaml").read_text()


def test_3_the_actor_needs_a_smaller_micro_batch(copied):
    """Reproduce OpenRLHF/OpenRLHF#392: the effective batch is unchanged, because accumulation follows from it."""
    folder = copied("3-openrlhf-16b")
    [finding] = find_findings(folder, "MEM001")
    assert finding.fix is not None
    assert "states 65.8 GiB" in finding.notes[0]
    # OpenRLHF 0.3.8 has no section prefix; the dotted flags came with 0.10.2.
    assert "set `--adam_offload` as well" in (finding.help or "")
    assert "GiB of host memory" in (finding.help or "")
    assert fix(folder).applied == ()
    fix(folder, unsafe=True)
    script = (folder / "train_ppo.sh").read_text()
    [micro] = re.findall(r"--micro_train_batch_size (\d+)", script)
    assert int(micro) < 4
    assert "--train_batch_size 16" in script


def test_4_every_step_waits_for_its_metrics(copied):
    folder = copied("4-olmo-syncs")
    [counted] = find_findings(folder, "PRF001", "olmo-7b.yaml")
    assert "4,144" in counted.message
    assert find_findings(folder, "PRF001", "olmo_core_7b.py")
    fix(folder)
    assert "metrics_log_interval: 10" in (folder / "olmo-7b.yaml").read_text()
    assert find_findings(folder, "PRF001") == []


def test_5_the_length_was_never_read_and_does_not_fit(copied):
    """Reproduce axolotl-ai-cloud/axolotl#2143: a key that was never read.

    The fixes are the key, then checkpointing, then the fused loss, as far as needed.
    """
    folder = copied("5-axolotl-3b")
    [dropped] = find_findings(folder, "KEY001")
    assert dropped.fix is not None
    assert dropped.fix.applicability == "safe"
    assert "sequence_len" in dropped.fix.message
    fixed = fix(folder)
    assert {"KEY001", "MEM001"} <= {applied_fix.code for applied_fix in fixed.applied}
    text = (folder / "llama-3b.yaml").read_text()
    assert "sequence_len: 4096" in text
    assert "gradient_checkpointing: true" in text
    assert not [remaining for remaining in lint(folder).findings if remaining.code in ("MEM001", "MEM002")]
