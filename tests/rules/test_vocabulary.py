"""KEY rules against the frameworks' own verdicts, and every table entry against its own example."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_rules.vocabulary.operators import evaluate_test, list_relations
from cfglint_rules.vocabulary.table import Clause, TableKind, build_clause, load_table
from cfglint_rules.vocabulary.values import is_accepted, list_external_words
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import MISSING
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import registry
from cfglint_train.frameworks.trainer_script.names import LORA_ARGUMENTS
from tests.support import oracle
from tests.support.axolotl import judge_configs as judged_by_axolotl
from tests.support.corpus import CORPUS, SHARED, needs_corpus
from tests.support.linting import build_options, copy_folder, fix, lint, read_contents

# --- tables ----------------------------------------------------------------------------------------------------------

# The smallest recognised file of each framework without a KEY finding; entries are merged into it.
BASES = {
    "axolotl": {
        "base_model": "Qwen/Qwen2.5-0.5B",
        "datasets": [{"path": "data.jsonl", "type": "alpaca"}],
        "output_dir": "out",
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "learning_rate": 0.0002,
    },
    "llamafactory": {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "template": "qwen",
        "dataset": "identity",
        "do_train": True,
        "output_dir": "out",
        "per_device_train_batch_size": 1,
    },
    "trl": {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "dataset_name": "trl-lib/Capybara",
        "dataset_train_split": "train",
        "output_dir": "out",
        "per_device_train_batch_size": 1,
    },
    "olmo": {
        "model": {"d_model": 64, "n_heads": 4, "n_layers": 4, "max_sequence_length": 64, "init_device": "meta"},
        "optimizer": {"name": "adamw"},
        "fsdp": {"wrapping_strategy": "by_block"},
        "device_train_microbatch_size": 1,
        "global_train_batch_size": 8,
        "precision": "amp_bf16",
        "save_folder": "out",
    },
    "easyr1": {
        "data": {"rollout_batch_size": 512},
        "algorithm": {"adv_estimator": "remax"},
        "worker": {"actor": {"model": {"model_path": "Qwen/Qwen2.5-0.5B"}}, "rollout": {"n": 5}},
        "trainer": {"nnodes": 1},
    },
    "deepspeed": {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 10,
        "zero_optimization": {},
    },
    "accelerate": {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "NO",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "num_processes": 8,
    },
}


def _list_entries(kind: TableKind) -> list[tuple[str, Clause]]:
    return [
        (name, build_clause(row)) for name in sorted(registry.list_frameworks()) for row in load_table(name, kind).rows
    ]


REFUSALS, IDLE = _list_entries("refusals"), _list_entries("idle")
# Its example needs a script that loads the model in 16 bits: fixtures/acceptance/reported/fsdp2-upcast-lost-*.
IDLE = [entry for entry in IDLE if (entry[0] == "accelerate") or entry[1].name != "upcast-dropped-under-fsdp2"]


def merge_settings(base: dict, over: dict) -> dict:
    """Merge settings into those of a file.

    Dotted names reach inside, mappings are merged, None removes a setting.
    """
    merged = {**base}
    for name, value in over.items():
        head, _, rest = name.partition(".") if isinstance(name, str) else (name, "", "")
        if rest:
            merged[head] = merge_settings(merged.get(head) or {}, {rest: value})
        elif value is None:
            merged.pop(head, None)
        elif isinstance(value, dict):
            merged[head] = merge_settings(merged[head] if isinstance(merged.get(head), dict) else {}, value)
        else:
            merged[head] = value
    return merged


def remove_setting(over: dict, name: str) -> dict:
    """Return the settings without one, named by dots, whatever the base has."""
    head, _, rest = name.partition(".")
    if rest and name not in over and isinstance(over.get(head), dict):
        return {**over, head: remove_setting(over[head], rest)}
    return {**over, name: None}


def has_setting(over: dict, name: str) -> bool:
    """Return whether the settings state this name."""
    head, _, rest = name.partition(".")
    return name in over or (bool(rest) and isinstance(over.get(head), dict) and has_setting(over[head], rest))


def write_invocation(over: dict) -> str:
    """Return a command line of OpenRLHF with the flags."""
    entry = "train_ppo_ray" if "--actor.model_name_or_path" in over else "train_sft"
    flags = [
        f"   {name}" if value is True else f"   {name} {value}" for name, value in over.items() if value is not None
    ]
    return "#!/bin/bash\n" + " \\\n".join((f"python3 -m openrlhf.cli.{entry}", *flags)) + "\n"


WORDS = {
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-0.5B",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
}
"""Words of the smallest command of verl without a KEY finding."""


def write_words(over: dict) -> str:
    """Return a command of verl with the words; only supervised training has a `data.max_length`."""
    program, base = "python3 -m verl.trainer.main_ppo", WORDS
    if "data.max_length" in over:
        program, base = "torchrun --nproc_per_node 8 -m verl.trainer.sft_trainer", {"model.path": "Qwen/Qwen2.5-7B"}
    words = [f"    {name}={value}" for name, value in {**base, **over}.items() if value is not None]
    return " \\\n".join((program, *words)) + "\n"


def write_script(over: dict) -> str:
    """Return a Trainer script with the settings, those of the model at the call that takes them."""
    arguments = {name: value for name, value in over.items() if value is not None}
    quantized = {name: arguments.pop(name) for name in ("load_in_4bit", "load_in_8bit") if name in arguments}
    adapted = {name: arguments.pop(key) for name, key in LORA_ARGUMENTS.items() if key in arguments}
    with_adapter = f"model = get_peft_model(model, LoraConfig({_format_keywords(adapted)}))\n"
    return (
        "from peft import LoraConfig, get_peft_model\n"
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
        f"quantized = BitsAndBytesConfig({_format_keywords(quantized)})\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", quantization_config=quantized)\n'
        f"{with_adapter if arguments.pop('use_peft', False) else ''}"
        f"Trainer(model, TrainingArguments({_format_keywords({'output_dir': 'out', **arguments})}))\n"
    )


def _format_keywords(arguments: dict) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


LAUNCHED = {
    "axolotl": "-m axolotl.cli.train run.yaml",
    "llamafactory": "src/train.py run.yaml",
    "trl": "trl/scripts/sft.py --config run.yaml",
}
"""Frameworks that accelerate launches in the tests, with the words after `accelerate launch`."""


def write_repository(framework: str, over: dict, folder, beside: Sequence[str] = (), host: str = "axolotl") -> None:
    """Write a repository with one file of a framework; `@main.` names settings of the main config beside it.

    `beside` lists companions that the main config names as well. `host` is the framework of the main config.
    """
    hosted = {name.removeprefix("@main."): over.pop(name) for name in tuple(over) if name.startswith("@main.")}
    if framework == "hf_scripts":
        (folder / "train.py").write_text(write_script(over))
    elif framework == "openrlhf":
        (folder / "train.sh").write_text(write_invocation(over))
    elif framework == "verl":
        (folder / "train.sh").write_text(write_words(over))
    elif framework == "deepspeed":
        if host == "axolotl":
            hosted = merge_settings(BASES["axolotl"], {**hosted, "deepspeed": "ds_config.json"})
            (folder / "config.yaml").write_text(yaml.safe_dump(hosted, sort_keys=False))
        (folder / "ds_config.json").write_text(json.dumps(merge_settings(BASES[framework], over), indent=4) + "\n")
    else:
        (folder / "config.yaml").write_text(yaml.safe_dump(merge_settings(BASES[framework], over), sort_keys=False))
    if framework == "accelerate":
        host = host or "axolotl"
        main = merge_settings({**BASES[host], **{name: f"{name}.json" for name in beside}}, hosted)
        (folder / "run.yaml").write_text(yaml.safe_dump(main, sort_keys=False))
        for name in beside:
            (folder / f"{name}.json").write_text(json.dumps(BASES[name]))
        (folder / "run.sh").write_text(f"accelerate launch --config_file config.yaml {LAUNCHED[host]}\n")
    if framework == "easyr1":
        (folder / "run.sh").write_text("python3 -m verl.trainer.main config=config.yaml\n")
    if framework == "llamafactory" and isinstance(over.get("deepspeed"), str):
        (folder / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train config.yaml\n")
    if framework == "trl" and "resume_from_checkpoint" in over:
        (folder / "run.sh").write_text("trl sft --config config.yaml\n")


GPUS = {"A100-80GB": 8.0, "L40S": 8.9, "B200": 10.0}
# Packages without a vocabulary here: the last release before the one that ends a clause.
LAST_BEFORE = {
    ("transformers", "4.45.0"): "4.44.2",
    ("transformers", "5.0.0"): "4.57.1",
    ("transformers", "5.8.0"): "5.7.0",
    ("transformers", "5.9.0"): "5.8.0",
    ("transformers", "5.23.0"): "4.57.1",
    ("torch", "2.2.0"): "2.1.2",
    ("torch", "2.5.1"): "2.5.0",
    ("torch", "2.6.0"): "2.5.1",
    ("torch", "2.7.0"): "2.6.0",
    ("torch", "2.11.0"): "2.10.0",
    ("deepspeed", "0.14.0"): "0.13.5",
    ("deepspeed", "0.14.5"): "0.14.4",
}


def choose_release(framework: str, clause: Clause) -> dict[str, str]:
    """Return a release for which an entry holds: the newest, or the last before the entry ends."""
    if clause.package is not None:
        release_by_package = {clause.package: clause.since or LAST_BEFORE[clause.package, clause.before]}
        if clause.package == registry.list_frameworks()[framework].package:
            return release_by_package
        return {**release_by_package, framework: frameworks.load(framework).default_release}
    if registry.list_frameworks()[framework].vocabulary is None:
        return {registry.list_frameworks()[framework].package: frameworks.load(framework).default_release}
    releases = load(registry.list_frameworks()[framework].vocabulary).releases
    fits = [
        release
        for release in releases
        if (clause.since is None or parse_release(release) >= parse_release(clause.since))
        and (clause.before is None or parse_release(release) < parse_release(clause.before))
        and "dev" not in release
    ]
    return {registry.list_frameworks()[framework].package if framework == "hf_scripts" else framework: fits[-1]}


def choose_gpu(clause: Clause) -> str:
    """Return a GPU for which an entry holds."""
    if clause.when.get("@cuda") == "false":
        return "MI300X"
    return next(
        gpu for gpu, capability in GPUS.items() if evaluate_test(clause.when.get("@capability", "known"), capability)
    )


def list_messages(framework: str, clause: Clause, over: dict, folder, code: str) -> list[str]:
    """Return the messages of a code that match an entry's own wording, for a file with the settings."""
    folder.mkdir()
    names, test = (word if isinstance(word := clause.when.get(name), dict) else {} for name in ("@names", "@host"))
    hosts = [name for name in test.get("in", LAUNCHED) if name in LAUNCHED and name not in test.get("not-in", ())]
    host = hosts[0] if hosts else ""
    write_repository(framework, {**over}, folder, names.get("listing", ()), host)
    if "@command" in clause.when:
        (folder / "export.sh").write_text("llamafactory-cli export config.yaml\n")
    gpus = "1" if clause.when.get("@ranks") == {"in": [1]} else "8"
    facts = {**choose_release(framework, clause), "nodes": "1", "gpus_per_node": gpus, "gpu": choose_gpu(clause)}
    result = lint(folder, build_options(select=[code], **facts))
    assert [trouble for trouble in result.troubles if trouble.rule is not None] == []
    pattern = re.sub(r"\\\[[^\]]*\\\]|<[^>]*>", ".+", re.escape(clause.message))
    return [finding.message for finding in result.findings if re.match(pattern, finding.message)]


def list_names(entries: list[tuple[str, Clause]]) -> list[str]:
    return [f"{framework}-{clause.name}" for framework, clause in entries]


@pytest.mark.parametrize(("framework", "clause"), REFUSALS, ids=list_names(REFUSALS))
def test_refusal_holds_for_its_example_and_no_longer_without_a_part_of_it(framework, clause, tmp_path):
    check_example(framework, clause, tmp_path, "KEY006")


@pytest.mark.parametrize(("framework", "clause"), IDLE, ids=list_names(IDLE))
def test_idle_setting_holds_for_its_example_and_no_longer_without_a_part_of_it(framework, clause, tmp_path):
    check_example(framework, clause, tmp_path, "KEY005")


def is_required(test: Any) -> bool:
    """Return whether a missing setting fails its test."""
    return not evaluate_test(test, MISSING) or any(list_relations(test))


ELSEWHERE = {
    "trl": ("finetuning_type", "adapter"),
    "hf_scripts": ("adapter", "_BUILDS_OPTIMIZER_"),
    "llamafactory": ("adapter", "use_peft"),
    "axolotl": ("use_peft",),
}
"""Settings of shared examples that a framework lacks and that would identify the file as another framework's."""


def check_example(framework: str, clause: Clause, folder, code: str) -> None:
    example = {
        name: value
        for name, value in clause.example.items()
        if name not in ELSEWHERE.get(framework, ()) and name.startswith("--") == (framework == "openrlhf")
    }
    assert list_messages(framework, clause, example, folder / "with", code), "silent on its own example"
    tests = {name.removeprefix("="): test for name, test in clause.when.items()}
    needed = [name for name, test in tests.items() if has_setting(example, name) and is_required(test)]
    assert needed or clause.also or None in example.values()
    for number, name in enumerate(needed):
        assert list_messages(framework, clause, remove_setting(example, name), folder / str(number), code) == [], (
            f"fires without {name}"
        )


FSDP2_IN_ACCELERATE = {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2, "fsdp_limit_all_gathers": True}}


@pytest.mark.parametrize(("framework", "over", "key", "code"), [
    ("llamafactory", {"loraplus_lr_ratio": 16.0, "finetuning_type": "full"}, "loraplus_lr_ratio", "KEY006"),
    ("llamafactory", {"use_rslora": True, "finetuning_type": "full"}, "use_rslora", "KEY006"),
    ("llamafactory", {"use_dora": True, "finetuning_type": "full"}, "use_dora", "KEY006"),
    ("llamafactory", {"pissa_init": True, "finetuning_type": "full"}, "pissa_init", "KEY006"),
    ("deepspeed", {"zero_optimization": {"stage": 2, "reduce_bucket_size": 0}}, "reduce_bucket_size", "KEY004"),
    ("deepspeed", {"zero_optimization": {"stage": 2, "allgather_bucket_size": 5}}, "allgather_bucket_size", "KEY006"),
    ("accelerate", FSDP2_IN_ACCELERATE, "fsdp_limit_all_gathers", "KEY001"),
    ("axolotl", {"beta": 0.1, "trl": {"beta": 0.2}, "rl": "dpo"}, "beta", "KEY006"),
    ("axolotl", {"flash_attention": True, "attn_implementation": "sdpa"}, "flash_attention", "KEY006"),
])  # fmt: skip
def test_one_cause_is_one_finding(framework, over, key, code, tmp_path):
    write_repository(framework, over, tmp_path)
    newest = {framework: frameworks.load(framework).default_release}
    findings = lint(tmp_path, build_options(select=["KEY"], **newest)).findings
    assert [finding.code for finding in findings if re.search(rf"\b{key}\b", finding.message)] == [code]


# --- axolotl's own verdicts -------------------------------------------------------------------------------------------

EXAMPLES = CORPUS / "axolotl" / "examples"

# Examples that axolotl rejected only because of the machine that it ran on.
OF_THE_MACHINE = {
    "llama-3/3b-fp8-fsdp2.yaml": "fp8 without torchao or another package that computes it",
}
# Part of the messages about examples that axolotl accepts and the Trainer rejects after loading the model.
REFUSED_LATER = "the Trainer rejects"
# Keys that axolotl obeyed although the recorded validation returned them under other names.
OBEYED = {
    "model_type": "given back as type_of_model",
    "model_config": "given back as overrides_of_model_config",
    "diffusion": "its plugin could not be loaded where the verdicts were recorded",
}


def load_verdicts(release: str) -> dict[str, dict]:
    """Return axolotl's own verdict on each of its examples: ok, errors, dropped."""
    return json.loads((SHARED / "data" / f"axolotl_validation_{release}.json").read_text())


@pytest.fixture(scope="module", params=["0.18", "0.21"])
def judged(request):
    """Return the verdicts of one release and the findings of the KEY rules for it."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no shared data: no recorded verdicts at {SHARED}")
    result = lint(EXAMPLES, build_options(select=["KEY"], axolotl=f"{request.param}.0"))
    assert [trouble for trouble in result.troubles if trouble.rule is not None] == []
    return load_verdicts(request.param), result.findings


@needs_corpus
def test_what_axolotl_refuses_has_an_error_and_what_it_takes_has_none(judged):
    verdict_by_path, findings = judged
    reported = {
        finding.path for finding in findings if finding.severity == "error" and REFUSED_LATER not in finding.message
    }
    refused = {path for path, verdict in verdict_by_path.items() if not verdict["ok"]}
    assert len(refused) >= 26
    assert refused - OF_THE_MACHINE.keys() <= reported <= refused


@needs_corpus
def test_what_axolotl_drops_is_told_where_it_stands_and_what_it_keeps_is_not(judged):
    verdict_by_path, findings = judged
    phrases = ("silently ignored", "the old name still works", "has no effect in")
    reported = {
        (finding.path, finding.place.document.get_text(finding.place.span))
        for finding in findings
        if finding.start.column == 1
        and any(word in finding.message for word in phrases)
        and verdict_by_path[finding.path]["ok"]
    }
    dropped = {
        (path, key)
        for path, verdict in verdict_by_path.items()
        if verdict["ok"]
        for key in verdict["dropped"]
        if key not in OBEYED
    }
    assert dropped
    assert dropped <= reported
    # Other findings are for keys that are obeyed under another name, or accepted and never read.
    assert {key for _, key in reported - dropped} <= {"eta_min", "fsdp", "flash_attention", "evaluation_strategy"}


# --- the projects' own examples ---------------------------------------------------------------------------------------

WRITTEN_FOR = {
    "llamafactory": {"llamafactory": "0.9.6.dev0", "transformers": "5.8.0", "deepspeed": "0.18.4"},
    "olmo": {"olmo": "0.6.1.dev0"},
    "deepspeed": {"deepspeed": "0.18.9"},
    "accelerate": {"accelerate": "1.15.0"},
}


def load_listed() -> set[tuple[str, str]]:
    """Return the KEY findings above info that corpus_findings.md allows at these releases."""
    text = (Path(__file__).parents[1] / "corpus_findings.md").read_text()
    return set(re.findall(r"^- `([^`]+)` (KEY\d{3}): .+", text, re.M))


@needs_corpus
def test_nothing_is_said_of_upstream_examples_at_their_release_but_what_is_listed():
    findings = set()
    for project, releases in WRITTEN_FOR.items():
        for finding in lint(CORPUS / project, build_options(select=["KEY"], **releases)).findings:
            if finding.severity != "info":
                findings.add((f"{project}/{finding.path}", finding.code))
    assert findings == load_listed()


# --- axolotl itself ---------------------------------------------------------------------------------------------------

# Pydantic's error types for a value of a kind that the key does not accept.
TYPE_ERRORS = frozenset((
    "bool_parsing", "bool_type", "dict_type", "enum", "float_parsing", "float_type", "greater_than",
    "greater_than_equal", "int_from_float", "int_parsing", "int_type", "less_than", "less_than_equal", "list_type",
    "literal_error", "missing", "model_type", "string_type", "tuple_type",
))  # fmt: skip

INSTALLED = oracle.read_releases()["axolotl"]

# Entries about values that pass axolotl's validation and fail later.
TAKEN = {
    "dataset-without-path", "everything-held-out", "nothing-saved", "new-tokens-frozen", "paged-on-fsdp2",
    "text-that-matches-no-module",
    *(f"tensor-parallel-{name}" for name in ("paged-adamw-8bit", "adamw-8bit", "adamw-bnb-8bit")),
}  # fmt: skip


@pytest.mark.recorded
def test_axolotl_itself_refuses_the_examples_of_its_entries():
    """Compare every entry that holds at the installed release with axolotl's validation."""
    clauses = [
        clause
        for framework, clause in REFUSALS
        if framework == "axolotl" and clause.severity == "error" and clause.source.startswith("axolotl")
        if not any(name.startswith("@") for name in clause.when) and clause.package is None
        if clause.since is None or parse_release(clause.since) <= parse_release(INSTALLED)
        if clause.before is None or parse_release(INSTALLED) < parse_release(clause.before)
    ]
    base, *answers = judged_by_axolotl(
        [BASES["axolotl"], *(merge_settings(BASES["axolotl"], dict(clause.example)) for clause in clauses)]
    )
    assert base["accepted"], base["why"]
    mismatched = {
        clause.name for clause, verdict in zip(clauses, answers) if verdict["accepted"] != (clause.name in TAKEN)
    }
    assert mismatched == set()
    assert len(clauses) > 100


# Values of every kind that YAML has; every key is tried with each.
KINDS = (
    True, 0, 1, 3, -1, 0.5, 2.0, "abc", "8", "0.25", "2e-5", "true", "no", "", None, [], ["a"], [1, 2], [0.5], {},
    {"a": 1},
)  # fmt: skip


# Keys whose declared types are looser than axolotl's checks: bad values are missed, good ones never rejected.
LOOSE = frozenset((
    "added_tokens_overrides", "chat_template", "image_resize_algorithm", "max_memory", "peft_trainable_token_indices",
))  # fmt: skip


@pytest.mark.slow
def test_the_words_of_the_trainer_are_those_of_transformers():
    trainer = pytest.importorskip("transformers.trainer_utils")
    arguments = pytest.importorskip("transformers.training_args")
    for name, enum_class in {
        "transformers.SchedulerType": trainer.SchedulerType,
        "transformers.trainer_utils.SaveStrategy": trainer.SaveStrategy,
        "transformers.training_args.OptimizerNames": arguments.OptimizerNames,
    }.items():
        assert {word.value for word in enum_class} <= set(list_external_words(name))


@pytest.mark.recorded
def test_a_value_fits_where_axolotl_itself_takes_it():
    """Try values of every kind for every top-level key: report those that axolotl rejects, and only those."""
    vocabulary, context = load("axolotl"), Context(plugins=())
    facts = (
        vocabulary.find_fact((name,), INSTALLED, context) for name in vocabulary.list_names((), INSTALLED, context)
    )
    keys = [
        fact
        for fact in facts
        if fact is not None
        and fact.resolve_status().kind == "present"
        and fact.name not in {*BASES["axolotl"], "plugins"}
    ]
    tried = [(fact, value) for fact in keys for value in KINDS]
    answers = judged_by_axolotl([{**BASES["axolotl"], fact.route[0]: value} for fact, value in tried])
    alarms, missed = [], set()
    for (fact, value), verdict in zip(tried, answers):
        is_fitting = is_accepted(fact.get_schema(), value, frameworks.load("axolotl").loader)
        if not is_fitting and verdict["accepted"]:
            alarms.append((fact.route[0], value))
        kinds = {error["type"] for error in verdict["errors"] if error["at"][:1] == [fact.route[0]]}
        if is_fitting and kinds & TYPE_ERRORS:
            missed.add(fact.route[0])
    assert alarms == []
    assert missed <= LOOSE
    assert len(tried) > 5_000


@pytest.mark.recorded
@needs_corpus
def test_axolotl_still_takes_what_the_vocabulary_fixes_rewrite(tmp_path):
    """Keep law 5 for the KEY rules with unsafe fixes: what axolotl accepts before the fixes, it accepts after."""
    folder = copy_folder(EXAMPLES, tmp_path / "examples")
    chosen = build_options(select=["KEY"], axolotl=INSTALLED)
    before = read_contents(folder)
    fixed = fix(folder, chosen, unsafe=True)
    changed = sorted(fixed.sources)
    assert len(changed) > 50
    old, new = (
        judged_by_axolotl([yaml.safe_load(text[path]) for path in changed]) for text in (before, read_contents(folder))
    )
    broken = [
        (path, new_verdict["why"])
        for path, old_verdict, new_verdict in zip(changed, old, new)
        if old_verdict["accepted"] and not new_verdict["accepted"]
    ]
    assert broken == []
    assert sum(new_verdict["accepted"] for new_verdict in new) > sum(old_verdict["accepted"] for old_verdict in old)


# --- the fifth seed case ----------------------------------------------------------------------------------------------


def test_the_key_that_was_dropped_comes_back_and_what_it_asks_for_is_made_to_fit(tmp_path):
    """Fix axolotl-ai-cloud/axolotl#2143: the rename first, then checkpointing, as the real length does not fit."""
    folder = copy_folder(Path(__file__).parents[2] / "fixtures" / "cases" / "5-axolotl-3b", tmp_path / "case")
    (finding,) = [finding for finding in lint(folder).findings if finding.code == "KEY001"]
    assert finding.message.startswith("axolotl has no `sequence_length`: it is silently ignored")
    assert finding.fix is not None
    assert finding.fix.applicability == "safe"
    assert [edit.edit.text for edit in finding.fix.edits] == ["sequence_len"]
    outcome = fix(folder)
    assert {applied_fix.code for applied_fix in outcome.applied} >= {"KEY001", "MEM001"}
    after = yaml.safe_load((folder / "llama-3b.yaml").read_bytes())
    assert after["sequence_len"] == 4096
    assert after["gradient_checkpointing"] is True
    assert not [finding for finding in lint(folder).findings if finding.severity != "info"]
