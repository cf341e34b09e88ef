"""HSE001 house-rule: a run breaks a rule of the repository's own settings.

## What it does
Compares every run with the [`require`](../settings.md#require) tables of the settings. Each names a field of the plan
(`field`, the same for every framework) or a key (`key`, as a framework spells it, flags with or without their dashes),
and what it must be: `equals`, `one-of`, `at-most`, `at-least`, `present`, `absent`. `message` says why, `severity` is
`error`, `warning` (the default) or `info`; `paths` and `frameworks` limit where the rule applies.

`field` asks for the value that counts, defaults of the framework and derived values (the global batch) included. An
unknown value breaks no rule. `key` asks for what a file or its launch states: a key that is not stated has no value,
and only `present` asks for it. `[]` behind the name of a list asks for every item: `datasets[].type`, `plugins[]`.

## Why is this bad?
The run may work, but it is not what was agreed on. What a cluster, a budget or a team needs is written in one place, so
that reviewers need not remember it.

## Example
    [[tool.cfglint.require]]
    key = "save_total_limit"
    at-most = 3
    message = "the scratch file system holds three checkpoints of a run"

## Fix safety
Unsafe: what is written is what the rule asks for, over a choice that can run. `equals`, `at-most` and `at-least` give a
value, `absent` removes a key. Nothing is written where another rule refuses that value. Two rules that no value meets
are an error of the settings, at the second one.

## When it does not apply
A value that follows from something assumed (the number of GPUs) is a warning at most, and names the assumption.
`equals` and `one-of` are then certain only where the value is the same in every case, limits where all cases exceed
them.

## References
The settings of the repository. Notes name the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("HSE001", "house-rule", "warning", fix="unsafe")


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every house rule that a run or its configs break."""
    if run.inputs.house_rules:
        from cfglint_rules.house.broken import list_broken  # few repositories have house rules

        yield from list_broken(run)
