"""Public threads in `threads.json`: each has a fixture that is reported before the run, or a reason.

A row names a thread and one of two: a fixture below `fixtures/` with the code that it gets (in one `file` if the folder
has several, with words that the message `says`), or the section of `docs/not-rules.md` that explains why no config
proves the failure. Fixtures in `fixtures/threads/` have the settings that their thread names; the rest of each file is
ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import REPOSITORY, SHARED
from tests.support.linting import build_options, copy_folder, lint
from tests.support.skips import NO_DATA

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("threads.json").read_text(encoding="utf-8"))
PAGE = (REPOSITORY / "docs" / "not-rules.md").read_text(encoding="utf-8")
COVERED = "Threads that a rule covers"
LISTED = SHARED / "reference" / "threads.md"
READ = ("OpenRLHF/OpenRLHF", "hiyouga/LlamaFactory", "axolotl-ai-cloud/axolotl", "deepspeedai/DeepSpeed",
        "allenai/OLMo", "huggingface/accelerate", "huggingface/trl", "verl-project/verl")  # fmt: skip
"""Repositories of supported frameworks, spelled as in the list of threads."""


def yield_threads(text: str) -> Iterator[str]:
    """Yield the threads that a text names; `#2` alone belongs to the repository named before it."""
    repository = ""
    for named, number in re.findall(r"([\w.-]+/[\w.-]+)?#(\d+)", text):
        repository = named or repository
        yield f"{repository}#{number}"


def get_section(name: str) -> str:
    """Return the text of a section of the page."""
    return re.split(r"^## ", PAGE.partition(f"## {name}\n")[2], maxsplit=1, flags=re.M)[0]


def test_every_thread_stands_once():
    names = [row["thread"] for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.skipif(not LISTED.is_file(), reason=f"{NO_DATA}no list of threads at {LISTED}")
def test_every_listed_thread_of_a_framework_that_is_read_has_a_row():
    listed = re.findall(r"^\| [A-I] \| (\S+#\d+) \|", LISTED.read_text(encoding="utf-8"), re.M)
    supported = [name.replace("LlamaFactory", "LLaMA-Factory") for name in listed if name.partition("#")[0] in READ]
    assert len(listed) == 78
    assert len(supported) == 47
    assert {*supported} <= {row["thread"] for row in ROWS}


@pytest.mark.parametrize("row", [row for row in ROWS if "code" in row], ids=lambda row: row["thread"])
def test_the_finding_comes_before_the_run(row, tmp_path):
    (tmp_path / ".git").mkdir()
    folder = copy_folder(REPOSITORY / "fixtures" / row["fixture"], tmp_path / "run")
    findings = lint(folder, build_options(select=[row["code"]])).findings
    of_file = [finding.message for finding in findings if row.get("file", finding.path) == finding.path]
    assert [message for message in of_file if row.get("says", "") in message]


@pytest.mark.parametrize("row", [row for row in ROWS if "section" in row], ids=lambda row: row["thread"])
def test_what_no_configuration_proves_has_its_reason(row):
    assert row["section"] != COVERED
    assert row["thread"] in set(yield_threads(get_section(row["section"])))


def test_the_page_and_the_table_name_the_same_threads():
    on_page = {
        (thread, code)
        for line in get_section(COVERED).splitlines()
        if line.startswith("| ") and "#" in line
        for thread in yield_threads(line.split("|")[1])
        for code in re.findall(r"[A-Z]{3}\d{3}", line.split("|")[2])
    }
    assert on_page == {(row["thread"], row["code"]) for row in ROWS if "code" in row}
