"""Flags of OpenRLHF's command lines: entry points, argparse's rules for flags, and the releases that accept them.

OpenRLHF's parsers accept unique prefixes, use the last of two equal flags and exit on any unknown flag. So the flags of
an invocation determine the range of releases that it can run on. Between 0.10.1.post2 and 0.10.2 nearly every flag got
a dotted name; cfglint reads and writes a script with the names that the script itself uses.

Source: the parsers of OpenRLHF 0.3.0 to 0.11.2 (`openrlhf/cli/*.py`), as stored in cfglint_schemas/openrlhf.json.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import MISSING, Document, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.programs import CommandFlag
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Origin

NEWEST: Final = "0.11.2"

# Entry point -> its stage; empty if the entry point does not train.
ENTRIES: Final[Mapping[str, str]] = {
    "train_sft": "sft",
    "train_rm": "rm",
    "train_dpo": "dpo",
    "train_kto": "kto",
    "train_kd": "kd",
    "train_prm": "prm",
    "train_ppo": "ppo",
    "train_ppo_ray": "ppo",
    "serve_rm": "",
    "lora_combiner": "",
    "batch_inference": "",
    "interactive_chat": "",
}
_CONFIG_FLAG: Final = compile_on_use(r"^--(?:\w+[._-])?(?:config|cfg)(?:[._-]\w+)?$")
"""Pattern of an unknown flag that may name a file with further flags."""


class FlagUsage(Frozen):
    """The flags of an invocation, as its parser understands them."""

    entry: str
    """Upstream entry point that the program is or derives from."""
    parser: str
    """Entry point whose flags apply: `entry`, or the module in the repository's copy of OpenRLHF."""
    release_mask: int
    """One bit per known release, set if its parser accepts all of the invocation's flags that exist in some release."""
    release: str
    """Release whose parser and defaults apply.

    The stated release if it accepts the flags, otherwise the newest release that accepts them. If no release accepts
    all flags: the stated release, or else the newest release among those that accept the most flags.
    """
    given_flags: Mapping[str, tuple[str, ...]]
    """Flag -> its spellings in the text, prefixes included, in the order of the text; the last spelling counts."""
    unknown_flags: tuple[str, ...]
    """Flags that do not exist in any release, and prefixes that are ambiguous at the stated release or at `release`.

    With a copy of OpenRLHF: flags that the copy's parser does not accept.
    """
    has_hidden_flags: bool
    """True if the invocation may have more flags than the text shows."""

    @property
    def is_dotted(self) -> bool:
        """True if the invocation uses the dotted names of 0.10.2 and later."""
        return any("." in name for name in self.given_flags)


def load_vocabulary() -> Vocabulary:
    """Load the vocabulary: every flag of every entry point, by release."""
    return load("openrlhf")


@lru_cache(maxsize=256)
def find_entry(program: str) -> str | None:
    """Return the entry point of a module or script, or None.

    In OpenRLHF's own package, a name may extend the name of an entry point: `openrlhf/cli/train_sft_dev.py` is a fork's
    `train_sft`.
    """
    name = get_module_name(program)
    if name in ENTRIES or not is_openrlhf_program(program):
        return name if name in ENTRIES else None
    entries = [entry for entry in ENTRIES if re.match(rf"{entry}[^a-z]", name)]
    return max(entries, key=len, default=None)


def get_module_name(program: str) -> str:
    """Return the name of a module or script."""
    return re.split("[./]", program.removesuffix(".py"))[-1]


def is_openrlhf_program(program: str) -> bool:
    """Return whether a program is OpenRLHF's own, by its package."""
    return re.search(r"(?:^|[./])openrlhf(?:[./]|$)", program) is not None


def find_upstream_fact(entry: str, flag: str) -> KeyFact | None:
    """Return the history of an entry point's flag in upstream's releases, or None if it is unknown."""
    return load_vocabulary().find_fact((flag,), NEWEST, Context(entry=entry))


@cache
def compute_release_mask(entry: str, flag: str) -> int:
    """Return the releases that have a flag, as bits."""
    fact = find_upstream_fact(entry, flag)
    return 0 if fact is None else _compute_bits(fact)


def _compute_bits(fact: KeyFact) -> int:
    releases = load_vocabulary().releases
    mask = 0
    for span in fact.spans:
        first = releases.index(span["since"])
        last = releases.index(span["last"]) if "last" in span else len(releases) - 1
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


@cache
def list_releases(mask: int) -> frozenset[str]:
    """Return the releases whose bits are set in a mask."""
    return frozenset(release for place, release in enumerate(load_vocabulary().releases) if mask >> place & 1)


@cache
def compute_entry_mask(entry: str) -> int:
    """Return the releases that have an entry point, as bits."""
    releases = load_vocabulary().releases
    mask = 0
    for span in load_vocabulary().entries.get(entry, ()):
        first = releases.index(span["since"])
        last = releases.index(span["last"]) if "last" in span else len(releases) - 1
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


HELP: Final = "--help"
"""The flag that argparse adds; every prefix of it is ambiguous or ends the program."""


def compute_accepting_mask(entry: str, spelling: str) -> int:
    """Return, as bits, the releases whose parser has the flag `spelling` or exactly one flag that starts with it.

    A flag of one release is never a prefix of another flag in another release (tests/frameworks/test_openrlhf.py), so
    only spellings that are not a flag in any release are compared with all names.
    """
    exact = compute_release_mask(entry, spelling)
    if exact or not spelling.startswith("--") or len(spelling) < 3 or HELP.startswith(spelling):
        return exact
    once = twice = 0
    for fact in _find_by_prefix(entry, spelling):
        mask = _compute_bits(fact)
        twice |= once & mask
        once |= mask
    return once & ~twice


def resolve_spelling(entry: str, spelling: str, release: str) -> str | None:
    """Return the flag that a spelling denotes at a release, or None if it is unknown or ambiguous.

    A spelling that is a flag of any release denotes that flag.
    """
    bit = 1 << max(0, _find_position(release))
    if compute_release_mask(entry, spelling):
        return spelling
    if HELP.startswith(spelling):
        return None
    names = [fact.name for fact in _find_by_prefix(entry, spelling) if _compute_bits(fact) & bit]
    return names[0] if len(names) == 1 else None


def _find_by_prefix(entry: str, prefix: str) -> Iterator[KeyFact]:
    return (fact for fact in load_vocabulary().list_facts(entry, NEWEST) if fact.name.startswith(prefix))


@lru_cache(maxsize=256)
def _find_position(release: str) -> int:
    """Return the index of the newest known release that is not after `release`."""
    return bisect_right(load_vocabulary().releases, parse_release(release), key=parse_release) - 1


def get_invocation(document: Document, root: Route) -> Invocation | None:
    """Return the invocation at a route, or None."""
    node = document.find_node(root)
    return node if isinstance(node, Invocation) else None


def read_usage(config: Config) -> FlagUsage:
    """Return the flags of an invocation. Raise ValueError if the configuration is not an invocation of OpenRLHF."""
    return config.compute_once(_read_usage)


def _read_usage(config: Config) -> FlagUsage:
    document = config.document
    invocation = get_invocation(document, config.root)
    entry = None if invocation is None else find_entry(invocation.program)
    if invocation is None or entry is None or not isinstance(document, ShellDocument):
        raise ValueError(f"no OpenRLHF command at {config.root}")
    stated = None if config.releases.is_assumed("openrlhf") else config.release
    return _determine_usage(invocation, entry, stated, config.evidence.vocabulary)


@lru_cache(maxsize=256)
def _determine_usage(invocation: Invocation, entry: str, stated: str | None, copy: Vocabulary | None) -> FlagUsage:
    parser = entry if copy is None else get_module_name(invocation.program)
    release_mask = compute_entry_mask(entry)
    spellings: list[str] = []
    unknown: list[str] = []
    may_have_hidden_flags = bool(invocation.open)
    for flag, item in zip(invocation.flags, invocation.entries):
        name = item.name or ""
        word = invocation.words[flag.word]
        if word.why and not word.is_optional and not flag.value_offset:
            may_have_hidden_flags = True
            continue
        accepted = compute_accepting_mask(entry, name)
        if accepted:
            release_mask &= accepted
        if accepted or copy is not None:
            spellings.append(name)
        else:
            unknown.append(name)
            may_have_hidden_flags = may_have_hidden_flags or _CONFIG_FLAG.search(name) is not None
        # A switch takes no value: undetermined words after it may be further flags.
        following = [invocation.words[index] for index in flag.values]
        if any(word.loose for word in following) and is_switch(entry, name):
            may_have_hidden_flags = True
    release = (
        _resolve_release(release_mask, stated) if release_mask or stated else _find_most_accepting(entry, spellings)
    )
    given_flags: dict[str, tuple[str, ...]] = {}
    for name in spellings:
        canonical = resolve_spelling(entry, name, release) if copy is None else _resolve_in_copy(copy, parser, name)
        if canonical is None or (copy is None and _is_ambiguous(entry, name, canonical, stated)):
            unknown.append(name)
        else:
            others = tuple(other for other in given_flags.pop(canonical, ()) if other != name)
            given_flags[canonical] = (*others, name)
    return FlagUsage(
        entry, parser, release_mask, release, given_flags, tuple(dict.fromkeys(unknown)), may_have_hidden_flags
    )


def _resolve_in_copy(copy: Vocabulary, parser: str, spelling: str) -> str | None:
    """Return the flag that a spelling denotes in a copy's parser: itself, or the only flag that starts with it."""
    facts = list(copy.list_facts(parser, NEWEST))
    names = [fact.name for fact in facts if fact.spans and fact.name.startswith(spelling)]
    if spelling in names or any(spelling in fact.list_spellings() for fact in facts):
        return spelling
    return names[0] if len(names) == 1 and spelling.startswith("--") and not HELP.startswith(spelling) else None


def is_ray(config: Config) -> bool:
    """Return whether Ray places the models of a job, each on the number of GPUs that its flags state."""
    return read_usage(config).entry == "train_ppo_ray"


def find_fact(config: Config, flag: str) -> KeyFact | None:
    """Return the history of a flag in an invocation's parser: that of the repository's copy, else upstream's."""
    flag_usage = read_usage(config)
    if config.evidence.vocabulary is None:
        return find_upstream_fact(flag_usage.entry, flag)
    return config.evidence.vocabulary.find_fact((flag,), NEWEST, Context(entry=flag_usage.parser))


def _has_flag(config: Config, flag: str) -> bool:
    """Return whether an invocation's parser has a flag."""
    if config.evidence.vocabulary is None:
        return _has_upstream_flag(read_usage(config), flag)
    fact = find_fact(config, flag)
    return fact is not None and bool(fact.spans)


def _has_upstream_flag(flag_usage: FlagUsage, flag: str) -> bool:
    """Return whether upstream's parser has a flag at the resolved release."""
    return bool(compute_release_mask(flag_usage.entry, flag) >> max(0, _find_position(flag_usage.release)) & 1)


def _is_ambiguous(entry: str, spelling: str, canonical: str, stated: str | None) -> bool:
    """Return whether a prefix is ambiguous at the stated release, although another release resolves it."""
    if stated is None or not compute_release_mask(entry, canonical) >> max(0, _find_position(stated)) & 1:
        return False
    return resolve_spelling(entry, spelling, stated) is None


def find_leftovers(config: Config) -> tuple[Word, ...]:
    """Return the words that the parser of `release` rejects because they are neither flags nor values of flags.

    Examples are a line after a broken continuation, and a word after a switch. Undetermined words and the values of
    unknown flags are left out.
    """
    flag_usage, invocation = read_usage(config), get_invocation(config.document, config.root)
    if invocation is None:
        return ()
    used_indices: set[int] = set()
    for flag, limit in _list_word_limits(config, flag_usage, invocation):
        used_indices.add(flag.word)
        used_indices.update(flag.values[: max(0, limit - bool(flag.value_offset))])
    words = invocation.words
    return tuple(word for index, word in enumerate(words) if index not in used_indices and word.is_known and word.text)


def is_blank_fatal(config: Config, index: int) -> bool:
    """Return whether the parser rejects a blank word at an index of the command.

    The parser rejects the word if no flag precedes it, or if the preceding flag accepts no more words.
    """
    flag_usage, invocation = read_usage(config), get_invocation(config.document, config.root)
    if invocation is None:
        return False
    earlier_flags = [
        (flag, limit) for flag, limit in _list_word_limits(config, flag_usage, invocation) if flag.word < index
    ]
    if not earlier_flags:
        return True
    flag, limit = earlier_flags[-1]
    return bool(flag.value_offset) + sum(value < index for value in flag.values) >= limit


def find_switch_values(config: Config) -> tuple[Word, ...]:
    """Return the first word after each flag that takes no value, except blank words."""
    flag_usage, invocation = read_usage(config), get_invocation(config.document, config.root)
    if invocation is None:
        return ()
    first_indices = (
        flag.values[0] for flag, limit in _list_word_limits(config, flag_usage, invocation) if not limit and flag.values
    )
    return tuple(word for index in first_indices if not (word := invocation.words[index]).text.isspace())


def _list_word_limits(
    config: Config, flag_usage: FlagUsage, invocation: Invocation
) -> Iterator[tuple[CommandFlag, int]]:
    """Yield the flags of an invocation, each with the maximum number of words that it accepts."""
    meanings = {spelling: flag for flag, spellings in flag_usage.given_flags.items() for spelling in spellings}
    for flag, item in zip(invocation.flags, invocation.entries):
        fact = find_fact(config, meanings.get(item.name or "", ""))
        yield flag, sys.maxsize if fact is None else _get_word_limit(fact.get_schema(flag_usage.release))


def _get_word_limit(schema: Mapping[str, Any]) -> int:
    """Return the maximum number of words that a flag accepts."""
    if schema.get("x-flag"):
        return 0
    if "anyOf" in schema:
        return sys.maxsize
    return int(schema["maxItems"]) if schema.get("type") == "array" else 1


def find_release_without(config: Config, flags: frozenset[str]) -> str:
    """Return the release that would apply without some flags."""
    flag_usage = read_usage(config)
    release_mask = compute_entry_mask(flag_usage.entry)
    for flag, spellings in flag_usage.given_flags.items():
        if flag not in flags:
            for spelling in spellings:
                release_mask &= compute_accepting_mask(flag_usage.entry, spelling)
    return _resolve_release(release_mask, None if config.releases.is_assumed("openrlhf") else config.release)


def _resolve_release(mask: int, stated: str | None) -> str:
    if stated is not None and (not mask or mask >> max(0, _find_position(stated)) & 1):
        return stated
    return load_vocabulary().releases[mask.bit_length() - 1] if mask else (stated or NEWEST)


def _find_most_accepting(entry: str, spellings: list[str]) -> str:
    """Return the newest of the releases that accept the most flags."""
    releases, entry_mask = load_vocabulary().releases, compute_entry_mask(entry)
    masks = [compute_accepting_mask(entry, name) for name in spellings]
    indices = [index for index in range(len(releases)) if entry_mask >> index & 1]
    return releases[max(indices, key=lambda index: (sum(mask >> index & 1 for mask in masks), index))]


def is_switch(entry: str, flag: str) -> bool:
    """Return whether a flag takes no value."""
    fact = find_upstream_fact(entry, flag)
    return fact is not None and fact.get_schema().get("type") == "boolean"


def find_release_range(config: Config) -> tuple[str, str] | None:
    """Return the first and the last release that accept the flags, or None if no release accepts all of them."""
    mask = read_usage(config).release_mask
    releases = load_vocabulary().releases
    return (releases[(mask & -mask).bit_length() - 1], releases[mask.bit_length() - 1]) if mask else None


def find_name(config: Config, names: tuple[str, ...]) -> str | None:
    """Return the first of the names that the invocation's parser has, or None."""
    return next((name for name in names if _has_flag(config, name)), None)


def find_route(config: Config, names: tuple[str, ...]) -> Route | None:
    """Return the route at which one of the flags is set, or None.

    An override wins over the text; in the text, the last flag wins.
    """
    for name in names if config.overrides else ():
        for route in _list_override_routes(name):
            if route in config.overrides:
                return route
    given_flags = read_usage(config).given_flags
    return next(((given_flags[name][-1],) for name in reversed(list(given_flags)) if name in names), None)


def _list_override_routes(name: str) -> Iterator[Route]:
    """Yield the forms of a flag in overrides: with its dashes, without, and as dotted parts."""
    bare = name.removeprefix("--")
    yield from ((name,), (bare,), tuple(bare.split(".")), tuple(name.split(".")))


def get_value(config: Config, names: tuple[str, ...]) -> Any:
    """Return the value of the flag that `find_route` selects, or MISSING if none of the flags is set.

    The value is a word, a list of words, True for a switch, or `Unknown`.
    """
    route = find_route(config, names)
    return MISSING if route is None else config.get_value(*route)


def find_default(config: Config, names: tuple[str, ...]) -> Any:
    """Return the default that the invocation's parser has for the flags, or MISSING.

    A copy of OpenRLHF without any of the flags behaves as upstream does by default. Return MISSING if upstream has none
    of the flags either, if the default is None or computed, or if the invocation may have hidden flags.
    """
    flag_usage = read_usage(config)
    name = find_name(config, names)
    fact = None if name is None else find_fact(config, name)
    if name is None and config.evidence.vocabulary is not None:
        fact = next(
            (find_upstream_fact(flag_usage.entry, alias) for alias in names if _has_upstream_flag(flag_usage, alias)),
            None,
        )
    if fact is None or flag_usage.has_hidden_flags:
        return MISSING
    try:
        value = fact.get_default(flag_usage.release)
    except KeyError:
        return MISSING
    return MISSING if value is None else value


def build_default_origin(config: Config, names: tuple[str, ...]) -> Origin:
    """Return the origin of a default."""
    flag_usage = read_usage(config)
    return Origin(
        "default", note=f"openrlhf {flag_usage.release}", key=find_name(config, names) or "", framework="openrlhf"
    )
