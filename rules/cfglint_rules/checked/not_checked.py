"""CHK001 not-checked: the memory of a run could not be checked.

## What it does
Reports each run without an estimate once, at the setting that prevents it:

- a model that is not in the catalogue
- a DeepSpeed or accelerate file that does not exist
- a value that is known only when the job runs

## Why is this bad?
Without an estimate there are no memory findings. The run passes only because nothing was computed.

## Example
    base_model: example-lab/Nebula-9B-v3     # not in the catalogue, and not a folder here

## Use instead
    cfglint --model-config nebula/config.json train.yaml

## When it does not apply
If another rule reports an error at a value that cfglint cannot estimate, that finding gets a note instead.

A Python script is not reported if every launch passes it a config file (`train.py --config FILE`) that cfglint checks
as a run of its own.

This rule affects the exit code only with `require-checked = true`. That setting also keeps the rule on if `ignore`
names it.
`per-file-ignores` and comments still exclude single files.

## References
docs/memory/limits.md; the settings page (`require-checked`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import UNUSABLE_VALUE, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("CHK001", "not-checked", "info", unchecked="memory", folds=True)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if no training step could be estimated."""
    if run.estimate.has_step:
        return
    from cfglint_train.runs.not_estimated import explain_not_estimated

    problem = explain_not_estimated(run)
    if problem is not None and not run.inputs.is_checked_elsewhere:
        # The report depends on no field: a missing setting is missing at every release.
        yield Report(
            f"memory not checked: {problem.reason}",
            problem.place,
            help=problem.remedy,
            fields_read=(),
            quantity=UNUSABLE_VALUE if problem.is_value_unknown else "",
        )
