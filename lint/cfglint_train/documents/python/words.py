"""What a Python program shows of the words of a command: texts, lists of them, and what is added to such a list.

Nothing is executed. What cannot be determined becomes a shell's variable that is called as it is in the program.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence

from cfglint_train.documents.python.syntax import callee
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)
_ADDS: Final = ("append", "extend")
_PLACES: Final = re.compile(r"\{[^{}]*\}|%[sdif]")
_NO_NAME: Final = re.compile(r"\W+")
_SAME: Final = ("str", "fspath", "quote", "expanduser")
"""Functions that give the text that they are given."""
_DEEPEST: Final = 20
"""Names that are made of each other."""
MAX_STEPS: Final = 20_000
"""Expressions and statements that are looked at in one program."""

Piece = tuple[str, bool]
"""A part of a text, and whether it is known; else it is what the program calls it."""


class Word(Frozen):
    """One word of a command as a shell has to get it, and where it is in the program."""

    text: str
    line: int
    column: int


class _Given(Frozen):
    """A statement that makes a name, or adds to it."""

    node: ast.stmt
    value: ast.expr
    adds: bool
    single: bool = False
    """It adds one word."""


class Values:
    """The values of names in a program, as far as its text shows them."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._above = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._given: dict[str, list[_Given]] = {}
        for name, one in _statements(tree):
            self._given.setdefault(name, []).append(one)
        self._depth = 0
        self._left = MAX_STEPS

    def is_list(self, node: ast.expr) -> bool:
        """Whether an expression is a list of words, not one text."""
        self._left -= 1
        if isinstance(node, ast.BinOp) and self._left > 0:
            return self.is_list(node.left) or self.is_list(node.right)
        if isinstance(node, ast.Call):
            return callee(node) in ("split", "list")
        if isinstance(node, ast.Name) and self._goes_on():
            self._depth += 1
            made, _ = self._made(node)
            found = made is not None and self.is_list(made)
            self._depth -= 1
            return found
        return isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Starred))

    def words(self, node: ast.expr) -> list[Word]:
        """The words that a list is made of; any number of them are one variable without quotes."""
        self._depth += 1
        found = self._words(node) if self._goes_on() else [_any(node)]
        self._depth -= 1
        return found

    def _goes_on(self) -> bool:
        self._left -= 1
        return self._left > 0 and self._depth < _DEEPEST

    def _words(self, node: ast.expr) -> list[Word]:
        if isinstance(node, (ast.List, ast.Tuple)):
            return [word for one in node.elts for word in self.words(one)]
        if isinstance(node, ast.Starred):
            return self.words(node.value) if self.is_list(node.value) else [_any(node.value)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self.is_list(node):
            return [*self.words(node.left), *self.words(node.right)]
        if isinstance(node, ast.Call) and callee(node) == "split":
            whole = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else node
            return [Word(self.text(whole), node.lineno, node.col_offset)]
        if isinstance(node, ast.Call) and callee(node) == "list" and len(node.args) == 1:
            return self.words(node.args[0])
        if isinstance(node, ast.Name) and self.is_list(node):
            made, added = self._made(node)
            found = [] if made is None else self.words(made)
            for one, is_sure in added:
                more = [self._word(one.value)] if one.single else self.words(one.value)
                found += more if is_sure else [_any(one.value)]
            return found
        return [_any(node)] if isinstance(node, (ast.ListComp, ast.IfExp)) else [self._word(node)]

    def _word(self, node: ast.expr) -> Word:
        pieces = self._pieces(node)
        if all(known for _, known in pieces):
            text = shlex.quote("".join(part for part, _ in pieces))
        else:
            quoted = (re.sub(r"([\\\"$`])", r"\\\1", part) if known else f"${{{part}}}" for part, known in pieces)
            text = f'"{"".join(quoted)}"'
        return Word(text, node.lineno, node.col_offset)

    def text(self, node: ast.expr) -> str:
        """A text that a shell reads."""
        return "".join(part if known else f"${{{part}}}" for part, known in self._pieces(node))

    def _pieces(self, node: ast.expr) -> list[Piece]:
        """The parts of a text."""
        self._depth += 1
        found = self._parts(node) if self._goes_on() else [_unknown(node)]
        self._depth -= 1
        return found

    def _parts(self, node: ast.expr) -> list[Piece]:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            return [(str(node.value), True)]
        if isinstance(node, ast.JoinedStr):
            return [piece for one in node.values for piece in self._pieces(one)]
        if isinstance(node, ast.FormattedValue):
            return self._pieces(node.value) if node.format_spec is None else [_unknown(node.value)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self._pieces(node.left), *self._pieces(node.right)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return _filled(node.left, node.right)
        if isinstance(node, ast.Attribute) and node.attr == "executable":
            return [("python", True)]
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.Name):
            made, added = self._made(node)
            if made is None or not all(is_sure and not one.single for one, is_sure in added):
                return [_unknown(node)]
            return [piece for one in (made, *(one.value for one, _ in added)) for piece in self._pieces(one)]
        return [_unknown(node)]

    def _of_call(self, node: ast.Call) -> list[Piece]:
        """`str(x)`, `"{}".format(x)`, `" ".join(words)`, `os.path.join(folder, name)`."""
        owner, name = node.func.value if isinstance(node.func, ast.Attribute) else None, callee(node)
        if name in _SAME and len(node.args) == 1:
            return self._pieces(node.args[0])
        if name == "format" and owner is not None:
            return _filled(owner, node.args[0] if len(node.args) == 1 else node)
        if name == "join" and isinstance(owner, ast.Constant) and owner.value == " " and len(node.args) == 1:
            return [(" ".join(word.text for word in self.words(node.args[0])), True)]
        if name == "join" and isinstance(owner, ast.Attribute) and owner.attr == "path":
            parts = [self._pieces(one) for one in node.args]
            return [piece for index, part in enumerate(parts) for piece in ([("/", True)] if index else []) + part]
        return [_unknown(node)]

    def parameter(self, node: ast.expr) -> tuple[str, int, str] | None:
        """The function whose parameter an expression is, with the parameter's place and name; None for others."""
        scope = self._scope(node)
        if not isinstance(node, ast.Name) or not isinstance(scope, _FUNCTIONS) or self._made(node)[0] is not None:
            return None
        names = [one.arg for one in (*scope.args.posonlyargs, *scope.args.args)]
        if node.id not in names:
            return None
        is_method = names[0] in ("self", "cls")
        return scope.name, names.index(node.id) - is_method, node.id

    def _made(self, name: ast.Name) -> tuple[ast.expr | None, list[tuple[_Given, bool]]]:
        """What a name is made of where it is used, and what is added to that, each with whether it is for certain."""
        scope = self._scope(name)
        given = [one for one in self._given.get(name.id, ()) if self._scope(one.node) is scope]
        path = self._path(name)
        if not given and scope is not self._tree:
            given = [one for one in self._given.get(name.id, ()) if self._scope(one.node) is self._tree]
            path = []
        else:
            given = [one for one in given if one.node.lineno <= name.lineno and not self._holds(one.node, name)]
        self._left -= len(given)
        made: ast.expr | None = None
        added: list[tuple[_Given, bool]] = []
        for one in sorted(given, key=lambda one: one.node.lineno):
            own = self._path(one.node)
            if _is_other_branch(own, path):
                continue
            is_sure = own == path[: len(own)]
            if one.adds:
                added.append((one, is_sure))
            else:
                made, added = (one.value if is_sure else None), []
        return made, added

    def _scope(self, node: ast.AST) -> ast.AST:
        above = self._above.get(id(node))
        while above is not None and not isinstance(above, (*_FUNCTIONS, ast.Module)):
            above = self._above.get(id(above))
        return above or self._tree

    def _holds(self, statement: ast.stmt, node: ast.AST) -> bool:
        """Return whether a node is in a statement that has no others in it."""
        above: ast.AST | None = node
        while isinstance(above, (ast.expr, ast.keyword, ast.comprehension, ast.arguments)):
            above = self._above.get(id(above))
        return above is statement and not isinstance(statement, (ast.For, ast.AsyncFor))

    def _path(self, node: ast.AST) -> list[tuple[int, bool]]:
        """The conditions and loops around a node in its function, from outside in, each with whether it is in the
        `else` of it.
        """
        found: list[tuple[int, bool]] = []
        above = self._above.get(id(node))
        while above is not None and not isinstance(above, (*_FUNCTIONS, ast.Module)):
            if isinstance(above, _BLOCKS):
                found.append((id(above), isinstance(above, ast.If) and node in above.orelse))
            node, above = above, self._above.get(id(above))
        return found[::-1]


def _is_other_branch(own: Sequence[tuple[int, bool]], path: Sequence[tuple[int, bool]]) -> bool:
    return any(mine[0] == other[0] and mine[1] != other[1] for mine, other in zip(own, path, strict=False))


def _statements(tree: ast.Module) -> Iterator[tuple[str, _Given]]:
    """The statements that make names or add to them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, _Given(node, node.value, False)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, _Given(node, node.value, False)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _Given(node, node.value, True)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and callee(node.value) in _ADDS:
            call = node.value
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and len(call.args) == 1:
                yield owner.id, _Given(node, call.args[0], True, callee(call) == "append")
        elif isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Name):
            yield node.target.id, _Given(node, node.iter, True)


def _filled(template: ast.expr, given: ast.expr) -> list[Piece]:
    """A text with places for others (`"%s.yaml" % name`): what is between them."""
    if not isinstance(template, ast.Constant) or not isinstance(template.value, str):
        return [_unknown(given)]
    parts = _PLACES.split(template.value)
    name = _unknown(given)
    return [piece for index, part in enumerate(parts) for piece in (([name] if index else []) + [(part, True)])]


def _unknown(node: ast.expr) -> Piece:
    """A variable that is called as an expression is written."""
    name = _NO_NAME.sub("_", ast.unparse(node)).strip("_")[:40] or "x"
    return (name if not name[0].isdigit() else f"_{name}"), False


def _any(node: ast.expr) -> Word:
    return Word(f"${{{_unknown(node)[0]}}}", node.lineno, node.col_offset)
