"""CHK001 not-checked: a run whose memory could not be checked.

## What it does
Reports each run that has no estimate, once, at the setting that is missing: a model that the catalogue does not have, a
DeepSpeed or accelerate file that is not there, a value that only exists where the job runs.

## Why is this bad?
Without an estimate no memory finding is possible: the run is green because nothing was computed.

## Example
    base_model: example-lab/Nebula-9B-v3     # not in the catalogue, and not a folder here

## Use instead
    cfglint --model-config nebula/config.json train.yaml

## When it does not apply
A script whose launches all give it a recipe (`train.py --config FILE`) is not listed: the recipe is the run, and is
checked itself. It never fails a run by itself; `require-checked = true` makes it count, whatever `ignore`
says. `per-file-ignores` and comments still leave out single files.

## References
docs/memory/limits.md; the page of settings (`require-checked`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.not_estimated import explain_not_estimated
from cfglint_train.runs.run import Run

RULE: Final = Rule("CHK001", "not-checked", "info", unchecked="memory")


def check(run: Run) -> Iterator[Report]:
    """Yield a report if no training step could be estimated."""
    problem = explain_not_estimated(run)
    if problem is not None and not run.inputs.is_checked_elsewhere:
        # The report rests on no setting, because the missing one is missing at every release.
        yield Report(f"memory not checked: {problem.reason}", problem.place, help=problem.remedy, fields_read=())
