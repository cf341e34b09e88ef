"""SYN003 duplicate-key: a mapping has the same key twice.

## What it does
Reports a key that occurs more than once in a mapping. The finding is at the second occurrence and links to the others.

## Why is this bad?
The loader decides what happens:

- PyYAML (axolotl, accelerate, LLaMA-Factory before 0.9.4) and Python's `json` silently keep the last value. Editing the
  first value has no effect.
- OmegaConf (LLaMA-Factory since 0.9.4, OLMo) and DeepSpeed's own loader reject the file. The finding is then an error.

## Example
    micro_batch_size: 4
    sequence_len: 4096
    micro_batch_size: 1

## When it does not apply
If only some of the candidate releases reject the file, the message names the first of them. The finding is then a
warning if the values differ or if the release that cfglint checks against rejects the file, otherwise an info.

If the values are the same and no release rejects the file, the finding is an info. It is also an info if a command
repeats an option of a variable or an array that it expands, because scripts change shared options that way. An option
of a command that needs a value and has none is an error, even if the option follows again with a value: argparse
rejects it.

Two cases are not duplicates:

- options that a script sets under different conditions (an `if` and its `else`)
- an option that looks like an abbreviation of another option (`--model_name`), if a program in the repository declares
  it

## References
omegaconf 2.3.0 `_utils.py` (OmegaConfLoader); LLaMA-Factory 0.9.3 and 0.9.4 `hparams/parser.py` (read_args); deepspeed
0.19.8 `runtime/config_utils.py` (dict_raise_error_on_duplicate_keys).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.effect_by_release import EffectByRelease, compute_effects, find_candidate_releases
from cfglint_rules.vocabulary.misfits import is_accepted_by_any, list_schemas
from cfglint_rules.vocabulary.survey import REFUSED, get_checked_keys
from cfglint_train.documents.document import Document, Entry, Route
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.findings.finding import Related, Report, Severity
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.lens import Config
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.origin import Place

RULE: Final = Rule("SYN003", "duplicate-key", "warning", scope="config")

_LAST_WINS: Final = "the last one wins"


def check(config: Config) -> Iterator[Report]:
    """Yield a report for every duplicate key, at the second occurrence."""
    document = config.document
    entries_by_key: dict[tuple[Route, str | None], list[Entry]] = {}
    for route, duplicate, first in document.find_duplicate_keys():
        if route[: len(config.root)] == config.root:
            entries_by_key.setdefault((route, duplicate.name), [first]).append(duplicate)
    for entries in entries_by_key.values():
        duplicates = [entry for entry in entries if not _is_program_option(config, entry)]
        if len(duplicates) < 2:
            continue
        bare = _find_bare_option(config, duplicates)
        if bare is duplicates[-1]:
            continue  # KEY004 reports the value
        if bare is not None:
            message = f"`{bare.name}` needs a value: the program rejects it, although the option follows again"
            yield Report(message, Place(document, bare.key.span), "error", help="remove it, or add its value")
            continue
        first, second, *more = duplicates
        is_mistake = _has_different_values(document, (first, second, *more)) and not _is_override(config, duplicates)
        outcome, severity, grounds = _describe_outcome(config, is_mistake)
        related = (
            Related(Place(document, first.key.span), "first here"),
            *(Related(Place(document, entry.key.span), "and here") for entry in more),
        )
        message = f"duplicate key `{second.name}`; {outcome}"
        yield Report(message, Place(document, second.key.span), severity, related=related, grounds=grounds)


def _find_bare_option(config: Config, entries: list[Entry]) -> Entry | None:
    """Return the last option that lacks the value that it needs, or None if there is none."""
    keys = get_checked_keys(config)
    if config.document.syntax != "shell" or keys is None:
        return None
    from cfglint_train.documents.shell.options import is_bare_option

    bare = [entry for entry in entries if is_bare_option(entry.value)]
    route = (bare[0].name,) if bare and bare[0].name is not None else ()
    fact = route and keys.get_vocabulary(config).find_fact(route, keys.get_release(config), keys.build_context(config))
    if not fact or is_accepted_by_any(config, list_schemas(config, fact), True):
        return None
    return bare[-1]


def _is_program_option(config: Config, entry: Entry) -> bool:
    """Return whether an option that looks abbreviated is an option of a program in the repository."""
    if config.document.syntax != "shell":
        return False
    option_name = config.document.get_text(entry.key.span).strip().lstrip("-").replace("-", "_")
    return option_name != entry.name and get_mutations(config).is_custom((option_name,))


def _has_different_values(document: Document, entries: tuple[Entry, ...]) -> bool:
    words = (getattr(entry.value, "word", None) for entry in entries)  # of a command: with its variables expanded
    texts = (
        document.get_text(entry.value.span) if word is None else word.text
        for entry, word in zip(entries, words, strict=True)
    )
    if document.syntax == "shell":  # `$NAME` and `"${NAME}"` are the same expansion
        texts = (re.sub(r"\$\{(\w+)\}", r"$\1", text).strip('"') for text in texts)
    return len(set(texts)) > 1


def _is_override(config: Config, entries: list[Entry]) -> bool:
    """Return whether a command repeats, in its own words, an option of a variable or an array that it expands."""
    document = config.document
    if document.syntax != "shell" or not config.root:
        return False
    from cfglint_train.documents.shell.document import ShellDocument  # slow import: it parses bash

    assert isinstance(document, ShellDocument)
    start = document.invocations[int(config.root[0])].span.start
    return entries[0].key.span.start < start < entries[-1].key.span.start


def _describe_outcome(config: Config, is_different: bool) -> tuple[str, Severity, tuple[Ground, ...]]:
    """Return the loader's reaction to the file, the severity of the finding, and the grounds that it rests on."""
    document, refusal = config.document, _find_refusal(config)
    if refusal is None:
        return _LAST_WINS, "warning" if is_different else "info", ()
    loader = document.dialect.name if isinstance(document, YamlDocument) else load(config.framework).title
    if refusal.is_uniform and config.evidence.fork is None:
        return f"{loader} refuses the file", "error", refusal.grounds
    framework, grounds = load(config.framework), refusal.grounds
    fork = config.evidence.fork
    if fork is not None:
        grounds = (Ground("fork", str(fork), "assumed", f"upstream's loader: {fork}", fork.source),)
    if not framework.traits.refuses_duplicates_since:
        return f"{loader} refuses the file", "warning", grounds
    first = f"{framework.title} {framework.traits.refuses_duplicates_since}"
    outcome = f"since {first} {loader} refuses the file; before that, {_LAST_WINS}"
    return outcome, "warning" if is_different or refusal.current_effect == REFUSED else "info", grounds


def _find_refusal(config: Config) -> EffectByRelease | None:
    """Return the effects at the candidate releases, or None if the last value wins at all of them."""
    framework = load(config.framework)
    since = framework.traits.refuses_duplicates_since
    if since is None or config.role != "main" or config.document.syntax == "shell":
        return None
    first_refusing = parse_release(since) if since else None
    effects = compute_effects(
        find_candidate_releases(config),
        lambda release: REFUSED if first_refusing is None or parse_release(release) >= first_refusing else "dropped",
    )
    return effects if REFUSED in effects.effects else None
