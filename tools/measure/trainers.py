"""A case under transformers' Trainer or TRL's trainers, as their users run them: their collators, autocast, clipping
and optimizers. Data are random tokens of the case's length.
"""

from __future__ import annotations

import tempfile
from typing import Any

from .cases import Case
from .models import build
from .readings import Readings

STEPS = 3
ROWS = 64


def trained(case: Case, model: Any, readings: Readings, dry: bool) -> dict[str, Any]:
    """Train a few steps: phases and peak of the row."""
    readings.mark("init")
    with tempfile.TemporaryDirectory() as folder:
        made = {"hf": _plain, "sft": _sft, "dpo": _dpo}[case.trainer](case, model, _settings(case, folder, dry), dry)
        readings.mark("trainer")
        made.train()
        readings.mark("training")
        found: dict[str, Any] = {"driver": readings.driver(), "snapshot": readings.categories()}
        if case.save:
            made._save_checkpoint(made.model, trial=None)
            readings.mark("save")
    return {**found, "phases": readings.phases, "peak": readings.peak()}


def _settings(case: Case, folder: str, dry: bool) -> dict[str, Any]:
    """The arguments that all trainers share."""
    names = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "8bit": "adamw_bnb_8bit"}
    return {
        "output_dir": folder, "max_steps": 10 if case.lengths else STEPS, "per_device_train_batch_size": case.micro,
        "gradient_accumulation_steps": case.accumulation, "bf16": case.precision.startswith("amp"),
        "optim": "adamw_torch" if dry else names.get(case.optimizer, case.optimizer), "report_to": [],
        "save_strategy": "no", "logging_steps": 1, "use_liger_kernel": case.liger,
        "gradient_checkpointing": case.checkpointing, "disable_tqdm": True, "use_cpu": dry,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    }  # fmt: skip


def _rows(case: Case, dry: bool) -> list[list[int]]:
    """Sequences of random tokens, of the case's length or lengths."""
    import torch

    lengths = case.lengths or (case.sequence,) * ROWS
    return [torch.randint(0, 500, (32 if dry else length,)).tolist() for length in lengths]


def _plain(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    """Rows of several lengths are padded to the longest of their batch."""
    import transformers

    rows = [{"input_ids": ids} for ids in _rows(case, dry)]
    collator = transformers.DataCollatorForLanguageModeling(_tokenizer(), mlm=False)
    return transformers.Trainer(model=model, args=transformers.TrainingArguments(**settings), train_dataset=rows,
                                data_collator=collator)  # fmt: skip


def _tokenizer() -> Any:
    """Words 0 to 499, without a text that must be downloaded."""
    import tokenizers
    import transformers

    words = {f"w{number}": number for number in range(500)} | {"<unk>": 500, "<eos>": 501, "<pad>": 502}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>", pad_token="<pad>")


def _sft(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    import datasets
    import trl

    rows = datasets.Dataset.from_dict({"input_ids": _rows(case, dry)})
    arguments = trl.SFTConfig(**settings, max_length=case.sequence)
    return trl.SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=_tokenizer())


def _dpo(case: Case, model: Any, settings: dict[str, Any], dry: bool) -> Any:
    """Pairs whose prompts are a quarter of the length."""
    import datasets
    import torch
    import trl

    length = 32 if dry else case.sequence
    prompt = length // 4

    def text(size: int) -> list[str]:
        return ["".join(f"w{number} " for number in row) for row in torch.randint(0, 500, (16, size)).tolist()]

    rows = datasets.Dataset.from_dict(
        {"prompt": text(prompt), "chosen": text(length - prompt - 1), "rejected": text(length - prompt - 1)}
    )
    arguments = trl.DPOConfig(**settings, max_length=length)
    reference = None if case.lora else build(case, "cpu" if dry else "cuda", dry).requires_grad_(False)
    return trl.DPOTrainer(model=model, ref_model=reference, args=arguments, train_dataset=rows,
                          processing_class=_tokenizer())  # fmt: skip
