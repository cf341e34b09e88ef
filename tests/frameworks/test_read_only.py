"""Writable fields: a lens writes every field that it reads, or `read_only.json` gives the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cfglint_rules import registry
from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import draft_fix
from cfglint_train.findings.finding import Fix
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, Lens
from cfglint_train.frameworks.lens_types import Custom, refuse_write
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.reading import SPELLINGS
from tests.support.corpus import REPOSITORY
from tests.support.laws import find_lens, read_plan, write_fields
from tests.support.linting import list_fixture_runs, list_runs

KINDS = {
    f"{group}.{name}": kind.removesuffix(" | None")
    for group, record in Plan._field_defaults.items()
    for name, kind in type(record).__annotations__.items()
}
# Settings that no fixture has, by file.
COLLECTS = (REPOSITORY / "fixtures" / "olmo_core" / "example_style.py").read_text()
COLLECTS = COLLECTS.replace("import CheckpointerCallback, ProfilerCallback", "import GarbageCollectorCallback")
COLLECTS = COLLECTS.replace("ProfilerCallback(enabled=False)", "GarbageCollectorCallback(gc_interval=5)")
LLAMAFACTORY = "model_name_or_path: x\nstage: sft\ndataset: alpaca\ntemplate: qwen\nmax_steps: 10\nval_size: 10\n"
TRAINER = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", revision="main", trust_remote_code=True)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.1, target_modules="all-linear"))
given = TrainingArguments("out", max_steps=10, save_total_limit=2, warmup_steps=10, optim="adafactor")
Trainer(model, given)
"""
SHARDED = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
shards = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": "Qwen3DecoderLayer",
          "cpu_ram_efficient_loading": False}
given = TrainingArguments("out", bf16=True, optim="paged_adamw_8bit", fsdp="full_shard auto_wrap", fsdp_config=shards)
Trainer(model, given)
"""
EASYR1 = """\
data: {rollout_batch_size: 64}
worker:
  actor: {padding_free: false, dynamic_batching: false, global_batch_size: 32, model: {lora: {rank: 8}}}
  rollout: {n: 2}
trainer: {nnodes: 1}
"""
MORE = {
    "v1.yaml": "model: Qwen/Qwen3-0.6B\ntrain_dataset: data.yaml\nmicro_batch_size: 2\n",
    "plain.yaml": LLAMAFACTORY,
    "eight-bit.yaml": LLAMAFACTORY + "enable_liger_kernel: true\noptim: adamw_8bit\n",
    "before.yaml": "# cfglint: trl=0.24.0\nmodel_name_or_path: x\ndataset_name: y\npacking: true\nbf16: true\n",
    "lora.sh": "deepspeed --module openrlhf.cli.train_sft --pretrain x --lora_rank 8 --zero_stage 2\n",
    "bits.sh": "deepspeed --module openrlhf.cli.train_sft --pretrain x --lora_rank 8 --load_in_4bit\n",
    "fsdp2.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=fsdp2 trainer.nnodes=1\n",
    "easyr1.yaml": EASYR1,
    "collects.py": COLLECTS,
    "trainer.py": TRAINER,
    "sharded.py": SHARDED,
}
# Values of a lens's fields that only occur together and that no sample has.
TOGETHER: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "olmo_core": ({"activations.checkpointing": "every_n", "activations.every": 2, "activations.of": 1},),
    "verl": (dict.fromkeys(("parallel.offload_params", "parallel.offload_optimizer"), "cpu"),),
    **dict.fromkeys(("trl", "hf_scripts"), ({"activations.fused_loss": "liger", "activations.liger_layers": True},)),
}


def list_fields(name: str) -> set[str]:
    return {field for lens in frameworks.load(name).lenses for field in lens.fields}


def list_reasons(name: str) -> dict[str, str]:
    """Return the fields that are read but never written, with the reasons."""
    unwritten = frameworks.load(name).explain_unwritable
    return {field: reason for field in list_fields(name) if (reason := unwritten(field)) is not None}


def collect_samples(folder: Path) -> Mapping[str, list[Config]]:
    """Return the configurations of the fixtures and of MORE, written to an empty folder, by framework."""
    for name, text in MORE.items():
        (folder / name).write_text(text)
    configs_by_framework = defaultdict(list)
    for run in [*list_runs(folder), *list_fixture_runs()]:
        for config in run.configs:
            configs_by_framework[config.framework].append(config)
    return configs_by_framework


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Config]]:
    return collect_samples(tmp_path_factory.mktemp("more"))


def list_values(field: str, present: Any) -> tuple[Any, ...]:
    """Return some values that a field can have."""
    kind, named = KINDS[field], list_choices(field)
    if named is not None:
        return named
    if kind == "bool":
        return (True, False)
    if kind.startswith(("int", "float")):
        other = () if not isinstance(present, (int, float)) or isinstance(present, bool) else (present * 2, present + 1)
        return (*other, 1, 2, 64, 0.5, 1000, *(("all",) if "all" in kind else ()))
    return {"str": ("x", "flash", "fp32", "bf16"), "tuple[str, ...]": (("q_proj",), ("all-linear",))}.get(kind, ())


def list_changes(config: Config, lens: Lens, field: str, rows: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield new values of one field, then all fields of its lens at once, as in another configuration."""
    present = read_plan(config)
    for value in list_values(field, present.get(field)):
        if value != present.get(field):
            yield {field: value}
    for row in rows:
        if field in row and row[field] != present.get(field):
            yield {
                name: value for name, value in row.items() if name in {*lens.fields} - SPELLINGS and value is not None
            }


def is_written(name: str, field: str, configs: list[Config], rows: list[Mapping[str, Any]]) -> bool:
    """Return whether some new value is written into one of the configurations and read back."""
    for config in configs:
        for change in list_changes(config, find_lens(config, field), field, rows):
            try:
                after = read_plan(write_fields(config, change))
            except CannotEdit:
                continue
            if all(after.get(changed) == value for changed, value in change.items()):
                return True
    return False


@pytest.mark.parametrize("name", list_frameworks())
def test_a_reason_is_given_for_a_field_that_is_read(name):
    listed_fields = frameworks._load_read_only(list_frameworks()[name].folder)
    assert set(listed_fields) <= list_fields(name)
    assert len(list_reasons(name)) < len(list_fields(name))
    assert all(list_reasons(name).values())
    unwritten = [
        lens for lens in frameworks.load(name).lenses if isinstance(lens, Custom) and lens.writer is refuse_write
    ]
    assert {field for lens in unwritten for field in lens.fields} <= list_reasons(name).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", list_frameworks())
def test_every_other_field_is_written(name, samples):
    """Write some value of every other field into some fixture."""
    exceptions = list_reasons(name)
    rows = [{field: value.value for field, value in read_plan(config)} for config in samples[name]]
    rows += TOGETHER.get(name, ())
    unwritten = [
        field
        for field in sorted(list_fields(name) - exceptions.keys())
        if not is_written(name, field, samples[name], rows)
    ]
    assert unwritten == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list_frameworks())
def test_a_reason_is_given_only_for_what_is_never_written(name, samples):
    exceptions = list_reasons(name)
    assert not [field for field in exceptions if is_written(name, field, samples[name][:15], [])]


# The changes that lower memory and that most runs need; others are made if they can be written.
MEMORY = (
    "activations.checkpointing",
    "activations.fused_loss",
    "batch.micro",
    "batch.accumulation",
    "parallel.offload_optimizer",
)


def list_needed_fields(name: str) -> set[str]:
    """Return the fields of a framework that the rules that apply to it change in fixes."""
    rules = [
        rule for rule in registry.RULES.values() if not rule.particular or rule.code in list_frameworks()[name].rules
    ]
    changed = {field for rule in rules for field in rule.writes}
    return {*MEMORY, *changed} & list_fields(name)


# Settings with side effects; the table has the reasons.
CANNOT = {
    ("accelerate", "activations.checkpointing"),
    ("accelerate", "parallel.replicas"),
    ("accelerate", "precision.autocast"),
    ("accelerate", "precision.compute"),
    ("axolotl", "activations.attention"),
    ("axolotl", "parallel.offload_optimizer"),
    ("axolotl", "precision.autocast"),
    ("axolotl", "precision.compute"),
    ("axolotl", "rollout.samples_per_prompt"),
    ("easyr1", "parallel.offload_optimizer"),
    ("easyr1", "sequence.length"),
    ("hf_scripts", "parallel.offload_optimizer"),
    ("hf_scripts", "parallel.sharding"),
    ("hf_scripts", "sequence.length"),
    ("hf_scripts", "sequence.packing"),
    ("hf_scripts", "sequence.padding"),
    ("llamafactory", "parallel.offload_optimizer"),
    ("llamafactory_v1", "parallel.wrapping"),
    ("llamafactory", "parallel.sharding"),
    ("llamafactory_v1", "activations.fused_loss"),
    ("llamafactory_v1", "parallel.offload_optimizer"),
    ("llamafactory_v1", "parallel.sharding"),
    ("olmo", "sequence.length"),
    ("olmo_core", "activations.attention"),
    ("olmo_core", "parallel.sharding"),
    ("olmo_core", "precision.autocast"),
    ("olmo_core", "precision.compute"),
    ("olmo_core", "sequence.length"),
    ("trl", "parallel.offload_optimizer"),
    ("trl", "parallel.sharding"),
    ("verl", "checkpoint.model_only"),
}


def has_key(name: str, field: str) -> bool:
    return any(field in lens.fields and lens.keys[field] for lens in frameworks.load(name).lenses)


def test_what_fixes_change_is_written_where_there_is_a_setting():
    unwritten = {
        (name, field) for name in list_frameworks() for field in list_needed_fields(name) & list_reasons(name).keys()
    }
    assert {(name, field) for name, field in unwritten if has_key(name, field)} == CANNOT


def test_a_refused_fix_gives_the_reason(tmp_path):
    (tmp_path / "v1.yaml").write_text(MORE["v1.yaml"])
    (run,) = list_runs(tmp_path)
    reason = list_reasons("llamafactory_v1")["activations.fused_loss"]
    with pytest.raises(CannotEdit, match=reason):
        draft_fix(run, Fix("safe", "", {"activations.fused_loss": "liger"}))
