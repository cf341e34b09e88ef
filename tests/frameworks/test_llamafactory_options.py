"""LLaMA-Factory's command line: the settings of its file, read and written as options."""

from __future__ import annotations

import os
import shutil

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import CannotEdit, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory.framework import FRAMEWORK
from cfglint_train.frameworks.llamafactory.options import OPTIONS
from cfglint_train.frameworks.llamafactory.recognise import recognise
from tests.support import laws
from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, fix, lint

FILES = sorted((REPOSITORY / "fixtures" / "llamafactory").glob("*.yaml"))
BASE = "--stage sft --do_train True --model_name_or_path x/y --dataset d --template t --output_dir out"


def parse_command(words: str, program: str = "llamafactory-cli train", **stated: str) -> Config:
    document = laws.parse_document(f"{program} {words}\n", "shell")
    [recognised] = recognise(document)
    FRAMEWORK.prepare(document)
    return Config("llamafactory", document, laws.build_releases("llamafactory", **stated), recognised.root)


def format_options(keys: dict[str, object]) -> str:
    return " ".join(f"--{key} {value}" for key, value in keys.items())


def is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and " " not in value and bool(value))


# --- recognising -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "roles"),
    [
        (f"llamafactory-cli train {BASE}", [None]),
        (f"FORCE_TORCHRUN=1 llamafactory-cli train {BASE}", [None]),
        (f"torchrun --nproc_per_node 8 src/train.py {BASE}", [None]),
        (f"deepspeed --num_gpus 8 src/train_bash.py {BASE}", [None]),
        (f"accelerate launch --config_file a.yaml src/train.py {BASE}", [None]),
        (f"python src/train_bash.py {BASE}", [None]),
        (f'llamafactory-cli train {BASE} "$@"', [None]),
        (f"llamafactory-cli train {BASE} $EXTRA", ["unread"]),
        (f"python src/train_bash.py --deepspeed=ds.json {BASE}", [None]),
        ("llamafactory-cli train run.yaml learning_rate=1e-5", []),
        ("python src/train.py ./run.json", []),
        ("llamafactory-cli chat --model_name_or_path x --template t --finetuning_type lora", []),
        ("python train.py --model_name_or_path x --dataset_name d --learning_rate 1 --template t --stage sft", []),
        ("python train.py --model_name_or_path x --dataset d", []),
        (f"llamafactory-cli export {BASE} --export_dir x", []),
    ],
)
def test_commands_are_found(line: str, roles: list[str | None]) -> None:
    assert [config.role for config in recognise(laws.parse_document(f"{line}\n", "shell"))] == roles


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_options_say_what_the_file_says(path) -> None:
    keys = {key: value for key, value in (yaml.safe_load(path.read_text()) or {}).items() if is_plain(value)}
    options_plan = laws.read_plan(parse_command(format_options(keys)))
    file_plan = laws.read_plan(laws.build_config("llamafactory", yaml.safe_dump(keys, sort_keys=False), path=str(path)))
    assert {field: value.value for field, value in options_plan} == {field: value.value for field, value in file_plan}


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("--bf16", "bf16", True),
        ("--bf16 False", "bf16", False),
        ("--bf16 yes", "bf16", True),
        ("--no_dataloader_pin_memory", "dataloader_pin_memory", False),
        ("--cutoff_len 4096", "cutoff_len", 4096),
        ("--cutoff-len=4096", "cutoff_len", 4096),
        ("--learning_rate 1e-5", "learning_rate", 1e-5),
        ("--output_dir 123", "output_dir", "123"),
        ("--lora_target q_proj,v_proj", "lora_target", "q_proj,v_proj"),
        ("--logging_ste 5", "logging_steps", 5),
        ("--cutoff_len 1 --cutoff_len 2", "cutoff_len", 2),
    ],
)
def test_words_are_typed_as_the_setting_is(words: str, key: str, value: object) -> None:
    assert parse_command(f"{BASE} {words}").get_value(key) == value
    assert type(parse_command(f"{BASE} {words}").get_value(key)) is type(value)


def test_what_cannot_be_told_is_unknown() -> None:
    assert isinstance(parse_command(f"{BASE} --cutoff_len $LENGTH").get_value("cutoff_len"), Unknown)


@pytest.mark.oracle
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_transformers_parser_reads_alike(data) -> None:
    """Compare with HfArgumentParser over the training arguments, the class from which the vocabulary is generated."""
    from transformers import HfArgumentParser, TrainingArguments

    parser = HfArgumentParser(TrainingArguments)
    names = data.draw(
        st.lists(
            st.sampled_from(
                (
                    *("bf16", "learning_rate", "save_steps", "per_device_train_batch_size", "output_dir", "optim"),
                    *("seed", "dataloader_pin_memory", "max_grad_norm", "gradient_checkpointing", "save_total_limit"),
                )
            ),
            unique=True,
            min_size=1,
        )
    )
    values = {
        "bf16": st.sampled_from(["", "True", "false", "1", "no"]),
        "gradient_checkpointing": st.sampled_from(["", "True", "f"]),
        "dataloader_pin_memory": st.sampled_from(["", "False", "y"]),
        "output_dir": st.sampled_from(["out", "12", "true"]),
        "optim": st.sampled_from(["adamw_torch", "adafactor"]),
        "learning_rate": st.sampled_from(["1e-5", "2", "0.1"]),
        "max_grad_norm": st.sampled_from(["1", "0.5"]),
    }
    words = [word for name in names for word in (f"--{name}", data.draw(values.get(name, st.sampled_from(["1", "8"]))))]
    words = [word for word in words if word]
    parsed = vars(parser.parse_args(["--output_dir", "out", *words]))
    command_config = parse_command(f"{BASE} {' '.join(words)}")
    assert {name: command_config.get_value(name) for name in names} == {name: parsed[name] for name in names}


# --- writing ---------------------------------------------------------------------------------------------------------

CHANGES = {
    "batch.micro": [1, 3],
    "batch.accumulation": [5],
    "sequence.length": [512],
    "activations.checkpointing": ["none", "full"],
    "checkpoint.model_only": [True],
    "checkpoint.keep": [2],
    "batch.eval_micro": [2],
    "logging.interval": [50],
}


@pytest.mark.parametrize(
    "words",
    [
        BASE,
        f"{BASE} --per_device_train_batch_size 8 --cutoff_len=2048 --logging_ste 5 --disable_gradient_checkpointing",
        f'{BASE} --save-only-model False --gradient_accumulation_steps 2 "$@"',
    ],
)
def test_laws(words: str) -> None:
    assert laws.check_get_put(parse_command(words)) > 20
    write_count = 0
    for field, values in CHANGES.items():
        for value in values:
            write_count += laws.check_put_get(parse_command(words), {field: value}) is not None
    assert write_count >= 6


def test_a_switch_that_is_given_negated_is_not_rewritten() -> None:
    config = parse_command(f"{BASE} --no_dataloader_pin_memory")
    with pytest.raises(CannotEdit, match="no_dataloader_pin_memory"):
        laws.write_fields(config, {"data.pin_memory": True})


def test_a_script_is_fixed(tmp_path) -> None:
    (tmp_path / ".git").mkdir()
    shutil.copy(REPOSITORY / "fixtures" / "rules" / "CKP002" / "fires" / "ds_z3.json", tmp_path)
    (tmp_path / "run.sh").write_text(
        "ARGS=(\n  --stage sft\n  --do_train\n  --model_name_or_path meta-llama/Llama-3.1-8B\n  --dataset d\n"
        "  --finetuning_type full\n  --template llama3\n  --cutoff_len 8192\n  --packing True\n  --output_dir out\n"
        "  --per_device_train_batch_size 8\n  --gradient_accumulation_steps 2\n  --loging_steps 10  # often\n"
        "  --bf16\n  --deepspeed ds_z3.json\n)\n"
        'torchrun --nnodes 2 --nproc_per_node 8 src/train.py "${ARGS[@]}"\n'
    )
    chosen = build_options(gpu="H100")
    [run] = lint(tmp_path, chosen).runs
    assert (run.plan.launch.nodes, run.plan.launch.gpus_per_node, run.plan.parallel.zero_stage) == (2, 8, 3)
    assert {"MEM001", "KEY001"} <= {finding.code for finding in lint(tmp_path, chosen).findings}
    fix(tmp_path, chosen)
    text = (tmp_path / "run.sh").read_text()
    assert "  --logging_steps 10  # often\n" in text
    assert "--enable_liger_kernel" in text
    assert "MEM001" not in {finding.code for finding in lint(tmp_path, chosen).findings}
    [run] = lint(tmp_path, chosen).runs
    assert run.plan.batch.micro * run.plan.batch.accumulation == 16


def test_openrlhf_keeps_its_flags() -> None:
    """Treat options as keys only if a framework declares it."""
    document = laws.parse_document("python -m openrlhf.cli.train_sft --pretrain x\n", "shell")
    assert isinstance(document, ShellDocument)
    assert document.get_value((1, "--pretrain")) == "x"
    document.read_as(1, OPTIONS)
    assert document.get_value((1, "pretrain")) == "x"
    assert os.path.basename(document.path) == "x"
