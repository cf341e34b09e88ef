"""Words of Hydra on a command line, read as the keys of a mapping: `a.b=c` is `a: {b: c}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    Entry,
    Mapping,
    Node,
    Rename,
    Route,
    Scalar,
    Sequence,
    Set,
    Unknown,
)
from cfglint_train.documents.shell.programs import CommandFlag
from cfglint_train.documents.shell.script import Argument, Invocation, build_joined_entry
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.dotlist import merge_setting
from cfglint_train.frameworks.verl.options import skip_options
from cfglint_train.frameworks.verl.overrides import OverrideHead, parse_head, parse_value

_PLACEHOLDER: Final = compile_on_use(r"<[^<>]*>|[Yy][Oo][Uu][Rr]")
"""Text that users replace."""


class HydraWord(Frozen):
    """A word of a command that overrides a setting."""

    position: int
    """Index in the words of the invocation."""
    word: Word
    head: OverrideHead
    entry: Entry
    """The dotted key, with its sign, and the value: typed, or `Unknown`."""
    fault: str = ""
    """Reason why Hydra refuses the value; empty if it does not."""

    @property
    def route(self) -> Route:
        """Route of the setting."""
        return tuple(self.head.key.split("."))

    @property
    def name(self) -> str:
        """Sign and key, as written."""
        return self.head.sign + self.head.key


class HydraWords:
    """Translation between Hydra's words and the keys of the configuration that it composes."""

    def build_mapping(self, invocation: Invocation) -> Mapping:
        """Return the settings that the words of an invocation leave, applied in order as Hydra does.

        Words that select a file of a config group, or configure Hydra itself, are left out.
        """
        root = Mapping(invocation.span, [], False)
        words = [word for word in list_words(invocation) if is_setting(word.head)]
        register(invocation, list_settings(invocation))
        for word in sorted(words, key=lambda word: not word.word.left_out):  # any other word overrides these
            if word.head.sign == "~":
                _remove(root, word.route)
                continue
            _insert(root, word)
        return root

    def list_options(self, invocation: Invocation) -> Iterator[tuple[Entry, Route, Any]]:
        """Yield the words that set something: entry as written, route and value."""
        for word in list_kept_settings(invocation):
            value = word.entry.value
            yield word.entry, word.route, value.value if isinstance(value, Scalar) else _build_plain(value)

    def translate_change(self, change: Change, invocation: Invocation) -> Change:
        """Return a change of a key as a change of the word that sets the key.

        Raise `CannotEdit` if no word can express the change.
        """
        number, *route = change.route
        if isinstance(change, (Delete, Rename)) and len(route) == 1 and "." in str(route[0]):
            register(invocation, list_words(invocation))
            return change  # it names the whole word with its sign
        depth = len(route) if isinstance(change, Delete) else None  # a word below a section is all of the section
        stated = [word for word in list_kept_settings(invocation) if word.route[:depth] == tuple(route)]
        if not stated and is_below(tuple(route), list_deleted(invocation)):
            raise CannotEdit("a word deletes it")
        if isinstance(change, Append):
            raise CannotEdit("the list is one word")
        if isinstance(change, (Delete, Rename)) and len({word.name for word in stated}) != 1:
            raise CannotEdit("it is part of another word" if not stated else "it is passed in several forms")
        register(invocation, stated)
        name = stated[-1].name if stated else ".".join(map(str, route))
        if isinstance(change, Delete):
            return Delete((number, name))
        if isinstance(change, Rename):
            sign, *parents = stated[-1].head.sign, *stated[-1].route[:-1]
            return Rename((number, name), sign + ".".join((*map(str, parents), change.key)))
        register(invocation, list_settings(invocation))
        if any(word.head.sign == "++" and word.route == change.moved[1:] for word in list_settings(invocation)):
            name = f"++{name}"
        return Set((number, name), _format_value(change.value), _list_siblings(invocation, tuple(route)))


def parse_trailing(words: Iterable[str]) -> dict[Route, Any]:
    """Return the settings of the words that a command passes beside a file that it composes.

    A value that Hydra refuses, that gives several jobs, or that a word deletes is `Unknown`.
    """
    settings: dict[Route, Any] = {}
    for _, word in skip_options(words):
        head = parse_head(word)
        if head is None or not is_setting(head):
            continue
        route: Route = tuple(head.key.split("."))
        value: Any = Unknown("a word that deletes it")
        try:
            if head.sign != "~":
                value = parse_value(word[head.value_offset :])
        except ValueError:
            value = Unknown("a value that Hydra refuses")
        merge_setting(settings, route, value)
    return settings


def read_word(invocation: Invocation, index: int) -> HydraWord | None:
    """Return the override in a word, or None if it is none, or if its key cannot be determined."""
    word = invocation.words[index]
    head = parse_head(word.text)
    if head is None:
        return None
    if not head.value_offset:
        if not word.is_known:
            return None
        name = Scalar(word.span, word.text, value=word.text)
        return HydraWord(index, word, head, Entry(name, Argument(word.span, "", None, word)))
    flag = CommandFlag(head.sign + head.key, index, (), head.value_offset)
    entry = build_joined_entry(flag, word)
    argument = entry.value
    assert isinstance(argument, Argument)
    if not isinstance(argument.value, str):
        return HydraWord(index, word, head, entry)
    is_home = bool(word.names) and argument.value.startswith("~/")  # bash expands `~` where it assigns a variable
    try:
        value, fault = parse_value(argument.value[is_home:]), ""
        value = f"~{value}" if is_home and isinstance(value, str) else value
    except ValueError as error:
        value, fault = Unknown("a value that Hydra refuses"), "" if _PLACEHOLDER.search(word.text) else str(error)
    return HydraWord(index, word, head, Entry(entry.key, _build_node(argument, value)), fault)


def list_words(invocation: Invocation) -> list[HydraWord]:
    """Return the overrides of an invocation, in order."""
    return invocation.compute_once(_read_words)


def _read_words(invocation: Invocation) -> list[HydraWord]:
    arguments = skip_options(word.text for word in invocation.words)
    return [word for index, _ in arguments if (word := read_word(invocation, index)) is not None]


def list_leftovers(invocation: Invocation) -> Iterator[Word]:
    """Yield the words that Hydra refuses because they are no overrides (`a.b = c`, or a blank after a backslash).

    Words of a text that users replace are left out.
    """
    words = [invocation.words[index] for index, text in skip_options(word.text for word in invocation.words) if text]
    before = ""
    for is_stray, group in groupby(words, lambda word: word.is_known and parse_head(word.text) is None):
        alike = list(group)
        if is_stray and not any(_PLACEHOLDER.search(text) for text in (before, *(word.text for word in alike))):
            yield from alike
        before = alike[-1].text


def list_settings(invocation: Invocation) -> Iterator[HydraWord]:
    """Return the overrides that set a key of the configuration."""
    return (word for word in list_words(invocation) if word.head.sign != "~" and is_setting(word.head))


def list_kept_settings(invocation: Invocation) -> list[HydraWord]:
    """Return the overrides that set a key which no later word deletes, or a key around it."""
    kept: list[HydraWord] = []
    for word in list_words(invocation):
        if word.head.sign == "~":
            kept = [earlier for earlier in kept if not is_below(earlier.route, (word.route,))]
        elif is_setting(word.head):
            kept.append(word)
    return kept


def find_left_out(invocation: Invocation) -> dict[Route, str]:
    """Return the keys of the words that defaults of variables leave out, each with the note on these defaults."""
    return {word.route: word.word.left_out for word in list_settings(invocation) if word.word.left_out}


def is_of_other_tree(invocation: Invocation, route: Route) -> bool:
    """Return whether defaults leave out all words for a key, and the choice of the group's file that may have it."""
    words = list_words(invocation)
    is_chosen = any(word.word.left_out for word in words if word.head.key in GROUPS)
    return is_chosen and all(word.word.left_out for word in words if is_below(word.route, (route,)))


def list_deleted(invocation: Invocation) -> tuple[Route, ...]:
    """Return the keys that words delete; the defaults at and below them do not apply."""
    return tuple(word.route for word in list_words(invocation) if word.head.sign == "~" and is_setting(word.head))


def is_below(route: Route, others: tuple[Route, ...]) -> bool:
    """Return whether a key is one of the others, or below one."""
    return any(route[: len(other)] == other for other in others)


GROUPS: Final = ("engine", "model", "optim", "profiler")
"""Config groups of sections at the root of a tree: a word without a dot selects their file (verl 0.9.1
`trainer/config/`)."""

ENGINE_GROUP: Final = "model_engine"
"""Config group whose files set the key with its name to theirs, so that a word selects a file and sets the key."""


def is_setting(head: OverrideHead) -> bool:
    """Return whether an override is of a key of the tree: not of Hydra itself, nor of a config group."""
    return not head.is_group and head.key not in GROUPS and head.key.partition(".")[0] != "hydra"


def find_group(invocation: Invocation, name: str) -> HydraWord | None:
    """Return the last word that selects the file of a config group at the root, unless defaults leave it out."""
    words = reversed(list_words(invocation))
    return next((word for word in words if word.head.key == name and not word.word.left_out), None)


def find_undetermined(invocation: Invocation) -> str:
    """Return the expression that may add words which the text does not show, or an empty string.

    The arguments of the script itself (`"$@"`) do not count: they are empty unless the caller adds them.
    """
    for word in invocation.words:
        if word.is_known or word.spreads or parse_head(word.text) is not None or word.text.startswith("-"):
            continue
        return word.why
    return ""


def register(invocation: Invocation, words: Iterable[HydraWord]) -> None:
    """Add words to the options of their invocation, so that each is edited as an option joined with its value."""
    present = {flag.word for flag in invocation.flags}
    for word in words:
        if word.position not in present:
            present.add(word.position)
            invocation.flags.append(CommandFlag(word.name, word.position, (), word.head.value_offset))
            invocation.entries.append(word.entry)


def _insert(root: Mapping, word: HydraWord) -> None:
    mapping = root
    *parents, last = map(str, word.route)
    for name in parents:
        entry = next((entry for entry in reversed(mapping.entries) if entry.name == name), None)
        if entry is None or not isinstance(entry.value, Mapping):
            entry = Entry(Scalar(word.entry.key.span, name, value=name), Mapping(word.entry.span, [], False))
            mapping.entries.append(entry)
        assert isinstance(entry.value, Mapping)
        mapping = entry.value
    _merge(mapping, Entry(Scalar(word.entry.key.span, last, value=last), _copy(word.entry.value)))


def _copy(node: Node) -> Node:
    """Return a copy of a mapping, into which a later word may be merged; other nodes stay the same."""
    if not isinstance(node, Mapping):
        return node
    return Mapping(node.span, [Entry(entry.key, _copy(entry.value)) for entry in node.entries], node.is_flow)


def _remove(root: Mapping, route: Route) -> None:
    mapping = root
    *parents, last = map(str, route)
    for name in parents:
        entry = next((entry for entry in reversed(mapping.entries) if entry.name == name), None)
        if entry is None or not isinstance(entry.value, Mapping):
            return
        mapping = entry.value
    mapping.entries[:] = [entry for entry in mapping.entries if entry.name != last]


def _merge(mapping: Mapping, entry: Entry) -> None:
    """Add an entry; merge its value with an earlier one if both are mappings, as Hydra does."""
    earlier = next((other.value for other in reversed(mapping.entries) if other.name == entry.name), None)
    if isinstance(earlier, Mapping) and isinstance(entry.value, Mapping):
        for inner in entry.value.entries:
            _merge(earlier, inner)
    else:
        mapping.entries.append(entry)


def _build_node(argument: Argument, value: Any) -> Node:
    """Return a value as a node; everything in it has the place of the word's value."""
    if isinstance(value, list):
        return Sequence(argument.span, [_build_node(argument, item) for item in value], True)
    if isinstance(value, dict):
        entries = [
            Entry(Scalar(argument.span, str(key), value=key), _build_node(argument, item))
            for key, item in value.items()
        ]
        return Mapping(argument.span, entries, True)
    return Argument(argument.span, argument.text, value, argument.word)


def _build_plain(node: Node) -> Any:
    if isinstance(node, Sequence):
        return [_build_plain(item) for item in node.items]
    if isinstance(node, Mapping):
        return {entry.name or "": _build_plain(entry.value) for entry in node.entries}
    return node.value if isinstance(node, Scalar) else None


def _list_siblings(invocation: Invocation, route: Route) -> tuple[str, ...]:
    """Return the words that set keys of the same section, the last first: a new word is written after it."""
    words = [word for word in list_settings(invocation) if word.head.value_offset]
    for depth in range(len(route) - 1, 0, -1):
        near = [word.name for word in reversed(words) if word.route[:depth] == route[:depth]]
        if near:
            return tuple(near)
    return ()


def _format_value(value: Any) -> Any:
    """Return a value as the text after the sign. Raise `CannotEdit` if it would need quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (list, dict, Unknown)):
        raise CannotEdit("a list on a command line needs quotes")
    return value
