"""KEY002 removed-key: other releases of the framework have this key, but the target release does not.

## What it does
Reports keys that were removed or renamed at or before the target release, and keys that were added after it. The
message names the release that changed the key. It also says whether the old name is refused, ignored or still mapped to
the new one.

- Keys that still work, or that some candidate release accepts, are merged into one finding per file and severity.
- If no release accepts all keys of the file, they are reported once, with the release that accepts most of them. It is
  a warning if the source between two consecutive releases may accept the conflicting keys.
- An OpenRLHF script without a stated release is reported once if newer releases would reject it. It is a warning if a
  fresh installation gets one of these releases and all flags are visible.

These are reported as well:

- keyword arguments that other releases of a TRL or transformers trainer accept (`tokenizer`, `processing_class`)
- names that a script imports from TRL or transformers, and that other releases export (`from trl import ORPOConfig`)
- keyword arguments of `LoraConfig` that the pinned PEFT does not have yet
- launch options of a script that its `HfArgumentParser` or `TrlParser` had in other releases, if all dataclasses of the
  parser are known and it accepts nothing else
- settings after a LLaMA-Factory file on the command line, which LLaMA-Factory rejects up to 0.9.2

## Why is this bad?
Most frameworks reject a removed key at launch. axolotl may silently ignore it instead, and the run continues with the
default.

## Symptoms
Renamed key, deprecated key, removed argument, `TypeError` for an unexpected keyword argument.

## Example
    # cfglint: axolotl=0.21.0
    fsdp_config:
      sharding_strategy: SHARD_GRAD_OP

## Use instead
    fsdp_config:
      reshard_after_forward: false

## Fix safety
A rename is safe if every candidate release replaces the old name with the new one and accepts the value. The value and
its comment stay. The fix also handles these cases:

- If one key was split into several, each new key gets the value.
- Values with a new spelling are translated.
- OpenRLHF's prompt and generation lengths are added up, because 0.9.8 expects the total.
- A keyword argument of a trainer moves to the call that accepts it, if its value is written in place.
- A flag that is now the default is removed.

Deleting a key without a replacement is unsafe. So is the move from FSDP1 to FSDP2 in axolotl: FSDP2 keeps weights and
optimizer states in 16 bits, FSDP1 in 32 bits.

## When it does not apply
State the release that runs the configuration (`# cfglint: axolotl=0.18.0`). Otherwise every candidate release counts
(docs/releases.md). A key that the newest candidate accepts is then only an info. A key that only older candidates
accept is a warning that names the release that changed it.

In LLaMA-Factory files, keys that transformers defines are checked against every transformers release that LLaMA-Factory
allows.

## References
docs/schemas.md; axolotl 0.21.0 `utils/schemas/validation.py` (check_fsdp_version); OpenRLHF commit ed62d0e2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import find_refused_keys, get_dotted_name
from cfglint_rules.vocabulary.effect_by_release import (
    ACCEPTED,
    build_release_grounds,
    find_candidate_releases,
    find_fact,
    is_true_for_all_releases,
)
from cfglint_rules.vocabulary.handed import report_removed as handed
from cfglint_rules.vocabulary.launched import LaunchedSetting, list_launched_settings
from cfglint_rules.vocabulary.survey import (
    REFUSED,
    KeyOccurrence,
    get_checked_keys,
    get_context,
    get_target_release,
    get_vocabulary,
)
from cfglint_rules.vocabulary.values import format_value, is_accepted
from cfglint_rules.vocabulary.verdicts import Verdict, get_secondary_package, list_verdicts
from cfglint_schemas.status import Status, split_route
from cfglint_train.documents.document import MISSING, Change, Delete, Route, Set, Unknown
from cfglint_train.findings.finding import APPLICABILITIES, SEVERITIES, Fix, Related, Report, Severity
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import join_names
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.key_usage import KeyUse
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.origin import Place
from cfglint_train.plan.releases import BestRelease

RULE: Final = Rule(
    "KEY002",
    "removed-key",
    "error",
    scope="config",
    fix="safe",
    refuses=True,
    rests_on_vocabulary=True,
    tag="deprecated",
)

_MAX_LISTED_KEYS: Final = 3
"""Maximum number of keys that a merged message lists."""

_EFFECT_PHRASES: Final = {
    "dropped": "it is silently ignored",
    "warning": "it is ignored with a warning",
    "error": "it is refused",
    "mapped": "the old name still works",
}


def check(config: Config) -> Iterator[Report]:
    """Yield the reports on keys of other releases; none if a fork may be in use.

    Keys that no release accepts together give one report. A key with a consequence at every candidate release has its
    own report. The remaining keys are merged into one report per severity.
    """
    if config.evidence.fork is not None:
        return
    for setting in list_launched_settings(config, "gone"):
        yield _report_launched(config, setting)
    yield from handed(config)
    keys = get_checked_keys(config)
    if keys is None:
        return
    outdated = keys.report_outdated(config)
    if outdated is not None:
        yield Report(outdated.message, outdated.place, outdated.severity, help=outdated.help, grounds=outdated.grounds)
    best_candidate = find_candidate_releases(config).best
    if best_candidate is not None:
        yield _report_torn(config, best_candidate)
    refused_by_fresh = config.compute_once(_find_refused_by_fresh)
    outdated_reports, refused = (
        [],
        find_refused_keys(config, (verdict.occurrence for verdict in list_verdicts(config, "gone"))),
    )
    for verdict in list_verdicts(config, "gone"):
        report = _build_report(verdict)
        if not verdict.outcome.is_uniform and verdict.occurrence.route in refused_by_fresh:
            report = report._replace(severity="info")
        if verdict.outcome.is_uniform and report.severity != "info":
            yield report
        elif (best_candidate is None or verdict.outcome.is_uniform) and get_dotted_name(
            verdict.occurrence
        ) not in refused:
            outdated_reports.append(report)
    for severity in SEVERITIES:
        same_severity = [report for report in outdated_reports if report.severity == severity]
        if same_severity:
            yield _merge_reports(same_severity)


def _report_launched(config: Config, setting: LaunchedSetting) -> Report:
    """Return the report on a launch override that the effective release does not have."""
    target_release, status = get_target_release(config), setting.status
    since = f" {status.since}" if status is not None and status.since else ""
    is_too_new = status is not None and status.kind == "not yet"
    new_names = () if status is None else status.new_names
    is_renamed = len(new_names) == 1 and "." not in new_names[0]  # a dotted name belongs to another class
    change = f"was renamed to `{new_names[0]}`" if is_renamed else "was removed"
    reason = (
        f"needs {target_release.title}{since}, not {target_release.release}"
        if is_too_new
        else f"{change} in {target_release.title}{since}"
    )
    return Report(
        f"`{setting.name}` {reason}: {setting.effects.describe()}",
        setting.place,
        setting.effects.limit_severity("error"),
        notes=(f"the same holds for {join_names([f'`{name}`' for name in setting.also])}",) if setting.also else (),
        grounds=setting.effects.grounds,
    )


def _find_refused_by_fresh(config: Config) -> frozenset[Route]:
    """Return the keys that the releases of a fresh installation reject; REL002 reports them."""
    keys, manifest = get_checked_keys(config), load(config.framework).manifest
    hints = [
        keys.infer_release(config.document, config.root, newest, None if package == manifest.package else package)
        for package in (manifest.package, manifest.companion_package)
        if keys is not None and (newest := config.releases.fresh_releases.get(package or ""))
    ]
    return frozenset(use.route for hint in hints if hint is not None for use in hint.refused_keys)


def refused(config: Config) -> Iterator[str]:
    """Yield the messages for keys that stop the framework at every candidate release; none if a fork may be in use."""
    for verdict in list_verdicts(config, "gone") if config.evidence.fork is None else ():
        if verdict.outcome.effects == {REFUSED}:
            yield f"{get_target_release(config).name} has no `{verdict.occurrence.name}`"


def _report_torn(config: Config, best: BestRelease) -> Report:
    """Return the report on keys that no release accepts together.

    It points at a key that the best release lacks, and names a second key that no release accepts together with it.
    """
    keys, candidates = get_checked_keys(config), find_candidate_releases(config)
    assert keys is not None
    uses = [use for use in keys.find_used_keys(config.document, config.root) if use.entry is not None]
    lost_uses = [
        use
        for use in uses
        if not use.is_accepted_by(best.release) and any(map(use.is_accepted_by, candidates.releases))
    ]
    pairs = ((key_use, other) for key_use in lost_uses for other in uses if other.is_accepted_by(best.release))
    releases = candidates.releases
    conflicting = [
        pair for pair in pairs if not any(all(use.is_accepted_by(release) for use in pair) for release in releases)
    ]
    distant = (pair for pair in conflicting if _find_neighbours(*pair, releases) is None)
    lost_use, rival = next(distant, conflicting[0] if conflicting else (lost_uses[0], None))
    assert lost_use.entry is not None
    related: tuple[Related, ...] = ()
    names = "all keys of this file"
    if rival is not None and rival.entry is not None:
        names = f"`{format_route(lost_use.route)}` and `{format_route(rival.route)}` together"
        related = (Related(Place(*config.document.locate_key(rival.entry)), f"`{format_route(rival.route)}` is here"),)
    neighbours = None if rival is None else _find_neighbours(lost_use, rival, releases)
    unreleased: tuple[Ground, ...] = ()
    if neighbours is not None:
        between = " and ".join(neighbours)
        note = f"a release of {get_target_release(config).title}: its source between {between} may take both"
        unreleased = (Ground(f"release:{candidates.package}", best.release, "assumed", note),)
    effect = keys.determine_effect(REFUSED, lost_use.route, config.get(*lost_use.route), config, best.release)
    return Report(
        f"no {get_target_release(config).title} release accepts {names}; {best.release} accepts "
        f"{best.accepted_keys} of {best.used_keys}",
        Place(*config.document.locate_key(lost_use.entry)),
        "error" if effect == REFUSED else "warning",
        related=related,
        help=f"use the names of one release, and set it: `{keys.manifest.package}={best.release}`",
        grounds=(*build_release_grounds(candidates, is_uniform=True), *unreleased),
    )


def _find_neighbours(use: KeyUse, other: KeyUse, releases: tuple[str, ...]) -> tuple[str, str] | None:
    """Return two consecutive releases if either accepts one of the keys and its neighbor the other, or None."""
    for before, after in pairwise(releases):
        if (use.is_accepted_by(before) and other.is_accepted_by(after)) or (
            other.is_accepted_by(before) and use.is_accepted_by(after)
        ):
            return before, after
    return None


def _merge_reports(reports: list[Report]) -> Report:
    """Return one report that combines several reports on keys of other releases."""
    first, *others = reports
    if not others:
        return first
    listed = "; ".join(report.message for report in reports[:_MAX_LISTED_KEYS])
    more = f"; and {len(reports) - _MAX_LISTED_KEYS} more" if len(reports) > _MAX_LISTED_KEYS else ""
    fixes = [report.fix for report in reports if report.fix is not None]
    related = tuple(Related(report.place, report.message) for report in others)
    return first._replace(
        message=f"{len(reports)} keys belong to other releases: {listed}{more}",
        related=related,
        fix=_join_fixes(fixes),
        grounds=next((report.grounds for report in reports if not _is_certain(report.grounds)), first.grounds),
    )


def _join_fixes(fixes: list[Fix]) -> Fix | None:
    """Return one fix that combines the fixes that are safe at any release, or all fixes if there are none of these.

    The combined fix is as safe as its least safe part. Return None without fixes.
    """
    joined = [fix for fix in fixes if fix.applicability == "safe" and _is_certain(fix.grounds)] or fixes
    if not joined:
        return None
    changes = tuple(change for fix in joined for _, changed in fix.keys for change in changed)
    message = "; ".join(fix.message for fix in joined)
    mildest = max((fix.applicability for fix in joined), key=APPLICABILITIES.index)
    all_grounds = next((fix.grounds for fix in joined if not _is_certain(fix.grounds)), joined[0].grounds)
    return Fix(mildest, message, keys=((joined[0].keys[0][0], changes),), grounds=all_grounds)


def _is_certain(all_grounds: tuple[Ground, ...]) -> bool:
    return all(ground.grade != "assumed" for ground in all_grounds)


def _build_report(verdict: Verdict) -> Report:
    occurrence, status, outcome = verdict.occurrence, verdict.status, verdict.outcome
    keys, effect = get_checked_keys(occurrence.config), verdict.effect
    severity: Severity = {"error": "error", "mapped": "info"}.get(effect, "warning")  # type: ignore[assignment]
    if effect == "dropped" and (occurrence.value is False or occurrence.value in ("", [], {})):
        severity = "info"  # an empty or false value requests nothing
    fix = _build_fix(occurrence, status)
    if fix is not None:
        fix = fix._replace(grounds=build_release_grounds(outcome.candidates, _is_same_everywhere(occurrence, status)))
    if fix is not None and status.kind == "removed" and effect == "dropped":
        fix = fix._replace(is_inert=True)
    effect_text = _EFFECT_PHRASES[effect] if outcome.is_uniform or ACCEPTED in outcome.effects else outcome.describe()
    return Report(
        f"{_describe_status(occurrence, status)}: {effect_text}",
        occurrence.place,
        outcome.limit_severity(severity),
        fix,
        help=None if keys is None or occurrence.fact is None else keys.words.gone.get(occurrence.fact.name),
        grounds=outcome.grounds,
    )


def _describe_status(occurrence: KeyOccurrence, status: Status) -> str:
    fact, target_release, secondary = (
        occurrence.fact,
        get_target_release(occurrence.config),
        get_secondary_package(occurrence.config),
    )
    package = secondary if secondary and fact is not None and fact.package == secondary else target_release.title
    since = f" {status.since}" if status.since else ""
    name, framework_vocabulary = occurrence.name, get_vocabulary(occurrence.config)
    if status.kind == "not yet":
        release = (
            target_release.release
            if package == target_release.title
            else get_context(occurrence.config).releases.get(package)
        )
        return f"`{name}` needs {package}{since}" + (f", not {release}" if release else "")
    # The vocabulary starts at its first release, so an earlier change has no known release.
    release_text = (
        ""
        if framework_vocabulary is None or status.since == framework_vocabulary.releases[0]
        else f" in {package}{since}"
    )
    if status.kind == "renamed" and status.new_names:
        new = " and ".join(f"`{format_route(split_route(to))}`" for to in status.new_names)
        return f"`{name}` was renamed to {new}{release_text or f' in {package}'}"
    return f"`{name}` was removed{release_text or f' from {package}'}"


def _is_same_everywhere(occurrence: KeyOccurrence, status: Status) -> bool:
    """Return whether the key has the same status and replacement in every candidate release."""
    if status.kind != "renamed":
        return is_true_for_all_releases(occurrence, lambda release: _has_status(occurrence, status.kind, release))
    settings = _translate_values(occurrence, status)
    return settings is not None and is_true_for_all_releases(
        occurrence,
        lambda release: _has_same_rename(occurrence, status, release) and _is_accepted(occurrence, settings, release),
    )


def _has_status(occurrence: KeyOccurrence, kind: str, release: str) -> bool:
    fact = find_fact(occurrence, release)
    return fact is not None and fact.resolve_status().kind == kind


def _has_same_rename(occurrence: KeyOccurrence, status: Status, release: str) -> bool:
    """Return whether a release renames the key to the same names with the same value cases."""
    fact = find_fact(occurrence, release)
    other_status = None if fact is None else fact.resolve_status()
    return other_status is not None and (other_status.kind, other_status.new_names, other_status.cases) == (
        "renamed",
        status.new_names,
        status.cases,
    )


def _build_fix(occurrence: KeyOccurrence, status: Status) -> Fix | None:
    if occurrence.is_overridden or status.kind == "not yet":
        return None
    if status.kind == "renamed":
        return _build_rename(occurrence, status)
    keys = get_checked_keys(occurrence.config)
    if keys is not None and occurrence.route in keys.rewrites:
        rewrite = keys.rewrites[occurrence.route](occurrence.config)
        return (
            None
            if rewrite is None
            else _wrap_changes(occurrence, rewrite.applicability, rewrite.message, rewrite.changes)
        )
    return _wrap_changes(occurrence, "unsafe", f"remove `{occurrence.name}`", [_build_deletion(occurrence)])


def _wrap_changes(occurrence: KeyOccurrence, applicability: Any, message: str, changes: Iterable[Change]) -> Fix:
    return Fix(applicability, message, keys=((occurrence.config, tuple(changes)),))


def _build_deletion(occurrence: KeyOccurrence) -> Change:
    return Delete((*occurrence.config.root, *occurrence.route))


def _build_rename(occurrence: KeyOccurrence, status: Status) -> Fix | None:
    """Return the fix that writes the new names, or removes the old name if all new names are already set.

    None if the value has no equivalent, if only some new names are set, or if a new name rejects the value.
    """
    from cfglint_rules.vocabulary.renames import can_move, move_key  # few keys are renamed

    config = occurrence.config
    settings = _translate_values(occurrence, status)
    if settings is None:
        return None
    if not settings:
        return _wrap_changes(
            occurrence, "safe", f"remove `{occurrence.name}`, which is the default now", [_build_deletion(occurrence)]
        )
    values_in_file = {name: config.get_value(*split_route(name)) for name in settings}
    if not str(occurrence.route[0]).startswith("-") and all(value is not MISSING for value in values_in_file.values()):
        return _build_removal(occurrence, settings, values_in_file)
    additional = {name: value for name, value in status.required_values.items() if not config.has(*split_route(name))}
    if not all(can_move(config, split_route(name)) for name in settings) or not _is_accepted(
        occurrence, {**settings, **additional}
    ):
        return None
    changes: list[Change] = []
    for name, value in settings.items():
        route = split_route(name)
        if changes or (route[:-1] != occurrence.route[:-1] and len(settings) > 1):
            changes.append(Set((*config.root, *route), value, (_get_last_name(occurrence), str(route[-1]))))
        else:
            changes += move_key(config, occurrence.route, route, value)
    if len(settings) > 1 and not any(getattr(change, "key", None) for change in changes):
        changes.insert(0, _build_deletion(occurrence))
    changes += [
        Set((*config.root, *split_route(name)), value, (_get_last_name(occurrence),))
        for name, value in additional.items()
    ]
    description = ", ".join(
        format_route(split_route(name))
        + ("" if value is MISSING else f": {format_value(value)}" if status.cases or status.addends else "")
        for name, value in {**settings, **additional}.items()
    )
    return _wrap_changes(occurrence, "safe", f"rename {occurrence.name} to {description}", changes)


def _build_removal(occurrence: KeyOccurrence, settings: Mapping[str, Any], values_in_file: Mapping[str, Any]) -> Fix:
    """Return the fix that removes the old name because all new names are set: safe if their values agree."""
    new_values = {name: occurrence.value if value is MISSING else value for name, value in settings.items()}
    names = " and ".join(f"`{format_route(split_route(name))}`" for name in values_in_file)
    verb = "has" if len(values_in_file) == 1 else "have"
    if new_values == values_in_file:
        return _wrap_changes(
            occurrence,
            "safe",
            f"remove `{occurrence.name}`: {names} {verb} the same value",
            [_build_deletion(occurrence)],
        )
    return _wrap_changes(
        occurrence, "unsafe", f"remove `{occurrence.name}`: {names} {verb} another value", [_build_deletion(occurrence)]
    )


def _get_last_name(occurrence: KeyOccurrence) -> str:
    return str(occurrence.route[-1])


def _translate_values(occurrence: KeyOccurrence, status: Status) -> Mapping[str, Any] | None:
    """Return the new names and their values, or None if the old value has no equivalent.

    MISSING stands for the old value as written. An empty mapping means that the old value is now the default.
    """
    value = occurrence.value
    if status.cases:
        case = next(
            (
                candidate
                for candidate in status.cases
                if candidate.old_value == value and type(candidate.old_value) is type(value)
            ),
            None,
        )
        return None if case is None else case.new_values
    if status.addends:
        keys = get_checked_keys(occurrence.config)
        total = None if keys is None else keys.sum_settings(occurrence.config, status.addends)
        return None if total is None else dict.fromkeys(status.new_names, total)
    if len(status.new_names) == 1:
        return {status.new_names[0]: MISSING}
    if isinstance(value, Unknown) or (isinstance(value, list) and any(isinstance(item, Unknown) for item in value)):
        return None
    return dict.fromkeys(status.new_names, value)


def _is_accepted(occurrence: KeyOccurrence, settings: Mapping[str, Any], release: str | None = None) -> bool:
    """Return whether the new names exist at a release (None: the effective one), accept the values and are current."""
    config, framework_vocabulary = occurrence.config, get_vocabulary(occurrence.config)
    if framework_vocabulary is None:
        return False
    loader = load(config.framework).loader
    for name, value in settings.items():
        route: Route = split_route(name)
        if release is None:
            fact = framework_vocabulary.find_fact(route, get_target_release(config).release, get_context(config))
        else:
            fact = find_fact(occurrence, release, route)
        new_value = occurrence.value if value is MISSING else value
        if fact is None or fact.resolve_status().kind not in ("present", "ignored") or fact.is_deprecated:
            return False
        if not is_accepted(fact.get_schema(), new_value, loader):
            return False
    return True
