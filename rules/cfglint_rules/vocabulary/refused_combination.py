"""KEY006 refused-combination: the framework, or a library it calls, rejects this combination of settings.

## What it does
Checks the configuration against a table of combinations that the framework rejects. The table covers the framework's
validators, and assertions that only run after the model is loaded. It also lists combinations that pass every check but
ruin the run, such as sharded checkpoints that are never written. Ranges that a library checks are entries too: PEFT
rejects `lora_r: 0`, torch a negative `weight_decay`. An entry only matches if the values of all its settings are known.

For LLaMA-Factory it reads `dataset_info.json`: data sets that the run names but the file lacks, descriptions that do
not suit the stage or the format, and samples beside the file that lack a column or are dropped.

It also reports launch overrides of keys in a section that an OLMo-core script leaves unset (`Config.merge`, since
2.5.0).

## Why is this bad?
Validators stop the job at the start, after it has waited for its GPUs. The Trainer's own checks run after every rank
has loaded the model. Combinations that pass every check only surface hours later.

## Example
    fsdp_version: 2
    optimizer: adamw_bnb_8bit

## Use instead
    fsdp_version: 2
    optimizer: adamw_torch_8bit

## Fix safety
Safe if the run could not have started anyway and the fix removes nothing you asked for. Unsafe if the fix has to drop
one of two conflicting settings.

## When it does not apply
An entry applies to a range of releases. If the range covers the newest candidate release but not all candidates, the
finding is a warning that names the first release of the range. If the range covers only older candidates, the finding
is an info without a fix. A finding is also a warning if the release in use may be older than all known releases,
unless the entry holds for those as well. If a fork may be in use, most findings are an info.

If a value is invalid by itself (KEY004), its combinations are not reported.

A data set that the dataset file lacks is not reported if a program of the repository names the file, because it may
add the data set. It is not reported either if LLaMA-Factory ships a data set of that name, unless the repository
contains a copy of LLaMA-Factory that lacks it.

## References
Each entry of `lint/cfglint_train/frameworks/*/refusals.json` names its source, and so does each `datasets.json`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import partial

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import build_report, find_matching_clauses, format_message
from cfglint_rules.vocabulary.effect_by_release import ACCEPTED, compute_effects, find_candidate_releases
from cfglint_rules.vocabulary.launched import list_launched_settings
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import REFUSED, get_checked_keys
from cfglint_rules.vocabulary.table import Clause, load_table
from cfglint_rules.vocabulary.wrong_type import find_fatal_settings
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.flag_parser import RefusedWord
from cfglint_train.frameworks.lens import Config
from cfglint_train.runs.run import Run

RULE: Final = Rule("KEY006", "refused-combination", "error", fix="safe", refuses=True, rests_on_vocabulary=True)


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every matching entry of `refusals.json`, and for launch overrides in an unset section."""
    for setting in list_launched_settings(run.main, "unset"):
        yield Report(
            f"`{setting.name}` is set at launch, but {os.path.basename(run.main.document.path)} leaves "
            f"`{setting.unset}` "
            f"unset: {setting.effects.describe()}",
            setting.place,
            setting.effects.limit_severity("error"),
            help=f"set `{setting.unset}` in the file, or pass the section as a whole: `--{setting.unset}='{{...}}'`",
            grounds=setting.effects.grounds,
        )
    yield from _report_words(run.main)
    for config in run.configs:
        if not _has_clauses(config):
            continue
        settings = Settings(config, run)
        matching = list(find_matching_clauses(load_table(config.framework, "refusals"), settings, with_past=True))
        unfit = config.compute_once(find_fatal_settings) if matching else frozenset()
        for clause, scope in matching:
            clause_report = (
                None if _is_testing_unfit(clause, settings, unfit) else build_report(clause, settings, scope)
            )
            if clause_report is not None:
                yield clause_report
    if run.inputs.dataset_file is not None:
        from cfglint_rules.vocabulary.dataset_entries import report_refused_datasets  # few runs have such a file

        yield from report_refused_datasets(run)


def _report_words(config: Config) -> Iterator[Report]:
    """Yield a report for every word of a command that its parser refuses for its form."""
    keys = get_checked_keys(config)
    if keys is None or config.evidence.fork is not None:
        return
    for word in keys.list_refused_words(config):
        effects = compute_effects(find_candidate_releases(config), partial(_judge_word, word))
        if effects.current_effect == ACCEPTED:
            continue
        fix = None
        if word.rename is not None:
            is_sure = effects.effects == {REFUSED}
            fix = Fix("safe" if is_sure else "unsafe", word.help, keys=((config, (word.rename,)),))
        elif word.likely_edit is not None:
            fix = Fix(
                "unsafe", f"{word.help}, if that is what you meant", texts=((word.place.document, word.likely_edit),)
            )
        message = f"{word.message}: {effects.describe()}"
        help_text = word.help if fix is None else None
        yield Report(message, word.place, effects.limit_severity("error"), fix, help=help_text, grounds=effects.grounds)


def _judge_word(word: RefusedWord, release: str) -> str:
    return REFUSED if word.is_refused_at(release) else ACCEPTED


def _is_testing_unfit(clause: Clause, settings: Settings, unfit: Collection[Route]) -> bool:
    """Return whether a clause tests a setting whose value is invalid by itself (`unfit`)."""
    return bool(unfit) and any(settings.find_route(name) in unfit for name in clause.when if not name.startswith("@"))


def list_stopping_entries(run: Run) -> Iterator[str]:
    """Yield the entries that stop the run, or may stop it, as `framework: name`."""
    for config in run.configs:
        if _has_clauses(config):
            for clause, scope in find_matching_clauses(load_table(config.framework, "refusals"), Settings(config, run)):
                if "info" not in (clause.severity, scope.max_severity):
                    yield f"{config.framework}: {clause.name}"


def refused(config: Config) -> Iterator[str]:
    """Yield the messages of the matching entries that stop the framework, judging by the config without its run."""
    if not _has_clauses(config):
        return
    settings = Settings(config)
    for clause, _ in find_matching_clauses(load_table(config.framework, "refusals"), settings):
        if clause.severity == "error":
            yield format_message(clause, settings)


def _has_clauses(config: Config) -> bool:
    """Return whether the framework has refusals, and its keys are checked or it has no vocabulary."""
    if not load_table(config.framework, "refusals"):
        return False
    return frameworks.get_keys(config) is None or get_checked_keys(config) is not None
