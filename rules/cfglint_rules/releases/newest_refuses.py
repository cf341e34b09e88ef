"""REL002 newest-refuses: only older releases of the framework accept this configuration.

## What it does
Reports configurations with keys that the newest release rejects, if no release is stated. cfglint then checks the file
against the newest release that accepts all of its keys. It reports this once per file, with the rejected keys. The
options that every launch of the file passes count as its keys.

A fresh installation gets the newest release of the framework together with the newest transformers that this release
allows. Both releases decide, and one finding names them and all keys that they reject.

The finding is a warning if a fresh installation gets the release that rejects the keys. Otherwise it is an info, for
example if the requirements limit the framework to older releases, or install a commit of it.

For example, the keys of LLaMA-Factory and TRL include the training arguments of transformers. The rule therefore also
reports files that only the newest transformers release rejects.

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
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.key_usage import RefusedKey, ReleaseHint
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import assume_fresh_install
from cfglint_train.plan.origin import Place

RULE: Final = Rule("REL002", "newest-refuses", "warning", scope="config", rests_on_release=True, folds=True)


class _Refusal(Frozen):
    """A release of a package that rejects keys of a configuration."""

    package: str
    title: str
    release: str
    is_fresh: bool
    """True if a fresh installation gets this release."""
    hint: ReleaseHint


def check(config: Config) -> Iterator[Report]:
    """Yield a report if the newest releases of the framework and its secondary package, together, reject the config.

    The releases that a fresh installation gets have one report, and those that requirements exclude have another.
    """
    framework = frameworks.load(config.framework)
    keys = framework.keys
    if keys is None or not config.evidence.is_upstream or keys.report_outdated(config) is not None:
        return
    refusals = list(_list_refusals(config, framework, keys))
    for is_fresh in (True, False):
        together = [refusal for refusal in refusals if refusal.is_fresh is is_fresh]
        if together:
            yield _build_report(config, together)


def _list_refusals(config: Config, framework: Framework, keys: Keys) -> Iterator[_Refusal]:
    package, secondary = framework.manifest.package, keys.manifest.companion_package
    fresh_releases = {} if _is_checkout(config, framework) else config.releases.fresh_releases
    seen = set[Route]()
    for name in (package,) if secondary is None else (package, secondary):
        newest = fresh_releases.get(name) or _find_newest(config, framework, name)
        if not newest or newest == config.releases.by_package[name].version:
            continue
        hint = keys.infer_release(
            config.document,
            config.root,
            newest,
            None if name == package else secondary,
            config.evidence.launched_keys,
        )
        refused_keys = () if hint is None else tuple([key for key in hint.refused_keys if key.route not in seen])
        if hint is not None and refused_keys:
            seen.update(key.route for key in refused_keys)
            title = framework.title if name == package else name
            yield _Refusal(name, title, newest, name in fresh_releases, hint._replace(refused_keys=refused_keys))


def _is_checkout(config: Config, framework: Framework) -> bool:
    """Return whether a script starts the config with a file of a framework checkout, which may be at any release."""
    programs = (program.partition(" ")[0] for program in config.evidence.commands)
    return any(
        program.endswith(".py") and re.fullmatch("|".join(framework.manifest.program_patterns), program)
        for program in programs
    )


def _find_newest(config: Config, framework: Framework, package: str) -> str:
    """Return the newest known release of a package whose release is inferred, or an empty string for other packages.

    The newest release of the secondary package is the one that is installed with the framework's.
    """
    release, keys = config.releases.by_package.get(package), framework.keys
    # A release from an extra of the repository is inferred, too.
    if release is None or release.origin.kind != "inferred" or keys is None:
        return ""
    if package == framework.manifest.package:
        return keys.vocabulary.newest
    host_release = _find_newest(config, framework, framework.manifest.package) or config.release
    return framework.list_installed(host_release).get(package) or keys.vocabulary.packages[package][-1]


def _find_place(config: Config, key: RefusedKey) -> Place:
    return Place(*(key.script or config.document).locate_key(key.entry))


def _build_report(config: Config, refusals: list[_Refusal]) -> Report:
    main, is_joint = refusals[0], len(refusals) > 1
    first = main.hint.refused_keys[0]
    others = [(refusal, key) for refusal in refusals for key in refusal.hint.refused_keys if key is not first]
    subject = "file" if first.script is None else "launch"
    newest = " with ".join(f"{refusal.title} {refusal.release}" for refusal in refusals)
    remedy = f"rewrite the file with `cfglint migrate --to {main.package}={main.release}`"
    if first.script is not None:
        remedy = f"change the options of the launch for {newest}"
    more = f"; {format_count(len(others), 'more key')}" if others else ""
    by_package = config.releases.by_package
    checked = " with ".join(f"{refusal.title} {by_package[refusal.package].version}" for refusal in refusals)
    settings = " and ".join(f"`{refusal.package}=RELEASE`" for refusal in refusals)
    return Report(
        f"{newest} refuses this {subject} ({first}{more})"
        + ("" if is_joint else f"; it is checked against {by_package[main.package].version}"),
        _find_place(config, first),
        "warning" if main.is_fresh else "info",
        related=tuple(
            Related(_find_place(config, key), key.describe(refusal.title if is_joint else ""))
            for refusal, key in others
        ),
        help=f"set {settings}, or {remedy}",
        notes=(f"it is checked against {checked}",) if is_joint else (),
        grounds=tuple(
            assume_fresh_install(refusal.package, refusal.release) for refusal in refusals if refusal.is_fresh
        ),
    )
