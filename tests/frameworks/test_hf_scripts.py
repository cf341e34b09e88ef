"""Python scripts that call the Trainer of transformers itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.frameworks.hf_scripts.recognise import recognise
from tests.support.linting import lint, runs_in

IMPORTS = """\
import argparse
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForSeq2SeqLM, BitsAndBytesConfig,
    HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments,
    WhisperForConditionalGeneration,
)
"""
SCRIPT = (
    IMPORTS
    + """\
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
quantized = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=quantized, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=32, target_modules=["q_proj"]))
training = TrainingArguments("out", per_device_train_batch_size=args.batch_size, bf16=True, save_total_limit=2)
class Own(Trainer):
    pass
Own(model=model, args=training, train_dataset=data).train()
"""
)
CAUSAL = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")'


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("model.id", "Qwen/Qwen2.5-7B"),
        ("method.tuning", "lora"),
        ("method.lora_rank", 32),
        ("method.quantization", "fp4"),
        ("batch.micro", 2),
        ("batch.accumulation", 1),
        ("precision.compute", "bf16"),
        ("optimizer.learning_rate", 5e-5),
        ("logging.interval", 500),
        ("checkpoint.keep", 2),
        ("checkpoint.path", "out"),
        ("launch.gpus_per_node", 4),
        ("sequence.length", None),
        ("method.stage", None),
    ],
)
def test_the_plan_of_a_script_that_is_started(tmp_path: Path, field: str, expected: object) -> None:
    """By its text, the defaults of the Trainer, and what its launch gives."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 4 train.py --batch-size 2\n")
    (run,) = runs_in(tmp_path)
    assert (run.main.framework, run.framework.title) == ("hf_scripts", "HF Trainer")
    assert run.reading.get(field) == expected  # type: ignore[arg-type]


def test_the_release_is_that_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text("transformers==4.57.1\npeft\n")
    (run,) = runs_in(tmp_path)
    assert (run.main.release, "trl" in run.releases.known) == ("4.57.1", False)


def test_what_the_trainer_refuses_is_reported_and_its_memory_is_not(tmp_path: Path) -> None:
    text = f"Trainer({CAUSAL}, TrainingArguments('out', load_best_model_at_end=True, eval_strategy='epoch', foo=1))\n"
    (tmp_path / "train.py").write_text(IMPORTS + text)
    found = lint(tmp_path).findings
    assert [one.code for one in found if one.severity in ("error", "warning")] == ["KEY006"]
    assert {one.code for one in found} >= {"CHK001"}
    assert not [one for one in found if "TRL" in one.message]


@pytest.mark.parametrize(
    ("text", "reason", "role"),
    [
        (f"Trainer({CAUSAL}, TrainingArguments('out'))", None, None),
        (f"Seq2SeqTrainer(model={CAUSAL}, args=Seq2SeqTrainingArguments('out'))", None, None),
        (
            "a, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
            f"Trainer(model={CAUSAL}, args=a)",
            None,
            None,
        ),
        (
            "Trainer(AutoModelForSequenceClassification.from_pretrained('m'), TrainingArguments('out'))",
            "causal",
            "other",
        ),
        ("Trainer(AutoModelForSeq2SeqLM.from_pretrained('m'), TrainingArguments('out'))", "causal", "other"),
        ("Trainer(WhisperForConditionalGeneration.from_pretrained('m'), TrainingArguments('out'))", "causal", "other"),
        ("Trainer(make(), TrainingArguments('out'))", "causal", "unread"),
        (f"Trainer({CAUSAL}, TrainingArguments(**load()))", "without running it", "unread"),
        (f"Trainer({CAUSAL}, make())", "without running it", "unread"),
    ],
)
def test_a_run_is_read_or_named_with_the_reason(text: str, reason: str | None, role: str | None) -> None:
    (found,) = recognise(PythonDocument("train.py", (IMPORTS + text).encode()))
    assert found.role == role
    assert (reason or "Trainer of transformers") in found.why


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import TrainingArguments\nTrainingArguments('out')\n",
        "from lightning import Trainer\nfrom transformers import AutoModel\nTrainer(max_epochs=1)\n",
        "from trl import SFTTrainer\nfrom transformers import TrainingArguments\nSFTTrainer('m', TrainingArguments())",
        "from trl import SFTTrainer\nfrom transformers import Trainer\nSFTTrainer('m')\nTrainer(make(), None)\n",
    ],
)
def test_other_scripts_are_left_alone(text: str) -> None:
    assert recognise(PythonDocument("train.py", text.encode())) == []
