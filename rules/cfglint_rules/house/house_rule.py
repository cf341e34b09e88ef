"""HSE001 house-rule: a run breaks a rule in the repository's own settings.

## What it does
Compares every run with the [`require`](../settings.md#require) tables in the settings. Each table names a plan field
(`field`, the same for every framework) or a key (`key`, as a framework spells it). Flags may be written with or without
dashes. The table then states the requirement: `equals`, `one-of`, `at-most`, `at-least`, `present` or `absent`.

Instead, a table can state `that`: a condition on several plan fields, such as
`batch.global * sequence.length <= 4_000_000`. It compares numbers and fields with `<`, `<=`, `>`, `>=`, `==` and `!=`,
and may use `+ - * / // % **`, parentheses, `and` and `or`, as in Python. Nothing is executed.

`message` gives the reason. `severity` is `error`, `warning` (the default) or `info`. `paths` and `frameworks` limit
where the rule applies.

`field` tests the effective value, including the framework's defaults and derived values such as the global batch. An
unknown value breaks no rule. In a condition, neither does an undefined one, such as a division by zero.
If it divides by a constant zero, the settings are invalid.

`key` tests only values that a file or its launch states. A key that is not stated has no value, so it can break only
`present`. Add `[]` to the name of a list to test every item: `datasets[].type`, `plugins[]`.

## Why is this bad?
The run may work, but it breaks a rule that your team agreed on. House rules state the limits of a cluster, budget or
team once, so reviewers do not have to remember them.

## Example
    [[tool.cfglint.require]]
    key = "save_total_limit"
    at-most = 3
    message = "the scratch file system holds three checkpoints of a run"

    [[tool.cfglint.require]]
    that = "batch.global * sequence.length <= 4_000_000"
    message = "larger batches of tokens diverged"

## Fix safety
Unsafe: the fix replaces a choice that can run with the value that the rule requires. `equals`, `at-most` and `at-least`
provide a value; `absent` removes a key. There is no fix for a condition, nor if another rule rejects that value. If no
value can satisfy two rules, cfglint reports an error in the settings, at the second rule.

## When it does not apply
If a value follows from an assumption (such as the number of GPUs), the finding is at most a warning and names the
assumption. For `equals` and `one-of`, the finding is certain only if every possible case has the same value. For
limits, it is certain only if every case exceeds the limit. A condition counts as a limit if it names each field once
and uses neither `==`, `!=`, `%` nor `**`.

## References
The settings of the repository. A note in each finding names the `require` table.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.house.broken import list_broken
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("HSE001", "house-rule", "warning", fix="unsafe", inputs=("house_rules",))


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every house rule that a run or its configs break."""
    yield from list_broken(run)
