"""Which commands of a script are never run, whatever it is given: behind `exit`, and under a condition of plain words.

A condition on a variable counts as open: its value may be changed before the script is started.
"""

from __future__ import annotations

from cfglint_train.documents.shell.branches import Choice, Words, is_plain, takes
from cfglint_train.documents.shell.words import Chain, Step
from cfglint_train.foundation.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode


class Sequence(Words, Protocol):
    """What deciding asks of the script."""

    ends: dict[Chain, int]
    operands: dict[Step, SyntaxNode]


class Reached:
    """The commands of one script that may be run."""

    def __init__(self, script: Sequence) -> None:
        self._script = script
        self._open: dict[Step, bool] = {}

    def may_run(self, at: int, chain: Chain) -> bool:
        """Whether what stands at a place, under some conditions, may be run."""
        ends = self._script.ends
        if ends and any(ends.get(chain[:length], at) < at for length in range(len(chain) + 1)):
            return False
        return all(self._is_open(step) for step in chain)

    def _is_open(self, step: Step) -> bool:
        if step not in self._open:
            script, choice, operand = self._script, self._script.choices.get(step), self._script.operands.get(step)
            if choice is not None:
                self._open[step] = not is_plain(script, choice) or takes(script, choice, step, 0) is not False
            elif operand is not None:
                before = Choice(operand.start_byte, (), None, ((step, (operand,)),))
                succeeds = takes(script, before, step, 0) if is_plain(script, before) else None
                self._open[step] = succeeds is not (step[0] == "or")
            else:
                self._open[step] = True
        return self._open[step]
