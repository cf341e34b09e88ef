"""Completion of keys and of enumerated values, from the vocabulary of the release that a config is checked against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from json import dumps

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import ITEM
from cfglint_train.documents.document import Mapping, Route
from cfglint_train.editor.hover import find_fact, find_place
from cfglint_train.editor.mending import MARKER, blank_broken_lines
from cfglint_train.editor.session import Session, Setting, detect_syntax, is_dotted
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.reports.key_description import describe_fields, describe_key, find_fields, format_kinds

_WORD: Final = compile_on_use(r"[\w.\-]*")
_OPTION: Final = compile_on_use(r"(?:^|\s)(-{1,2}[\w-]+)(?:=|\s+)[\"']?$")


class Suggestion(Frozen):
    """A word that may stand at the cursor."""

    kind: Literal["key", "value"]
    word: str
    """The word without quotes or separators."""
    text: str
    """The text to insert in place of the word at the cursor."""
    detail: str
    """The kind of value and the default, or an empty string."""
    documentation: str
    """Markdown that describes the key, or an empty string."""


class Completions(Frozen):
    """The suggestions at a cursor, and the characters of the text that they replace."""

    start: int
    end: int
    suggestions: tuple[Suggestion, ...]


def complete(session: Session, path: str, offset: int) -> Completions | None:
    """Return the completions at a character of an open document, or None if it is in no config."""
    text = session.texts[path]
    syntax = detect_syntax(path, text)
    start, end = find_word(text, offset)
    quoted = text[start - 1 : start] in ('"', "'")
    head = text[text.rfind("\n", 0, start) + 1 : start]
    probes = [
        (text[:start] + replacement + text[end:], replacement, kind)
        for replacement, kind in _list_probes(syntax, head, text[start:end], quoted)
    ]
    mended = ((blank_broken_lines(syntax, probe), replacement, kind) for probe, replacement, kind in probes)
    for probe, replacement, kind in chain(probes, mended):
        setting = None if probe is None else session.find_gap(path, probe, start)
        if setting is None or not setting.route:
            continue
        if kind == "key" and MARKER in str(setting.route[-1]):
            start += replacement.index(MARKER) if replacement.rstrip("'\"").endswith(f"{MARKER}=0") else 0
            return Completions(start, end, tuple(_list_keys(setting, quoted, text[end : end + 2])))
        if kind == "value" and MARKER not in str(setting.route[-1]):
            return Completions(start, end, tuple(_list_values(setting, quoted)))
    option = _OPTION.search(head) if syntax == "shell" else None
    return None if option is None else _complete_option(session, path, start, end, option[1])


def _complete_option(session: Session, path: str, start: int, end: int, option: str) -> Completions | None:
    """Return the values of an option that is no setting, or None. A setting takes its place, to find its command."""
    text = session.texts[path]
    place = text.rindex(option, 0, start)
    after = text[end:].removeprefix(text[start - 1]) if text[start - 1] in "'\"" else text[end:]
    setting = session.find_gap(path, f"{text[:place]}{MARKER}=0{after}", place)
    keys = None if setting is None else frameworks.get_keys(setting.config)
    if setting is None or keys is None:
        return None
    names = keys.list_option_values(setting.config, option)
    return Completions(start, end, tuple(Suggestion("value", name, name, "", "") for name in names))


def find_word(text: str, offset: int) -> tuple[int, int]:
    """Return the start and the end of the word at a character; a cursor between two words has an empty word."""
    start = offset
    while start > 0 and _WORD.fullmatch(text[start - 1]):
        start -= 1
    match = _WORD.match(text, offset)
    return start, offset if match is None else match.end()


def _list_probes(
    syntax: str | None, head: str, word: str, quoted: bool
) -> Iterator[tuple[str, Literal["key", "value"]]]:
    """Yield texts that make an incomplete line parse, each with the role that the marker then has.

    `head` is the text before the word on its line.
    """
    if word.startswith("-"):
        yield f"--{MARKER}", "key"
        return
    if syntax == "json":
        if quoted:
            yield MARKER, "value"
            yield f'{MARKER}": 0, "', "key"
            yield f'{MARKER}": 0', "key"
        else:
            yield f'"{MARKER}"', "value"
            yield f'"{MARKER}": 0', "key"
            yield f'"{MARKER}": 0,', "key"
        return
    if word and (not head or head[-1] in " \t+('\"") and syntax not in ("yaml", "python"):
        option = f"{word[: word.rfind('.') + 1]}{MARKER}=0"  # an option of Hydra, whose section stays
        yield option, "key"
        if quoted:
            yield f"{option}{head[-1]}", "key"  # the quote is still open
    if syntax == "python" and "=" not in re.split(r"[(,]", head)[-1]:
        yield f"{MARKER}=0", "key"
        yield f"{MARKER}=0,", "key"
        return
    item = re.split(r"[{,]", head)[-1] if head.count("{") > head.count("}") else head
    if ":" in item or "=" in item:
        yield MARKER, "value"
        if quoted:
            yield f"{MARKER}{head[-1]}", "value"
    else:
        yield f"{MARKER}: 0", "key"
        yield MARKER, "key"
        yield MARKER, "value"


def _list_keys(setting: Setting, quoted: bool, following: str) -> Iterator[Suggestion]:
    """Yield the keys that the release accepts at the place and that the config does not set yet."""
    config, parent = setting.config, setting.route[:-1]
    keys = frameworks.get_keys(config)
    if keys is None:
        return
    vocabulary = keys.get_vocabulary(config)
    route, context = find_place(setting)
    place: Route = tuple(ITEM if isinstance(step, int) else step for step in route[:-1])
    section = config.document.find_node((*config.root, *parent))
    entries = section.entries if isinstance(section, Mapping) else ()
    present = {entry.name for entry in entries if not is_dotted(entry)}
    is_flag = str(setting.route[-1]).startswith("--")
    for name in vocabulary.list_names(place, config.release, context):
        flag = name if name.startswith("-") or not is_flag else f"--{name}"
        if flag in present or name in present:
            continue
        fact = vocabulary.find_fact((*place, name), config.release, context)
        detail, documentation = "", ""
        if fact is not None:
            fields = find_fields(fact, config.release, context.entry)
            detail = _describe(fact)
            documentation = "\n\n".join((*describe_key(fact, config.release), *describe_fields(fields, setting.style)))
        text = _write_key(flag, config.document.syntax, quoted, following)
        yield Suggestion("key", flag, text, detail, documentation)


def _write_key(name: str, syntax: str, quoted: bool, following: str) -> str:
    """Return the text of a key, with the separator that the syntax needs before a value."""
    if syntax == "json":
        return name if quoted else f'"{name}": '
    if syntax == "python":
        return name if following.startswith("=") else f"{name}="
    has_separator = name.startswith("-") or following.startswith(":") or syntax == "shell"
    return name if has_separator else f"{name}: "


def _list_values(setting: Setting, quoted: bool) -> Iterator[Suggestion]:
    """Yield the values that the key of a setting lists: enumerations, and true or false."""
    fact = find_fact(setting)
    if fact is None:
        return
    default = fact.get_schema().get("default")
    seen = set()
    for value in _list_choices(fact):
        word = value if isinstance(value, str) else dumps(value)
        if word in seen:
            continue
        seen.add(word)
        is_json_text = setting.config.document.syntax == "json" and isinstance(value, str) and not quoted
        text = dumps(value) if is_json_text else word
        yield Suggestion("value", word, text, "default" if value == default else "", "")


def _list_choices(fact: KeyFact) -> Iterator[Any]:
    for kind in fact.list_kinds():
        if kind.name == "enum":
            yield from kind.values
        elif kind.name == "bool":
            yield from (True, False)
        elif kind.name == "list":
            yield from (value for item in kind.items for value in item.values)


def _describe(fact: KeyFact) -> str:
    """Return the kind of value and the default, for one line of a list."""
    schema = fact.get_schema()
    default = f", default {dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else ""
    return f"{format_kinds(fact.list_kinds())}{default}".replace("`", "")
