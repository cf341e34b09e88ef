"""DeepSpeed: the keys that its configuration reader looks up, and the pydantic models that it builds from sections.

`DeepSpeedConfig` reads a plain mapping through many small functions. This reader follows the mapping through them: each
variable stands for a set of routes into the configuration, and every lookup with a constant key adds a key to the
vocabulary. After `Model(**section)`, the section has the model's fields.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import (
    Assignment,
    Class,
    Function,
    Module,
    Source,
    Symbol,
    UndecidedError,
    evaluate,
    get_dotted_name,
    is_descendant,
)
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_schemas.readers.types import Fragment
from cfglint_train.foundation.frozen import Frozen

Route = tuple[str, ...]
Routes = frozenset[Route]

ANY: Final = "*"
_NOWHERE: Final[Routes] = frozenset()
_ROOT: Final[Routes] = frozenset([()])
_GETTERS: Final = frozenset(("get_scalar_param", "get_dict_param", "get_list_param"))
_COPIES: Final = frozenset(("copy", "deepcopy", "dict"))
_REMOVED_TOP: Final = "_REMOVED_TOP_LEVEL_CONFIG_KEYS"
_REMOVED_ZERO: Final = "_REMOVED_ZERO_CONFIG_KEYS"
_ROOT_NAME: Final = "DeepSpeedConfig"


class Scope(Frozen):
    """The names in a function that is being followed."""

    module: Module
    owner: Class | None
    routes: dict[str, Routes]
    """Variables that hold the configuration or a part of it."""
    constants: dict[str, list[Any]]
    """Variables with known values; a loop variable has all values of the loop."""
    imports: dict[str, tuple[str, str]]
    """Names that the function imports -> module and name there."""

    def resolve(self, name: str) -> Symbol | None:
        """Return the symbol that a name refers to in the function, or None if it is unknown."""
        try:
            if name in self.imports:
                return self.module.source.resolve_imported(*self.imports[name])
            return self.module.resolve_name(name)
        except UndecidedError:
            return None


class _Argument(Frozen):
    """The parts of the configuration, and the known values, that an argument may hold."""

    routes: Routes
    constants: list[Any]


_SELF: Final = _Argument(_NOWHERE, [])


class ConfigFollower:
    """A follower of the configuration through the functions that read it; it collects their lookups."""

    __slots__ = ("_results", "defaults", "models", "open_routes")

    def __init__(self) -> None:
        """Start at the root, with no lookups."""
        self.defaults: dict[Route, Fragment] = {(): {}}
        self.models: dict[Route, list[Class]] = {}
        self.open_routes: set[Route] = set()
        self._results: dict[str, Routes] = {}

    def follow_function(
        self,
        function: Function,
        arguments: dict[str, Routes],
        constants: dict[str, list[Any]],
        owner: Class | None = None,
    ) -> Routes:
        """Follow a function once per set of arguments, and return the routes of its result.

        `arguments` maps parameters to the parts of the configuration that they hold, `constants` to known values.
        """
        held_routes = {name: sorted(routes) for name, routes in sorted(arguments.items())}
        call_key = repr(
            (
                function.module.name,
                owner.name if owner else "",
                function.node.name,
                held_routes,
                sorted(constants.items()),
            )
        )
        if call_key not in self._results:
            self._results[call_key] = _NOWHERE
            scope = Scope(function.module, owner, dict(arguments), {**_evaluate_defaults(function), **constants}, {})
            self._results[call_key] = self._follow_block(scope, function.node.body)
        return self._results[call_key]

    def _follow_block(self, scope: Scope, body: list[ast.stmt]) -> Routes:
        returned: Routes = _NOWHERE
        for node in body:
            returned |= self._follow_statement(scope, node)
        return returned

    def _follow_statement(self, scope: Scope, node: ast.stmt) -> Routes:
        if isinstance(node, ast.Return):
            return self.follow_expression(scope, node.value)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            routes = self.follow_expression(scope, node.value)
            for target in targets:
                if isinstance(target, ast.Name):
                    scope.routes[target.id] = scope.routes.get(target.id, _NOWHERE) | routes
            return _NOWHERE
        if isinstance(node, ast.For):
            return self._follow_loop(scope, node)
        if isinstance(node, ast.ImportFrom):
            origin = scope.module.resolve_import(node.module or "", node.level)
            scope.imports.update({alias.asname or alias.name: (origin, alias.name) for alias in node.names})
            return _NOWHERE
        returned: Routes = _NOWHERE
        for _, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    returned |= self._follow_statement(scope, child)
                elif isinstance(child, ast.expr):
                    self.follow_expression(scope, child)
                elif isinstance(child, ast.ExceptHandler):
                    returned |= self._follow_block(scope, child.body)
        return returned

    def _follow_loop(self, scope: Scope, node: ast.For) -> Routes:
        routes = self.follow_expression(scope, node.iter)
        names = [target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)]
        if routes and names:
            # The user chooses the names in a section that the code loops over.
            self.open_routes |= routes
            scope.routes[names[-1]] = frozenset((*route, ANY) for route in routes)
        elif isinstance(node.target, ast.Name):
            scope.constants[node.target.id] = self._evaluate_constants(scope, node.iter)
        return self._follow_block(scope, node.body)

    def follow_expression(self, scope: Scope, node: ast.expr | None) -> Routes:
        """Return the routes that an expression holds, and record its lookups."""
        if node is None:
            return _NOWHERE
        if isinstance(node, ast.Name):
            return scope.routes.get(node.id, _NOWHERE)
        if isinstance(node, ast.Attribute):
            self.follow_expression(scope, node.value)
            return _ROOT if node.attr == "_param_dict" else _NOWHERE
        if isinstance(node, ast.Subscript):
            routes = self.follow_expression(scope, node.value)
            self.follow_expression(scope, node.slice)
            return self._record_look_up(scope, routes, node.slice, None) if isinstance(node.ctx, ast.Load) else _NOWHERE
        if isinstance(node, ast.Call):
            return self._follow_call(scope, node)
        if isinstance(node, ast.DictComp):
            return self._follow_comprehension(scope, node)
        routes = _NOWHERE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                child_routes = self.follow_expression(scope, child)
                if isinstance(node, (ast.IfExp, ast.BoolOp)):
                    routes |= child_routes
        return routes

    def _follow_comprehension(self, scope: Scope, node: ast.DictComp) -> Routes:
        """Follow `{key: section.get(key, {}) for key in NAMES}`, which holds the same route as the section."""
        generator = node.generators[0]
        if isinstance(generator.target, ast.Name):
            scope.constants[generator.target.id] = self._evaluate_constants(scope, generator.iter)
        routes = self.follow_expression(scope, node.value)
        return frozenset(route[:-1] for route in routes)

    def _follow_call(self, scope: Scope, node: ast.Call) -> Routes:
        name = get_dotted_name(node.func) or ""
        short_name = name.rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            routes = self.follow_expression(scope, node.func.value)
            return self._record_look_up(scope, routes, node.args[0], node.args[1] if len(node.args) > 1 else None)
        if short_name in _GETTERS and len(node.args) == 3:
            return self._record_look_up(scope, self.follow_expression(scope, node.args[0]), node.args[1], node.args[2])
        arguments = [self.follow_expression(scope, argument) for argument in node.args]
        for keyword in node.keywords:
            routes = self.follow_expression(scope, keyword.value)
            if keyword.arg is None and routes:
                self._record_model(scope, name, routes)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items", "values", "pop"):
            routes = self.follow_expression(scope, node.func.value)
            # A function that pops keys passes on the rest, so the section accepts any key.
            self.open_routes |= routes if node.func.attr == "pop" else _NOWHERE
            return routes
        if short_name in _COPIES and arguments:
            return arguments[0]
        return self._enter_callee(
            scope, name, node, [_Argument(*pair) for pair in zip(arguments, self._evaluate_arguments(scope, node))]
        )

    def _evaluate_arguments(self, scope: Scope, node: ast.Call) -> list[list[Any]]:
        return [self._evaluate_constants(scope, argument) for argument in node.args]

    def _enter_callee(self, scope: Scope, name: str, node: ast.Call, arguments: list[_Argument]) -> Routes:
        """Follow a call into a function, a constructor or a method of the current class."""
        keywords = {
            keyword.arg: _Argument(
                self.follow_expression(scope, keyword.value), self._evaluate_constants(scope, keyword.value)
            )
            for keyword in node.keywords
            if keyword.arg
        }
        if not any(argument.routes for argument in (*arguments, *keywords.values())):
            return _NOWHERE
        if name.startswith("self.") and scope.owner is not None:
            function = _find_method(scope.owner, name.partition(".")[2])
            return (
                _NOWHERE
                if function is None
                else self._bind_and_follow(function, [_SELF, *arguments], keywords, scope.owner)
            )
        symbol = scope.resolve(name)
        if isinstance(symbol, Function):
            return self._bind_and_follow(symbol, arguments, keywords, None)
        if isinstance(symbol, Class):
            constructor = _find_method(symbol, "__init__")
            if constructor is not None:
                self._bind_and_follow(constructor, [_SELF, *arguments], keywords, symbol)
        return _NOWHERE

    def _bind_and_follow(
        self, function: Function, arguments: list[_Argument], keywords: dict[str, _Argument], owner: Class | None
    ) -> Routes:
        names = [argument.arg for argument in function.node.args.args]
        bound = {**dict(zip(names, arguments)), **keywords}
        return self.follow_function(
            function,
            {name: argument.routes for name, argument in bound.items() if argument.routes},
            {name: argument.constants for name, argument in bound.items() if argument.constants},
            owner,
        )

    def _record_look_up(self, scope: Scope, routes: Routes, key: ast.expr, default: ast.expr | None) -> Routes:
        children = set()
        for name in self._evaluate_constants(scope, key):
            for route in routes:
                if isinstance(name, str):
                    child = (*route, name)
                    children.add(child)
                    self._record_default(scope, child, default)
        return frozenset(children)

    def _record_default(self, scope: Scope, route: Route, default: ast.expr | None) -> None:
        facts = self.defaults.setdefault(route, {})
        if default is None or "default" in facts:
            return
        constants = {name: values[0] for name, values in scope.constants.items() if len(values) == 1}
        try:
            facts["default"] = evaluate(scope.module, default, constants)
        except UndecidedError:
            return

    def _evaluate_constants(self, scope: Scope, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Name) and node.id in scope.constants:
            return scope.constants[node.id]
        try:
            value = evaluate(scope.module, node)
        except UndecidedError:
            return []
        return value if isinstance(value, list) else [value]

    def _record_model(self, scope: Scope, name: str, routes: Routes) -> None:
        symbol = scope.resolve(name)
        if isinstance(symbol, Class) and is_descendant(symbol, "BaseModel"):
            for route in routes:
                models = self.models.setdefault(route, [])
                if all(model.node is not symbol.node for model in models):
                    models.append(symbol)


def _evaluate_defaults(function: Function) -> dict[str, list[Any]]:
    """Return the defaults of a function's parameters that the source determines."""
    parameters = function.node.args.args[len(function.node.args.args) - len(function.node.args.defaults) :]
    defaults = {}
    for word, default in zip(parameters, function.node.args.defaults):
        try:
            defaults[word.arg] = [evaluate(function.module, default)]
        except UndecidedError:
            continue
    return defaults


def _find_method(owner: Class, name: str) -> Function | None:
    for node in owner.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Function(owner.module, node)
    return None


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    module = source.require_module("deepspeed.runtime.config")
    reader = module.resolve_name(_ROOT_NAME)
    if not isinstance(reader, Class):
        raise UndecidedError(f"{package} {source.tree.release}: {_ROOT_NAME} is not a class")
    follower = ConfigFollower()
    for node in reader.node.body:
        if isinstance(node, ast.FunctionDef):
            holders = ("config", "param_dict") if node.name == "__init__" else ("param_dict",)
            arguments = {word.arg: _ROOT for word in node.args.args if word.arg in holders}
            follower.follow_function(Function(module, node), arguments, {}, reader)
    definitions = _build_definitions(follower)
    for key in _read_removed_keys(module, _REMOVED_TOP):
        _mark_removed(definitions, _ROOT_NAME, key)
    zero = definitions[_ROOT_NAME].keys["zero_optimization"].schema["$ref"].removeprefix("#/$defs/")
    for key in _read_removed_keys(module, _REMOVED_ZERO):
        _mark_removed(definitions, zero, key)
    return ReleaseTable(definitions, {"config": (_ROOT_NAME,)})


def _read_removed_keys(module: Module, table: str) -> list[str]:
    """Return the keys in a table of removed keys, which the release rejects, or an empty list if there is no table."""
    try:
        symbol = module.resolve_name(table)
    except UndecidedError:
        return []
    if not (isinstance(symbol, Assignment) and isinstance(symbol.node, ast.Dict)):
        return []
    return [key.value for key in symbol.node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def _mark_removed(definitions: dict[str, Definition], name: str, key: str) -> None:
    definition = definitions[name]
    definitions[name] = definition._replace(keys={**definition.keys, key: TableKey({"x-removed": "error"})})


def _build_definitions(follower: ConfigFollower) -> dict[str, Definition]:
    """Return the sections with lookups as definitions, named after their model or else their route."""
    models = ModelReader(prefer_alias=True)
    children: dict[Route, dict[str, TableKey]] = {(): {}}
    for route in sorted({*follower.defaults, *follower.models}):
        for length in range(len(route)):
            children.setdefault(route[:length], {})
    definitions: dict[str, Definition] = {}
    for route in sorted(children, key=len, reverse=True):
        looked_up = {path[-1] for path in follower.defaults if len(path) == len(route) + 1 and path[:-1] == route}
        keys = {name: TableKey(_build_schema(follower, models, children, (*route, name))) for name in sorted(looked_up)}
        unknown = "kept" if route in follower.open_routes else "dropped"
        for model in follower.models.get(route, ()):
            if route == ():
                keys = {**keys, **models.read_keys(model)}
            else:
                keys = {**keys, **models.read_keys(model)}
                unknown = models.find_unknown_effect(model)
        if route not in follower.models or route == ():
            keys.pop(ANY, None)
            definitions[_name_section(route)] = Definition(keys, unknown)
        elif looked_up:
            # The section has a model, but the reader also looks up keys in it directly.
            definitions[_name_model(models, follower.models[route][0])] = Definition(keys, unknown)
    return {**models.list_definitions(), **definitions}


def _build_schema(
    follower: ConfigFollower, models: ModelReader, children: dict[Route, dict[str, TableKey]], route: Route
) -> Fragment:
    section_models = follower.models.get(route)
    if section_models:
        references = [{"$ref": f"#/$defs/{_name_model(models, model)}"} for model in section_models]
        return references[0] if len(references) == 1 else {"anyOf": references}
    if route in children:
        if (*route, ANY) in follower.defaults:
            return {"type": "object", "x-unchecked": True}
        return {"$ref": f"#/$defs/{_name_section(route)}"}
    return _build_unchecked(follower.defaults.get(route, {}))


def _build_unchecked(facts: Fragment) -> Fragment:
    """Return the schema of an unchecked value; its type is guessed from the default."""
    if "default" not in facts:
        return {"x-unchecked": True}
    default = facts["default"]
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    kind = kinds.get(type(default))
    return {**({"type": kind} if kind else {}), "default": default, "x-unchecked": True}


def _name_section(route: Route) -> str:
    return ".".join(route) if route else _ROOT_NAME


def _name_model(models: ModelReader, model: Class) -> str:
    name = models.name_definition(model)
    assert name is not None
    return name
