"""Scripts that parse all their settings from the command line: TrlParser and HfArgumentParser."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.trainer_script.facts import find_full_name
from cfglint_train.frameworks.trainer_script.launch import read_command_line
from cfglint_train.frameworks.trainer_script.line import CommandLineSetting
from cfglint_train.frameworks.trainer_script.reader import read_runs
from cfglint_train.frameworks.trl.recognise import recognise
from tests.support.linting import build_options, lint, list_runs

MODEL = "Qwen/Qwen2.5-7B"
IMPORTS = """\
import torch
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser
from trl import get_kbit_device_map, get_peft_config, get_quantization_config
"""
WHOLE = """
parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
dtype = model_args.dtype if model_args.dtype in ["auto", None] else getattr(torch, model_args.dtype)
options = dict(revision=model_args.model_revision, dtype=dtype)
quantization_config = get_quantization_config(model_args)
if quantization_config is not None:
    options["device_map"] = get_kbit_device_map()
    options["quantization_config"] = quantization_config
model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, **options)
training_args.max_length = 512
SFTTrainer(model=model, args=training_args, peft_config=get_peft_config(model_args))
"""
OWN_FIELDS = """
@dataclass
class Own:
    model_id: str = field(default="Qwen/Qwen2.5-7B")
    length: int = 2048
own, training_args = HfArgumentParser((Own, SFTConfig)).parse_args_into_dataclasses()
training_args.max_length = own.length
SFTTrainer(model=own.model_id, args=training_args)
"""


def test_a_module_beside_the_script_does_not_hide_where_a_name_is_from() -> None:
    text = b"from transformers import A\nfrom .own import A\nfrom trl import B\nfrom transformers import B\n"
    document = PythonDocument("train.py", text)
    assert [find_full_name(document, ast.Name(name)) for name in ("A", "B", "C")] == ["transformers.A", "", ""]


def read_settings(text: str, words: list[str]) -> dict[str, Any]:
    document = PythonDocument("train.py", (IMPORTS + dedent(text)).encode())
    (values,) = read_runs(document, {}, read_command_line(document, words) if words else None)
    assert not values.refusal
    return {
        name: document.build_value(part.entry.value) for name, part in values.parts.items() if part.entry is not None
    }


@pytest.mark.parametrize("words", [["--model_id", MODEL], ["--model_id", MODEL, "--targets", "q_proj,v_proj"]])
def test_a_field_that_post_init_replaces_has_an_unknown_value(words: list[str]) -> None:
    fields = OWN_FIELDS.replace(
        "    length: int = 2048\n",
        '    length: int = 2048\n    targets: str = "q_proj,k_proj"\n    def __post_init__(self):\n'
        "        if isinstance(self.targets, str):\n            self.targets = self.targets.split(',')\n",
    ).replace("args=training_args)", "args=training_args, peft_config=LoraConfig(target_modules=own.targets))")
    settings = read_settings("from peft import LoraConfig\n" + fields, words)
    assert isinstance(settings["lora_target_modules"], Unknown)
    assert settings["max_length"] == 2048


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model_name_or_path", MODEL], {"model_name_or_path": MODEL, "max_length": 512}),
        (
            ["--model_name_or_path", MODEL, "--max_length", "9", "--packing"],
            {"packing": True, "max_length": 512},
        ),
        (["--model_name_or_path", MODEL, "--dtype", "bfloat16"], {"dtype": "bfloat16"}),
        (
            ["--model_name_or_path", MODEL, "--use_peft", "--lora_r", "32"],
            {"use_peft": True, "lora_r": 32},
        ),
        (
            ["--model_name_or_path", MODEL, "--use_peft", "--load_in_4bit"],
            {"load_in_4bit": True, "_DEVICE_MAP_": "one device"},
        ),
    ],
)
def test_what_a_launch_gives_counts(words: list[str], expected: dict[str, Any]) -> None:
    values = read_settings(WHOLE, words)
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize("name", ["use_peft", "lora_r", "load_in_4bit", "dtype", "packing", "_DEVICE_MAP_"])
def test_what_a_launch_leaves_out_has_its_default(name: str) -> None:
    assert name not in read_settings(WHOLE, ["--model_name_or_path", MODEL])


@pytest.mark.parametrize("words", [[], ["--config", "recipe.yaml"], ["--learning_rate", "1e-5"], ["recipe.yaml"]])
@pytest.mark.parametrize("name", ["model_name_or_path", "use_peft", "lora_r", "dtype", "gradient_checkpointing"])
def test_what_may_be_given_elsewhere_is_unknown(words: list[str], name: str) -> None:
    values = read_settings(WHOLE, words)
    assert isinstance(values[name], CommandLineSetting)
    assert values["max_length"] == 512


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], (MODEL, 2048)), (["--model_id", "gpt2"], ("gpt2", 2048)), (["--length", "64"], (MODEL, 64))],
)
def test_fields_of_the_script_have_defaults(words: list[str], expected: tuple[str, int]) -> None:
    values = read_settings(OWN_FIELDS, words)
    assert (values["model_name_or_path"], values["max_length"]) == expected


def test_a_setting_that_the_script_does_not_hand_on_does_not_count() -> None:
    text = """
    training_args, model_args = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
    SFTTrainer(model=model_args.model_name_or_path, args=training_args)
    """
    values = read_settings(text, ["--model_name_or_path", MODEL, "--use_peft", "--load_in_4bit"])
    assert values["model_name_or_path"] == MODEL
    assert not values.keys() & {"use_peft", "load_in_4bit"}


SHOWN = f'''"""
Some words about it.

```
accelerate launch --num_processes 2 examples/train.py \\
    --model_name_or_path {MODEL} \\
    --per_device_train_batch_size 3
python examples/train.py --model_name_or_path gpt2
```
"""
'''


def test_the_docstring_shows_a_launch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SHOWN + IMPORTS + WHOLE)
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.batch.micro, run.plan.launch.gpus_per_node) == (MODEL, 3, 2)
    for field in ("model.id", "batch.micro", "launch.gpus_per_node"):
        origin = run.get_origin(field)  # type: ignore[arg-type]
        assert origin is not None
        assert origin.assumption
    place = run.get_origin("model.id").place  # type: ignore[union-attr]
    assert place is not None
    assert place.document.locate(place.span.start).line == 6


def test_a_launcher_alone_on_its_line_of_the_docstring_goes_on_in_the_next(tmp_path: Path) -> None:
    """Join the command with the next line, as in sft_vlm.py of trl 0.12.2 to 0.21.0."""
    (tmp_path / ".git").mkdir()
    docstring = SHOWN.replace("accelerate launch --num_processes 2", "accelerate launch\n    --num_processes 2")
    assert docstring != SHOWN
    (tmp_path / "train.py").write_text(docstring + IMPORTS + WHOLE)
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.batch.micro, run.plan.launch.gpus_per_node) == (MODEL, 3, 2)
    place = run.get_origin("model.id").place  # type: ignore[union-attr]
    assert place is not None
    assert place.document.locate(place.span.start).line == 7


def test_a_launcher_alone_on_its_line_in_words_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text('"""\naccelerate launch\nstarts it.\n"""\n' + IMPORTS + WHOLE)
    (run,) = list_runs(tmp_path)
    assert run.plan.model.id is None


def test_launches_that_differ_are_said_to(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(IMPORTS + WHOLE)
    for name, more in (("full", ""), ("lora", " --use_peft --lora_r 8")):
        line = f"python train.py --model_name_or_path {MODEL}{more}"
        (tmp_path / f"{name}.md").write_text(f"```bash\n{line}\n```\n")
    findings = lint(tmp_path, build_options(("CHK001",))).findings
    assert [finding.message for finding in findings] == [
        "memory not checked: the value of `use_peft` in the launch (full.md and lora.md differ) cannot be determined"
    ]


def test_a_script_that_launches_it_wins_over_its_docstring(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SHOWN + IMPORTS + WHOLE)
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 4 train.py --model_name_or_path gpt2 --packing\n")
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.sequence.packing, run.plan.launch.gpus_per_node) == ("gpt2", True, 4)
    origin = run.get_origin("model.id")
    assert origin is not None
    assert not origin.assumption


def test_launches_that_differ_leave_it_unknown(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(IMPORTS + WHOLE)
    (tmp_path / "run.sh").write_text(
        f"python train.py --model_name_or_path gpt2 --packing\npython train.py --model_name_or_path {MODEL} --packing\n"
    )
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.sequence.packing) == (None, True)


OTHER = f"""
from trl.experimental.gkd import GKDConfig, GKDTrainer
GKDTrainer(model="{MODEL}", args=GKDConfig("out", per_device_train_batch_size=2, lmbda=0.5, num_generations=1))
"""


def test_of_other_trainers_the_arguments_of_the_trainer_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OTHER)
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.batch.micro, run.plan.rollout.samples_per_prompt) == (MODEL, 2, None)
    assert "activations.fused_loss" in run.estimate.missing


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        ("from trl import PPOTrainer\nPPOTrainer(args=args)", "PPOTrainer"),
        ("from trl.experimental.async_grpo import AsyncGRPOTrainer\nAsyncGRPOTrainer()", "AsyncGRPOTrainer"),
        ("from trl import PPOTrainer\n", ""),
        ("from trl import PPOTrainer\nclass Own(Trainer): ...\nOwn()\n", ""),
    ],
)
def test_trainers_that_are_not_read_are_named(text: str, trainer: str) -> None:
    recognised = recognise(PythonDocument("train.py", text.encode()))
    assert [config.reason for config in recognised] == ([f"no rule covers TRL's {trainer}"] if trainer else [])


def test_a_read_me_file_shows_a_launch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(IMPORTS + WHOLE)
    command = f"accelerate launch --num_processes 2 train.py --model_name_or_path {MODEL} --packing"
    (tmp_path / "README.md").write_text(f"# How\n\n```bash\n{command}\n```\n\n```\npython train.py --packing\n```\n")
    (run,) = list_runs(tmp_path)
    assert (run.plan.model.id, run.plan.sequence.packing, run.plan.launch.gpus_per_node) == (MODEL, True, 2)
    origin = run.get_origin("model.id")
    assert origin is not None
    assert origin.assumption


def test_a_second_lint_reads_the_changed_class_that_a_module_imports(tmp_path: Path) -> None:
    base = (
        "from dataclasses import dataclass\nfrom trl import SFTConfig\n"
        "@dataclass\nclass Base(SFTConfig):\n    {}: int = 1\n"
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs.py").write_text("from base import Base\nclass Own(Base):\n    pass\n", encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "from configs import Own\nfrom trl import ModelConfig, SFTTrainer, TrlParser\n"
        "args, model = TrlParser((Own, ModelConfig)).parse_args_and_config()\n"
        "SFTTrainer(model.model_name_or_path, args=args).train()\n",
        encoding="utf-8",
    )
    (tmp_path / "recipe.yaml").write_text(
        f"model_name_or_path: {MODEL}\nextra: 2\nlearning_rate: 1.0e-4\n", encoding="utf-8"
    )
    (tmp_path / "run.sh").write_text("accelerate launch train.py --config recipe.yaml\n", encoding="utf-8")
    codes = []
    for name in ("extra", "other"):
        (tmp_path / "base.py").write_text(base.format(name), encoding="utf-8")
        codes.append([finding.code for finding in lint(tmp_path, build_options(select=["KEY001"])).findings])
    assert codes == [[], ["KEY001"]]
