"""A contributor follows docs/contributing/framework.md in a copy of cfglint and adds files in one folder only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.corpus import REPOSITORY

PAGE = REPOSITORY / "docs" / "contributing" / "framework.md"
FOLDER = "lint/cfglint_train/frameworks/guest"
VOCABULARY = REPOSITORY / "tests" / "frameworks" / "guest" / "schemas" / "guest.json"


def test_a_framework_is_added_by_files_of_one_folder(tmp_path: Path) -> None:
    copy, here = tmp_path / "copy", tmp_path / "here"
    for source in ("lint", "rules", "schemas"):
        shutil.copytree(REPOSITORY / source, copy / source, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL))
    config = blocks.pop("run.yaml")
    assert not (copy / FOLDER).exists()
    assert {os.path.dirname(name) for name in blocks} == {FOLDER}
    (copy / FOLDER).mkdir()
    for name, text in blocks.items():
        (copy / name).write_text(text)
    shutil.copy(VOCABULARY, copy / FOLDER / "vocabulary.json")
    (here / ".git").mkdir(parents=True)
    (here / "run.yaml").write_text(config)
    (here / "typo.yaml").write_text(config.replace("micro_batch:", "micro_batches:"))
    paths = os.pathsep.join(str(copy / source) for source in ("lint", "rules", "schemas"))
    command = [sys.executable, "-m", "cfglint_train", "--output-format", "json", "--gpu", "H100", "."]
    outcome = subprocess.run(
        command, cwd=here, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert outcome.stderr == ""
    report = json.loads(outcome.stdout)
    findings = {(os.path.basename(finding["path"]), finding["code"]) for finding in report["findings"]}
    assert {("run.yaml", "MEM001"), ("typo.yaml", "KEY001")} <= findings
    assert ("run.yaml", "KEY001") not in findings
