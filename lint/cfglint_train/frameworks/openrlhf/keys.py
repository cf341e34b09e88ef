"""Keys of OpenRLHF: the flags of an invocation, which determine the releases it is written for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache, partial

from cfglint_schemas.status import Context
from cfglint_train.documents.document import MISSING, Document, Entry, Route, Span
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.evidence import ForkTrace, LaunchedKey
from cfglint_train.frameworks.key_usage import KeyUse, RefusedKey, ReleaseHint, is_refused
from cfglint_train.frameworks.keys import Keys, OutdatedConfig
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.openrlhf.flags import (
    NEWEST,
    compute_accepting_mask,
    compute_entry_mask,
    find_default,
    find_entry,
    find_leftovers,
    find_name,
    find_release_range,
    find_switch_values,
    find_upstream_fact,
    get_invocation,
    get_module_name,
    get_value,
    is_blank_fatal,
    is_openrlhf_program,
    list_releases,
    read_usage,
)
from cfglint_train.plan.certainty import assume_fresh_install
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.plan.releases import Release, Releases

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_INTEGER: Final = compile_on_use(r"\s*[-+]?\d+(?:_\d+)*\s*")


class OpenRLHFKeys(Keys):
    """Flags of OpenRLHF 0.3.0 to 0.11.2 (`openrlhf/cli/*.py`): argparse rejects every unknown flag."""

    migrates_idle_files = True
    # 0.11.2 models/actor.py passes the value to from_pretrained, which also accepts a kernel from the Hub.
    forwarded_settings = dict.fromkeys(
        ("--attn_implementation", "--ds.attn_implementation"),
        ("transformers.modeling_utils.AttentionInterface", ("*/*",)),
    )
    forward_target = "transformers"

    def build_context(self, config: Config) -> Context:
        """Return a context with the entry point, because every entry point has its own flags."""
        return Context(entry=read_usage(config).parser)

    def find_started_entry(self, config: Config) -> str | None:
        """Return the module that is started, if it belongs to OpenRLHF's package."""
        program = _get_program(config)
        return get_module_name(program) if is_openrlhf_program(program) else None

    def find_traces(self, config: Config) -> Iterator[tuple[str, ForkTrace]]:
        """Yield the program unless it is an entry point of OpenRLHF's own package.

        Before 0.3.6, the entry points were scripts: `examples/train_sft.py`.
        """
        program = _get_program(config)
        is_script_release = config.releases.is_certainly_at_least(self.manifest.package, "0.3.6") is False
        is_own = is_openrlhf_program(program) or (is_script_release and program.endswith(".py"))
        if not (is_own and find_entry(program) == get_module_name(program)):
            yield "entry", ForkTrace(program, "", config.format_location(), "config")

    def get_release(self, config: Config) -> str:
        """Return the release that the flags determine."""
        return read_usage(config).release

    def parse_flags(self, config: Config) -> Iterator[tuple[Entry, str | None]]:
        """Yield each flag and its vocabulary name (None if unknown); nothing without such an entry point."""
        invocation, flag_usage = get_invocation(config.document, config.root), read_usage(config)
        is_stated = config.releases.is_stated(self.manifest.package)
        release = config.release if is_stated else flag_usage.release
        if invocation is None or not self.get_vocabulary(config).has_entry(flag_usage.parser, release):
            return
        flag_by_spelling = {
            spelling: flag for flag, spellings in flag_usage.given_flags.items() for spelling in spellings
        }
        for entry in invocation.index.values():
            name = entry.name or ""
            if name in flag_by_spelling:
                yield entry, flag_by_spelling[name]
            elif name in flag_usage.unknown_flags:
                yield entry, None

    def find_leftovers(self, config: Config) -> tuple[Word, ...]:
        """Return the words that argparse rejects."""
        return find_leftovers(config)

    def is_blank_fatal(self, config: Config, invocation: Invocation, index: int) -> bool:
        """Return whether the parser rejects the word because no flag accepts it."""
        return is_blank_fatal(config, index)

    def find_switch_values(self, config: Config) -> tuple[Word, ...]:
        """Return the first word after each switch, unless the word is blank."""
        return find_switch_values(config)

    def infer_release(
        self,
        document: Document,
        root: Route,
        release: str,
        package: str | None = None,
        launched: Iterable[LaunchedKey] = (),
    ) -> ReleaseHint | None:
        """Return the release hint of all flags, whatever their values, or None if `release` accepts them."""
        releases = Releases({"openrlhf": Release(release, Origin("assumed"))})
        flag_usage, vocabulary = read_usage(config := Config("openrlhf", document, releases, root)), self.vocabulary

        def is_accepted(candidate: str) -> bool:
            return bool(flag_usage.release_mask >> vocabulary.releases.index(candidate) & 1)

        if is_accepted(release):
            return None
        invocation = get_invocation(document, config.root)
        refused_keys = []
        for flag, spellings in flag_usage.given_flags.items():
            fact = vocabulary.find_fact((flag,), release, Context(entry=flag_usage.entry))
            entry = None if invocation is None else invocation.index.get(spellings[-1])
            if fact is not None and entry is not None and is_refused(fact.resolve_status()):
                refused_keys.append(RefusedKey((spellings[-1],), entry, fact.resolve_status()))
        return ReleaseHint(tuple(refused_keys), is_accepted)

    def find_used_keys(
        self, document: Document, root: Route, package: str | None = None, launched: Iterable[LaunchedKey] = ()
    ) -> list[KeyUse]:
        """Return the uses of the entry point and of all flags, as spelled, that at least one release has."""
        releases = Releases({self.manifest.name: Release(self.vocabulary.newest, Origin("assumed"))})
        flag_usage, invocation = (
            read_usage(Config(self.manifest.name, document, releases, root)),
            get_invocation(document, root),
        )
        assert invocation is not None
        flags = [spelling for spellings in flag_usage.given_flags.values() for spelling in spellings]
        uses = [
            KeyUse(
                (flag,),
                invocation.index.get(flag),
                partial(_list_membership, compute_accepting_mask(flag_usage.entry, flag)),
            )
            for flag in flags
        ]
        return [*uses, KeyUse((), None, partial(_list_membership, compute_entry_mask(flag_usage.entry)))]

    def report_outdated(self, config: Config) -> OutdatedConfig | None:
        """Report an entry point that the stated release lacks, or flags that only older releases accept together."""
        if config.evidence.vocabulary is not None:
            return None
        flag_usage = read_usage(config)
        is_stated = config.releases.is_stated("openrlhf")
        if is_stated and not self.vocabulary.has_entry(flag_usage.entry, config.release):
            first, last = self._find_release_range(flag_usage.entry)
            is_later = parse_release(config.release) > parse_release(last)
            availability = f"the last release that has it is {last}" if is_later else f"it was added in {first}"
            return OutdatedConfig(
                f"OpenRLHF {config.release} has no {flag_usage.entry}: {availability}", _find_head(config), "error"
            )
        bounds = find_release_range(config)
        if is_stated or bounds is None or bounds[1] == self.vocabulary.newest:
            return None
        has_more_flags = flag_usage.has_hidden_flags or _is_forwarding(config)
        fresh_release = None if has_more_flags else config.releases.fresh_releases.get("openrlhf")
        newest = fresh_release or NEWEST
        context = Context(entry=flag_usage.entry)
        facts = [self.vocabulary.find_fact((flag,), newest, context) for flag in flag_usage.given_flags]
        refused_flags = [fact for fact in facts if fact is not None and fact.resolve_status().kind != "present"]
        is_entry_gone = not self.vocabulary.has_entry(flag_usage.entry, newest)
        reason = (
            f"{newest} has no {flag_usage.entry}"
            if is_entry_gone
            else f"{newest} rejects {len(refused_flags)} of its flags"
        )
        release_range = bounds[0] if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
        return OutdatedConfig(
            f"written for OpenRLHF {release_range}; {reason}",
            _find_head(config),
            "info" if fresh_release is None else "warning",
            f"set openrlhf={newest} to have the flags checked and rewritten for it, or openrlhf={bounds[1]}",
            () if fresh_release is None else (assume_fresh_install("openrlhf", fresh_release),),
        )

    def _find_release_range(self, entry: str) -> tuple[str, str]:
        releases, mask = self.vocabulary.releases, compute_entry_mask(entry)
        return releases[(mask & -mask).bit_length() - 1], releases[mask.bit_length() - 1]

    def list_given_names(self, config: Config) -> Set[str] | None:
        """Return the flags by their names in the newest release, or None if the script may add more."""
        return None if read_usage(config).has_hidden_flags else config.compute_once(_map_newest_names).keys()

    def find_route(self, config: Config, name: str) -> Route | None:
        """Return the flag as it is spelled in the script."""
        flag = config.compute_once(_map_newest_names).get(name)
        return None if flag is None else (flag,)

    def choose_route(self, config: Config, name: str) -> Route:
        """Return the flag as spelled by the script's own release, or by the copy of OpenRLHF that it uses."""
        if find_name(config, (name,)) is None:
            for fact in self.vocabulary.list_facts(read_usage(config).entry, self.vocabulary.newest):
                if name in fact.resolve_status().new_names and find_name(config, (fact.name,)) is not None:
                    return (fact.name,)
        return (name,)

    def is_occupied(self, config: Config, route: Route) -> bool:
        """Return whether the flag is set."""
        return str(route[-1]) in read_usage(config).given_flags

    def is_complete(self, config: Config) -> bool:
        """Return whether all flags can be read."""
        return not read_usage(config).has_hidden_flags

    def sum_settings(self, config: Config, names: Iterable[str]) -> str | None:
        """Return the sum of the flags as a word, or None if one is unknown. New names of renamed flags count, too."""
        total = 0
        for flag in names:
            flag_usage = read_usage(config)
            fact = find_upstream_fact(flag_usage.entry, flag)
            spellings = (flag, *(fact.resolve_status().new_names if fact is not None else ()))
            value = get_value(config, spellings)
            if value is MISSING and fact is not None and not flag_usage.has_hidden_flags:
                value = find_default(config, spellings)
                if value is MISSING:
                    value = fact.get_schema().get("default", MISSING)
            if not isinstance(value, (int, str)):
                return None
            try:
                total += int(value)
            except ValueError:
                return None
        return str(total)

    def is_value_corrected(self, config: Config, flag: str, value: str) -> bool:
        """Return whether a template without a placeholder is dropped (cli/train_sft.py and similar, since 0.4.1)."""
        is_dropped = flag in ("--input_template", "--data.input_template") and "{}" not in value
        return is_dropped and parse_release(read_usage(config).release) >= parse_release("0.4.1")

    def is_confident(self, written: str, suggestion: str, is_close: bool) -> bool:
        """Return whether a suggestion for a misspelled flag is certain.

        Between groups, only `actor` (train_ppo_ray) and `model` (other entry points) can be confused, with equal names.
        """
        (group, name), (other_group, other_name) = _split_group(written), _split_group(suggestion)
        return {group, other_group} == {"model", "actor"} and name == other_name if group != other_group else is_close

    def describe_values(self, schema: Mapping[str, Any]) -> str | None:
        """Return "no value" for an argparse switch, or None."""
        return "no value" if schema.get("type") == "boolean" else None


def _is_forwarding(config: Config) -> bool:
    """Return whether the script forwards the arguments of its own command line."""
    invocation = get_invocation(config.document, config.root)
    return invocation is not None and invocation.forwards


def _map_newest_names(config: Config) -> dict[str, str]:
    """Return the spelling of each flag by the flag's name in the newest release."""
    flag_usage, names = read_usage(config), dict[str, str]()
    for flag, spellings in flag_usage.given_flags.items():
        fact = find_upstream_fact(flag_usage.entry, flag)
        status = fact.resolve_status() if fact is not None else None
        for name in status.new_names if status is not None and status.new_names and not status.cases else (flag,):
            names[name] = spellings[-1]
    return names


def _split_group(flag: str) -> tuple[str, str]:
    """Return a flag's group and its name within the group."""
    group, _, name = flag.lstrip("-").rpartition(".")
    return group, name


def _get_program(config: Config) -> str:
    """Return the module or script that is started."""
    invocation = get_invocation(config.document, config.root)
    assert invocation is not None
    return invocation.program


@lru_cache(maxsize=1024)
def _list_membership(mask: int, releases: tuple[str, ...]) -> tuple[bool, ...]:
    """Return, for each release, whether its bit is set in the mask."""
    members = list_releases(mask)
    return tuple([release in members for release in releases])


def _find_head(config: Config) -> Place:
    """Return the place of the words that name the entry point, or of the whole command."""
    invocation = get_invocation(config.document, config.root)
    assert invocation is not None
    head = invocation.head
    span = Span(head[0].span.start, max(word.span.end for word in head)) if head else invocation.span
    return Place(config.document, span)
