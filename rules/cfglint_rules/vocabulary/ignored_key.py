"""KEY005 ignored-key: the framework accepts the key but ignores it.

## What it does
Reports keys that the target release never reads, and keys that have no effect in combination with the rest of the
configuration. Examples are parameter offloading below ZeRO-3, options of an unused optimizer, a DeepSpeed section that
the Trainer does not pass on, fields of a data set's entry that its prompt type does not read, and fields of
LLaMA-Factory's `dataset_info.json` that resemble a field or belong to another section.

In a TRL recipe or a launch, it also reports options of `ModelConfig` that the repository's program parses and passes to
nothing: `use_peft`, `load_in_4bit`, `load_in_8bit` and `attn_implementation`.

The finding is a warning if the run lacks something that you evidently wanted, otherwise an info.

## Why is this bad?
The file says one thing and the run silently does another. For example, memory is not saved, or checkpoints are sharded
although you asked for full ones.

## Symptoms
Setting has no effect, ignored key.

## Example
    # LLaMA-Factory
    gradient_checkpointing: false

## Use instead
    disable_gradient_checkpointing: true

## Fix safety
Unsafe: the fix either makes the setting take effect, which changes the run, or removes the key.

## When it does not apply
Keys that need a plugin or a method, stage or optimizer are reported as KEY003. Keys that are null or equal the
framework's default are not reported as never read. If a script declares an option itself and no launch sets it, the
option's default does not count as a stated setting.

## References
docs/schemas.md. Each entry of `lint/cfglint_train/frameworks/*/idle.json` names its source, and so does each
`entries.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import build_report, find_matching_clauses, find_refused_keys, get_dotted_name
from cfglint_rules.vocabulary.effect_by_release import find_effects
from cfglint_rules.vocabulary.entry_fields import report_unread_fields
from cfglint_rules.vocabulary.launched import list_launches
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import KeyOccurrence, get_checked_keys, get_target_release, is_parser_default
from cfglint_rules.vocabulary.table import Clause, load_table
from cfglint_rules.vocabulary.verdicts import list_judged_keys, list_verdicts
from cfglint_schemas.status import Status, split_route
from cfglint_train.documents.document import Change, Delete, Document, Entry
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "KEY005", "ignored-key", "info", fix="unsafe", rests_on_vocabulary=True, folds=True, tag="unnecessary"
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every matching entry of `idle.json` and every key that is never read, in all configs."""
    for config in run.configs:
        if get_checked_keys(config) is None:
            continue
        settings, clauses = Settings(config, run), load_table(config.framework, "idle")
        reported = set(clauses.list_exclusive_settings())
        for clause, scope in find_matching_clauses(clauses, settings):
            clause_report = None if _is_only_parser_default(clause, settings) else build_report(clause, settings, scope)
            if clause_report is not None:
                reported.add(next(iter(clause.when)))
                yield clause_report
        yield from report_unread_fields(config, settings)
        reported |= find_refused_keys(config, list_judged_keys(config, "unread")).keys()
        for _, occurrence, status, _ in list_verdicts(config, "unread"):
            default = None if occurrence.fact is None else occurrence.fact.get_schema().get("default")
            is_reportable = occurrence.value not in (None, default) and get_dotted_name(occurrence) not in reported
            if is_reportable and not is_parser_default(config, occurrence.route):
                yield _report_unread(occurrence, status)
        yield from _report_unread_by_program(config)
    if run.inputs.dataset_file is not None:
        from cfglint_rules.vocabulary.dataset_entries import report_unread_dataset_fields  # few runs have such a file

        yield from report_unread_dataset_fields(run)


def _report_unread_by_program(config: Config) -> Iterator[Report]:
    """Yield a report for each setting that the user's program parses and passes to nothing.

    A setting may be in the file or in an option of a launch. All runs of a script share the launch, so only the first
    run of a script yields reports.
    """
    keys = get_checked_keys(config)
    if keys is None or (config.document.syntax == "python" and config.root != (0,)):
        return
    for name, (reason, remedy) in keys.list_unread_settings(config).items():
        entry = None if config.document.syntax == "python" else config.get_entry(name)
        settings = [] if entry is None else [(config.document, entry)]
        for document, stated in (*settings, *_list_launch_options(config, name)):
            from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER  # few programs have idle settings

            value = document.build_value(stated.value)
            if value is not None and HF_ARGPARSER.boolean.read_or_none(value) is not False:
                place = Place(document, stated.key.span)
                yield Report(f"`{name}` has no effect: {reason}", place, "warning", help=remedy)


def _list_launch_options(config: Config, name: str) -> Iterator[tuple[Document, Entry]]:
    """Yield the options that set a setting in the launches of a config, each with its script."""
    for script, invocation in list_launches(config):
        for entry in invocation.entries:
            if (entry.name or "").removeprefix("--").replace("-", "_") == name:
                yield script, entry


def _is_only_parser_default(clause: Clause, settings: Settings) -> bool:
    """Return whether the first setting of a clause is only the default of an option that the script declares itself."""
    name = next(iter(clause.when))
    route = None if clause.each or name.startswith("@") else settings.find_route(name)
    return route is not None and is_parser_default(settings.config, route)


def _report_unread(occurrence: KeyOccurrence, status: Status) -> Report:
    """Return the report on a key that is never read, naming the key that is read instead if there is one."""
    from cfglint_rules.vocabulary.renames import can_move, is_taken, move_key  # few keys are renamed

    config, target_release = occurrence.config, get_target_release(occurrence.config)
    replacement = split_route(status.new_names[0]) if len(status.new_names) == 1 else None
    reason = status.reason or (f"`{format_route(replacement)}` is used instead" if replacement else "no code reads it")
    fix: Fix | None = None
    if not occurrence.is_overridden:
        if replacement is None or is_taken(config, replacement):
            changes: tuple[Change, ...] = (Delete((*config.root, *occurrence.route)),)
            fix = Fix("unsafe", f"remove `{occurrence.name}`", keys=((config, changes),))
        elif can_move(config, replacement):
            changes = move_key(config, occurrence.route, replacement, occurrence.value)
            fix = Fix("unsafe", f"rename {occurrence.name} to {format_route(replacement)}", keys=((config, changes),))
    outcome = find_effects(occurrence)
    return Report(
        f"`{occurrence.name}` has no effect in {target_release.name}: {reason}",
        occurrence.place,
        outcome.limit_severity("warning" if replacement else "info"),
        fix,
        grounds=outcome.grounds,
    )
