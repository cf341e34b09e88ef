"""Help of HST001, which names only changes that lower this run's host memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint

FIRES = REPOSITORY / "fixtures" / "rules" / "HST001" / "fires"

# Every rank builds the model on its host (init_device: cpu), so fewer ranks need less memory.
COPIES = """\
run_name: seven
model:
  d_model: 8192
  n_heads: 64
  n_layers: 64
  flash_attention: true
  max_sequence_length: 2048
  vocab_size: 50257
  embedding_size: 50304
  init_device: cpu
optimizer:
  name: adamw
save_folder: /checkpoints
max_duration: 1000
global_train_batch_size: 64
device_train_microbatch_size: 1
precision: amp_bf16
fsdp:
  wrapping_strategy: by_block
  precision: mixed
"""


def write_offloading_run(folder: Path) -> Path:
    """Copy the offloading run of the fixtures."""
    folder.mkdir()
    for source in sorted(FIRES.glob("offload.*")):
        (folder / source.name).write_bytes(source.read_bytes())
    return folder


def get_help(folder, **facts) -> str:
    (finding,) = lint(folder, build_options(("HST001",), gpu="A100-80GB", **facts)).findings
    return finding.help or ""


def test_sharded_states_do_not_shrink_with_the_ranks_of_a_node(tmp_path):
    help_text = get_help(write_offloading_run(tmp_path / "fires"), host_memory="1TB", nodes="1", gpus_per_node="8")
    assert help_text == "use more nodes, or offload less"


def test_copies_of_the_ranks_do(tmp_path):
    (tmp_path / "olmo.yaml").write_text(COPIES)
    help_text = get_help(tmp_path, host_memory="512GB", nodes="2", gpus_per_node="8")
    assert "fewer ranks per node" in help_text
    assert "offloading" not in help_text


@pytest.mark.parametrize(("stated", "codes"), [("", ["CHK002"]), ("4TB", [])])
def test_what_cannot_be_compared_is_said_once(tmp_path, stated, codes):
    write_offloading_run(tmp_path / "fires")
    config = tmp_path / "fires" / "offload.yaml"
    config.write_text(config.read_text().replace("host-memory=1TB", f"host-memory={stated}" if stated else ""))
    findings = lint(tmp_path / "fires", build_options(("HST001", "CHK002"))).findings
    assert [(finding.code, finding.severity) for finding in findings] == [(code, "info") for code in codes]


def test_one_rank_that_reads_the_weights_is_a_remedy(tmp_path):
    (tmp_path / "copies.yaml").write_bytes((FIRES / "copies.yaml").read_bytes())
    (finding,) = lint(tmp_path, build_options(("HST001",), gpu="A100-80GB")).findings
    assert finding.fix is not None
    assert (finding.fix.applicability, finding.fix.message) == ("safe", "fsdp_config.cpu_ram_efficient_loading: true")
