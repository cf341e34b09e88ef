"""REL002 newest-refuses: a configuration that only older releases of its framework accept.

## What it does
The release is not stated, and the configuration has keys that the newest one refuses; then it is checked against the
newest release that accepts them all, and this is reported once per file, with the keys. For LLaMA-Factory the same is
reported for the newest transformers that it allows, whose training arguments are its keys.

## Why is this bad?
The file works on the release that is used today. With the next upgrade the framework stops at these keys, after the job
has waited for its GPUs.

## Example
    base_model: meta-llama/Llama-3.2-3B
    fsdp:
      - full_shard
      - auto_wrap

## Use instead
    # cfglint: axolotl=0.19.0
    base_model: meta-llama/Llama-3.2-3B
    fsdp:
      - full_shard
      - auto_wrap

## When it does not apply
State the release that runs the configuration: with a pragma, in the settings, or by a pin in requirements.txt,
pyproject.toml, a lock file or a Dockerfile. OLMo-core's scripts choose classes, whose arguments Python itself
checks. `cfglint migrate --to axolotl=0.21.0` rewrites the keys. OpenRLHF's scripts have KEY002 for this. Keys that
are dropped silently are no evidence, and KEY002 reports them, too.

## References
docs/releases.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import counted
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys_in_use import Told
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Place

RULE: Final = Rule(
    "REL002",
    "newest-refuses",
    "info",
    scope="config",
)


def check(config: Config) -> Iterator[Report]:
    """At most one report for the framework's release, and one for that of transformers."""
    framework = frameworks.load(config.framework)
    keys = framework.keys
    if keys is None or not config.evidence.is_upstream or keys.outdated(config) is not None:
        return
    known = keys.vocabulary
    if _is_told(config, config.framework):
        found = keys.told(config.document, config.root, known.newest)
        if found is not None:
            yield _report(config, config.framework, framework.title, known.newest, found, keys.listed.package)
    beside = keys.listed.beside
    if beside is not None and _is_told(config, beside):
        newest = framework.installed(config.release).get(beside) or known.packages[beside][-1]
        found = keys.told(config.document, config.root, newest, beside)
        if found is not None and newest != config.releases.known[beside].version:
            yield _report(config, beside, beside, newest, found, beside)


def _is_told(config: Config, package: str) -> bool:
    """Whether the keys settled the release (an extra of the repository, too, is no more than a hint)."""
    release = config.releases.known.get(package)
    return release is not None and release.origin.kind == "inferred"


def _report(config: Config, known_as: str, title: str, newest: str, found: Told, package: str) -> Report:
    first, *others = found.refused
    place = Place(config.document, first.entry.key.span)
    held = config.releases.known[known_as]
    more = f"; {counted(len(others), 'more key')}" if others else ""
    return Report(
        f"{title} {newest} refuses this file ({first}{more}); it is checked against {held.version}",
        place,
        related=tuple(Related(Place(config.document, other.entry.key.span), f"{other}") for other in others),
        help=f"set `{package}=RELEASE`, or rewrite the file with `cfglint migrate --to {package}={newest}`",
    )
