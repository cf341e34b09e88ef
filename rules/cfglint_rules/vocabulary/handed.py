"""What becomes of settings that a script hands to another call than the one which takes the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_rules.vocabulary.across import FINE, across, grounds, window_of
from cfglint_rules.vocabulary.survey import REFUSED, keys_of, target
from cfglint_schemas.status import PRESENT, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.keys import Handed
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.releases import Window

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


def _refused(config: Config) -> Iterator[tuple[Handed, Status, Window]]:
    keys = keys_of(config)
    for one in () if keys is None else keys.handed(config):
        window = window_of(config) if one.package is None else _window(config, one.package)
        if window.releases and (one.package is None or not _is_older(window)):
            status = one.status(target(config).release if one.package is None else window.chosen)
            if status.kind != PRESENT:
                yield one, status, window


def _window(config: Config, package: str) -> Window:
    """The candidates of another package: its pin, else the known releases that the requirements allow."""
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


def _report(config: Config, one: Handed, status: Status, window: Window) -> Report:
    fix = None
    releases = across(window, _effects(one))
    doubt = (
        () if not one.assumed else (Ground(f"call:{one.call}", one.name, "assumed", f"`{one.call}`: {one.assumed}"),)
    )
    if one.rewrite is not None:
        changes = ((config, one.rewrite.changes),)
        alike = all(one.status(release) == status for release in window.releases)
        on = (*grounds(window, alike), *doubt)
        fix = Fix(one.rewrite.applicability, one.rewrite.message, keys=changes, grounds=on)
    title = target(config).title if one.package is None else one.package.upper()
    meant = f"; did you mean `{status.to[0]}`?" if status.kind == UNKNOWN and status.to else ""
    return Report(
        f"{_said(one, status, title)}: {releases.said()}{meant}",
        one.place,
        releases.milder("error"),
        fix,
        help=one.help or (None if one.package is None else _checked_against(title, window)),
        grounds=(*releases.grounds, *doubt),
    )


def _checked_against(title: str, window: Window) -> str:
    first, last = window.releases[0], window.releases[-1]
    return f"checked against {title} {first}" + ("" if first == last else f" to {last}")


def _said(one: Handed, status: Status, title: str) -> str:
    if status.kind == UNKNOWN:
        return f"`{one.call}` of {title} has no `{one.name}`"
    if status.kind == "not yet":
        return f"`{one.name}` of `{one.call}` does not exist before {title} {status.since}"
    became = f"was renamed to `{status.to[0]}`" if status.to else "was removed"
    return f"`{one.name}` of `{one.call}` {became} in {title} {status.since}"


def _effects(one: Handed) -> Callable[[str], str]:
    def effect(release: str) -> str:
        status = one.status(release)
        return FINE if status.kind == PRESENT else status.effect or REFUSED

    return effect
