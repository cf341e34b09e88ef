"""Python programs that modify the configurations that they load. They are parsed and never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from cfglint_train.documents.document import Route
from cfglint_train.documents.python.layers import Layers
from cfglint_train.documents.python.syntax import map_imports, parse_tree
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_LOAD: Final = compile_on_use(r"(?:safe_|full_|unsafe_|round_trip_)?loads?|compose|from_(?:yaml|json)")
_READERS: Final = compile_on_use(r"\b(?:yaml|YAML|json|json5|orjson|ujson|OmegaConf|hydra|Box)\b")
"""Modules and classes that read YAML or JSON, unlike `torch.load` and `pickle.load`."""
_HELPER: Final = compile_on_use(
    r"(?:^|[._])(?:load|read)_(?:\w+_)?(?:ya?ml|json|conf|cfg|config)(?:_|$)", re.IGNORECASE
)
_COPY_FUNCTION: Final = compile_on_use(
    r"(?:dict|copy|deepcopy|create|(?:unsafe_)?merge|to_container|to_object|[A-Z]\w*)"
)
"""Functions and classes that return a mapping equal to their argument."""
_MERGE_FUNCTIONS: Final = ("merge", "unsafe_merge")
"""Functions that merge several mappings into one."""
_FILE: Final = compile_on_use(r"[\w.*-]\.(?:ya?ml|json)$", re.IGNORECASE)
_RUNTIME_INPUT: Final = compile_on_use(r"\b(?:argv|environ|getenv|parse_args|parse_known_args|input)\b")
_MAX_PASSES: Final = 3
"""Number of passes over a file to follow a loaded mapping; also the maximum depth of variable lookups."""


class HandledRoutes(Frozen):
    """Routes of settings, by what the file does with them."""

    changed: frozenset[Route] = frozenset()
    """Routes that are set or removed, so that the framework does not receive the configured value."""
    read: frozenset[Route] = frozenset()
    """Routes that are read, whether or not they are also changed."""
    open: frozenset[Route] = frozenset()
    """Mappings that may receive any key: a mapping with unknown keys is merged in, or a computed key is stored."""


class PythonFiller:
    """A Python file that may modify configurations. Equal names count as one variable throughout the file."""

    def __init__(self, tree: ast.Module) -> None:
        """Collect the functions, imports, assignments and loads of the file."""
        nodes = list(ast.walk(tree))
        self._nodes = nodes
        self._strings: frozenset[str] | None = None
        self._replaced: frozenset[str] | None = None
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
        self._modules = map_imports(nodes)
        self._assigned_values: dict[str, list[ast.expr]] = {}
        """Variable -> all values that are assigned to it, including arguments of the file's functions."""
        for node in nodes:
            for name, value in self._find_bindings(node):
                self._assigned_values.setdefault(name, []).append(value)
        self._loads = [node for node in nodes if isinstance(node, ast.Call) and self._is_load(node)]
        self._handled_routes: dict[frozenset[int], HandledRoutes] = {}

    @property
    def strings(self) -> frozenset[str]:
        """Strings of the code without docstrings; `{}` marks the placeholders of f-strings."""
        if self._strings is None:
            statements = {id(node.value) for node in self._nodes if isinstance(node, ast.Expr)}
            strings = (_get_string(node) for node in self._nodes if id(node) not in statements)
            self._strings = frozenset(string for string in strings if string)
        return self._strings

    @property
    def replaced_texts(self) -> frozenset[str]:
        """Constant substrings that the file replaces in strings.

        These are `MARK` of `text.replace("MARK", value)`, `{lr}` of `text.format(lr=1)`, and `%(lr)` of `text % {"lr":
        1}` with any conversion.
        """
        if self._replaced is None:
            self._replaced = frozenset(mark for node in self._nodes for mark in self._find_marks(node) if mark)
        return self._replaced

    def _find_marks(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield from (f"%({name})" for name in self._list_keys(node.right))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "replace" and len(node.args) > 1:
                yield _get_string(node.args[0])
            elif node.func.attr == "format":
                for keyword in node.keywords:
                    yield from (
                        f"{{{name}}}" for name in ((keyword.arg,) if keyword.arg else self._list_keys(keyword.value))
                    )
            elif node.func.attr == "format_map" and node.args:
                yield from (f"{{{name}}}" for name in self._list_keys(node.args[0]))

    def _list_keys(self, node: ast.expr) -> Iterator[str]:
        """Yield the constant keys of a dict literal or `dict()` call, or of those assigned to the variable `node`."""
        values = self._assigned_values.get(node.id, ()) if isinstance(node, ast.Name) else (node,)
        for value in values:
            if isinstance(value, ast.Dict):
                yield from (_get_string(key) for key in value.keys if key is not None)
            elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
                yield from (keyword.arg for keyword in value.keywords if keyword.arg)

    def find_handled_routes(self, name: str) -> HandledRoutes:
        """Return what the file does with the mapping that it loads from a file called `name` or from an unknown one."""
        loads = frozenset(id(node) for node in self._loads if self._can_load(node, name))
        if loads not in self._handled_routes:
            composed, routes = self._find_hydra_parameters(), HandledRoutes()
            if loads or composed:
                routes = _MappingTrace(
                    self._nodes, self._functions, self._assigned_values, set(loads), composed
                ).collect_routes()
            self._handled_routes[loads] = routes
        return self._handled_routes[loads]

    def _find_bindings(self, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
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
        full_name = ast.unparse(node.func)
        if full_name in self._functions:
            return False
        if _HELPER.search(full_name):
            return True
        if isinstance(node.func, ast.Name):
            full_name = self._modules.get(full_name, full_name)
        owner, _, name = full_name.rpartition(".")
        if not _LOAD.fullmatch(name):
            return False
        values_text = "".join(
            ast.unparse(value) for value in self._assigned_values.get(owner, ()) if isinstance(value, ast.Call)
        )
        return _READERS.search(f"{self._modules.get(owner, owner)} {values_text}") is not None

    def _can_load(self, load: ast.Call, name: str) -> bool:
        """Return whether a call may load a file called `name`: its stated path matches, or no path is stated."""
        names = [re.split(r"[/\\]", path)[-1] for path in self._find_stated_paths(load)]
        return not names or any(fnmatchcase(name, f"*{path}") for path in names)

    def _find_stated_paths(self, load: ast.Call) -> list[str]:
        """Return the ends of the paths that a call loads, or an empty list if the path is unknown."""
        stack: list[ast.AST] = [*load.args, *(word.value for word in load.keywords)]
        seen, paths = set[str](), list[str]()
        while stack:
            for node in ast.walk(stack.pop()):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _FILE.search(node.value):
                    paths.append(node.value)
                elif isinstance(node, (ast.Name, ast.Attribute)):
                    name = ast.unparse(node)
                    if _RUNTIME_INPUT.search(name):
                        return []
                    if name not in seen:
                        seen.add(name)
                        stack += self._assigned_values.get(name, ())
        return paths

    def _find_hydra_parameters(self) -> set[str]:
        """Return the parameters to which hydra passes the composed configuration."""
        return {
            function.args.args[0].arg
            for function in self._functions.values()
            if function.args.args and any("hydra" in ast.unparse(decorator) for decorator in function.decorator_list)
        }


class _MappingTrace:
    """Mappings that the selected load calls return, followed through the file."""

    def __init__(
        self,
        nodes: list[ast.AST],
        functions: dict[str, ast.FunctionDef],
        assigned: dict[str, list[ast.expr]],
        loads: set[int],
        composed: set[str],
    ) -> None:
        """Follow the mappings through the assignments and functions of the file."""
        self.nodes = nodes
        self.results = {name: list(_list_results(function)) for name, function in functions.items()}
        self.assigned = assigned
        self.loads = loads
        self.loaded: dict[str, tuple[Route, ...]] = dict.fromkeys(composed, ((),))
        """Variable -> the routes of the mappings that it holds."""
        self.loaders: set[str] = set()
        """Functions that return a loaded mapping."""
        for _ in range(_MAX_PASSES):
            self._follow()

    def _follow(self) -> None:
        for name, values in self.assigned.items():
            routes = tuple(dict.fromkeys(route for value in values for route in self._find_routes(value)))
            if routes:
                self.loaded.setdefault(name, routes)
        for name, results in self.results.items():
            if any(() in self._find_routes(part) for part in results):
                self.loaders.add(name)

    def _find_routes(self, node: ast.expr) -> tuple[Route, ...]:
        """Return the routes of the loaded mapping that an expression holds, or nothing if it holds none."""
        if isinstance(node, ast.Name):
            return self.loaded.get(node.id, ())
        if isinstance(node, ast.Subscript):
            return self._find_routes_below(node.value, node.slice)
        if isinstance(node, ast.Attribute):
            return self.loaded.get(ast.unparse(node)) or self._find_routes_below(node.value, ast.Constant(node.attr))
        if not isinstance(node, ast.Call):
            return ()
        full_name = ast.unparse(node.func)
        if id(node) in self.loads or full_name.removeprefix("self.") in self.loaders:
            return ((),)
        if isinstance(node.func, ast.Attribute) and node.args and node.func.attr in ("get", "setdefault"):
            return self._find_routes_below(node.func.value, node.args[0])
        spread = [word.value for word in node.keywords if word.arg is None]
        if not _COPY_FUNCTION.fullmatch(name := full_name.rpartition(".")[2]):
            return ()
        sources = [*node.args, *spread][: None if name in _MERGE_FUNCTIONS else 1]
        return tuple(dict.fromkeys(route for source in sources for route in self._find_routes(source)))

    def _find_routes_below(self, node: ast.expr, key: ast.expr) -> tuple[Route, ...]:
        parents = self._find_routes(node)
        return tuple((*route, name) for route in parents for name in self._list_constants(key)) if parents else ()

    def _list_constants(self, node: ast.expr, depth: int = 0) -> tuple[str | int, ...]:
        """Return the constants that an expression may evaluate to; for a list, its items."""
        if isinstance(node, ast.Constant):
            return (node.value,) if isinstance(node.value, (str, int)) else ()
        if isinstance(node, ast.Name) and depth < _MAX_PASSES:
            return tuple(
                constant
                for value in self.assigned.get(node.id, ())
                for constant in self._list_constants(value, depth + 1)
            )
        if isinstance(node, ast.Starred):
            return self._list_constants(node.value, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return tuple(constant for item in node.elts for constant in self._list_constants(item, depth))
        if isinstance(node, ast.Dict):
            return tuple(
                constant for key in node.keys if key is not None for constant in self._list_constants(key, depth)
            )
        if isinstance(node, ast.Call):
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            name = ast.unparse(node.func).rpartition(".")[2]
            if inner is not None and name in ("items", "keys", "set", "frozenset", "list", "tuple", "sorted"):
                return self._list_constants(inner, depth)
        return ()

    def collect_routes(self) -> HandledRoutes:
        """Return what the file does with the settings of the mappings."""
        self.called = {id(node.func) for node in self.nodes if isinstance(node, ast.Call)}
        changed = {route for node in self.nodes for route in self._find_changed(node) if route}
        read = {route for node in self.nodes for route in self._find_read(node) if route}
        laid, open_mappings = self._find_overlaid()
        return HandledRoutes(frozenset(changed | laid), frozenset(read), frozenset(open_mappings))

    def _find_overlaid(self) -> tuple[set[Route], set[Route]]:
        """Return the settings that other mappings replace, and the mappings that may receive any key."""
        layers, overlaid, open_mappings = Layers(self.nodes, self.assigned), set[Route](), set[Route]()
        for node in self.nodes:
            for base, overlay in layers.find_layers(node):
                routes = self._find_routes(base)
                keys = layers.find_keys(overlay) if routes else ()
                overlaid.update((*route, *key) for route in routes for key in keys or ())
                open_mappings.update(routes if keys is None else ())
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store)
                and not self._list_constants(node.slice)
            ):
                open_mappings.update(self._find_routes(node.value))
        return overlaid, open_mappings

    def _find_changed(self, node: ast.AST) -> Iterable[Route]:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            return self._find_routes(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            return self._find_routes_below(node.value, ast.Constant(node.attr))
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Dict):
            return self._find_updated_keys(node.target, node.value)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return ()
        owner, arguments = node.func.value, node.args
        if node.func.attr in ("pop", "setdefault") and arguments:
            return self._find_routes_below(owner, arguments[0])
        if node.func.attr == "update" and ast.unparse(owner) == "OmegaConf" and len(arguments) > 1:
            names = self._list_constants(arguments[1]) if self._find_routes(arguments[0]) else ()
            return [tuple(name.split(".")) for name in names if isinstance(name, str)]
        if node.func.attr == "update":
            keywords = [word.arg for word in node.keywords if word.arg is not None]
            words = [(*parent, word) for parent in self._find_routes(owner) for word in keywords]
            return [*(route for argument in arguments for route in self._find_updated_keys(owner, argument)), *words]
        return ()

    def _find_updated_keys(self, owner: ast.expr, node: ast.expr) -> tuple[Route, ...]:
        return self._find_routes_below(owner, node) if isinstance(node, ast.Dict) else ()

    def _find_read(self, node: ast.AST) -> Iterable[Route]:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            return self._find_routes(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in self.called:
            return self._find_routes_below(node.value, ast.Constant(node.attr))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            return self._find_routes(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            routes = self._find_routes_below(node.comparators[0], node.left)
            return routes or self._find_routes_below(self._find_iterated_mapping(node.left), node.comparators[0])
        return ()

    def _find_iterated_mapping(self, node: ast.expr) -> ast.expr:
        """Return the mapping whose keys a loop variable iterates over, or the expression itself."""
        for value in self.assigned.get(node.id, ()) if isinstance(node, ast.Name) else ():
            if isinstance(value, ast.Starred):
                inner = value.value
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    return inner.func.value
                return inner
        return node


def _list_results(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the expressions that a function returns; for a tuple, its items."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from node.value.elts if isinstance(node.value, ast.Tuple) else (node.value,)


def _get_string(node: ast.AST) -> str:
    """Return the string of a constant or f-string, or "" for any other node."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_get_string(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def parse_filler(text: str) -> PythonFiller:
    """Parse the text of a file; the result modifies nothing if the text is not Python or is nested too deeply."""
    try:
        return PythonFiller(parse_tree(text))
    except RecursionError:
        return PythonFiller(ast.Module([], []))
