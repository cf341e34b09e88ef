"""The run that a configuration with misspelt keys is meant to be.

A memory verdict on the defaults that hold without a misspelt key would change with the first fix. So what is estimated
counts the key that is meant, where that is beyond doubt.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import CannotEdit, Route, Set
from cfglint_train.findings.draft import changes_of
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config, LaunchArgument, Override, spelled
from cfglint_train.judging.selection import Selection
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.runs.run import CorrectedKey, Run, assemble


def as_meant(run: Run, selection: Selection) -> Run:
    """The run with every misspelt key under its right name; the same run where there is none, or no rule reports
    one.
    """
    main, found = _read(run.main, selection)
    companions = dict(run.parts.companions)
    for name, config in run.parts.companions.items():
        companions[name], more = _read(config, selection)
        found += more
    if not found:
        return run
    return assemble(run.parts._replace(main=main, companions=companions, meant=tuple(found)))


def rewritable(run: Run, changes: Mapping[Field, Any], selection: Selection) -> Run:
    """The run as it is meant, to be rewritten. Raises CannotEdit where a change would add a key beside one that may be
    meant to be it.
    """
    from cfglint_rules.vocabulary.unknown_key import nearest

    meant = as_meant(run, selection)
    for config, change in changes_of(meant, changes):
        route = change.route[len(config.root) :]
        if _is_judged(config, selection) and isinstance(change, Set) and not config.has(*route):
            for sighting, near in nearest(config):
                if near == route:
                    name = spelled(route)
                    raise CannotEdit(f"{sighting.name} may be meant to be {name}; rename or remove it first")
    return meant


def _is_judged(config: Config, selection: Selection) -> bool:
    from cfglint_rules.vocabulary.unknown_key import RULE

    return not config.document.stands_in and RULE.code in selection.enabled(config.document.path)


def _read(config: Config, selection: Selection) -> tuple[Config, list[CorrectedKey]]:
    """A configuration with the misspelt keys laid over it as what they are meant to be, and their names."""
    if not _is_judged(config, selection):
        return config, []
    from cfglint_rules.vocabulary.unknown_key import meant

    overrides: dict[Route, Override] = {}
    found = []
    for sighting, route, rename in meant(config):
        origin = Origin("explicit", sighting.place, key=sighting.name, framework=config.framework)
        stays = sighting.route[:-1] == route[:-1]
        given = LaunchArgument(config.document, (*config.root, *sighting.route), misspelt=True) if stays else None
        overrides[route] = Override(sighting.value, origin, given)
        found.append(CorrectedKey(sighting.route, route, config.document, rename))
    return (config.altered(overrides={**config.overrides, **overrides}), found) if found else (config, [])
