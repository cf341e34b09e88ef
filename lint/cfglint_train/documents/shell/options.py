"""Program options that are keys of a configuration: `--cutoff_len 2048` is `cutoff_len: 2048`.

A framework that accepts the same settings from a file and from its command line describes how its parser names and
types them (`OptionParser`). Lenses and rules then see a mapping, and changes of its keys are written as options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    Document,
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
from cfglint_train.documents.shell.script import Argument, Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_LONG: Final = "--"


class OptionParser(Frozen):
    """Conventions by which a program parses its options."""

    read_key: Callable[[str], str]
    """Function that returns the key of an option, given without its dashes."""
    parse_value: Callable[[str, str], Any]
    """Function that returns the value of a word, given the key and the word."""
    find_negated: Callable[[str], str | None]
    """Function that returns the switch that a bare option turns off, or None for other options."""

    def build_mapping(self, invocation: Invocation) -> Mapping:
        """Return the options of an invocation as a mapping from keys to values."""
        return Mapping(invocation.span, [self._build_entry(entry) for entry in invocation.entries], False)

    def list_options(self, invocation: Invocation) -> Iterator[tuple[Entry, Route, Any]]:
        """Yield the options of an invocation: the entry as written, and the key's route and value."""
        for option in invocation.entries:
            entry = self._build_entry(option)
            name = (entry.name or "").removeprefix(_LONG)
            yield option, tuple(name.split(".")), Document("", b"").build_value(entry.value)

    def _build_entry(self, option: Entry) -> Entry:
        name = option.name or ""
        if not name.startswith(_LONG):
            return option
        bare_name = name.removeprefix(_LONG)
        off = self.find_negated(bare_name) if is_bare_option(option.value) else None
        key = off or self.read_key(bare_name)
        value = _build_switch(option.value, False) if off else self._parse_node(key, option.value)
        return Entry(Scalar(option.key.span, key, value=key), value)

    def _parse_node(self, key: str, node: Node) -> Node:
        if isinstance(node, Sequence):
            return Sequence(node.span, [self._parse_node(key, item) for item in node.items], node.is_flow)
        if not isinstance(node, Argument) or not isinstance(node.value, str):
            return node
        return Argument(node.span, node.text, self.parse_value(key, node.value), node.word)

    def translate_change(self, change: Change, invocation: Invocation) -> Change:
        """Return a change of a key as a change of the option that sets the key.

        Raise `CannotEdit` if no option can express the change.
        """
        number, key, *items = change.route
        spellings = [entry.name or "" for entry in invocation.entries if self._build_entry(entry).name == key]
        if any(self.find_negated(name.removeprefix(_LONG)) for name in spellings):
            raise CannotEdit(f"it is passed as {spellings[-1]}")
        if len(set(spellings)) > 1 and not isinstance(change, Set):
            raise CannotEdit(f"it is passed as {' and '.join(dict.fromkeys(spellings))}")
        route = (number, spellings[-1] if spellings else f"{_LONG}{key}", *items)
        if isinstance(change, Delete):
            return Delete(route)
        if isinstance(change, Rename):
            return Rename(route, f"{_LONG}{change.key}")
        beside = tuple(f"{_LONG}{name}" for name in change.beside)
        value = _format_value(change.value)
        return Append(route, value, beside) if isinstance(change, Append) else Set(route, value, beside)


def is_bare_option(node: Node) -> bool:
    """Return whether the value of an option is missing, so that the option stands alone."""
    return isinstance(node, Argument) and node.value is True


def _build_switch(node: Node, value: bool) -> Node:
    assert isinstance(node, Argument)
    return Argument(node.span, node.text, value, node.word)


def _format_value(value: Any) -> Any:
    """Return a value as command-line words. Raise `CannotEdit` if words cannot express it."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return [_format_value(item) for item in value]
    if value is None or isinstance(value, (dict, Unknown)):
        raise CannotEdit("no option sets that")
    return value
