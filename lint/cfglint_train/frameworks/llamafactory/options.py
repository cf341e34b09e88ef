"""Command-line options of LLaMA-Factory, and settings in words after its file."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import parse_dotlist
from cfglint_train.frameworks.hf_trainer.options import build_options

OPTIONS: Final = build_options("llamafactory")


def parse_trailing(words: list[str]) -> Mapping[Route, Any]:
    """Return the settings in words after a file (0.9.3 to 0.9.5 `hparams/parser.py`, read_args: OmegaConf.from_cli).

    An option (`--bf16 true`) becomes one setting under its full name, with its value as a string. OmegaConf would split
    it into two settings, both unknown to the parser. Raise ValueError for a word whose value is not YAML.
    """
    dotlist_words: list[str] = []
    settings: dict[Route, Any] = {}
    option = ""
    for word in words:
        if word.startswith("-"):
            name, separator, text = word.partition("=")
            settings[(name,)] = text if separator else None
            option = "" if separator else name
        elif option and "=" not in word:
            settings[(option,)], option = word, ""
        else:
            dotlist_words.append(word)
            option = ""
    return {**parse_dotlist(dotlist_words), **settings}


def format_setting(option: str, text: str | None) -> str:
    """Return the form of an option after a file: `bf16=true` for `--bf16`.

    Return "" if the vocabulary has no setting of that name.
    """
    name = option.lstrip("-").replace("-", "_")
    switch = name.removeprefix("no_")
    fact = _find_fact(name)
    if fact is not None:
        return f"{name}={text or ('true' if _is_switch(fact) else 'VALUE')}"
    fact = _find_fact(switch)
    return f"{switch}=false" if text is None and fact is not None and _is_switch(fact) else ""


def _find_fact(name: str) -> KeyFact | None:
    vocabulary = load("llamafactory")
    return vocabulary.find_fact((name,), vocabulary.newest, Context())


def _is_switch(fact: KeyFact) -> bool:
    return "bool" in (kind.name for kind in fact.list_kinds())
