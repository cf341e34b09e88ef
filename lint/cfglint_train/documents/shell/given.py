"""Values of shell variables, collected from the assignments before a place, last assignment first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cfglint_train.documents.shell.outline import Assignment
from cfglint_train.documents.shell.words import Fragment, Step
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

    __slots__ = ("_array", "_branches", "_pieces", "_replaced", "is_complete")

    def __init__(self, array: bool) -> None:
        """Start without assignments; `array` says whether the variable is an array."""
        self.is_complete = False
        """True if earlier assignments have no effect."""
        self._array = array
        self._pieces: list[Elements] = []
        # The condition under which a later assignment overwrites the earlier value, and the branches that do so.
        self._replaced = ""
        self._branches: set[Step] = set()

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
            self._replaced = self._replaced or condition.why
            if condition.step is not None:
                self._branches.add(condition.step)
            self.is_complete = is_exhaustive(frozenset(self._branches))
        return self._add(added, condition.why)

    def add_initial(self, value: Elements) -> bool:
        """Add the value before the first assignment; return False if the value can no longer be determined."""
        self.is_complete = True
        return self._add(value, self._replaced)

    def build_elements(self) -> Elements:
        """Return the elements of an array, or a single element for any other variable."""
        pieces = reversed(self._pieces)
        if self._array:
            return tuple(element for piece in pieces for element in piece)
        return (tuple(part for piece in pieces for element in piece[:1] for part in element),)

    def _add(self, value: Elements, condition: str) -> bool:
        if condition:
            # Only options and `name=value` settings stay separate words wherever they are inserted.
            if any(not _is_option_like(element) for element in value[:1]):
                return False
            value = tuple(tuple(part._replace(condition=condition) for part in element) for element in value)
        self._pieces.append(value)
        return True


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


_SETTING: Final = re.compile(rb"[A-Za-z_][\w.]*=")


def _is_option_like(element: Iterable[Fragment]) -> bool:
    """Return whether an element is empty, or starts with an option or a setting (`a.b=1`)."""
    text = b"".join(part.text for part in element).strip()
    return not text or text.startswith(b"-") or _SETTING.match(text) is not None


def _add_leading_blank(value: Elements) -> Elements:
    """Add a leading space, so that the first word stays separate from any text before it."""
    fragments = value[0]
    return ((fragments[0]._replace(text=b" ", exact=False), *fragments),) if fragments else value
