"""4-bit weights below an adapter: offered if the framework has a key for them, with the size of the changed file."""

from __future__ import annotations

import pytest

from cfglint_train import api

CLUSTER = "# cfglint: nodes=1 gpus-per-node=1 gpu=A100-40GB"
AXOLOTL = f"""\
{CLUSTER} axolotl=0.18.0 transformers=5.5.4
base_model: Qwen/Qwen2.5-32B
datasets: [{{path: x.jsonl, type: alpaca}}]
output_dir: out
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
sequence_len: 1024
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 1
gradient_accumulation_steps: 1
gradient_checkpointing: true
bf16: true
"""
LLAMAFACTORY = f"""\
{CLUSTER} llamafactory=0.9.4
model_name_or_path: Qwen/Qwen2.5-32B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: alpaca_en
template: qwen
cutoff_len: 1024
packing: true
output_dir: saves
per_device_train_batch_size: 1
bf16: true
"""
TRL = f"""\
{CLUSTER} trl=0.24.0
model_name_or_path: Qwen/Qwen2.5-32B
dtype: bfloat16
dataset_name: x
use_peft: true
lora_r: 8
max_length: 1024
packing: true
per_device_train_batch_size: 1
gradient_checkpointing: true
bf16: true
output_dir: out
"""
OPENRLHF = f"""\
#!/bin/bash
{CLUSTER}
deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-32B --dataset x --lora_rank 8 --zero_stage 2 --bf16 \\
   --max_len 1024 --packing_samples --micro_train_batch_size 1 --train_batch_size 1 --gradient_checkpointing
"""
RUNS = [
    ("run.yaml", AXOLOTL, ("adapter: lora -> qlora", "load_in_4bit: true")),
    ("run.yaml", LLAMAFACTORY, ("quantization_bit: 4",)),
    ("run.yaml", TRL, ("load_in_4bit: true",)),
    ("run.sh", OPENRLHF, ("--load_in_4bit: true",)),
]


@pytest.mark.parametrize(("name", "text", "settings"), RUNS, ids=["axolotl", "llamafactory", "trl", "openrlhf"])
def test_they_are_offered_below_an_adapter(name: str, text: str, settings: tuple[str, ...]) -> None:
    options = api.Options(isolated=True)
    result = api.fit(name, options, {name: text}, change=True)
    [run] = result.runs
    [alternative] = [alternative for alternative in run.rungs if alternative.name == "4-bit weights"]
    assert alternative.settings == settings
    assert alternative.chosen
    assert not alternative.safe
    assert run.solution is not None
    assert run.solution.applicability == "unsafe"
    [after] = api.fit(name, options, result.sources).runs
    assert after.expected == run.solution.expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("adapter: lora\n", ""),
        ("adapter: lora\n", "adapter: qlora\nload_in_4bit: true\n"),
        ("bf16: true\n", "bf16: true\nrl: grpo\n"),
        ("bf16: true\n", "bf16: true\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"),
    ],
)
def test_they_are_offered_nowhere_else(old: str, new: str) -> None:
    [run] = api.fit("run.yaml", api.Options(isolated=True), {"run.yaml": AXOLOTL.replace(old, new, 1)}).runs
    assert not [alternative for alternative in run.rungs if "4-bit" in alternative.name]


MIXTURE = AXOLOTL.replace("Qwen2.5-32B", "Qwen3-30B-A3B")
CAST = MIXTURE.replace("adapter: lora\n", "adapter: qlora\nload_in_4bit: true\n")
EXPERTS = "quantize_moe_experts: true"


@pytest.mark.parametrize(
    ("text", "settings"),
    [(MIXTURE, {"adapter: lora -> qlora", "load_in_4bit: true", EXPERTS}), (CAST, {EXPERTS})],
)
def test_experts_that_bitsandbytes_leaves_out_are_quantised_too(text: str, settings: set[str]) -> None:
    options = api.Options(isolated=True)
    result = api.fit("run.yaml", options, {"run.yaml": text}, change=True)
    [run] = result.runs
    assert run.solution is not None
    assert {*run.solution.settings} == settings
    [after] = api.fit("run.yaml", options, result.sources).runs
    assert after.expected == run.solution.expected


def test_a_release_without_the_key_is_offered_none() -> None:
    text = CAST.replace("axolotl=0.18.0 transformers=5.5.4", "axolotl=0.13.1 transformers=4.57.0")
    [run] = api.fit("run.yaml", api.Options(isolated=True), {"run.yaml": text}).runs
    assert not [alternative for alternative in run.rungs if alternative.name == "4-bit experts"]


def test_all_linear_layers_do_not_go_with_quantised_experts() -> None:
    """Respect axolotl, which rejects `lora_target_linear` together with `quantize_moe_experts`."""
    text = CAST.replace("lora_target_modules: [q_proj, k_proj, v_proj, o_proj]", "lora_target_linear: true")
    [run] = api.fit("run.yaml", api.Options(isolated=True), {"run.yaml": text}).runs
    assert not [alternative for alternative in run.rungs if alternative.name == "4-bit experts"]
