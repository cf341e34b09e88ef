"""Shell scripts: one mapping of options per program that the script starts.

A command such as `srun torchrun --nnodes 4 -m openrlhf.cli.train_sft --zero_stage 3` is three **invocations**, each
with the options that belong to it; `bash -c "..."` is one whose string holds more. The root is the list of them all,
in the order of the text, and the route of an option is (number of the invocation, "--zero_stage"). Options may be in
the command itself, in an array, in a variable, in a heredoc that a variable holds, or in the string of a `bash -c`;
`outline.py`, `commands.py` and `words.py` find out where. A value that depends on `$1`, the environment or another
command is `Unknown`.

Nothing is executed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.documents.document import (
    Change,
    Comment,
    Document,
    Entry,
    Mapping,
    Node,
    Route,
    Scalar,
    Sequence,
    Span,
    Unknown,
    continued,
    decode,
)
from cfglint_train.documents.shell.branches import probed
from cfglint_train.documents.shell.commands import MAX_NESTED, Command, ExpansionBudget, Script
from cfglint_train.documents.shell.grammar import readable
from cfglint_train.documents.shell.programs import Flag, Part, partition
from cfglint_train.documents.shell.runners import unwrapped
from cfglint_train.documents.shell.sourced import Load, Sourcing
from cfglint_train.documents.shell.words import Fragment, Setting, Word, setting, word_of
from cfglint_train.foundation.typed import Any, ClassVar, Final, Protocol

_DIRECTIVE: Final = re.compile(rb"#SBATCH[ \t]+")
_DIRECTIVE_WORD: Final = re.compile(rb"\S+")
_GAP: Final = re.compile(rb"[\s\\=\"']*")


class Argument(Scalar):
    """The value of an option: the word as the program gets it, `True` where the option stands alone, or `Unknown`."""

    __slots__ = ("word",)

    def __init__(self, span: Span, text: str, value: Any, word: Word | None = None) -> None:
        super().__init__(span, text, value=value)
        self.word = word


class Invocation(Mapping):
    """One program that the script starts: its options as entries, and all that the command says of it.

    `program` is a launcher's name (`torchrun`, `accelerate launch`, `ray job submit`, `python`, `shell`), else the
    program, Python module or script as written. The directives at the head of a batch script are an invocation of
    `sbatch`.
    """

    __slots__ = (
        "arguments",
        "command",
        "environment",
        "flags",
        "forwards",
        "head",
        "is_directive",
        "nests",
        "number",
        "open",
        "parent",
        "program",
        "scope",
        "words",
    )

    def __init__(self, program: str, number: int, command: int, parent: int | None, span: Span) -> None:
        super().__init__(span, [], False)
        self.program = program
        self.number = number
        """Its number in the root."""
        self.command = command
        """The same for all programs of one command."""
        self.parent = parent
        """The number of the invocation that starts it."""
        self.head: tuple[Word, ...] = ()
        """The words that name it."""
        self.words: tuple[Word, ...] = ()
        """Its words behind its name, up to the program that it starts itself."""
        self.flags: list[Flag] = []
        """For each entry: where it is in `words`."""
        self.arguments: tuple[Word, ...] = ()
        """The words that are no options."""
        self.environment: tuple[Setting, ...] = ()
        """What is set for it alone (`NAME=value torchrun ...`)."""
        self.is_directive = False
        """Its options are in comments of a batch script."""
        self.forwards = False
        """The script's own arguments are handed on to it (`"$@"`)."""
        self.nests = False
        """One of its words is a script, whose commands are invocations of their own."""
        self.open = ""
        """What further options depend on, where there may be more than the text shows; else empty."""
        self.scope: Command | None = None
        """The command that it is part of."""

    def condition(self, entry: Entry) -> str:
        """The condition under which an option is given; empty where it always is."""
        for flag, given in zip(self.flags, self.entries, strict=True):
            if given.key.span == entry.key.span:
                return next((one.optional for one in self.words[flag.word].fragments if one.optional), "")
        return ""


class Keyed(Protocol):
    """How the options of a program are read as keys, and changes of keys written as options."""

    def mapping(self, invocation: Invocation) -> Mapping:
        """The options of an invocation as a mapping of keys."""

    def written(self, change: Change, invocation: Invocation) -> Change:
        """A change of a key as a change of the option that gives it. Raises CannotEdit where no option says it."""


class ShellScript(Document):
    """A bash script: `root` is a Sequence of `Invocation`s."""

    syntax: ClassVar[str] = "shell"

    def __init__(self, path: str, source: bytes, load: Load | None = None) -> None:
        """Raises DocumentError where the text is not UTF-8, holds zero bytes, or is nested without end.

        `load` reads the scripts that this one sources; without it, `source` changes nothing.
        """
        super().__init__(path, source)
        decode(source)
        self.load = load
        self._uses: dict[str, int] = {}
        sourcing = None if load is None else Sourcing(os.path.abspath(path), load)
        self.script = Script(readable(source), ExpansionBudget(), sourcing=sourcing)
        self.invocations: list[Invocation] = []
        self.keyed: dict[int, Keyed] = {}
        """Invocations whose options are read as keys."""
        self._commands = 0
        self._directives()
        for command in unwrapped(self.script):
            self._invoke(command, None)
        items: list[Node] = list(self.invocations)
        self.root = Sequence(Span(0, len(source)), items, False)

    def assumed(self, route: Route) -> str:
        """What the words of an option rest on: the defaults of variables."""
        node = self.node(route)
        nodes = node.items if isinstance(node, Sequence) else [node]
        notes = [one.word.assumed for one in nodes if isinstance(one, Argument) and one.word is not None]
        return "; ".join(dict.fromkeys(note for note in notes if note))

    def read_as(self, number: int, options: Keyed) -> None:
        """Read the options of an invocation as the keys of a mapping, typed as its program types them."""
        assert isinstance(self.root, Sequence)
        self.keyed[number] = options
        self.root.items[number] = options.mapping(self.invocations[number])
        self._mappings = None

    def is_complete(self, route: Route) -> bool:
        """Whether no options of an invocation are in a variable that cannot be read."""
        number = route[0] if route else None
        return not isinstance(number, int) or not self.invocations[number].open

    def condition_at(self, place: Span) -> tuple[str, str] | None:
        """The option at a place, and the condition under which it is given; None where a command has it in any case."""
        met = [
            (entry.name or "", one.condition(entry))
            for one in self.invocations
            for entry in one.entries
            if entry.key.span.start == place.start
        ]
        return met[0] if met and all(condition for _, condition in met) else None

    def comments(self) -> list[Comment]:
        """Every comment of the script itself (those inside strings are part of the string)."""
        found = []
        for node in self.script.comments:
            text = self.source[node.start_byte : node.end_byte].rstrip()
            found.append(Comment(Span(node.start_byte, node.start_byte + len(text)), text.decode("utf-8", "replace")))
        return sorted(found, key=lambda comment: comment.span)

    def extent(self, line: int) -> tuple[int, int]:
        """As in the base class: the lines that backslashes join."""
        return continued(self, line)

    def duplicate_keys(self) -> Iterator[tuple[Route, Entry, Entry]]:
        """Options given twice to a Python program, where argparse takes the last; elsewhere repeating is ordinary.

        Two that are each given under a condition of their own need not be there together.
        """
        for route, entry, first in super().duplicate_keys():
            one = self.invocations[route[0]] if route and isinstance(route[0], int) else None
            if (
                one is not None
                and one.parent is not None
                and self.invocations[one.parent].program in ("python", "torchrun", "deepspeed", "accelerate launch")
                and not _are_apart(one.condition(first), one.condition(entry))
            ):
                yield route, entry, first

    def enclosing(self, invocation: Invocation) -> Iterator[Invocation]:
        """What starts an invocation, from inside out: its launcher, the launcher of that, ..."""
        parent = invocation.parent
        while parent is not None:
            yield self.invocations[parent]
            parent = self.invocations[parent].parent

    def exported(self, invocation: Invocation) -> dict[str, Setting]:
        """The environment that the script makes for an invocation."""
        found: dict[str, Setting] = {}
        for one in reversed([invocation, *self.enclosing(invocation)]):
            command = one.scope
            if command is not None and one is self._first(one):
                script = command.script
                for name, place in script.exported.items():
                    if place < command.at and name in script.assignments:
                        found[name] = setting(name, script.variable(name, command.at, command.chain))
            found.update((given.name, given) for given in one.environment)
        return found

    def _first(self, invocation: Invocation) -> Invocation:
        """The outermost program of an invocation's command."""
        for one in self.enclosing(invocation):
            if one.command != invocation.command:
                break
            invocation = one
        return invocation

    def probed(self, route: Route) -> frozenset[str]:
        """The options that the conditions around an invocation look for in the help of a program."""
        number = route[0] if route else None
        if not isinstance(number, int):
            return frozenset()
        one = self.invocations[number]
        scopes = [each.scope for each in (one, *self.enclosing(one)) if each.scope is not None]
        return frozenset().union(*(probed(scope.script, scope.chain) for scope in scopes))

    def uses(self, name: str) -> int:
        """How often a variable is used in the text; an exported one counts once more, for who may read it."""
        if name not in self._uses:
            pattern = re.compile(rb"\$(?:\{[!#]?)?" + name.encode() + rb"(?![A-Za-z0-9_])")
            text = bytearray(self.source)
            for node in self.script.comments:
                text[node.start_byte : node.end_byte] = b" " * (node.end_byte - node.start_byte)
            count = len(pattern.findall(text))
            bare = re.compile(rb"(?<![$\w{])" + name.encode() + rb"(?!\w)")
            count += sum(len(bare.findall(text)) for text in self.script.arithmetic)
            self._uses[name] = count + (name in self.script.exported)
        return self._uses[name]

    def _directives(self) -> None:
        """`#SBATCH` lines: the options of the batch job."""
        words: list[Word] = []
        for node in sorted(self.script.comments, key=lambda comment: comment.start_byte):
            line = self.source[node.start_byte : node.end_byte]
            marker = _DIRECTIVE.match(line)
            if marker is None:
                continue
            for match in _DIRECTIVE_WORD.finditer(line, marker.end()):
                if match.group().startswith(b"#"):
                    break
                span = Span(node.start_byte + match.start(), node.start_byte + match.end())
                words.append(Word(match.group().decode("utf-8", "replace"), span, None))
        if words:
            name = Word("srun", Span(words[0].span.start, words[0].span.start), None)
            # srun reads the same options as sbatch does.
            part = partition([name, *words])[0]._replace(program="sbatch")
            self._add(part, [name, *words], None, 0, None)
            self.invocations[-1].is_directive = True

    def _invoke(self, command: Command, parent: int | None) -> None:
        """The invocations of one command, and of the scripts that it hands to shells."""
        if not command.words:
            return
        self._commands += 1
        identity = self._commands
        environment = command.prefix
        for part in partition(command.words):
            self._add(part, command.words, command, identity, parent)
            invocation = self.invocations[-1]
            invocation.environment = environment
            environment = part.environment
            parent = invocation.number
            if part.script is not None:
                self._nest(part, command, parent)

    def _nest(self, part: Part, command: Command, parent: int) -> None:
        """The commands of a script that a shell gets as a word, or reads."""
        assert part.script is not None
        script = command.script
        if script.depth >= MAX_NESTED:
            return
        pieces: list[Fragment] = []
        for index in part.script:
            if pieces:
                pieces.append(Fragment(b" ", pieces[-1].sites, exact=False))
            pieces += command.words[index].fragments
        if not part.script:
            pieces += command.input or ()
        pieces = [piece for piece in pieces if piece.text]
        if not pieces:
            return
        text = b"".join(b"\x01" if piece.why else piece.text for piece in pieces)
        script.budget.bytes -= 4 * len(text)
        if script.budget.bytes < 0:
            return
        self.invocations[parent].nests = True
        inner = Script(
            readable(text), script.budget, tuple(pieces), (script, command.at, command.chain), script.depth + 1
        )
        for below in unwrapped(inner):
            self._invoke(below, parent)

    def _add(
        self,
        part: Part,
        words: tuple[Word, ...] | list[Word],
        command: Command | None,
        identity: int,
        parent: int | None,
    ) -> None:
        head = tuple(words[index] for index in part.head)
        span = head[0].span if head else words[part.own.start].span
        invocation = Invocation(part.program, len(self.invocations), identity, parent, span)
        invocation.head = head
        invocation.words = tuple(words[index] for index in part.own)
        invocation.arguments = tuple(words[index] for index in part.arguments)
        invocation.scope = command
        handed = None if command is None else command.forwards
        invocation.forwards = handed is not None and part.own.start <= handed <= part.own.stop
        invocation.open = part.open
        first = part.own.start
        for flag in part.flags:
            values = tuple([index - first for index in flag.values if not self.is_lost(words[index])])
            moved = Flag(flag.name, flag.word - first, values, flag.joined)
            invocation.flags.append(moved)
            invocation.entries.append(self._entry(moved, invocation.words))
        if invocation.entries:
            last = invocation.entries[-1].span
            if last.start >= span.start:
                invocation.span = Span(span.start, max(span.end, last.end))
        self.invocations.append(invocation)

    def _entry(self, flag: Flag, words: tuple[Word, ...]) -> Entry:
        word = words[flag.word]
        if flag.joined:
            value = behind(word, flag.joined)
            start = word.target.start if word.target is not None else word.span.start
            end = value.span.start - (word.text[flag.joined - 1 : flag.joined] == "=")
            key = Span(start, end) if start < end <= word.span.end else word.span
            return Entry(Scalar(key, flag.name, value=flag.name), _argument(value))
        name = Scalar(word.span, flag.name, value=flag.name)
        if word.why:
            name.text = word.text
        if not flag.values:
            given = Unknown(word.why) if word.optional else True
            return Entry(name, Argument(Span(word.span.end, word.span.end), "", given))
        values: list[Node] = [_argument(words[index]) for index in flag.values]
        if len(values) == 1:
            return Entry(name, values[0])
        return Entry(name, Sequence(Span(values[0].span.start, values[-1].span.end), values, False))

    def is_lost(self, word: Word) -> bool:
        """Whether a word is the white space behind a backslash that was meant to continue the line."""
        return word.text.isspace() and self.source[word.span.start : word.span.start + 1] == b"\\"

    def around(self, place: Span) -> tuple[str, Span]:
        """The innermost text that holds words around a place: its kind and its bytes."""
        node = self.script.root.descendant_for_byte_range(place.start, max(place.start, place.end - 1))
        while node is not None:
            if node.start_byte < place.start or node.type in ("command", "heredoc_body"):
                kind = _CONTAINERS.get(node.type)
                if kind is not None:
                    parent = node.parent
                    if kind == "string" and parent is not None and parent.type == "variable_assignment":
                        kind = "variable"
                    return kind, Span(node.start_byte, node.end_byte)
            node = node.parent
        return "command", Span(0, len(self.source))


def _are_apart(first: str, second: str) -> bool:
    """Whether two options depend on conditions that need not hold together."""
    return bool(first and second) and first != second


_CONTAINERS: Final = {
    "command": "command",
    "array": "array",
    "string": "string",
    "raw_string": "string",
    "heredoc_body": "heredoc",
    "comment": "comment",
}


def behind(word: Word, count: int) -> Word:
    """The part of a word behind its first `count` characters, as a word."""
    skip = len(word.text[:count].encode("utf-8"))
    rest: list[Fragment] = []
    for fragment in word.fragments:
        if skip >= len(fragment.text) and (skip or not fragment.text):
            skip -= len(fragment.text)
            continue
        rest.append(fragment.cut(skip, len(fragment.text)))
        skip = 0
    if not word.fragments:
        start = word.span.start + len(word.text[:count].encode("utf-8"))
        return word._replace(text=word.text[count:], span=Span(start, word.span.end))
    if not rest:
        end = word.target.end if word.target is not None else word.span.end
        return word._replace(text="", span=Span(end, end), target=Span(end, end) if word.target else None, fragments=())
    places = [
        next((site for site in fragment.sites if word.span.start <= site.start and site.end <= word.span.end), None)
        for fragment in rest
    ]
    inside = [place for place in places if place is not None]
    span = Span(min(place.start for place in inside), max(place.end for place in inside)) if inside else word.span
    return word_of(tuple(rest), span)


def _argument(word: Word) -> Argument:
    return Argument(word.span, word.text, Unknown(word.why) if word.why else word.text, word)
