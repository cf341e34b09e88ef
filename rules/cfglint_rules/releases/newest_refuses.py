"""REL002 newest-refuses: only older releases of the framework accept this configuration.

## What it does
Reports configurations with keys that the newest release rejects, if no release is stated. cfglint then checks the file
against the newest release that accepts all of its keys. It reports this once per file, with the rejected keys. The
options that every launch of the file passes count as its keys.

The finding is a warning if a fresh installation gets the release that rejects the keys. Otherwise it is an info, for
example if the requirements limit the framework to older releases.

LLaMA-Factory's keys include the training arguments of transformers. The rule therefore also reports files that would be
rejected by the newest transformers release that LLaMA-Factory allows.

## Why is this bad?
The file works with the release that its author used. After a fresh installation or the next upgrade, the framework
stops at these keys, after the job has waited for its GPUs.

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
State the release that runs the configuration: with a pragma, in the settings, or with a pin in requirements.txt,
pyproject.toml, a lock file or a Dockerfile. To rewrite the keys instead, run `cfglint migrate --to axolotl=0.21.0`.

OLMo-core scripts are not reported, because Python itself checks the arguments of the classes they use. For OpenRLHF
scripts, KEY002 reports this. Keys that are silently dropped do not count here; KEY002 reports them.

## References
docs/releases.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.key_usage import RefusedKey, ReleaseHint
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import assume_fresh_install
from cfglint_train.plan.origin import Place

RULE: Final = Rule("REL002", "newest-refuses", "warning", scope="config", rests_on_release=True, folds=True)


def check(config: Config) -> Iterator[Report]:
    """Yield a report for the framework and one for its secondary package if their newest releases reject the config."""
    framework = frameworks.load(config.framework)
    keys = framework.keys
    if keys is None or not config.evidence.is_upstream or keys.report_outdated(config) is not None:
        return
    framework_package, secondary = framework.manifest.package, keys.manifest.companion_package
    for package in (framework_package,) if secondary is None else (framework_package, secondary):
        fresh_release = None if _is_checkout(config, framework) else config.releases.fresh_releases.get(package)
        newest = fresh_release or _find_newest(config, framework, package)
        hint = (
            keys.infer_release(
                config.document,
                config.root,
                newest,
                None if package == framework_package else secondary,
                config.evidence.launched_keys,
            )
            if newest
            else None
        )
        if hint is not None and newest != config.releases.by_package[package].version:
            yield _build_report(
                config,
                package,
                framework.title if package == framework_package else package,
                newest,
                hint,
                bool(fresh_release),
            )


def _is_checkout(config: Config, framework: Framework) -> bool:
    """Return whether a script starts the config with a file of a framework checkout, which may be at any release."""
    programs = (program.partition(" ")[0] for program in config.evidence.commands)
    return any(
        program.endswith(".py") and re.fullmatch("|".join(framework.manifest.program_patterns), program)
        for program in programs
    )


def _find_newest(config: Config, framework: Framework, package: str) -> str:
    """Return the newest known release of a package whose release is inferred, or an empty string for other packages."""
    release, keys = config.releases.by_package.get(package), framework.keys
    # A release from an extra of the repository is inferred, too.
    if release is None or release.origin.kind != "inferred" or keys is None:
        return ""
    if package == framework.manifest.package:
        return keys.vocabulary.newest
    return framework.list_installed(config.release).get(package) or keys.vocabulary.packages[package][-1]


def _find_place(config: Config, key: RefusedKey) -> Place:
    return Place(*(key.script or config.document).locate_key(key.entry))


def _build_report(config: Config, package: str, title: str, newest: str, hint: ReleaseHint, is_fresh: bool) -> Report:
    first, *others = hint.refused_keys
    subject = "file" if first.script is None else "launch"
    checked_release = config.releases.by_package[package]
    remedy = f"rewrite the file with `cfglint migrate --to {package}={newest}`"
    if first.script is not None:
        remedy = f"change the options of the launch for {title} {newest}"
    more = f"; {format_count(len(others), 'more key')}" if others else ""
    return Report(
        f"{title} {newest} refuses this {subject} ({first}{more}); it is checked against {checked_release.version}",
        _find_place(config, first),
        "warning" if is_fresh else "info",
        related=tuple(Related(_find_place(config, other), f"{other}") for other in others),
        help=f"set `{package}=RELEASE`, or {remedy}",
        grounds=(assume_fresh_install(package, newest),) if is_fresh else (),
    )
