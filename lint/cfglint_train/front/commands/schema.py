"""`cfglint schema FRAMEWORK`: the vocabulary of a release as a JSON Schema for editors and validators."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, list_vocabularies, load
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import find_vocabulary, list_frameworks, map_spellings
from cfglint_train.front.commands.parser import Parser

if TYPE_CHECKING:
    from cfglint_schemas.fact import KeyFact
    from cfglint_schemas.plain import Describe


def _find_vocabulary(text: str) -> str | None:
    """Return the name of the vocabulary that a command-line word names, or None.

    The word is the vocabulary's own name or the name of its package.
    """
    names = {name.replace("_", "-"): name for name in list_vocabularies()}
    word = text.lower().replace("_", "-")
    return names.get(word) or find_vocabulary(map_spellings().get(word, ""))


_SETTINGS: Final = "cfglint"
"""Word that names the settings of cfglint itself."""

_COMPANION: Final = "transformers"
"""The package whose release can be specified in addition to the framework's."""


def _build_parser() -> ArgumentParser:
    parser = Parser(
        prog="cfglint schema",
        description="Print a JSON Schema (draft 2020-12) of the keys that a release of a framework accepts, or one "
        f"(draft 7) of cfglint's own settings: `cfglint schema {_SETTINGS}`.",
        epilog="without FRAMEWORK: list the frameworks with their releases and entry points",
    )
    parser.add_argument("framework", nargs="?", metavar="FRAMEWORK", help=", ".join((*list_vocabularies(), _SETTINGS)))
    parser.add_argument("--release", metavar="RELEASE", help="default: the newest")
    parser.add_argument("--entry", metavar="ENTRY", help="the command or script (train_dpo, v1, cluster, ...)")
    parser.add_argument(
        "--transformers",
        metavar="RELEASE",
        help=f"release of transformers, for {_format_dependents()} (default: all that it allows)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="accept only the declared types, not values that the framework converts"
    )
    return parser


def _format_dependents() -> str:
    """Return the titles of the frameworks whose keys also depend on the companion package."""
    return " and ".join(
        manifest.title for manifest in list_frameworks().values() if manifest.companion_package == _COMPANION
    )


def schema(argv: list[str]) -> int:
    """Print the schema and return the exit code. Raise UsageError for invalid arguments."""
    options = _build_parser().parse_args(argv)
    if options.framework is None:
        sys.stdout.writelines(f"{line}\n" for line in _list_vocabularies())
        return 0
    if options.framework == _SETTINGS:
        _write_schema(_build_settings_schema())
        return 0
    name = _find_vocabulary(options.framework)
    if name is None:
        choices = dict.fromkeys((*list_vocabularies(), _SETTINGS, *map_spellings()))
        hint = suggest_name(
            options.framework.lower(), choices, f"known: {', '.join((*list_vocabularies(), _SETTINGS))}"
        )
        raise UsageError(f"unknown framework {options.framework}; {hint}")
    vocabulary = load(name)
    release = _parse_release(options.release, vocabulary) if options.release else vocabulary.newest
    entry = _check_entry(vocabulary, options.entry, release)
    from cfglint_schemas.plain import build_plain_schema

    context = Context(entry=entry, releases=_find_companion_releases(name, release, options.transformers))
    owner = next((framework for framework, manifest in list_frameworks().items() if manifest.vocabulary == name), None)
    loader = None if options.strict or owner is None else frameworks.load(owner).loader
    # JSON has no comments, so files of JSON-only frameworks use keys with certain names as comments.
    allows_comments = (
        loader is not None and name in list_frameworks() and tuple(list_frameworks()[name].clues) == ("json",)
    )
    json_schema = build_plain_schema(
        vocabulary, release, context, loader, allows_comments, _build_describer(release, entry)
    )
    _write_schema(json_schema)
    return 0


def _write_schema(json_schema: dict[str, Any]) -> None:
    from json import dumps

    sys.stdout.write(dumps(json_schema, indent=1, ensure_ascii=True) + "\n")


def _build_settings_schema() -> dict[str, Any]:
    from cfglint_rules.registry import RULES
    from cfglint_train.settings.settings_schema import build_settings_schema

    return build_settings_schema((rule.code, rule.name) for rule in RULES.values())


def _build_describer(release: str, entry: str | None) -> Describe:
    """Return a function that describes a key; rules are links if the settings or the package have their pages."""
    import os

    from cfglint_train.reports.addresses import choose_rule_pages
    from cfglint_train.reports.key_description import describe_fields, describe_key, find_fields, strip_markdown
    from cfglint_train.reports.style import Style
    from cfglint_train.settings.settings import discover

    settings = discover(os.getcwd(), {})
    style = Style(pages=choose_rule_pages(None if settings is None else settings.rule_url))

    def describe(fact: KeyFact) -> dict[str, str]:
        fields = find_fields(fact, release, entry)
        plain = strip_markdown([*describe_key(fact, release), *describe_fields(fields, Style())])
        if not fields or style.pages is None:
            return {"description": plain}
        text = "\n\n".join((*describe_key(fact, release), *describe_fields(fields, style)))
        return {"description": plain, "markdownDescription": text}

    return describe


def _list_vocabularies() -> list[str]:
    lines = []
    for name in list_vocabularies():
        vocabulary = load(name)
        entries = ", ".join(entry for entry in vocabulary.entries if vocabulary.has_entry(entry, vocabulary.newest))
        lines.append(f"{name:<13} {vocabulary.releases[0]} to {vocabulary.newest}  ({entries})")
    return lines


def _parse_release(text: str, vocabulary: Vocabulary) -> str:
    """Parse a release. Raise UsageError if it is invalid or the vocabulary does not cover it."""
    from cfglint_train.foundation.versions import parse_release

    text = text.removeprefix("v")
    covered = f"cfglint knows {vocabulary.framework} {vocabulary.releases[0]} to {vocabulary.releases[-1]}"
    try:
        key = parse_release(text)
    except ValueError:
        raise UsageError(f"--release {text}: not a release; {covered}") from None
    if not parse_release(vocabulary.releases[0]) <= key <= parse_release(vocabulary.releases[-1]):
        raise UsageError(f"--release {text}: {covered}")
    return text


def _check_entry(vocabulary: Vocabulary, entry: str | None, release: str) -> str | None:
    if entry is not None and not vocabulary.has_entry(entry, release):
        available = [name for name in vocabulary.entries if vocabulary.has_entry(name, release)]
        hint = suggest_name(entry, available, f"it has {', '.join(available)}")
        raise UsageError(f"--entry {entry}: {vocabulary.framework} {release} has no such entry; {hint}")
    return entry


def _find_companion_releases(name: str, release: str, transformers: str | None) -> dict[str, str]:
    """Return the release of the companion package if the keys depend on it. Raise UsageError for an invalid release."""
    releases = load(name).packages.get(_COMPANION)
    if releases is None:
        if transformers is not None:
            raise UsageError(f"--transformers: only keys of {_format_dependents()} depend on it")
        return {}
    pins = frameworks.load(name).list_installed(release) if name in list_frameworks() else {}
    constraint = transformers or pins.get(_COMPANION)
    if constraint is None:
        return {}
    try:
        load(name).is_within({"since": releases[0]}, _COMPANION, constraint)
    except ValueError:
        raise UsageError(f"--transformers {constraint}: not a release") from None
    return {_COMPANION: constraint}
