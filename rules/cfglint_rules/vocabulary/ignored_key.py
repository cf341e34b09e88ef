"""KEY005 ignored-key: a key that the framework takes, and that does nothing.

## What it does
Reports keys that are never read at the target release, and those that have no effect beside the rest of the
configuration: offloading of parameters below ZeRO-3, options of an optimizer that is not used, a DeepSpeed section that
the Trainer never hands on. Where something was evidently wanted that the run now lacks it is a warning, else
information.

## Why is this bad?
The file says one thing and the run does another, without a message: memory that was to be saved is not, checkpoints
that were to be whole are sharded.

## Example
    # LLaMA-Factory
    gradient_checkpointing: false

## Use instead
    disable_gradient_checkpointing: true

## Fix safety
Unsafe: what the key was to do then happens, or the trace of it is gone.

## When it does not apply
Keys that need a plugin or another setting to have an effect are reported as KEY003. The default of an option that a
script declares itself, and that no launch gives, is no stated setting.

## References
docs/schemas.md; each entry names its source: `lint/cfglint_train/frameworks/*/idle.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import dotted, holding, refusals_of, report
from cfglint_rules.vocabulary.effect_by_release import fate
from cfglint_rules.vocabulary.renames import is_taken, may_move, moved
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import KeyOccurrence, is_parsers, keys_of, target
from cfglint_rules.vocabulary.table import Clause, table
from cfglint_rules.vocabulary.verdicts import sightings, verdicts
from cfglint_schemas.status import Status, parts_of
from cfglint_train.documents.document import Change, Delete
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import spelled
from cfglint_train.runs.run import Run

RULE: Final = Rule("KEY005", "ignored-key", "info", fix="unsafe", rests_on_vocabulary=True)


def check(run: Run) -> Iterator[Report]:
    """One report per key that is never read, and per entry that holds, for every configuration of the run."""
    for config in run.configs:
        if keys_of(config) is None:
            continue
        settings, clauses = Settings(config, run), table(config.framework, "idle")
        reported = set(clauses.sole())
        for clause, reach in holding(clauses, settings):
            found = None if _is_parsers(clause, settings) else report(clause, settings, reach)
            if found is not None:
                reported.add(next(iter(clause.when)))
                yield found
        reported |= refusals_of(config, sightings(config, "unread")).keys()
        for _, sighting, status, _ in verdicts(config, "unread"):
            default = None if sighting.fact is None else sighting.fact.schema().get("default")
            lost = sighting.value not in (None, default) and dotted(sighting) not in reported
            if lost and not is_parsers(config, sighting.route):
                yield _unread(sighting, status)


def _is_parsers(clause: Clause, settings: Settings) -> bool:
    """Whether only the script's own parser gives what has no effect."""
    name = next(iter(clause.when))
    route = None if clause.each or name.startswith("@") else settings.route(name)
    return route is not None and is_parsers(settings.config, route)


def _unread(sighting: KeyOccurrence, status: Status) -> Report:
    """A key that is never read; where another one is read instead, the report names that."""
    config, held = sighting.config, target(sighting.config)
    to = parts_of(status.to[0]) if len(status.to) == 1 else None
    why = status.because or (f"`{spelled(to)}` is used instead" if to else "no code reads it")
    fix: Fix | None = None
    if not sighting.overridden:
        if to is None or is_taken(config, to):
            changes: tuple[Change, ...] = (Delete((*config.root, *sighting.route)),)
            fix = Fix("unsafe", f"remove `{sighting.name}`", keys=((config, changes),))
        elif may_move(config, to):
            changes = moved(config, sighting.route, to, sighting.value)
            fix = Fix("unsafe", f"rename {sighting.name} to {spelled(to)}", keys=((config, changes),))
    outcome = fate(sighting)
    return Report(
        f"`{sighting.name}` has no effect in {held.name}: {why}",
        sighting.place,
        outcome.milder("warning" if to else "info"),
        fix,
        grounds=outcome.grounds,
    )
