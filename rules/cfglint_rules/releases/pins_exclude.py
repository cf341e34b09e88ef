"""REL003 pins-exclude-each-other: requirement files ask for packages that cannot be installed together.

## What it does
Compares the pins of a repository with what the pinned release of the framework itself requires, and reports a package
that is pinned to releases which that one excludes.

## Why is this bad?
pip refuses to install both, so one of the pins is not what runs. cfglint, too, then checks the configuration against a
release that may not be there.

## Example
    llamafactory==0.9.5
    transformers==4.45.2

## Use instead
    llamafactory==0.9.5
    transformers==5.6.0

## When it does not apply
Extras require nothing of those who do not install them, and a lock file in which both stand was resolved, overrides
included. Where a flag, a pragma or the settings state one of the releases, its pin does not count.

## References
`lint/cfglint_train/frameworks/*/requires.json`, from the requirements of each release.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("REL003", "pins-exclude-each-other", "warning", rests_on_release=True)


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every package whose pin the framework's own requirements exclude."""
    title = run.framework.title
    for exclusion in run.releases.exclusions:
        yield Report(
            f"`{exclusion.package}{exclusion.pin}` cannot be installed with {title} {exclusion.release}, "
            f"which requires `{exclusion.package}{exclusion.requirement}`",
            exclusion.place,
            related=(Related(exclusion.framework_place, f"{title} is pinned here"),),
            help="pin releases that can be installed together",
        )
