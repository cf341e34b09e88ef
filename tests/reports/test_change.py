"""Comparisons of runs: nothing differs from itself, a fix does what it claims, and the output on real pairs.

`CFGLINT_UPDATE=1 pytest tests/reports/test_change.py` rewrites the output; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from html import unescape
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
    before, gpu, claimed = compared.before.peaks[0], compared.after.peaks[0], run.solution
    assert (gpu.expected, gpu.low, gpu.high) == (claimed.expected, claimed.low, claimed.high), run.path
    assert gpu.verdict == claimed.verdict, run.path
    assert (before.expected, before.high, before.verdict) == (run.expected, run.high, run.verdict)
    assert compared.slowdown == pytest.approx(claimed.slowdown, abs=0.001), run.path
    assert compared.fields


LENGTHS = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: data/train.jsonl, type: alpaca}]
micro_batch_size: 2
sequence_len: 4096
pad_to_sequence_len: true
sample_packing: false
bf16: true
gradient_checkpointing: true
optimizer: adamw_torch_fused
max_steps: 10
"""
PINNED = api.Options(isolated=True, releases={"axolotl": "0.18.0"})


def compare_texts(before: str, after: str, options: api.Options = PINNED) -> RunChange:
    sides = [api.lint(sources={"a.yaml": text}, options=options) for text in (before, after)]
    (compared,) = api.compare(*sides).runs
    return compared


def test_longer_sequences_cost_what_attention_reads_more() -> None:
    """Llama 3.1 8B, PaLM's appendix B: 6 x 8.03e9 + 6 x 32 layers x 4,096 x length FLOPs per token."""
    work = [6 * 8_030_261_248 + 6 * 32 * 4096 * length for length in (4096, 16384)]
    longer = compare_texts(LENGTHS, LENGTHS.replace("4096", "16384"))
    assert longer.slowdown == pytest.approx(work[1] / work[0])
    assert longer.uncounted == ()
    assert compare_texts(LENGTHS.replace("4096", "16384"), LENGTHS).slowdown == 1.0  # as `fit` claims
    packed = LENGTHS.replace("sample_packing: false", "sample_packing: true")
    assert compare_texts(packed, packed.replace("4096", "16384")).slowdown is None  # samples keep their length


def test_the_speed_names_what_it_does_not_count() -> None:
    unknown = LENGTHS.replace("adamw_torch_fused", "adafactor").replace("max_steps", "logging_steps: 3\nmax_steps")
    assert compare_texts(LENGTHS, unknown).slowdown is None
    compared = compare_texts(LENGTHS, unknown.replace("micro_batch_size: 2", "micro_batch_size: 1"))
    assert compared.slowdown == pytest.approx(1.07)
    assert "optimizer.name" in compared.uncounted
    assert not [field for field in compared.uncounted if field.startswith(("logging.", "batch."))]
    (line,) = [line for line in change.render_text(Comparison((compared,), 0)) if line.startswith("  speed")]
    assert "about 7 % slower per token, not counting optimizer." in line
    newer = [
        api.lint(
            sources={"a.yaml": LENGTHS.replace("size: 2", f"size: {size}")},
            options=PINNED.replace(releases={"axolotl": release}),
        )
        for size, release in ((2, "0.17.0"), (1, "0.18.0"))
    ]
    assert api.compare(*newer).runs[0].uncounted[-1:] == ("releases",)
    other = PINNED.replace(gpu="RTX4090")
    sides = [
        api.lint(sources={"a.yaml": LENGTHS.replace("size: 2", "size: 1")}, options=item) for item in (PINNED, other)
    ]
    assert api.compare(*sides).runs[0].slowdown is None


TUNED = "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\ndo_train: true\ndataset: alpaca\ntemplate: qwen3\n"


@pytest.mark.parametrize(("before", "after", "changed"), [
    ("finetuning_type: lora\nlora_rank: 16", "finetuning_type: full\nlora_rank: 64", {}),
    ("finetuning_type: full\nlora_rank: 64", "finetuning_type: lora\nlora_rank: 16", {"method.lora_rank": (None, 16)}),
    ("finetuning_type: full\nlora_rank: 16", "finetuning_type: lora\nlora_rank: 16", {"method.lora_rank": (None, 16)}),
    ("finetuning_type: lora\nlora_rank: 16", "finetuning_type: lora\nlora_rank: 64", {"method.lora_rank": (16, 64)}),
])  # fmt: skip
def test_settings_of_an_adapter_count_only_where_one_is_trained(
    before: str, after: str, changed: dict[str, tuple[int | None, int | None]]
) -> None:
    fields = compare_texts(TUNED + before, TUNED + after).fields
    assert {item.field: (item.before, item.after) for item in fields if item.field == "method.lora_rank"} == changed


UNKNOWN = TUNED.replace("Qwen/Qwen3-0.6B", "example/unknown")


@pytest.mark.parametrize(("before", "after", "side"), [
    (TUNED, UNKNOWN, "memory not checked after: "),
    (UNKNOWN, TUNED, "memory not checked before: "),
    (UNKNOWN, f"{UNKNOWN}cutoff_len: 512\n", "memory not checked: "),
    (TUNED, f"{TUNED}cutoff_len: 512\n", ""),
])  # fmt: skip
def test_a_side_without_a_peak_says_why(before: str, after: str, side: str) -> None:
    compared = compare_texts(before, after)
    reasons = [facts and facts.not_checked for facts in (compared.before, compared.after)]
    assert [reason is not None for reason in reasons] == [text.startswith(UNKNOWN) for text in (before, after)]
    expected = [f"{side}`example/unknown` is not in the catalogue of models"] if side else []
    for report in (change.render_text, change.render_markdown):
        lines = [unescape(re.sub("</?code>", "`", line)) for line in report(Comparison((compared,), 0))]
        assert [line.strip(" -") for line in lines if "not checked" in line] == expected


def test_pins_of_other_frameworks_do_not_count(tmp_path: Path) -> None:
    pins = {"axolotl": "0.18.0", "llamafactory": "0.9.3", "trl": "0.24.0"}
    sides = []
    for release in ("0.9.3", "0.9.4"):
        options = PINNED.replace(releases={**pins, "llamafactory": release})
        sides.append(api.lint(sources={"a.yaml": LENGTHS}, options=options))
    assert api.compare(*sides).runs == ()


def test_an_architecture_differs_by_its_entries() -> None:
    text = (FIXTURES / "fit" / "olmo-7b-1x8.yaml").read_text()
    sides = [api.lint(sources={"a.yaml": text.replace("n_layers: 32", f"n_layers: {layers}")}) for layers in (32, 16)]
    fields = [(item.field, item.before, item.after) for item in api.compare(*sides).runs[0].fields]
    assert [item for item in fields if item[0].startswith("model.")] == [("model.architecture.n_layers", 32, 16)]


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
