"""CHK003 keys-not-checked: the framework is older than any release whose keys cfglint knows.

## What it does
Reports once per configuration that its keys were not checked. This happens if a flag, a setting or a requirement in the
repository selects a release that is older than the oldest known release.

## Why is this bad?
cfglint does not find keys that the old release drops or rejects. The file passes only because its keys were not
checked.

## Example
    axolotl==0.4.0                           # requirements.txt, beside an axolotl configuration

## Use instead
    axolotl==0.12.2

## When it does not apply
This rule affects the exit code only with `require-checked = true`. Checks that do not depend on keys (memory, batches,
checkpoints) still run.

## References
docs/releases.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.survey import is_older_than_vocabulary
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import get_keys
from cfglint_train.frameworks.lens import Config

RULE: Final = Rule("CHK003", "keys-not-checked", "info", scope="config", unchecked="keys")


def check(config: Config) -> Iterator[Report]:
    """Yield a report if the framework is older than the oldest release in its vocabulary."""
    keys = get_keys(config)
    if keys is None or not keys.is_checked or not is_older_than_vocabulary(config):
        return
    package, oldest = keys.manifest.package, keys.vocabulary.releases[0]
    candidates = config.releases.find_candidates(package)
    reason = f" ({' and '.join(candidates.reasons)})" if candidates.reasons else ""
    yield Report(
        f"keys not checked: {keys.manifest.title} is older here than {oldest}, the oldest known release{reason}",
        config.find_top(),
        help=f"pass `--release {package}={oldest}` or newer to check them against that release",
    )
