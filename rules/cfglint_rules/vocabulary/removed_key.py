"""KEY002 removed-key: a key that the framework has in other releases, but not in the target release.

## What it does
Reports keys that were removed or renamed before the target release, and those that came after it, with the release
that made the difference and what becomes of the old name: refused, dropped, or still mapped to the new one. Keys that
still work, or that one of the releases in question still takes, are listed once per file. Keys that no release takes
together are reported once, with the release that takes most of them; a warning where the source between two releases
may take them. An OpenRLHF script without a stated release is reported once where newer releases would refuse it: a
warning where a fresh installation gets such a release and all of its flags are in sight. Keywords that only older
trainers of TRL took (`tokenizer`,
`max_seq_length`) are reported as well, and keywords of `LoraConfig` that the pinned PEFT does not have yet; so are
settings behind LLaMA-Factory's file, which it refuses up to 0.9.2.

## Why is this bad?
A renamed key is either refused at launch or, in axolotl, silently ignored, and the run goes on with the
default.

## Example
    # cfglint: axolotl=0.21.0
    fsdp_config:
      sharding_strategy: SHARD_GRAD_OP

## Use instead
    fsdp_config:
      reshard_after_forward: false

## Fix safety
A rename is safe where every release in question has the new name for the old one: value and comment stay. Several new
names each take the value, old values are translated, and OpenRLHF's prompt and generation lengths are added up to the
total that 0.9.8 asks for. A keyword of a trainer moves to the call that takes it where its value is written there. A
flag whose meaning is the default now is removed. Deleting a key that has no successor is unsafe, and so is axolotl's
way from FSDP1 to FSDP2, which keeps weights and optimizer states in 16 bits where FSDP1 had 32.

## When it does not apply
State the release that runs the configuration (`# cfglint: axolotl=0.18.0`). Without one every candidate release counts
(docs/releases.md): a key that the newest takes is information, and one that only older releases take is a warning, with
the release that made the difference. Keys of transformers in LLaMA-Factory's files are checked against every
transformers that its releases allow.

## References
docs/schemas.md; axolotl 0.21.0 `utils/schemas/validation.py` (check_fsdp_version); OpenRLHF commit ed62d0e2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import dotted, refusals_of
from cfglint_rules.vocabulary.effect_by_release import FINE, everywhere, fact_at, grounds, window_of
from cfglint_rules.vocabulary.handed import gone as handed
from cfglint_rules.vocabulary.launched import Given, given
from cfglint_rules.vocabulary.renames import may_move, moved
from cfglint_rules.vocabulary.survey import REFUSED, KeyOccurrence, context, keys_of, target, vocabulary
from cfglint_rules.vocabulary.values import fits, shown
from cfglint_rules.vocabulary.verdicts import Verdict, package_beside, verdicts
from cfglint_schemas.status import Status, parts_of
from cfglint_train.documents.document import MISSING, Change, Delete, Route, Set, Unknown
from cfglint_train.findings.finding import APPLICABILITIES, SEVERITIES, Fix, Related, Report, Severity
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.key_usage import KeyUse
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.origin import Place
from cfglint_train.plan.releases import Best

RULE: Final = Rule("KEY002", "removed-key", "error", scope="config", fix="safe", refuses=True, rests_on_vocabulary=True)

_LISTED: Final = 3
"""Keys that one message names."""

_OUTCOMES: Final = {
    "dropped": "it is silently ignored",
    "warning": "it is ignored with a warning",
    "error": "it is refused",
    "mapped": "the old name still works",
}


def check(config: Config) -> Iterator[Report]:
    """One report for keys that no release takes together, one per key that is lost, one for those out of date; none
    where a fork may be in use.
    """
    if config.evidence.fork is not None:
        return
    for one in given(config, "gone"):
        yield _launched(config, one)
    yield from handed(config)
    keys = keys_of(config)
    if keys is None:
        return
    outdated = keys.outdated(config)
    if outdated is not None:
        yield Report(outdated.message, outdated.place, outdated.severity, help=outdated.help, grounds=outdated.grounds)
    best = window_of(config).best
    if best is not None:
        yield _torn(config, best)
    fresh = config.once(_refused_freshly)
    dated, refused = [], refusals_of(config, (gone.sighting for gone in verdicts(config, "gone")))
    for gone in verdicts(config, "gone"):
        report = _report(gone)
        if not gone.outcome.agreed and gone.sighting.route in fresh:
            report = report._replace(severity="info")
        if gone.outcome.agreed and report.severity != "info":
            yield report
        elif (best is None or gone.outcome.agreed) and dotted(gone.sighting) not in refused:
            dated.append(report)
    for severity in SEVERITIES:
        alike = [report for report in dated if report.severity == severity]
        if alike:
            yield _folded(alike)


def _launched(config: Config, one: Given) -> Report:
    """A setting of a launch that the release which counts does not have."""
    held, status = target(config), one.status
    since = f" {status.since}" if status is not None and status.since else ""
    ahead = status is not None and status.kind == "not yet"
    to = () if status is None else status.to
    renamed = len(to) == 1 and "." not in to[0]  # with a dot it is another class's
    became = f"was renamed to `{to[0]}`" if renamed else "was removed"
    why = f"needs {held.title}{since}, not {held.release}" if ahead else f"{became} in {held.title}{since}"
    return Report(
        f"`{one.name}` {why}: {one.releases.said()}",
        one.place,
        one.releases.milder("error"),
        grounds=one.releases.grounds,
    )


def _refused_freshly(config: Config) -> frozenset[Route]:
    """The keys that stop what a fresh installation gets: REL002 reports them."""
    keys, package = keys_of(config), load(config.framework).listed.package
    newest = config.releases.fresh.get(package)
    found = None if keys is None or newest is None else keys.told(config.document, config.root, newest)
    return frozenset(() if found is None else (one.route for one in found.refused))


def refused(config: Config) -> Iterator[str]:
    """The keys that stop the framework."""
    for gone in verdicts(config, "gone") if config.evidence.fork is None else ():
        if gone.outcome.effects == {REFUSED}:
            yield f"{target(config).name} has no `{gone.sighting.name}`"


def _torn(config: Config, best: Best) -> Report:
    """Keys that no release takes together: one that the best release lacks, and one that keeps others from being it."""
    keys, window = keys_of(config), window_of(config)
    assert keys is not None
    uses = [use for use in keys.in_use(config.document, config.root) if use.entry is not None]
    lacking = [use for use in uses if not use.takes(best.release) and any(map(use.takes, window.releases))]
    pairs = ((one, other) for one in lacking for other in uses if other.takes(best.release))
    releases = window.releases
    apart = [pair for pair in pairs if not any(all(use.takes(at) for use in pair) for at in releases)]
    far = (pair for pair in apart if _between(*pair, releases) is None)
    lost, rival = next(far, apart[0] if apart else (lacking[0], None))
    assert lost.entry is not None
    related: tuple[Related, ...] = ()
    names = "all keys of this file"
    if rival is not None and rival.entry is not None:
        names = f"`{spelled(lost.route)}` and `{spelled(rival.route)}` together"
        related = (Related(Place(config.document, rival.entry.key.span), f"`{spelled(rival.route)}` is here"),)
    between = None if rival is None else _between(lost, rival, releases)
    unreleased: tuple[Ground, ...] = ()
    if between is not None:
        note = f"a release of {target(config).title}: its source between {' and '.join(between)} may take both"
        unreleased = (Ground(f"release:{window.package}", best.release, "assumed", note),)
    effect = keys.effect(REFUSED, lost.route, config.get(*lost.route), config, best.release)
    return Report(
        f"no {target(config).title} release takes {names}; {best.release} takes {best.taken} of {best.given}",
        Place(config.document, lost.entry.key.span),
        "error" if effect == REFUSED else "warning",
        related=related,
        help=f"keep the names of one release, and set it: `{keys.listed.package}={best.release}`",
        grounds=(*grounds(window, agreed=True), *unreleased),
    )


def _between(one: KeyUse, other: KeyUse, releases: tuple[str, ...]) -> tuple[str, str] | None:
    """Two neighbouring releases of which each takes another one of two keys; None where there are none."""
    for before, after in pairwise(releases):
        if (one.takes(before) and other.takes(after)) or (other.takes(before) and one.takes(after)):
            return before, after
    return None


def _folded(reports: list[Report]) -> Report:
    """Keys of other releases as one finding."""
    first, *others = reports
    if not others:
        return first
    listed = "; ".join(report.message for report in reports[:_LISTED])
    more = f"; and {len(reports) - _LISTED} more" if len(reports) > _LISTED else ""
    fixes = [report.fix for report in reports if report.fix is not None]
    related = tuple(Related(report.place, report.message) for report in others)
    return first._replace(
        message=f"{len(reports)} keys are of other releases: {listed}{more}",
        related=related,
        fix=_joined(fixes),
        grounds=next((report.grounds for report in reports if not _is_certain(report.grounds)), first.grounds),
    )


def _joined(fixes: list[Fix]) -> Fix | None:
    """The fixes that are safe whatever the release as one; all of them where there is none."""
    joined = [fix for fix in fixes if fix.applicability == "safe" and _is_certain(fix.grounds)] or fixes
    if not joined:
        return None
    changes = tuple(change for fix in joined for _, changed in fix.keys for change in changed)
    message = "; ".join(fix.message for fix in joined)
    mildest = max((fix.applicability for fix in joined), key=APPLICABILITIES.index)
    on = next((fix.grounds for fix in joined if not _is_certain(fix.grounds)), joined[0].grounds)
    return Fix(mildest, message, keys=((joined[0].keys[0][0], changes),), grounds=on)


def _is_certain(on: tuple[Ground, ...]) -> bool:
    return all(ground.grade != "assumed" for ground in on)


def _report(gone: Verdict) -> Report:
    sighting, status, outcome = gone.sighting, gone.status, gone.outcome
    keys, effect = keys_of(sighting.config), gone.effect
    severity: Severity = {"error": "error", "mapped": "info"}.get(effect, "warning")  # type: ignore[assignment]
    if effect == "dropped" and (sighting.value is False or sighting.value in ("", [], {})):
        severity = "info"  # nothing is lost
    fix = _fix(sighting, status)
    if fix is not None:
        fix = fix._replace(grounds=grounds(outcome.window, _same_everywhere(sighting, status)))
    if fix is not None and status.kind == "removed" and effect == "dropped":
        fix = fix._replace(inert=True)
    becomes = _OUTCOMES[effect] if outcome.agreed or FINE in outcome.effects else outcome.said()
    return Report(
        f"{_worded(sighting, status)}: {becomes}",
        sighting.place,
        outcome.milder(severity),
        fix,
        help=None if keys is None or sighting.fact is None else keys.words.gone.get(sighting.fact.name),
        grounds=outcome.grounds,
    )


def _worded(sighting: KeyOccurrence, status: Status) -> str:
    fact, held, beside = sighting.fact, target(sighting.config), package_beside(sighting.config)
    package = beside if beside and fact is not None and fact.package == beside else held.title
    since = f" {status.since}" if status.since else ""
    name, known = sighting.name, vocabulary(sighting.config)
    if status.kind == "not yet":
        release = held.release if package == held.title else context(sighting.config).releases.get(package)
        return f"`{name}` needs {package}{since}" + (f", not {release}" if release else "")
    # What was so before the first release that is known has no known beginning.
    when = "" if known is None or status.since == known.releases[0] else f" in {package}{since}"
    if status.kind == "renamed" and status.to:
        new = " and ".join(f"`{spelled(parts_of(to))}`" for to in status.to)
        return f"`{name}` was renamed to {new}{when or f' in {package}'}"
    return f"`{name}` was removed{when or f' from {package}'}"


def _same_everywhere(sighting: KeyOccurrence, status: Status) -> bool:
    """Whether every candidate release has the new names for the old one, and takes the values."""
    if status.kind != "renamed":
        return everywhere(sighting, lambda release: _is(sighting, status.kind, release))
    settings = _translated(sighting, status)
    return settings is not None and everywhere(
        sighting, lambda release: _renames(sighting, status, release) and _take(sighting, settings, release)
    )


def _is(sighting: KeyOccurrence, kind: str, release: str) -> bool:
    fact = fact_at(sighting, release)
    return fact is not None and fact.status().kind == kind


def _renames(sighting: KeyOccurrence, status: Status, release: str) -> bool:
    """Whether the same new names stand for the old one at a release."""
    fact = fact_at(sighting, release)
    there = None if fact is None else fact.status()
    return there is not None and (there.kind, there.to, there.cases) == ("renamed", status.to, status.cases)


def _fix(sighting: KeyOccurrence, status: Status) -> Fix | None:
    if sighting.overridden or status.kind == "not yet":
        return None
    if status.kind == "renamed":
        return _renamed(sighting, status)
    keys = keys_of(sighting.config)
    if keys is not None and sighting.route in keys.rewrites:
        found = keys.rewrites[sighting.route](sighting.config)
        return None if found is None else _fixed(sighting, found.applicability, found.message, found.changes)
    return _fixed(sighting, "unsafe", f"remove `{sighting.name}`", [_delete(sighting)])


def _fixed(sighting: KeyOccurrence, applicability: Any, message: str, changes: Iterable[Change]) -> Fix:
    return Fix(applicability, message, keys=((sighting.config, tuple(changes)),))


def _delete(sighting: KeyOccurrence) -> Change:
    return Delete((*sighting.config.root, *sighting.route))


def _renamed(sighting: KeyOccurrence, status: Status) -> Fix | None:
    """The new names with their values. None where one of them is taken or does not take the value."""
    config = sighting.config
    settings = _translated(sighting, status)
    if settings is None:
        return None
    if not settings:
        return _fixed(sighting, "safe", f"remove `{sighting.name}`, which is the default now", [_delete(sighting)])
    stated = {name: config.value(*parts_of(name)) for name in settings}
    if not str(sighting.route[0]).startswith("-") and all(value is not MISSING for value in stated.values()):
        return _given_already(sighting, settings, stated)
    beside = {name: value for name, value in status.also.items() if not config.has(*parts_of(name))}
    if not all(may_move(config, parts_of(name)) for name in settings) or not _take(sighting, {**settings, **beside}):
        return None
    changes: list[Change] = []
    for name, value in settings.items():
        route = parts_of(name)
        if changes or (route[:-1] != sighting.route[:-1] and len(settings) > 1):
            changes.append(Set((*config.root, *route), value, (_own(sighting), str(route[-1]))))
        else:
            changes += moved(config, sighting.route, route, value)
    if len(settings) > 1 and not any(getattr(change, "key", None) for change in changes):
        changes.insert(0, _delete(sighting))
    changes += [Set((*config.root, *parts_of(name)), value, (_own(sighting),)) for name, value in beside.items()]
    written = ", ".join(
        spelled(parts_of(name))
        + ("" if value is MISSING else f": {shown(value)}" if status.cases or status.sums else "")
        for name, value in {**settings, **beside}.items()
    )
    return _fixed(sighting, "safe", f"rename {sighting.name} to {written}", changes)


def _given_already(sighting: KeyOccurrence, settings: Mapping[str, Any], stated: Mapping[str, Any]) -> Fix:
    """Without the old name, where the new ones are there."""
    wanted = {name: sighting.value if value is MISSING else value for name, value in settings.items()}
    named = " and ".join(f"`{spelled(parts_of(name))}`" for name in stated)
    if wanted == stated:
        return _fixed(sighting, "safe", f"remove `{sighting.name}`: {named} has the same value", [_delete(sighting)])
    return _fixed(sighting, "unsafe", f"remove `{sighting.name}`: {named} has another value", [_delete(sighting)])


def _own(sighting: KeyOccurrence) -> str:
    return str(sighting.route[-1])


def _translated(sighting: KeyOccurrence, status: Status) -> Mapping[str, Any] | None:
    """New names and their values: MISSING where the old value stays as it is written. None where it has no meaning."""
    value = sighting.value
    if status.cases:
        case = next((one for one in status.cases if one.when == value and type(one.when) is type(value)), None)
        return None if case is None else case.set
    if status.sums:
        keys = keys_of(sighting.config)
        total = None if keys is None else keys.added(sighting.config, status.sums)
        return None if total is None else dict.fromkeys(status.to, total)
    if len(status.to) == 1:
        return {status.to[0]: MISSING}
    if isinstance(value, Unknown) or (isinstance(value, list) and any(isinstance(item, Unknown) for item in value)):
        return None
    return dict.fromkeys(status.to, value)


def _take(sighting: KeyOccurrence, settings: Mapping[str, Any], release: str | None = None) -> bool:
    """Whether the new names exist at a release (None: the one that counts) and take the values."""
    config, known = sighting.config, vocabulary(sighting.config)
    if known is None:
        return False
    loader = load(config.framework).loader
    for name, value in settings.items():
        route: Route = parts_of(name)
        if release is None:
            fact = known.fact(route, target(config).release, context(config))
        else:
            fact = fact_at(sighting, release, route)
        wanted = sighting.value if value is MISSING else value
        if fact is None or fact.status().kind not in ("present", "ignored") or fact.deprecated:
            return False
        if not fits(fact.schema(), wanted, loader):
            return False
    return True
