"""Commands in a Python program: strings, lists of words, and additions to these lists.

Nothing is executed. A part that cannot be determined becomes a shell variable named after the expression.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence

from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)
_ADD_METHODS: Final = ("append", "extend")
_PLACEHOLDER: Final = compile_on_use(r"\{[^{}]*\}|%[sdif]")
_NON_WORD: Final = compile_on_use(r"\W+")
_IDENTITY_FUNCTIONS: Final = ("abspath", "expanduser", "fspath", "quote", "realpath", "str")
"""Functions that return their text argument essentially unchanged."""
_MAX_DEPTH: Final = 20
"""Maximum nesting of names that are defined in terms of other names."""
MAX_STEPS: Final = 20_000
"""Maximum number of expressions and statements that are evaluated in one program."""

TextPart = tuple[str, bool]
"""A part of a string and whether it is known. An unknown part is represented by a variable name."""


class ProgramWord(Frozen):
    """A word of a command, quoted for the shell, with its place in the program."""

    text: str
    line: int
    column: int


class _Assignment(Frozen):
    """A statement that defines a name or adds to its value."""

    node: ast.stmt
    value: ast.expr
    adds: bool
    single: bool = False
    """True if the statement adds a single word (`append`)."""


class NameValues:
    """Values of names in a program, as far as its source shows them."""

    def __init__(self, tree: ast.Module, file_name: str = "") -> None:
        """Collect the assignments of the program; `file_name` is what `__file__` stands for, if it is known."""
        self._tree = tree
        self._file_name = file_name
        self._parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._assignments: dict[str, list[_Assignment]] = {}
        for name, assignment in _find_assignments(tree):
            self._assignments.setdefault(name, []).append(assignment)
        self._depth = 0
        self._steps_left = MAX_STEPS

    def is_list(self, node: ast.expr) -> bool:
        """Return whether an expression is a list of words rather than a single string."""
        self._steps_left -= 1
        if isinstance(node, ast.BinOp) and self._steps_left > 0:
            return self.is_list(node.left) or self.is_list(node.right)
        if isinstance(node, ast.Call):
            return get_callee_name(node) in ("split", "list")
        if isinstance(node, ast.Name) and self._can_continue():
            self._depth += 1
            value, _ = self._find_value(node)
            is_list_value = value is not None and self.is_list(value)
            self._depth -= 1
            return is_list_value
        return isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Starred))

    def list_words(self, node: ast.expr) -> list[ProgramWord]:
        """Return the words of a list; an unknown number of words becomes one unquoted variable."""
        self._depth += 1
        words = self._list_words(node) if self._can_continue() else [_build_unknown_word(node)]
        self._depth -= 1
        return words

    def _can_continue(self) -> bool:
        self._steps_left -= 1
        return self._steps_left > 0 and self._depth < _MAX_DEPTH

    def _list_words(self, node: ast.expr) -> list[ProgramWord]:
        if isinstance(node, (ast.List, ast.Tuple)):
            return [word for item in node.elts for word in self.list_words(item)]
        if isinstance(node, ast.Starred):
            return self.list_words(node.value) if self.is_list(node.value) else [_build_unknown_word(node.value)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self.is_list(node):
            return [*self.list_words(node.left), *self.list_words(node.right)]
        if isinstance(node, ast.Call) and get_callee_name(node) == "split":
            text = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else node
            return [ProgramWord(self.build_text(text), node.lineno, node.col_offset)]
        if isinstance(node, ast.Call) and get_callee_name(node) == "list" and len(node.args) == 1:
            return self.list_words(node.args[0])
        if isinstance(node, ast.Name) and self.is_list(node):
            value, additions = self._find_value(node)
            words = [] if value is None else self.list_words(value)
            for item, is_sure in additions:
                added_words = [self._build_word(item.value)] if item.single else self.list_words(item.value)
                words += added_words if is_sure else [_build_unknown_word(item.value)]
            return words
        return [_build_unknown_word(node)] if isinstance(node, (ast.ListComp, ast.IfExp)) else [self._build_word(node)]

    def _build_word(self, node: ast.expr) -> ProgramWord:
        pieces = self._split_pieces(node)
        if all(is_known for _, is_known in pieces):
            text = shlex.quote("".join(part for part, _ in pieces))
        else:
            quoted = (re.sub(r"([\\\"$`])", r"\\\1", part) if is_known else f"${{{part}}}" for part, is_known in pieces)
            text = f'"{"".join(quoted)}"'
        return ProgramWord(text, node.lineno, node.col_offset)

    def build_text(self, node: ast.expr) -> str:
        """Return a string expression as shell source, with unknown parts as variables."""
        return "".join(part if is_known else f"${{{part}}}" for part, is_known in self._split_pieces(node))

    def _split_pieces(self, node: ast.expr) -> list[TextPart]:
        """Return the known and unknown parts of a string expression."""
        self._depth += 1
        pieces = self._evaluate_pieces(node) if self._can_continue() else [_name_unknown(node)]
        self._depth -= 1
        return pieces

    def _evaluate_pieces(self, node: ast.expr) -> list[TextPart]:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            return [(str(node.value), True)]
        if isinstance(node, ast.JoinedStr):
            return [piece for item in node.values for piece in self._split_pieces(item)]
        if isinstance(node, ast.FormattedValue):
            return self._split_pieces(node.value) if node.format_spec is None else [_name_unknown(node.value)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self._split_pieces(node.left), *self._split_pieces(node.right)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return _fill_template(node.left, node.right)
        if isinstance(node, ast.Attribute) and node.attr == "executable":
            return [("python", True)]
        if isinstance(node, ast.Name) and node.id == "__file__" and self._file_name:
            return [(self._file_name, True)]
        if isinstance(node, ast.Call):
            return self._evaluate_call(node)
        if isinstance(node, ast.Name):
            value, additions = self._find_value(node)
            if value is None or not all(is_sure and not item.single for item, is_sure in additions):
                return [_name_unknown(node)]
            return [
                piece for item in (value, *(item.value for item, _ in additions)) for piece in self._split_pieces(item)
            ]
        return [_name_unknown(node)]

    def _evaluate_call(self, node: ast.Call) -> list[TextPart]:
        """Return the parts of `str(x)`, `"{}".format(x)`, `" ".join(words)` or `os.path.join(folder, name)`."""
        owner, name = node.func.value if isinstance(node.func, ast.Attribute) else None, get_callee_name(node)
        if name in _IDENTITY_FUNCTIONS and len(node.args) == 1:
            return self._split_pieces(node.args[0])
        if name == "format" and owner is not None:
            return _fill_template(owner, node.args[0] if len(node.args) == 1 else node)
        if name == "join" and isinstance(owner, ast.Constant) and owner.value == " " and len(node.args) == 1:
            return [(" ".join(word.text for word in self.list_words(node.args[0])), True)]
        if name == "join" and isinstance(owner, ast.Attribute) and owner.attr == "path":
            parts = [self._split_pieces(item) for item in node.args]
            return [piece for index, part in enumerate(parts) for piece in ([("/", True)] if index else []) + part]
        return [_name_unknown(node)]

    def find_parameter(self, node: ast.expr) -> tuple[str, int, str] | None:
        """Return the function, index and name of a parameter, or None if the expression is not a parameter.

        The index does not count `self` or `cls`.
        """
        scope = self._find_scope(node)
        if not isinstance(node, ast.Name) or not isinstance(scope, _FUNCTIONS) or self._find_value(node)[0] is not None:
            return None
        names = [argument.arg for argument in (*scope.args.posonlyargs, *scope.args.args)]
        if node.id not in names:
            return None
        is_method = names[0] in ("self", "cls")
        return scope.name, names.index(node.id) - is_method, node.id

    def _find_value(self, name: ast.Name) -> tuple[ast.expr | None, list[tuple[_Assignment, bool]]]:
        """Return the value of a name where it is used, and the additions to that value.

        Each addition is paired with whether it certainly applies.
        """
        scope = self._find_scope(name)
        assignments = [
            assignment
            for assignment in self._assignments.get(name.id, ())
            if self._find_scope(assignment.node) is scope
        ]
        path = self._find_path(name)
        if not assignments and scope is not self._tree:
            assignments = [
                assignment
                for assignment in self._assignments.get(name.id, ())
                if self._find_scope(assignment.node) is self._tree
            ]
            path = []
        else:
            assignments = [
                assignment
                for assignment in assignments
                if assignment.node.lineno <= name.lineno and not self._is_inside(assignment.node, name)
            ]
        self._steps_left -= len(assignments)
        value: ast.expr | None = None
        additions: list[tuple[_Assignment, bool]] = []
        for assignment in sorted(assignments, key=lambda assignment: assignment.node.lineno):
            own_path = self._find_path(assignment.node)
            if _is_other_branch(own_path, path):
                continue
            is_sure = own_path == path[: len(own_path)]
            if assignment.adds:
                additions.append((assignment, is_sure))
            else:
                value, additions = (assignment.value if is_sure else None), []
        return value, additions

    def _find_scope(self, node: ast.AST) -> ast.AST:
        parent = self._parents.get(id(node))
        while parent is not None and not isinstance(parent, (*_FUNCTIONS, ast.Module)):
            parent = self._parents.get(id(parent))
        return parent or self._tree

    def _is_inside(self, statement: ast.stmt, node: ast.AST) -> bool:
        """Return whether a node is an expression in `statement`; always false for a `for` loop."""
        parent: ast.AST | None = node
        while isinstance(parent, (ast.expr, ast.keyword, ast.comprehension, ast.arguments)):
            parent = self._parents.get(id(parent))
        return parent is statement and not isinstance(statement, (ast.For, ast.AsyncFor))

    def _find_path(self, node: ast.AST) -> list[tuple[int, bool]]:
        """Return the conditions and loops around a node in its function, outermost first.

        Each is paired with whether the node is in its `else` branch.
        """
        path: list[tuple[int, bool]] = []
        parent = self._parents.get(id(node))
        while parent is not None and not isinstance(parent, (*_FUNCTIONS, ast.Module)):
            if isinstance(parent, _BLOCKS):
                path.append((id(parent), isinstance(parent, ast.If) and node in parent.orelse))
            node, parent = parent, self._parents.get(id(parent))
        return path[::-1]


def _is_other_branch(first: Sequence[tuple[int, bool]], second: Sequence[tuple[int, bool]]) -> bool:
    return any(step[0] == other[0] and step[1] != other[1] for step, other in zip(first, second, strict=False))


def _find_assignments(tree: ast.Module) -> Iterator[tuple[str, _Assignment]]:
    """Yield the statements that define a name or add to its value, each with the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, _Assignment(node, node.value, False)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, _Assignment(node, node.value, False)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _Assignment(node, node.value, True)
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and get_callee_name(node.value) in _ADD_METHODS
        ):
            call = node.value
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and len(call.args) == 1:
                yield owner.id, _Assignment(node, call.args[0], True, get_callee_name(call) == "append")
        elif isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Name):
            yield node.target.id, _Assignment(node, node.iter, True)


def _fill_template(template: ast.expr, argument: ast.expr) -> list[TextPart]:
    """Return the constant parts of a template (`"%s.yaml" % name`) with an unknown part for each placeholder."""
    if not isinstance(template, ast.Constant) or not isinstance(template.value, str):
        return [_name_unknown(argument)]
    parts = _PLACEHOLDER.split(template.value)
    name = _name_unknown(argument)
    return [piece for index, part in enumerate(parts) for piece in (([name] if index else []) + [(part, True)])]


def _name_unknown(node: ast.expr) -> TextPart:
    """Return an unknown part: the name of a variable derived from the expression."""
    name = _NON_WORD.sub("_", ast.unparse(node)).strip("_")[:40] or "x"
    return (name if not name[0].isdigit() else f"_{name}"), False


def _build_unknown_word(node: ast.expr) -> ProgramWord:
    return ProgramWord(f"${{{_name_unknown(node)[0]}}}", node.lineno, node.col_offset)
