"""Values that a command line sets over those of a file: findings point at the command line."""

from __future__ import annotations

from tests.support.corpus import REPOSITORY
from tests.support.linting import build_options, lint


def test_the_command_line_is_shown_where_its_value_counts() -> None:
    """Report XFL001 for `trl sft --config recipe.yaml --per_device_train_batch_size 2`."""
    folder = REPOSITORY / "fixtures" / "rules" / "XFL001" / "fires" / "overridden"
    findings = lint(folder, build_options(select=["XFL001"])).findings
    [finding] = [finding for finding in findings if "per_device_train_batch_size" in finding.message]
    [command_line] = [related for related in finding.related if related.message == "the command line"]
    document, span = command_line.place.document, command_line.place.span
    assert document.path.endswith("go.sh")
    assert document.get_text(span).startswith("--per_device_train_batch_size")
