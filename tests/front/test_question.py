"""Estimates without a file: the same answer as for the file that `--write` writes, which its framework accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_schemas.vocabulary import load
from cfglint_train.front import starter
from tests.schemas import test_trl_parsers
from tests.support import oracle
from tests.support.axolotl import judge_configs as judged_by_axolotl
from tests.support.command import Outcome, run_cfglint

QUESTION = ("estimate", "--model", "meta-llama/Llama-3.1-8B", "--method", "qlora", "--gpu", "RTX4090")
KINDS = (
    (),
    ("--zero", "1"),
    ("--zero", "3", "--nodes", "2"),
    ("--fsdp", "--gpus-per-node", "4"),
    ("--precision", "fp16"),
    ("--no-checkpointing", "--optimizer", "paged_adamw_8bit", "--accumulation", "1"),
)
"""Flags besides model, method and GPU."""
METHODS = [
    (framework, method) for framework in starter.list_starter_frameworks() for method in starter.list_methods(framework)
]
TABLE = [
    ("Qwen/Qwen2.5-0.5B", "H100", 1024),
    ("meta-llama/Llama-3.1-8B", "RTX4090", 4096),
    ("mistralai/Mixtral-8x7B-v0.1", "H200", 2048),
]


def write_starter(folder: Path, framework: str, *flags: str, model: str = "Qwen/Qwen2.5-0.5B") -> Path:
    """Write a file with `--write` and return its path."""
    outcome = run_cfglint("estimate", "--model", model, *flags, "--write", f"{framework}=asked.yaml", cwd=folder)
    assert (outcome.code, outcome.err.splitlines()[0]) == (0, "wrote asked.yaml; fill in before you run it:")
    return folder / "asked.yaml"


def read_budgets(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the runs of a JSON report, without the file's name, the assumptions and the origins of settings."""
    assert outcome.code == 0, outcome.err
    runs = json.loads(outcome.out)["runs"]
    assert len(runs) == 1
    origins = ("path", "assumed", "assumptions", "settings")
    return [{key: value for key, value in run.items() if key not in origins} for run in runs]


@pytest.mark.parametrize(
    ("framework", "method", "model", "gpu", "length"),
    [(*pair, *TABLE[number % len(TABLE)]) for number, pair in enumerate(METHODS)],
)
def test_the_answer_is_that_of_the_written_file(tmp_path, framework, method, model, gpu, length):
    flags = ("--method", method, "--gpu", gpu, "--length", str(length))
    question = ("estimate", "--model", model, *flags, "--framework", framework, "--format", "json")
    answer = read_budgets(run_cfglint(*question, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []
    file = write_starter(tmp_path, framework, *flags, model=model)
    from_file = read_budgets(run_cfglint("estimate", file.name, "--gpu", gpu, "--format", "json", cwd=tmp_path))
    assert answer == from_file
    assert answer[0]["missing"] == []
    assert answer[0]["framework"] == framework
    assert (answer[0]["nodes"], answer[0]["gpus_per_node"]) == (1, 1)


@pytest.mark.parametrize(("framework", "method"), METHODS[::3])
def test_every_flag_reaches_the_plan(tmp_path, framework, method):
    """Compare the estimates: every flag changes them, each differently."""
    flags = ["--length", "512"], ["--micro", "4"], ["--optimizer", "sgd"], ["--no-checkpointing"], ["--zero", "3"]
    flags = (*flags, ["--fsdp"], *([["--rank", "64"]] if method in ("lora", "qlora") else ()))
    question = ("estimate", "--model", "Qwen/Qwen2.5-0.5B", "--method", method, "--framework", framework)

    def estimate_phases(*more: str) -> Any:
        return read_budgets(run_cfglint(*question, *more, "--format", "json", cwd=tmp_path))[0]["phases"]

    estimates = [estimate_phases(), *(estimate_phases(*more) for more in flags)]
    assert all(estimate != other for at, estimate in enumerate(estimates) for other in estimates[:at])


@pytest.mark.parametrize(
    ("framework", "method", "kind"),
    [(*one, kind) for number, one in enumerate(METHODS) for kind in KINDS[number % 3 :: 3]],
)
def test_cfglint_finds_the_written_file_clean(tmp_path, framework, method, kind):
    # Only a model that was not trained in bf16 gets no finding with fp16.
    model = "facebook/opt-1.3b" if "fp16" in kind else "Qwen/Qwen2.5-0.5B"
    file = write_starter(tmp_path, framework, "--method", method, "--gpu", "H100", *kind, model=model)
    report = json.loads(run_cfglint("--output-format", "json", "--gpu", "H100", file.name, cwd=tmp_path).out)
    assert [one for one in report["findings"] if one["severity"] != "info"] == []
    assert [one["code"] for one in report["findings"] if one["code"][:3] in ("KEY", "SYN", "CHK")] == []
    assert {one["framework"] for one in report["files"]} - {"deepspeed"} == {framework}


@pytest.mark.parametrize("framework", starter.list_starter_frameworks())
def test_a_text_has_no_signs_of_its_making(tmp_path, framework):
    text = write_starter(tmp_path, framework, "--method", "qlora", "--zero", "2", "--gpu", "RTX 4090").read_text()
    assert text.splitlines()[0] == '# cfglint: gpu="RTX 4090" nodes=1 gpus-per-node=8'
    assert not {"#?", "MODEL", "{file}"} & set(text.split())
    assert yaml.safe_load(text)["deepspeed"]["zero_optimization"] == {"stage": 2}
    other = tmp_path / "other"
    other.mkdir()
    assert write_starter(other, framework, "--method", "qlora", "--zero", "2", "--gpu", "RTX 4090").read_text() == text


def test_the_page_names_what_is_assumed(tmp_path):
    outcome = run_cfglint(*QUESTION, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines[0].startswith("fits: ")
    assert any(line.startswith("Llama-3.1-8B-qlora.yaml  (axolotl ") for line in outcome.lines[:3])
    assert "  model   meta-llama/Llama-3.1-8B: 8.03 B parameters, 32 layers, llama" in outcome.lines[:4]
    assumed = next(line for line in outcome.lines if "`--micro`" in line)
    assert assumed == (
        "  assumed: axolotl trains (`--framework`), sequences of 4,096 tokens (`--length`), micro batch 1 (`--micro`), "
        "accumulation 8 (`--accumulation`), adamw_torch_fused (`--optimizer`), bf16 (`--precision`), rank 16 "
        "(`--rank`), activation checkpointing (`--no-checkpointing`), 1 node (`--nodes`), 1 GPU per node "
        "(`--gpus-per-node`)"
    )
    assert list(tmp_path.iterdir()) == []
    settings = ("--framework", "axolotl", "--length", "4096", "--micro", "1", "--accumulation", "8", "--optimizer",
              "adamw_torch_fused", "--precision", "bf16", "--rank", "16", "--no-checkpointing", "--nodes", "1",
              "--gpus-per-node", "1")  # fmt: skip
    assert "`--" not in run_cfglint(*QUESTION, *settings, cwd=tmp_path).out


def test_the_page_is_there_in_every_form_and_with_a_grid(tmp_path):
    page = run_cfglint(*QUESTION, "--format", "html", cwd=tmp_path)
    assert page.out.startswith("<!DOCTYPE html>")
    assert "micro batch 1 (<code>--micro</code>)" in page.out
    grid = run_cfglint(*QUESTION, "--what-if", "micro_batch=1,2", cwd=tmp_path)
    assert "micro_batch" in grid.out
    run_cfglint(*QUESTION, "--output-file", "page.txt", cwd=tmp_path)
    assert (tmp_path / "page.txt").read_text() == run_cfglint(*QUESTION, cwd=tmp_path).out


def test_the_settings_of_the_folder_say_what_the_cluster_is(tmp_path):
    (tmp_path / "cfglint.toml").write_text('[hardware]\ngpu = "H200"\ngpus-per-node = 4\n')
    report = json.loads(run_cfglint(*QUESTION[:-2], "--format", "json", cwd=tmp_path).out)["runs"][0]
    assert (report["gpu"], report["gpus_per_node"]) == ("H200", 4)


def test_a_model_with_fewer_positions_is_asked_at_its_length(tmp_path):
    assert "max_length: 2048" in write_starter(tmp_path, "trl", model="facebook/opt-1.3b").read_text().splitlines()


def test_a_card_without_bf16_is_asked_in_fp16(tmp_path):
    assert "fp16: true" in write_starter(tmp_path, "trl", "--gpu", "V100-16GB").read_text().splitlines()


def test_what_does_not_fit_is_written_as_asked_and_said(tmp_path):
    outcome = run_cfglint(*QUESTION[:4], "full", *QUESTION[5:], "--write", "trl", cwd=tmp_path)
    assert outcome.code == 0
    assert "does not fit" in outcome.out
    assert outcome.err.splitlines()[-1].endswith("in it: run `cfglint Llama-3.1-8B-full.yaml`")
    assert run_cfglint("Llama-3.1-8B-full.yaml", cwd=tmp_path).code == 1


def test_what_does_not_fit_gets_the_smallest_change_in_the_keys_of_the_framework(tmp_path):
    outcome = run_cfglint(*QUESTION, "--micro", "4", "--length", "8192", "--framework", "trl", cwd=tmp_path)
    assert "does not fit" in outcome.lines[0]
    assert "per_device_train_batch_size: 4 -> " in outcome.out


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "Llama-3.1-8B-qlora.yaml").write_text("mine\n")
    outcome = run_cfglint(*QUESTION, "--write", "axolotl", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "cfglint: Llama-3.1-8B-qlora.yaml already exists; name another file with --write axolotl=FILE\n"
    )
    assert (tmp_path / "Llama-3.1-8B-qlora.yaml").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "meta-llama/Llama-3.1-9B"), "unknown model meta-llama/Llama-3.1-9B; did you mean meta-llama/"),
        (("--model", "nobody/xq"), "unknown model nobody/xq; state its shape with --model-config FILE, or ask the Hub"),
        (("--gpu", "RTX4091"), "unknown GPU 'RTX4091'; did you mean RTX 4090?"),
        (("--method", "qlra"), "unknown method qlra; did you mean qlora?"),
        (("--method", "freeze", "--framework", "trl"), "trl does not support --method freeze; use llamafactory"),
        (("--framework", "axolot"), "unknown framework axolot; did you mean axolotl?"),
        (("--write", "olmo"), "unknown framework olmo; known: axolotl, llamafactory, trl"),
        (("--write", "trl", "--framework", "axolotl"), "--framework axolotl contradicts --write trl"),
        (("--optimizer", "adamw8bit"), "unknown optimizer adamw8bit; did you mean adamw_8bit?"),
        (("--method", "full", "--rank", "8"), "--rank is for lora and qlora, not for full"),
        (("--micro", "0"), "argument --micro: must be a positive integer"),
        (("--nodes", "x"), "nodes must be a positive integer, not 'x'"),
        (("--zero", "2", "--fsdp"), "argument --fsdp: not allowed with argument --zero"),
        (("config.yaml",), "--model estimates without a file and cannot be used with a file"),
        (("--plan", "plan.json"), "--model estimates without a file and cannot be used with --plan"),
        (("--write", "trl", "--set", "a=1"), "--write cannot be used with --set"),
        (("--write", "trl=here.json"), "--write trl=here.json: trl reads YAML; name a file that ends in .yaml"),
        (("--write", "trl=gone/a.yaml"), "--write trl=gone/a.yaml: there is no folder gone"),
        (("--write", "trl=a\nb.yaml"), "--write trl=a\\x0ab.yaml: trl reads YAML; name a file that ends in .yaml"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_clear_answer(tmp_path, flags, said):
    outcome = run_cfglint(*QUESTION, *flags, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


def test_a_flag_of_a_question_needs_a_model(tmp_path):
    outcome = run_cfglint("estimate", "--no-checkpointing", cwd=tmp_path)
    assert (outcome.code, outcome.err.splitlines()[0]) == (2, "cfglint estimate: --no-checkpointing needs --model")


# --- the frameworks' own parsers -------------------------------------------------------------------------------------


def write_every_kind(folder: Path, framework: str) -> list[dict[str, Any]]:
    """Write every kind of file that `--write` supports for a framework, and return the parsed files."""
    configs = []
    for number, (method, kind) in enumerate(
        (choice, kind) for choice in starter.list_methods(framework) for kind in KINDS
    ):
        place = folder / str(number)
        place.mkdir()
        configs.append(yaml.safe_load(write_starter(place, framework, "--method", method, *kind).read_text()))
    return configs


@pytest.mark.recorded
def test_axolotl_takes_what_is_written(tmp_path):
    configs = write_every_kind(tmp_path, "axolotl")
    for config, verdict in zip(configs, judged_by_axolotl(configs), strict=True):
        assert verdict["accepted"], (config, verdict["why"])
        assert set(config) <= set(verdict["kept"])


@pytest.mark.recorded
def test_llama_factory_takes_what_is_written(tmp_path):
    configs = write_every_kind(tmp_path, "llamafactory")
    verdicts = oracle.judge_questions("llamafactory_arguments.py", configs)
    assert [
        (config, verdict["why"], verdict["unused"])
        for config, verdict in zip(configs, verdicts)
        if not verdict["accepted"]
    ] == []
    assert len(verdicts) == len(configs)


@pytest.mark.oracle
@pytest.mark.slow
def test_trl_takes_what_is_written(tmp_path):
    configs = write_every_kind(tmp_path, "trl")
    requests = [{"trainer": "sft", "ranks": 1, "config": config} for config in configs]
    verdicts = test_trl_parsers.run_parser(load("trl").newest, requests)
    assert [
        (config, verdict["why"], verdict["unused"])
        for config, verdict in zip(configs, verdicts)
        if not verdict["accepted"]
    ] == []
    assert len(verdicts) == len(configs)
