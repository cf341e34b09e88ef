"""The settings of HfArgumentParser's dataclasses as options of a command line.

Source: transformers 5.8.0 `hf_argparser.py` (`parse_args_into_dataclasses`): argparse with one option per field, by its
name with underscores or dashes or by any beginning that is no other's; `string_to_bool`; `--no_NAME` turns a switch off
that is on by default.
"""

from __future__ import annotations

from functools import cache

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.shell.options import OptionParser
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.frameworks.dotlist import parse_value
from cfglint_train.frameworks.hf_trainer.loader import SWITCH_WORDS

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_TYPED_KINDS: Final = frozenset(("bool", "int", "float", "enum"))


class Parser:
    """The options that the parser of a vocabulary's entry point takes."""

    def __init__(self, vocabulary: str, entry: str | None = None) -> None:
        self.vocabulary = vocabulary
        self.context = Context(entry=entry)
        self._facts: dict[str, KeyFact | None] = {}

    def find_fact(self, key: str) -> KeyFact | None:
        """What is known of a setting, if anything is."""
        if key not in self._facts:
            vocabulary = load(self.vocabulary)
            self._facts[key] = vocabulary.find_fact((key,), vocabulary.newest, self.context)
        return self._facts[key]

    def list_kinds(self, key: str) -> tuple[str, ...]:
        """What a value of a setting may be."""
        fact = self.find_fact(key)
        return () if fact is None else tuple(kind.name for kind in fact.list_kinds())

    def resolve_key(self, option: str) -> str:
        """The setting that an option (without its dashes) gives."""
        name = option.replace("-", "_")
        if self.find_fact(name) is not None:
            return name
        vocabulary = load(self.vocabulary)
        candidates = [
            candidate
            for candidate in vocabulary.list_names((), vocabulary.newest, self.context)
            if candidate.startswith(name)
        ]
        return candidates[0] if len(candidates) == 1 else name

    def convert_text(self, key: str, text: str) -> Any:
        """The value that a word makes for a setting."""
        kinds = self.list_kinds(key) or ("float",)  # of an unknown key: the number that it may be meant for
        if "bool" in kinds and text.lower() in SWITCH_WORDS:
            return SWITCH_WORDS[text.lower()]
        if not _TYPED_KINDS.intersection(kinds):
            return text
        try:
            value = parse_value(text, text)
        except ValueError:
            return text
        if isinstance(value, bool) and text.lower() not in ("true", "false"):
            return text  # further words of YAML are words here (`--eval_strategy no`)
        return value if isinstance(value, (bool, int, float)) else text

    def is_blank_fatal(self, invocation: Invocation, index: int) -> bool:
        """Whether the parser refuses a word of white space: as the value of a switch or number, and behind an option
        that has its one value.
        """
        flags = [flag for flag in invocation.flags if flag.word < index]
        if not flags:
            return True
        kinds = self.list_kinds(self.resolve_key(flags[-1].name.lstrip("-")))
        if not kinds or "list" in kinds:
            return False
        has_value = flags[-1].value_offset or any(value < index for value in flags[-1].values)
        return bool(has_value) or _TYPED_KINDS.issuperset({*kinds} - {"null"})

    def find_negated(self, option: str) -> str | None:
        """The switch that an option without a value turns off; None for other options: only of a switch that is on by
        default the parser has a `--no_NAME`.
        """
        name = option.replace("-", "_")
        switch = name.removeprefix("no_")
        if name == switch or self.find_fact(name) is not None:
            return None
        return switch if self._is_possibly_on(switch) else None

    def _is_possibly_on(self, switch: str) -> bool:
        """Whether a setting is a switch that is on by default for some trainer at some release, as far as is known."""
        fact = self.find_fact(switch)
        candidates = () if fact is None else (fact, *fact.alternatives)
        return any(
            _is_switch_on(candidate, release) for candidate in candidates for release in load(self.vocabulary).releases
        )


def _is_switch_on(fact: KeyFact, release: str) -> bool:
    """Whether a setting is a switch at a release that is on by default, or may be: some defaults are computed."""
    if fact.resolve_status(release).kind != PRESENT or "bool" not in (kind.name for kind in fact.list_kinds(release)):
        return False
    return fact.get_schema(release).get("default", True) is True


@cache
def get_parser(vocabulary: str, entry: str | None = None) -> Parser:
    """The parser of a vocabulary's entry point."""
    return Parser(vocabulary, entry)


@cache
def build_options(vocabulary: str, entry: str | None = None) -> OptionParser:
    """How the parser of a vocabulary's entry point reads its options."""
    option_parser = get_parser(vocabulary, entry)
    return OptionParser(option_parser.resolve_key, option_parser.convert_text, option_parser.find_negated)
