"""Words of a shell command, and where each byte of them is in the file.

A **fragment** is a piece of expanded text with its **sites**: the places it went through, from the use in the command
(`$ARGS`) inwards to where its bytes stand (inside `ARGS="..."`). Word splitting cuts fragments; a word then takes the
outermost place that it has for itself, so that the options in `$ARGS` are where they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from cfglint_train.documents.document import Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

# A condition around a place in a script: its kind and the id of the syntax node.
Step = tuple[str, int]
# All of them, from outside in.
Chain = tuple[Step, ...]

# Words that expansion leaves as they are.
PLAIN: Final = re.compile(rb"[A-Za-z0-9_./:=,@%+-]+")
NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_SPREADING: Final = re.compile(r"\"?\$(?:[@*]|\{[@*][^}]*\}|\{\w+\[[@*]\][^}]*\})\"?")
_SPACE: Final = re.compile(rb"[ \t\n]+")


class Fragment(Frozen):
    """A piece of expanded text."""

    text: bytes
    sites: tuple[Span, ...]
    """From the use in the command to the bytes themselves; never empty."""
    exact: bool = True
    """The text stands byte for byte at the last site."""
    split: bool = False
    """Bash splits it at white space (an expansion without quotes)."""
    names: tuple[str, ...] = ()
    """The variables (or `$((`) that it came through."""
    why: str = ""
    """What it depends on where it cannot be determined; `text` is then the expansion as written."""
    condition: str = ""
    """The condition under which the text is there; empty where it always is."""
    assumptions: tuple[str, ...] = ()
    """What the text rests on, where it holds unless the environment says otherwise (`${MBS:-16}`)."""

    @property
    def is_known(self) -> bool:
        """Whether the program receives exactly this text, as far as the script decides."""
        return not (self.why or self.condition)

    @property
    def is_certain(self) -> bool:
        """Whether the program receives exactly this text, whatever the environment is."""
        return self.is_known and not self.assumptions

    def cut(self, start: int, end: int) -> Fragment:
        """Part of the text; the last site shrinks with it where the bytes correspond."""
        if start == 0 and end == len(self.text):
            return self
        sites = self.sites
        if self.exact:
            first = sites[-1].start
            sites = (*sites[:-1], Span(first + start, first + end))
        return self._replace(text=self.text[start:end], sites=sites)


class Word(Frozen):
    """One word as the program receives it."""

    text: str
    """Where it cannot be determined: with the expansions as written."""
    span: Span
    """The outermost place that is this word's alone."""
    target: Span | None
    """The bytes that a new text replaces; None where no single place of the file decides the word."""
    names: tuple[str, ...] = ()
    """The variables that it came through."""
    why: str = ""
    """What it depends on; empty for a word that is known."""
    loose: bool = False
    """Unknown and without quotes: it may be no word, or several."""
    spreads: bool = False
    """Unknown, and any number of words whatever the quotes (`"$@"`)."""
    is_optional: bool = False
    """The program receives this text under a condition, which `why` names, and no such word otherwise."""
    assumption: str = ""
    """What the text rests on, where it holds unless the environment says otherwise."""
    fragments: tuple[Fragment, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the text is what the program receives, as far as the script decides."""
        return not self.why

    @property
    def known_suffix(self) -> str:
        """The known end of a path in a folder that cannot be determined, from its slash on; empty for other words."""
        parts: list[str] = []
        for fragment in reversed(self.fragments if self.why else ()):
            if not fragment.is_known:
                break
            parts.append(fragment.text.decode("utf-8", "replace"))
        end = "".join(reversed(parts))
        return end if end.startswith("/") else ""


class Setting(Frozen):
    """`NAME=value` in the environment of a program."""

    name: str
    text: str | None
    """None where the value cannot be determined."""
    assumption: str = ""
    """What the text rests on, where it holds unless the environment says otherwise."""


def build_setting(name: str, value: Iterable[Fragment] | None) -> Setting:
    """A variable with its value; None for a value that cannot be determined."""
    fragments = tuple(value or ())
    if value is None or not all(fragment.is_known for fragment in fragments):
        return Setting(name, None)
    text = b"".join(fragment.text for fragment in fragments).decode("utf-8", "replace")
    return Setting(name, text, "; ".join(dict.fromkeys(note for part in fragments for note in part.assumptions)))


class PlacedWord:
    """A word that looks for a place of its own."""

    __slots__ = ("field", "levels", "span")

    def __init__(self, field: tuple[Fragment, ...], whole: Span | None) -> None:
        self.field = field
        self.levels: list[Span] = [whole] if whole is not None else []
        deepest = max((len(fragment.sites) for fragment in field), default=0)
        for level in range(1 if whole is not None else 0, deepest):
            spans = [fragment.sites[min(level, len(fragment.sites) - 1)] for fragment in field]
            low, high = min(span.start for span in spans), max(span.end for span in spans)
            # Pieces that do not stand together (a variable's text beside the word's own) have no common place.
            if high - low > sum(span.end - span.start for span in spans) + 2 * len(spans):
                low, high = self.levels[-1] if self.levels else spans[0]
            self.levels.append(Span(low, high))
        if not self.levels:
            self.levels.append(Span(0, 0))
        self.span = self.levels[0]


def separate(places: list[PlacedWord], level: int) -> None:
    """Words that share a place look for one further inside."""
    groups: dict[Span, list[PlacedWord]] = {}
    for placed in places:
        placed.span = placed.levels[min(level, len(placed.levels) - 1)]
        groups.setdefault(placed.span, []).append(placed)
    for group in groups.values():
        if len(group) > 1 and any(len(placed.levels) > level + 1 for placed in group):
            separate(group, level + 1)


def build_word(field: tuple[Fragment, ...], span: Span) -> Word:
    """The word that fragments make, standing at `span`."""
    if len(field) == 1:
        (only,) = field
        if only.exact and not (only.names or only.why or only.condition or only.assumptions):
            return Word(only.text.decode("utf-8", "replace"), span, only.sites[-1], fragments=field)
    why = next((fragment.why or fragment.condition for fragment in field if fragment.why or fragment.condition), "")
    text = b"".join(fragment.text for fragment in field).decode("utf-8", "replace")
    names = tuple(dict.fromkeys(name for fragment in field for name in fragment.names))
    assumed = "; ".join(dict.fromkeys(note for fragment in field for note in fragment.assumptions))
    if why and all(fragment.condition and not fragment.why for fragment in field):
        return Word(text, span, None, names, why, is_optional=True, assumption=assumed, fragments=field)
    spreads = _SPREADING.fullmatch(why) is not None
    loose = spreads or (bool(why) and all((fragment.split and fragment.why) or not fragment.text for fragment in field))
    target = None if why else _find_target(field, span)
    return Word(text, span, target, names, why, loose, spreads, assumption=assumed, fragments=field)


def _find_target(field: tuple[Fragment, ...], span: Span) -> Span | None:
    """The bytes of a word: what is between its quotes, else the whole literal word."""
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
    """A fragment of a variable's value where the variable is used."""
    return fragment._replace(sites=(*sites, *fragment.sites), names=(name, *fragment.names), split=split)


def split_words(fragments: Iterable[Fragment], default_ifs: bool) -> Iterator[tuple[Fragment, ...]]:
    """Word splitting. Without an ordinary IFS, a text that would be split is unknown."""
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
