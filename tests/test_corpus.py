"""All upstream examples: read without an internal error, identified correctly, and fixed without harm.

`tests/corpus_findings.md` lists every error and every warning on them with the reason why it is true.
"""

from __future__ import annotations

import io
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.judging.result import Result
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.linting import fix, lint, read_contents

pytestmark = needs_corpus

LISTED = Path(__file__).with_name("corpus_findings.md")

# Frameworks of each upstream folder; files that configure no run are listed with the reason.
FRAMEWORKS = {
    "axolotl/deepspeed_configs": {"deepspeed"},
    "axolotl/examples": {"axolotl"},
    "llamafactory/examples/deepspeed": {"deepspeed"},
    "llamafactory/examples/accelerate": {"accelerate"},
    "llamafactory/examples/ktransformers/accelerate": {"accelerate"},
    "llamafactory/examples": {"llamafactory", "llamafactory_v1"},
    "olmo": {"olmo"},
    "deepspeed": {"deepspeed"},
    "accelerate": {"accelerate"},
}


@pytest.fixture(scope="module")
def corpus() -> Result:
    return lint(CORPUS)


def find_folder(path: str) -> str:
    return max((folder for folder in FRAMEWORKS if path.startswith(f"{folder}/")), key=len)


@pytest.mark.slow
def test_nothing_of_ours_breaks(corpus):
    assert [trouble for trouble in corpus.troubles if trouble.rule is not None] == []
    assert len(corpus.files) > 450


def test_every_file_is_what_its_project_says(corpus):
    wrong = [
        (file.path, file.framework) for file in corpus.files if file.framework not in FRAMEWORKS[find_folder(file.path)]
    ]
    # accelerate's inline `deepspeed_config`, or `deepspeed:` of a training file, is a DeepSpeed section.
    sections = [
        (path, framework) for path, framework in wrong if framework == "deepspeed" and not path.endswith(".json")
    ]
    assert sorted(set(wrong) - set(sections)) == []


def test_what_is_not_a_run_is_told(corpus):
    """List the files without a plan, each with the reason; review a new one."""
    checked = {file.path for file in corpus.files}
    skipped_paths = sorted(skipped.path for skipped in corpus.skipped if skipped.path not in checked)
    reasons = {
        r"axolotl/examples/cloud/.*": "the machine that axolotl runs on",
        r"llamafactory/examples/(inference|merge_lora)/.*": "inference and export",
        r"llamafactory/examples/.*(predict|export_lora|infer)[^/]*": "prediction, export and inference",
        r"llamafactory/examples/extras/multi_tokens/tokens_cfg.yaml": "token descriptions",
        r"deepspeed/.*(config|vocab|tokenizer|preprocessor|generation)[^/]*\.json": "a model's own configuration",
    }
    unknown = [path for path in skipped_paths if not any(re.fullmatch(pattern, path) for pattern in reasons)]
    assert unknown == []


def read_listed_errors() -> dict[tuple[str, str], str]:
    """Return (path, code) -> reason, from the table of corpus_findings.md."""
    rows = re.findall(r"^\| `([^`]+)` \| ([A-Z]{3}\d{3}) \| (.+) \|$", LISTED.read_text(), re.M)
    return {(path, code): reason for path, code, reason in rows}


def test_every_error_on_upstream_examples_is_true_and_listed(corpus):
    errors = {(finding.path, finding.code) for finding in corpus.findings if finding.severity == "error"}
    assert errors == set(read_listed_errors())


def read_reviewed_warnings() -> list[tuple[str, str, int]]:
    """Return (code, path pattern, number of files) of the warnings in corpus_findings.md, in order."""
    rows = re.findall(r"^\| ([A-Z]{3}\d{3}) \| `([^`]+)` \| (\d+) \| .+ \|$", LISTED.read_text(), re.M)
    return [(code, pattern, int(number)) for code, pattern, number in rows]


def test_every_warning_on_upstream_examples_is_reviewed(corpus):
    unreviewed = {(finding.code, finding.path) for finding in corpus.findings if finding.severity == "warning"}
    rows = []
    for code, pattern, _ in read_reviewed_warnings():
        matches = {warning for warning in unreviewed if warning[0] == code and fnmatchcase(warning[1], pattern)}
        rows.append((code, pattern, len(matches)))
        unreviewed -= matches
    assert unreviewed == set()
    assert rows == read_reviewed_warnings()


def list_comments(source: bytes) -> list[str]:
    return [comment.text for comment in YamlDocument("x", source).list_comments()]


@pytest.mark.slow
@pytest.mark.parametrize("project", ["axolotl", "llamafactory", "olmo", "deepspeed", "accelerate"])
def test_fixes_obey_the_laws(project, tmp_path):
    """Apply fixes, also unsafe ones: idempotent, settled afterwards, and without other changes."""
    folder = tmp_path / project
    shutil.copytree(CORPUS / project, folder)
    before, original = lint(folder), read_contents(folder)
    fixed = fix(folder, unsafe=True)
    assert fixed.refused == ()
    after = read_contents(folder)
    changed = [path for path in after if after[path] != original[path]]
    assert sorted(changed) == sorted(fixed.sources)
    again = fix(folder, unsafe=True)
    assert again.applied == ()
    assert read_contents(folder) == after
    for path in changed:
        old, new = original[path], after[path]
        assert old.startswith(b"\xef\xbb\xbf") == new.startswith(b"\xef\xbb\xbf")
        assert old.count(b"\r\n") == 0 or new.count(b"\n") == new.count(b"\r\n")
        assert old.endswith(b"\n") == new.endswith(b"\n")
        if path.endswith((".yaml", ".yml")):
            lost = set(list_comments(old)) - set(list_comments(new))
            assert not lost & set(_list_comment_lines(old))
            yaml.safe_load(new)
            if len(new) < 40_000:  # ruamel takes seconds for OLMo's long lists of data
                YAML(typ="rt").load(io.BytesIO(new))
            new_lines = set(new.splitlines())
            removed_lines = [line for line in old.splitlines() if line.strip() and line not in new_lines]
            assert len(removed_lines) <= 12
    _check_settled(before, lint(folder))


def _list_comment_lines(source: bytes) -> list[str]:
    return [line.strip() for line in source.decode().splitlines() if line.strip().startswith("#")]


ANNOUNCED_LOSSES = (("KEY006", "cannot be loaded directly: `stage3_gather"),)
"""Findings that a fix's own message announces: CKP003's fix drops the gather, "convert with zero_to_fp32.py
afterwards".
"""


def _check_settled(before: Result, after: Result) -> None:
    """Require that every fixed finding is gone and that no new finding is as severe as the worst one before.

    Losses that a fix announces are not new findings.
    """
    unsettled = [f for f in after.findings if f.fix is not None and f.fix.edits]
    assert unsettled == []
    earlier = {(finding.path, finding.code) for finding in before.findings}
    worst = {
        path: min(SEVERITIES.index(f.severity) for f in before.findings if f.path == path)
        for path in {finding.path for finding in before.findings}
    }
    new = [
        (f.path, f.code, f.message)
        for f in after.findings
        if (f.path, f.code) not in earlier
        and SEVERITIES.index(f.severity) <= worst.get(f.path, 9)
        and not any(f.code == code and part in f.message for code, part in ANNOUNCED_LOSSES)
    ]
    assert new == []
