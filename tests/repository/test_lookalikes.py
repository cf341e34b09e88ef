"""Files that no framework recognises: the tool that they look like, and where that is reported."""

from __future__ import annotations

import json
import re

from cfglint_train import api
from cfglint_train.repository.lookalikes import identify_tool
from tests.support.cases import for_each
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, LIMITED
from tests.support.corpus import REPOSITORY
from tests.support.linting import change_directory

MKDOCS = "site_name: Meadow\nnav:\n  - index.md\n"
TORCHTUNE = "model:\n  _component_: torchtune.models.llama3.lora_llama3_8b\n"

SAMPLES = [
    ("run.sh", "python3 -m marti.cli.multi_agent_train_ppo_ray --pretrain Qwen/Qwen3-1.7B --bf16\n", "MARTI"),
    ("run.sh", "deepspeed --module openrlhf.cli.train_rft --pretrain Qwen/Qwen3-1.7B\n", "a fork of OpenRLHF"),
    ("run.sh", "python -m openrlhf.cli.train_sft\n# python -m openrlhf.cli.train_rft\n", ""),
    ("sft.yaml", "pretrain: gpt2\nzero_stage: 2\nmicro_train_batch_size: 4\n", "OpenRLHF flags in a launcher's YAML"),
    ("run.sh", "A=(--hf-checkpoint /m --ref-load /d)\nray job submit -- python3 train.py ${A[@]}\n", "slime"),
    ("run.sh", "accelerate launch -m open_instruct.dpo --model_name_or_path gpt2\n", "open-instruct"),
    ("dpo.yaml", "model_name_or_path: gpt2\ndataset_mixer: {a: 1.0}\nwith_tracking: true\n", "open-instruct"),
    ("dpo.yaml", "model_name_or_path: gpt2\ndataset_mixer: {a: 1.0}\n", ""),
    ("a.yaml", "model:\n  d_model: 64\n  vision_backbone: {}\nglobal_train_batch_size: 8\n", "Molmo"),
    (
        "train_multitask.py",
        "from olmo.config import TrainConfig\nif __name__ == '__main__':\n    main(TrainConfig(seed=1))\n",
        "OLMo settings made in Python",
    ),
    ("train.py", "from olmo.config import TrainConfig\nif __name__ == '__main__':\n    TrainConfig.load(f)\n", ""),
    ("run.sh", "deepspeed --module oat.experiment.offline --pretrain gpt2\n", "Oat"),
    ("run.sh", "python scripts/nash_md.py --model_name_or_path gpt2\n", "another trainer of TRL"),
    ("125M.yml", '{"pipe_parallel_size": 1, "num_layers": 12}\n', "GPT-NeoX"),
    ("small.json", '{"pipe-parallel-size": 1, "num-layers": 12}\n', "GPT-NeoX"),
    ("pretrain.sh", "torchrun pretrain_gpt.py --num-layers 24 --tensor-model-parallel-size 2\n", "Megatron-LM"),
    ("pretrain.sh", "deepspeed pretrain_gpt.py --num-layers 24 --deepspeed --zero-stage 1\n", "Megatron-DeepSpeed"),
    ("gpt.yaml", "trainer:\n  devices: 8\nexp_manager:\n  name: gpt\n", "NeMo"),
    ("h.yaml", f"defaults:\n  - _self_\n{AXOLOTL}", "an axolotl configuration that Hydra composes"),
    ("h.yaml", f"defaults:\n  - _self_\n{LIMITED}", "a LLaMA-Factory configuration that Hydra composes"),
    ("h.yaml", f"{AXOLOTL}hydra: {{run: {{dir: out}}}}\n", "an axolotl configuration that Hydra composes"),
    ("h.yaml", f"{LIMITED}hydra: {{run: {{dir: out}}}}\n", "a LLaMA-Factory configuration that Hydra composes"),
    ("sft.sh", "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B\n", "ms-swift"),
    ("lora.yaml", TORCHTUNE, "torchtune"),
    ("finetune.yaml", "model_name_or_path: gpt2\ndataset_path: data\nblock_size: 512\n", "LMFlow"),
    (
        "board.yaml",
        "top.model_name: Qwen3-8B\ntop.template: qwen3\ntrain.batch_size: 2\n",
        "the settings of LLaMA Board",
    ),
    ("run.sh", "torchrun -m torchtitan.train --job.config_file llama3.toml\n", "torchtitan"),
    ("lora.yaml", "base_model: a/b\ndata_path: c\nmicro_batch_size: 4\nlora_r: 8\ncutoff_len: 256\n", "alpaca-lora"),
    ("train.py", "from unsloth import FastLanguageModel\n", "unsloth"),
    ("train.py", "import verifiers as vf\n\nvf.GRPOTrainer(model=m, env=e).train()\n", "verifiers"),
    ("eval.py", "import verifiers as vf\n\nvf.load_environment('gsm8k').evaluate()\n", ""),
    ("run.sh", "torchrun --nproc_per_node=8 -m scripts.chat_sft -- --depth=26\n", "nanochat"),
    ("run.sh", "torchrun --nproc_per_node=8 -m scripts.chat\n", ""),
]


@for_each(("name", "text", "tool"), SAMPLES)
def test_each_tool_is_known_by_its_words(name, text, tool):
    assert identify_tool(name, text.encode()) == tool


def test_no_clue_begins_in_two_ways():
    """Require a plain first word, because a text without it is not searched for the clue."""
    content = json.loads((REPOSITORY / "lint/cfglint_train/repository/lookalikes.json").read_text())
    clues = [clue for tool in content.values() for groups in tool.values() for group in groups for clue in group]
    assert len(clues) > 50
    for clue in clues:
        outer_pattern = clue
        while (stripped := re.sub(r"\([^()]*\)", "", outer_pattern)) != outer_pattern:
            outer_pattern = stripped
        assert "|" not in outer_pattern, clue
        assert re.search(r"\(\?[a-zA-Z-]", clue) is None, clue  # flags would let the clue begin with other letters


def test_no_file_of_another_kind_looks_like_a_tool():
    others = REPOSITORY / "fixtures" / "others"
    tool_by_name = {
        path.name: identify_tool(path.name, path.read_bytes()) for path in others.rglob("*") if path.is_file()
    }
    assert {name: tool for name, tool in tool_by_name.items() if tool} == {}


def test_a_script_that_starts_a_framework_names_the_file(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.sh").write_text("cd jobs\naxolotl train ../a.yaml\naxolotl train missing.yaml\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "a.yaml").write_text(AXOLOTL)
    missing_line = (
        "run.sh:3:15: info CHK004 run not checked: axolotl is started with `missing.yaml`, which was not found"
        " (file-not-found)"
    )
    assert missing_line in run_cfglint("--isolated", "run.sh", cwd=tmp_path).out.splitlines()
    (tmp_path / "jobs" / "missing.yaml").write_text(AXOLOTL)
    assert run_cfglint("--isolated", "run.sh", cwd=tmp_path).out == "No findings in 2 files.\n"


def test_files_in_a_folder_are_counted_and_never_a_finding(tmp_path):
    for name in ("a.yaml", "b.yaml", "c.yaml"):
        (tmp_path / name).write_text(TORCHTUNE)
    (tmp_path / "run.sh").write_text("swift sft --model x\n")
    (tmp_path / "mkdocs.yml").write_text(MKDOCS)
    assert run_cfglint("--isolated", cwd=tmp_path) == (
        0,
        "1 file looks like ms-swift, which is not supported\n"
        "3 files look like torchtune, which is not supported\n"
        "warning: no training config found in 5 files (--verbose says why)\n",
        "",
    )
    report = json.loads(run_cfglint("--isolated", "--output-format", "json", cwd=tmp_path).out)
    assert report["findings"] == []
    assert report["unsupported"] == [
        {"framework": "ms-swift", "paths": ["run.sh"]},
        {"framework": "torchtune", "paths": ["a.yaml", "b.yaml", "c.yaml"]},
    ]


def test_a_file_that_a_person_names_is_said_to_be_left_out(tmp_path):
    (tmp_path / "mkdocs.yml").write_text(MKDOCS)
    (tmp_path / "lora.yaml").write_text(TORCHTUNE)
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    for form in ("text", "concise", "grouped"):
        outcome = run_cfglint(
            "--isolated", "--output-format", form, "train.yaml", "mkdocs.yml", "lora.yaml", cwd=tmp_path
        )
        reported = [line for line in outcome.lines if "not recognised" in line]
        assert reported[0].startswith("mkdocs.yml: not recognised as a training configuration (")
        assert "looks like torchtune" in reported[1]
        assert len(reported) == 2


def test_files_of_a_hook_and_of_a_folder_stay_silent(tmp_path):
    (tmp_path / "mkdocs.yml").write_text(MKDOCS)
    assert run_cfglint("--isolated", "--force-exclude", "mkdocs.yml", cwd=tmp_path).lines == [
        "warning: no training config found in 1 file (--verbose says why)"
    ]
    assert "mkdocs" not in run_cfglint("--isolated", ".", cwd=tmp_path).out


def test_a_pattern_that_names_many_files_does_not_bury_the_rest(tmp_path):
    names = [f"{number}.yaml" for number in range(8)]
    for name in names:
        (tmp_path / name).write_text(MKDOCS)
    outcome = run_cfglint("--isolated", *names, cwd=tmp_path)
    assert len(outcome.lines) == 7
    assert outcome.lines[5].startswith("3 more files not recognised")


def test_the_api_has_them(tmp_path):
    (tmp_path / "lora.yaml").write_text(TORCHTUNE)
    with change_directory(tmp_path):
        checked = api.lint(".", api.Options(isolated=True))
    assert checked.unsupported == (api.UnsupportedFiles("torchtune", ("lora.yaml",)),)
