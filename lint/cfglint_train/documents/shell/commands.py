"""Commands, variables and nested scripts of a bash script, as far as they can be determined without running it.

A **script** is a text that bash parses: a file, or the string passed to `bash -c`, which may itself be composed from
variables. `outline.py` finds its commands and assignments; `words.py` builds the words that they expand to.

A variable has a known value only if one assignment before the use determines it on every path. Anything else (the
environment, `$1`, `$(...)`) is unknown. There are three intermediate cases: options that a variable receives under a
condition are **conditional**, a default (`${MBS:-16}`) is **assumed**, and a branch is followed if known words decide
its condition. If defaults decide it, what the branch sets is assumed. A leading `~` is kept as written, and IFS is
assumed to be white space unless the script sets it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.documents.document import DocumentError, Position, Span
from cfglint_train.documents.limits import MAX_WORDS, LimitExceeded
from cfglint_train.documents.shell import slurm
from cfglint_train.documents.shell.branches import is_exhaustive, is_taken, narrow_value
from cfglint_train.documents.shell.expansion import MAX_DEPTH, Expansion
from cfglint_train.documents.shell.functions import find_uncalled
from cfglint_train.documents.shell.given import (
    AssignmentCondition,
    VariableValue,
    add_assumptions,
    can_keep_apart,
    has_options,
)
from cfglint_train.documents.shell.grammar import find_lost_blanks, normalize_source
from cfglint_train.documents.shell.outline import Assignment, Outline, filter_steps, find_heredoc
from cfglint_train.documents.shell.reached import Reachability
from cfglint_train.documents.shell.sourced import MAX_SOURCED, Sourcing, list_candidate_paths, resolve_path_word
from cfglint_train.documents.shell.words import (
    NAME,
    PLAIN,
    Chain,
    Fragment,
    PlacedWord,
    Setting,
    Step,
    Word,
    add_use_site,
    build_setting,
    build_word,
    separate,
    split_words,
)
from cfglint_train.foundation.credentials import shorten
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

# Maximum number of consecutive `X+=...`; a variable composed of more pieces is unknown.
MAX_APPENDED: Final = 1000
# Maximum nesting of `bash -c` inside `bash -c`.
MAX_NESTED: Final = 4
# Maximum bytes that all expansions of a file may produce; this stops variables whose expansion grows exponentially.
MAX_EXPANDED: Final = 4 * 2**20

# Variables that hold credentials: if a script leaves them empty, the user fills them in before running it.
_CREDENTIAL: Final = compile_on_use(r"(?i)(?:access|api|auth|hf|hub|login|secret|wandb)_?(?:key|token)|passw|secret$")

# Placeholder for unknown text in a nested script; the grammar treats it as a word character.
_BLANK: Final = b"\x01"

# Steps of a chain that run at most once.
_CONDITIONS: Final = ("then", "clause", "case_item", "and", "or")

# Variables that a batch system or a launcher sets in a job: a script's default for them applies only outside a job.
_CLUSTER_VARIABLES: Final = compile_on_use(
    r"(?:SLURM|SBATCH|PBS|LSB|SGE|OMPI|PMIX?|MPI|MLP|VC|PET|TORCHELASTIC|KUBERNETES|AWS|HOSTNAME|HOME|PATH|PWD|USER)"
    r"(?:_|$)|(?:LOCAL_|NODE_)?RANK$|(?:LOCAL_)?WORLD_SIZE$|MASTER_(?:ADDR|PORT)$"
)

_BLANK_AFTER_BACKSLASH: Final = compile_on_use(rb"[^\\]?\\[ \t]")
_ARRAY_WORD: Final = compile_on_use(rb'"?\$\{(\w+)\[[@*]\](?::?[-+]"?\$\{\1\[[@*]\]\}"?)?\}"?')
_ARGUMENTS: Final = compile_on_use(rb'"?\$(?:[@*]|\{[@*](?::([0-9]+))?\})"?')


Environment = Mapping[str, str]
"""Variables that a script inherits, with their values."""


class Command(Frozen):
    """A simple command of a script."""

    script: Script
    at: int
    """Offset of the command in its script."""
    chain: Chain
    words: tuple[Word, ...]
    prefix: tuple[Setting, ...]
    """Assignments `NAME=value` in front of the command."""
    forwards: int | None
    """Number of words in front of the script's `"$@"`, or None if the command does not contain it."""
    input: tuple[Fragment, ...] | None
    """Text of the heredoc or here-string that the command reads, or None."""

    def list_frames(self) -> list[Command]:
        """Return the calls of the functions that run the command, outermost first, and the command itself."""
        frames = [self]
        while (call := frames[-1].script.call) is not None:
            frames.append(call)
        return frames[::-1]

    def is_left_out(self) -> bool:
        """Return whether defaults decide that a branch around the command is not taken."""
        return any(
            choice is not None and is_taken(frame.script, choice, step, 0, []) is False
            for frame in self.list_frames()
            for step in frame.chain
            for choice in (frame.script.choices.get(step),)
        )

    @property
    def is_nested(self) -> bool:
        """True if another shell runs the command (`bash -c`)."""
        return self.list_frames()[0].script.parent is not None

    @property
    def conditions(self) -> Chain:
        """Conditions around the command and around the calls of the functions that run it."""
        return tuple(step for command in self.list_frames() for step in command.chain)


class ExpansionBudget:
    """Remaining expansion cost of one file, shared by all its nested scripts."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        """Start with the full budget."""
        self.bytes = MAX_EXPANDED


class Script(Outline):
    """A text that bash parses, with the expansions of its variables and words."""

    def __init__(
        self,
        text: bytes,
        budget: ExpansionBudget,
        pieces: tuple[Fragment, ...] | None = None,
        parent: tuple[Script, int, Chain] | None = None,
        depth: int = 0,
        sourcing: Sourcing | None = None,
        sourced: bool = False,
        environment: Environment | None = None,
        call: Command | None = None,
    ) -> None:
        """Parse a text, add the variables of Slurm and of `environment`, and read the scripts that it sources.

        `pieces` are the fragments of a nested script; `parent` is the enclosing script with the offset and the chain of
        the command that runs it. `call` is that command if the text is the body of a function.
        """
        super().__init__(text, is_body=call is not None)
        self.budget = budget
        self.depth = depth
        self.parent = parent
        self.sourced = sourced
        """True if the parent runs the text in its own process, so that both share all variables."""
        self.call = call
        self.loses_arguments = False
        """True if the arguments of the call were needed at a place where they are unknown."""
        # Fragments of a nested script and their starts; None and empty for the file itself.
        self.pieces = pieces
        self.starts: list[int] = []
        self.uncalled_functions = find_uncalled(self)
        """Functions that are never called, as steps of a chain."""
        self._decisions: dict[Step, bool | None] = {}
        at = 0
        for piece in pieces or ():
            self.starts.append(at)
            at += len(_get_piece_text(piece))
        if parent is None:
            for name, value in slurm.read_variables(text):
                assignment_by_slurm = Assignment("string", 0, 0, ())
                assignment_by_slurm.value = ((value,),)
                self.assignments[name] = [
                    assignment_by_slurm,
                    *(assignment for assignment in self.assignments.get(name, ()) if assignment.end),
                ]
        if environment:
            from cfglint_train.documents.shell.environment import INHERITED, build_assignments

            for name, assignment in build_assignments(environment):
                self.assignments[name] = [assignment, *(item for item in self.assignments.get(name, ()) if item.end)]
                self.exports[name] = INHERITED
        if sourcing is not None and sourcing.depth < MAX_SOURCED:
            self._read_sources(sourcing)

    def _read_sources(self, sourcing: Sourcing) -> None:
        """Add the variables that sourced scripts set, each at the `source` command."""
        for node, chain, word in self.list_sources():
            path = resolve_path_word(self.expand(word.start_byte, word.end_byte, "plain", node.start_byte, chain, 0))
            read = (
                (file, sourcing.load(file))
                for file in (list_candidate_paths(path, sourcing) if path is not None else ())
            )
            file, text = next(((file, text) for file, text in read if text is not None), ("", b""))
            self.budget.bytes -= len(text)
            if not text or self.budget.bytes < 0:
                continue
            nested_sourcing = Sourcing(file, sourcing.load, sourcing.depth + 1)
            try:
                script = Script(
                    normalize_source(text), self.budget, None, (self, node.start_byte, chain), 0, nested_sourcing, True
                )
            except DocumentError:
                continue
            for name, assignments in script.assignments.items():
                kind = "array" if assignments[-1].kind == "array" else "string"
                assignment = Assignment(kind, node.start_byte, node.end_byte, chain)
                assignment.sourced_from = (script, name)
                self._add_assignment(name.encode(), assignment)
                self.assignments[name].sort(key=lambda item: item.start)
            for name in script.exports:
                self.exports.setdefault(name, node.start_byte)

    def read_literal(self, start: int, end: int) -> list[Fragment]:
        """Return the bytes `start` to `end` of the text, with their places in the file."""
        if self.pieces is None:
            return [Fragment(self.text[start:end], (Span(start, end),))]
        result: list[Fragment] = []
        index = max(0, bisect_right(self.starts, start) - 1)
        while index < len(self.pieces) and self.starts[index] < end:
            piece, first = self.pieces[index], self.starts[index]
            if piece.why:
                result.append(piece._replace(split=False))
            else:
                low, high = max(0, start - first), min(len(piece.text), end - first)
                if low < high or start == end:
                    result.append(piece.cut(low, high)._replace(split=False))
            index += 1
        return result or [Fragment(b"", (Span(0, 0),), exact=False)]

    def find_sites(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the places in the file from which the bytes `start` to `end` of the text come."""
        parts = self.read_literal(start, end)
        first, last = parts[0].sites, parts[-1].sites
        if len(parts) == 1 or len(first) != len(last) or first[-1].start > last[-1].end:
            return first
        return (*first[:-1], Span(first[-1].start, last[-1].end))

    def find_file_offset(self, offset: int) -> int:
        """Return the offset in the file of a byte of the text."""
        return self.read_literal(offset, offset + 1)[0].sites[-1].start

    def resolve_variable(self, name: str, at: int, chain: Chain, depth: int = 0) -> tuple[Fragment, ...] | None:
        """Return the value of a variable at a place, or None if it cannot be determined.

        Fragments of the value may be conditional or assumed. An empty credential counts as undetermined.
        """
        value = self._resolve(name, at, chain, depth, array=False)
        fragments = None if value is None else value[0] if value else ()
        if (
            self.choices
            and depth <= MAX_DEPTH
            and (fragments is None or not all(fragment.is_certain for fragment in fragments))
        ):
            fragments = narrow_value(self, name, fragments, at, chain, depth + 1)
        if fragments is None:
            return None
        is_blank = _CREDENTIAL.search(name) is not None and not any(fragment.text for fragment in fragments)
        return None if is_blank else fragments

    def resolve_array(
        self, name: str, at: int, chain: Chain, depth: int = 0
    ) -> tuple[tuple[Fragment, ...], ...] | None:
        """Return the elements of an array at a place, or None if they cannot be determined."""
        return self._resolve(name, at, chain, depth, array=True)

    def list_arguments(self, at: int, chain: Chain) -> tuple[Word, ...] | None:
        """Return the arguments of the function whose body this is, at a place; None if they are unknown."""
        words = None if self.call is None or self.sets_arguments else self.call.words[1:]
        for shift in self.shifts:
            is_made: AssignmentCondition | bool | None = False
            if filter_steps(shift.chain, "loop") & filter_steps(chain, "loop"):
                is_made = None
            elif shift.end <= at:
                is_made = self._find_condition(shift, chain, 0)
            if is_made is not False and words is not None:
                words = self._shift(words, shift) if is_made is True else None
        self.loses_arguments = self.loses_arguments or words is None
        return words

    def _shift(self, words: tuple[Word, ...], shift: Assignment) -> tuple[Word, ...] | None:
        """Return the arguments after a `shift`, which does nothing if there are too few; None if they are unknown."""
        text = b"1" if shift.node is None else self._get_text(shift.node)
        count = int(text) if text.isdigit() else len(words) + 1
        is_uncertain = any(word.loose or word.is_optional for word in words[:count])
        if not text.isdigit() or is_uncertain or self._find_outer_number(words, count):
            return None
        return words[count:] if count <= len(words) else words

    def _find_outer_number(self, words: tuple[Word, ...], number: int) -> int:
        """Return the number that an argument of the function has in the script around the call, or 0.

        `words`: the arguments of the function that are left. Those behind a `"$@"` of the call are the script's own.
        """
        if self.call is None or self.call.forwards is None:
            return 0
        return max(0, len(self.call.words) - len(words) + number - self.call.forwards)

    def resolve_argument(self, number: int, at: int, chain: Chain) -> tuple[Fragment, ...] | None:
        """Return the value of `$1`, `$2` and so on at a place, or None if it cannot be determined."""
        if self.call is None or filter_steps(chain, "function") or not number:
            return None
        words = self.list_arguments(at, chain)
        is_uncertain = words is None or any(word.loose or word.is_optional for word in words[:number])
        if words is None or is_uncertain or self._find_outer_number(words, number):
            return None
        if number <= len(words):
            return words[number - 1].fragments
        end = self.call.words[-1].span.end
        return (Fragment(b"", (Span(end, end),), exact=False),)

    def find_assignment(self, name: str, at: int) -> Span | None:
        """Return the position of the last assignment before an offset, or None if it is not in the document."""
        assignments = self.assignments.get(name, [])
        index = bisect_right(assignments, at, key=lambda assignment: assignment.start)
        last = assignments[index - 1] if index and self.pieces is None else None
        return None if last is None or not last.end or last.sourced_from else Span(last.start, last.end)

    def _resolve(
        self, name: str, at: int, chain: Chain, depth: int, array: bool
    ) -> tuple[tuple[Fragment, ...], ...] | None:
        if depth > MAX_DEPTH:
            return None
        assignments = self.assignments.get(name)
        if assignments is None:
            if self.parent is None:
                return None
            script, place, parent_chain = self.parent
            # A child process sees exported variables, and arrays are never exported.
            if not self.sourced and (
                array or (name in script.assignments and script.exports.get(name, place) >= place)
            ):
                return None
            return script._resolve(name, place, parent_chain, depth + 1, array)
        functions = filter_steps(chain, "function")
        loops = filter_steps(chain, "loop")
        owners = [owner for owner in self.owners.get(name, ()) if owner.isdisjoint(self.uncalled_functions)]
        index = bisect_right(assignments, at, key=lambda assignment: assignment.start)
        # Every visited assignment has a cost, so that many uses of many assignments exhaust the budget.
        self.budget.bytes -= 16 * (1 + len(owners) + (len(assignments) - index if loops or functions else 0))
        if self.budget.bytes < 0 or any(not owner <= functions for owner in owners):
            return None  # some function may have set it already
        if loops or functions:
            for assignment in islice(assignments, index, None):
                if _can_interfere(assignment, loops, functions):
                    return None
        collected = VariableValue(array)
        for assignment in reversed(assignments[max(0, index - MAX_APPENDED) : index]):
            self.budget.bytes -= 16
            if assignment.is_local and not filter_steps(assignment.chain, "function") <= functions:
                continue
            if assignment.end > at:  # the assignment in `X=$X...` does not see itself
                if _can_interfere(assignment, loops, functions):
                    return None
                continue
            condition = self._find_condition(assignment, chain, depth)
            if condition is False:
                continue
            value = None
            if assignment.kind != "opaque" and (assignment.kind == "array") is array:
                value = self._get_value(assignment, depth)
            if condition is None or value is None:
                return None
            if isinstance(condition, AssignmentCondition):
                notes: list[str] = []
                is_separate = can_keep_apart(value)
                is_assumable = assignment.appends or not is_separate or not has_options(value)
                is_made = self._assume_condition(assignment, chain, depth, notes) if is_assumable else None
                if is_made:
                    condition, value = True, add_assumptions(value, notes)
                elif not is_separate:
                    if is_made is None:
                        return None
                    collected.assumptions += notes
                    continue
                elif is_made is False:
                    if not collected.add_left_out(assignment, value, name, condition.why, notes):
                        return None
                    continue
            is_determined = (
                collected.add_conditional(assignment, value, name, condition, self._is_exhaustive)
                if isinstance(condition, AssignmentCondition)
                else collected.add_certain(assignment, value)
            )
            if not is_determined:
                return None
            if collected.is_complete:
                return collected.build_elements()
        if self.sourced and self.parent is not None:
            script, place, parent_chain = self.parent
            initial_value = script._resolve(name, place, parent_chain, depth + 1, array)
            return (
                collected.build_elements()
                if initial_value is not None and collected.add_initial(initial_value)
                else None
            )
        return None

    def _find_condition(self, assignment: Assignment, chain: Chain, depth: int) -> AssignmentCondition | bool | None:
        """Return the condition under which an assignment has run before a place with the chain `chain`.

        Return True or False if that is certain, and None if it depends on a loop, another process or a function.
        """
        common = 0
        while common < min(len(assignment.chain), len(chain)) and assignment.chain[common] == chain[common]:
            common += 1
        undecided: list[Step] = []
        for step in assignment.chain[common:]:
            is_taken_step = False if step in self.uncalled_functions else self._is_taken(step, depth)
            if is_taken_step is False:
                return False
            if is_taken_step is None:
                undecided.append(step)
        if not undecided:
            return True
        if any(kind not in _CONDITIONS for kind, _ in undecided):
            return None
        line = self.text.count(b"\n", 0, assignment.start) + 1
        return AssignmentCondition(
            undecided[0] if len(undecided) == 1 else None,
            f"a condition around line {line}" if self.pieces is None else "a condition",
        )

    def _assume_condition(
        self, assignment: Assignment, chain: Chain, depth: int, assumptions: list[str]
    ) -> bool | None:
        """Return whether an assignment runs before a place if assumed defaults apply, or None if that is uncertain.

        Append the notes on these defaults to `assumptions`.
        """
        is_made: bool | None = True
        for step in assignment.chain:
            if step in chain or self._is_taken(step, depth):
                continue
            choice = self.choices.get(step)
            is_taken_step = None if choice is None else is_taken(self, choice, step, depth, assumptions)
            if is_taken_step is False:
                return False
            is_made = is_made and is_taken_step
        return is_made

    def _is_taken(self, step: Step, depth: int) -> bool | None:
        """Return whether the branch of a step is taken, or None if that cannot be determined."""
        if step not in self._decisions:
            choice = self.choices.get(step)
            self._decisions[step] = None
            if choice is not None and depth <= MAX_DEPTH:
                self._decisions[step] = is_taken(self, choice, step, depth)
        return self._decisions[step]

    def _is_exhaustive(self, steps: frozenset[Step]) -> bool:
        """Return whether the steps cover all branches of an exhaustive `if` or `case`."""
        choices = {id(choice): choice for step in steps if (choice := self.choices.get(step)) is not None}
        return any(is_exhaustive(choice, self.text) and choice.steps <= steps for choice in choices.values())

    def is_set_outside(self, name: str, at: int, chain: Chain) -> bool:
        """Return whether a variable can be set only by the caller of the script, not by the script before a place.

        Return False for variables that a batch system or a launcher sets.
        """
        if name.isdigit() and self.call is not None:
            words = self.list_arguments(at, chain)
            outer = 0 if words is None else self._find_outer_number(words, int(name))
            return outer > 0 and self.call.script.is_set_outside(str(outer), self.call.at, self.call.chain)
        if name.isdigit():
            return self.parent is None and not self.sets_arguments and not filter_steps(chain, "function")
        if NAME.fullmatch(name.encode()) is None or _CLUSTER_VARIABLES.match(name):
            return False
        may_repeat = bool(filter_steps(chain, "loop") or filter_steps(chain, "function"))
        assignments = self.assignments.get(name, ())
        if any(assignment.end <= at or (may_repeat and assignment.start > at) for assignment in assignments):
            return False
        if self.parent is None:
            return True
        script, place, parent_chain = self.parent
        return script.is_set_outside(name, place, parent_chain) and (self.sourced or name not in script.assignments)

    def _get_value(self, assignment: Assignment, depth: int) -> tuple[tuple[Fragment, ...], ...] | None:
        if assignment.value is None:
            if assignment.sourced_from is not None:
                return self._evaluate_sourced(assignment, depth)
            assignment.value = tuple(self._evaluate(assignment, depth))
            self.budget.bytes -= sum(len(fragment.text) + 64 for element in assignment.value for fragment in element)
        else:
            self.budget.bytes -= sum(len(element) for element in assignment.value) * 64
        return assignment.value if self.budget.bytes > 0 else None

    def _evaluate_sourced(self, assignment: Assignment, depth: int) -> tuple[tuple[Fragment, ...], ...] | None:
        """Return the value that a sourced script assigns, placed at the command that sources it."""
        script, name = assignment.sourced_from
        value = script._resolve(name, len(script.text), (), depth + 1, assignment.kind == "array")
        if value is None:
            return None
        site = (Span(self.find_file_offset(assignment.start), self.find_file_offset(assignment.start)),)
        assignment.value = tuple(tuple(part._replace(sites=site, exact=False) for part in element) for element in value)
        return assignment.value

    def _evaluate(self, assignment: Assignment, depth: int) -> Iterator[tuple[Fragment, ...]]:
        node = assignment.node
        if node is None:
            yield (
                Fragment(
                    b"",
                    (Span(self.find_file_offset(assignment.start), self.find_file_offset(assignment.start)),),
                    exact=False,
                ),
            )
        elif assignment.kind == "array":
            previous_end = node.start_byte + 1
            for child in node.children[1:]:
                for blank in find_lost_blanks(self.text, previous_end, child.start_byte):
                    yield from self.expand_fields(blank, assignment.chain, depth + 1)
                previous_end = child.end_byte
                if child.is_named and child.type != "comment":
                    yield from self.expand_fields(Span(child.start_byte, previous_end), assignment.chain, depth + 1)
        elif assignment.kind in ("heredoc", "capture"):
            yield tuple(self._read_heredoc(node, assignment.is_quoted, assignment.start, assignment.chain, depth + 1))
        else:
            yield tuple(
                self.expand(node.start_byte, node.end_byte, "plain", assignment.start, assignment.chain, depth + 1)
            )

    def _read_heredoc(self, node: SyntaxNode, quoted: bool, at: int, chain: Chain, depth: int) -> list[Fragment]:
        """Read the text of a heredoc as `read` or `$(...)` receives it, without trailing white space."""
        start, end = node.start_byte, node.end_byte
        end = start + len(self.text[start:end].rstrip(b" \t\r\n"))
        if quoted:
            return self.read_literal(start, end)
        return self.expand(start, end, "here", at, chain, depth)

    def list_commands(self) -> Iterator[Command]:
        """Yield the simple commands in source order, except those that never run."""
        reached = Reachability(self)
        for node, chain, redirects in sorted(self.simple_commands, key=lambda command: command[0].start_byte):
            if self.uncalled_functions.isdisjoint(chain) and reached.can_run(node.start_byte, chain):
                yield self._build_command(node, chain, redirects)

    def _build_command(self, node: SyntaxNode, chain: Chain, redirects: tuple[SyntaxNode, ...]) -> Command:
        prefix: list[Setting] = []
        places: list[Span] = []
        children = [*node.children]
        for redirect in redirects:
            # The grammar treats words after a redirection as part of it; bash does not.
            if redirect.type == "file_redirect":
                children += redirect.children_by_field_name("destination")[1:]
            elif redirect.type == "heredoc_redirect":
                children += redirect.children_by_field_name("argument")
        for child in children:
            kind, begin, end = child.type, child.start_byte, child.end_byte
            if kind == "variable_assignment":
                prefix.append(self._build_prefix(child, chain))
            elif begin == end:
                continue  # a word that the grammar added, perhaps past the end of the text
            elif child.is_named and kind not in ("comment", "file_redirect", "herestring_redirect"):
                # Adjacent pieces form one word, even if the grammar splits them. The grammar also drops a blank after a
                # backslash that starts a word.
                while _BLANK_AFTER_BACKSLASH.fullmatch(self.text, max(0, begin - 3), begin):
                    begin -= 2
                touches = places and places[-1].end == begin
                places.append(Span(places.pop().start if touches else begin, end))
        if places:
            last_end = places[-1].end
            blank = next(find_lost_blanks(self.text, last_end, last_end + 1), None)
            if blank is not None and node.end_byte <= blank.start:
                places.append(blank)
        if len(places) > MAX_WORDS:
            line = self.text.count(b"\n", 0, node.start_byte) + 1
            raise LimitExceeded(f"a command has more than {MAX_WORDS:,} words", Position(line, 1))
        fields: list[tuple[Fragment, ...]] = []
        spans: list[Span] = []
        forwards: int | None = None
        for place in places:
            if self.text[place.start] in b'"$' and self._is_arguments(place, chain):
                forwards = self._find_forwarded(place, chain, len(fields))
            for field in self.expand_fields(place, chain, 0):
                fields.append(field)
                spans.append(place)
        heredoc = next((candidate for redirect in redirects if (candidate := find_heredoc(redirect, self.text))), None)
        body = None
        if heredoc is not None:
            body = tuple(self._read_heredoc(heredoc[0], heredoc[1], node.start_byte, chain, 0))
        for child in node.children:
            if child.type == "herestring_redirect" and child.named_children:
                word = child.named_children[-1]
                body = tuple(self.expand(word.start_byte, word.end_byte, "plain", node.start_byte, chain, 0))
        words = tuple(self._build_words(fields, spans))
        return Command(self, node.start_byte, chain, words, tuple(prefix), forwards, body)

    def _is_arguments(self, word: Span, chain: Chain) -> bool:
        """Return whether a word is the `"$@"` of the script, which is assumed to be empty, or of a function's call."""
        if _ARGUMENTS.fullmatch(self.text, *word) is None or any(kind == "function" for kind, _ in chain):
            return False
        return not self.sets_arguments if self.call is None else self.list_arguments(word.start, chain) is not None

    def _expand_arguments(self, word: Span, chain: Chain) -> list[tuple[Fragment, ...]]:
        """Expand `"$@"` into the words that the function receives; nothing outside functions."""
        words = self.list_arguments(word.start, chain) if self.call is not None else None
        raw = self.text[word.start : word.end]
        first = _ARGUMENTS.fullmatch(raw)
        fields = [item.fragments for item in (words or ())[max(0, int(first[1] or 1) - 1) if first else 0 :]]
        if raw[:1] != b'"':
            unquoted = ((part._replace(split=True) for part in field) for field in fields)
            return [part for field in unquoted for part in split_words(field, "IFS" not in self.assignments)]
        if b"*" not in raw:
            return fields
        blank = Fragment(b" ", self.find_sites(*word), exact=False, names=("*",))
        joined = tuple(part for field in fields for part in (blank, *field))
        return [joined[1:] or (blank._replace(text=b""),)]

    def _find_forwarded(self, word: Span, chain: Chain, count: int) -> int | None:
        """Return the number of words in front of the script's own `"$@"` in a command, or None without it.

        `word` is a `"$@"` behind `count` words.
        """
        if self.call is None:
            return count
        words = self.list_arguments(word.start, chain)
        if words is None or self.call.forwards is None:
            return None
        return count + max(0, self.call.forwards - (len(self.call.words) - len(words)))

    def _build_prefix(self, node: SyntaxNode, chain: Chain) -> Setting:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        key = "" if name is None else self._get_text(name).decode("ascii", "replace")
        if value is None:
            return Setting(key, "")
        text = self.expand(value.start_byte, value.end_byte, "plain", node.start_byte, chain, 0)
        return build_setting(key, text, None if self.pieces is not None else Span(node.start_byte, node.end_byte))

    def expand_fields(self, word: Span, chain: Chain, depth: int) -> list[tuple[Fragment, ...]]:
        """Expand a word of the text into fields, which are the words of the command."""
        start, end = word
        raw = self.text[start:end]
        if self.pieces is None and PLAIN.fullmatch(raw):
            return [(Fragment(raw, (word,)),)]  # fast path for nearly every word
        if self._is_arguments(word, chain):
            return self._expand_arguments(word, chain)
        match = _ARRAY_WORD.fullmatch(raw)
        if match is not None:
            elements = self.resolve_array(match.group(1).decode(), start, chain, depth)
            if elements is None:
                return [(self.build_unknown(start, end, raw.decode("utf-8", "replace")),)]
            return self._expand_array(elements, self.find_sites(start, end), raw, match.group(1).decode())
        fragments = self.expand(start, end, "plain", start, chain, depth)
        if not any(fragment.split for fragment in fragments):
            return [tuple(fragments)]
        return list(split_words(fragments, "IFS" not in self.assignments))

    def _expand_array(
        self, elements: tuple[tuple[Fragment, ...], ...], sites: tuple[Span, ...], raw: bytes, name: str
    ) -> list[tuple[Fragment, ...]]:
        """Expand `"${NAME[@]}"` into words.

        Without quotes, the elements are split. `"${NAME[*]}"` is a single word.
        """
        quoted = raw.startswith(b'"')
        expanded = [
            tuple(add_use_site(part, sites, name, split=not quoted) for part in element) for element in elements
        ]
        if quoted and b"[*]" in raw:
            space = Fragment(b" ", sites, exact=False, names=(name,))
            joined = [part for element in expanded for part in (space, *element)]
            return [tuple(joined[1:])]
        if quoted:
            return expanded
        return [field for element in expanded for field in split_words(element, "IFS" not in self.assignments)]

    def _build_words(self, fields: list[tuple[Fragment, ...]], spans: list[Span]) -> Iterator[Word]:
        """Yield the words, each at the outermost place in the file that no other word shares."""
        if self.pieces is None and len(set(spans)) == len(spans):
            yield from map(build_word, fields, spans)
            return
        offset = self._find_offset()
        wholes = (
            None if offset is None or self._is_passed(span) else Span(span.start + offset, span.end + offset)
            for span in spans
        )
        places = [PlacedWord(field, whole) for field, whole in zip(fields, wholes)]
        separate(places, 0)
        for field, placed in zip(fields, places):
            yield build_word(field, placed.span)

    def _is_passed(self, word: Span) -> bool:
        """Return whether a word is the `"$@"` of a function, whose words are in the call."""
        return self.call is not None and _ARGUMENTS.fullmatch(self.text, *word) is not None

    def _find_offset(self) -> int | None:
        """Return the offset in the file of a text that is one piece of it, or None for a composed text."""
        if self.pieces is None:
            return 0
        is_whole = self.call is not None and len(self.pieces) == 1 and self.pieces[0].exact
        return self.pieces[0].sites[-1].start if is_whole else None

    def expand(self, start: int, end: int, mode: str, at: int, chain: Chain, depth: int) -> list[Fragment]:
        """Expand the bytes `start` to `end` as bash does: remove quotes, replace variables.

        `mode` is plain (a word), double (inside double quotes) or here (a heredoc).
        """
        out: list[Fragment] = []
        Expansion(self, end, at, chain, depth, out).run(start, mode)
        return out

    def build_unknown(self, start: int, end: int, why: str, split: bool = True) -> Fragment:
        """Return a fragment whose text is unknown for the reason `why`."""
        return Fragment(
            self.text[start:end], self.find_sites(start, end), exact=False, split=split, why=shorten(why, 60)
        )


def _can_interfere(
    assignment: Assignment, loops: frozenset[tuple[str, int]], functions: frozenset[tuple[str, int]]
) -> bool:
    """Return whether a later assignment may already have run, in an earlier iteration or before a function call."""
    return bool(loops.intersection(assignment.chain)) or (bool(functions) and not assignment.is_local)


def join_pieces(pieces: Iterable[Fragment]) -> bytes:
    """Return the text of a nested script, with a placeholder for unknown text."""
    return b"".join(map(_get_piece_text, pieces))


def _get_piece_text(piece: Fragment) -> bytes:
    return _BLANK if piece.why else piece.text
