"""axolotl's own validation as the judge of migrated files; OpenRLHF's is in tests/schemas/test_openrlhf_parsers.py."""

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

from cfglint_train.front.migrate.goal import goal
from cfglint_train.front.migrate.rewrite import migrate
from cfglint_train.settings.settings import Settings
from tests.support.corpus import CORPUS, REPOSITORY, files, needs_corpus
from tests.support.linting import working_in
from tests.support.releases import source

EXAMPLES = CORPUS / "axolotl" / "examples"

_STAGED = "CPU-staged NF4 currently requires LoRA without DoRA or modules_to_save"

# Files that 0.21.0 refuses although no human is asked, and why.
UNSEEN = {
    # A check of values that no rule of cfglint makes.
    "llama-4/do-no-use-fa2/scout-qlora-fsdp1.yaml": _STAGED,
    "llama-4/do-no-use-fa2/scout-vision-qlora-fsdp.yaml": _STAGED,
    "llama-4/scout-vision-qlora-fsdp2-flex.yaml": _STAGED,
    # Its own check looks for libraries that the judge does not have.
    "llama-3/3b-fp8-fsdp2.yaml": "missing one of ms-amp, transformers-engine or torchao",
}


def verdicts(configs: dict[str, Any], release: str) -> dict[str, dict[str, Any]]:
    if find_spec("axolotl") is None:
        pytest.skip("axolotl is not installed (tests/oracles/requirements.txt)")
    folder = source("axolotl", release, "axolotl")
    words = [sys.executable, str(REPOSITORY / "tests" / "oracles" / "axolotl_validation.py")]
    lines = "".join(json.dumps(config, default=str) + "\n" for config in configs.values())
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"accepted"')]
    assert len(found) == len(configs)
    return dict(zip(configs, found))


@pytest.mark.oracle
@needs_corpus
def test_axolotl_takes_what_was_migrated_or_a_human_is_asked(tmp_path: Path) -> None:
    before: dict[str, Any] = {}
    for path in files(".yaml", ".yml", under="axolotl/examples"):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(config, dict) and "base_model" in config:
            before[str(path.relative_to(EXAMPLES))] = config
    for name in before:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    with working_in(tmp_path):
        outcome = migrate(list(before), goal(["axolotl=0.21.0"]), lambda _: Settings(os.getcwd()))
    after = {file.path: yaml.safe_load(file.source) for file in outcome.files}
    asked = {file.path for file in outcome.files if any(item.kind == "human" for item in file.items)}
    assert after.keys() == before.keys()
    old, new = verdicts(before, "0.21.0"), verdicts(after, "0.21.0")
    assert [name for name in before if old[name]["accepted"] and not new[name]["accepted"]] == []
    gained = [name for name in before if new[name]["accepted"] and not old[name]["accepted"]]
    assert len(gained) > 30
    refused = {name: new[name]["why"] for name in before if not new[name]["accepted"] and name not in asked}
    assert refused.keys() == UNSEEN.keys(), refused
    assert all(UNSEEN[name] in why for name, why in refused.items())
