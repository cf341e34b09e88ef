"""Source of a framework that is copied into the repository: conditions on settings and arguments of calls.

Conditions come from `assert`, `if` and `elif`, and from calls of functions that raise. An assert and a branch that
raises count as stopping the program; a call of a function that raises does so for some values.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from cfglint_train.documents.python.syntax import get_callee_name, parse_tree
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final, Literal

_WHOLE: Final = ("config", "cfg", "args")
"""Ends of the names of attributes that hold a whole configuration, not a group of it."""
_OWNERS: Final[Mapping[str, tuple[str, ...]]] = {"self": ("Config",), "self.config": ("Worker",)}
"""Expressions for the settings of a class -> the ends of names of classes that hold one group of settings."""
_KINDS: Final = frozenset(end.lower() for ends in _OWNERS.values() for end in ends)
"""Words in the names of most of these classes, and of many groups."""
_OWNED: Final = "::"
"""Separator of a class and its setting."""
_CAPITALIZED: Final = compile_on_use(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]+")
_IMPORT: Final = compile_on_use(rb"(?m)^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)")
MAX_READ: Final = 8 * 2**20
"""Maximum total bytes that are read from a copy."""


Condition = tuple[frozenset[str], Literal["stop", "call", "test"]]
"""Words of a condition, and whether it stops the program: always, by a call of a function that raises, or not."""


class CopiedCode:
    """The Python files below a folder; they are read on the first query."""

    def __init__(self, folder: str) -> None:
        """Store the folder; nothing is read yet."""
        self._folder = folder
        self._texts: dict[str, bytes] | None = None
        self._beside: list[bytes] | None = None
        self._programs: dict[str, list[bytes]] = {}
        self._reads: dict[str, bool] = {}
        self._conditions: dict[str, list[Condition]] = {}
        self._answers: dict[tuple[frozenset[str], bool, bool], bool] = {}
        self._passed_values: dict[tuple[str, str, str], frozenset[object] | None] = {}

    def has_condition(self, words: Collection[str], stops: bool, calls: bool = False) -> bool:
        """Return whether one condition contains all `words`: names of settings and the values compared with them.

        A name may have its group before it (`critic.lr`), which a name on a variable (`self.lr`) matches too. With
        `stops`, only asserts and conditions that lead to a raise count. With `calls`, calls of functions that raise are
        conditions, too.
        """
        query = (frozenset(words), stops, calls)
        if query not in self._answers:
            self._answers[query] = bool(words) and self._search_conditions(*query)
        return self._answers[query]

    def find_passed_values(self, function: str, callee_name: str, argument: str) -> frozenset[object] | None:
        """Return the values that calls pass for a keyword argument, or None if there is no call.

        Only calls of `callee_name` in functions called `function` count. The values are constants; None stands for a
        call that omits the argument or passes an expression.
        """
        query = (function, callee_name, argument)
        if query not in self._passed_values:
            parts = (b"def " + function.encode(), callee_name.encode() + b"(")
            texts = [text for text in self._load_files().values() if all(part in text for part in parts)]
            calls = [call for text in texts for call in _find_calls(text, function, callee_name)]
            self._passed_values[query] = frozenset(_find_constant(call, argument) for call in calls) if calls else None
        return self._passed_values[query]

    def can_read(self, name: str) -> bool:
        """Return whether code may read a key that is added to a configuration.

        The copy may read it from a variable `config`, which can be any mapping; a package that the copy imports, and
        that lies beside it, also from a mapping of the whole configuration.
        """
        if name not in self._reads:
            self._reads[name] = self._search_reads(name)
        return self._reads[name]

    def has_word_beside(self, name: str, module: str) -> bool:
        """Return whether code beside the copy has a name: the folder of a program, or a package that it imports."""
        top = module.partition(".")[0]
        if top not in self._programs:
            texts = [text for _, text in _read_files(f"{os.path.dirname(self._folder)}/{top}")]
            self._programs[top] = [*texts, *_read_beside(self._folder, texts)]
        word = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
        return any(map(word.search, self._programs[top]))

    def has_text(self, word: str) -> bool:
        """Return whether code of the copy, or of a package beside it, has a word as a string."""
        quoted = [mark + word.encode("utf-8", "surrogatepass") + mark for mark in (b'"', b"'")]
        texts = (*self._load_files().values(), *self._load_beside())
        return any(text in other for other in texts for text in quoted)

    def _load_beside(self) -> list[bytes]:
        if self._beside is None:
            self._beside = list(_read_beside(self._folder, self._load_files().values()))
        return self._beside

    def _search_reads(self, name: str) -> bool:
        key = rb"(?:\.|(?:\.get\(|\[)\s*[\"'])" + re.escape(name.encode()) + rb"\b"
        inside = re.compile(rb"\b(?:config|cfg)" + key)
        outside = re.compile(rb"(?:config|cfg)(?:\.\w+|\[[\"']\w+[\"']\])*" + key)
        return any(map(inside.search, self._load_files().values())) or any(map(outside.search, self._load_beside()))

    def _load_files(self) -> dict[str, bytes]:
        if self._texts is None:
            self._texts = dict(_read_files(self._folder))
        return self._texts

    def _search_conditions(self, words: frozenset[str], stops: bool, calls: bool) -> bool:
        for path, text in self._load_files().items():
            if not all(word.rpartition(".")[2].encode("utf-8", "surrogatepass") in text for word in words):
                continue
            if path not in self._conditions:
                self._conditions[path] = _parse_conditions(text)
            if any(
                (kind == "stop" or (calls and kind == "call") or (not stops and kind == "test"))
                and all(_has_word(condition, word) for word in words)
                for condition, kind in self._conditions[path]
            ):
                return True
        return False


def _read_beside(folder: str, texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the texts of the packages and modules beside a copy that files of the copy import."""
    root, package = os.path.split(folder)
    names = {match.decode() for text in texts for match in _IMPORT.findall(text)}
    for name in sorted(names - {package}):
        if filesystem.is_folder(f"{root}/{name}") and not filesystem.is_link(f"{root}/{name}"):
            yield from (text for _, text in _read_files(f"{root}/{name}"))
        elif filesystem.is_file(f"{root}/{name}.py"):
            with contextlib.suppress(OSError):
                yield regular_files.read(f"{root}/{name}.py")


def _read_files(folder: str) -> Iterator[tuple[str, bytes]]:
    size = 0
    for path in _list_modules(folder):
        try:
            text = regular_files.read(path)
        except OSError:
            continue
        size += len(text)
        if size > MAX_READ:
            return
        yield path, text


def _parse_conditions(text: bytes) -> list[Condition]:
    try:
        tree = _parse_tree(text)
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        refusing = frozenset(function.name for function in functions if _raises(function))
        return list(_find_conditions(tree.body, frozenset(), refusing))
    except RecursionError:
        return []


def _parse_tree(text: bytes) -> ast.Module:
    return parse_tree(text.decode("utf-8-sig", "replace"))


def _find_calls(text: bytes, function: str, callee_name: str) -> Iterator[ast.Call]:
    """Yield the calls of `callee_name`, as a function or a method, in the functions called `function`."""
    for node in ast.walk(_parse_tree(text)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and callee_name == get_callee_name(call):
                    yield call


def _find_constant(call: ast.Call, argument: str) -> object:
    value = next((keyword.value for keyword in call.keywords if keyword.arg == argument), None)
    return value.value if isinstance(value, ast.Constant) else None


def _list_modules(folder: str) -> Iterator[str]:
    for folder_path, folders, names in filesystem.walk(folder):
        folders[:] = sorted(name for name in folders if "." not in name)
        yield from (os.path.join(folder_path, name) for name in sorted(names) if name.endswith(".py"))


def _raises(function: ast.FunctionDef) -> bool:
    """Return whether a function has a `raise` of its own, and is not abstract."""
    if all(_is_abstract(statement) for statement in function.body):
        return False
    inner = (node for item in function.body for node in ast.walk(item) if isinstance(node, ast.FunctionDef))
    nested = {id(node) for definition in inner for node in ast.walk(definition)}
    return any(isinstance(node, ast.Raise) and id(node) not in nested for node in ast.walk(function))


def _is_abstract(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring or raises NotImplementedError."""
    if isinstance(statement, ast.Raise):
        error = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(error, ast.Name) and error.id == "NotImplementedError"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _find_conditions(
    body: Iterable[ast.stmt], outer_words: frozenset[str], refusing: frozenset[str], owner: str = ""
) -> Iterator[Condition]:
    """Yield the words of each condition and its enclosing branches, and whether the condition stops the program.

    A call of one of the functions in `refusing` is a condition on its arguments. `owner`: the class that the statements
    belong to.
    """
    for statement in body:
        if isinstance(statement, ast.Assert):
            yield outer_words | _collect_words(statement.test, owner), "stop"
        elif isinstance(statement, ast.Raise):
            yield outer_words, "stop"
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            if get_callee_name(statement.value) in refusing:
                values = (*statement.value.args, *(item.value for item in statement.value.keywords))
                yield outer_words.union(*(_collect_words(item, owner) for item in values)), "call"
        elif isinstance(statement, ast.If):
            branch_words = outer_words | _collect_words(statement.test, owner)
            yield branch_words, "test"
            yield from _find_conditions(statement.body, branch_words, refusing, owner)
            yield from _find_conditions(statement.orelse, outer_words, refusing, owner)
        else:
            inner = frozenset() if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else outer_words
            inner_owner = statement.name if isinstance(statement, ast.ClassDef) else owner
            for part in ("body", "orelse", "finalbody"):
                yield from _find_conditions(getattr(statement, part, ()), inner, refusing, inner_owner)


def _has_word(condition: frozenset[str], word: str) -> bool:
    group, _, name = word.rpartition(".")
    if word in condition or (group and f".{name}" in condition):
        return True
    ending = f"{_OWNED}{name}"
    return bool(group) and any(
        _is_of_group(other.removesuffix(ending), group) for other in condition if other.endswith(ending)
    )


def _is_of_group(owner: str, group: str) -> bool:
    """Return whether a class may hold a group of settings: both names have a word in common, or the start of one.

    The kind of a class does not count.
    """
    words = {word.lower() for word in _CAPITALIZED.findall(owner)} - _KINDS
    parts = group.rpartition(".")[2].lower().split("_")
    return any(word.startswith(part[:4]) or part.startswith(word) for word in words for part in parts if part)


def _format_name(node: ast.expr) -> str:
    """Return a name, or a name with one attribute, as text; an empty string for any other expression."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _collect_words(test: ast.expr, owner: str) -> frozenset[str]:
    """Return the names, attributes and strings in an expression.

    An attribute is also listed after its group, or after a dot if it belongs to a variable or a whole configuration. An
    attribute of a class of settings, or of the settings of a worker, is listed after the class.
    """
    words: set[str] = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            words.update((node.id, f".{node.id}"))
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
            group = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            if owner.endswith(_OWNERS.get(_format_name(node.value), ())):
                words.add(f"{owner}{_OWNED}{node.attr}")
            else:
                words.add(f".{node.attr}" if group.endswith(_WHOLE) else f"{group}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return frozenset(words)
