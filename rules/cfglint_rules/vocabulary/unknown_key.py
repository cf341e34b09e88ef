"""KEY001 unknown-key: a key that no release of the framework has.

## What it does
Looks every key up in the framework's vocabulary, nested ones included, and reports those that no release has, with
the nearest key that the target release has and what becomes of the unknown one. Anything goes below free mappings
(`gradient_checkpointing_kwargs`), with plugins that cfglint does not know, and where a key only holds anchors for
the rest of the file. Of scripts, keywords of PEFT's `LoraConfig` are looked up as well, and options of a launch where
all dataclasses are known that `HfArgumentParser` or `TrlParser` is made of, and the script's parser takes nothing else.

## Why is this bad?
axolotl drops an unknown key silently, and so does DeepSpeed at its top level: the run starts with the default
of what was meant. LLaMA-Factory, OLMo, OpenRLHF and the sections of DeepSpeed refuse it, once the job has waited for
its GPUs; so does TRL's parser of a recipe, at most releases.

## Example
    base_model: meta-llama/Llama-3.2-3B
    sequence_length: 4096

## Use instead
    base_model: meta-llama/Llama-3.2-3B
    sequence_len: 4096

## Fix safety
Renaming the key is safe where the key is an obvious misspelling of the other name or another framework's word for the
same setting, and the other name is not in the file yet, and takes the value at every release in question; otherwise it
is unsafe. It is unsafe, too, where the run starts without the key and the rename switches something on or off that the
run did not have (`gradient_checkpoint: true` of axolotl), rather than give a value to what it has anyway. Where the
framework would refuse the effect that the key then has, the fix is only shown. What a job script lays over an OLMo-
core script (`--trainer.xyz=1`) or OLMo's file, or gives beside TRL's recipe (`trl sft --config FILE --xyz 1`) or
LLaMA-Factory's file (`--bf16 true`, for `bf16=true`) is only reported. There is no fix where the other name has a
further word (`batch_size`, `eval_batch_size`), is given already or deprecated itself, and where the script has further
flags that cannot be read.

## When it does not apply
Where some releases in question refuse the key and others drop it, it is a warning that names them. A program of the
repository that reads a recipe by `TrlParser` refuses what none of its dataclasses has, unless it passes
`fail_with_unknown_args=False` or `return_remaining_strings=True`; where not all of them are known, only what is
obviously misspelt is named, as ignored. A key that a script
of the repository takes out or reads before the framework sees the file is its launcher's, and one that a class of the
repository declares may be its own program's, as is an option of a command that starts a Python file of the repository,
if that or what it imports declares it (docs/templates.md). What none of them declares is a warning where none imports
the framework, and so is an option that a script gives under a condition (docs/shell-scripts.md). A copy of the
framework in the repository is the vocabulary, and a copy of PEFT that of `LoraConfig`; with a fork of PEFT that cannot
be read its keywords are not looked up. Where the repository uses another fork (a requirement that installs another
repository or an unreleased revision, a git submodule, a patch of the installed package, a class of settings that the
program changes or replaces, a launch by a program of another name), upstream's vocabulary proves nothing: one piece of
information lists what upstream does not take. That holds for removed keys (KEY002) and the words of enumerations
(KEY004), too. A key that is dropped anyway is not named in a block that has no effect as a whole (KEY005).

## References
docs/schemas.md; axolotl-ai-cloud/axolotl#2143 (`sequence_length`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import dotted, idle_blocks, is_inside, refusals_of
from cfglint_rules.vocabulary.effect_by_release import everywhere, fact_at, fate, fate_of_unknown, window_of
from cfglint_rules.vocabulary.forked import folded
from cfglint_rules.vocabulary.handed import unknown as handed
from cfglint_rules.vocabulary.launched import Given, given
from cfglint_rules.vocabulary.operators import is_on
from cfglint_rules.vocabulary.renames import may_move, moved
from cfglint_rules.vocabulary.survey import REFUSED, KeyOccurrence, context, keys_of, target, vocabulary
from cfglint_rules.vocabulary.values import fits
from cfglint_rules.vocabulary.verdicts import Verdict, sightings, verdicts
from cfglint_schemas.status import ITEM, PRESENT
from cfglint_train.documents.document import Change, Delete, Route
from cfglint_train.findings.finding import Fix, Report, Severity
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.lens import Config, spelled

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.proposals import Proposal

RULE: Final = Rule("KEY001", "unknown-key", "error", scope="config", fix="safe", refuses=True, rests_on_vocabulary=True)


MOST_MEANT: Final = 200
"""Unknown keys of one file that may be meant to be others: as many as are reported."""


def check(config: Config) -> Iterator[Report]:
    """One report per unknown key; one in all where a fork may be in use, but for a program of the repository's own: its
    options are read where it declares them.
    """
    if config.evidence.fork is not None and config.evidence.fork.kind != "program":
        yield from folded(config, config.evidence.fork)
        return
    found = sightings(config, "unknown")
    refused, idle = refusals_of(config, found), idle_blocks(config, found)
    for one in verdicts(config, "unknown"):
        report = _report(one) if refused.get(dotted(one.sighting)) != "error" else None
        if report is not None and (report.severity == "error" or not is_inside(one.sighting, idle)):
            yield _as_chosen(config, one.sighting.route, report)
    for option in given(config, "unknown"):
        report = Report(
            f"{target(config).title} has no `{option.name}`: {option.releases.said()}" + _launched_hint(config, option),
            option.place,
            option.releases.milder("error"),
            grounds=option.releases.grounds,
        )
        yield _as_chosen(config, tuple(option.name.split(".")), report)
    yield from handed(config)
    keys = keys_of(config)
    for other in () if keys is None else keys.unparsed(config):
        yield Report(
            f"the parser of `{other.program}` has no `{other.option}`: it is refused"
            + (f"; did you mean `{other.near}`?" if other.near else ""),
            other.place,
        )


def _as_chosen(config: Config, route: Route, report: Report) -> Report:
    """A report with what the choice of the entry point rests on."""
    keys = keys_of(config)
    ground = None if keys is None else keys.chosen(config, route)
    if ground is None:
        return report
    notes = report.notes if ground.grade == "assumed" else (*report.notes, ground.note)  # an assumption is noted anyway
    return report._replace(grounds=(*report.grounds, ground), notes=notes)


def _launched_hint(config: Config, one: Given) -> str:
    keys = keys_of(config)
    written = "" if keys is None else keys.launched_as(one.name, one.value)
    if written:
        return f"; settings behind a file are written `{written}`"
    return f"; did you mean `{one.near}`?" if one.near else ""


def meant(config: Config) -> Iterator[tuple[KeyOccurrence, Route, tuple[Change, ...]]]:
    """The misspelt keys with what they are meant to be, and how that is written: those that a safe fix renames."""
    from cfglint_rules.vocabulary.proposals import proposals

    for sighting in sightings(config, "unknown")[:MOST_MEANT] if config.evidence.fork is None else ():
        found = [] if _is_idle(sighting) else proposals(sighting)
        fix = _fix(sighting, found[0]) if found else None
        if fix is not None and fix.applicability == "safe" and fate_of_unknown(sighting) is not None:
            yield sighting, found[0].route, tuple(change for _, changes in fix.keys for change in changes)


def nearest(config: Config) -> Iterator[tuple[KeyOccurrence, Route]]:
    """The unknown keys, each with the key that is nearest to it, sure or not."""
    from cfglint_rules.vocabulary.proposals import proposals

    for sighting in sightings(config, "unknown")[:MOST_MEANT] if config.evidence.fork is None else ():
        found = [] if _is_idle(sighting) or fate_of_unknown(sighting) is None else proposals(sighting)
        if found:
            yield sighting, found[0].route


def refused(config: Config) -> Iterator[str]:
    """The unknown keys that stop the framework."""
    for one in verdicts(config, "unknown") if config.evidence.fork is None else ():
        if one.effect == REFUSED:
            yield f"{target(config).title} has no `{one.sighting.name}`"


def _report(unknown: Verdict) -> Report | None:
    sighting, effect = unknown.sighting, unknown.effect
    config, held = sighting.config, target(sighting.config)
    releases = fate_of_unknown(sighting)
    if releases is None:
        return None
    from cfglint_rules.vocabulary.proposals import proposals  # few files have an unknown key

    found = [] if _is_idle(sighting) or _is_of_another_kind(sighting) else proposals(sighting)
    if effect != REFUSED and not (found and found[0].sure) and _may_be_foreign(config):
        return None
    older = effect != REFUSED and window_of(config).before and _may_be_former(sighting)
    severity: Severity = "error" if effect == REFUSED else "info" if older else "warning"
    fix = _fix(sighting, found[0]) if found else _removal(sighting)
    return Report(
        f"{held.title} has no `{sighting.name}`{_under(sighting)}: {releases.said()}{_hint(sighting, found)}",
        sighting.place,
        releases.milder(severity),
        fix,
        grounds=releases.grounds,
    )


def _may_be_former(sighting: KeyOccurrence) -> bool:
    keys = keys_of(sighting.config)
    return keys is None or keys.may_be_former(sighting.route)


def _under(sighting: KeyOccurrence) -> str:
    """The settings by which the framework chose what the mapping around the key is, if it did."""
    known, config = vocabulary(sighting.config), sighting.config
    chosen = {} if known is None else known.chosen(sighting.parent, target(config).release, context(config))
    return "".join(f" under {name}: {value}" for name, value in chosen.items())


def _is_of_another_kind(sighting: KeyOccurrence) -> bool:
    """Whether the key would be one if the framework had not chosen what the mapping around it is."""
    known, config = vocabulary(sighting.config), sighting.config
    anything = context(config)._replace(settings=None)
    return known is not None and known.fact(sighting.route, target(config).release, anything) is not None


def _hint(sighting: KeyOccurrence, found: list[Proposal]) -> str:
    if found and found[0].sure:
        return f"; did you mean `{spelled(found[0].route)}`?"
    from cfglint_rules.vocabulary.proposals import advice

    advised = advice(sighting)
    if advised is not None:
        return f"; {advised}"
    if found:
        return f"; did you mean {' or '.join(f'`{spelled(one.route)}`' for one in found[:2])}?"
    keys = keys_of(sighting.config)
    last = None if keys is None else keys.words.earlier.get(sighting.name)
    if last is not None:
        return f"; {target(sighting.config).title} {last} was the last release with it"
    return f"; {keys.words.why}" if keys is not None and _is_idle(sighting) else ""


def _fix(sighting: KeyOccurrence, proposal: Proposal) -> Fix | None:
    """The key under its right name, with its value and its comment; None where that name is taken or impossible."""
    config, route = sighting.config, proposal.route
    known = vocabulary(config)
    if known is None or not proposal.same or ITEM in route or sighting.overridden or not may_move(config, route):
        return None
    if not _takes(sighting, route, target(config).release):
        return None
    sure = proposal.sure and everywhere(sighting, lambda release: _takes(sighting, route, release))
    switches = _switches(sighting, route)
    return Fix(
        "safe" if sure and switches is None else "unsafe",
        f"rename {sighting.name} to {spelled(route)}" + (f", which is {switches} now" if switches else ""),
        keys=((config, moved(config, sighting.route, route, sighting.value)),),
    )


def _switches(sighting: KeyOccurrence, route: Route) -> str | None:
    """What a setting is in a run that starts without the key, where a rename would switch it on or off (`not set`,
    `on`); None where it gives a value to what the run has anyway, or where the run cannot start.
    """
    given = is_on(sighting.value)
    same = fate(sighting).effects == {REFUSED} or everywhere(
        sighting, lambda release: _is_on_without(sighting, route, release) is given
    )
    return None if same else "not set" if given else "on"


def _is_on_without(sighting: KeyOccurrence, route: Route, release: str) -> bool:
    """Whether a release has a setting on where the file does not state it."""
    fact = fact_at(sighting, release, route)
    schema = {} if fact is None else fact.schema()
    return bool(schema.get("x-required")) or is_on(schema.get("default"))


def _takes(sighting: KeyOccurrence, route: Route, release: str) -> bool:
    """Whether a release has the other key, and takes the value for it."""
    fact, loader = fact_at(sighting, release, route), load(sighting.config.framework).loader
    return fact is not None and fact.status().kind == PRESENT and fits(fact.schema(), sighting.value, loader)


def _removal(sighting: KeyOccurrence) -> Fix | None:
    """Without the key, where it can have no meaning."""
    if not _is_idle(sighting) or sighting.overridden:
        return None
    changes = (Delete((*sighting.config.root, *sighting.route)),)
    return Fix("safe", f"remove {sighting.name}", keys=((sighting.config, changes),))


def _is_idle(sighting: KeyOccurrence) -> bool:
    """Whether the key was copied from another section, and can have no meaning in this one."""
    keys = keys_of(sighting.config)
    section = ".".join(map(str, sighting.route[:-1]))
    return keys is not None and sighting.route[-1] in keys.words.idle.get(section, ())


def _may_be_foreign(config: Config) -> bool:
    """Whether something that the configuration loads may bring keys that the vocabulary does not know."""
    keys = keys_of(config)
    return keys is not None and keys.may_be_foreign(config, target(config).release)
