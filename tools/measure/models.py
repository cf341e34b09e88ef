"""Models, optimizers and batches of a case; weights are random and created on the device, so nothing is downloaded."""

from __future__ import annotations

from typing import Any

from .cases import MODELS, Case

TINY = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip


def get_configuration(case: Case, dry: bool) -> tuple[str, dict[str, Any]]:
    """Return the name of the configuration class of the case's model and its arguments; a dry run uses tiny sizes."""
    name, defaults = MODELS[case.model]
    arguments = dict(defaults)
    if dry:
        arguments.update({key: value for key, value in TINY.items() if key in arguments})
        if defaults["num_key_value_heads"] == defaults["num_attention_heads"]:
            arguments["num_key_value_heads"] = arguments["num_attention_heads"]
    elif case.layers:
        arguments["num_hidden_layers"] = case.layers
    if name == "Phi3Config":  # its class computes the head dimension
        arguments.pop("head_dim")
    return name, arguments


def build_model(case: Case, device: str, dry: bool) -> Any:
    """Build the case's model in training mode, with quantization, adapters, kernels and checkpointing."""
    import torch
    import transformers

    if case.liger and not case.trainer:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama()
    name, arguments = get_configuration(case, dry)
    config = getattr(transformers, name)(**arguments, use_cache=False)
    dtype = torch.float32 if case.precision in ("amp", "fp32") else torch.bfloat16
    with torch.device(device):
        auto_class: Any = transformers.AutoModelForCausalLM
        model = auto_class.from_config(config, dtype=dtype, attn_implementation=case.attention)
    if case.quantization == "nf4":
        quantise_model(model, device)
        model.is_loaded_in_4bit = True  # PEFT only treats the layers as 4-bit if this is set, as loaders do
    if case.prepared:
        import peft

        prepare: Any = peft.prepare_model_for_kbit_training
        model = prepare(model, use_gradient_checkpointing=False)
    if case.lora:
        from peft import LoraConfig, get_peft_model

        targets = case.targets if case.targets == "all-linear" else case.targets.split(",")
        model = get_peft_model(
            model,
            LoraConfig(
                r=case.lora, lora_alpha=16, lora_dropout=case.dropout, target_modules=targets, task_type="CAUSAL_LM"
            ),
        )
    if case.checkpointing and not case.trainer:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.lora:
            model.enable_input_require_grads()
    return model.train()


def quantise_model(model: Any, device: str) -> None:
    """Replace all linear layers except the head with 4-bit layers of bitsandbytes."""
    import bitsandbytes as bnb
    import torch

    for path, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and not path.endswith("lm_head"):
            parent = model.get_submodule(path.rpartition(".")[0])
            quantised = bnb.nn.Linear4bit(
                module.in_features, module.out_features, bias=module.bias is not None,
                compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=True, device="meta",
            )  # fmt: skip
            quantised.weight = bnb.nn.Params4bit(
                module.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True
            )
            setattr(parent, path.rpartition(".")[2], quantised.to(device))
    del module, quantised
    if device == "cuda":  # loaders quantize matrix by matrix, so no memory of full-precision matrices stays reserved
        torch.cuda.empty_cache()


def build_optimizer(case: Case, parameters: list[Any], dry: bool) -> Any:
    """Return the case's variant of AdamW; a dry run has no fused kernel and uses foreach instead."""
    import torch

    if case.optimizer == "8bit":
        import bitsandbytes as bnb

        return bnb.optim.AdamW8bit(parameters, lr=1e-4)
    fused = case.optimizer == "fused" and not dry
    return torch.optim.AdamW(parameters, lr=1e-4, fused=fused, foreach=None if fused else True)


def build_batch(case: Case, step: int, device: str, dry: bool) -> dict[str, Any]:
    """Return a batch of random tokens; padded cases mask the last quarter of every row except the first."""
    import torch

    length = case.lengths[step % len(case.lengths)] if case.lengths else case.sequence
    rows, length = (min(case.micro, 2), 32) if dry else (case.micro, length)
    ids = torch.randint(0, 500, (rows, length), device=device)
    inputs = {"input_ids": ids, "labels": ids.clone()}
    if case.padding:
        mask = torch.ones_like(ids)
        mask[1:, -length // 4 :] = 0
        inputs["attention_mask"] = mask
    return inputs
