"""Typo correction: build the run with the intended keys from a config with misspelled keys.

If the estimate used the default of a misspelled key, the memory verdict would change as soon as the typo is fixed.
The estimate therefore uses the intended key if only one key can be meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import CannotEdit, Route, Set
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config, LaunchArgument, Override, format_route
from cfglint_train.judging.selection import Selection
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.runs.run import CorrectedKey, Run, build_run


def correct_typos(run: Run, selection: Selection) -> Run:
    """Return the run with misspelled keys corrected, or the same run if there are none or the rule is off."""
    main, corrections = _correct_config(run.main, selection)
    companions = dict(run.inputs.companions)
    for name, config in run.inputs.companions.items():
        companions[name], companion_corrections = _correct_config(config, selection)
        corrections += companion_corrections
    if not corrections:
        return run
    return build_run(run.inputs._replace(main=main, companions=companions, corrected_keys=tuple(corrections)))


def build_rewritable_run(run: Run, changes: Mapping[Field, Any], selection: Selection) -> Run:
    """Return the run with misspelled keys corrected, for rewriting.

    Raise `CannotEdit` if a change would add a key next to a possible misspelling of it.
    """
    from cfglint_rules.vocabulary.unknown_key import list_nearest_keys
    from cfglint_train.findings.draft import list_key_changes

    corrected = correct_typos(run, selection)
    for config, change in list_key_changes(corrected, changes):
        route = change.route[len(config.root) :]
        if _is_checked(config, selection) and isinstance(change, Set) and not config.has(*route):
            for occurrence, intended in list_nearest_keys(config):
                if intended == route:
                    name = format_route(route)
                    raise CannotEdit(f"{occurrence.name} may be a misspelling of {name}; rename or remove it first")
    return corrected


def _is_checked(config: Config, selection: Selection) -> bool:
    from cfglint_rules.vocabulary.unknown_key import RULE

    return not config.document.is_placeholder and RULE.code in selection.list_enabled(config.document.path)


def _correct_config(config: Config, selection: Selection) -> tuple[Config, list[CorrectedKey]]:
    """Return the config with misspelled keys replaced by overrides under the intended names, and the corrections."""
    if not _is_checked(config, selection):
        return config, []
    from cfglint_rules.vocabulary.unknown_key import list_corrections

    overrides: dict[Route, Override] = {}
    corrections = []
    for occurrence, route, rename in list_corrections(config):
        origin = Origin("explicit", occurrence.place, key=occurrence.name, framework=config.framework)
        is_same_section = occurrence.route[:-1] == route[:-1]
        argument = (
            LaunchArgument(config.document, (*config.root, *occurrence.route), misspelt=True)
            if is_same_section
            else None
        )
        overrides[route] = Override(occurrence.value, origin, argument)
        corrections.append(CorrectedKey(occurrence.route, route, config.document, rename))
    return (config.replace(overrides={**config.overrides, **overrides}), corrections) if corrections else (config, [])
