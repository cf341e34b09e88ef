"""REL003 pins-exclude-each-other: the pinned packages cannot be installed together.

## What it does
Compares the repository's pins with the requirements of the pinned framework release. Reports a package if those
requirements exclude its pin.

## Why is this bad?
pip refuses to install both, so at least one pin does not describe the environment of the run. cfglint may then check
the configuration against a release that is not installed.

## Example
    llamafactory==0.9.5
    transformers==4.45.2

## Use instead
    llamafactory==0.9.5
    transformers==5.6.0

## When it does not apply
Requirements of extras do not count, because the extras may not be installed. A lock file with both packages is not
reported, because a resolver accepted it, perhaps with overrides. If a flag, a pragma or the settings state one of the
releases, its pin does not count.

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
    """Yield a report for every pin that the requirements of the pinned framework release exclude."""
    title = run.framework.title
    for exclusion in run.releases.exclusions:
        yield Report(
            f"`{exclusion.package}{exclusion.pin}` cannot be installed with {title} {exclusion.release}, "
            f"which requires `{exclusion.package}{exclusion.requirement}`",
            exclusion.place,
            related=(Related(exclusion.framework_place, f"{title} is pinned here"),),
            help="pin releases that can be installed together",
        )
