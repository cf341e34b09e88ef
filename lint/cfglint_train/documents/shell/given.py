"""Values of shell variables, collected from the assignments before a place, last assignment first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfglint_train.documents.shell.outline import Assignment
from cfglint_train.documents.shell.words import Fragment, Step
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

Elements = tuple[tuple[Fragment, ...], ...]


class AssignmentCondition(Frozen):
    """The condition under which an assignment is made."""

    step: Step | None
    """Branch that always makes the assignment, or None if it depends on a further condition inside the branch."""
    why: str


class VariableValue:
    """The value of one variable, as far as its assignments have been collected."""

    __slots__ = ("_alternatives", "_array", "_branches", "_pieces", "_replaced", "assumptions", "is_complete")

    def __init__(self, array: bool) -> None:
        """Start without assignments; `array` says whether the variable is an array."""
        self.is_complete = False
        """True if earlier assignments have no effect."""
        self.assumptions: list[str] = []
        """Notes on the defaults by which assignments are left out."""
        self._array = array
        self._pieces: list[Elements] = []
        # The condition under which a later assignment overwrites the earlier value, and the branches that do so.
        self._replaced = ""
        self._branches: set[Step] = set()
        # Number of the piece that each branch sets, and its text.
        self._alternatives: dict[int, Elements] = {}

    def add_certain(self, assignment: Assignment, value: Elements) -> bool:
        """Add an unconditional assignment; return False if the value can no longer be determined."""
        self.is_complete = not assignment.appends
        return self._add(value, self._replaced)

    def add_conditional(
        self,
        assignment: Assignment,
        value: Elements,
        name: str,
        condition: AssignmentCondition,
        is_exhaustive: Callable[[frozenset[Step]], bool],
    ) -> bool:
        """Add a conditional assignment; return False if the value can no longer be determined.

        `is_exhaustive` returns whether one branch of a set is always taken.
        """
        added = value if assignment.appends else _strip_self_reference(value, name, self._array)
        if added is None:
            added = value if self._array else _add_leading_blank(value)
            self._replaced = self._replaced or condition.why.replace("a condition", "an unmet condition", 1)
            if condition.step is not None:
                self._branches.add(condition.step)
            self.is_complete = is_exhaustive(frozenset(self._branches))
            self._alternatives[len(self._pieces)] = value
        if not self._add(added, condition.why):
            return False
        if self.is_complete and len(self._alternatives) == len(self._branches):
            self._merge_alternatives()
        return True

    def _merge_alternatives(self) -> None:
        """Make the options certain that every branch sets to the same value."""
        branches = {number: _list_options(value) for number, value in self._alternatives.items()}
        first, *others = (options or {} for options in branches.values())
        common = {
            name: words
            for name, words in first.items()
            if all(name in other and _get_texts(other[name]) == _get_texts(words) for other in others)
        }
        for number, options in branches.items() if common else ():
            condition = next((part.condition for element in self._pieces[number] for part in element), "")
            rest = [word for name, words in (options or {}).items() if name not in common for word in words]
            self._pieces[number] = self._join([word._replace(condition=condition) for word in rest])
        if common:
            self._pieces.append(self._join([word for words in common.values() for word in words]))

    def _join(self, words: list[Fragment]) -> Elements:
        """Return words as the elements of an array, or as one text with a blank before each word."""
        if self._array:
            return tuple((word,) for word in words)
        return (tuple(part for word in words for part in (word._replace(text=b" ", exact=False), word)),)

    def add_initial(self, value: Elements) -> bool:
        """Add the value before the first assignment; return False if the value can no longer be determined."""
        self.is_complete = True
        return self._add(value, self._replaced)

    def build_elements(self) -> Elements:
        """Return the elements of an array, or a single element for any other variable."""
        pieces: Iterable[Elements] = reversed(self._pieces)
        if self.assumptions:
            pieces = [add_assumptions(piece, self.assumptions) for piece in pieces]
        if self._array:
            return tuple(element for piece in pieces for element in piece)
        return (tuple(part for piece in pieces for element in piece[:1] for part in element),)

    def add_left_out(self, assignment: Assignment, value: Elements, name: str, why: str, notes: list[str]) -> bool:
        """Add words that defaults leave out; return False if the value can no longer be determined."""
        left_out, added = tuple(notes), value if assignment.appends else _strip_self_reference(value, name, self._array)
        if added is None:
            added = value if self._array else _add_leading_blank(value)
        marked = tuple(tuple(part._replace(left_out=left_out) for part in element) for element in added)
        return self._add(marked, why)

    def _add(self, value: Elements, condition: str) -> bool:
        if condition:
            if not can_keep_apart(value):
                return False
            value = tuple(tuple(part._replace(condition=condition) for part in element) for element in value)
        self._pieces.append(value)
        return True


def can_keep_apart(value: Elements) -> bool:
    """Return whether a conditional value stays separate words wherever it is inserted: options and settings."""
    return all(_is_option_like(element) for element in value[:1])


def has_options(value: Elements) -> bool:
    """Return whether any element starts with an option, which other branches may set to the same value."""
    return any(element and element[0].text.lstrip().startswith(b"-") for element in value)


def add_assumptions(value: Elements, notes: list[str]) -> Elements:
    """Return a value that also relies on the defaults in `notes`."""
    return tuple(
        tuple(part._replace(assumptions=tuple(dict.fromkeys((*notes, *part.assumptions)))) for part in element)
        for element in value
    )


def _strip_self_reference(value: Elements, name: str, array: bool) -> Elements | None:
    """Return the text that `X="$X ..."` or `X=("${X[@]}" ...)` adds to X.

    Return None if the value does not begin with X.
    """
    parts: Iterable[tuple[str, ...]]
    parts = [element[0].names if element else () for element in value] if array else [part.names for part in value[0]]
    count = 0
    for names in parts:
        if names[:1] != (name,):
            break
        count += 1
    if not count:
        return None
    return value[count:] if array else (value[0][count:],)


def _list_options(value: Elements) -> dict[bytes, list[Fragment]] | None:
    """Return the words of each option in a literal value, by name; None if it holds anything else or an option twice.

    The words have no place of their own, because another branch sets the same option.
    """
    options: dict[bytes, list[Fragment]] = {}
    name = b""
    for element in value:
        if len(element) != 1 or not element[0].is_certain or element[0].names:
            return None
        for match in _WORD.finditer(element[0].text):
            word = element[0].cut(match.start(), match.end())._replace(exact=False)
            if word.text.startswith(b"-") and not word.text[1:2].isdigit():
                name = word.text
                if name in options:
                    return None
                options[name] = []
            elif not name:
                return None
            options[name].append(word)
    return options


def _get_texts(words: list[Fragment]) -> list[bytes]:
    return [word.text for word in words]


_WORD: Final = compile_on_use(rb"[^ \t\n]+")
_SETTING: Final = compile_on_use(rb"[A-Za-z_][\w.]*=")


def _is_option_like(element: Iterable[Fragment]) -> bool:
    """Return whether an element is empty, or starts with an option or a setting (`a.b=1`)."""
    text = b"".join(part.text for part in element).strip()
    return not text or text.startswith(b"-") or _SETTING.match(text) is not None


def _add_leading_blank(value: Elements) -> Elements:
    """Add a leading space, so that the first word stays separate from any text before it."""
    fragments = value[0]
    return ((fragments[0]._replace(text=b" ", exact=False), *fragments),) if fragments else value
