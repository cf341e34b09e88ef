"""KEY004 wrong-type: a value that the framework does not take for this key.

## What it does
Checks every value against the type, the bounds and the words that the target release takes for its key, as the
framework's own reader converts it: pydantic (axolotl, the sections of DeepSpeed) makes numbers of text, OmegaConf
(OLMo) converts by the field's type, argparse (OpenRLHF) word by word, and LLaMA-Factory's parser converts nothing.
Options beside TRL's recipe (`trl sft --config FILE --save_strategy never`) are checked like its keys. Text that the
framework only hands on is checked against what finally takes it: the HF Trainer (axolotl's `optimizer`, `lr_scheduler`,
`save_strategy`), or transformers (OpenRLHF's `--attn_implementation`).

## Why is this bad?
Most readers stop. LLaMA-Factory hands the value on: `bf16: "false"` is a text that is not empty, so bf16 is on, and
`lora_rank: "8"` fails where it is first used in a calculation, once the model is loaded.

## Example
    warmup_steps: 0.1
    save_strategy: no

## Use instead
    warmup_ratio: 0.1
    save_strategy: "no"

YAML reads a bare `no` as false.

## Fix safety
Safe where the run could not have started and only one thing can have been meant: a share of the steps, a word in
another case, a number or `true` in quotes, a bare `no`. Unsafe where the present value works and means something else
(`"false"`), where a word is only similar, and where an empty key is removed for its default.

## When it does not apply
Values that the environment or another file fills in are not known, and never reported, nor are marks that a script
replaces (`{rate}`, `__RATE__`, the key's own name in capitals where it takes no words in capitals). A word that the HF
Trainer or transformers does not have is a warning: other releases may have it. So is a template that no known
LLaMA-Factory has, where its release is not stated: new ones come with each, and people add their own. Kernels of the
Hub are not known. Of a copy in the repository, a word that its code compares the setting with is one of its own,
whatever its declaration has, where nothing refuses it. An item that fits another kind of data set, which lacks the
key, is read as that one: a warning. Where a fork may be in use, words are left to KEY001 (those in the place of a
number where many scripts give them), and everything else is a warning.

## References
docs/schemas.md; pydantic 2 conversion table; omegaconf 2.3.0 `nodes.py`; transformers 5.8.0 `hf_argparser.py`
(parse_dict) and `training_args.py`, 4.57.3 and 5.23.0 `modeling_utils.py` (get_correct_attn_implementation);
LLaMA-Factory 0.9.5 `hparams/`, `data/template.py` (get_template_and_fix_tokenizer).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.effect_by_release import (
    FINE,
    EffectByRelease,
    across,
    assumed_setting,
    deciding,
    fact_at,
    grounds,
    window_of,
)
from cfglint_rules.vocabulary.kinds import is_taken_for_another
from cfglint_rules.vocabulary.launched import Given, given
from cfglint_rules.vocabulary.misfits import (
    BY_TRAINER,
    REGISTRY,
    first_word,
    fits_framework,
    fits_one,
    is_handed_on,
    schemas_of,
    stops,
    takes_at,
    words_of,
)
from cfglint_rules.vocabulary.renames import is_taken, moved
from cfglint_rules.vocabulary.survey import REFUSED, KeyOccurrence, context, keys_of, target, vocabulary
from cfglint_rules.vocabulary.values import Schema, expected, members, shown
from cfglint_rules.vocabulary.verdicts import may_be_forks, verdicts
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Change, Delete, Route, Set, Unknown
from cfglint_train.findings.finding import Applicability, Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground

RULE: Final = Rule("KEY004", "wrong-type", "error", scope="config", fix="safe", refuses=True, rests_on_vocabulary=True)

_SPECIAL: Final = frozenset(("bos_token", "eos_token", "pad_token", "unk_token", "additional_special_tokens"))
# LLaMA-Factory's own keys that are split at commas whatever they hold (0.9.5 hparams/model_args.py).
_SPLIT: Final = ("adapter_name_or_path", "add_special_tokens", "add_tokens")


def check(config: Config) -> Iterator[Report]:
    """One report per value that does not fit."""
    for one in verdicts(config, "misfit"):
        if not may_be_forks(one):
            yield _report(one.sighting, one.schema)
    yield from _launched(config)


def refused(config: Config) -> Iterator[str]:
    """The values that stop the framework."""
    for one in verdicts(config, "misfit"):
        if stops(one.sighting) and not may_be_forks(one):
            yield f"{one.sighting.name} takes {expected(one.schema)}"


def unfit_everywhere(config: Config) -> frozenset[Route]:
    """The settings whose value stops the framework at every candidate release: nothing that comes later is reached."""
    return frozenset(
        one.sighting.route
        for one in verdicts(config, "misfit")
        if stops(one.sighting) and not may_be_forks(one) and _across(one.sighting, one.schema, REFUSED).agreed
    )


def _registering(sighting: KeyOccurrence) -> str | None:
    """The first release after the one that counts that has the word."""
    known, held = vocabulary(sighting.config), release_key(target(sighting.config).release)
    later = () if known is None else (one for one in known.releases if release_key(one) > held)
    return next((one for one in later if takes_at(sighting, one)), None)


def _report(sighting: KeyOccurrence, schema: Schema) -> Report:
    value, refused = sighting.value, stops(sighting)
    if refused:
        outcome, effect = f"{_judge(sighting.config)} refuses it" if BY_TRAINER in schema else "it is refused", REFUSED
    elif is_taken_for_another(sighting, fits_framework):
        outcome, effect = "the item is taken for one of another kind, and this key is silently ignored", "dropped"
    elif isinstance(value, str) and schema.get("type") == "boolean":
        outcome, effect = "as text it is read as true" if value else "as text it is read as false", "misread"
    elif isinstance(value, str) and members(schema):
        outcome, effect = "nothing checks it, and it is taken for none of them", "misread"
    else:
        outcome, effect = "it is not converted", "misread"
    fix = _fix(sighting, schema)
    releases = _across(sighting, schema, effect)
    if not releases.agreed:
        outcome += f" since {target(sighting.config).title} {releases.runs[-1][1][0]}"
    registered = REGISTRY in schema and not releases.window.stated and sighting.config.evidence.vocabulary is None
    if REGISTRY in schema and releases.agreed:
        first, title = _registering(sighting), target(sighting.config).title
        outcome = (
            f"it needs {title} {first}" if first else f"no known release of {title} has it" if registered else outcome
        )
    former = releases.window.earlier and _is_former(sighting)
    certain = refused and BY_TRAINER not in schema and not registered and not former
    on = (*(grounds(releases.window, agreed=False) if former else releases.grounds), *_doubts(sighting))
    wanted = _wanted(sighting, schema)
    bare = value is True and sighting.config.document.syntax == "shell"
    return Report(
        f"`{sighting.name}` needs a value ({wanted}): {outcome}"
        if bare
        else f"`{sighting.name}` takes {wanted}, not {shown(value)}: {outcome}",
        sighting.place,
        releases.milder("error" if certain else "warning"),
        None if fix is None else fix._replace(grounds=on),
        grounds=on,
    )


def _is_former(sighting: KeyOccurrence) -> bool:
    """Whether a release before the oldest known one took the value."""
    keys = keys_of(sighting.config)
    return keys is not None and sighting.value in keys.words.former_values.get(sighting.name, ())


def _doubts(sighting: KeyOccurrence) -> tuple[Ground, ...]:
    """What the value rests on: the default of a variable, a condition of a script."""
    assumed = sighting.config.origin(*sighting.route).assumed
    return (assumed_setting(sighting.name, sighting.value, assumed),) if assumed else ()


def _judge(config: Config) -> str:
    """What refuses a word that the framework hands on."""
    keys = keys_of(config)
    assert keys is not None
    return keys.handed_to


def _across(sighting: KeyOccurrence, schema: Schema, effect: str) -> EffectByRelease:
    """What becomes of the value at every candidate release; one without the key does not look at it."""
    config, fact = sighting.config, sighting.fact
    assert fact is not None

    def at(release: str) -> str:
        if BY_TRAINER in schema:
            return effect
        there = fact_at(sighting, release)
        if there is None or there.status().kind != PRESENT:
            return FINE
        return FINE if fits_one(config, schemas_of(config, there), sighting.value) else effect

    return across(window_of(config, deciding(sighting)), at)


def _wanted(sighting: KeyOccurrence, schema: Schema) -> str:
    keys = keys_of(sighting.config)
    return (None if keys is None else keys.shape(schema)) or expected(schema, sighting.value)


# --- options that a launch gives -------------------------------------------------------------------------------------


def _launched(config: Config) -> Iterator[Report]:
    """One report per value of an option beside the file that the framework does not take."""
    keys = keys_of(config)
    if keys is None:
        return
    for one in given(config, "taken"):
        fact = one.fact
        if fact is None or isinstance(one.value, Unknown):
            continue
        schemas = schemas_of(config, fact)
        value = first_word(one.value, schemas)
        if isinstance(value, str) and (value in keys.filled_in or keys.may_take_more(fact.name, config)):
            continue
        if not fits_one(config, schemas, value):
            yield _option(config, one, schemas[0] or {}, value)
        elif fact.name in keys.handed_on and not is_handed_on(words := words_of(keys, fact), value):
            yield _option(config, one, {"enum": words, BY_TRAINER: True}, value)


def _option(config: Config, one: Given, schema: Schema, value: Any) -> Report:
    by_trainer = BY_TRAINER in schema

    def at(release: str) -> str:
        fact = one.facts(release)
        if by_trainer or fact is None or fact.status().kind != PRESENT:
            return REFUSED if by_trainer else FINE
        return FINE if fits_one(config, schemas_of(config, fact), value) else REFUSED

    releases = across(window_of(config), at)
    outcome = f"{_judge(config)} refuses it" if by_trainer else releases.said()
    wanted = expected(schema, value)
    return Report(
        f"`{one.name}` needs a value ({wanted}): {outcome}"
        if value == ""
        else f"`{one.name}` takes {wanted}, not {shown(value)}: {outcome}",
        one.place,
        releases.milder("warning" if by_trainer else "error"),
        grounds=releases.grounds,
    )


# --- fixes -----------------------------------------------------------------------------------------------------------


def _fix(sighting: KeyOccurrence, schema: Schema) -> Fix | None:
    """The value that was meant, where only one can have been."""
    value = sighting.value
    if isinstance(value, Unknown):
        return None
    if str(sighting.route[-1]) == "warmup_steps" and isinstance(value, float) and 0 < value < 1:
        return _ratio(sighting)
    if value is False and str(sighting.route[-1]).endswith("_strategy"):
        return _set(sighting, "safe", "no", 'put "no" in quotes')
    if value is None and _has_default(sighting):
        changes: tuple[Change, ...] = (Delete((*sighting.config.root, *sighting.route)),)
        message = f"remove `{sighting.name}`: the default is {shown(schema.get('default'))}"
        return Fix("unsafe", message, keys=((sighting.config, changes),))
    if isinstance(value, dict) and sighting.route == ("tokens",) and value.keys() <= _SPECIAL:
        return _special_tokens(sighting)
    if isinstance(value, list) and sighting.route[-1] in _SPLIT and all(isinstance(item, str) for item in value):
        return _set(sighting, "safe", ",".join(value), "join the items with commas")
    if isinstance(value, str):
        return _meant_word(sighting, schema, value) or _unquoted(sighting, schema, value)
    if isinstance(value, float) and value.is_integer() and fits_framework(sighting.config, schema, int(value)):
        return _set(sighting, "safe", int(value), f"write it as {int(value)}")
    return None


def _set(sighting: KeyOccurrence, applicability: Applicability, value: Any, message: str) -> Fix:
    config = sighting.config
    return Fix(applicability, message, keys=((config, (Set((*config.root, *sighting.route), value),)),))


def _has_default(sighting: KeyOccurrence) -> bool:
    return sighting.fact is not None and sighting.fact.schema().get("default") is not None


def _ratio(sighting: KeyOccurrence) -> Fix | None:
    """A share of the steps under its own name."""
    config, known = sighting.config, vocabulary(sighting.config)
    route = (*sighting.route[:-1], "warmup_ratio")
    fact = None if known is None else known.fact(route, target(config).release, context(config))
    if fact is None or fact.status().kind != "present" or is_taken(config, route):
        return None
    return Fix(
        "safe",
        "rename to warmup_ratio: it is a share of the steps",
        keys=((config, moved(config, sighting.route, route)),),
    )


def _special_tokens(sighting: KeyOccurrence) -> Fix | None:
    """New tokens are a list (axolotl's `tokens`); a mapping of special ones has a key of its own."""
    config, route = sighting.config, ("special_tokens",)
    if is_taken(config, route):
        return None
    return Fix("safe", "rename to special_tokens", keys=((config, moved(config, sighting.route, route)),))


def _meant_word(sighting: KeyOccurrence, schema: Schema, value: str) -> Fix | None:
    """The word of an enumeration that this one is a slip of."""
    words = members(schema)
    same = [word for word in words if _bare(word) == _bare(value)]
    if len(same) == 1:
        return _set(sighting, "safe", same[0], f"write it as {same[0]}")
    from cfglint_rules.vocabulary.proposals import slip

    near = slip(value, words)
    if near is None or _digits(near) != _digits(value):  # qwen2_5 is no slip of qwen3_5
        return None
    return _set(sighting, "unsafe", near, f"write {near}, if that is what was meant")


def _digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))


def _bare(word: str) -> str:
    return word.replace("-", "").replace("_", "").lower()


def _unquoted(sighting: KeyOccurrence, schema: Schema, value: str) -> Fix | None:
    """The number or truth value that is in quotes."""
    plain: Any = {"true": True, "false": False}.get(value.lower())
    if plain is None:
        try:
            plain = float(value)
        except ValueError:
            return None
        plain = int(plain) if plain.is_integer() else plain
    if sighting.config.document.syntax == "shell" or not fits_framework(sighting.config, schema, plain):
        return None
    applicability: Applicability = "unsafe" if plain is False else "safe"
    return _set(sighting, applicability, plain, f"write it as {shown(plain)}")
