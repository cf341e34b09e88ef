"""Files that a launcher does not read (XFL003); a configuration in the user's home is unknown."""

from __future__ import annotations

from pathlib import Path

from tests.support.linting import lint

RUN = "accelerate launch --num_processes 8 {more} --deepspeed_config_file ds.json train.py --model_name_or_path m\n"


def test_that_the_home_has_no_configuration_is_an_assumption(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "run.sh").write_text(RUN.format(more=""), encoding="utf-8")
    (finding,) = [candidate for candidate in lint(tmp_path).findings if candidate.code == "XFL003"]
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    assert any("default_config.yaml" in note for note in finding.notes)


def test_a_stated_configuration_leaves_nothing_to_assume(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "run.sh").write_text(RUN.format(more="--use_deepspeed"), encoding="utf-8")
    assert not [finding for finding in lint(tmp_path).findings if finding.code == "XFL003"]
