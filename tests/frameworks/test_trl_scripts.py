"""Python scripts that train with TRL: the settings of their runs, read without running them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from cfglint_train.api import lint
from cfglint_train.documents.document import CannotEdit, Delete, Rename, Set, Unknown, apply_edits
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.tree import Record, Value, find_condition
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.trainer_script.launch import read_options
from cfglint_train.frameworks.trainer_script.reader import ScriptSettings, read_runs

IMPORTS = """\
import argparse
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer, TrlParser
"""


def parse_script(text: str) -> PythonDocument:
    return PythonDocument("train.py", (IMPORTS + dedent(text)).encode())


def read_only_run(text: str) -> tuple[PythonDocument, ScriptSettings]:
    document = parse_script(text)
    (settings,) = read_runs(document)
    document.attach_tree(settings)
    return document, settings


def read_value(text: str, key: str) -> Any:
    document, _ = read_only_run(text)
    return document.get_value((key,))


PLAIN = """\
    MODEL = "Qwen/Qwen2.5-7B"
    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        parser.add_argument("--lr", type=float, default=2e-4)
        parser.add_argument("--packing", action="store_true")
        args = parser.parse_args()
        quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_pretrained(MODEL, quantization_config=quantized, torch_dtype=torch.bfloat16)
        model = prepare_model_for_kbit_training(model)
        training = SFTConfig(
            output_dir="out",
            per_device_train_batch_size=args.batch_size,
            learning_rate=args.lr,
            packing=args.packing,
            max_length=2 * 1024,
        )
        trainer = SFTTrainer(model=model, args=training, peft_config=LoraConfig(r=32, target_modules=["q_proj"]))
        trainer.train()
    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("output_dir", "out"),
        ("per_device_train_batch_size", 8),
        ("learning_rate", 2e-4),
        ("packing", False),
        ("max_length", 2048),
        ("model_name_or_path", "Qwen/Qwen2.5-7B"),
        ("dtype", "bfloat16"),
        ("load_in_4bit", True),
        ("use_peft", True),
        ("lora_r", 32),
        ("lora_target_modules", ["q_proj"]),
        ("_KBIT_", True),
        ("_CHECKPOINTING_", True),
    ],
)
def test_settings_have_the_names_of_recipes(key: str, expected: object) -> None:
    assert read_value(PLAIN, key) == expected


def test_what_other_calls_take_is_no_key_of_the_arguments() -> None:
    document, settings = read_only_run(PLAIN)
    assert set(settings.index) == {
        "output_dir",
        "per_device_train_batch_size",
        "learning_rate",
        "packing",
        "max_length",
    }
    assert [set(mapping.index) for route, mapping in document.list_mappings() if not route] == [set(settings.index)]


def test_each_trainer_is_a_run() -> None:
    first, second = read_runs(
        parse_script("""
        sft = SFTTrainer("Qwen/Qwen2.5-7B", SFTConfig("first", max_length=512), train_dataset=data)
        dpo = DPOTrainer("Qwen/Qwen2.5-7B", None, DPOConfig("second", beta=0.2), train_dataset=data)
    """)
    )
    assert (first.trainer, second.trainer) == ("sft", "dpo")
    assert [run.entries[0].value.text for run in (first, second)] == ["first", "second"]  # type: ignore[attr-defined]


def test_the_trainer_of_a_class_of_the_script() -> None:
    text = """
    class Careful(GRPOTrainer):
        def compute_loss(self, *args, **kwargs):
            return super().compute_loss(*args, **kwargs)
    class Arguments(GRPOConfig):
        extra: int = 3
    trainer = Careful(model="Qwen/Qwen2.5-7B", reward_funcs=f, args=Arguments(num_generations=4, extra=5))
    """
    _, settings = read_only_run(text)
    assert (settings.trainer, settings.refusal) == ("grpo", "")
    assert "extra" not in settings.index
    assert "num_generations" in settings.index


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "from recipes.configs import SFTConfig\n"
            "arguments, = HfArgumentParser((SFTConfig,)).parse_args_into_dataclasses()\n"
            "SFTTrainer(model='m', args=arguments)",
            "command line",
        ),
        (
            "s, a, m = TrlParser(classes).parse_args_and_config()\nSFTTrainer(model=m.model_name_or_path, args=a)",
            "command line",
        ),
        ("SFTTrainer(model='m', args=SFTConfig(**load()))", "without running it"),
        ("SFTTrainer(model='m', args=make())", "without running it"),
        ("SFTTrainer(**everything)", "without running it"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_reason(text: str, reason: str) -> None:
    (settings,) = read_runs(parse_script(text))
    assert reason in settings.refusal


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("SFTTrainer('m', SFTConfig(bf16=torch.cuda.is_bf16_supported()))", "bf16", Unknown),
        ("SFTTrainer(load(), SFTConfig())", "model_name_or_path", Unknown),
        ("SFTTrainer(AutoModelForCausalLM.from_pretrained('m', **options), SFTConfig())", "dtype", Unknown),
        ("SFTTrainer('m', SFTConfig(), peft_config=adapter())", "use_peft", Unknown),
    ],
)
def test_what_depends_on_the_run_is_unknown(text: str, key: str, expected: type) -> None:
    assert isinstance(read_value(text, key), expected)


def test_a_condition_makes_a_value_uncertain() -> None:
    _, settings = read_only_run(
        """
        training = SFTConfig("out", max_length=512)
        if long:
            training.max_length = 8192
        SFTTrainer("m", training)
        """
    )
    assert [step.kind for step in settings.index["max_length"].value.how] == ["depends"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--batch-size", "2"], {"batch_size": 2}),
        (["--batch-size=2", "--packing"], {"batch_size": 2, "packing": True}),
        (["--batch", "4", "--lr", "-1e-5"], {"batch_size": 4, "lr": -1e-5}),
        (["--unknown", "4"], {}),
    ],
)
def test_a_launch_gives_the_options_of_the_script(words: list[str], expected: dict[str, object]) -> None:
    options = read_options(parse_script(PLAIN), words)
    assert {name: option.value for name, option in options.items()} == expected


@pytest.mark.parametrize("words", [["--batch-size", "many"], ["--batch-size"], ["--batch-size", "cfglint-untold"]])
def test_a_word_that_cannot_be_told(words: list[str]) -> None:
    assert isinstance(read_options(parse_script(PLAIN), words)["batch_size"].value, Unknown)


def test_given_options_count_instead_of_defaults() -> None:
    document = parse_script(PLAIN)
    (settings,) = read_runs(document, read_options(document, ["--batch-size", "2", "--packing"]))
    document.attach_tree(settings)
    assert document.get_value(("per_device_train_batch_size",)) == 2
    assert document.get_value(("packing",)) is True
    assert document.get_value(("learning_rate",)) == 2e-4


def apply_changes(text: str, *changes: Any) -> str:
    document, _ = read_only_run(text)
    after = apply_edits(document.source, document.build_edits(changes)).decode()
    return after.removeprefix(IMPORTS)


def test_the_default_of_an_option_is_changed_where_it_counts() -> None:
    text = """\
parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=4096)
SFTTrainer("m", SFTConfig("out", max_length=parser.parse_args().length))
"""
    assert apply_changes(text, Set(("max_length",), 2048)) == text.replace("4096", "2048")


TEXT = """\
model = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float32)
training = SFTConfig("out", max_length=4096)
SFTTrainer(model, training, peft_config=LoraConfig(lora_dropout=0.1))
"""


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Set(("max_length",), 2048), "max_length=4096", "max_length=2048"),
        (Set(("packing",), True), "max_length=4096", "max_length=4096, packing=True"),
        (Set(("dtype",), "bfloat16"), "torch_dtype=torch.float32", 'torch_dtype="bfloat16"'),
        (Set(("attn_implementation",), "sdpa"), "torch.float32)", 'torch.float32, attn_implementation="sdpa")'),
        (Set(("lora_r",), 16), "lora_dropout=0.1", "lora_dropout=0.1, r=16"),
        (Set(("lora_dropout",), 0.0), "lora_dropout=0.1", "lora_dropout=0.0"),
        (Rename(("max_length",), "max_seq_length"), "max_length=", "max_seq_length="),
        (Delete(("max_length",)), ", max_length=4096", ""),
    ],
)
def test_fixes_edit_the_call_that_takes_the_setting(change: Any, before: str, after: str) -> None:
    assert apply_changes(TEXT, change) == TEXT.replace(before, after)


@pytest.mark.parametrize(
    "change", [Rename(("dtype",), "torch_dtype"), Delete(("lora_dropout",)), Set(("load_in_4bit_",), True)]
)
def test_what_another_call_takes_is_not_renamed_or_left_out(change: Any) -> None:
    if isinstance(change, Set):
        assert "load_in_4bit_" in apply_changes(TEXT, change)  # an unknown key goes to the arguments
        return
    with pytest.raises(CannotEdit, match="another call"):
        apply_changes(TEXT, change)


def test_a_setting_of_a_call_that_is_not_there() -> None:
    with pytest.raises(CannotEdit, match="no call in the script accepts it"):
        apply_changes('SFTTrainer("m", SFTConfig("out"))', Set(("lora_r",), 16))


def test_no_record_of_another_document_has_parts() -> None:
    document = PythonDocument("x.py", b"x = 1\n")
    document.attach_tree(Record(document.find_span(document.module.body[0]), []))
    assert document.find_entry(("x",)) is None
    assert document.find_node(("x",)) is None


METHOD = """
class Job:
    def __init__(self, rate: float = 1e-4):
        self.rate = rate
        self.arguments = None
    def load(self):
        self.model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    def prepare(self):
        self.arguments = SFTConfig("out", learning_rate=self.rate, max_length=512)
    def train(self):
        self.trainer = SFTTrainer(model=self.model, args=self.arguments, train_dataset=data)
        self.trainer.train()
"""


@pytest.mark.parametrize(
    ("calls", "rate", "is_assumed"),
    [
        ("job = Job(rate=3e-4)\njob.load()\njob.prepare()\njob.train()", 3e-4, False),
        ("", 1e-4, True),
    ],
)
def test_a_trainer_in_a_method(calls: str, rate: float, is_assumed: bool) -> None:
    """Read what other methods set, whether or not the script calls them."""
    _, settings = read_only_run(METHOD + calls)
    assert (settings.refusal, bool(settings.gap)) == ("", is_assumed)
    assert settings.model_class == "transformers.AutoModelForCausalLM"
    value = settings.get("learning_rate").value  # type: ignore[union-attr]
    assert isinstance(value, Value)
    assert (value.value, find_condition(value) is not None) == (rate, is_assumed)


def test_keys_beside_unknown_ones() -> None:
    """Keep the keys that a script states; only the others are unknown."""
    _, settings = read_only_run("SFTTrainer(model='m', args=SFTConfig(max_length=512, **load()))")
    assert "cannot be determined" in settings.gap
    assert {entry.name for entry in settings.entries} == {"max_length"}
    packing = settings.parts["packing"].entry
    assert packing is not None
    assert isinstance(packing.value, Value)
    assert isinstance(packing.value.value, Unknown)


def test_conditions_that_exclude_each_other() -> None:
    """Forget a value that is set under one condition if the trainer is created under another."""
    _, settings = read_only_run("""
    length = 128
    if kind == "short":
        length = 64
    if kind in ("long", "longer"):
        SFTTrainer(model="m", args=SFTConfig("out", max_length=length), train_dataset=data)
    """)
    value = settings.get("max_length").value  # type: ignore[union-attr]
    assert isinstance(value, Value)
    assert isinstance(value.value, Unknown)


@pytest.mark.parametrize("path", ["tests/train.py", "src/test_train.py", "conftest.py"])
def test_a_test_of_the_repository_is_no_run(tmp_path: Path, path: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("from trl import SFTConfig, SFTTrainer\nSFTTrainer('m', SFTConfig('out', foo=1))\n")
    assert lint(tmp_path).findings == ()
