"""DeepSpeed: what its configuration reader looks up, and the pydantic models that it fills from sections.

`DeepSpeedConfig` reads a plain mapping through many small functions. This reader follows that mapping through them:
each variable stands for a set of routes into the configuration, and every look-up on it with a constant key is a
setting. `Model(**section)` gives the section the model's fields.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import (
    Bound,
    Class,
    Function,
    Module,
    Source,
    Symbol,
    UndecidedError,
    descends_from,
    dotted_name,
    evaluate,
)
from cfglint_schemas.readers.table import Definition, Key, Table
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
    """Where a function's names live while it is followed."""

    module: Module
    owner: Class | None
    routes: dict[str, Routes]
    """Variables that hold (part of) the configuration."""
    constants: dict[str, list[Any]]
    """Variables with known values (all that a loop runs over)."""
    imports: dict[str, tuple[str, str]]
    """Names that the function itself imports: module and name."""

    def resolve(self, name: str) -> Symbol | None:
        """What a name means here; None where it is unknown."""
        try:
            if name in self.imports:
                return self.module.source.find(*self.imports[name])
            return self.module.resolve(name)
        except UndecidedError:
            return None


class _Given(Frozen):
    """An argument: the parts of the configuration that it may hold, or the values that it may have."""

    routes: Routes
    constants: list[Any]


_SELF: Final = _Given(_NOWHERE, [])


class Follower:
    """Follows the configuration through the functions that read it, and gathers what they look up."""

    __slots__ = ("_seen", "defaults", "models", "opened")

    def __init__(self) -> None:
        self.defaults: dict[Route, Fragment] = {(): {}}
        self.models: dict[Route, list[Class]] = {}
        self.opened: set[Route] = set()
        self._seen: dict[str, Routes] = {}

    def follow(
        self,
        of: Function,
        arguments: dict[str, Routes],
        constants: dict[str, list[Any]],
        owner: Class | None = None,
    ) -> Routes:
        """Follow a function whose arguments hold parts of the configuration or known values; what it returns."""
        held = {name: sorted(routes) for name, routes in sorted(arguments.items())}
        visit = repr((of.module.name, owner.name if owner else "", of.node.name, held, sorted(constants.items())))
        if visit not in self._seen:
            self._seen[visit] = _NOWHERE
            scope = Scope(of.module, owner, dict(arguments), {**_defaults(of), **constants}, {})
            self._seen[visit] = self._block(scope, of.node.body)
        return self._seen[visit]

    def _block(self, scope: Scope, body: list[ast.stmt]) -> Routes:
        returned: Routes = _NOWHERE
        for node in body:
            returned |= self._statement(scope, node)
        return returned

    def _statement(self, scope: Scope, node: ast.stmt) -> Routes:
        if isinstance(node, ast.Return):
            return self.value(scope, node.value)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            held = self.value(scope, node.value)
            for target in targets:
                if isinstance(target, ast.Name):
                    scope.routes[target.id] = scope.routes.get(target.id, _NOWHERE) | held
            return _NOWHERE
        if isinstance(node, ast.For):
            return self._loop(scope, node)
        if isinstance(node, ast.ImportFrom):
            origin = scope.module.absolute(node.module or "", node.level)
            scope.imports.update({alias.asname or alias.name: (origin, alias.name) for alias in node.names})
            return _NOWHERE
        returned: Routes = _NOWHERE
        for _, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    returned |= self._statement(scope, child)
                elif isinstance(child, ast.expr):
                    self.value(scope, child)
                elif isinstance(child, ast.ExceptHandler):
                    returned |= self._block(scope, child.body)
        return returned

    def _loop(self, scope: Scope, node: ast.For) -> Routes:
        held = self.value(scope, node.iter)
        names = [target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)]
        if held and names:
            # A loop over a section: its names are the user's own.
            self.opened |= held
            scope.routes[names[-1]] = frozenset((*route, ANY) for route in held)
        elif isinstance(node.target, ast.Name):
            scope.constants[node.target.id] = self._constants(scope, node.iter)
        return self._block(scope, node.body)

    def value(self, scope: Scope, node: ast.expr | None) -> Routes:
        """The routes that an expression holds; look-ups on the way are noted."""
        if node is None:
            return _NOWHERE
        if isinstance(node, ast.Name):
            return scope.routes.get(node.id, _NOWHERE)
        if isinstance(node, ast.Attribute):
            self.value(scope, node.value)
            return _ROOT if node.attr == "_param_dict" else _NOWHERE
        if isinstance(node, ast.Subscript):
            held = self.value(scope, node.value)
            self.value(scope, node.slice)
            return self._look_up(scope, held, node.slice, None) if isinstance(node.ctx, ast.Load) else _NOWHERE
        if isinstance(node, ast.Call):
            return self._call(scope, node)
        if isinstance(node, ast.DictComp):
            return self._comprehension(scope, node)
        held = _NOWHERE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found = self.value(scope, child)
                if isinstance(node, (ast.IfExp, ast.BoolOp)):
                    held |= found
        return held

    def _comprehension(self, scope: Scope, node: ast.DictComp) -> Routes:
        """`{key: section.get(key, {}) for key in NAMES}` is a part of the section itself."""
        generator = node.generators[0]
        if isinstance(generator.target, ast.Name):
            scope.constants[generator.target.id] = self._constants(scope, generator.iter)
        held = self.value(scope, node.value)
        return frozenset(route[:-1] for route in held)

    def _call(self, scope: Scope, node: ast.Call) -> Routes:
        name = dotted_name(node.func) or ""
        last = name.rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            held = self.value(scope, node.func.value)
            return self._look_up(scope, held, node.args[0], node.args[1] if len(node.args) > 1 else None)
        if last in _GETTERS and len(node.args) == 3:
            return self._look_up(scope, self.value(scope, node.args[0]), node.args[1], node.args[2])
        given = [self.value(scope, argument) for argument in node.args]
        for keyword in node.keywords:
            held = self.value(scope, keyword.value)
            if keyword.arg is None and held:
                self._fill(scope, name, held)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items", "values", "pop"):
            held = self.value(scope, node.func.value)
            # What takes keys out of a section hands the rest on, whatever it is called.
            self.opened |= held if node.func.attr == "pop" else _NOWHERE
            return held
        if last in _COPIES and given:
            return given[0]
        return self._enter(scope, name, node, [_Given(*both) for both in zip(given, self._arguments(scope, node))])

    def _arguments(self, scope: Scope, node: ast.Call) -> list[list[Any]]:
        return [self._constants(scope, argument) for argument in node.args]

    def _enter(self, scope: Scope, name: str, node: ast.Call, given: list[_Given]) -> Routes:
        """Follow a call into a function, a constructor or a method of the class at hand."""
        words = {
            keyword.arg: _Given(self.value(scope, keyword.value), self._constants(scope, keyword.value))
            for keyword in node.keywords
            if keyword.arg
        }
        if not any(argument.routes for argument in (*given, *words.values())):
            return _NOWHERE
        if name.startswith("self.") and scope.owner is not None:
            function = _method(scope.owner, name.partition(".")[2])
            return _NOWHERE if function is None else self._pass(function, [_SELF, *given], words, scope.owner)
        symbol = scope.resolve(name)
        if isinstance(symbol, Function):
            return self._pass(symbol, given, words, None)
        if isinstance(symbol, Class):
            constructor = _method(symbol, "__init__")
            if constructor is not None:
                self._pass(constructor, [_SELF, *given], words, symbol)
        return _NOWHERE

    def _pass(self, of: Function, given: list[_Given], words: dict[str, _Given], owner: Class | None) -> Routes:
        names = [argument.arg for argument in of.node.args.args]
        bound = {**dict(zip(names, given)), **words}
        return self.follow(
            of,
            {name: argument.routes for name, argument in bound.items() if argument.routes},
            {name: argument.constants for name, argument in bound.items() if argument.constants},
            owner,
        )

    def _look_up(self, scope: Scope, held: Routes, key: ast.expr, default: ast.expr | None) -> Routes:
        found = set()
        for name in self._constants(scope, key):
            for route in held:
                if isinstance(name, str):
                    below = (*route, name)
                    found.add(below)
                    self._note(scope, below, default)
        return frozenset(found)

    def _note(self, scope: Scope, route: Route, default: ast.expr | None) -> None:
        facts = self.defaults.setdefault(route, {})
        if default is None or "default" in facts:
            return
        known = {name: values[0] for name, values in scope.constants.items() if len(values) == 1}
        try:
            facts["default"] = evaluate(scope.module, default, known)
        except UndecidedError:
            return

    def _constants(self, scope: Scope, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Name) and node.id in scope.constants:
            return scope.constants[node.id]
        try:
            value = evaluate(scope.module, node)
        except UndecidedError:
            return []
        return value if isinstance(value, list) else [value]

    def _fill(self, scope: Scope, name: str, held: Routes) -> None:
        symbol = scope.resolve(name)
        if isinstance(symbol, Class) and descends_from(symbol, "BaseModel"):
            for route in held:
                known = self.models.setdefault(route, [])
                if all(model.node is not symbol.node for model in known):
                    known.append(symbol)


def _defaults(of: Function) -> dict[str, list[Any]]:
    """The known defaults of a function's parameters."""
    words = of.node.args.args[len(of.node.args.args) - len(of.node.args.defaults) :]
    known = {}
    for word, default in zip(words, of.node.args.defaults):
        try:
            known[word.arg] = [evaluate(of.module, default)]
        except UndecidedError:
            continue
    return known


def _method(owner: Class, name: str) -> Function | None:
    for node in owner.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Function(owner.module, node)
    return None


def read(package: str, source: Source) -> Table:
    """The vocabulary of one release. Raises UndecidedError for an unexpected layout."""
    module = source.need("deepspeed.runtime.config")
    reader = module.resolve(_ROOT_NAME)
    if not isinstance(reader, Class):
        raise UndecidedError(f"{package} {source.tree.release}: {_ROOT_NAME} is not a class")
    follower = Follower()
    for node in reader.node.body:
        if isinstance(node, ast.FunctionDef):
            holders = ("config", "param_dict") if node.name == "__init__" else ("param_dict",)
            arguments = {word.arg: _ROOT for word in node.args.args if word.arg in holders}
            follower.follow(Function(module, node), arguments, {}, reader)
    definitions = _definitions(follower)
    for key in _removed(module, _REMOVED_TOP):
        _remove(definitions, _ROOT_NAME, key)
    zero = definitions[_ROOT_NAME].keys["zero_optimization"].schema["$ref"].removeprefix("#/$defs/")
    for key in _removed(module, _REMOVED_ZERO):
        _remove(definitions, zero, key)
    return Table(definitions, {"config": (_ROOT_NAME,)})


def _removed(module: Module, table: str) -> list[str]:
    """The keys that a release refuses by name."""
    try:
        bound = module.resolve(table)
    except UndecidedError:
        return []
    if not (isinstance(bound, Bound) and isinstance(bound.node, ast.Dict)):
        return []
    return [key.value for key in bound.node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def _remove(definitions: dict[str, Definition], name: str, key: str) -> None:
    known = definitions[name]
    definitions[name] = known._replace(keys={**known.keys, key: Key({"x-removed": "error"})})


def _definitions(follower: Follower) -> dict[str, Definition]:
    """The sections that were looked into, as definitions: a model's own name, else the section's route."""
    models = Models(prefer_alias=True)
    children: dict[Route, dict[str, Key]] = {(): {}}
    for route in sorted({*follower.defaults, *follower.models}):
        for length in range(len(route)):
            children.setdefault(route[:length], {})
    definitions: dict[str, Definition] = {}
    for route in sorted(children, key=len, reverse=True):
        named = {path[-1] for path in follower.defaults if len(path) == len(route) + 1 and path[:-1] == route}
        keys = {name: Key(_section_or_value(follower, models, children, (*route, name))) for name in sorted(named)}
        unknown = "kept" if route in follower.opened else "dropped"
        for model in follower.models.get(route, ()):
            if route == ():
                keys = {**keys, **models.keys(model)}
            else:
                keys = {**keys, **models.keys(model)}
                unknown = models.unknown(model)
        if route not in follower.models or route == ():
            keys.pop(ANY, None)
            definitions[_name(route)] = Definition(keys, unknown)
        elif named:
            # A model whose section is also looked into by hand.
            definitions[_model_name(models, follower.models[route][0])] = Definition(keys, unknown)
    return {**models.definitions(), **definitions}


def _section_or_value(
    follower: Follower, models: Models, children: dict[Route, dict[str, Key]], route: Route
) -> Fragment:
    filled = follower.models.get(route)
    if filled:
        references = [{"$ref": f"#/$defs/{_model_name(models, model)}"} for model in filled]
        return references[0] if len(references) == 1 else {"anyOf": references}
    if route in children:
        if (*route, ANY) in follower.defaults:
            return {"type": "object", "x-unchecked": True}
        return {"$ref": f"#/$defs/{_name(route)}"}
    return _unchecked(follower.defaults.get(route, {}))


def _unchecked(facts: Fragment) -> Fragment:
    """A value that nothing validates: its default says what it is meant to be."""
    if "default" not in facts:
        return {"x-unchecked": True}
    default = facts["default"]
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    kind = kinds.get(type(default))
    return {**({"type": kind} if kind else {}), "default": default, "x-unchecked": True}


def _name(route: Route) -> str:
    return ".".join(route) if route else _ROOT_NAME


def _model_name(models: Models, model: Class) -> str:
    name = models.refer(model)
    assert name is not None
    return name
