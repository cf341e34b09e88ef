"""The cases to measure, most valuable first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


def _describe_dense(name: str, vocab: int, hidden: int, width: int, layers: int, heads: int, keys: int, head: int,
           tied: bool = False, **extra: Any) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return the name of a model's configuration class in transformers and its arguments."""
    return name, {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": head, "tie_word_embeddings": tied,
        "max_position_embeddings": 131072, **extra,
    }  # fmt: skip


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "meta-llama/Llama-3.2-1B": _describe_dense("LlamaConfig", 128256, 2048, 8192, 16, 32, 8, 64, True),
    "meta-llama/Llama-3.2-3B": _describe_dense("LlamaConfig", 128256, 3072, 8192, 28, 24, 8, 128, True),
    "meta-llama/Llama-3.1-8B": _describe_dense("LlamaConfig", 128256, 4096, 14336, 32, 32, 8, 128),
    "Qwen/Qwen2.5-7B": _describe_dense("Qwen2Config", 152064, 3584, 18944, 28, 28, 4, 128),
    "Qwen/Qwen3-0.6B": _describe_dense("Qwen3Config", 151936, 1024, 3072, 28, 16, 8, 128, True),
    "Qwen/Qwen3-8B": _describe_dense("Qwen3Config", 151936, 4096, 12288, 36, 32, 8, 128),
    "google/gemma-2-9b": _describe_dense("Gemma2Config", 256000, 3584, 14336, 42, 16, 8, 256, True),
    "google/gemma-3-1b-pt": _describe_dense("Gemma3TextConfig", 262144, 1152, 6912, 26, 4, 1, 256, True),
    "microsoft/Phi-3-mini-4k-instruct": _describe_dense(
        "Phi3Config", 32064, 3072, 8192, 32, 32, 32, 96, pad_token_id=0
    ),
    "mistralai/Mistral-7B-v0.1": _describe_dense("MistralConfig", 32000, 4096, 14336, 32, 32, 8, 128),
    "allenai/OLMo-2-1124-7B": _describe_dense("Olmo2Config", 100352, 4096, 11008, 32, 32, 32, 128),
    "Qwen/Qwen3-30B-A3B": _describe_dense(
        "Qwen3MoeConfig", 151936, 2048, 6144, 48, 32, 4, 128, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True,
    ),
    "deepseek-ai/DeepSeek-V2-Lite": _describe_dense(
        "DeepseekV2Config", 102400, 2048, 10944, 27, 16, 16, 64, moe_intermediate_size=1408, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=1,
    ),
}  # fmt: skip


class Case(NamedTuple):
    """The settings of a measurement."""

    id: str
    model: str = "meta-llama/Llama-3.2-1B"
    sequence: int = 2048
    micro: int = 4
    precision: str = "bf16"
    """bf16, amp (fp32 weights under autocast), amp_bf16w (bf16 weights under autocast) or fp32."""
    optimizer: str = "fused"
    """fused, foreach or 8bit (AdamW); under transformers' or TRL's trainers, any name of an optimizer."""
    attention: str = "sdpa"
    checkpointing: bool = False
    lora: int = 0
    targets: str = "all-linear"
    """Matrices with LoRA adapters: all-linear, or comma-separated names."""
    dropout: float = 0.0
    """Dropout on the input of the adapters."""
    quantization: str = "none"
    """Weight quantization: none or nf4."""
    prepared: bool = False
    """True to call PEFT's `prepare_model_for_kbit_training`, which casts parameters that are not quantized to fp32."""
    accumulation: int = 1
    padding: bool = False
    liger: bool = False
    strategy: str = "none"
    """Distributed strategy: none, ddp, fsdp2, zero1, zero2 or zero3."""
    offload: bool = False
    lengths: tuple[int, ...] = ()
    """Sequence length of each step, if the lengths differ; `sequence` otherwise."""
    expandable: bool = False
    save: bool = False
    layers: int = 0
    """Number of decoder layers to build; 0 for all layers of the model."""
    trainer: str = ""
    """Training loop: the loop of this tool (empty), transformers' Trainer (hf), or a TRL trainer (sft, dpo)."""
    compiled: bool = False
    seconds: int = 25
    """Upper bound of the duration in seconds."""


B1, B3, B8 = "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-8B"


def _list_all() -> Iterator[Case]:
    """Yield the cases, most valuable first."""
    yield from _list_losses()
    yield from _list_activations()
    yield from _list_trainers()
    yield from _list_reserve()
    yield from _list_updates()
    yield from _list_families()
    yield from _list_saving()
    yield from _list_engines()
    yield from _list_compiled()


def _list_losses() -> Iterator[Case]:
    yield Case("loss-1b-2048x8", micro=8)
    yield Case("loss-1b-ac-8192x2", B1, 8192, 2, checkpointing=True)
    yield Case("loss-1b-512x1", sequence=512, micro=1)
    yield Case("liger-1b", liger=True)
    yield Case("liger-1b-ac", liger=True, checkpointing=True)
    yield Case("liger-1b-8192x2-ac", sequence=8192, micro=2, liger=True, checkpointing=True)
    yield Case("liger-1b-512x2", sequence=512, micro=2, liger=True)
    yield Case("liger-3b-ac", B3, 4096, 1, liger=True, checkpointing=True)
    yield Case("loss-8b-ac-8192x4", B8, 8192, checkpointing=True)


def _list_activations() -> Iterator[Case]:
    for attention in ("sdpa", "flash_attention_2", "eager"):
        yield Case(f"activations-1b-{attention}", attention=attention)
        yield Case(f"activations-1b-{attention}-ac", attention=attention, checkpointing=True)
    yield Case("activations-1b-padded", padding=True)
    yield Case("activations-1b-padded-ac", padding=True, checkpointing=True)
    yield Case("activations-3b", B3, 4096, 1)
    for precision in ("amp", "amp_bf16w", "fp32"):
        yield Case(f"precision-1b-{precision}", precision=precision)
        yield Case(f"precision-1b-{precision}-ac", precision=precision, checkpointing=True)
    yield Case("precision-1b-fp32-1024x1", sequence=1024, micro=1, precision="fp32")
    yield Case("precision-1b-fp32-padded", sequence=1024, micro=2, precision="fp32", padding=True)
    yield Case("precision-phi-3-fp32-1024x1-8", "microsoft/Phi-3-mini-4k-instruct", 1024, 1, "fp32", layers=8)
    yield Case("lora-8b", B8, 2048, 2, lora=16)
    yield Case("lora-8b-ac", B8, 4096, 2, lora=16, checkpointing=True)
    yield Case("lora-8b-autocast-ac", B8, 4096, 4, "amp_bf16w", lora=16, checkpointing=True)
    yield Case("lora-8b-queries-values", B8, 2048, 2, lora=16, targets="q_proj,v_proj")
    yield Case("lora-8b-dropout", B8, 2048, 1, "amp_bf16w", lora=16, dropout=0.05)
    yield Case("lora-1b-r256", lora=256, precision="amp_bf16w")
    yield Case("qlora-8b", B8, 2048, 2, "amp_bf16w", lora=16, quantization="nf4")
    yield Case("qlora-8b-16-bit", B8, 2048, 1, lora=16, quantization="nf4")
    yield Case("qlora-8b-queries-values", B8, 2048, 2, "amp_bf16w", lora=16, targets="q_proj,v_proj",
               quantization="nf4")  # fmt: skip
    yield Case("qlora-8b-prepared", B8, 2048, 1, "amp_bf16w", lora=16, quantization="nf4", prepared=True)
    yield Case("qlora-8b-ac", B8, 4096, 2, "amp_bf16w", lora=16, quantization="nf4", checkpointing=True)
    yield Case("qlora-8b-prepared-ac", B8, 4096, 2, "amp_bf16w", lora=16, quantization="nf4", prepared=True,
               checkpointing=True)  # fmt: skip


def _list_trainers() -> Iterator[Case]:
    for trainer in ("hf", "sft"):
        yield Case(f"{trainer}-1b-amp", trainer=trainer, precision="amp")
        yield Case(f"{trainer}-1b-amp-ac", trainer=trainer, precision="amp", checkpointing=True)
        yield Case(f"{trainer}-1b-16-bit-weights", trainer=trainer, precision="amp_bf16w")
        yield Case(f"{trainer}-1b-accumulating", trainer=trainer, precision="amp", accumulation=4)
        yield Case(f"{trainer}-1b-liger-ac", trainer=trainer, precision="amp", liger=True, checkpointing=True)
        yield Case(f"{trainer}-8b-lora-ac", B8, 2048, 4, "amp_bf16w", trainer=trainer, lora=16, checkpointing=True)
        yield Case(f"{trainer}-8b-qlora-ac", B8, 2048, 4, "amp_bf16w", trainer=trainer, lora=16, quantization="nf4",
                   prepared=True, checkpointing=True)  # fmt: skip
    varying = tuple(200 + 331 * step % 1800 for step in range(40))
    for trainer, case in (("hf", Case("")), ("sft", Case("")), ("sft", Case("", B8, lora=16))):
        size = "8b-lora" if case.lora else "1b"
        precision = "amp_bf16w" if case.lora else "amp"
        yield case._replace(id=f"{trainer}-{size}-varying-ac", trainer=trainer, precision=precision, lengths=varying,
                            checkpointing=True)  # fmt: skip
    yield Case("sft-8b-lora-dropout-ac", B8, 2048, 4, "amp_bf16w", trainer="sft", lora=16, dropout=0.05,
               checkpointing=True)  # fmt: skip
    yield Case("sft-8b-pure-adafactor-ac", B8, 2048, 2, trainer="sft", optimizer="adafactor", checkpointing=True)
    yield Case("hf-1b-pure-8bit", trainer="hf", optimizer="8bit")
    yield Case("hf-1b-pure", trainer="hf")
    yield Case("hf-1b-foreach", trainer="hf", precision="amp", optimizer="foreach")
    yield Case("hf-1b-8bit-ac", trainer="hf", precision="amp", optimizer="8bit", checkpointing=True)
    yield Case("hf-1b-adafactor-ac", trainer="hf", precision="amp", optimizer="adafactor", checkpointing=True)
    yield Case("dpo-1b-ac", sequence=1024, precision="amp", trainer="dpo", checkpointing=True)
    yield Case("dpo-1b-pure-ac", sequence=1024, trainer="dpo", checkpointing=True)
    yield Case("dpo-1b-512x2", sequence=512, micro=2, precision="amp", trainer="dpo")
    yield Case("dpo-1b-lora-ac", sequence=1024, precision="amp_bf16w", trainer="dpo", lora=16, checkpointing=True)
    yield Case("dpo-8b-qlora-ac", B8, 1024, 2, "amp_bf16w", trainer="dpo", lora=16, quantization="nf4", prepared=True,
               checkpointing=True)  # fmt: skip


def _list_reserve() -> Iterator[Case]:
    varying = (512, 2048, 900, 1500, 2048, 1111, 1800, 300, 1700, 2000)
    for expandable in (False, True):
        tag = "expandable" if expandable else "default"
        yield Case(f"reserve-1b-varying-{tag}", lengths=varying, expandable=expandable)
        yield Case(f"reserve-1b-varying-ac-{tag}", lengths=varying, checkpointing=True, expandable=expandable)
        yield Case(f"reserve-1b-ac-{tag}", checkpointing=True, expandable=expandable)
        yield Case(f"reserve-8b-lora-ac-{tag}", B8, 4096, 4, "amp_bf16w", lora=16, checkpointing=True,
                   expandable=expandable)  # fmt: skip
        yield Case(f"reserve-8b-lora-varying-ac-{tag}", B8, micro=4, precision="amp_bf16w", lora=16, lengths=varying,
                   checkpointing=True, expandable=expandable)  # fmt: skip


def _list_updates() -> Iterator[Case]:
    for optimizer in ("fused", "foreach", "8bit"):
        yield Case(f"update-3b-{optimizer}", B3, 512, 1, optimizer=optimizer)
    yield Case("update-1b-accumulating", accumulation=4)
    yield Case("update-1b-amp-foreach", sequence=512, micro=1, precision="amp", optimizer="foreach")


def _list_families() -> Iterator[Case]:
    """Yield each model with and without activation checkpointing; large models have only 4 layers."""
    for model in MODELS:
        name = model.rsplit("/", 1)[-1].lower()
        eager = "eager" if "gemma-2" in name else "sdpa"
        layers = 0 if any(size in name for size in ("-0.6b", "-1b", "-3b", "-mini")) else 4
        yield Case(f"family-{name}-ac", model, 4096, 1, attention=eager, checkpointing=True, layers=layers)
        yield Case(f"family-{name}", model, 2048, 1, attention=eager, layers=layers)


def _list_saving() -> Iterator[Case]:
    yield Case("save-1b-bf16", sequence=512, micro=1, save=True)
    yield Case("save-1b-amp", sequence=512, micro=1, precision="amp", save=True)
    yield Case("save-3b-bf16", B3, 512, 1, save=True)


def _list_engines() -> Iterator[Case]:
    for strategy in ("ddp", "fsdp2", "zero1", "zero2", "zero3"):
        yield Case(f"{strategy}-1b", sequence=2048, micro=2, checkpointing=True, strategy=strategy, save=True)
    yield Case("zero2-1b-offload", sequence=2048, micro=2, checkpointing=True, strategy="zero2", offload=True)
    yield Case("zero3-1b-offload", sequence=2048, micro=2, checkpointing=True, strategy="zero3", offload=True)
    for strategy in ("ddp", "fsdp2", "zero1", "zero2", "zero3"):
        yield Case(f"{strategy}-3b-ac", B3, 4096, 1, checkpointing=True, strategy=strategy)


def _list_compiled() -> Iterator[Case]:
    yield Case("compiled-1b", compiled=True, seconds=60)
    yield Case("compiled-1b-ac", compiled=True, checkpointing=True, seconds=60)


def list_cases(world_size: int) -> list[Case]:
    """Return the cases for a number of ranks: all for one rank, those with a distributed strategy for several."""
    return [case for case in _list_all() if world_size == 1 or case.strategy != "none"]
