"""KEY004 wrong-type: the framework does not accept this value for the key.

## What it does
Checks every value against the type, bounds and enumeration of its key at the target release. cfglint converts values
the way the framework does:

- pydantic (axolotl, the sections of DeepSpeed) converts text to numbers
- OmegaConf (OLMo) converts to the type of the field
- argparse (OpenRLHF) converts each word of the command
- LLaMA-Factory's parser does not convert anything
- verl checks words where it uses them, and stops at a word where it computes with a number. Only settings that the run
  certainly uses are checked: `kl_loss_type` with `use_kl_loss`, the critic's only if there is a critic

TRL refuses each unknown loss in a list of losses (`loss_type`) when it computes the first loss.

Options of a TRL command next to its recipe (`trl sft --config FILE --save_strategy never`) are checked like the
recipe's keys.

Some words are only passed on to another library. They are checked against the library that receives them: the HF
Trainer (axolotl's `optimizer`, `lr_scheduler`, `save_strategy`) or transformers (OpenRLHF's `--attn_implementation`).

## Why is this bad?
Most frameworks stop at the start. LLaMA-Factory passes the value on: `bf16: "false"` is a non-empty string, so bf16 is
on. `lora_rank: "8"` fails at the first calculation, after the model is loaded.

## Example
    warmup_steps: 0.1
    save_strategy: no

## Use instead
    warmup_ratio: 0.1
    save_strategy: "no"

YAML reads a bare `no` as false.

## Fix safety
Safe if only one meaning is possible, as in these cases:

- a fraction as the number of steps
- a word that only differs in case, `-` or `_`
- a number or `true` in quotes, or an integer written as a float (`8.0`)
- a bare `no`
- a list of strings if LLaMA-Factory expects a comma-separated string

Unsafe if the current value works but means something else (`"false"`), or if a word is only similar to a valid one.
Removing an empty key to get its default is also unsafe. A key whose comment asks for a value (`# FILL IN`) is not
removed.

## When it does not apply
These values are not reported:

- values that come from the environment or another file
- placeholders that a script replaces (`{rate}`, `__RATE__`, or the key's own name in capitals if no valid value of the
  key is in capitals)
- attention kernels from the Hub
- words of verl's registries if the run imports a module of the user (`custom_reward_function.path`)

These are warnings:

- words that the HF Trainer or transformers does not have, because other releases may have them
- a template that no known LLaMA-Factory release has, or a word that no known verl release registers, if the release is
  not stated: releases add words, and users register their own
- an invalid value in a data set entry that the framework then reads as another kind of data set, without this key

If the repository contains a copy of the framework, words that the copy's code compares the setting with are accepted,
unless the code rejects them. In a copy of verl, a word that the code contains as a text is accepted, too.

If a fork may be in use, unknown words of an enumeration are left to KEY001, and every other finding is a warning.

## References
docs/schemas.md; pydantic 2 conversion table; omegaconf 2.3.0 `nodes.py`; transformers 5.8.0 `hf_argparser.py`
(parse_dict) and `training_args.py`, 4.57.3 and 5.23.0 `modeling_utils.py` (get_correct_attn_implementation);
LLaMA-Factory 0.9.5 `hparams/`, `data/template.py` (get_template_and_fix_tokenizer); verl 0.3.0.post1 to 0.9.1
`trainer/ppo/core_algos.py`, `trainer/main_ppo.py`, `workers/config/`, `workers/rollout/base.py`; TRL 0.20.0 to 1.16.0
`trainer/dpo_trainer.py` (dpo_loss, _compute_loss).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.effect_by_release import (
    ACCEPTED,
    EffectByRelease,
    build_release_grounds,
    build_setting_ground,
    compute_effects,
    find_candidate_releases,
    find_deciding_package,
    find_fact,
)
from cfglint_rules.vocabulary.launched import LaunchedSetting, list_launched_settings
from cfglint_rules.vocabulary.misfits import (
    BY_TRAINER,
    REGISTRY,
    get_first_word,
    is_accepted_at,
    is_accepted_by_any,
    is_accepted_by_framework,
    is_fatal,
    is_known_downstream,
    is_left_open,
    list_accepted_words,
    list_schemas,
    pick_refused,
)
from cfglint_rules.vocabulary.survey import (
    REFUSED,
    KeyOccurrence,
    get_checked_keys,
    get_context,
    get_target_release,
    get_vocabulary,
)
from cfglint_rules.vocabulary.values import Schema, describe_expected, format_value, list_enum_words
from cfglint_rules.vocabulary.verdicts import is_possibly_from_fork, list_verdicts
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Change, Delete, Route, Set, Unknown
from cfglint_train.findings.finding import Applicability, Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground

RULE: Final = Rule("KEY004", "wrong-type", "error", scope="config", fix="safe", refuses=True, rests_on_vocabulary=True)

_SPECIAL_TOKENS: Final = frozenset(("bos_token", "eos_token", "pad_token", "unk_token", "additional_special_tokens"))
# LLaMA-Factory splits the values of these keys at commas and expects a string (0.9.5 hparams/model_args.py).
_SPLIT_KEYS: Final = ("adapter_name_or_path", "add_special_tokens", "add_tokens")


def check(config: Config) -> Iterator[Report]:
    """Yield a report for every value that the framework rejects or misreads; a fork's words are left to KEY001."""
    for verdict in list_verdicts(config, "misfit"):
        if not is_possibly_from_fork(verdict):
            yield _build_report(verdict.occurrence, verdict.schema)
    yield from _report_launched(config)


def refused(config: Config) -> Iterator[str]:
    """Yield the messages for values that stop the framework, without words that a fork may have added."""
    for verdict in list_verdicts(config, "misfit"):
        if is_fatal(verdict.occurrence) and not is_possibly_from_fork(verdict):
            yield f"{verdict.occurrence.name} must be {describe_expected(verdict.schema)}"


def find_fatal_settings(config: Config) -> frozenset[Route]:
    """Return the settings whose values stop every candidate release before it checks combinations of settings."""
    return frozenset(
        verdict.occurrence.route
        for verdict in list_verdicts(config, "misfit")
        if is_fatal(verdict.occurrence)
        and not is_possibly_from_fork(verdict)
        and _find_value_effects(verdict.occurrence, verdict.schema, REFUSED).is_uniform
    )


def _find_registering_release(occurrence: KeyOccurrence) -> str | None:
    """Return the first release after the effective release that accepts the word, or None."""
    framework_vocabulary, target_key = (
        get_vocabulary(occurrence.config),
        parse_release(get_target_release(occurrence.config).release),
    )
    later = (
        ()
        if framework_vocabulary is None
        else (release for release in framework_vocabulary.releases if parse_release(release) > target_key)
    )
    return next((release for release in later if is_accepted_at(occurrence, release)), None)


def _build_report(occurrence: KeyOccurrence, schema: Schema) -> Report:
    from cfglint_rules.vocabulary.kinds import is_read_as_another_kind  # few values are of another kind

    value, is_refused = occurrence.value, is_fatal(occurrence)
    if is_refused:
        outcome, effect = (
            f"{_name_downstream(occurrence.config)} refuses it" if BY_TRAINER in schema else "it is refused",
            REFUSED,
        )
    elif is_read_as_another_kind(occurrence, is_accepted_by_framework):
        outcome, effect = "the item is read as another kind, and this key is silently ignored", "dropped"
    elif isinstance(value, str) and schema.get("type") == "boolean":
        outcome, effect = "the string is read as true" if value else "the string is read as false", "misread"
    elif isinstance(value, str) and list_enum_words(schema):
        outcome, effect = "nothing checks it, and it matches none of them", "misread"
    else:
        outcome, effect = "it is not converted", "misread"
    from cfglint_train.findings.comments import find_placeholder

    placeholder = find_placeholder(occurrence.place) if value is None else None
    fix = None if placeholder is not None else _build_fix(occurrence, schema)
    effects = _find_value_effects(occurrence, schema, effect)
    if not effects.is_uniform:
        outcome += f" since {get_target_release(occurrence.config).title} {effects.spans[-1][1][0]}"
    is_registered_only = (
        REGISTRY in schema and not effects.candidates.is_stated and occurrence.config.evidence.vocabulary is None
    )
    if REGISTRY in schema and effects.is_uniform:
        first_release, title = _find_registering_release(occurrence), get_target_release(occurrence.config).title
        outcome = (
            f"it needs {title} {first_release}"
            if first_release
            else f"no known release of {title} has it"
            if is_registered_only
            else outcome
        )
    is_former = effects.candidates.can_be_older and _is_former(occurrence)
    is_certain = is_refused and BY_TRAINER not in schema and not is_registered_only and not is_former
    all_grounds = (
        *(build_release_grounds(effects.candidates, is_uniform=False) if is_former else effects.grounds),
        *_list_assumptions(occurrence),
    )
    refused_part = pick_refused(occurrence.config, schema, value)
    accepted = _describe_accepted(occurrence, schema, refused_part)
    has_no_value = value is True and occurrence.config.document.syntax == "shell"
    return Report(
        f"`{occurrence.name}` needs a value ({accepted}): {outcome}"
        if has_no_value
        else f"`{occurrence.name}` must be {accepted}, not {format_value(refused_part)}: {outcome}",
        occurrence.place,
        effects.limit_severity("error" if is_certain else "warning"),
        None if fix is None else fix._replace(grounds=all_grounds),
        help=None if placeholder is None else f"state the value that `{placeholder}` asks for",
        grounds=all_grounds,
    )


def _is_former(occurrence: KeyOccurrence) -> bool:
    """Return whether a release older than all known releases accepted the value."""
    keys = get_checked_keys(occurrence.config)
    return keys is not None and occurrence.value in keys.words.former_values.get(occurrence.name, ())


def _list_assumptions(occurrence: KeyOccurrence) -> tuple[Ground, ...]:
    """Return the ground for the assumption behind a value (a variable's default, a condition in a script), if any."""
    assumption = occurrence.config.get_origin(*occurrence.route).assumption
    return (build_setting_ground(occurrence.name, occurrence.value, assumption),) if assumption else ()


def _name_downstream(config: Config) -> str:
    """Return the name of the library that receives forwarded words and rejects this one."""
    keys = get_checked_keys(config)
    assert keys is not None
    return keys.forward_target


def _find_value_effects(occurrence: KeyOccurrence, schema: Schema, effect: str) -> EffectByRelease:
    """Return the effects of the value for the candidate releases; a release without the key counts as accepting it."""
    config, fact = occurrence.config, occurrence.fact
    assert fact is not None

    def find_effect(release: str) -> str:
        if BY_TRAINER in schema:
            return effect
        fact_at_release = find_fact(occurrence, release)
        if fact_at_release is None or fact_at_release.resolve_status().kind != PRESENT:
            return ACCEPTED
        return (
            ACCEPTED if is_accepted_by_any(config, list_schemas(config, fact_at_release), occurrence.value) else effect
        )

    return compute_effects(find_candidate_releases(config, find_deciding_package(occurrence)), find_effect)


def _describe_accepted(occurrence: KeyOccurrence, schema: Schema, value: Any) -> str:
    keys = get_checked_keys(occurrence.config)
    return (None if keys is None else keys.describe_values(schema)) or describe_expected(schema, value)


# --- options of a launch ---------------------------------------------------------------------------------------------


def _report_launched(config: Config) -> Iterator[Report]:
    """Yield a report for every launch option with a value that the framework, or the library behind it, rejects."""
    keys = get_checked_keys(config)
    if keys is None:
        return
    for setting in list_launched_settings(config, "taken"):
        fact = setting.fact
        if fact is None or isinstance(setting.value, Unknown):
            continue
        schemas = list_schemas(config, fact)
        value = get_first_word(setting.value, schemas)
        if is_left_open(config, keys, fact, value):
            continue
        if not is_accepted_by_any(config, schemas, value):
            yield _build_option_report(config, setting, schemas[0] or {}, value)
        elif fact.name in keys.forwarded_settings and not is_known_downstream(
            words := list_accepted_words(keys, fact), value
        ):
            yield _build_option_report(config, setting, {"enum": words, BY_TRAINER: True}, value)


def _build_option_report(config: Config, setting: LaunchedSetting, schema: Schema, value: Any) -> Report:
    is_trainer_word = BY_TRAINER in schema

    def find_effect(release: str) -> str:
        fact = setting.find_fact(release)
        if is_trainer_word or fact is None or fact.resolve_status().kind != PRESENT:
            return REFUSED if is_trainer_word else ACCEPTED
        return ACCEPTED if is_accepted_by_any(config, list_schemas(config, fact), value) else REFUSED

    effects = compute_effects(find_candidate_releases(config), find_effect)
    outcome = f"{_name_downstream(config)} refuses it" if is_trainer_word else effects.describe()
    refused_part = pick_refused(config, schema, value)
    accepted = describe_expected(schema, refused_part)
    return Report(
        f"`{setting.name}` needs a value ({accepted}): {outcome}"
        if value == ""
        else f"`{setting.name}` must be {accepted}, not {format_value(refused_part)}: {outcome}",
        setting.place,
        effects.limit_severity("warning" if is_trainer_word else "error"),
        grounds=effects.grounds,
    )


# --- fixes -----------------------------------------------------------------------------------------------------------


def _build_fix(occurrence: KeyOccurrence, schema: Schema) -> Fix | None:
    """Return the fix that writes the intended value, or None if the intention is not clear."""
    value = occurrence.value
    if isinstance(value, Unknown):
        return None
    if str(occurrence.route[-1]) == "warmup_steps" and isinstance(value, float) and 0 < value < 1:
        return _build_ratio_fix(occurrence)
    if value is False and str(occurrence.route[-1]).endswith("_strategy"):
        return _build_set_fix(occurrence, "safe", "no", 'put "no" in quotes')
    if value is None and _has_default(occurrence):
        changes: tuple[Change, ...] = (Delete((*occurrence.config.root, *occurrence.route)),)
        message = f"remove `{occurrence.name}`: the default is {format_value(schema.get('default'))}"
        return Fix("unsafe", message, keys=((occurrence.config, changes),))
    if isinstance(value, dict) and occurrence.route == ("tokens",) and value.keys() <= _SPECIAL_TOKENS:
        return _build_special_tokens_fix(occurrence)
    if isinstance(value, list) and occurrence.route[-1] in _SPLIT_KEYS and all(isinstance(item, str) for item in value):
        return _build_set_fix(occurrence, "safe", ",".join(value), "join the items with commas")
    if isinstance(value, str):
        return _build_word_fix(occurrence, schema, value) or _build_unquoting_fix(occurrence, schema, value)
    if (
        isinstance(value, float)
        and value.is_integer()
        and is_accepted_by_framework(occurrence.config, schema, int(value))
    ):
        return _build_set_fix(occurrence, "safe", int(value), f"write it as {int(value)}")
    return None


def _build_set_fix(occurrence: KeyOccurrence, applicability: Applicability, value: Any, message: str) -> Fix:
    config = occurrence.config
    return Fix(applicability, message, keys=((config, (Set((*config.root, *occurrence.route), value),)),))


def _has_default(occurrence: KeyOccurrence) -> bool:
    return occurrence.fact is not None and occurrence.fact.get_schema().get("default") is not None


def _build_ratio_fix(occurrence: KeyOccurrence) -> Fix | None:
    """Return the fix that renames `warmup_steps` to `warmup_ratio`, or None if that key is set or does not exist."""
    from cfglint_rules.vocabulary.renames import is_taken, move_key  # few keys are renamed

    config, framework_vocabulary = occurrence.config, get_vocabulary(occurrence.config)
    route = (*occurrence.route[:-1], "warmup_ratio")
    fact = (
        None
        if framework_vocabulary is None
        else framework_vocabulary.find_fact(route, get_target_release(config).release, get_context(config))
    )
    if fact is None or fact.resolve_status().kind != "present" or is_taken(config, route):
        return None
    return Fix(
        "safe",
        "rename to warmup_ratio: the value is a fraction of the steps",
        keys=((config, move_key(config, occurrence.route, route)),),
    )


def _build_special_tokens_fix(occurrence: KeyOccurrence) -> Fix | None:
    """Return the fix that renames a mapping `tokens` to `special_tokens`, because axolotl's `tokens` is a list."""
    from cfglint_rules.vocabulary.renames import is_taken, move_key  # few keys are renamed

    config, route = occurrence.config, ("special_tokens",)
    if is_taken(config, route):
        return None
    return Fix("safe", "rename to special_tokens", keys=((config, move_key(config, occurrence.route, route)),))


def _build_word_fix(occurrence: KeyOccurrence, schema: Schema, value: str) -> Fix | None:
    """Return the fix that writes the only word that differs in case, `-` or `_`, or else the most similar word."""
    words = list_enum_words(schema)
    identical = [word for word in words if _strip_separators(word) == _strip_separators(value)]
    if len(identical) == 1:
        return _build_set_fix(occurrence, "safe", identical[0], f"write it as {identical[0]}")
    from cfglint_rules.vocabulary.proposals import correct_word

    typo_target = correct_word(value, words)
    if typo_target is None or _get_digits(typo_target) != _get_digits(value):  # qwen2_5 is no typo of qwen3_5
        return None
    return _build_set_fix(occurrence, "unsafe", typo_target, f"write {typo_target}, if that is what you meant")


def _get_digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))


def _strip_separators(word: str) -> str:
    return word.replace("-", "").replace("_", "").lower()


def _build_unquoting_fix(occurrence: KeyOccurrence, schema: Schema, value: str) -> Fix | None:
    """Return the fix that removes the quotes around a number or boolean, or None if the result is not accepted."""
    unquoted: Any = {"true": True, "false": False}.get(value.lower())
    if unquoted is None:
        try:
            unquoted = float(value)
        except ValueError:
            return None
        unquoted = int(unquoted) if unquoted.is_integer() else unquoted
    if occurrence.config.document.syntax == "shell" or not is_accepted_by_framework(
        occurrence.config, schema, unquoted
    ):
        return None
    applicability: Applicability = "unsafe" if unquoted is False else "safe"
    return _build_set_fix(occurrence, applicability, unquoted, f"write it as {format_value(unquoted)}")
