"""What a Python file does with the configurations that it loads. It is read as text and never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from cfglint_train.documents.document import Route
from cfglint_train.documents.python.layers import Layers
from cfglint_train.documents.python.syntax import imported, tree_of
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_LOAD: Final = re.compile(r"(?:safe_|full_|unsafe_|round_trip_)?loads?|compose|from_(?:yaml|json)")
_OF: Final = re.compile(r"\b(?:yaml|YAML|json|json5|orjson|ujson|OmegaConf|hydra|Box)\b")
"""What reads YAML or JSON: modules and classes. Others that load (torch, pickle) read something else."""
_HELPER: Final = re.compile(r"(?:^|[._])(?:load|read)_(?:\w+_)?(?:ya?ml|json|conf|cfg|config)(?:_|$)", re.IGNORECASE)
_COPIES: Final = re.compile(r"(?:dict|copy|deepcopy|create|(?:unsafe_)?merge|to_container|to_object|[A-Z]\w*)")
"""Functions and classes that make the same mapping of another one."""
_MERGES: Final = ("merge", "unsafe_merge")
"""Those that make it of several."""
_FILE: Final = re.compile(r"[\w.*-]\.(?:ya?ml|json)$", re.IGNORECASE)
_GIVEN: Final = re.compile(r"\b(?:argv|environ|getenv|parse_args|parse_known_args|input)\b")
_ROUNDS: Final = 3
"""How far a loaded mapping is followed from function to function."""


class Handled(Frozen):
    """Routes of settings, by what becomes of them."""

    changed: frozenset[Route] = frozenset()
    """Stored or taken out: what the file says of them is not what the framework gets."""
    read: frozenset[Route] = frozenset()
    """Only looked at."""
    open: frozenset[Route] = frozenset()
    """Mappings over which another one is laid whose keys cannot be determined."""


class PythonFiller:
    """One Python file. Names are taken for the same thing wherever they are in it."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._nodes = nodes
        self._strings: frozenset[str] | None = None
        self._replaced: frozenset[str] | None = None
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._modules = imported(nodes)
        self._assigned: dict[str, list[ast.expr]] = {}
        """Variable -> all that it is given, arguments of the functions of the file included."""
        for node in nodes:
            for name, value in self._bindings(node):
                self._assigned.setdefault(name, []).append(value)
        self._loads = [node for node in nodes if isinstance(node, ast.Call) and self._is_load(node)]
        self._handled: dict[frozenset[int], Handled] = {}

    @property
    def strings(self) -> frozenset[str]:
        """The strings of its code, with `{}` for what they are filled with: no docstrings."""
        if self._strings is None:
            remarks = {id(node.value) for node in self._nodes if isinstance(node, ast.Expr)}
            strings = (_string(node) for node in self._nodes if id(node) not in remarks)
            self._strings = frozenset(string for string in strings if string)
        return self._strings

    @property
    def replaced(self) -> frozenset[str]:
        """The constant texts that it replaces in others: `text.replace("MARK", value)`; `{lr}` by `text.format(lr=1)`;
        `%(lr)` by `text % {"lr": 1}`, whatever conversion is behind it.
        """
        if self._replaced is None:
            self._replaced = frozenset(mark for node in self._nodes for mark in self._marks(node) if mark)
        return self._replaced

    def _marks(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield from (f"%({name})" for name in self._names(node.right))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "replace" and len(node.args) > 1:
                yield _string(node.args[0])
            elif node.func.attr == "format":
                for word in node.keywords:
                    yield from (f"{{{name}}}" for name in ((word.arg,) if word.arg else self._names(word.value)))
            elif node.func.attr == "format_map" and node.args:
                yield from (f"{{{name}}}" for name in self._names(node.args[0]))

    def _names(self, node: ast.expr) -> Iterator[str]:
        """The constant keys of a mapping that is written out, be it where a variable is assigned."""
        found = self._assigned.get(node.id, ()) if isinstance(node, ast.Name) else (node,)
        for one in found:
            if isinstance(one, ast.Dict):
                yield from (_string(key) for key in one.keys if key is not None)
            elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "dict":
                yield from (word.arg for word in one.keywords if word.arg)

    def handled(self, name: str) -> Handled:
        """Return what it does with the mapping that it loads from a file of some name, or of an unknown one."""
        loads = frozenset(id(node) for node in self._loads if self._may_load(node, name))
        if loads not in self._handled:
            composed, found = self._composed(), Handled()
            if loads or composed:
                found = _Reading(self._nodes, self._functions, self._assigned, set(loads), composed).handled()
            self._handled[loads] = found
        return self._handled[loads]

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                if isinstance(target, (ast.Name, ast.Attribute)):
                    yield ast.unparse(target), node.value
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            yield node.optional_vars.id, node.context_expr
        elif isinstance(node, (ast.For, ast.comprehension)):
            target = node.target.elts[0] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target
            if isinstance(target, ast.Name):
                yield target.id, ast.Starred(node.iter, ast.Load())
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._functions:
            for argument, parameter in zip(node.args, self._functions[node.func.id].args.args):
                yield parameter.arg, argument

    def _is_load(self, node: ast.Call) -> bool:
        called = ast.unparse(node.func)
        if called in self._functions:
            return False
        if _HELPER.search(called):
            return True
        if isinstance(node.func, ast.Name):
            called = self._modules.get(called, called)
        owner, _, name = called.rpartition(".")
        if not _LOAD.fullmatch(name):
            return False
        made = "".join(ast.unparse(value) for value in self._assigned.get(owner, ()) if isinstance(value, ast.Call))
        return _OF.search(f"{self._modules.get(owner, owner)} {made}") is not None

    def _may_load(self, load: ast.Call, name: str) -> bool:
        """Return whether it may be a file of some name that is loaded: one whose path ends so, or is not stated."""
        names = [re.split(r"[/\\]", one)[-1] for one in self._stated(load)]
        return not names or any(fnmatchcase(name, f"*{one}") for one in names)

    def _stated(self, load: ast.Call) -> list[str]:
        """The ends of the paths of what is loaded; none where the path is not stated in the file."""
        waiting: list[ast.AST] = [*load.args, *(word.value for word in load.keywords)]
        seen, stated = set[str](), list[str]()
        while waiting:
            for node in ast.walk(waiting.pop()):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FILE.search(node.value):
                    stated.append(node.value)
                elif isinstance(node, (ast.Name, ast.Attribute)):
                    name = ast.unparse(node)
                    if _GIVEN.search(name):
                        return []
                    if name not in seen:
                        seen.add(name)
                        waiting += self._assigned.get(name, ())
        return stated

    def _composed(self) -> set[str]:
        """The parameters that hydra fills."""
        return {
            function.args.args[0].arg
            for function in self._functions.values()
            if function.args.args and any("hydra" in ast.unparse(one) for one in function.decorator_list)
        }


class _Reading:
    """The mappings of some loads, followed through a file."""

    def __init__(
        self,
        nodes: list[ast.AST],
        functions: dict[str, ast.FunctionDef],
        assigned: dict[str, list[ast.expr]],
        loads: set[int],
        composed: set[str],
    ) -> None:
        self.nodes = nodes
        self.answers = {name: list(_answers(function)) for name, function in functions.items()}
        self.assigned = assigned
        self.loads = loads
        self.loaded: dict[str, tuple[Route, ...]] = dict.fromkeys(composed, ((),))
        """Variable -> the routes of the mappings that it holds."""
        self.loaders: set[str] = set()
        """Functions that answer with a loaded mapping."""
        for _ in range(_ROUNDS):
            self._follow()

    def _follow(self) -> None:
        for name, values in self.assigned.items():
            found = tuple(dict.fromkeys(route for value in values for route in self._routes(value)))
            if found:
                self.loaded.setdefault(name, found)
        for name, answers in self.answers.items():
            if any(() in self._routes(part) for part in answers):
                self.loaders.add(name)

    def _routes(self, node: ast.expr) -> tuple[Route, ...]:
        """The routes of the mapping that an expression is; none where it is none of the file's."""
        if isinstance(node, ast.Name):
            return self.loaded.get(node.id, ())
        if isinstance(node, ast.Subscript):
            return self._below(node.value, node.slice)
        if isinstance(node, ast.Attribute):
            return self.loaded.get(ast.unparse(node)) or self._below(node.value, ast.Constant(node.attr))
        if not isinstance(node, ast.Call):
            return ()
        called = ast.unparse(node.func)
        if id(node) in self.loads or called.removeprefix("self.") in self.loaders:
            return ((),)
        if isinstance(node.func, ast.Attribute) and node.args and node.func.attr in ("get", "setdefault"):
            return self._below(node.func.value, node.args[0])
        spread = [word.value for word in node.keywords if word.arg is None]
        if not _COPIES.fullmatch(name := called.rpartition(".")[2]):
            return ()
        held = [*node.args, *spread][: None if name in _MERGES else 1]
        return tuple(dict.fromkeys(route for one in held for route in self._routes(one)))

    def _below(self, node: ast.expr, key: ast.expr) -> tuple[Route, ...]:
        above = self._routes(node)
        return tuple((*route, name) for route in above for name in self._constants(key)) if above else ()

    def _constants(self, node: ast.expr, depth: int = 0) -> tuple[str | int, ...]:
        """The constants that an expression stands for; of a list, its items."""
        if isinstance(node, ast.Constant):
            return (node.value,) if isinstance(node.value, (str, int)) else ()
        if isinstance(node, ast.Name) and depth < _ROUNDS:
            return tuple(one for value in self.assigned.get(node.id, ()) for one in self._constants(value, depth + 1))
        if isinstance(node, ast.Starred):
            return self._constants(node.value, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return tuple(one for item in node.elts for one in self._constants(item, depth))
        if isinstance(node, ast.Dict):
            return tuple(one for key in node.keys if key is not None for one in self._constants(key, depth))
        if isinstance(node, ast.Call):
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            name = ast.unparse(node.func).rpartition(".")[2]
            if inner is not None and name in ("items", "keys", "set", "frozenset", "list", "tuple", "sorted"):
                return self._constants(inner, depth)
        return ()

    def handled(self) -> Handled:
        """What the file does with the settings of the mappings."""
        self.called = {id(node.func) for node in self.nodes if isinstance(node, ast.Call)}
        changed = {route for node in self.nodes for route in self._changed(node) if route}
        read = {route for node in self.nodes for route in self._read(node) if route}
        laid, open_mappings = self._laid()
        return Handled(frozenset(changed | laid), frozenset(read), frozenset(open_mappings))

    def _laid(self) -> tuple[set[Route], set[Route]]:
        """The settings that other mappings replace, and the mappings over which any keys may be laid."""
        layers, laid, open_mappings = Layers(self.nodes, self.assigned), set[Route](), set[Route]()
        for node in self.nodes:
            for base, above in layers.laid(node):
                routes = self._routes(base)
                keys = layers.keys(above) if routes else ()
                laid.update((*route, *key) for route in routes for key in keys or ())
                open_mappings.update(routes if keys is None else ())
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and not self._constants(node.slice):
                open_mappings.update(self._routes(node.value))
        return laid, open_mappings

    def _changed(self, node: ast.AST) -> Iterable[Route]:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            return self._routes(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            return self._below(node.value, ast.Constant(node.attr))
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Dict):
            return self._keys(node.target, node.value)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return ()
        owner, arguments = node.func.value, node.args
        if node.func.attr in ("pop", "setdefault") and arguments:
            return self._below(owner, arguments[0])
        if node.func.attr == "update" and ast.unparse(owner) == "OmegaConf" and len(arguments) > 1:
            names = self._constants(arguments[1]) if self._routes(arguments[0]) else ()
            return [tuple(name.split(".")) for name in names if isinstance(name, str)]
        if node.func.attr == "update":
            stated = [word.arg for word in node.keywords if word.arg is not None]
            words = [(*above, word) for above in self._routes(owner) for word in stated]
            return [*(route for one in arguments for route in self._keys(owner, one)), *words]
        return ()

    def _keys(self, owner: ast.expr, node: ast.expr) -> tuple[Route, ...]:
        return self._below(owner, node) if isinstance(node, ast.Dict) else ()

    def _read(self, node: ast.AST) -> Iterable[Route]:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            return self._routes(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in self.called:
            return self._below(node.value, ast.Constant(node.attr))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            return self._routes(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            held = self._below(node.comparators[0], node.left)
            return held or self._below(self._walked(node.left), node.comparators[0])
        return ()

    def _walked(self, node: ast.expr) -> ast.expr:
        """The mapping whose keys a variable goes through; the expression itself where it is no such variable."""
        for value in self.assigned.get(node.id, ()) if isinstance(node, ast.Name) else ():
            if isinstance(value, ast.Starred):
                inner = value.value
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    return inner.func.value
                return inner
        return node


def _answers(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a function returns; of a tuple, its parts."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from node.value.elts if isinstance(node.value, ast.Tuple) else (node.value,)


def _string(node: ast.AST) -> str:
    """A string of the code; empty for another node."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def filler(text: str) -> PythonFiller:
    """A text as a filler; one that does nothing where it is no Python, or nested too deeply."""
    try:
        return PythonFiller(tree_of(text))
    except RecursionError:
        return PythonFiller(ast.Module([], []))
