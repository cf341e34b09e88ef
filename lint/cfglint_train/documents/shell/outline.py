"""Outline of a shell script: its commands, assignments and comments, each with its enclosing conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.documents.document import Position
from cfglint_train.documents.limits import LimitExceeded
from cfglint_train.documents.shell.branches import Choice, build_choice
from cfglint_train.documents.shell.grammar import parse
from cfglint_train.documents.shell.sourced import is_script_folder
from cfglint_train.documents.shell.words import NAME, Chain, Fragment, Step
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

# Maximum nesting of conditions, loops and functions.
MAX_CONDITIONS: Final = 200

# Nodes without children that are recorded; all other leaves are words, names and operators.
_LEAVES: Final = frozenset(("comment", "ERROR"))
# Nodes that make some of their children conditional.
_CONDITIONAL: Final = frozenset(
    "if_statement while_statement for_statement c_style_for_statement function_definition case_item subshell "
    "command_substitution process_substitution pipeline list".split()
)

_ENDING: Final = (b"exit", b"exec", b"return")
_MUTATED: Final = compile_on_use(
    rb"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
)
_DESCRIPTOR: Final = compile_on_use(rb"\{[A-Za-z_]\w*\}")
_NO_STEPS: Final[frozenset[Step]] = frozenset()
_DEFAULT: Final = compile_on_use(rb"\$\{([A-Za-z_]\w*):?=")


class Assignment:
    """A construct that sets a variable; `node` is None if the value is empty, unknown or not in this text."""

    __slots__ = ("appends", "chain", "end", "is_local", "is_quoted", "kind", "node", "sourced_from", "start", "value")

    def __init__(self, kind: str, start: int, end: int, chain: Chain, node: SyntaxNode | None = None) -> None:
        """Record an assignment; the caller sets its other attributes."""
        self.kind = kind
        """Kind of the value: string, array, heredoc (`read`), capture (`$(cat <<EOF)`) or opaque."""
        self.start = start
        self.end = end
        self.chain = chain
        self.node = node
        self.appends = False
        self.is_local = False
        self.is_quoted = False
        """True if the delimiter of a heredoc is quoted, so that the text is not expanded."""
        self.value: tuple[tuple[Fragment, ...], ...] | None = None
        self.sourced_from: Any = None
        """The sourced script that makes the assignment, and the variable's name there."""


class Outline:
    """A text that bash parses, with its commands, assignments and comments."""

    def __init__(self, text: bytes, is_body: bool = False) -> None:
        """Parse a text, which may be the body of a function.

        Raise `DocumentError` if it cannot be parsed or is nested too deeply.
        """
        self.text = text
        self.is_body = is_body
        self.assignments: dict[str, list[Assignment]] = {}
        self.owners: dict[str, set[frozenset[tuple[str, int]]]] = {}
        """Enclosing functions of each assignment that is not local, by variable."""
        self.exports: dict[str, int] = {}
        self.comments: list[SyntaxNode] = []
        self.errors: list[SyntaxNode] = []
        self.arithmetic: list[bytes] = []
        self.sets_arguments = False
        self.shifts: list[Assignment] = []
        """Calls of `shift`; the node is the word with the number, or None for one argument."""
        self.choices: dict[Step, Choice] = {}
        """`if` or `case` statement of each branch."""
        self.functions: list[tuple[str, SyntaxNode, Chain]] = []
        """Function definitions: name, node, enclosing conditions."""
        self.simple_commands: list[tuple[SyntaxNode, Chain, tuple[SyntaxNode, ...]]] = []
        """Simple commands with their enclosing conditions and redirections."""
        self.operands: dict[Step, SyntaxNode] = {}
        """First operand of `&&` or `||`, by the step of the commands after it."""
        self.ends: dict[Chain, int] = {}
        """First offset at which `exit`, `exec` or, in a function, `return` ends the code under a chain of conditions.
        """
        self.root = parse(text)
        self._walk()
        for assignments in self.assignments.values():
            assignments.sort(key=lambda assignment: assignment.start)

    def find_last_assignment(self, name: str, at: int) -> int:
        """Return the offset of the last assignment of a variable before a place, or -1 if there is none."""
        return max(
            (assignment.start for assignment in self.assignments.get(name, ()) if assignment.start < at), default=-1
        )

    def _walk(self) -> None:
        """Collect the commands, assignments and comments with their enclosing conditions."""
        redirects: dict[int, tuple[SyntaxNode, ...]] = {}
        chained: dict[int, int] = {}
        pending: list[tuple[SyntaxNode, Chain, str]] = [(self.root, (), "")]
        broken = self.root.has_error  # without an error, no node is missing
        while pending:
            node, chain, parent = pending.pop()
            kind = node.type
            if kind == "comment":
                self.comments.append(node)
                continue
            if broken and (kind == "ERROR" or node.is_missing):
                self.errors.append(node)
            elif kind == "redirected_statement":
                body = node.child_by_field_name("body")
                if body is not None:
                    redirects[body.id] = tuple(child for child in node.children if child.type.endswith("_redirect"))
                    if self._get_text(body) == b"cat":  # `cat <<EOF | bash`
                        for redirect in redirects[body.id]:
                            redirects.update(dict.fromkeys(_find_piped_commands(redirect), (redirect,)))
            elif kind == "command":
                self.simple_commands.append((node, chain, redirects.get(node.id, ())))
                self._note_builtin(node, chain, redirects.get(node.id, ()))
            elif kind == "variable_assignment" and parent != "command":
                self._note_assignment(node, chain, local=parent == "local")
            elif kind == "declaration_command":
                kind = self._note_declaration(node)
            elif kind in ("if_statement", "case_statement"):
                choice = build_choice(node, chain)
                self.choices.update(dict.fromkeys(choice.steps, choice))
            elif kind == "function_definition":
                name = node.child_by_field_name("name")
                if name is not None:
                    self.functions.append((self._get_text(name).decode("utf-8", "replace"), node, chain))
            elif kind == "expansion":
                self._note_default(node, chain)
            elif kind == "for_statement":
                variable = node.child_by_field_name("variable")
                if variable is not None:
                    self._add_opaque(self._get_text(variable), node, chain)
            elif kind == "c_style_for_statement":
                body = node.child_by_field_name("body")
                if body is not None:
                    header = self.text[node.start_byte : body.start_byte]
                    for match in _MUTATED.finditer(header):
                        self._add_opaque(match.group(1) or match.group(2), body, chain, body.start_byte)
            elif kind == "unset_command":
                for child in node.named_children:
                    self._add_opaque(self._get_text(child), node, chain)
            elif kind in ("arithmetic_expansion", "compound_statement") and self.text.startswith(
                (b"((", b"$((", b"$["), node.start_byte
            ):
                text = self._get_text(node)
                self.arithmetic.append(text)
                for match in _MUTATED.finditer(text):
                    self._add_opaque(match.group(1) or match.group(2), node, chain)
            if len(chain) > MAX_CONDITIONS:
                line = self.text.count(b"\n", 0, node.start_byte) + 1
                raise LimitExceeded(f"nested deeper than {MAX_CONDITIONS} levels", Position(line, 1))
            children = node.children
            conditional = node.type in _CONDITIONAL  # `kind` may have been replaced for a declaration
            for index in range(len(children) - 1, -1, -1):
                child = children[index]
                if child.child_count or child.type in _LEAVES or (broken and child.is_missing):
                    child_chain = self._extend_chain(node, children, index, chain, chained) if conditional else chain
                    pending.append((child, child_chain, kind))

    def _extend_chain(
        self, node: SyntaxNode, children: list[SyntaxNode], index: int, chain: Chain, chained: dict[int, int]
    ) -> Chain:
        """Return the chain of conditions around a child."""
        child, kind = children[index], node.type
        if kind == "if_statement":
            clause = child.type in ("elif_clause", "else_clause")
            return (*chain, ("clause", child.id) if clause else ("then", node.id))
        if kind in ("while_statement", "for_statement", "c_style_for_statement"):
            return (*chain, ("loop", node.id))
        if kind == "function_definition":
            return (*chain, ("function", node.id))
        if kind in ("case_item", "subshell", "command_substitution", "process_substitution"):
            return (*chain, (kind, node.id))
        if kind == "pipeline":
            return (*chain, ("pipe", child.id))
        if kind == "list":
            if any(part.type == "||" for part in children):
                if not index:
                    return chain
                self.operands["or", child.id] = children[0]
                return (*chain, ("or", child.id))
            # a && b && c is a list within a list; a variable that b sets is also set for c.
            top = chained.setdefault(node.id, node.id)
            if index == 0:
                if child.type == "list":
                    chained[child.id] = top
                return chain
            self.operands["and", top] = children[0]  # in a && b && c: the operand of the innermost list, which is a
            return (*chain, ("and", top))
        return chain

    def list_sources(self) -> list[tuple[SyntaxNode, Chain, SyntaxNode]]:
        """Return the commands that source a file, each with the word that names the file; in source order."""
        sources = []
        for node, chain, _ in self.simple_commands:
            name = node.child_by_field_name("name")
            if name is not None and self._get_text(name) in (b"source", b"."):
                sources += [(node, chain, word) for word in node.children_by_field_name("argument")[:1]]
        return sorted(sources, key=lambda source: source[0].start_byte)

    def _get_text(self, node: SyntaxNode) -> bytes:
        return self.text[node.start_byte : node.end_byte]

    def _add_assignment(self, name: bytes, assignment: Assignment) -> None:
        key = name.decode("ascii", "replace")
        self.assignments.setdefault(key, []).append(assignment)
        functions = filter_steps(assignment.chain, "function")
        if functions and not assignment.is_local:
            self.owners.setdefault(key, set()).add(functions)

    def _add_opaque(self, name: bytes, node: SyntaxNode, chain: Chain, end: int | None = None) -> None:
        """Record that the value of a variable is unknown from this node on."""
        if NAME.fullmatch(name):
            self._add_assignment(
                name, Assignment("opaque", node.start_byte, node.end_byte if end is None else end, chain)
            )

    def _note_assignment(self, node: SyntaxNode, chain: Chain, local: bool) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        if name.type != "variable_name":  # ARRAY[1]=x
            self._add_opaque(self._get_text(name).split(b"[")[0], node, chain)
            return
        kind = "array" if value is not None and value.type == "array" else "string"
        assignment = Assignment(kind, node.start_byte, node.end_byte, chain, value)
        assignment.appends = any(child.type == "+=" for child in node.children)
        assignment.is_local = local
        if value is not None and value.type == "command_substitution":
            heredoc = _find_captured_heredoc(value, self.text)
            if not is_script_folder(self._get_text(value).decode("utf-8", "replace")):
                assignment.kind = "opaque"
            if heredoc is not None:
                assignment.kind, (assignment.node, assignment.is_quoted) = "capture", heredoc
        self._add_assignment(self._get_text(name), assignment)

    def _note_default(self, node: SyntaxNode, chain: Chain) -> None:
        """Record `${NAME:=word}`, which assigns a default to the variable."""
        match = _DEFAULT.match(self._get_text(node))
        if match is not None:
            self._add_assignment(match.group(1), Assignment("string", node.start_byte, node.end_byte, chain, node))

    def _note_declaration(self, node: SyntaxNode) -> str:
        """Record the exports of `export`, `declare`, `local` or `readonly`.

        Return the parent kind for its assignments: "local" if the variables are local to a function.
        """
        text = self._get_text(node)
        keyword = text.split(None, 1)[0]
        exports = keyword == b"export" or re.match(rb"(?:declare|typeset)\s+(?:-\w+\s+)*-\w*x", text)
        for child in node.named_children:
            name = child.child_by_field_name("name") if child.type == "variable_assignment" else child
            if exports and name is not None and name.type == "variable_name":
                self.exports.setdefault(self._get_text(name).decode("ascii", "replace"), node.start_byte)
        return "local" if keyword in (b"local", b"declare", b"typeset") else "declaration_command"

    def _note_builtin(self, node: SyntaxNode, chain: Chain, redirects: tuple[SyntaxNode, ...]) -> None:
        """Record commands that set variables (read, mapfile, getopts, printf -v, let, set) or end the script."""
        name = node.child_by_field_name("name")
        if name is None:
            return
        program = self._get_text(name)
        if program in _ENDING:
            command_arguments = [
                item for item in node.children_by_field_name("argument") if not self._is_descriptor(item)
            ]
            replaced = program != b"exec" or (
                bool(command_arguments) and b"$" not in self._get_text(command_arguments[0])
            )
            if replaced and (program != b"return" or self.is_body or filter_steps(chain, "function")):
                self.ends.setdefault(chain, node.start_byte)
        if program == b"shift":
            count = next(iter(node.children_by_field_name("argument")), None)
            self.shifts.append(Assignment("shift", node.start_byte, node.end_byte, chain, count))
        if program not in (b"read", b"mapfile", b"readarray", b"getopts", b"printf", b"let", b"set"):
            return
        arguments = [self._get_text(child) for child in node.children_by_field_name("argument")]
        if program == b"set":
            self.sets_arguments = self.sets_arguments or b"--" in arguments
            return
        names = [text for text in arguments if NAME.fullmatch(text)]
        if program == b"printf":
            names = names[:1] if b"-v" in arguments else []
        elif program == b"let":
            names = [match.group(1) or match.group(2) for text in arguments for match in _MUTATED.finditer(text)]
        elif program == b"read" and names:
            heredoc = next((item for redirect in redirects if (item := find_heredoc(redirect, self.text))), None)
            if heredoc is not None and any(text.startswith(b"-") and b"r" in text for text in arguments):
                assignment = Assignment("heredoc", node.start_byte, redirects[-1].end_byte, chain, heredoc[0])
                assignment.is_quoted = heredoc[1]
                self._add_assignment(names.pop(), assignment)
        for text in names:
            self._add_opaque(text, node, chain)

    def _is_descriptor(self, word: SyntaxNode) -> bool:
        """Return whether a word is the variable of a redirection (`{lock}>/tmp/lock`), which is not an argument."""
        following = self.text[word.end_byte : word.end_byte + 1]
        return following in (b"<", b">") and _DESCRIPTOR.fullmatch(self._get_text(word)) is not None


def filter_steps(chain: Chain, kind: str) -> frozenset[tuple[str, int]]:
    """Return the steps of one kind in a chain."""
    if not chain:
        return _NO_STEPS
    return frozenset(step for step in chain if step[0] == kind)


def find_heredoc(redirect: SyntaxNode, text: bytes) -> tuple[SyntaxNode, bool] | None:
    """Return the body of a heredoc and whether its delimiter is quoted, or None if the redirection has no heredoc.

    The tabs that `<<-` strips are kept, because word splitting removes them anyway.
    """
    if redirect.type != "heredoc_redirect":
        return None
    body = quoted = None
    for child in redirect.children:
        if child.type == "heredoc_body":
            body = child
        elif child.type == "heredoc_start":
            quoted = any(quote in text[child.start_byte : child.end_byte] for quote in (b"'", b'"', b"\\"))
    return None if body is None else (body, bool(quoted))


def _find_piped_commands(redirect: SyntaxNode) -> Iterator[int]:
    """Yield the identity of the command that reads a heredoc through a pipe; the grammar puts it into the heredoc."""
    pipelines = (child for child in redirect.named_children if child.type == "pipeline")
    for pipeline in pipelines:
        yield from (child.id for child in pipeline.named_children[:1] if child.type == "command")


def _find_captured_heredoc(node: SyntaxNode, text: bytes) -> tuple[SyntaxNode, bool] | None:
    """Return the heredoc of `$(cat <<EOF ... EOF)`, as `find_heredoc` does."""
    children = node.named_children
    if len(children) != 1 or children[0].type != "redirected_statement":
        return None
    body = children[0].child_by_field_name("body")
    if body is None or text[body.start_byte : body.end_byte] != b"cat":
        return None
    return next((heredoc for child in children[0].children if (heredoc := find_heredoc(child, text))), None)
