"""Migrated files judged by axolotl's own validation; OpenRLHF's is in tests/schemas/test_openrlhf_parsers.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfglint_train.front.migrate.goal import parse_goal
from cfglint_train.front.migrate.rewrite import migrate
from cfglint_train.settings.settings import Settings
from tests.support.corpus import CORPUS, REPOSITORY, list_corpus_files, needs_corpus
from tests.support.linting import change_directory
from tests.support.releases import fetch_source

EXAMPLES = CORPUS / "axolotl" / "examples"

_STAGED = "CPU-staged NF4 currently requires LoRA without DoRA or modules_to_save"

# Files that 0.21.0 rejects although no item is left for a human, with the reason.
UNEXPECTED_REJECTIONS = {
    # A check of values that no cfglint rule covers.
    "llama-4/do-no-use-fa2/scout-qlora-fsdp1.yaml": _STAGED,
    "llama-4/do-no-use-fa2/scout-vision-qlora-fsdp.yaml": _STAGED,
    "llama-4/scout-vision-qlora-fsdp2-flex.yaml": _STAGED,
    # Its own check looks for libraries that are not installed with the validation.
    "llama-3/3b-fp8-fsdp2.yaml": "missing one of ms-amp, transformers-engine or torchao",
}


def judge_configs(configs: dict[str, Any], release: str) -> dict[str, dict[str, Any]]:
    if find_spec("axolotl") is None:
        pytest.skip("axolotl is not installed (tests/oracles/requirements.txt)")
    folder = fetch_source("axolotl", release, "axolotl")
    words = [sys.executable, str(REPOSITORY / "tests" / "oracles" / "axolotl_validation.py")]
    lines = "".join(json.dumps(config, default=str) + "\n" for config in configs.values())
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.run(words, input=lines, capture_output=True, text=True, check=False, env=environment)
    assert process.returncode == 0, process.stderr[-2000:]
    judgements = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"accepted"')]
    assert len(judgements) == len(configs)
    return dict(zip(configs, judgements))


@pytest.mark.oracle
@needs_corpus
def test_axolotl_takes_what_was_migrated_or_a_human_is_asked(tmp_path: Path) -> None:
    before: dict[str, Any] = {}
    for path in list_corpus_files(".yaml", ".yml", under="axolotl/examples"):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(config, dict) and "base_model" in config:
            before[str(path.relative_to(EXAMPLES))] = config
    for name in before:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    with change_directory(tmp_path):
        outcome = migrate(list(before), parse_goal(["axolotl=0.21.0"]), lambda _: Settings(os.getcwd()))
    after = {file.path: yaml.safe_load(file.source) for file in outcome.files}
    for_humans = {file.path for file in outcome.files if any(item.kind == "human" for item in file.items)}
    assert after.keys() == before.keys()
    old, new = judge_configs(before, "0.21.0"), judge_configs(after, "0.21.0")
    assert [name for name in before if old[name]["accepted"] and not new[name]["accepted"]] == []
    gained = [name for name in before if new[name]["accepted"] and not old[name]["accepted"]]
    assert len(gained) > 30
    refused = {name: new[name]["why"] for name in before if not new[name]["accepted"] and name not in for_humans}
    assert refused.keys() == UNEXPECTED_REJECTIONS.keys(), refused
    assert all(UNEXPECTED_REJECTIONS[name] in why for name, why in refused.items())
