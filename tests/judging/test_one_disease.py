"""One disease, one finding: merged findings, findings that others cover, and their suppression."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from cfglint_train.findings.finding import Finding
from cfglint_train.judging.baseline import Baseline, accept_all
from cfglint_train.settings.settings import load_settings
from tests.support.linting import build_options, change_directory, fix, lint

RECIPE = """\
# cfglint: gpu=A100-80GB gpus-per-node=8 nodes=1 llamafactory=0.9.2
model_name_or_path: Qwen/Qwen2.5-32B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: orchard
template: qwen
cutoff_len: 8192
output_dir: saves/orchard
per_device_train_batch_size: 1{batch_comment}
bf16: true
packing: true
deepspeed: {{zero_optimization: {{stage: 3}}}}
disable_gradient_checkpointing: true{comment}
"""


MANY_CAUSES = """\
# cfglint: gpu=A100-80GB gpus-per-node=8 nodes=1 llamafactory=0.9.2
model_name_or_path: Qwen/Qwen2.5-72B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: orchard
template: qwen
cutoff_len: 8192
output_dir: saves/orchard
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
bf16: true
packing: true
disable_gradient_checkpointing: true
val_size: 0.1
eval_strategy: steps
eval_steps: 100
"""


def lint_recipe(folder: Path, comment: str = "", batch_comment: str = "", **options: object) -> list[Finding]:
    (folder / ".git").mkdir()
    (folder / "run.yaml").write_text(RECIPE.format(comment=comment, batch_comment=batch_comment), encoding="utf-8")
    result = lint(folder, build_options(**options))
    return [finding for finding in result.findings if finding.code[:3] in ("MEM", "SYN")]


def test_findings_that_the_same_fix_settles_are_one(tmp_path: Path) -> None:
    [finding] = lint_recipe(tmp_path)
    assert (finding.code, [part.code for part in finding.parts]) == ("MEM001", ["MEM002"])
    assert any(note.startswith("activation checkpointing is off") for note in finding.notes)
    assert any(note.startswith("with checkpointing, the peak is") for note in finding.notes)
    assert fix(tmp_path).applied[0].code == "MEM001"
    assert "disable_gradient_checkpointing: false" in (tmp_path / "run.yaml").read_text(encoding="utf-8")


def test_the_finding_is_at_the_setting_that_the_fix_changes(tmp_path: Path) -> None:
    [finding] = lint_recipe(tmp_path)
    assert finding.start.line == 15


def list_codes(findings: Iterable[Finding]) -> list[str]:
    return sorted(atom.code for finding in findings for atom in finding.atoms)


@pytest.mark.parametrize("how", ["comment", "flag", "settings", "baseline"])
@pytest.mark.parametrize("seed", range(4))
def test_suppressing_codes_leaves_exactly_the_other_parts(tmp_path: Path, how: str, seed: int) -> None:
    """Each of five rules states the same verdict about the run, or leaves its report to one that does."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(MANY_CAUSES, encoding="utf-8")
    everything = [item for item in lint(tmp_path).findings if item.code[:3] in ("MEM", "PRF")]
    codes = list_codes(everything)
    assert len(everything) < len(codes) - 2
    assert len(codes) >= 5
    suppressed = Random(seed).sample(codes, seed + 1)
    options = build_options()
    if how == "comment":
        (tmp_path / "run.yaml").write_text(f"# cfglint: file-ignore[{', '.join(suppressed)}]\n{MANY_CAUSES}")
    elif how == "flag":
        options = options._replace(ignore=tuple(suppressed))
    elif how == "settings":
        per_file = "".join(f'    "{code}",\n' for code in suppressed)
        (tmp_path / "cfglint.toml").write_text(f'[per-file-ignores]\n"run.yaml" = [\n{per_file}]\n')
        options = options._replace(settings=load_settings(str(tmp_path / "cfglint.toml")))
    else:
        atoms = [atom for finding in everything for atom in finding.atoms if atom.code in suppressed]
        with change_directory(tmp_path):
            entries = accept_all(tuple(atoms), "base.json", frozenset()).entries
            options = options._replace(baseline=Baseline(str(tmp_path / "base.json"), entries))
    left = [item for item in lint(tmp_path, options).findings if item.code[:3] in ("MEM", "PRF")]
    assert list_codes(left) == sorted(set(codes) - set(suppressed))


def test_a_part_of_a_suppressed_finding_keeps_its_fix(tmp_path: Path) -> None:
    [finding] = lint_recipe(tmp_path, comment="  # cfglint: ignore[MEM001]")
    assert (finding.code, finding.parts) == ("MEM002", ())
    assert fix(tmp_path).applied[0].code == "MEM002"
    assert "disable_gradient_checkpointing: false" in (tmp_path / "run.yaml").read_text(encoding="utf-8")


ROLLOUT = """\
# cfglint: gpu=A100-80GB nodes=1 gpus-per-node=8 openrlhf=0.8.9
python3 -m openrlhf.cli.train_ppo_ray \\
  --ref_num_nodes 1 --ref_num_gpus_per_node 8 --reward_num_nodes 1 --reward_num_gpus_per_node 8 \\
  --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 8 --vllm_tensor_parallel_size 1 \\
  --vllm_gpu_memory_utilization 0.6 --vllm_enable_sleep --deepspeed_enable_sleep --colocate_all_models \\
  --bf16 --zero_stage 3 --flash_attn --gradient_checkpointing --advantage_estimator group_norm \\
  --pretrain Qwen/Qwen2.5-7B-Instruct --remote_rm_url reward.py --save_path out --ckpt_path ckpt \\
  --micro_train_batch_size {micro} --train_batch_size 256 --micro_rollout_batch_size 16 \\
  --n_samples_per_prompt 8 --prompt_max_len 1024 --generate_max_len 8192 --prompt_data p.jsonl
"""


@pytest.mark.parametrize(("micro", "expected"), [(1, ["MEM007"]), (2, ["MEM007"]), (16, ["MEM001"])])
def test_a_rule_leaves_a_finding_only_to_a_rule_that_reports(tmp_path: Path, micro: int, expected: list[str]) -> None:
    """At 2 samples, the step is only tight by an assumed length, which MEM001 does not report."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.sh").write_text(ROLLOUT.format(micro=micro), encoding="utf-8")
    findings = lint(tmp_path).findings
    assert [item.code for item in findings if item.code in ("MEM001", "MEM007")] == expected
    assert "MEM007" in list_codes(findings)
    (tmp_path / "train.sh").write_text(f"# cfglint: file-ignore[MEM001]\n{ROLLOUT.format(micro=micro)}")
    assert "MEM007" in {item.code for item in lint(tmp_path).findings}


def test_a_missing_policy_is_a_cause_of_the_step_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "# cfglint: axolotl=0.9.2 gpu=H100 nodes=1 gpus-per-node=8\nbase_model: Qwen/Qwen2.5-14B\n"
        "datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\noutput_dir: out\nsequence_len: 2048\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 1\nlearning_rate: 1e-5\noptimizer: adamw_torch\n"
        "bf16: true\ngradient_checkpointing: true\nfsdp:\n  - full_shard\n"
        "fsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
        encoding="utf-8",
    )
    [finding] = lint(tmp_path, build_options(("MEM001", "PAR004"))).findings
    assert (finding.code, [part.code for part in finding.parts]) == ("MEM001", ["PAR004"])
    assert finding.fix is not None
    assert finding.fix.message.startswith("fsdp_config.fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP (")


RANK = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: {rank}
lora_target: all
dataset: orchard
template: qwen
output_dir: saves/orchard
bf16: true
"""


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        ("0", ["KEY006"]),
        ("0  # cfglint: ignore[KEY006]", ["CHK001"]),
        ("0  # cfglint: ignore[CHK001]", ["KEY006"]),
        ("${RANK}", ["CHK001"]),
        ("8", []),
    ],
)
def test_an_error_at_a_value_says_that_the_value_stops_the_estimate(
    tmp_path: Path, rank: str, expected: list[str]
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(RANK.format(rank=rank), encoding="utf-8")
    result = lint(tmp_path, build_options(("KEY006", "CHK001")))
    assert [finding.code for finding in result.findings] == expected
    is_covered = rank == "0"
    assert any("(CHK001)" in note for finding in result.findings for note in finding.notes) is is_covered
    assert len(result.not_checked) == (is_covered or expected == ["CHK001"])


def test_an_error_elsewhere_does_not_cover_an_unknown_model(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    recipe = RANK.format(rank="0").replace("Qwen/Qwen2.5-7B-Instruct", "example-lab/Nebula-9B")
    (tmp_path / "run.yaml").write_text(recipe, encoding="utf-8")
    result = lint(tmp_path, build_options(("KEY006", "CHK001")))
    assert [finding.code for finding in result.findings] == ["CHK001", "KEY006"]
