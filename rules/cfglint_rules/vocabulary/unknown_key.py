"""KEY001 unknown-key: no release of the framework has this key.

## What it does
Looks up every key, including nested ones, in the framework's vocabulary. It reports keys that no release has, says what
happens to them, and suggests the closest key of the target release.

It also looks up:

- keyword arguments of PEFT's `LoraConfig`, of the trainers of TRL and transformers, and of OLMo-core's classes, in
  Python scripts
- keys of a JSON or YAML file that a script reads with `HfArgumentParser`
- launch options of a script, if all dataclasses of its `HfArgumentParser` or `TrlParser`, or all options of its
  `ArgumentParser`, are known and the parser accepts nothing else
- options of Hydra in commands of verl

Any key is accepted in free-form mappings (`gradient_checkpointing_kwargs`), and anywhere if the file loads a plugin
that cfglint does not know. Keys that only hold YAML anchors for the rest of the file are accepted too.

## Why is this bad?
axolotl silently drops unknown keys, and so does DeepSpeed at its top level. The run then starts with the default of the
setting that you meant. LLaMA-Factory, OLMo, OpenRLHF and the sections of DeepSpeed reject unknown keys, but only after
the job has waited for its GPUs. Most TRL releases also reject them in recipes.

## Symptoms
Unknown key, unrecognized argument, misspelt or mistyped setting, typo.

## Example
    base_model: meta-llama/Llama-3.2-3B
    sequence_length: 4096

## Use instead
    base_model: meta-llama/Llama-3.2-3B
    sequence_len: 4096

## Fix safety
A rename is safe if all of these hold:

- The key is an obvious misspelling of the new name, or another framework's name for the same setting.
- The new name is not in the file yet.
- Every candidate release accepts the value for the new name.

Otherwise it is unsafe. It is also unsafe if the run starts despite the unknown key and the rename would switch a
feature on or off (`gradient_checkpoint: true` in axolotl). If the framework would reject the renamed key, the fix is
shown but not applied.

Settings on the command line are reported without a fix:

- overrides of an OLMo-core script or an OLMo file (`--trainer.xyz=1`)
- options of a TRL command next to its recipe (`trl sft --config FILE --xyz 1`)
- options after a LLaMA-Factory file (`--bf16 true` instead of `bf16=true`)

There is no fix either if:

- the suggested name has an additional word (`eval_batch_size` for `batch_size`), is already set, or is deprecated
- the script passes further flags that cfglint cannot read

## When it does not apply
If some candidate releases reject the key and others drop it, the finding is a warning that names them.

If a program in the repository reads a TRL recipe with `TrlParser`, its dataclasses are the vocabulary: those of TRL and
transformers, and classes of the repository, also in other modules. The program rejects a key that none of them
declares, or ignores it up to TRL 0.18 and with `fail_with_unknown_args=False`. With `return_remaining_strings=True`, or
if cfglint does not know all of the dataclasses, it only reports obvious misspellings, as ignored.

The repository's own programs (docs/templates.md, docs/shell-scripts.md):

- A key that a script removes or reads before the framework sees the file belongs to the script and is not reported.
- A key that a class of the repository declares may belong to the repository's own program. The same applies to an
  option of a command that starts a Python file, if that file or its imports declare the option.
- If neither the file nor its imports declare the key or import the framework, the finding is a warning. It is also a
  warning if a script sets the option conditionally.

Forks:

- If the repository contains a copy of the framework, keys are checked against the copy. Likewise, a copy of PEFT
  defines the keyword arguments of `LoraConfig`. If the source of a PEFT fork is not available, they are not checked.
- If the repository uses any other fork, upstream's vocabulary proves nothing. A single info then lists all keys that
  upstream does not accept, including removed keys (KEY002) and enumeration values (KEY004).
- Evidence of a fork is a requirement that installs another repository or an unreleased revision, a git submodule, or a
  patch of the installed package. A settings class that the program changes or replaces is evidence too, as is a launch
  through a program with a different name.

A key that the framework drops is not reported if the whole block around it has no effect (KEY005).

## References
docs/schemas.md; axolotl-ai-cloud/axolotl#2143 (`sequence_length`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import find_idle_blocks, find_refused_keys, get_dotted_name, is_in_block
from cfglint_rules.vocabulary.effect_by_release import (
    find_candidate_releases,
    find_effects,
    find_fact,
    find_unknown_key_effects,
    is_true_for_all_releases,
)
from cfglint_rules.vocabulary.handed import report_unknown as handed
from cfglint_rules.vocabulary.launched import LaunchedSetting, build_rename, list_launched_settings
from cfglint_rules.vocabulary.operators import is_on
from cfglint_rules.vocabulary.survey import (
    REFUSED,
    KeyOccurrence,
    get_checked_keys,
    get_context,
    get_target_release,
    get_vocabulary,
)
from cfglint_rules.vocabulary.values import is_accepted
from cfglint_rules.vocabulary.verdicts import Verdict, list_judged_keys, list_verdicts
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import ITEM, PRESENT
from cfglint_train.documents.document import Change, Delete, Edit, Route
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.keys import UnparsedOption
from cfglint_train.frameworks.lens import Config, format_route

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.proposals import Proposal

RULE: Final = Rule("KEY001", "unknown-key", "error", scope="config", fix="safe", refuses=True, rests_on_vocabulary=True)


MAX_CORRECTED_KEYS: Final = 200
"""Maximum number of unknown keys per file for which corrections are sought; no more are reported."""


def check(config: Config) -> Iterator[Report]:
    """Yield a report for every unknown key, or one report for all of them if a fork may be in use.

    For options of a command, a program of the repository is not treated as a fork, because cfglint reads its options
    from its code.
    """
    fork = config.evidence.fork
    if fork is not None and (fork.kind != "program" or config.document.syntax != "shell"):
        from cfglint_rules.vocabulary.forked import report_foreign_keys

        yield from report_foreign_keys(config, fork)
        return
    occurrences = list_judged_keys(config, "unknown")
    refused, idle = find_refused_keys(config, occurrences), find_idle_blocks(config, occurrences)
    for verdict in list_verdicts(config, "unknown"):
        report = _build_report(verdict) if refused.get(get_dotted_name(verdict.occurrence)) != "error" else None
        if report is not None and (report.severity == "error" or not is_in_block(verdict.occurrence, idle)):
            yield _add_entry_point_ground(config, verdict.occurrence.route, report)
    for option in list_launched_settings(config, "unknown"):
        report = Report(
            f"{get_target_release(config).title} has no `{option.name}`: {option.effects.describe()}"
            + _format_launched_hint(config, option),
            option.place,
            option.effects.limit_severity("error"),
            build_rename(config, option),
            grounds=option.effects.grounds,
        )
        yield _add_entry_point_ground(config, tuple(option.name.split(".")), report)
    yield from handed(config)
    keys = get_checked_keys(config)
    for unparsed_option in () if keys is None else keys.find_unparsed_options(config):
        yield Report(
            f"the parser of `{unparsed_option.program}` has no `{unparsed_option.option}`: it is refused"
            + (f"; did you mean `{unparsed_option.suggestion}`?" if unparsed_option.suggestion else ""),
            unparsed_option.place,
            fix=_build_option_fix(unparsed_option),
        )


def _build_option_fix(option: UnparsedOption) -> Fix | None:
    """Return the fix that replaces the name of an option where it is written, or None if that is not certain."""
    if not option.is_renamable:
        return None
    edit = Edit(option.place.span, option.suggestion)
    return Fix("safe", f"rename {option.option} to {option.suggestion}", texts=((option.place.document, edit),))


def _add_entry_point_ground(config: Config, route: Route, report: Report) -> Report:
    """Return the report, extended by the ground for the choice of the entry point if there is one."""
    keys = get_checked_keys(config)
    ground = None if keys is None else keys.find_entry_assumption(config, route)
    if ground is None:
        return report
    notes = (
        report.notes if ground.grade == "assumed" else (*report.notes, ground.note)
    )  # every assumption gets a note anyway
    return report._replace(grounds=(*report.grounds, ground), notes=notes)


def _format_launched_hint(config: Config, setting: LaunchedSetting) -> str:
    keys = get_checked_keys(config)
    spelling = "" if keys is None else keys.suggest_launch_form(setting.name, setting.value)
    if spelling:
        return f"; settings behind a file are written `{spelling}`"
    return f"; did you mean `{setting.suggestion}`?" if setting.suggestion else ""


def list_corrections(config: Config) -> Iterator[tuple[KeyOccurrence, Route, tuple[Change, ...]]]:
    """Yield the misspelled keys that a safe fix renames, each with the route of the intended key and the changes."""
    for occurrence in list_judged_keys(config, "unknown")[:MAX_CORRECTED_KEYS] if config.evidence.fork is None else ():
        from cfglint_rules.vocabulary.proposals import list_proposals

        proposed = [] if _is_idle(occurrence) else list_proposals(occurrence)
        fix = _build_fix(occurrence, proposed[0]) if proposed else None
        if fix is not None and fix.applicability == "safe" and find_unknown_key_effects(occurrence) is not None:
            yield occurrence, proposed[0].route, tuple(change for _, changes in fix.keys for change in changes)


def list_nearest_keys(config: Config) -> Iterator[tuple[KeyOccurrence, Route]]:
    """Yield the unknown keys that have a proposal, each with the route of the best proposal, certain or not."""
    for occurrence in list_judged_keys(config, "unknown")[:MAX_CORRECTED_KEYS] if config.evidence.fork is None else ():
        from cfglint_rules.vocabulary.proposals import list_proposals

        proposed = (
            [] if _is_idle(occurrence) or find_unknown_key_effects(occurrence) is None else list_proposals(occurrence)
        )
        if proposed:
            yield occurrence, proposed[0].route


def refused(config: Config) -> Iterator[str]:
    """Yield the messages for unknown keys that stop the effective release; none if a fork may be in use."""
    for verdict in list_verdicts(config, "unknown") if config.evidence.fork is None else ():
        if verdict.effect == REFUSED:
            yield f"{get_target_release(config).title} has no `{verdict.occurrence.name}`"


def _build_report(verdict: Verdict) -> Report | None:
    occurrence, effect = verdict.occurrence, verdict.effect
    config, target_release = occurrence.config, get_target_release(occurrence.config)
    effects = find_unknown_key_effects(occurrence)
    if effects is None:
        return None
    from cfglint_rules.vocabulary.proposals import list_proposals  # few files have an unknown key

    proposed = [] if _is_idle(occurrence) or _is_of_another_kind(occurrence) else list_proposals(occurrence)
    if effect != REFUSED and not (proposed and proposed[0].is_sure) and _is_possibly_foreign(config):
        return None
    is_possibly_older = (
        effect != REFUSED and find_candidate_releases(config).is_too_old and _is_possibly_former(occurrence)
    )
    severity: Severity = "error" if effect == REFUSED else "info" if is_possibly_older else "warning"
    fix = _build_fix(occurrence, proposed[0]) if proposed else _build_removal(occurrence)
    keys = get_checked_keys(config)
    subject = (keys.describe_parser(config) if keys is not None else "") or target_release.title
    return Report(
        f"{subject} has no `{occurrence.name}`{_format_parent_choice(occurrence)}: "
        f"{effects.describe()}{_format_hint(occurrence, proposed)}",
        occurrence.place,
        effects.limit_severity(severity),
        fix,
        grounds=effects.grounds,
    )


def _is_possibly_former(occurrence: KeyOccurrence) -> bool:
    keys = get_checked_keys(occurrence.config)
    return keys is None or keys.can_be_former(occurrence.route)


def _format_parent_choice(occurrence: KeyOccurrence) -> str:
    """Return ` under NAME: VALUE` for each setting that selects the type of the enclosing mapping, or an empty text."""
    framework_vocabulary, config = get_vocabulary(occurrence.config), occurrence.config
    choices = (
        {}
        if framework_vocabulary is None
        else framework_vocabulary.find_selection(
            occurrence.parent, get_target_release(config).release, get_context(config)
        )
    )
    return "".join(f" under {name}: {value}" for name, value in choices.items())


def _is_of_another_kind(occurrence: KeyOccurrence) -> bool:
    """Return whether the key would exist if the enclosing mapping had another type."""
    framework_vocabulary, config = get_vocabulary(occurrence.config), occurrence.config
    any_context = get_context(config)._replace(settings=None)
    return (
        framework_vocabulary is not None
        and framework_vocabulary.find_fact(occurrence.route, get_target_release(config).release, any_context)
        is not None
    )


def _format_hint(occurrence: KeyOccurrence, proposed: list[Proposal]) -> str:
    if proposed and proposed[0].is_sure:
        return f"; did you mean `{format_route(proposed[0].route)}`?"
    from cfglint_rules.vocabulary.proposals import find_advice

    advice_text, keys = find_advice(occurrence), get_checked_keys(occurrence.config)
    unread = () if keys is None else keys.list_unread_settings(occurrence.config)
    if advice_text is not None and not any(f"`{name}" in advice_text for name in unread):
        return f"; {advice_text}"
    if proposed:
        return f"; did you mean {' or '.join(f'`{format_route(proposal.route)}`' for proposal in proposed[:2])}?"
    if keys is not None and keys.describe_parser(occurrence.config):
        foreign_fact = _find_foreign_fact(occurrence)
        return "" if foreign_fact is None else f"; {keys.describe_owner(foreign_fact)}"
    last_release = None if keys is None else keys.words.earlier.get(occurrence.name)
    if last_release is not None:
        return f"; {get_target_release(occurrence.config).title} {last_release} was the last release with it"
    return f"; {keys.words.why}" if keys is not None and _is_idle(occurrence) else ""


def _find_foreign_fact(occurrence: KeyOccurrence) -> KeyFact | None:
    """Return the fact about the key in a class of the framework that the program does not parse, or None."""
    config, framework_vocabulary = occurrence.config, get_vocabulary(occurrence.config)
    default_entry = frameworks.load(config.framework).manifest.default_entry
    any_context = get_context(config)._replace(definitions=None, entry=default_entry)
    return (
        None
        if framework_vocabulary is None
        else framework_vocabulary.find_fact(occurrence.route, get_target_release(config).release, any_context)
    )


def _build_fix(occurrence: KeyOccurrence, proposal: Proposal) -> Fix | None:
    """Return the fix that renames a key and keeps its value and comment, or None if it cannot have the new name."""
    from cfglint_rules.vocabulary.renames import can_move, move_key  # few keys are renamed

    config, route = occurrence.config, proposal.route
    framework_vocabulary = get_vocabulary(config)
    if (
        framework_vocabulary is None
        or not proposal.has_same_words
        or ITEM in route
        or occurrence.is_overridden
        or not can_move(config, route)
    ):
        return None
    if not _is_accepted(occurrence, route, get_target_release(config).release):
        return None
    is_sure = proposal.is_sure and is_true_for_all_releases(
        occurrence, lambda release: _is_accepted(occurrence, route, release)
    )
    switched_from = _find_switched_default(occurrence, route)
    return Fix(
        "safe" if is_sure and switched_from is None else "unsafe",
        f"rename {occurrence.name} to {format_route(route)}"
        + (f", which is currently {switched_from}" if switched_from else ""),
        keys=((config, move_key(config, occurrence.route, route, occurrence.value)),),
    )


def _find_switched_default(occurrence: KeyOccurrence, route: Route) -> str | None:
    """Return the current state (`not set`, `on`) of a setting that a rename would switch on or off.

    Return None if the rename does not change its state, or if every candidate release rejects the unknown key.
    """
    is_given_on = is_on(occurrence.value)
    is_unchanged = find_effects(occurrence).effects == {REFUSED} or is_true_for_all_releases(
        occurrence, lambda release: _is_on_by_default(occurrence, route, release) is is_given_on
    )
    return None if is_unchanged else "not set" if is_given_on else "on"


def _is_on_by_default(occurrence: KeyOccurrence, route: Route, release: str) -> bool:
    """Return whether a setting is on at a release if the file does not set it, or must be set there."""
    fact = find_fact(occurrence, release, route)
    schema = {} if fact is None else fact.get_schema()
    return bool(schema.get("x-required")) or is_on(schema.get("default"))


def _is_accepted(occurrence: KeyOccurrence, route: Route, release: str) -> bool:
    """Return whether a release has the key at `route` and accepts the value of the unknown key for it."""
    fact, loader = find_fact(occurrence, release, route), load(occurrence.config.framework).loader
    return (
        fact is not None
        and fact.resolve_status().kind == PRESENT
        and is_accepted(fact.get_schema(), occurrence.value, loader)
    )


def _build_removal(occurrence: KeyOccurrence) -> Fix | None:
    """Return the fix that removes a key without effect in its section, or None for any other or an overridden key."""
    if not _is_idle(occurrence) or occurrence.is_overridden:
        return None
    changes = (Delete((*occurrence.config.root, *occurrence.route)),)
    return Fix("safe", f"remove {occurrence.name}", keys=((occurrence.config, changes),))


def _is_idle(occurrence: KeyOccurrence) -> bool:
    """Return whether the key is known to have no effect in its section, as if copied from another section."""
    keys = get_checked_keys(occurrence.config)
    section = ".".join(map(str, occurrence.route[:-1]))
    return keys is not None and occurrence.route[-1] in keys.words.idle.get(section, ())


def _is_possibly_foreign(config: Config) -> bool:
    """Return whether a module that the config loads may add keys that are not in the vocabulary."""
    keys = get_checked_keys(config)
    return keys is not None and keys.can_have_foreign_keys(config, get_target_release(config).release)
