"""Call arguments: check the settings that a script passes to calls other than the main one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_rules.vocabulary.effect_by_release import (
    ACCEPTED,
    build_release_grounds,
    compute_effects,
    find_candidate_releases,
)
from cfglint_rules.vocabulary.survey import REFUSED, get_checked_keys, get_target_release
from cfglint_rules.vocabulary.values import is_accepted
from cfglint_schemas.status import PRESENT, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Unknown
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys import CallArgument, CallParameters, KeyRewrite
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.releases import PossibleReleases

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.proposals import Proposal

UNKNOWN: Final = "unknown"
"""Kind of status of an argument that no release has."""


def report_removed(config: Config) -> Iterator[Report]:
    """Yield a report for every argument that the effective release rejects and another release accepts."""
    for argument, status, candidates in _list_refused_arguments(config):
        if status.kind != UNKNOWN:
            yield _build_report(config, argument, status, candidates)


def report_unknown(config: Config) -> Iterator[Report]:
    """Yield a report for every argument that no release accepts."""
    for argument, status, candidates in _list_refused_arguments(config):
        if status.kind == UNKNOWN:
            yield _build_report(config, argument, status, candidates)


def _list_refused_arguments(config: Config) -> Iterator[tuple[CallArgument, Status, PossibleReleases]]:
    keys = get_checked_keys(config)
    for argument in () if keys is None else keys.find_call_arguments(config):
        candidates = (
            find_candidate_releases(config)
            if argument.package is None
            else _find_candidates(config, argument.package, argument.copy_folder)
        )
        if candidates.releases and (argument.package is None or not _is_older_than_vocabulary(candidates)):
            status = argument.find_status(
                get_target_release(config).release if argument.package is None else candidates.chosen
            )
            if status.kind != PRESENT:
                yield argument, status, candidates


def _find_candidates(config: Config, package: str, copy: str) -> PossibleReleases:
    """Return the candidate releases of another package: from its pin, else the known releases that requirements allow.

    The settings of a copy do not depend on the release, so a copy counts as the newest release, stated.
    """
    if copy:
        newest = load(package).newest
        return PossibleReleases(package, (newest,), newest, is_stated=True)
    try:
        return config.releases.find_candidates(package)
    except KeyError:
        allowed = config.releases.allowed_releases.get(package)
        releases = load(package).releases
        allowed_releases = tuple(
            release for release in releases if allowed is None or allowed.constraint.is_satisfied_by(release)
        )
        return PossibleReleases(
            package, allowed_releases, allowed_releases[-1] if allowed_releases else "", is_stated=False
        )


def _is_older_than_vocabulary(candidates: PossibleReleases) -> bool:
    """Return whether the oldest candidate release is older than all known releases of the package."""
    return parse_release(candidates.releases[0]) < parse_release(load(candidates.package).releases[0])


def _build_report(config: Config, argument: CallArgument, status: Status, candidates: PossibleReleases) -> Report:
    effects = compute_effects(candidates, _build_effect_lookup(argument))
    assumption = (
        ()
        if not argument.assumption
        else (
            Ground(f"call:{argument.callee}", argument.name, "assumed", f"`{argument.callee}`: {argument.assumption}"),
        )
    )
    intended = _find_intended(config, argument, candidates) if status.kind == UNKNOWN else None
    rewrite = argument.rewrite if intended is None else _build_rename(config, argument, intended, candidates)
    fix = None
    if rewrite is not None:
        changes = ((config, rewrite.changes),)
        is_same_everywhere = all(argument.find_status(release) == status for release in candidates.releases)
        all_grounds = (*build_release_grounds(candidates, is_same_everywhere), *assumption)
        fix = Fix(rewrite.applicability, rewrite.message, keys=changes, grounds=all_grounds)
    title = get_target_release(config).title if argument.package is None else _find_title(argument.package)
    help = None if argument.package is None or argument.copy_folder else _describe_releases(title, candidates)
    title += f" in {argument.copy_folder}/" if argument.copy_folder else ""
    return Report(
        f"{_describe_status(argument, status, title)}: {effects.describe()}"
        + (f"; did you mean `{format_route(intended.route)}`?" if intended is not None else ""),
        argument.place,
        effects.limit_severity("error"),
        fix,
        help=argument.help or help,
        grounds=(*effects.grounds, *assumption),
    )


def _find_title(package: str) -> str:
    """Return the title of the framework that a package contains, or the package's name in capitals."""
    manifests = list_frameworks().values()
    return next((manifest.title for manifest in manifests if manifest.package == package), package.upper())


def _find_intended(config: Config, argument: CallArgument, candidates: PossibleReleases) -> Proposal | None:
    """Return the argument that an unknown argument probably stands for, judging by name and value, or None."""
    from cfglint_rules.vocabulary.proposals import Proposal, find_proposals  # few scripts have an unknown argument

    call = argument.parameters
    if call is None:
        return None
    proposals = [Proposal((call.equivalent,), True)] if call.equivalent is not None else []
    proposals += find_proposals(call.vocabulary, (argument.name,), candidates.chosen, call.context, call.is_confident)
    return next((proposal for proposal in proposals if _is_accepted(config, call, proposal, candidates.chosen)), None)


def _build_rename(
    config: Config, argument: CallArgument, intended: Proposal, candidates: PossibleReleases
) -> KeyRewrite | None:
    call, new = argument.parameters, format_route(intended.route)
    change = call.rename(new) if call is not None and intended.has_same_words else None
    if call is None or change is None:
        return None
    is_accepted_everywhere = not isinstance(call.value, Unknown) and all(
        _is_accepted(config, call, intended, release) for release in candidates.releases
    )
    return KeyRewrite(
        "safe" if intended.is_sure and is_accepted_everywhere else "unsafe",
        f"rename {argument.name} to {new}",
        (change,),
    )


def _is_accepted(config: Config, call: CallParameters, proposal: Proposal, release: str) -> bool:
    """Return whether the call has the proposed argument at a release and accepts the value for it."""
    fact, loader = (
        call.vocabulary.find_fact(proposal.route, release, call.context),
        frameworks.load(config.framework).loader,
    )
    return (
        fact is not None
        and fact.resolve_status().kind == PRESENT
        and is_accepted(fact.get_schema(), call.value, loader)
    )


def _describe_releases(title: str, candidates: PossibleReleases) -> str:
    first, last = candidates.releases[0], candidates.releases[-1]
    return f"checked against {title} {first}" + ("" if first == last else f" to {last}")


def _describe_status(argument: CallArgument, status: Status, title: str) -> str:
    if argument.is_import:
        word = "before" if status.kind == "not yet" else "since"
        return f"`{argument.callee}` has no `{argument.name}` {word} {title} {status.since}"
    if status.kind == UNKNOWN:
        return f"`{argument.callee}` of {title} has no `{argument.name}`"
    if status.kind == "not yet":
        return f"`{argument.name}` of `{argument.callee}` does not exist before {title} {status.since}"
    change = f"was renamed to `{status.new_names[0]}`" if status.new_names else "was removed"
    return f"`{argument.name}` of `{argument.callee}` {change} in {title} {status.since}"


def _build_effect_lookup(argument: CallArgument) -> Callable[[str], str]:
    def find_effect(release: str) -> str:
        status = argument.find_status(release)
        return ACCEPTED if status.kind == PRESENT else status.effect or REFUSED

    return find_effect
