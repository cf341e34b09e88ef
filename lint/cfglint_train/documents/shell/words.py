"""Words of a shell command, with the place of every byte in the file.

A **fragment** is a piece of expanded text with its **sites**: the places it passes through, from the use in the command
(`$ARGS`) inwards to the bytes themselves (inside `ARGS="..."`). Word splitting cuts fragments. A word is placed at its
outermost site that no other word shares, so that the options in `$ARGS` are reported where they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from cfglint_train.documents.document import Span
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

# Condition around a place in a script: its kind and the id of the syntax node.
Step = tuple[str, int]
# All conditions around a place, outermost first.
Chain = tuple[Step, ...]

# Words that expansion leaves unchanged.
PLAIN: Final = compile_on_use(rb"[A-Za-z0-9_./:=,@%+-]+")
NAME: Final = compile_on_use(rb"[A-Za-z_][A-Za-z0-9_]*")
_SPREADING: Final = compile_on_use(r"\"?\$(?:[@*]|\{[@*][^}]*\}|\{\w+\[[@*]\][^}]*\})\"?")
_SPACE: Final = compile_on_use(rb"[ \t\n]+")


class Fragment(Frozen):
    """A piece of expanded text."""

    text: bytes
    sites: tuple[Span, ...]
    """Places from the use in the command to the bytes themselves; never empty."""
    exact: bool = True
    """True if the last site holds exactly these bytes."""
    split: bool = False
    """True if bash splits the text at white space (an unquoted expansion)."""
    names: tuple[str, ...] = ()
    """Variables (or `$((`) that the text passes through."""
    why: str = ""
    """Expression that an unknown text depends on; `text` then holds the expansion as written."""
    default_blank: str = ""
    """Variable or argument that only the caller can set, if the unknown text is empty otherwise (`${X:-}`)."""
    condition: str = ""
    """Condition under which the text is present; empty if it is always present."""
    left_out: tuple[str, ...] = ()
    """Notes on defaults that leave conditional text out; empty if nothing decides the condition."""
    assumptions: tuple[str, ...] = ()
    """Notes on defaults that apply unless the environment overrides them (`${MBS:-16}`)."""

    @property
    def is_known(self) -> bool:
        """True if the program receives exactly this text unless the environment overrides a default."""
        return not (self.why or self.condition)

    @property
    def is_certain(self) -> bool:
        """True if the program receives exactly this text in every environment."""
        return self.is_known and not self.assumptions

    def cut(self, start: int, end: int) -> Fragment:
        """Return a part of the text; the last site shrinks accordingly if it holds the same bytes."""
        if start == 0 and end == len(self.text):
            return self
        sites = self.sites
        if self.exact:
            first = sites[-1].start
            sites = (*sites[:-1], Span(first + start, first + end))
        return self._replace(text=self.text[start:end], sites=sites)


class Word(Frozen):
    """A word as the program receives it."""

    text: str
    """Text of the word; unknown parts are expansions as written."""
    span: Span
    """Outermost place that belongs to this word alone."""
    target: Span | None
    """Bytes to replace to change the word, or None if no single place in the file determines it."""
    names: tuple[str, ...] = ()
    """Variables that the word passes through."""
    why: str = ""
    """Expression or condition that the word depends on; empty if its text is known."""
    loose: bool = False
    """True if the word is unknown and unquoted, so that it may expand to zero or several words."""
    spreads: bool = False
    """True if the word is unknown and may expand to any number of words, even in quotes (`"$@"`)."""
    is_optional: bool = False
    """True if the word is present only under a condition, which `why` names."""
    left_out: str = ""
    """Note on defaults that leave an optional word out; empty if nothing decides the condition."""
    assumption: str = ""
    """Note on defaults that the text relies on unless the environment overrides them."""
    fragments: tuple[Fragment, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if the program receives exactly this text unless the environment overrides a default."""
        return not self.why

    @property
    def known_suffix(self) -> str:
        """End of a path in an unknown folder, starting with a slash; empty for other words."""
        parts: list[str] = []
        for fragment in reversed(self.fragments if self.why else ()):
            if not fragment.is_known:
                break
            parts.append(fragment.text.decode("utf-8", "replace"))
        end = "".join(reversed(parts))
        return end if end.startswith("/") else ""


class Setting(Frozen):
    """An assignment `NAME=value` in the environment of a program."""

    name: str
    text: str | None
    """Value of the variable, or None if it cannot be determined."""
    assumption: str = ""
    """Note on defaults that the text relies on unless the environment overrides them."""
    span: Span | None = None
    """Position of the assignment in the document, if it is not in a nested script."""


def build_setting(name: str, value: Iterable[Fragment] | None, span: Span | None = None) -> Setting:
    """Return a setting; its text is None if `value` is None or not fully known."""
    fragments = tuple(value or ())
    if value is None or not all(fragment.is_known for fragment in fragments):
        return Setting(name, None, span=span)
    text = b"".join(fragment.text for fragment in fragments).decode("utf-8", "replace")
    notes = dict.fromkeys(note for part in fragments for note in part.assumptions)
    return Setting(name, text, "; ".join(notes), span)


class PlacedWord:
    """A word and its candidate places; `separate` chooses one of the places."""

    __slots__ = ("field", "levels", "span")

    def __init__(self, field: tuple[Fragment, ...], whole: Span | None) -> None:
        """Compute the candidate places of a word, outermost first; `whole` is the span of the word as written."""
        self.field = field
        self.levels: list[Span] = [whole] if whole is not None else []
        deepest = max((len(fragment.sites) for fragment in field), default=0)
        for level in range(1 if whole is not None else 0, deepest):
            spans = [fragment.sites[min(level, len(fragment.sites) - 1)] for fragment in field]
            low, high = min(span.start for span in spans), max(span.end for span in spans)
            # Pieces that are not adjacent (a variable's text beside the word's own text) share no place.
            if high - low > sum(span.end - span.start for span in spans) + 2 * len(spans):
                low, high = self.levels[-1] if self.levels else spans[0]
            self.levels.append(Span(low, high))
        if not self.levels:
            self.levels.append(Span(0, 0))
        self.span = self.levels[0]


def separate(places: list[PlacedWord], level: int) -> None:
    """Move words that share a place further inwards until each has its own place, if possible."""
    groups: dict[Span, list[PlacedWord]] = {}
    for placed in places:
        placed.span = placed.levels[min(level, len(placed.levels) - 1)]
        groups.setdefault(placed.span, []).append(placed)
    for group in groups.values():
        if len(group) > 1 and any(len(placed.levels) > level + 1 for placed in group):
            separate(group, level + 1)


def build_word(field: tuple[Fragment, ...], span: Span) -> Word:
    """Return the word that the fragments of `field` form, placed at `span`."""
    if len(field) == 1:
        (only,) = field
        if only.exact and not (only.names or only.why or only.condition or only.assumptions):
            return Word(only.text.decode("utf-8", "replace"), span, only.sites[-1], fragments=field)
    why = next((fragment.why or fragment.condition for fragment in field if fragment.why or fragment.condition), "")
    text = b"".join(fragment.text for fragment in field).decode("utf-8", "replace")
    names = tuple(dict.fromkeys(name for fragment in field for name in fragment.names))
    assumed = "; ".join(dict.fromkeys(note for fragment in field for note in fragment.assumptions))
    if why and all(fragment.condition and not fragment.why for fragment in field):
        left_out = "; ".join(dict.fromkeys(note for fragment in field for note in fragment.left_out))
        return Word(
            text, span, None, names, why, is_optional=True, left_out=left_out, assumption=assumed, fragments=field
        )
    spreads = _SPREADING.fullmatch(why) is not None
    loose = spreads or (bool(why) and all((fragment.split and fragment.why) or not fragment.text for fragment in field))
    target = None if why else _find_target(field, span)
    return Word(text, span, target, names, why, loose, spreads, assumption=assumed, fragments=field)


def _find_target(field: tuple[Fragment, ...], span: Span) -> Span | None:
    """Return the bytes to replace to change a word: the text between its quotes, else the whole literal word.

    Return None if no single place determines the word.
    """
    if all(fragment.exact for fragment in field) and field:
        sites = [fragment.sites[-1] for fragment in field]
        if all(before.end == after.start for before, after in pairwise(sites)):
            return Span(sites[0].start, sites[-1].end)
    if not any(fragment.names for fragment in field) and all(
        span.start <= fragment.sites[-1].start and fragment.sites[-1].end <= span.end for fragment in field
    ):
        return span
    return None


def add_use_site(fragment: Fragment, sites: tuple[Span, ...], name: str, split: bool = False) -> Fragment:
    """Return a fragment of the value of variable `name`, with the sites of the variable's use as outermost sites."""
    return fragment._replace(sites=(*sites, *fragment.sites), names=(name, *fragment.names), split=split)


def split_words(fragments: Iterable[Fragment], default_ifs: bool) -> Iterator[tuple[Fragment, ...]]:
    """Split fragments into words at white space.

    If the script sets IFS, text that would be split becomes unknown.
    """
    field: list[Fragment] = []
    exists = False
    for fragment in fragments:
        if not fragment.split or fragment.why:
            field.append(fragment)
            exists = True
            continue
        if not default_ifs and fragment.text:
            field.append(fragment._replace(why="IFS"))
            exists = True
            continue
        at = 0
        for gap in _SPACE.finditer(fragment.text):
            if gap.start() > at:
                field.append(fragment.cut(at, gap.start()))
                exists = True
            if exists:
                yield tuple(field)
            field, exists, at = [], False, gap.end()
        if at < len(fragment.text):
            field.append(fragment.cut(at, len(fragment.text)))
            exists = True
    if exists:
        yield tuple(field)
