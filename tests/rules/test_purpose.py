"""Values that the user chose on purpose, and placeholders that ask for a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.linting import build_options, fix, lint

OLMO = """\
precision: amp_bf16
model: {{d_model: 512, n_heads: 8, n_layers: 4, max_sequence_length: 1024, init_device: meta}}
optimizer:
{above}  name: adamw
  metrics_log_interval: 1{comment}
wandb: {{project: a}}
save_folder: out
fsdp: {{wrapping_strategy: by_block}}
"""


@pytest.mark.parametrize(
    ("above", "comment", "applicability"),
    [
        ("", "", "safe"),
        ("  # the optimizer\n", "", "safe"),
        ("", "  # cfglint: nodes=2", "safe"),
        ("", "  # needed for the ablation", "unsafe"),
    ],
)
def test_a_comment_at_the_setting_may_give_its_reason(
    tmp_path: Path, above: str, comment: str, applicability: str
) -> None:
    (tmp_path / "run.yaml").write_text(OLMO.format(above=above, comment=comment), encoding="utf-8")
    [finding] = lint(tmp_path, build_options(("PRF001",))).findings
    assert finding.fix is not None
    assert finding.fix.applicability == applicability


LLAMAFACTORY = """\
model_name_or_path: meta-llama/Llama-3.2-1B
stage: sft
do_train: true
finetuning_type: full
dataset: tickets
template: llama3
output_dir: saves/tickets
learning_rate:{comment}
"""


@pytest.mark.parametrize(
    ("comment", "is_kept"),
    [("  # FILL IN", True), ("  # TODO", True), ("  # the default is enough", False), ("", False)],
)
def test_a_placeholder_asks_for_a_value(tmp_path: Path, comment: str, is_kept: bool) -> None:
    (tmp_path / "run.yaml").write_text(LLAMAFACTORY.format(comment=comment), encoding="utf-8")
    [finding] = lint(tmp_path, build_options(("KEY004",))).findings
    assert (finding.help == f"state the value that `{comment.strip()}` asks for") is is_kept
    fix(tmp_path, build_options(("KEY004",)), unsafe=True)
    assert ("learning_rate" in (tmp_path / "run.yaml").read_text(encoding="utf-8")) is is_kept
