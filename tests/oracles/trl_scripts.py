"""Values that TRL's own classes hold after a script has made them: one script with its words in, the values out.

    python tests/oracles/trl_scripts.py SOURCE < scripts.jsonl
    in:  {"text": "from trl import ...", "words": ["--lr", "1e-5"]}
    out: [{"trainer": "SFTTrainer", "values": {"packing": true, ...}, "adapter": {"r": 8, ...}, "model": {...}}]

SOURCE is a folder that holds the package `trl` of a release. Its argument classes and PEFT's `LoraConfig` run
unchanged, on 8 ranks; trainers, models and bitsandbytes' class are stand-ins that keep their arguments.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from trl_parser import CLASSES, stand_in, trainer_class

MADE: list[dict[str, Any]] = []


class ArgumentRecorder:
    """A stand-in that keeps its arguments."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        self.positional, self.named = positional, named


class Model(ArgumentRecorder):
    @classmethod
    def from_pretrained(cls, *positional: Any, **named: Any) -> Model:
        return cls(*positional, **named)


def make_trainer(name: str) -> type:
    def start(self: Any, model: Any, args: Any = None, peft_config: Any = None, **_: Any) -> None:
        loaded = isinstance(model, Model)
        MADE.append(
            {
                "trainer": name,
                "values": {} if args is None else vars(args),
                "adapter": None if peft_config is None else vars(peft_config),
                "model": {"id": model.positional[0], **model.named} if loaded else {"id": model},
            }
        )

    return type(name, (), {"__init__": start, "train": lambda self: None})


def install_modules(folder: Path) -> None:
    """Install the packages that the scripts import, with the names that they use."""
    sys.path.insert(0, str(folder))
    stand_in(folder)
    transformers = importlib.import_module("transformers")
    transformers.TrainingArguments.__post_init__ = lambda self: None
    transformers.TrainingArguments.world_size = property(lambda self: 8)
    transformers.TrainingArguments.device = property(lambda self: types.SimpleNamespace(type="cpu"))
    trl = sys.modules["trl"]
    for name, title in CLASSES.items():
        try:
            setattr(trl, title, trainer_class(name))
        except ModuleNotFoundError:
            continue
        class_name = title.replace("Config", "Trainer")
        setattr(trl, class_name, make_trainer(class_name))
    stand_in_module = types.ModuleType("transformers")
    vars(stand_in_module).update(
        AutoModelForCausalLM=Model,
        BitsAndBytesConfig=ArgumentRecorder,
        TrainingArguments=transformers.TrainingArguments,
    )
    sys.modules["transformers"] = stand_in_module


def main() -> None:
    install_modules(Path(sys.argv[1]))
    importlib.import_module("peft.tuners.lora.config")
    for line in sys.stdin:
        request = json.loads(line)
        MADE.clear()
        sys.argv = ["train.py", *request["words"]]
        with redirect_stdout(io.StringIO()):
            exec(compile(request["text"], "train.py", "exec"), {"__name__": "__main__"})
        print(json.dumps(MADE, default=encode), flush=True)


def encode(value: Any) -> Any:
    if isinstance(value, ArgumentRecorder):
        return value.named
    return sorted(value) if isinstance(value, set) else str(value)


if __name__ == "__main__":
    main()
