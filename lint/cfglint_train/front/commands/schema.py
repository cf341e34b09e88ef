"""`cfglint schema FRAMEWORK`: one release's vocabulary as a JSON Schema for editors and other validators."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, load, vocabularies
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import did_you_mean
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import listed, spellings, vocabulary_of
from cfglint_train.front.commands.parser import Parser


def _named(text: str) -> str | None:
    """The vocabulary that a word on the command line stands for: by its own name, or by that of its package."""
    known = {name.replace("_", "-"): name for name in vocabularies()}
    word = text.lower().replace("_", "-")
    return known.get(word) or vocabulary_of(spellings().get(word, ""))


_BESIDE: Final = "transformers"
"""The package whose release can be stated beside a framework's."""


def _parser() -> ArgumentParser:
    parser = Parser(
        prog="cfglint schema",
        description="Print a JSON Schema (draft 2020-12) of what a framework takes at one release.",
        epilog="without FRAMEWORK: the frameworks with their releases and entry points",
    )
    parser.add_argument("framework", nargs="?", metavar="FRAMEWORK", help=", ".join(vocabularies()))
    parser.add_argument("--release", metavar="RELEASE", help="default: the newest")
    parser.add_argument("--entry", metavar="ENTRY", help="the command or script (train_dpo, v1, cluster, ...)")
    parser.add_argument("--transformers", metavar="RELEASE", help=f"beside {_resting()} (default: what it allows)")
    parser.add_argument(
        "--strict", action="store_true", help="the types that are declared, not all that the framework converts"
    )
    return parser


def _resting() -> str:
    """The frameworks whose keys depend on that release, too."""
    return " and ".join(one.title for one in listed().values() if one.beside == _BESIDE)


def schema(argv: list[str]) -> int:
    """Run the command. Raises UsageError."""
    options = _parser().parse_args(argv)
    if options.framework is None:
        sys.stdout.writelines(f"{line}\n" for line in _listed())
        return 0
    name = _named(options.framework)
    if name is None:
        known = dict.fromkeys((*vocabularies(), *spellings()))
        hint = did_you_mean(options.framework.lower(), known, f"there are {', '.join(vocabularies())}")
        raise UsageError(f"unknown framework {options.framework}; {hint}")
    vocabulary = load(name)
    release = _release(options.release, vocabulary) if options.release else vocabulary.newest
    entry = _entry(vocabulary, options.entry, release)
    from json import dumps

    from cfglint_schemas.plain import plain

    context = Context(entry=entry, releases=_beside(name, release, options.transformers))
    owner = next((own for own, one in listed().items() if one.vocabulary == name), None)
    loader = None if options.strict or owner is None else frameworks.load(owner).loader
    # JSON has no comments: people give some names to remarks.
    remarks = loader is not None and name in listed() and tuple(listed()[name].clues) == ("json",)
    made = plain(vocabulary, release, context, loader, remarks)
    sys.stdout.write(dumps(made, indent=1, ensure_ascii=True) + "\n")
    return 0


def _listed() -> list[str]:
    lines = []
    for name in vocabularies():
        vocabulary = load(name)
        entries = ", ".join(entry for entry in vocabulary.entries if vocabulary.has_entry(entry, vocabulary.newest))
        lines.append(f"{name:<13} {vocabulary.releases[0]} to {vocabulary.newest}  ({entries})")
    return lines


def _release(text: str, vocabulary: Vocabulary) -> str:
    """A release that the vocabulary covers."""
    from cfglint_train.foundation.versions import release_key

    text = text.removeprefix("v")
    known = f"{vocabulary.framework} is known from {vocabulary.releases[0]} to {vocabulary.releases[-1]}"
    try:
        key = release_key(text)
    except ValueError:
        raise UsageError(f"--release {text}: not a release; {known}") from None
    if not release_key(vocabulary.releases[0]) <= key <= release_key(vocabulary.releases[-1]):
        raise UsageError(f"--release {text}: {known}")
    return text


def _entry(vocabulary: Vocabulary, entry: str | None, release: str) -> str | None:
    if entry is not None and not vocabulary.has_entry(entry, release):
        there = [name for name in vocabulary.entries if vocabulary.has_entry(name, release)]
        hint = did_you_mean(entry, there, f"it has {', '.join(there)}")
        raise UsageError(f"--entry {entry}: {vocabulary.framework} {release} has no such entry; {hint}")
    return entry


def _beside(name: str, release: str, transformers: str | None) -> dict[str, str]:
    """The releases of other packages that the keys depend on."""
    releases = load(name).packages.get(_BESIDE)
    if releases is None:
        if transformers is not None:
            raise UsageError(f"--transformers: only keys of {_resting()} depend on it")
        return {}
    pins = frameworks.load(name).installed(release) if name in listed() else {}
    allowed = transformers or pins.get(_BESIDE)
    if allowed is None:
        return {}
    try:
        load(name).within({"since": releases[0]}, _BESIDE, allowed)
    except ValueError:
        raise UsageError(f"--transformers {allowed}: not a release") from None
    return {_BESIDE: allowed}
