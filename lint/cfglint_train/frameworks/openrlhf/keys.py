"""The keys of an invocation of OpenRLHF are flags, which determine the releases that it is written for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache, partial

from cfglint_schemas.status import Context
from cfglint_train.documents.document import MISSING, Document, Entry, Route, Span
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.evidence import Trace
from cfglint_train.frameworks.key_usage import KeyUse, Refused, ReleaseHint, refuses
from cfglint_train.frameworks.keys import Keys, Outdated
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.openrlhf.flags import (
    NEWEST,
    accepting,
    default_of,
    entry_of,
    facts_of,
    given_to_switches,
    invocation_of,
    is_own,
    lifetime,
    module_of,
    name_at,
    refuses_blank,
    releases_in,
    strays,
    usage,
    value_of,
    window,
)
from cfglint_train.plan.certainty import freshly_installed
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.plan.releases import Release, Releases

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_INTEGER: Final = re.compile(r"\s*[-+]?\d+(?:_\d+)*\s*")


class OpenRLHFKeys(Keys):
    """OpenRLHF 0.3.0 to 0.11.2 (`openrlhf/cli/*.py`): argparse refuses every flag that it does not know."""

    idle_too = True
    # 0.11.2 models/actor.py hands it to from_pretrained, which takes a kernel of the Hub, too.
    handed_on = dict.fromkeys(
        ("--attn_implementation", "--ds.attn_implementation"),
        ("transformers.modeling_utils.AttentionInterface", ("*/*",)),
    )
    handed_to = "transformers"

    def context(self, config: Config) -> Context:
        """Each entry point has its own flags."""
        return Context(entry=usage(config).parser)

    def started(self, config: Config) -> str | None:
        """The module that is started, where it is one of OpenRLHF's package."""
        program = _program(config)
        return module_of(program) if is_own(program) else None

    def traces(self, config: Config) -> Iterator[tuple[str, Trace]]:
        """Return a program that is called after an entry point, and is none."""
        program = _program(config)
        if not (is_own(program) and entry_of(program) == module_of(program)):
            yield "entry", Trace(program, "", config.where(), "config")

    def release(self, config: Config) -> str:
        """Flags determine their own release."""
        return usage(config).release

    def flags(self, config: Config) -> Iterator[tuple[Entry, str | None]]:
        """The flags of the invocation; none where the release does not have the entry point."""
        invocation, told = invocation_of(config.document, config.root), usage(config)
        stated = config.releases.stated(self.listed.package)
        release = config.release if stated else told.release
        if invocation is None or not self.vocabulary_of(config).has_entry(told.parser, release):
            return
        stands = {spelling: flag for flag, spellings in told.given.items() for spelling in spellings}
        for entry in invocation.index.values():
            name = entry.name or ""
            if name in stands:
                yield entry, stands[name]
            elif name in told.unknown:
                yield entry, None

    def strays(self, config: Config) -> tuple[Word, ...]:
        """Words that argparse refuses."""
        return strays(config)

    def refuses_blank(self, config: Config, given: Invocation, index: int) -> bool:
        """Its parser refuses it where no flag takes it."""
        return refuses_blank(config, index)

    def given_to_switches(self, config: Config) -> tuple[Word, ...]:
        """The first word behind a switch, but for white space."""
        return given_to_switches(config)

    def told(self, document: Document, root: Route, release: str, package: str | None = None) -> ReleaseHint | None:
        """Every flag counts, whatever its value."""
        assumed = Releases({"openrlhf": Release(release, Origin("assumed"))})
        usual, known = usage(config := Config("openrlhf", document, assumed, root)), self.vocabulary

        def takes(other: str) -> bool:
            return bool(usual.mask >> known.releases.index(other) & 1)

        if takes(release):
            return None
        invocation = invocation_of(document, config.root)
        found = []
        for flag, spellings in usual.given.items():
            fact = known.fact((flag,), release, Context(entry=usual.entry))
            entry = None if invocation is None else invocation.index.get(spellings[-1])
            if fact is not None and entry is not None and refuses(fact.status()):
                found.append(Refused((spellings[-1],), entry, fact.status()))
        return ReleaseHint(tuple(found), takes)

    def in_use(self, document: Document, root: Route, package: str | None = None) -> list[KeyUse]:
        """Every flag that some release has, as spelled, and the entry point."""
        assumed = Releases({self.listed.name: Release(self.vocabulary.newest, Origin("assumed"))})
        told, invocation = usage(Config(self.listed.name, document, assumed, root)), invocation_of(document, root)
        assert invocation is not None
        flags = [spelling for spellings in told.given.values() for spelling in spellings]
        found = [
            KeyUse((flag,), invocation.index.get(flag), partial(_among, accepting(told.entry, flag))) for flag in flags
        ]
        return [*found, KeyUse((), None, partial(_among, lifetime(told.entry)))]

    def outdated(self, config: Config) -> Outdated | None:
        """An entry point that the stated release does not have, or flags that only older releases take together."""
        if config.evidence.vocabulary is not None:
            return None
        told = usage(config)
        stated = config.releases.stated("openrlhf")
        if stated and not self.vocabulary.has_entry(told.entry, config.release):
            first, last = self._life(told.entry)
            later = release_key(config.release) > release_key(last)
            when = f"the last release with it is {last}" if later else f"it comes with {first}"
            return Outdated(f"OpenRLHF {config.release} has no {told.entry}: {when}", _head(config), "error")
        bounds = window(config)
        if stated or bounds is None or bounds[1] == self.vocabulary.newest:
            return None
        more = told.open or _is_forwarding(config)
        fresh = None if more else config.releases.fresh.get("openrlhf")
        newest = fresh or NEWEST
        about = Context(entry=told.entry)
        facts = [self.vocabulary.fact((flag,), newest, about) for flag in told.given]
        lost = [fact for fact in facts if fact is not None and fact.status().kind != "present"]
        gone = not self.vocabulary.has_entry(told.entry, newest)
        why = f"{newest} has no {told.entry}" if gone else f"{newest} refuses {len(lost)} of its flags"
        between = bounds[0] if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
        return Outdated(
            f"written for OpenRLHF {between}; {why}",
            _head(config),
            "info" if fresh is None else "warning",
            f"state openrlhf={newest} to have the flags checked and rewritten for it, or openrlhf={bounds[1]}",
            () if fresh is None else (freshly_installed("openrlhf", fresh),),
        )

    def _life(self, entry: str) -> tuple[str, str]:
        known, mask = self.vocabulary.releases, lifetime(entry)
        return known[(mask & -mask).bit_length() - 1], known[mask.bit_length() - 1]

    def given(self, config: Config) -> Set[str] | None:
        """The flags by the names of the newest release; None where the script may add more."""
        return None if usage(config).open else config.once(_newest_names).keys()

    def find(self, config: Config, name: str) -> Route | None:
        """The flag as it is spelled in the script."""
        flag = config.once(_newest_names).get(name)
        return None if flag is None else (flag,)

    def home(self, config: Config, name: str) -> Route:
        """The flag as the script's own release, or the copy of OpenRLHF that it uses, spells it."""
        if name_at(config, (name,)) is None:
            for fact in self.vocabulary.facts_of(usage(config).entry, self.vocabulary.newest):
                if name in fact.status().to and name_at(config, (fact.name,)) is not None:
                    return (fact.name,)
        return (name,)

    def is_taken(self, config: Config, route: Route) -> bool:
        """Whether the flag is given."""
        return str(route[-1]) in usage(config).given

    def is_complete(self, config: Config) -> bool:
        """Whether no flags are in a variable that cannot be read."""
        return not usage(config).open

    def added(self, config: Config, names: Iterable[str]) -> str | None:
        """The sum of some flags as a word. A flag that was renamed already counts under its new name."""
        total = 0
        for flag in names:
            told = usage(config)
            fact = facts_of(told.entry, flag)
            spelled = (flag, *(fact.status().to if fact is not None else ()))
            value = value_of(config, spelled)
            if value is MISSING and fact is not None and not told.open:
                value = default_of(config, spelled)
                if value is MISSING:
                    value = fact.schema().get("default", MISSING)
            if not isinstance(value, (int, str)):
                return None
            try:
                total += int(value)
            except ValueError:
                return None
        return str(total)

    def puts_right(self, config: Config, flag: str, value: str) -> bool:
        """A template without a place for the prompt becomes none (cli/train_sft.py and its like, since 0.4.1)."""
        template = flag in ("--input_template", "--data.input_template") and "{}" not in value
        return template and release_key(usage(config).release) >= release_key("0.4.1")

    def is_sure(self, written: str, meant: str, sure: bool) -> bool:
        """Another group is no slip; but what train_ppo_ray calls actor, the other entry points call model."""
        (own, name), (group, other) = _grouped(written), _grouped(meant)
        return {own, group} == {"model", "actor"} and name == other if own != group else sure

    def shape(self, schema: Mapping[str, Any]) -> str | None:
        """A switch of argparse takes no value."""
        return "no value" if schema.get("type") == "boolean" else None


def _is_forwarding(config: Config) -> bool:
    """Whether the script adds the options of its own command line."""
    invocation = invocation_of(config.document, config.root)
    return invocation is not None and invocation.forwards


def _newest_names(config: Config) -> dict[str, str]:
    """The flags by the names of the newest release, as they are spelled."""
    told, names = usage(config), dict[str, str]()
    for flag, spellings in told.given.items():
        fact = facts_of(told.entry, flag)
        status = fact.status() if fact is not None else None
        for name in status.to if status is not None and status.to and not status.cases else (flag,):
            names[name] = spellings[-1]
    return names


def _grouped(flag: str) -> tuple[str, str]:
    """A flag as its group and its name in it."""
    group, _, name = flag.lstrip("-").rpartition(".")
    return group, name


def _program(config: Config) -> str:
    """The module or script that is started."""
    invocation = invocation_of(config.document, config.root)
    assert invocation is not None
    return invocation.program


@lru_cache(maxsize=1024)
def _among(mask: int, releases: tuple[str, ...]) -> tuple[bool, ...]:
    """Whether each of some releases is one that bits stand for."""
    of = releases_in(mask)
    return tuple([release in of for release in releases])


def _head(config: Config) -> Place:
    """The words that start the entry point."""
    invocation = invocation_of(config.document, config.root)
    assert invocation is not None
    head = invocation.head
    span = Span(head[0].span.start, max(word.span.end for word in head)) if head else invocation.span
    return Place(config.document, span)
