"""Numbers of parameters that PEFT's methods train on a small Llama, counted on PEFT's own models.

Prints one JSON object per method: {"method": ..., "options": {...}, "trained": n}. Needs torch, transformers and peft.
"""

from __future__ import annotations

import json
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import peft
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {
    "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 4000, "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
METHODS: list[tuple[str, Any, dict[str, Any]]] = [
    ("lora", peft.LoraConfig, {"r": 8, "target_modules": LINEAR}),
    ("dora", peft.LoraConfig, {"r": 8, "target_modules": LINEAR, "use_dora": True}),
    ("adalora", peft.AdaLoraConfig, {"init_r": 12, "total_step": 100, "target_modules": LINEAR}),
    ("loha", peft.LoHaConfig, {"r": 8, "target_modules": LINEAR}),
    ("vera", peft.VeraConfig, {"r": 256, "target_modules": ["q_proj", "v_proj"]}),
    (
        "ia3",
        peft.IA3Config,
        {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    ),
    ("oft", peft.OFTConfig, {"oft_block_size": 32, "target_modules": LINEAR}),
    ("oft", peft.OFTConfig, {"oft_block_size": 48, "target_modules": LINEAR}),
    ("oft", peft.OFTConfig, {"r": 8, "oft_block_size": 0, "target_modules": LINEAR}),
    ("hra", peft.HRAConfig, {"r": 8, "target_modules": LINEAR}),
    ("miss", peft.MissConfig, {"r": 64, "target_modules": LINEAR}),
    ("fourierft", peft.FourierFTConfig, {"n_frequency": 1000, "target_modules": ["q_proj", "v_proj"]}),
    ("prompt_tuning", peft.PromptTuningConfig, {"num_virtual_tokens": 20}),
    ("prefix_tuning", peft.PrefixTuningConfig, {"num_virtual_tokens": 20}),
]


def count_trained(config: Any, options: dict[str, Any]) -> int:
    """Count the elements that get a gradient."""
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    adapted = peft.get_peft_model(model, config(task_type="CAUSAL_LM", **options))
    return sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)


if __name__ == "__main__":
    for name, kind, options in METHODS:
        print(json.dumps({"method": name, "options": options, "trained": count_trained(kind, options)}), flush=True)
