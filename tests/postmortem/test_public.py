"""Public out-of-memory reports: the cause is named right, or said not to be known.

`public.jsonl` has the numbers of each report's message, the functions and lines of its traceback as far as they are
public, and the facts of its configuration; `assumed` lists facts that the report does not state. The component is that
of the innermost line of the traceback, or of the only tensor with the size. It is null, with the reason in `why`, if
neither decides.
"""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train import api
from cfglint_train.postmortem.messages import read_log
from cfglint_train.postmortem.report import Diagnosis, explain_failures
from cfglint_train.runs.run import Run
from tests.postmortem.logs import build_log, load_reports

REPORTS = load_reports()
NAMED = {"with traceback": 32, "without traceback": 8}
"""Number of causes that are named: a component of the GPU, or the resource for anything else."""
BAR = 24 / 30
"""Share of reports with a traceback, or about another resource, whose cause must be named."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run | None]:
    """Return the run of each report, or None if its configuration is not public."""
    by_source: dict[str, Run | None] = {}
    for report in REPORTS:
        folder = tmp_path_factory.mktemp("report")
        for name, text in report["files"].items():
            (folder / name).write_text(text, encoding="utf-8")
        flags = dict(zip(report["flags"][::2], report["flags"][1::2]))
        options = api.Options(nodes=flags.get("--nodes"), gpus_per_node=flags.get("--gpus-per-node"))
        estimated = list(api.estimate([folder / report["main"]], options).raw.runs) if report["main"] else [None]
        (by_source[report["source"]],) = estimated
    return by_source


def explain_report(report: dict[str, Any], run: Run | None, *, traceback: bool = True) -> Diagnosis:
    """Return the diagnosis of a report's log with its configuration."""
    (diagnosis,) = explain_failures(read_log([build_log(report, traceback=traceback)]), run)
    return diagnosis


@pytest.mark.parametrize("report", REPORTS, ids=[report["source"] for report in REPORTS])
def test_a_public_report_is_explained_as_its_traceback_says(report, runs):
    run = runs[report["source"]]
    assert run is None or not run.estimate.missing
    diagnosis = explain_report(report, run)
    explanation = diagnosis.explanation
    assert diagnosis.message.kind == report["kind"]
    assert (explanation.component.name if explanation.component else None) == report["component"]
    assert report["phase"] in (None, explanation.phase)


@pytest.mark.parametrize(("case", "traceback"), [("with traceback", True), ("without traceback", False)])
def test_most_causes_are_named_and_none_is_wrong(case, traceback, runs):
    named, wrong, shown = 0, [], []
    for report in REPORTS:
        component = explain_report(report, runs[report["source"]], traceback=traceback).explanation.component
        if component is not None and component.name != report["component"]:
            wrong.append(report["source"])
        is_named = component is not None or report["kind"] != "gpu"
        named += is_named
        if report["frames"] or report["kind"] != "gpu":
            shown.append(is_named)
    assert wrong == []
    assert named == NAMED[case]
    assert len(shown) >= 30
    assert not traceback or sum(shown) / len(shown) >= BAR
