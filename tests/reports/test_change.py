"""Comparisons of runs: nothing differs from itself, a fix does what it claims, and the output on real pairs.

`CFGLINT_UPDATE=1 pytest tests/reports/test_change.py` rewrites the output; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cfglint_train import api
from cfglint_train.records import Comparison, RunChange
from cfglint_train.reports import change
from cfglint_train.reports.style import Style
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import change_directory, isolate_folder

FIXTURES = REPOSITORY / "fixtures"
CASES = sorted(path.name for path in (FIXTURES / "cases").iterdir() if path.is_dir())
SCHEMA = Draft202012Validator(json.loads((REPOSITORY / "tests" / "comparison.schema.json").read_text()))
RECORD = Path(__file__).with_name("changes.txt")
UPDATE = bool(os.environ.get("CFGLINT_UPDATE"))
CORPUS_PAIRS = {"axolotl/examples": 10, "llamafactory/examples": 7, "olmo": 3}
"""Upstream folder -> number of neighbouring runs that are compared."""
BATCHES = ("micro_batch_size", "per_device_train_batch_size", "global_train_batch_size")
"""Keys by which a file of the corpus counts as a run."""


def compare_files(before: str, after: str) -> Comparison:
    return api.compare(api.lint(before), api.lint(after), is_pair=True)


def render(comparison: Comparison) -> str:
    """Return the text of a comparison without the figures of the memory model, which has its own tests.

    On 80 columns, only lines with a word that is too long for a line may be longer.
    """
    wrapped = change.render_text(comparison, Style(width=80))
    assert [line for line in wrapped if len(line) > 80 and max(map(len, line.split())) < 50] == []
    return "".join(f"{_mask(line)}\n" for line in change.render_text(comparison))


def _mask(line: str) -> str:
    is_size = line.startswith(("  peak GPU", "  host ", "  disk ", "  new ", "  gone "))
    return re.sub(r"\b[0-9][0-9,.]*\b(?=.*GiB)", "#", line) if is_size and "GiB" in line else line


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["cases", "fit", "llamafactory", "olmo", "openrlhf", "trl", "diff"])
def test_nothing_differs_from_itself(folder: str) -> None:
    with change_directory(isolate_folder(FIXTURES / folder)):
        comparison = api.compare(api.lint("."), api.lint("."))
    assert comparison.runs == ()
    assert comparison.unchanged > 0


def test_the_difference_of_a_fix_is_its_claim() -> None:
    compared = 0
    with change_directory(isolate_folder(FIXTURES)):
        for path in ("fit", *(f"cases/{case}" for case in CASES)):
            outcome = api.fit(path, change=True)
            for run in outcome.runs:
                if run.solution is None or run.path not in outcome.sources or run.solution.files != (run.path,):
                    continue
                after = api.lint(run.path, sources={run.path: outcome.sources[run.path]})
                comparison = api.compare(api.lint(run.path), after, is_pair=True)
                if len(comparison.runs) == 1:
                    check_claim(comparison.runs[0], run)
                    compared += 1
    assert compared >= 10


def check_claim(compared: RunChange, run: api.RunFit) -> None:
    assert run.solution is not None
    assert compared.before is not None
    assert compared.after is not None
    gpu, claimed = compared.after.peaks[0], run.solution
    assert (gpu.expected, gpu.low, gpu.verdict) == (claimed.expected, claimed.low, claimed.verdict), run.path
    assert (compared.before.peaks[0].expected, compared.before.peaks[0].verdict) == (run.expected, run.verdict)
    assert compared.slowdown == pytest.approx(claimed.slowdown, abs=0.001), run.path
    assert compared.fields


# --- output ----------------------------------------------------------------------------------------------------------


def list_pairs() -> Iterator[tuple[str, Path, str, str]]:
    """Yield the pairs of the record: title, folder, file before and file after."""
    folder = isolate_folder(FIXTURES)
    for case in CASES:
        fixed = folder / "cases" / case / "fixed"
        for path in sorted(fixed.rglob("*")):
            name = path.relative_to(fixed).as_posix()
            before = folder / "cases" / case / name
            if before.is_file() and before.read_bytes() != path.read_bytes() and path.suffix != ".json":
                yield f"{case}/{name}", folder / "cases" / case, name, f"fixed/{name}"
    yield "a port", folder / "diff", "axolotl.yaml", "llamafactory.yaml"


def list_corpus_pairs() -> Iterator[tuple[str, Path, str, str]]:
    for under, number in CORPUS_PAIRS.items():
        paths = sorted(path for path in (CORPUS / under).rglob("*.yaml") if is_run(path))
        step = max(1, (len(paths) - 1) // number)
        for before, after in list(pairwise(paths))[::step][:number]:
            names = [path.relative_to(CORPUS).as_posix() for path in (before, after)]
            yield f"{names[0]} {names[1]}", CORPUS, names[0], names[1]


def is_run(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(f"\n{key}:" in f"\n{text}" for key in BATCHES)


@needs_corpus
def test_the_output_on_the_founding_cases_and_upstreams_examples() -> None:
    parts = []
    for title, folder, before, after in (*list_pairs(), *list_corpus_pairs()):
        with change_directory(folder):
            parts.append(f"=== {title}\n{render(compare_files(before, after))}")
    assert len(parts) >= 26
    text = "\n".join(parts)
    if UPDATE:
        RECORD.write_text(text)
    assert text == RECORD.read_text()


def test_the_json_report_follows_its_schema() -> None:
    pairs = [(folder, before, after) for _, folder, before, after in list_pairs()]
    for folder, before, after in pairs:
        with change_directory(folder):
            comparison = compare_files(before, after)
            report = json.loads("".join(change.render_json(comparison)))
            SCHEMA.validate(report)
            assert report["runs"][0]["before"]["path"] == before
            SCHEMA.validate(json.loads("".join(change.render_json(api.compare(None, api.lint(after))))))


def test_text_of_files_forges_no_markdown(tmp_path: Path) -> None:
    text = (FIXTURES / "diff" / "axolotl.yaml").read_text().replace("deepspeed: zero3.json\n", "")
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("Qwen/Qwen2.5-7B", "'<img src=x>|@team\x1b[31m'"))
    with change_directory(tmp_path):
        lines = list(change.render_markdown(compare_files("a.yaml", "b.yaml")))
        shown = list(change.render_text(compare_files("a.yaml", "b.yaml")))
    (row,) = [line for line in lines if line.startswith("| <code>")]
    assert row.count("|") == lines[4].count("|")
    assert not any("<img" in line or "@team" in line or "\x1b" in line for line in lines)
    assert not any("\x1b" in line for line in shown)


def test_markdown_ends_before_the_limit_of_a_summary() -> None:
    with change_directory(isolate_folder(FIXTURES / "diff")):
        comparison = compare_files("axolotl.yaml", "llamafactory.yaml")
    many = Comparison(comparison.runs * 60, 0)
    lines = list(change.render_markdown(many))
    assert sum(line.startswith("| <code>") for line in lines) == 50
    assert "10 more runs are not listed." in lines
    short = list(change.render_markdown(many, 5000))
    assert "The other changes are omitted because GitHub limits the size." in short
    assert sum(len(line) for line in short) < 6000
