"""TRL's own classes as judges of the static reader: random scripts are run and compared with the values read."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.frameworks.trainer_script.launch import read_options
from cfglint_train.frameworks.trainer_script.names import LORA_ARGUMENTS, LORA_DEFAULTS
from cfglint_train.frameworks.trainer_script.reader import ScriptSettings, read_runs
from tests.support.corpus import REPOSITORY
from tests.support.releases import fetch_source

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

ORACLE = REPOSITORY / "tests" / "oracles" / "trl_scripts.py"
RELEASES = (load("trl").newest, "0.24.0", "0.19.1")
COUNT = 100

HEAD = """\
import argparse
import dataclasses
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
"""
SETTINGS: dict[str, tuple[Any, ...]] = {
    "per_device_train_batch_size": (1, 2, 8),
    "gradient_accumulation_steps": (1, 4, 16),
    "learning_rate": (1e-5, 2e-4),
    "num_train_epochs": (1, 3),
    "max_steps": (100, 2000),
    "max_grad_norm": (0.3, 1.0),
    "logging_steps": (1, 10),
    "save_steps": (50, 500),
    "gradient_checkpointing": (True, False),
    "dataloader_num_workers": (0, 4),
    "optim": ("adamw_torch", "paged_adamw_8bit"),
    "seed": (0, 42),
}
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "SFT": {"max_length": (512, 4096), "packing": (True, False)},
    "DPO": {"beta": (0.1, 0.5), "max_length": (512, 1024)},
    "GRPO": {"num_generations": (4, 8), "max_completion_length": (256, 1024), "beta": (0.0, 0.04)},
}


class ScriptWriter:
    """Writer of one script, which states each value in one of the common ways."""

    def __init__(self, dice: random.Random) -> None:
        """Start with an empty script."""
        self.dice = dice
        self.constants: list[str] = []
        self.options: list[str] = []
        self.before: list[str] = []
        self.words: list[str] = []

    def write_expression(self, name: str, value: Any) -> str:
        style = self.dice.choice(("literal", "constant", "option", "given", "arithmetic", "function", "choice"))
        constant = f"{name.upper()}_{len(self.constants)}"
        if style == "constant":
            self.constants.append(f"{constant} = {value!r}")
            return constant
        if style in ("option", "given") and isinstance(value, bool):
            flag = f"--{name.replace('_', '-')}"
            self.options.append(f"parser.add_argument({flag!r}, action={'store_true' if value else 'store_false'!r})")
            if style == "given":
                self.words.append(flag)
                return f"args.{name}"
            return f"(not args.{name})"
        if style == "option":
            self.options.append(f"parser.add_argument('--{name}', type={type(value).__name__}, default={value!r})")
            return f"args.{name}"
        if style == "given":
            self.options.append(f"parser.add_argument('--{name}', type={type(value).__name__}, default=None)")
            self.words += self.dice.choice(([f"--{name}={value}"], [f"--{name}", str(value)]))
            return f"args.{name}"
        if style == "arithmetic" and type(value) is int and value % 2 == 0:
            self.constants.append(f"{constant} = {value // 2}")
            return f"2 * {constant}"
        if style == "function":
            self.constants.append(f"def {constant.lower()}(value={value!r}):\n    return value")
            return f"{constant.lower()}()"
        if style == "choice":
            return f"({value!r} if True else None)"
        return repr(value)

    def write_script(self) -> str:
        kind = self.dice.choice(tuple(OWN))
        pool = {**SETTINGS, **OWN[kind]}
        chosen = {
            name: self.dice.choice(pool[name]) for name in self.dice.sample(sorted(pool), self.dice.randint(1, 8))
        }
        text_by_name = {name: self.write_expression(name, value) for name, value in chosen.items()}
        arguments = [f"{name}={text}" for name, text in text_by_name.items()]
        form = self.dice.choice(("call", "dict", "late", "class", "call" if kind == "GRPO" else "replace"))
        class_name = f"{kind}Config"
        lines = []
        if form == "dict":
            lines += ["options = {", *(f"    {name!r}: {text}," for name, text in text_by_name.items()), "}"]
            lines += [f"training = {class_name}('out', **options)"]
        elif form == "late":
            name, text = next(iter(text_by_name.items()))
            lines += [f"training = {class_name}(output_dir='out', {', '.join(arguments[1:])})"]
            late = (f"training.{name} = {text}", f"setattr(training, {name!r}, {text})")
            lines += [self.dice.choice(late)]
        elif form == "replace":
            lines += [f"training = {class_name}('out', {', '.join(arguments[1:])})"]
            lines += [f"training = dataclasses.replace(training, {arguments[0]})"]
        elif form == "class":
            self.constants += ["@dataclasses.dataclass", f"class Arguments({class_name}):", "    extra: int = 3"]
            lines += [f"training = Arguments(output_dir='out', {', '.join(arguments)})"]
        else:
            lines += [f"training = {class_name}('out', {', '.join(arguments)})"]
        lines += self.write_trainer(kind)
        parser = ["parser = argparse.ArgumentParser()", *self.options, "args = parser.parse_args()"]
        main = ["def main():", *(f"    {line}" for line in (*parser, *lines)), "main()"]
        return HEAD + "\n".join((*self.constants, *main)) + "\n"

    def write_trainer(self, kind: str) -> list[str]:
        lines, model, adapter = [], "'Qwen/Qwen2.5-0.5B'", ""
        if self.dice.random() < 0.5:
            model = "model"
            options = self.dice.choice(("", ", torch_dtype=torch.bfloat16", ", attn_implementation='sdpa'"))
            quantized = self.dice.choice(("", ", quantization_config=BitsAndBytesConfig(load_in_4bit=True)"))
            lines += [f"model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B'{options}{quantized})"]
        if self.dice.random() < 0.5:
            chosen = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
            names = self.dice.sample(sorted(chosen), self.dice.randint(0, 4))
            lines += [f"adapter = LoraConfig({', '.join(f'{name}={chosen[name]!r}' for name in names)})"]
            adapter = ", peft_config=adapter"
        return [*lines, f"trainer = {kind}Trainer(model={model}, args=training{adapter})", "trainer.train()"]


def run_scripts(release: str, scripts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    for package in ("transformers", "peft"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed (tests/oracles/requirements.txt)")
    command = [sys.executable, str(ORACLE), str(fetch_source("trl", release, "trl"))]
    lines = "".join(json.dumps(script) + "\n" for script in scripts)
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("[")]


def read_script(text: str, words: list[str]) -> tuple[ScriptSettings, dict[str, Any]]:
    document = PythonDocument("train.py", text.encode())
    (settings,) = read_runs(document, read_options(document, words))
    entries = {entry.name: entry for entry in settings.entries}
    entries.update({name: part.entry for name, part in settings.parts.items() if part.entry is not None})
    return settings, {str(name): document.build_value(entry.value) for name, entry in entries.items()}


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_read_is_what_the_classes_hold(release: str, tmp_path: Path) -> None:
    dice = random.Random(release)
    writers = [ScriptWriter(dice) for _ in range(COUNT)]
    scripts = [{"text": writer.write_script(), "words": writer.words} for writer in writers]
    unknown = 0
    for script, answers in zip(scripts, run_scripts(release, scripts), strict=True):
        (answer,) = answers
        settings, values = read_script(script["text"], script["words"])
        assert not settings.refusal, script["text"]
        assert answer["trainer"].lower() == f"{settings.trainer}trainer"
        unknown += sum(isinstance(value, Unknown) for value in values.values())
        for name, value in values.items():
            if name in answer["values"] and not isinstance(value, Unknown):
                assert value == answer["values"][name], (name, script["text"], script["words"])
        assert values["model_name_or_path"] == answer["model"]["id"]
        assert values.get("dtype") == {None: None}.get(answer["model"].get("torch_dtype"), "bfloat16")
        if answer["adapter"] is None:
            assert "use_peft" not in values
            continue
        for parameter, name in LORA_ARGUMENTS.items():
            value = values.get(name, {**LORA_DEFAULTS}.get(name))
            expected = answer["adapter"][parameter]
            assert (sorted(value) if isinstance(value, list) else value or None) == (expected or None), (
                parameter,
                script["text"],
            )
    assert unknown == 0
