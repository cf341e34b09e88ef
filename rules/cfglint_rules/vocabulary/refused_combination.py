"""KEY006 refused-combination: settings that the framework, or what it hands them to, refuses together.

## What it does
Checks the configuration against a table of what its framework refuses: its own validators, the assertions that come
after the model is loaded, and combinations that everybody accepts and that lose the run, such as sharded checkpoints
that are never written. An entry counts only where each of its settings is known. A setting that
the launch gives below a section that an OLMo-core script leaves unset is reported, too (`Config.merge`, since 2.5.0).

## Why is this bad?
Validators stop the job when it starts, after it has waited for its GPUs. The Trainer's own checks come after the model
is loaded on every rank, and what is not checked comes after hours.

## Example
    fsdp_version: 2
    optimizer: adamw_bnb_8bit

## Use instead
    fsdp_version: 2
    optimizer: adamw_torch_8bit

## Fix safety
Safe where the run could not have got anywhere and the fix takes nothing away from it; unsafe where one of two things
that were asked for has to go.

## When it does not apply
An entry holds from one release to another. Where the newest candidate release is among them but not all are, or where
the release may be older than the known ones, it is a warning that names the first one. An entry that tests a value
which is refused by itself (KEY004) is left out: the run does not come that far.

## References
Each entry names its source: `lint/cfglint_train/frameworks/*/refusals.json`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import holding, report, said
from cfglint_rules.vocabulary.launched import given
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import keys_of
from cfglint_rules.vocabulary.table import Clause, table
from cfglint_rules.vocabulary.wrong_type import unfit_everywhere
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.runs.run import Run

RULE: Final = Rule("KEY006", "refused-combination", "error", fix="safe", refuses=True, rests_on_vocabulary=True)


def check(run: Run) -> Iterator[Report]:
    """One report per entry that holds, for every configuration of the run."""
    for one in given(run.main, "unset"):
        yield Report(
            f"`{one.name}` is given at launch, but {os.path.basename(run.main.document.path)} leaves `{one.unset}` "
            f"unset: {one.releases.said()}",
            one.place,
            one.releases.milder("error"),
            help=f"set `{one.unset}` in the file, or pass the section as a whole: `--{one.unset}='{{...}}'`",
            grounds=one.releases.grounds,
        )
    for config in run.configs:
        if not _has_clauses(config):
            continue
        settings = Settings(config, run)
        held = list(holding(table(config.framework, "refusals"), settings))
        unfit = config.once(unfit_everywhere) if held else frozenset()
        for clause, reach in held:
            found = None if _tests_one(clause, settings, unfit) else report(clause, settings, reach)
            if found is not None:
                yield found


def _tests_one(clause: Clause, settings: Settings, unfit: Collection[Route]) -> bool:
    """Whether a clause tests the value of one of some settings."""
    return bool(unfit) and any(settings.route(name) in unfit for name in clause.when if not name.startswith("@"))


def stopping(run: Run) -> Iterator[str]:
    """The names of the entries that stop a run, each with the framework whose they are."""
    for config in run.configs:
        if _has_clauses(config):
            for clause, reach in holding(table(config.framework, "refusals"), Settings(config, run)):
                if clause.severity == reach.gravest == "error":
                    yield f"{config.framework}: {clause.name}"


def refused(config: Config) -> Iterator[str]:
    """The entries that stop the framework, as far as one file shows."""
    if not _has_clauses(config):
        return
    settings = Settings(config)
    for clause, _ in holding(table(config.framework, "refusals"), settings):
        if clause.severity == "error":
            yield said(clause, settings)


def _has_clauses(config: Config) -> bool:
    """Whether there are clauses for the framework, and its keys, where it has a vocabulary of them, are checked."""
    if not table(config.framework, "refusals").rows:
        return False
    return frameworks.keys_of(config) is None or keys_of(config) is not None
