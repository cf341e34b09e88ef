"""Cases under transformers' Trainer or TRL's trainers, which bring their own collators, autocast, clipping, optimizers.

The data is random tokens; sequences have the case's length or lengths.
"""

from __future__ import annotations

import tempfile
from typing import Any

from .cases import Case
from .models import build_model
from .readings import Readings

STEPS = 3
ROWS = 64


def run_training(case: Case, model: Any, readings: Readings, dry: bool) -> dict[str, Any]:
    """Train a few steps and return the readings for the row: driver, snapshot, phases and peak."""
    readings.record_phase("init")
    with tempfile.TemporaryDirectory() as folder:
        trainer = {"hf": _build_trainer, "sft": _build_sft, "dpo": _build_dpo}[case.trainer](
            case, model, _build_settings(case, folder, dry), dry
        )
        readings.record_phase("trainer")
        trainer.train()
        readings.record_phase("training")
        figures: dict[str, Any] = {"driver": readings.read_driver_usage(), "snapshot": readings.sum_blocks()}
        if case.save:
            trainer._save_checkpoint(trainer.model, trial=None)
            readings.record_phase("save")
    return {**figures, "phases": readings.phases, "peak": readings.find_peak()}


def _build_settings(case: Case, folder: str, dry: bool) -> dict[str, Any]:
    """Return the arguments that all trainers share."""
    names = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "8bit": "adamw_bnb_8bit"}
    return {
        "output_dir": folder, "max_steps": 10 if case.lengths else STEPS, "per_device_train_batch_size": case.micro,
        "gradient_accumulation_steps": case.accumulation, "bf16": case.precision.startswith("amp"),
        "optim": "adamw_torch" if dry else names.get(case.optimizer, case.optimizer), "report_to": [],
        "save_strategy": "no", "logging_steps": 1, "use_liger_kernel": case.liger,
        "gradient_checkpointing": case.checkpointing, "disable_tqdm": True, "use_cpu": dry,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    }  # fmt: skip


def _build_rows(case: Case, dry: bool) -> list[list[int]]:
    """Return sequences of random tokens with the case's length or lengths, or of 32 tokens in a dry run."""
    import torch

    lengths = case.lengths or (case.sequence,) * ROWS
    return [torch.randint(0, 500, (32 if dry else length,)).tolist() for length in lengths]


def _build_trainer(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    """Return transformers' Trainer with a collator that pads rows to the longest row of the batch."""
    import transformers

    rows = [{"input_ids": ids} for ids in _build_rows(case, dry)]
    collator = transformers.DataCollatorForLanguageModeling(_build_tokenizer(), mlm=False)
    return transformers.Trainer(model=model, args=transformers.TrainingArguments(**settings), train_dataset=rows,
                                data_collator=collator)  # fmt: skip


def _build_tokenizer() -> Any:
    """Return a tokenizer for the words `w0` to `w499`, so that nothing is downloaded."""
    import tokenizers
    import transformers

    words = {f"w{number}": number for number in range(500)} | {"<unk>": 500, "<eos>": 501, "<pad>": 502}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer_class: Any = transformers.PreTrainedTokenizerFast
    return tokenizer_class(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<pad>")


def _build_sft(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    import datasets
    import trl

    rows = datasets.Dataset.from_dict({"input_ids": _build_rows(case, dry)})
    arguments = trl.SFTConfig(**settings, max_length=case.sequence)
    return trl.SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=_build_tokenizer())


def _build_dpo(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    """Return TRL's DPO trainer. Prompts are a quarter of the length; without LoRA the reference is a copy."""
    import datasets
    import torch
    import trl

    length = 32 if dry else case.sequence
    prompt = length // 4

    def build_texts(size: int) -> list[str]:
        return ["".join(f"w{number} " for number in row) for row in torch.randint(0, 500, (16, size)).tolist()]

    rows = datasets.Dataset.from_dict(
        {
            "prompt": build_texts(prompt),
            "chosen": build_texts(length - prompt - 1),
            "rejected": build_texts(length - prompt - 1),
        }
    )
    arguments = trl.DPOConfig(**settings, max_length=length)
    reference = None if case.lora else build_model(case, "cpu" if dry else "cuda", dry).requires_grad_(False)
    return trl.DPOTrainer(model=model, ref_model=reference, args=arguments, train_dataset=rows,
                          processing_class=_build_tokenizer())  # fmt: skip
