"""Shell scripts: one mapping of options for each program that the script starts.

A command such as `srun torchrun --nnodes 4 -m openrlhf.cli.train_sft --zero_stage 3` contains three **invocations**,
each with its own options. `bash -c "..."` is an invocation whose string contains more of them. The root is the list of
all invocations in source order; the route of an option is (number of the invocation, "--zero_stage"). Options may be in
the command itself, in an array, in a variable, in a heredoc assigned to a variable, or in the string of a `bash -c`;
`outline.py`, `commands.py` and `words.py` locate them. A value that depends on `$1`, the environment or another command
is `Unknown`.

Nothing is executed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

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
    decode,
    find_continued_lines,
)
from cfglint_train.documents.shell.branches import find_probed_options
from cfglint_train.documents.shell.calls import expand_calls
from cfglint_train.documents.shell.commands import (
    MAX_NESTED,
    Command,
    Environment,
    ExpansionBudget,
    Script,
    join_pieces,
)
from cfglint_train.documents.shell.grammar import normalize_source
from cfglint_train.documents.shell.programs import CommandFlag, CommandPart, partition
from cfglint_train.documents.shell.sourced import Load, Sourcing
from cfglint_train.documents.shell.words import Fragment, Setting, Word, build_setting, build_word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, ClassVar, Final, Protocol, TypeVar

_DIRECTIVE: Final = compile_on_use(rb"#SBATCH[ \t]+")
_DIRECTIVE_WORD: Final = compile_on_use(rb"\S+")
_PYTHON: Final = compile_on_use(r"python[\d.]*|torchrun|accelerate launch|deepspeed|torch\.distributed\.(?:run|launch)")
"""Programs that start a Python file or module."""
Outcome = TypeVar("Outcome")

_GAP: Final = compile_on_use(rb"[\s\\=\"']*")


class Argument(Scalar):
    """The value of an option: the word that the program receives, `True` for a bare option, or `Unknown`."""

    __slots__ = ("word",)

    def __init__(self, span: Span, text: str, value: Any, word: Word | None = None) -> None:
        """Store the value and the word that it comes from."""
        super().__init__(span, text, value=value)
        self.word = word


class Invocation(Mapping):
    """A program that the script starts: its options as entries, and other facts from its command.

    `program` is the name of a launcher (`torchrun`, `accelerate launch`, `ray job submit`, `python`, `shell`);
    otherwise it is the program, Python module or script as written. The directives at the head of a batch script are an
    invocation of `sbatch`.
    """

    __slots__ = (
        "_cache",
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
        """Create an invocation without words; `ShellScript` sets the rest."""
        super().__init__(span, [], False)
        self.program = program
        self.number = number
        """Index of the invocation in the root."""
        self.command = command
        """Number of the command that the program is part of."""
        self.parent = parent
        """Number of the invocation that starts this program, or None."""
        self.head: tuple[Word, ...] = ()
        """Words that name the program."""
        self.words: tuple[Word, ...] = ()
        """Words after the name, up to the next program that this program starts."""
        self.flags: list[CommandFlag] = []
        """Indices in `words` of the words of each entry, in the order of the entries."""
        self.arguments: tuple[Word, ...] = ()
        """Words that are not options."""
        self.environment: tuple[Setting, ...] = ()
        """Variables that are set only for this program (`NAME=value torchrun ...`)."""
        self.is_directive = False
        """True if the options are in `#SBATCH` comments."""
        self.forwards = False
        """True if the script passes its own arguments on to the program (`"$@"`)."""
        self.nests = False
        """True if the program is a shell that runs a nested script, from a word or from standard input."""
        self.open = ""
        """Expression that may add options which the text does not show; empty if all options are known."""
        self.scope: Command | None = None
        """Command that the program is part of; None for directives."""
        self._cache: dict[Callable[[Invocation], Any], Any] = {}

    def compute_once(self, work: Callable[[Invocation], Outcome]) -> Outcome:
        """Return the result of `work` on the words of this invocation, computed on the first call only.

        The cache never expires because the words do not change once the script is read.
        """
        if work not in self._cache:
            self._cache[work] = work(self)
        result: Outcome = self._cache[work]
        return result

    def find_condition(self, entry: Entry) -> str:
        """Return the condition under which an option is passed, or "" if it is always passed."""
        for flag, candidate in zip(self.flags, self.entries, strict=True):
            if candidate.key.span == entry.key.span:
                return next(
                    (fragment.condition for fragment in self.words[flag.word].fragments if fragment.condition), ""
                )
        return ""


class OptionTranslator(Protocol):
    """Translation between the options of a program and configuration keys."""

    def build_mapping(self, invocation: Invocation) -> Mapping:
        """Return the options of an invocation as a mapping from keys to values."""

    def list_options(self, invocation: Invocation) -> Iterator[tuple[Entry, Route, Any]]:
        """Yield the options of an invocation: the entry as written, and the key's route and value."""

    def translate_change(self, change: Change, invocation: Invocation) -> Change:
        """Return a change of a key as a change of the option that sets the key.

        Raise `CannotEdit` if no option can express the change.
        """


class ShellScript(Document):
    """A bash script. `root` is a `Sequence` of `Invocation` nodes."""

    syntax: ClassVar[str] = "shell"

    def __init__(
        self, path: str, source: bytes, load: Load | None = None, environment: Environment | None = None
    ) -> None:
        """Read a script. Raise `DocumentError` if it is not UTF-8, contains zero bytes, or is nested too deeply.

        `load` reads the scripts that this script sources; without it, `source` has no effect. `environment` holds the
        variables that the script inherits, if they are known.
        """
        super().__init__(path, source)
        decode(source)
        self.load = load
        self.sourced_paths: set[str] = set()
        """Absolute paths at which a sourced file was looked for."""
        self._uses: dict[str, int] = {}
        self._programs: dict[tuple[str, ...], tuple[Invocation, ...]] = {}
        sourcing = None if load is None else Sourcing(os.path.abspath(path), self._load_sourced)
        self.script = Script(normalize_source(source), ExpansionBudget(), sourcing=sourcing, environment=environment)
        self.invocations: list[Invocation] = []
        self.translators: dict[int, OptionTranslator] = {}
        """Translators of the invocations whose options are read as keys, by number."""
        self._commands = 0
        self._add_directives()
        for command in expand_calls(self.script):
            self._add_command(command, None)
        items: list[Node] = list(self.invocations)
        self.root = Sequence(Span(0, len(source)), items, False)

    def _load_sourced(self, path: str) -> bytes | None:
        self.sourced_paths.add(path)
        return None if self.load is None else self.load(path)

    def get_assumption(self, route: Route) -> str:
        """Return the notes on default values of variables that an option relies on."""
        node = self.find_node(route)
        nodes = node.items if isinstance(node, Sequence) else [node]
        notes = [item.word.assumption for item in nodes if isinstance(item, Argument) and item.word is not None]
        return "; ".join(dict.fromkeys(note for note in notes if note))

    def read_as(self, number: int, options: OptionTranslator) -> None:
        """Read the options of an invocation as keys of a mapping, with the types that its program assigns."""
        assert isinstance(self.root, Sequence)
        self.translators[number] = options
        self.root.items[number] = options.build_mapping(self.invocations[number])
        self._mappings = None

    def is_complete(self, route: Route) -> bool:
        """Return whether all options of an invocation are known: none is hidden in a variable or cut off."""
        number = route[0] if route else None
        if not isinstance(number, int):
            return True
        invocation = self.invocations[number]
        return not invocation.open and not any(map(self.is_lost_blank, invocation.words[-1:]))

    def find_conditional_option(self, place: Span) -> tuple[str, str] | None:
        """Return the option at a place and the condition under which it is passed.

        Return None if there is no option or if a command passes it unconditionally.
        """
        options = [
            (entry.name or "", invocation.find_condition(entry))
            for invocation in self.invocations
            for entry in invocation.entries
            if entry.key.span.start == place.start
        ]
        return options[0] if options and all(condition for _, condition in options) else None

    def list_comments(self) -> list[Comment]:
        """Return all comments of the script itself; a comment inside a string is part of the string."""
        comments = []
        for node in self.script.comments:
            text = self.source[node.start_byte : node.end_byte].rstrip()
            comments.append(
                Comment(Span(node.start_byte, node.start_byte + len(text)), text.decode("utf-8", "replace"))
            )
        return sorted(comments, key=lambda comment: comment.span)

    def find_extent(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the group around `line` that trailing backslashes join."""
        return find_continued_lines(self, line)

    def find_duplicate_keys(self) -> Iterator[tuple[Route, Entry, Entry]]:
        """Yield options that are passed twice to a Python program.

        argparse uses the last of them; other programs often accept an option several times. Two options with different
        conditions do not count, because they may never be passed together.
        """
        for route, entry, first in super().find_duplicate_keys():
            invocation = self.invocations[route[0]] if route and isinstance(route[0], int) else None
            if (
                invocation is not None
                and invocation.parent is not None
                and self.invocations[invocation.parent].program
                in ("python", "torchrun", "deepspeed", "accelerate launch")
                and not self._is_separate(invocation, first, entry)
            ):
                yield route, entry, first

    def _is_separate(self, invocation: Invocation, first: Entry, second: Entry) -> bool:
        """Return whether two options are in different commands, or have different conditions, which need not both hold.

        Words that are read as keys override earlier ones, so a condition on one of them is enough.
        """
        frames = [] if invocation.scope is None else invocation.scope.list_frames()[:-1]
        calls = [call.script.find_file_offset(call.at) for call in frames]
        places = [self.find_container(entry.key.span)[1] for entry in (first, second)]
        if places[1].start in calls and places[0] != places[1]:
            return True  # the call overrides a word of the function
        conditions = invocation.find_condition(first), invocation.find_condition(second)
        is_overriding = invocation.number in self.translators
        return conditions[0] != conditions[1] and (is_overriding or all(conditions))

    def is_python(self, invocation: Invocation) -> bool:
        """Return whether a program is a Python file, or a module that Python or a launcher of Python starts."""
        parent = None if invocation.parent is None else self.invocations[invocation.parent]
        return invocation.program.endswith(".py") or (
            parent is not None and _PYTHON.fullmatch(parent.program) is not None
        )

    def list_launchers(self, invocation: Invocation) -> Iterator[Invocation]:
        """Yield the chain of launchers that start an invocation, innermost first."""
        parent = invocation.parent
        while parent is not None:
            yield self.invocations[parent]
            parent = self.invocations[parent].parent

    def collect_environment(self, invocation: Invocation) -> dict[str, Setting]:
        """Return the environment variables that the script sets for an invocation."""
        environment: dict[str, Setting] = {}
        for program in reversed([invocation, *self.list_launchers(invocation)]):
            command = program.scope
            if command is not None and program is self._find_outermost(program):
                for step in command.list_frames():
                    environment.update(self._collect_exports(step))
            environment.update((variable.name, variable) for variable in program.environment)
        return environment

    def _collect_exports(self, command: Command) -> Iterator[tuple[str, Setting]]:
        """Yield the variables that a command's script exports before the command."""
        script = command.script
        for name, place in script.exports.items():
            if place < command.at and name in script.assignments and self._is_part_of_launch(script, name, place):
                value = script.resolve_variable(name, command.at, command.chain)
                yield name, build_setting(name, value, script.find_assignment(name, command.at))

    def _is_part_of_launch(self, script: Script, name: str, place: int) -> bool:
        """Return whether a variable that is exported at a place counts: an inherited one only if a launch reads it."""
        if place >= 0:
            return True
        from cfglint_train.documents.shell.environment import is_relevant

        return is_relevant(name, script.text)

    def _find_outermost(self, invocation: Invocation) -> Invocation:
        """Return the outermost program of an invocation's command."""
        for launcher in self.list_launchers(invocation):
            if launcher.command != invocation.command:
                break
            invocation = launcher
        return invocation

    def find_probed_options(self, route: Route) -> frozenset[str]:
        """Return the options that the conditions around an invocation look for in a program's help output."""
        number = route[0] if route else None
        if not isinstance(number, int):
            return frozenset()
        invocation = self.invocations[number]
        scopes = [
            program.scope for program in (invocation, *self.list_launchers(invocation)) if program.scope is not None
        ]
        frames = (frame for scope in scopes for frame in scope.list_frames())
        return frozenset().union(*(find_probed_options(frame.script, frame.chain) for frame in frames))

    def find_programs(self, names: tuple[str, ...]) -> tuple[Invocation, ...]:
        """Return the invocations of programs with some names, in order; the search is made once."""
        if names not in self._programs:
            self._programs[names] = tuple(item for item in self.invocations if item.program in names)
        return self._programs[names]

    def count_uses(self, name: str) -> int:
        """Count the uses of a variable in the text.

        An export counts as one more use, because child processes may read the variable.
        """
        if name not in self._uses:
            pattern = re.compile(rb"\$(?:\{[!#]?)?" + name.encode() + rb"(?![A-Za-z0-9_])")
            text = bytearray(self.source)
            for node in self.script.comments:
                text[node.start_byte : node.end_byte] = b" " * (node.end_byte - node.start_byte)
            count = len(pattern.findall(text))
            bare = re.compile(rb"(?<![$\w{])" + name.encode() + rb"(?!\w)")
            count += sum(len(bare.findall(text)) for text in self.script.arithmetic)
            self._uses[name] = count + (name in self.script.exports)
        return self._uses[name]

    def _add_directives(self) -> None:
        """Add the options from `#SBATCH` lines as an invocation."""
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
            # srun accepts the same options as sbatch.
            part = partition([name, *words])[0]._replace(program="sbatch")
            self._add_part(part, [name, *words], None, 0, None)
            self.invocations[-1].is_directive = True

    def _add_command(
        self, command: Command, parent: int | None, outer_input: tuple[Fragment, ...] | None = None
    ) -> None:
        """Add the invocations of a command and of the scripts that it passes to shells.

        `outer_input` is the heredoc of the command around a nested one, which shares its standard input.
        """
        if not command.words:
            return
        self._commands += 1
        identity = self._commands
        environment = command.prefix
        for part in partition(command.words):
            self._add_part(part, command.words, command, identity, parent)
            invocation = self.invocations[-1]
            invocation.environment = environment
            environment = part.environment
            parent = invocation.number
            if part.script is not None:
                self._add_nested(part, command, parent, command.input or outer_input)

    def _add_nested(
        self, part: CommandPart, command: Command, parent: int, heredoc: tuple[Fragment, ...] | None
    ) -> None:
        """Add the commands of a script that a shell receives as a word or reads from standard input."""
        assert part.script is not None
        script = command.script
        if script.depth >= MAX_NESTED:
            return
        pieces: list[Fragment] = []
        for index in part.script:
            if pieces:
                pieces.append(Fragment(b" ", pieces[-1].sites, exact=False))
            word = command.words[index]
            pieces += (word if pieces else drop_prefix(word, part.script_offset)).fragments
        if not part.script:
            pieces += heredoc or ()
        pieces = [piece for piece in pieces if piece.text]
        if not pieces:
            return
        text = join_pieces(pieces)
        script.budget.bytes -= 4 * len(text)
        if script.budget.bytes < 0:
            return
        self.invocations[parent].nests = True
        inner = Script(
            normalize_source(text), script.budget, tuple(pieces), (script, command.at, command.chain), script.depth + 1
        )
        for nested_command in expand_calls(inner):
            self._add_command(nested_command, parent, heredoc)

    def _add_part(
        self,
        part: CommandPart,
        words: tuple[Word, ...] | list[Word],
        command: Command | None,
        identity: int,
        parent: int | None,
    ) -> None:
        head = tuple(words[index] for index in part.head)
        span = head[0].span if head else words[part.word_range.start].span
        invocation = Invocation(part.program, len(self.invocations), identity, parent, span)
        invocation.head = head
        invocation.words = tuple(words[index] for index in part.word_range)
        invocation.arguments = tuple(words[index] for index in part.arguments)
        invocation.scope = command
        arguments_index = None if command is None else command.forwards
        invocation.forwards = (
            arguments_index is not None and part.word_range.start <= arguments_index <= part.word_range.stop
        )
        invocation.open = part.open
        first = part.word_range.start
        for flag in part.flags:
            values = tuple([index - first for index in flag.values if not self.is_lost_blank(words[index])])
            shifted_flag = CommandFlag(flag.name, flag.word - first, values, flag.value_offset)
            invocation.flags.append(shifted_flag)
            invocation.entries.append(self._build_entry(shifted_flag, invocation.words))
        if invocation.entries:
            last = invocation.entries[-1].span
            if last.start >= span.start:
                invocation.span = Span(span.start, max(span.end, last.end))
        self.invocations.append(invocation)

    def _build_entry(self, flag: CommandFlag, words: tuple[Word, ...]) -> Entry:
        word = words[flag.word]
        if flag.value_offset:
            return build_joined_entry(flag, word)
        name = Scalar(word.span, flag.name, value=flag.name)
        if word.why:
            name.text = word.text
        if not flag.values:
            argument_value = Unknown(word.why) if word.is_optional else True
            return Entry(name, Argument(Span(word.span.end, word.span.end), "", argument_value))
        values: list[Node] = [_build_argument(words[index]) for index in flag.values]
        if len(values) == 1:
            return Entry(name, values[0])
        return Entry(name, Sequence(Span(values[0].span.start, values[-1].span.end), values, False))

    def is_lost_blank(self, word: Word) -> bool:
        """Return whether a word is the blank after a backslash that was meant to continue the line."""
        return word.text.isspace() and self.source[word.span.start : word.span.start + 1] == b"\\"

    def find_container(self, place: Span) -> tuple[str, Span]:
        """Return the kind and the span of the innermost construct that holds the words at a place.

        The kinds are command, array, string, variable, heredoc and comment.
        """
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


_CONTAINERS: Final = {
    "command": "command",
    "array": "array",
    "string": "string",
    "raw_string": "string",
    "heredoc_body": "heredoc",
    "comment": "comment",
}


def build_joined_entry(flag: CommandFlag, word: Word) -> Entry:
    """Return the entry of an option that is one word with its value (`--option=value`)."""
    value = drop_prefix(word, flag.value_offset)
    key = locate_prefix(word, flag.value_offset - (word.text[flag.value_offset - 1 : flag.value_offset] == "="))
    return Entry(Scalar(key, flag.name, value=flag.name), _build_argument(value))


def locate_prefix(word: Word, count: int) -> Span:
    """Return the place of the first `count` characters of a word, or of the whole word if they are in several."""
    size = len(word.text[:count].encode("utf-8"))
    if not word.fragments:
        return Span(word.span.start, word.span.start + size)
    first = word.fragments[0]
    span = first.cut(0, size).sites[-1]
    is_inside = first.exact and size <= len(first.text) and word.span.start <= span.start and span.end <= word.span.end
    return span if is_inside else word.span


def drop_prefix(word: Word, count: int) -> Word:
    """Return the part of a word after its first `count` characters, as a word."""
    skip = len(word.text[:count].encode("utf-8"))
    fragments: list[Fragment] = []
    for fragment in word.fragments:
        if skip >= len(fragment.text) and (skip or not fragment.text):
            skip -= len(fragment.text)
            continue
        fragments.append(fragment.cut(skip, len(fragment.text)))
        skip = 0
    if not word.fragments:
        start = word.span.start + len(word.text[:count].encode("utf-8"))
        return word._replace(text=word.text[count:], span=Span(start, word.span.end))
    if not fragments:
        end = word.target.end if word.target is not None else word.span.end
        return word._replace(text="", span=Span(end, end), target=Span(end, end) if word.target else None, fragments=())
    places = [
        next((site for site in fragment.sites if word.span.start <= site.start and site.end <= word.span.end), None)
        for fragment in fragments
    ]
    spans = [place for place in places if place is not None]
    span = Span(min(place.start for place in spans), max(place.end for place in spans)) if spans else word.span
    return build_word(tuple(fragments), span)


def _build_argument(word: Word) -> Argument:
    value = Unknown(word.why, word.text if word.known_suffix else "") if word.why else word.text
    return Argument(word.span, word.text, value, word)
