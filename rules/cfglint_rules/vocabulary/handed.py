"""What becomes of settings that a script hands to another call than the one which takes the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_rules.vocabulary.effect_by_release import FINE, across, grounds, window_of
from cfglint_rules.vocabulary.survey import REFUSED, keys_of, target
from cfglint_rules.vocabulary.values import fits
from cfglint_schemas.status import PRESENT, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Unknown
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys import Arguments, CallArgument, KeyRewrite
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.releases import Window

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.proposals import Proposal

UNKNOWN: Final = "unknown"
"""The status of what no release has."""


def gone(config: Config) -> Iterator[Report]:
    """One report per setting that only other releases take than the one that counts."""
    for one, status, window in _refused(config):
        if status.kind != UNKNOWN:
            yield _report(config, one, status, window)


def unknown(config: Config) -> Iterator[Report]:
    """One report per setting that no release takes."""
    for one, status, window in _refused(config):
        if status.kind == UNKNOWN:
            yield _report(config, one, status, window)


def _refused(config: Config) -> Iterator[tuple[CallArgument, Status, Window]]:
    keys = keys_of(config)
    for one in () if keys is None else keys.handed(config):
        window = window_of(config) if one.package is None else _window(config, one.package, one.copy)
        if window.releases and (one.package is None or not _is_older(window)):
            status = one.status(target(config).release if one.package is None else window.chosen)
            if status.kind != PRESENT:
                yield one, status, window


def _window(config: Config, package: str, copy: str) -> Window:
    """The candidates of another package: its pin, else the known releases that the requirements allow; of a copy, whose
    settings are the same at each, any.
    """
    if copy:
        newest = load(package).newest
        return Window(package, (newest,), newest, stated=True)
    try:
        return config.releases.window(package)
    except KeyError:
        allowed = config.releases.ranges.get(package)
        known = load(package).releases
        found = tuple(one for one in known if allowed is None or allowed.constraint.allows(one))
        return Window(package, found, found[-1] if found else "", stated=False)


def _is_older(window: Window) -> bool:
    """Whether another package is older than all of its known releases."""
    return release_key(window.releases[0]) < release_key(load(window.package).releases[0])


def _report(config: Config, one: CallArgument, status: Status, window: Window) -> Report:
    releases = across(window, _effects(one))
    doubt = (
        () if not one.assumed else (Ground(f"call:{one.call}", one.name, "assumed", f"`{one.call}`: {one.assumed}"),)
    )
    meant = _meant(config, one, window) if status.kind == UNKNOWN else None
    rewrite = one.rewrite if meant is None else _rename(config, one, meant, window)
    fix = None
    if rewrite is not None:
        changes = ((config, rewrite.changes),)
        alike = all(one.status(release) == status for release in window.releases)
        on = (*grounds(window, alike), *doubt)
        fix = Fix(rewrite.applicability, rewrite.message, keys=changes, grounds=on)
    title = target(config).title if one.package is None else one.package.upper()
    help = None if one.package is None or one.copy else _checked_against(title, window)
    title += f" in {one.copy}/" if one.copy else ""
    return Report(
        f"{_said(one, status, title)}: {releases.said()}"
        + (f"; did you mean `{spelled(meant.route)}`?" if meant is not None else ""),
        one.place,
        releases.milder("error"),
        fix,
        help=one.help or help,
        grounds=(*releases.grounds, *doubt),
    )


def _meant(config: Config, one: CallArgument, window: Window) -> Proposal | None:
    """The argument that an unknown one was probably meant to be, by its value too."""
    from cfglint_rules.vocabulary.proposals import Proposal, likely  # few scripts have an unknown one

    call = one.arguments
    if call is None:
        return None
    found = [Proposal((call.same,), True)] if call.same is not None else []
    found += likely(call.vocabulary, (one.name,), window.chosen, call.context, call.is_sure)
    return next((near for near in found if _takes(config, call, near, window.chosen)), None)


def _rename(config: Config, one: CallArgument, meant: Proposal, window: Window) -> KeyRewrite | None:
    call, new = one.arguments, spelled(meant.route)
    change = call.rename(new) if call is not None and meant.same else None
    if call is None or change is None:
        return None
    known = not isinstance(call.value, Unknown) and all(
        _takes(config, call, meant, release) for release in window.releases
    )
    return KeyRewrite("safe" if meant.sure and known else "unsafe", f"rename {one.name} to {new}", (change,))


def _takes(config: Config, call: Arguments, near: Proposal, release: str) -> bool:
    """Whether a call has an argument at a release, and takes the value for it."""
    fact, loader = call.vocabulary.fact(near.route, release, call.context), frameworks.load(config.framework).loader
    return fact is not None and fact.status().kind == PRESENT and fits(fact.schema(), call.value, loader)


def _checked_against(title: str, window: Window) -> str:
    first, last = window.releases[0], window.releases[-1]
    return f"checked against {title} {first}" + ("" if first == last else f" to {last}")


def _said(one: CallArgument, status: Status, title: str) -> str:
    if status.kind == UNKNOWN:
        return f"`{one.call}` of {title} has no `{one.name}`"
    if status.kind == "not yet":
        return f"`{one.name}` of `{one.call}` does not exist before {title} {status.since}"
    became = f"was renamed to `{status.to[0]}`" if status.to else "was removed"
    return f"`{one.name}` of `{one.call}` {became} in {title} {status.since}"


def _effects(one: CallArgument) -> Callable[[str], str]:
    def effect(release: str) -> str:
        status = one.status(release)
        return FINE if status.kind == PRESENT else status.effect or REFUSED

    return effect
