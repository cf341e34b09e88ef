"""The settings of HfArgumentParser's dataclasses as options of a command line.

Source: transformers 5.8.0 `hf_argparser.py` (`parse_args_into_dataclasses`): argparse with one option per field, by its
name with underscores or dashes or by any beginning that is no other's; `string_to_bool`; `--no_NAME` turns a switch off
that is on by default.
"""

from __future__ import annotations

from functools import cache

from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.shell.options import Options
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.frameworks.dotlist import parse_value
from cfglint_train.frameworks.hf_trainer.loader import SWITCHES

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation

_TYPED: Final = frozenset(("bool", "int", "float", "enum"))


class Parser:
    """The options that the parser of a vocabulary's entry point takes."""

    def __init__(self, vocabulary: str, entry: str | None = None) -> None:
        self.vocabulary = vocabulary
        self.context = Context(entry=entry)
        self._facts: dict[str, Fact | None] = {}

    def fact(self, key: str) -> Fact | None:
        """What is known of a setting, if anything is."""
        if key not in self._facts:
            known = load(self.vocabulary)
            self._facts[key] = known.fact((key,), known.newest, self.context)
        return self._facts[key]

    def kinds(self, key: str) -> tuple[str, ...]:
        """What a value of a setting may be."""
        fact = self.fact(key)
        return () if fact is None else tuple(kind.name for kind in fact.kinds())

    def key(self, option: str) -> str:
        """The setting that an option (without its dashes) gives."""
        name = option.replace("-", "_")
        if self.fact(name) is not None:
            return name
        known = load(self.vocabulary)
        meant = [other for other in known.names((), known.newest, self.context) if other.startswith(name)]
        return meant[0] if len(meant) == 1 else name

    def typed(self, key: str, text: str) -> Any:
        """The value that a word makes for a setting."""
        kinds = self.kinds(key) or ("float",)  # of an unknown key: the number that it may be meant for
        if "bool" in kinds and text.lower() in SWITCHES:
            return SWITCHES[text.lower()]
        if not _TYPED.intersection(kinds):
            return text
        try:
            value = parse_value(text, text)
        except ValueError:
            return text
        if isinstance(value, bool) and text.lower() not in ("true", "false"):
            return text  # further words of YAML are words here (`--eval_strategy no`)
        return value if isinstance(value, (bool, int, float)) else text

    def refuses_blank(self, given: Invocation, index: int) -> bool:
        """Whether the parser refuses a word of white space: as the value of a switch or number, and behind an option
        that has its one value.
        """
        flags = [one for one in given.flags if one.word < index]
        if not flags:
            return True
        kinds = self.kinds(self.key(flags[-1].name.lstrip("-")))
        if not kinds or "list" in kinds:
            return False
        has_value = flags[-1].joined or any(value < index for value in flags[-1].values)
        return bool(has_value) or _TYPED.issuperset({*kinds} - {"null"})

    def negated(self, option: str) -> str | None:
        """The switch that an option without a value turns off; None for other options: only of a switch that is on by
        default the parser has a `--no_NAME`.
        """
        name = option.replace("-", "_")
        switch = name.removeprefix("no_")
        if name == switch or self.fact(name) is not None:
            return None
        return switch if self._may_be_on(switch) else None

    def _may_be_on(self, switch: str) -> bool:
        """Whether a setting is a switch that is on by default for some trainer at some release, as far as is known."""
        fact = self.fact(switch)
        alike = () if fact is None else (fact, *fact.others)
        return any(_is_on(one, release) for one in alike for release in load(self.vocabulary).releases)


def _is_on(fact: Fact, release: str) -> bool:
    """Whether a setting is a switch at a release that is on by default, or may be: some defaults are computed."""
    if fact.status(release).kind != PRESENT or "bool" not in (kind.name for kind in fact.kinds(release)):
        return False
    return fact.schema(release).get("default", True) is True


@cache
def parser(vocabulary: str, entry: str | None = None) -> Parser:
    """The parser of a vocabulary's entry point."""
    return Parser(vocabulary, entry)


@cache
def options(vocabulary: str, entry: str | None = None) -> Options:
    """How the parser of a vocabulary's entry point reads its options."""
    made = parser(vocabulary, entry)
    return Options(made.key, made.typed, made.negated)
