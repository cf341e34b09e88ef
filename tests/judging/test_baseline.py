"""Accepted findings: what a baseline hides, what it still reports, and how it shrinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train import api
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

OLD = """base_model: NousResearch/Meta-Llama-3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_length: 4096
micro_batch_size: 1
output_dir: ./out
trust_remote_code: true
"""
BASELINE = "cfglint-baseline.json"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "cfglint.toml").write_text(f'select = ["KEY", "SEC"]\nbaseline = "{BASELINE}"\n')
    folder = tmp_path / "train"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.yaml").write_text(OLD)
    return tmp_path


def list_codes(here: Path, *arguments: str) -> list[str]:
    outcome = run_cfglint("--output-format", "json", *arguments, cwd=here)
    assert outcome.code in (0, 1), outcome
    return [f"{finding['path']}:{finding['code']}" for finding in json.loads(outcome.out)["findings"]]


def load_accepted(here: Path) -> list[dict[str, object]]:
    return json.loads((here / BASELINE).read_text(encoding="utf-8"))["findings"]


def write_baseline(here: Path) -> int:
    """Accept all current findings and return their number."""
    outcome = run_cfglint("--write-baseline", cwd=here)
    assert outcome.code == 0, outcome
    return sum(int(str(entry["count"])) for entry in load_accepted(here))


def test_the_first_one_accepts_everything(here):
    before = list_codes(here, "--no-baseline")
    assert len(before) >= 6
    assert write_baseline(here) == len(before)
    outcome = run_cfglint(cwd=here)
    assert (outcome.code, outcome.lines[-1]) == (0, f"{len(before)} accepted findings not shown ({BASELINE}).")
    assert list_codes(here, "--no-baseline") == before


def test_a_missing_file_is_an_error(here):
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 2
    assert outcome.err == f"cfglint: {BASELINE}: No such file or directory; `cfglint --write-baseline` writes it\n"


def test_a_new_finding_is_reported(here):
    write_baseline(here)
    (here / "train" / "a.yaml").write_text(OLD + "sample_packingg: true\n")
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 1
    assert list_codes(here) == ["train/a.yaml:KEY001"]


def test_nothing_is_said_of_accepted_findings_where_there_are_none(here):
    write_baseline(here)
    (here / "new.yaml").write_text(AXOLOTL)
    assert run_cfglint("new.yaml", cwd=here).lines == ["No findings in 1 file."]


def test_a_second_finding_like_an_accepted_one_is_reported(here):
    (here / "train" / "a.yaml").write_text(OLD)
    write_baseline(here)
    (here / "train" / "d.yaml").write_text(OLD)
    assert {finding.split(":")[0] for finding in list_codes(here)} == {"train/d.yaml"}


def test_a_finding_that_moves_stays_accepted(here):
    write_baseline(here)
    (here / "train" / "a.yaml").write_text("# a new head\n\n" + OLD.replace("sequence_length:", "sequence_length :"))
    assert [entry for entry in list_codes(here) if "KEY" in entry] == [
        "train/a.yaml:KEY001"
    ]  # the key itself was edited
    (here / "train" / "a.yaml").write_text("# a new head\n\n" + OLD.replace("\n", "  \n"))
    assert list_codes(here) == []


def test_a_renamed_file_stays_accepted_and_is_written_under_its_new_name(here):
    write_baseline(here)
    (here / "train" / "a.yaml").rename(here / "moved.yaml")
    assert list_codes(here) == []
    again = run_cfglint("--write-baseline", cwd=here)
    assert again.code == 0
    assert again.err == f"wrote {BASELINE}: renamed the files of accepted findings\n"
    assert (
        run_cfglint("--write-baseline", cwd=here).err
        == f"{BASELINE} unchanged: all accepted findings are still found\n"
    )
    assert {entry["path"] for entry in load_accepted(here)} == {"moved.yaml", "train/b.yaml", "train/c.yaml"}


def test_what_is_gone_is_reported_and_dropped(here):
    count_before = write_baseline(here)
    (here / "train" / "a.yaml").write_text(OLD.replace("trust_remote_code: true\n", ""))
    outcome = run_cfglint(cwd=here)
    assert outcome.code == 0
    assert outcome.lines[-1] == (
        f"1 stale accepted finding in {BASELINE}: train/a.yaml SEC001; --write-baseline removes them."
    )
    assert run_cfglint("--write-baseline", cwd=here).code == 0
    assert sum(int(str(entry["count"])) for entry in load_accepted(here)) == count_before - 1


def test_writing_again_never_accepts_more(here):
    write_baseline(here)
    text = (here / BASELINE).read_bytes()
    (here / "train" / "a.yaml").write_text(OLD + "sample_packingg: true\n")
    outcome = run_cfglint("--write-baseline", cwd=here)
    assert outcome.code == 1
    assert "KEY001" in outcome.out
    assert f"1 new finding not accepted: {BASELINE} can only shrink; " in outcome.err
    assert (here / BASELINE).read_bytes() == text


@pytest.mark.parametrize("arguments", [["train/b.yaml"], ["--select", "SEC"], ["--ignore", "KEY001"]])
def test_a_lint_of_less_makes_nothing_stale(here, arguments):
    write_baseline(here)
    text = (here / BASELINE).read_bytes()
    (here / "train" / "a.yaml").write_text("base_model: NousResearch/Meta-Llama-3-8B\ndatasets: []\n")
    if "SEC" not in arguments:
        outcome = run_cfglint("--write-baseline", *arguments, cwd=here)
        accepted_codes = {entry["code"] for entry in load_accepted(here)}
        assert "KEY001" in accepted_codes, outcome
    else:
        run_cfglint("--write-baseline", *arguments, cwd=here)
        assert any(entry["path"] == "train/a.yaml" and entry["code"] == "KEY001" for entry in load_accepted(here))
    if arguments == ["train/b.yaml"]:
        assert (here / BASELINE).read_bytes() == text


def test_an_unreadable_file_makes_nothing_stale(here):
    write_baseline(here)
    text = (here / BASELINE).read_bytes()
    (here / "train" / "a.yaml").write_text("base_model: [\n")
    assert run_cfglint("--write-baseline", cwd=here).code == 2
    assert (here / BASELINE).read_bytes() == text


def test_accepted_findings_are_not_fixed(here):
    write_baseline(here)
    before = (here / "train" / "a.yaml").read_text()
    assert run_cfglint("--fix", "--unsafe-fixes", cwd=here).code == 0
    assert (here / "train" / "a.yaml").read_text() == before
    run_cfglint("--fix", "--unsafe-fixes", "--no-baseline", cwd=here)
    assert (here / "train" / "a.yaml").read_text() != before


def test_from_another_folder(here):
    write_baseline(here)
    assert list_codes(here / "train", ".") == []


def test_code_scanning_gets_new_findings_alone(here):
    """Leave out accepted and gone findings: code scanning ignores `baselineState` and would show open alerts."""
    write_baseline(here)
    (here / "train" / "a.yaml").write_text(OLD.replace("trust_remote_code: true\n", "") + "sample_packingg: true\n")
    [run] = json.loads(run_cfglint("--output-format", "sarif", cwd=here).out)["runs"]
    assert [(result["ruleId"], result["baselineState"]) for result in run["results"]] == [("KEY001", "new")]
    [run] = json.loads(run_cfglint("--output-format", "sarif", "--no-baseline", cwd=here).out)["runs"]
    assert len(run["results"]) > 1
    assert not any("baselineState" in result for result in run["results"])


def test_credentials_do_not_go_into_it(here):
    (here / "train" / "a.yaml").write_text(OLD + "hub_token: hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\n")
    write_baseline(here)
    assert any(entry["code"] == "SEC002" for entry in load_accepted(here))
    assert "abcdefghijkl" not in (here / BASELINE).read_text()


def test_the_api_takes_it(here, monkeypatch):
    write_baseline(here)
    monkeypatch.chdir(here)
    result = api.lint(["train"], api.Options(baseline=BASELINE))
    assert result.findings == ()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "1:1: not valid JSON"),
        ('{"version": 1,\n "findings": [,]}', "2:15: not valid JSON"),
        ("[]", "1:1: not a baseline"),
        ('{"version": 2, "findings": []}', "1:1: not a baseline"),
        ('{"version": 1, "findings": [\n  {"path": "a", "code": "KEY001", "line": "", "count": 0}]}', "2:3: an entry"),
        ('{"version": 1, "findings": [\n  7]}', "2:3: an entry"),
    ],
)
def test_bad_files(here, text, where):
    (here / BASELINE).write_text(text)
    outcome = run_cfglint(cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{BASELINE}:{where}" in outcome.err


@pytest.mark.parametrize("other", ["--fix", "--diff", "--fix-only", "--no-baseline", "--add-ignore"])
def test_what_goes_not_with_writing(here, other):
    outcome = run_cfglint("--write-baseline", other, cwd=here)
    assert outcome.code == 2
    assert not (here / BASELINE).exists()
