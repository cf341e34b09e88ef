"""Changes that add what a launch or a companion does not state yet."""

from __future__ import annotations

from cfglint_train import api

OPTIONS = api.Options(isolated=True, gpu="A100-80GB", nodes=1, gpus_per_node=8)
FSDP = """\
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
WRAPPED = """\
accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-14B --dataset_name x \\
  --bf16 --per_device_train_batch_size 4 --max_length 4096 --packing --output_dir out
"""
FLAGLESS = """\
deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --dataset x --bf16 \\
  --train_batch_size 64 --micro_train_batch_size 4 --max_len 8192 --zero_stage 3 --packing_samples --flash_attn
"""


def test_a_wrapping_policy_is_added_to_the_file_of_accelerate() -> None:
    """Without one, FSDP gathers the whole model at once."""
    result = api.fit("run.sh", OPTIONS, {"run.sh": WRAPPED, "fsdp.yaml": FSDP}, change=True)
    [solution] = [run.solution for run in result.runs]
    assert solution is not None
    assert solution.settings == ("fsdp_config.fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",)
    assert (solution.slowdown, solution.verdict, solution.applicability) == (1.0, "fits", "safe")
    assert b"  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" in result.sources["fsdp.yaml"]


def test_a_flag_that_the_launch_lacks_is_added() -> None:
    result = api.fit("run.sh", OPTIONS, {"run.sh": FLAGLESS}, change=True)
    [solution] = [run.solution for run in result.runs]
    assert solution is not None
    assert "--gradient_checkpointing: true" in solution.settings
    assert b" --gradient_checkpointing" in result.sources["run.sh"]
    [again] = api.fit("run.sh", OPTIONS, {"run.sh": result.sources["run.sh"]}).runs
    assert (again.verdict, again.expected) == (solution.verdict, solution.expected)
