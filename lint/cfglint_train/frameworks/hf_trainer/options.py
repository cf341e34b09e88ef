"""Command-line options for settings of HfArgumentParser's dataclasses.

Source: transformers 5.8.0 `hf_argparser.py` (`parse_args_into_dataclasses`): argparse has one option per
field, spelled with underscores, with dashes or as any unambiguous prefix; `string_to_bool` converts switches;
`--no_NAME` turns off a switch that is on by default.
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
    """Options that the parser of a vocabulary's entry point accepts."""

    def __init__(self, vocabulary: str, entry: str | None = None) -> None:
        """Select an entry point of a vocabulary."""
        self.vocabulary = vocabulary
        self.context = Context(entry=entry)
        self._facts: dict[str, KeyFact | None] = {}

    def find_fact(self, key: str) -> KeyFact | None:
        """Return the vocabulary's fact about a setting, or None if the setting is unknown."""
        if key not in self._facts:
            vocabulary = load(self.vocabulary)
            self._facts[key] = vocabulary.find_fact((key,), vocabulary.newest, self.context)
        return self._facts[key]

    def list_kinds(self, key: str) -> tuple[str, ...]:
        """Return the kinds of values that a setting accepts, or () if the setting is unknown."""
        fact = self.find_fact(key)
        return () if fact is None else tuple(kind.name for kind in fact.list_kinds())

    def resolve_key(self, option: str) -> str:
        """Return the setting that `option`, without its leading dashes, sets.

        An unambiguous prefix is completed. Any other unknown name is returned with underscores.
        """
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
        """Convert a word of the command line to the type of a setting; return it unchanged if it does not convert."""
        kinds = self.list_kinds(key) or ("float",)  # the value of an unknown key may be a number
        if "bool" in kinds and text.lower() in SWITCH_WORDS:
            return SWITCH_WORDS[text.lower()]
        if not _TYPED_KINDS.intersection(kinds):
            return text
        try:
            value = parse_value(text, text)
        except ValueError:
            return text
        if isinstance(value, bool) and text.lower() not in ("true", "false"):
            return text  # YAML also converts words that the parser keeps as text (`--eval_strategy no`)
        return value if isinstance(value, (bool, int, float)) else text

    def is_blank_fatal(self, invocation: Invocation, index: int) -> bool:
        """Return whether the parser rejects a blank word at `index` of the invocation's words.

        It rejects a blank word before any option, after an option that already has its value, and as the value of a
        switch, number or enumeration. It accepts a blank word after an unknown option or an option that accepts a list.
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
        """Return the switch that `--no_NAME` turns off, or None if `option` is any other option.

        The parser has `--no_NAME` only for switches that are on by default.
        """
        name = option.replace("-", "_")
        switch = name.removeprefix("no_")
        if name == switch or self.find_fact(name) is not None:
            return None
        return switch if self._is_possibly_on(switch) else None

    def _is_possibly_on(self, switch: str) -> bool:
        """Return whether a setting is a switch that may be on by default for some trainer at some known release."""
        fact = self.find_fact(switch)
        candidates = () if fact is None else (fact, *fact.alternatives)
        return any(
            _is_switch_on(candidate, release) for candidate in candidates for release in load(self.vocabulary).releases
        )


def _is_switch_on(fact: KeyFact, release: str) -> bool:
    """Return whether a setting is a switch that is, or may be, on by default; some defaults are computed."""
    if fact.resolve_status(release).kind != PRESENT or "bool" not in (kind.name for kind in fact.list_kinds(release)):
        return False
    return fact.get_schema(release).get("default", True) is True


@cache
def get_parser(vocabulary: str, entry: str | None = None) -> Parser:
    """Return the parser of a vocabulary's entry point."""
    return Parser(vocabulary, entry)


@cache
def build_options(vocabulary: str, entry: str | None = None) -> OptionParser:
    """Return an OptionParser that reads options as the parser of a vocabulary's entry point does."""
    option_parser = get_parser(vocabulary, entry)
    return OptionParser(option_parser.resolve_key, option_parser.convert_text, option_parser.find_negated)
