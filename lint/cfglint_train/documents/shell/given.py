"""The value of a variable, put together from the assignments before a place, the last one first."""

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
    """The branch in which it is made in any case; None where a further condition is in that."""
    why: str


class VariableValue:
    """What the assignments of one variable give it, as far as they have been found."""

    __slots__ = ("_array", "_branches", "_pieces", "_replaced", "is_complete")

    def __init__(self, array: bool) -> None:
        self.is_complete = False
        """What is further up does not count."""
        self._array = array
        self._pieces: list[Elements] = []
        # The condition under which something replaces all that stands further up, and the branches that do.
        self._replaced = ""
        self._branches: set[Step] = set()

    def add_certain(self, assignment: Assignment, value: Elements) -> bool:
        """Take in an assignment that is made in any case; False where the variable can then not be determined."""
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
        """Take in an assignment that is made under a condition; False where the variable can then not be determined.

        `settled`: whether one of some branches is taken in any case.
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
        """Take in what the variable was before all assignments; False where it can then not be determined."""
        self.is_complete = True
        return self._add(value, self._replaced)

    def build_elements(self) -> Elements:
        """The elements of an array; of any other variable one."""
        pieces = reversed(self._pieces)
        if self._array:
            return tuple(element for piece in pieces for element in piece)
        return (tuple(part for piece in pieces for element in piece[:1] for part in element),)

    def _add(self, value: Elements, condition: str) -> bool:
        if condition:
            # Only options and settings are words of their own wherever they are put.
            if any(not _is_option_like(element) for element in value[:1]):
                return False
            value = tuple(tuple(part._replace(condition=condition) for part in element) for element in value)
        self._pieces.append(value)
        return True


def _strip_self_reference(value: Elements, name: str, array: bool) -> Elements | None:
    """What `X="$X ..."` and `X=("${X[@]}" ...)` add to X; None for a value that does not begin with it."""
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
    """Whether a text is empty, or its first word is an option or a setting (`a.b=1`)."""
    text = b"".join(part.text for part in element).strip()
    return not text or text.startswith(b"-") or _SETTING.match(text) is not None


def _add_leading_blank(value: Elements) -> Elements:
    """A text with a blank in front, so that its first word is one of its own behind any other text."""
    fragments = value[0]
    return ((fragments[0]._replace(text=b" ", exact=False), *fragments),) if fragments else value
