"""Help of MEM001, which names only changes that the run has not made yet."""

from __future__ import annotations

import pytest

from tests.support.linting import build_options, lint

KEYS = """\
base_model: meta-llama/Llama-3.1-70B
sequence_len: 4096
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_fused_linear_cross_entropy: true
datasets: [{path: d, type: alpaca}]
"""
LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
FSDP = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true, auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"


@pytest.mark.parametrize(
    ("more", "ways"),
    [
        ("", "sharding, offloading or LoRA"),
        (LORA, "sharding, offloading or 4-bit weights (`adapter: lora -> qlora, load_in_4bit: true`)"),
        (FSDP, "offloading or LoRA"),
        (LORA + FSDP, "offloading"),
    ],
)
def test_what_makes_the_states_smaller(tmp_path, more, ways):
    (tmp_path / "run.yaml").write_text(KEYS + more)
    [finding] = lint(tmp_path, build_options(("MEM001",), gpu="A100-40GB", gpus_per_node="2", nodes="1")).findings
    assert finding.help is not None
    assert finding.help.split("; or use ")[0] == f"reduce the states with {ways}"


ACTOR = """\
# cfglint: gpu=L40S nodes={nodes} gpus-per-node={gpus} openrlhf=0.6.0
python -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B-Instruct --remote_rm_url reward.py --save_path out \\
  --ref_num_nodes 1 --ref_num_gpus_per_node 2 --actor_num_nodes 1 --actor_num_gpus_per_node 2 --zero_stage 2 --bf16 \\
  --micro_train_batch_size 2 --train_batch_size 64 --micro_rollout_batch_size 2 --n_samples_per_prompt 8 --flash_attn \\
  --prompt_max_len 512 --generate_max_len 256 --advantage_estimator group_norm --prompt_data p.jsonl
"""


@pytest.mark.parametrize(
    ("nodes", "gpus", "remedy"),
    [(1, 16, "use 8 GPUs (`--actor_num_gpus_per_node: 8`)"), (4, 2, "use 8 GPUs (`--actor_num_nodes: 4`)")],
)
def test_more_gpus_are_those_of_the_group_that_trains(tmp_path, nodes, gpus, remedy):
    (tmp_path / "train.sh").write_text(ACTOR.format(nodes=nodes, gpus=gpus))
    [finding] = lint(tmp_path, build_options(("MEM001",))).findings
    assert finding.help is not None
    assert remedy in finding.help
    assert "do not help" not in finding.help


def test_nothing_is_left(tmp_path):
    offload = FSDP.replace("{", "{offload_params: true, ")
    (tmp_path / "run.yaml").write_text(KEYS.replace("size: 1", "size: 64") + LORA + offload)
    [finding] = lint(tmp_path, build_options(("MEM001",), gpu="A100-40GB", gpus_per_node="2", nodes="1")).findings
    assert "reduce the states" not in (finding.help or "")
    assert not (finding.help or "").startswith("or ")
