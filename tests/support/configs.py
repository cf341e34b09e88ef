"""Small configurations whose findings do not depend on the memory model, for tests of everything around the rules."""

from __future__ import annotations

from typing import Any

AXOLOTL = """\
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: data/train.jsonl
    type: alpaca
output_dir: ./out
micro_batch_size: 1
gradient_accumulation_steps: 1
num_epochs: 1
learning_rate: 0.0002
"""
"""No finding."""

LIMITED = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: alpaca_en
template: llama3
cutoff_len: 32768
output_dir: saves
per_device_train_batch_size: 16
bf16: true
"""
"""MEM001, warning, on line 10; assumed certainty, because `cutoff_len` is only the maximum length of a sample."""

UNKNOWN_MODEL = AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "example-lab/Nebula-9B")
"""CHK001, info, on line 1."""

REMOTE_CODE = AXOLOTL + "trust_remote_code: true\n"
"""SEC001, info, on line 10; an unsafe fix (`false`)."""

TWICE = AXOLOTL + "micro_batch_size: 2\n"
"""SYN003, warning, on line 10; no fix."""

BROKEN = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [\nmicro_batch_size: 1\n"
"""SYN002, error."""

LATIN_1 = "base_model: Qwen/Qwen2.5-0.5B\noutput_dir: ./modèle\n".encode("latin-1")
"""SYN001, error, on line 2."""

DEEPSPEED = """\
{
    "train_batch_size": 100,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 2}
}
"""
"""BAT001, error, on line 2; a safe fix."""

CONTRADICTED = """\
{
    "gradient_accumulation_steps": 8,
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2}
}
"""
"""XFL001, error, on line 2, as the companion of a configuration that sets 1; a safe fix ("auto")."""

SMALL = ("--select", "SYN,BAT001,XFL001,SEC")
"""The rules that these configurations trigger."""

PACKED_LORA = """\
base_model: Qwen/Qwen2.5-7B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 2048
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: {micro}
gradient_accumulation_steps: 1
num_epochs: {epochs}
optimizer: adamw_torch
learning_rate: 0.0001
bf16: true
flash_attention: true
datasets:
  - path: {data}
    type: alpaca
output_dir: {out}
"""
"""A LoRA of a 7B model whose batches are all full, so that nothing about a measured run is assumed."""


def nest_settings(settings: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """Return dotted settings as a tree that begins with `sections`, in their order."""
    tree = sections
    for name, value in settings.items():
        *parents, last = name.split(".")
        section = tree
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return tree
