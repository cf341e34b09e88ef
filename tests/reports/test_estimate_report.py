"""`cfglint estimate` in a terminal: assumptions are marked, misspelt keys named, bars and lines fit the width."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.foundation.sizes import format_parameters
from cfglint_train.front.terminal import detect_style
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.reports import estimate
from cfglint_train.reports.style import Style
from tests.support.command import run_cfglint
from tests.support.linting import FIXTURES

TEXT = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
learning_rate: 0.0002
micro_batch_size: 2
"""


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(TEXT)
    return tmp_path


def test_assumed_facts_are_marked_where_they_stand(here):
    lines = run_cfglint("estimate", "config.yaml", cwd=here).lines
    assert any(line.startswith("  job     1 (assumed) x 8 (assumed) GPUs") for line in lines)
    assert any(line.startswith("  one GPU of 79.1 GiB (assumed)") for line in lines)
    assert "  assumed: 8 GPUs per node; set `gpus-per-node` to be sure" in lines
    (run,) = json.loads(run_cfglint("estimate", "--format", "json", "config.yaml", cwd=here).out)["runs"]
    assert {"gpu", "launch.nodes", "launch.gpus_per_node"} <= set(run["assumed"])
    page = run_cfglint("estimate", "--format", "html", "config.yaml", cwd=here).out
    assert '1 x 8 A100-80GB <span class="chip assumed">assumed</span>' in page


def test_stated_facts_are_not_marked(here):
    cluster = ("--gpu", "H100", "--nodes", "1", "--gpus-per-node", "8")
    for form in ("text", "html"):
        text = run_cfglint("estimate", *cluster, "--format", form, "config.yaml", cwd=here).out
        assert "1 x 8" in text
        assert "8 (assumed)" not in text
        assert "H100-80GB <span class" not in text
        assert "GiB (assumed)" not in text
    (run,) = json.loads(run_cfglint("estimate", *cluster, "--format", "json", "config.yaml", cwd=here).out)["runs"]
    assert {"gpu", "launch.nodes", "launch.gpus_per_node"}.isdisjoint(run["assumed"])


def test_misspelt_keys_are_named(here):
    (here / "config.yaml").write_text(TEXT.replace("micro_batch_size", "micro_batch_sze"))
    outcome = run_cfglint("estimate", "config.yaml", cwd=here)
    assert any(line.startswith("  as written  fits: ") for line in outcome.lines)
    assert any(line.endswith("(counts `micro_batch_sze` as `micro_batch_size`)") for line in outcome.lines)
    (run,) = api.estimate(here / "config.yaml").runs
    assert run.not_counted == ("`micro_batch_sze`; did you mean `micro_batch_size`?",)
    (run,) = api.estimate(sources={"config.yaml": TEXT}).runs
    assert run.not_counted == ()


def test_lines_are_broken_at_the_edge_of_the_terminal(here):
    runs = api.estimate(here / "config.yaml").raw.runs
    wide = list(estimate.render_table(runs))
    narrow = list(estimate.render_table(runs, Style(width=80)))
    # The path has its own line, whatever its length.
    longest, short = (max(len(line) for line in lines if "config.yaml" not in line) for lines in (wide, narrow))
    assert longest > 80 >= short
    assert "".join(" ".join(narrow).split()) == "".join(" ".join(wide).split())


def test_bars_are_blocks_in_the_colour_of_the_verdict(here):
    runs = api.estimate(here / "config.yaml").raw.runs
    bars = [line for line in estimate.render_table(runs, Style(color=True, blocks=True)) if "\u2591" in line]
    assert bars
    assert all("\x1b[32m" in line for line in bars if "fits" in line)
    full = api.estimate(here / "config.yaml", api.Options(gpu="4GB", gpus_per_node=8, nodes=1)).raw.runs
    assert any("\x1b[31m" in line for line in estimate.render_table(full, Style(color=True, blocks=True)))
    plain = "\n".join(estimate.render_table(runs))
    assert ".....  " in plain
    assert plain.isascii()


@pytest.mark.parametrize(
    ("disk", "bar"), [((), ""), (("--disk", "200GiB"), "##########|#############"), (("--disk", "600GiB"), "####....")]
)
def test_a_bar_of_the_disk_compares_with_its_capacity(here, disk, bar):
    """Draw 494 GiB of checkpoints beside the line at 200 GiB, as a part of 600 GiB, or not at all."""
    text = (FIXTURES / "failures" / "full-disk" / "axolotl.yaml").read_text().replace(" disk=500GB", "")
    (here / "disk.yaml").write_text(text)
    lines = run_cfglint("estimate", *disk, "disk.yaml", cwd=here, environment={"COLUMNS": "80"}).lines
    place = next(number for number, line in enumerate(lines) if line.startswith("  disk"))
    shown = lines[place + 1].split("494 GiB")[0].removeprefix("    save").strip()
    assert shown.endswith(bar)
    assert bool(shown) is bool(disk)


@pytest.mark.parametrize(("encoding", "blocks"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_blocks_need_an_encoding_that_has_them(encoding, blocks):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    assert detect_style(stream, "always").blocks is blocks
    assert not detect_style(stream, "never").blocks


def test_axes_without_effect_are_named(here):
    axes = ("sequence=512,1024", "data.workers=1,2")
    assert (
        "  data.workers has no effect on this estimate"
        in run_cfglint("estimate", "--what-if", *axes, "config.yaml", cwd=here).lines
    )
    report = json.loads(run_cfglint("estimate", "--format", "json", "--what-if", *axes, "config.yaml", cwd=here).out)
    assert report["runs"][0]["without_effect"] == ["data.workers"]
    outcome = run_cfglint("estimate", "--what-if", "sequence=1,2", "sequence_length=3,4", "config.yaml", cwd=here)
    assert outcome.code == 2
    outcome = run_cfglint("estimate", "--what-if", "sequence=1,2", "--what-if", "sequence=3,4", "config.yaml", cwd=here)
    assert outcome.err.startswith("cfglint: --what-if sequence=3,4: sequence.length is given twice")


# --- misspelt names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "suggestion"), [("estimat", "estimate"), ("chec", "check"), ("Rules", "rules"), ("initt", "init")]
)
def test_a_misspelt_command_is_no_file(here, word, suggestion):
    outcome = run_cfglint(word, "config.yaml", cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"cfglint: unknown command {word}; did you mean {suggestion}?\n"


def test_a_folder_with_such_a_name_is_one(here):
    (here / "estimat").mkdir()
    assert run_cfglint("estimat", cwd=here).code == 0
    assert "unknown command" not in run_cfglint("configs", cwd=here).err


@pytest.mark.parametrize(("selector", "message"), [("MEMM", "did you mean MEM?"), ("MEM0001", "did you mean MEM001?")])
def test_a_misspelt_code(here, selector, message):
    assert (
        run_cfglint("--select", selector, cwd=here).err
        == f"cfglint: --select {selector}: unknown rule {selector}; {message}\n"
    )
    assert run_cfglint("rule", selector, cwd=here).err == f"cfglint: unknown rule {selector}; {message}\n"


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (("oom",), "MEM001"),
        (("out", "of", "memory"), "MEM001"),
        (("host", "memory"), "HST001"),
        (("duplicate",), "SYN003"),
    ],
)
def test_rules_are_found_by_words(here, words, first):
    outcome = run_cfglint("rule", *words, cwd=here)
    assert outcome.code == 0
    assert outcome.lines[0].startswith(f"{first}  ")
    assert run_cfglint("rule", "zzzz", cwd=here).code == 2


# --- options that write, and options that only show ------------------------------------------------------------------

WRITING = ("--fix", "--fix-only", "--diff", "--add-ignore", "--write-baseline")
SHOWING = ("--statistics", "--show-files", "--show-settings", "--explain-origins", "--explain=SYN003:5")


@pytest.mark.parametrize("writing", WRITING)
@pytest.mark.parametrize("showing", SHOWING)
def test_what_writes_is_refused_beside_what_only_shows(here, writing, showing):
    text = TEXT + "micro_batch_size: 1\n"
    (here / "config.yaml").write_text(text)
    outcome = run_cfglint(writing, showing, "config.yaml", cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    shown = showing.partition("=")[0]
    assert outcome.err == f"cfglint: {writing} cannot be used with {shown}, which changes nothing\n"
    assert sorted(path.name for path in here.iterdir()) == [".git", "config.yaml"]
    assert (here / "config.yaml").read_text() == text


@pytest.mark.parametrize("writing", ["--fix", "--fix-only"])
def test_diff_wins_over_fix(here, writing):
    (here / "config.yaml").write_text(TEXT.replace("micro_batch_size", "micro_batch_sze"))
    outcome = run_cfglint("--select", "KEY001", "--diff", writing, "config.yaml", cwd=here)
    assert "+micro_batch_size: 2" in outcome.lines
    assert "micro_batch_sze" in (here / "config.yaml").read_text()


@pytest.mark.parametrize("word", VERDICTS)
def test_every_report_has_the_same_word(here, word):
    """Report the same verdict for a card whose size is between two bounds of the run."""
    text = TEXT.replace(
        "micro_batch_size: 2",
        "micro_batch_size: 8\nsequence_len: 2048\nsample_packing: true\npad_to_sequence_len: true",
    )
    (here / "config.yaml").write_text(text)

    def estimate_peak(gpu: str) -> dict:
        outcome = run_cfglint(
            "estimate", "--gpu", gpu, "--gpus-per-node", "1", "--format", "json", "config.yaml", cwd=here
        )
        (run,) = json.loads(outcome.out)["runs"]
        phases = [phase for phase in run["phases"] if phase["gpu"] is not None]
        return max((phase["gpu"] for phase in phases), key=lambda gpu_line: gpu_line["expected"])

    bounds = estimate_peak("200GB")
    edges = {
        "fits": bounds["high"] * 1.01,
        "tight": (bounds["expected"] + bounds["high"]) / 2,
        "probably does not fit": (bounds["low"] + bounds["expected"]) / 2,
        "does not fit": bounds["low"] * 0.98,
    }
    gpu = f"{edges[word] / 2**30:.3f}GiB"
    cluster = ("--gpu", gpu, "--gpus-per-node", "1", "config.yaml")
    assert estimate_peak(gpu)["verdict"] == word
    assert any(line.endswith(f")  {word}") for line in run_cfglint("estimate", *cluster, cwd=here).lines)
    (fit,) = json.loads(run_cfglint("fit", "--format", "json", *cluster, cwd=here).out)["runs"]
    assert fit["verdict"] == word
    findings = [line for line in run_cfglint("check", *cluster, cwd=here).lines if "MEM001" in line]
    assert len(findings) == (word != "fits")
    assert all(f" pass {'is tight' if word == 'tight' else word} on one GPU" in line for line in findings)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(494_032_768, "494 M"), (999_600_000, "1 B"), (8_030_261_248, "8.03 B"), (1_026_000_000_000, "1.03 T")],
)
def test_parameters_are_counted_without_an_exponent(count: int, shown: str) -> None:
    assert format_parameters(count) == shown
