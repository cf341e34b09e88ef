"""Which OpenRLHF a command line is written for: entry points, argparse's reading of flags, the releases that accept it.

OpenRLHF's parsers accept unique prefixes, take the last of two equal flags and exit on any flag they do not know.
So the flags of an invocation determine the releases that it can run on: the **window**. Between 0.10.1.post2 and 0.10.2
nearly every flag got a dotted name; a script is read, and written, in the words it uses itself.

Source: the parsers of OpenRLHF 0.3.0 to 0.11.2 (`openrlhf/cli/*.py`), as cfglint_schemas/openrlhf.json holds them.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import MISSING, Document, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.programs import Flag
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Origin

NEWEST: Final = "0.11.2"

# Entry point -> what it does; an empty stage trains nothing.
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
_SETTINGS: Final = re.compile(r"^--(?:\w+[._-])?(?:config|cfg)(?:[._-]\w+)?$")
"""An unknown flag whose file may give other flags."""


class Usage(Frozen):
    """What one invocation says, in the terms of its parser."""

    entry: str
    """The entry point of upstream that it is, or derives from."""
    parser: str
    """The entry point whose flags count: the same, or the one in the repository's copy of OpenRLHF."""
    mask: int
    """One bit per known release: those whose parser takes every flag that any release has."""
    release: str
    """The release whose parser and defaults count: the stated one where it accepts the flags, else the newest one
    that does; where none takes them all, the newest one that takes most."""
    given: Mapping[str, tuple[str, ...]]
    """Flag -> its spellings in the text (a prefix may stand for it); the last one counts. In the order of the text."""
    unknown: tuple[str, ...]
    """Flags that no release has, and prefixes that are no flag's where no release takes all flags together; with a
    copy of OpenRLHF, what its parser does not take."""
    open: bool
    """There may be more flags than the text shows."""

    @property
    def dotted(self) -> bool:
        """Whether it is written in the vocabulary of 0.10.2 and later."""
        return any("." in name for name in self.given)


def vocabulary() -> Vocabulary:
    """Every flag of every entry point by release."""
    return load("openrlhf")


@lru_cache(maxsize=256)
def entry_of(program: str) -> str | None:
    """The entry point that a module or script is; in OpenRLHF's own package also the one that it is called after.

    `openrlhf/cli/train_sft_dev.py` is a fork's `train_sft`.
    """
    name = module_of(program)
    if name in ENTRIES or not is_own(program):
        return name if name in ENTRIES else None
    named = [entry for entry in ENTRIES if re.match(rf"{entry}[^a-z]", name)]
    return max(named, key=len, default=None)


def module_of(program: str) -> str:
    """The name of a module or script."""
    return re.split("[./]", program.removesuffix(".py"))[-1]


def is_own(program: str) -> bool:
    """Whether a program is OpenRLHF's own, by its package."""
    return re.search(r"(?:^|[./])openrlhf(?:[./]|$)", program) is not None


def facts_of(entry: str, flag: str) -> Fact | None:
    """What upstream's releases know of a flag of an entry point."""
    return vocabulary().fact((flag,), NEWEST, Context(entry=entry))


@cache
def mask_of(entry: str, flag: str) -> int:
    """The releases that have a flag, as bits."""
    fact = facts_of(entry, flag)
    return 0 if fact is None else _bits(fact)


def _bits(fact: Fact) -> int:
    known = vocabulary().releases
    mask = 0
    for span in fact.spans:
        first = known.index(span["since"])
        last = known.index(span["last"]) if "last" in span else len(known) - 1
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


@cache
def releases_in(mask: int) -> frozenset[str]:
    """The releases that bits stand for."""
    return frozenset(release for place, release in enumerate(vocabulary().releases) if mask >> place & 1)


@cache
def lifetime(entry: str) -> int:
    """The releases that have an entry point, as bits."""
    known = vocabulary().releases
    mask = 0
    for span in vocabulary().entries.get(entry, ()):
        first = known.index(span["since"])
        last = known.index(span["last"]) if "last" in span else len(known) - 1
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


HELP: Final = "--help"
"""The flag that argparse adds, with which every shorter prefix has two meanings, or ends the program."""


def accepting(entry: str, spelled: str) -> int:
    """The releases whose parser takes a flag as spelled: they know it, or it is the prefix of exactly one of theirs.

    No name of one release is a prefix in another (tests/frameworks/test_openrlhf.py), so that only what no release
    has needs the comparison with all names.
    """
    exact = mask_of(entry, spelled)
    if exact or not spelled.startswith("--") or len(spelled) < 3 or HELP.startswith(spelled):
        return exact
    once = twice = 0
    for fact in _beginning(entry, spelled):
        mask = _bits(fact)
        twice |= once & mask
        once |= mask
    return once & ~twice


def meant(entry: str, spelled: str, release: str) -> str | None:
    """The flag that a spelling stands for at a release, or None."""
    bit = 1 << max(0, _position(release))
    if mask_of(entry, spelled):
        return spelled
    if HELP.startswith(spelled):
        return None
    found = [fact.name for fact in _beginning(entry, spelled) if _bits(fact) & bit]
    return found[0] if len(found) == 1 else None


def _beginning(entry: str, prefix: str) -> Iterator[Fact]:
    return (fact for fact in vocabulary().facts_of(entry, NEWEST) if fact.name.startswith(prefix))


@lru_cache(maxsize=256)
def _position(release: str) -> int:
    """The newest known release that is not after the given one."""
    return bisect_right(vocabulary().releases, release_key(release), key=release_key) - 1


def invocation_of(document: Document, root: Route) -> Invocation | None:
    """The invocation at a route."""
    node = document.node(root)
    return node if isinstance(node, Invocation) else None


def usage(config: Config) -> Usage:
    """What an invocation says. Raises ValueError where the configuration is no invocation of OpenRLHF."""
    return config.once(_told)


def _told(config: Config) -> Usage:
    document = config.document
    invocation = invocation_of(document, config.root)
    entry = None if invocation is None else entry_of(invocation.program)
    if invocation is None or entry is None or not isinstance(document, ShellDocument):
        raise ValueError(f"no invocation of OpenRLHF at {config.root}")
    stated = None if config.releases.assumed("openrlhf") else config.release
    return _usage(invocation, entry, stated, config.evidence.vocabulary)


@lru_cache(maxsize=256)
def _usage(invocation: Invocation, entry: str, stated: str | None, copy: Vocabulary | None) -> Usage:
    parser = entry if copy is None else module_of(invocation.program)
    mask = lifetime(entry)
    spelled: list[str] = []
    unknown: list[str] = []
    unclear = bool(invocation.open)
    for flag, item in zip(invocation.flags, invocation.entries):
        name = item.name or ""
        word = invocation.words[flag.word]
        if word.why and not word.optional and not flag.joined:
            unclear = True
            continue
        accepted = accepting(entry, name)
        if accepted:
            mask &= accepted
        if accepted or copy is not None:
            spelled.append(name)
        else:
            unknown.append(name)
            unclear = unclear or _SETTINGS.search(name) is not None
        # A switch takes no value: what follows it and cannot be determined may be further flags.
        trailing = [invocation.words[index] for index in flag.values]
        if any(word.loose for word in trailing) and is_switch(entry, name):
            unclear = True
    release = _settled(mask, stated) if mask or stated else _fullest(entry, spelled)
    given: dict[str, tuple[str, ...]] = {}
    for name in spelled:
        canonical = meant(entry, name, release) if copy is None else _declared(copy, parser, name)
        if canonical is None or (copy is None and _is_unclear(entry, name, canonical, stated)):
            unknown.append(name)
        else:
            others = tuple(other for other in given.pop(canonical, ()) if other != name)
            given[canonical] = (*others, name)
    return Usage(entry, parser, mask, release, given, tuple(dict.fromkeys(unknown)), unclear)


def _declared(copy: Vocabulary, parser: str, spelled: str) -> str | None:
    """The flag that a spelling stands for to the parser of a copy: itself, or the only one that begins with it."""
    facts = list(copy.facts_of(parser, NEWEST))
    found = [fact.name for fact in facts if fact.spans and fact.name.startswith(spelled)]
    if spelled in found or any(spelled in fact.spellings() for fact in facts):
        return spelled
    return found[0] if len(found) == 1 and spelled.startswith("--") and not HELP.startswith(spelled) else None


def is_ray(config: Config) -> bool:
    """Whether Ray places the models of a job, each on as many GPUs as its flags say."""
    return usage(config).entry == "train_ppo_ray"


def fact_of(config: Config, flag: str) -> Fact | None:
    """What is known of a flag of an invocation's parser: that of the repository's copy, else upstream's."""
    told = usage(config)
    if config.evidence.vocabulary is None:
        return facts_of(told.entry, flag)
    return config.evidence.vocabulary.fact((flag,), NEWEST, Context(entry=told.parser))


def _has(config: Config, flag: str) -> bool:
    """Whether an invocation's parser has a flag."""
    if config.evidence.vocabulary is None:
        return _had(usage(config), flag)
    fact = fact_of(config, flag)
    return fact is not None and bool(fact.spans)


def _had(told: Usage, flag: str) -> bool:
    """Whether upstream's parser has a flag at the settled release."""
    return bool(mask_of(told.entry, flag) >> max(0, _position(told.release)) & 1)


def _is_unclear(entry: str, spelled: str, canonical: str, stated: str | None) -> bool:
    """Whether a prefix means one flag elsewhere, and the stated release has that flag and others like it."""
    if stated is None or not mask_of(entry, canonical) >> max(0, _position(stated)) & 1:
        return False
    return meant(entry, spelled, stated) is None


def strays(config: Config) -> tuple[Word, ...]:
    """Words that the parser of the settled release refuses, as it takes nothing but flags and their values.

    A line behind a broken continuation is one, and so is the value of a flag that takes none. Words that cannot be
    determined, and those of flags that no release has, are none.
    """
    told, invocation = usage(config), invocation_of(config.document, config.root)
    if invocation is None:
        return ()
    taken: set[int] = set()
    for flag, most in _taking(config, told, invocation):
        taken.add(flag.word)
        taken.update(flag.values[: max(0, most - bool(flag.joined))])
    words = invocation.words
    return tuple(word for index, word in enumerate(words) if index not in taken and word.known and word.text)


def refuses_blank(config: Config, index: int) -> bool:
    """Whether the flag before a word, by its number among those of the command, takes no more."""
    told, invocation = usage(config), invocation_of(config.document, config.root)
    if invocation is None:
        return False
    before = [(flag, most) for flag, most in _taking(config, told, invocation) if flag.word < index]
    if not before:
        return True
    flag, most = before[-1]
    return bool(flag.joined) + sum(value < index for value in flag.values) >= most


def given_to_switches(config: Config) -> tuple[Word, ...]:
    """The first of the words behind each flag that takes none, but for white space."""
    told, invocation = usage(config), invocation_of(config.document, config.root)
    if invocation is None:
        return ()
    behind = (flag.values[0] for flag, most in _taking(config, told, invocation) if not most and flag.values)
    return tuple(word for index in behind if not (word := invocation.words[index]).text.isspace())


def _taking(config: Config, told: Usage, invocation: Invocation) -> Iterator[tuple[Flag, int]]:
    """The flags of an invocation, each with how many words it may take."""
    meanings = {spelling: flag for flag, spellings in told.given.items() for spelling in spellings}
    for flag, item in zip(invocation.flags, invocation.entries):
        fact = fact_of(config, meanings.get(item.name or "", ""))
        yield flag, sys.maxsize if fact is None else _takes(fact.schema(told.release))


def _takes(schema: Mapping[str, Any]) -> int:
    """How many words a flag may take."""
    if schema.get("x-flag"):
        return 0
    if "anyOf" in schema:
        return sys.maxsize
    return int(schema["maxItems"]) if schema.get("type") == "array" else 1


def without(config: Config, flags: frozenset[str]) -> str:
    """The release that would count if some flags were not given."""
    told = usage(config)
    mask = lifetime(told.entry)
    for flag, spellings in told.given.items():
        if flag not in flags:
            for spelling in spellings:
                mask &= accepting(told.entry, spelling)
    return _settled(mask, None if config.releases.assumed("openrlhf") else config.release)


def _settled(mask: int, stated: str | None) -> str:
    if stated is not None and (not mask or mask >> max(0, _position(stated)) & 1):
        return stated
    return vocabulary().releases[mask.bit_length() - 1] if mask else (stated or NEWEST)


def _fullest(entry: str, spelled: list[str]) -> str:
    """The newest release that takes most of some flags."""
    known, alive = vocabulary().releases, lifetime(entry)
    masks = [accepting(entry, name) for name in spelled]
    places = [place for place in range(len(known)) if alive >> place & 1]
    return known[max(places, key=lambda place: (sum(mask >> place & 1 for mask in masks), place))]


def is_switch(entry: str, flag: str) -> bool:
    """Whether a flag takes no value."""
    fact = facts_of(entry, flag)
    return fact is not None and fact.schema().get("type") == "boolean"


def window(config: Config) -> tuple[str, str] | None:
    """The first and the last release that accept the flags; None where no release takes them all together."""
    mask = usage(config).mask
    known = vocabulary().releases
    return (known[(mask & -mask).bit_length() - 1], known[mask.bit_length() - 1]) if mask else None


def name_at(config: Config, names: tuple[str, ...]) -> str | None:
    """The name among some that the invocation's parser has."""
    return next((name for name in names if _has(config, name)), None)


def stated(config: Config, names: tuple[str, ...]) -> Route | None:
    """Where one of some flags is given: at launch, or in the text."""
    for name in names if config.overrides else ():
        for route in _override_routes(name):
            if route in config.overrides:
                return route
    given = usage(config).given
    return next(((given[name][-1],) for name in reversed(list(given)) if name in names), None)


def _override_routes(name: str) -> Iterator[Route]:
    """How an override may name a flag: with its dashes, without, or as dotted parts."""
    bare = name.removeprefix("--")
    yield from ((name,), (bare,), tuple(bare.split(".")), tuple(name.split(".")))


def value_of(config: Config, names: tuple[str, ...]) -> Any:
    """The value of the first of some flags that is given: words, True, `Unknown`; MISSING where none is."""
    route = stated(config, names)
    return MISSING if route is None else config.value(*route)


def default_of(config: Config, names: tuple[str, ...]) -> Any:
    """What the invocation's parser takes where none of some flags is given.

    A copy of OpenRLHF that has no such flag does what upstream does by default. MISSING where upstream has none of them
    either, where the default is None or computed, or where flags may be hidden.
    """
    told = usage(config)
    name = name_at(config, names)
    fact = None if name is None else fact_of(config, name)
    if name is None and config.evidence.vocabulary is not None:
        fact = next((facts_of(told.entry, one) for one in names if _had(told, one)), None)
    if fact is None or told.open:
        return MISSING
    try:
        value = fact.default(told.release)
    except KeyError:
        return MISSING
    return MISSING if value is None else value


def granted(config: Config, names: tuple[str, ...]) -> Origin:
    """The origin of a default."""
    told = usage(config)
    return Origin("default", note=f"openrlhf {told.release}", key=name_at(config, names) or "", framework="openrlhf")
