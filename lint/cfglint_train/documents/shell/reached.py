"""Reachability of commands: detection of commands that never run, after `exit` or under a constant condition.

A condition on a variable counts as undecided, because the variable may be edited before the script is started.
"""

from __future__ import annotations

from cfglint_train.documents.shell.branches import BranchingScript, Choice, is_plain, is_taken
from cfglint_train.documents.shell.words import Chain, Step
from cfglint_train.foundation.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode


class ReachableScript(BranchingScript, Protocol):
    """Interface of a script that reachability uses."""

    ends: dict[Chain, int]
    operands: dict[Step, SyntaxNode]


class Reachability:
    """Reachability of the commands of one script."""

    def __init__(self, script: ReachableScript) -> None:
        """Store the script; decisions are cached by step."""
        self._script = script
        self._open: dict[Step, bool] = {}

    def can_run(self, at: int, chain: Chain) -> bool:
        """Return whether a command at a place, under the conditions of `chain`, can run."""
        ends = self._script.ends
        if ends and any(ends.get(chain[:length], at) < at for length in range(len(chain) + 1)):
            return False
        return all(self._can_take(step) for step in chain)

    def _can_take(self, step: Step) -> bool:
        if step not in self._open:
            script, choice, operand = self._script, self._script.choices.get(step), self._script.operands.get(step)
            if choice is not None:
                self._open[step] = not is_plain(script, choice) or is_taken(script, choice, step, 0) is not False
            elif operand is not None:
                choice_of_operand = Choice(operand.start_byte, (), None, ((step, (operand,)),))
                succeeds = is_taken(script, choice_of_operand, step, 0) if is_plain(script, choice_of_operand) else None
                self._open[step] = succeeds is not (step[0] == "or")
            else:
                self._open[step] = True
        return self._open[step]
