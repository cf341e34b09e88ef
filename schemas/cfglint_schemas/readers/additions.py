"""The `add_argument` calls of a parser, including those in functions that create or receive the parser."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from cfglint_schemas.readers.source import (
    Class,
    External,
    Function,
    Module,
    Symbol,
    UndecidedError,
    evaluate,
    get_dotted_name,
    list_ancestors,
    resolve_bases,
)
from cfglint_train.foundation.frozen import Frozen

_GROUP_METHODS: Final = ("add_argument_group", "add_mutually_exclusive_group", "add_parser", "add_subparsers")
_LENIENT_METHODS: Final = ("parse_known_args", "parse_known_intermixed_args")
_PARSER_METHODS: Final = ("add_argument", "parse_args", *_GROUP_METHODS, *_LENIENT_METHODS)
# Packages whose parser classes start without flags of their own.
_PARSERS: Final = ("argparse", "configargparse")


class ArgumentCall(Frozen):
    """An `add_argument` call, with the values of the loop variables that surround it."""

    module: Module
    call: ast.Call
    local: dict[str, Any]

    def evaluate_argument(self, node: ast.expr | None, otherwise: Any = None) -> Any:
        """Return the value of an argument of the call, or `otherwise` if the source does not determine it."""
        if node is None:
            return otherwise
        try:
            return evaluate(self.module, node, self.local)
        except UndecidedError:
            return otherwise


class ArgumentCalls:
    """The `add_argument` calls of a module's parser, in order.

    Functions that create or receive the parser are followed, including into other modules of the package. Raises
    UndecidedError if one of these modules is missing.
    """

    def __init__(self, module: Module) -> None:
        """Collect the calls for a module's parser."""
        self.calls: list[ArgumentCall] = []
        self.may_have_more = False
        """True if the parser may accept more flags: a function without source creates or receives it, the source does
        not determine a flag's name, or the parser accepts unknown flags.
        """
        self._root = module
        self._seen: set[str] = set()
        self._read_tree(module, module.tree, frozenset())

    def _read_tree(self, module: Module, tree: ast.AST, parser_names: frozenset[str]) -> None:
        parsers = _find_parser_names(module, parser_names)
        for call in self._find_sources(module, tree, parsers):
            self._follow_source(module, call, parsers)
        self._walk_statements(module, tree, {}, parsers)

    def _find_sources(self, module: Module, tree: ast.AST, parsers: frozenset[str]) -> list[ast.Call]:
        """Return the calls that create a parser; set `may_have_more` if a parser has another origin."""
        calls = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _PARSER_METHODS:
                head = (get_dotted_name(node.value) or "").partition(".")[0]
                self.may_have_more |= isinstance(module.bindings.get(head), tuple)
                if isinstance(node.value, ast.Call):
                    calls.append(node.value)
            for target, value in _list_assignments(node):
                if get_dotted_name(target) in parsers and isinstance(value, ast.Call):
                    calls.append(value)
                elif get_dotted_name(target) in parsers and not isinstance(
                    value, (ast.Constant, ast.Name, ast.Attribute)
                ):
                    self.may_have_more = True
        return calls

    def _follow_source(self, module: Module, call: ast.Call, parsers: frozenset[str]) -> None:
        """Follow a call that creates a parser, into its function or class."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _PARSER_METHODS:
            return
        symbol = _resolve_callee(module, call)
        if isinstance(symbol, Function):
            self._follow_definition(symbol.module, symbol.node, _find_parser_parameters(symbol.node, call, parsers))
            place = f"{symbol.module.name}.{symbol.node.name}()"
            if place not in self._seen:
                self._seen.add(place)
                for node in ast.walk(symbol.node):
                    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                        self._follow_source(symbol.module, node.value, parsers)
        elif isinstance(symbol, Class):
            for ancestor in list_ancestors(symbol):
                self._follow_definition(ancestor.module, ancestor.node, frozenset())
                other_bases = [base for base in resolve_bases(ancestor) if not isinstance(base, Class)]
                self.may_have_more |= not all(map(_is_plain_parser, other_bases))
        elif not _is_plain_parser(symbol) and not _is_nested_function(module, call):
            self.may_have_more = True

    def _follow_definition(
        self, module: Module, node: ast.FunctionDef | ast.ClassDef, parser_names: frozenset[str]
    ) -> None:
        """Read a function or class of another module once; the root module is read as a whole anyway."""
        place = f"{module.name}.{node.name}"
        if module is not self._root and place not in self._seen:
            self._seen.add(place)
            self._read_tree(module, node, parser_names)

    def _walk_statements(self, module: Module, tree: ast.AST, local: dict[str, Any], parsers: frozenset[str]) -> None:
        for node in ast.iter_child_nodes(tree):
            module.source.count_steps()
            if isinstance(node, ast.For):
                for values in _unroll_loop(module, node, local):
                    self._walk_statements(module, ast.Module(node.body, []), values, parsers)
                self._walk_statements(module, ast.Module(node.orelse, []), local, parsers)
                continue
            if isinstance(node, ast.Call):
                self._read_call(module, node, local, parsers)
            elif isinstance(node, ast.Attribute) and node.attr == "add_argument":
                self.may_have_more = True  # the bound method may be passed on
            for child in _list_children(node):
                self._walk_statements(module, child, local, parsers)
            if isinstance(node, (ast.Assign, ast.Expr)) and _is_parsing(node):
                return  # arguments that are added later have no effect

    def _read_call(self, module: Module, call: ast.Call, local: dict[str, Any], parsers: frozenset[str]) -> None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "add_argument":
            addition = ArgumentCall(module, call, local)
            self.calls.append(addition)
            self.may_have_more |= any(addition.evaluate_argument(word) is None for word in call.args)
        elif method in _LENIENT_METHODS or any(
            word.arg == "parents" and not isinstance(word.value, ast.Constant) for word in call.keywords
        ):
            self.may_have_more = True
        elif any(_is_parser(word, parsers) for word in _list_arguments(call)):
            self._follow_receiver(module, call, parsers)

    def _follow_receiver(self, module: Module, call: ast.Call, parsers: frozenset[str]) -> None:
        """Follow a call that receives the parser; raise UndecidedError if its module is missing."""
        symbol = _resolve_callee(module, call)
        if isinstance(symbol, External) and module.source.is_internal(symbol.name):
            raise UndecidedError(f"{symbol.name}, which adds flags, is missing")
        if isinstance(symbol, Function):
            self._follow_definition(symbol.module, symbol.node, _find_parser_parameters(symbol.node, call, parsers))
        elif not _is_nested_function(module, call):
            self.may_have_more = True


def _find_parser_names(module: Module, parser_names: frozenset[str]) -> frozenset[str]:
    """Return the names that refer to a parser or an argument group anywhere in a module, given the known ones."""
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, (ast.Attribute, ast.Assign, ast.Call))]
    module.source.count_steps(len(nodes))
    names = set(parser_names)
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _PARSER_METHODS:
            names.update(filter(None, [get_dotted_name(node.value)]))
    old_count = -1
    while old_count != len(names):
        old_count = len(names)
        for node in nodes:
            module.source.count_steps()
            for target, value in _list_assignments(node):
                pair = [get_dotted_name(target), get_dotted_name(value)]
                if _is_parser(value, names) or (pair[0] in names and pair[1]):
                    names.update(filter(None, pair))
            if isinstance(node, ast.Call) and any(_is_parser(word, names) for word in _list_arguments(node)):
                symbol = _resolve_callee(module, node)
                if isinstance(symbol, Function) and symbol.module is module:
                    names |= _find_parser_parameters(symbol.node, node, names)
    return frozenset(names)


def _is_parser(node: ast.expr, parsers: set[str] | frozenset[str]) -> bool:
    """Return whether an expression is a parser, an argument group, or a list of these."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(_is_parser(element, parsers) for element in node.elts)
    if isinstance(node, ast.Starred):
        return _is_parser(node.value, parsers)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _GROUP_METHODS:
            return True
        return (get_dotted_name(node.func) or "").rpartition(".")[2] == "ArgumentParser"
    return get_dotted_name(node) in parsers


def _is_plain_parser(symbol: Symbol | None) -> bool:
    return isinstance(symbol, External) and symbol.name.partition(".")[0] in _PARSERS


def _is_nested_function(module: Module, call: ast.Call) -> bool:
    """Return whether a call is to a function that the same module defines at any level, as inside another function."""
    return isinstance(call.func, ast.Name) and any(
        isinstance(node, ast.FunctionDef) and node.name == call.func.id for node in ast.walk(module.tree)
    )


def _resolve_callee(module: Module, call: ast.Call) -> Symbol | None:
    """Return the called symbol, or None if the source does not determine it."""
    name = get_dotted_name(call.func)
    try:
        return module.resolve_name(name) if name else None
    except UndecidedError:
        return None


def _find_parser_parameters(
    function: ast.FunctionDef, call: ast.Call, parsers: set[str] | frozenset[str]
) -> frozenset[str]:
    """Return the parameters of a function that receive a parser in a call."""
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    arguments = [(name, value) for name, value in zip(names, call.args)]
    arguments += [(word.arg, word.value) for word in call.keywords if word.arg]
    return frozenset(name for name, value in arguments if _is_parser(value, parsers))


def _list_assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with the assigned value; unpacked targets are paired with the whole value."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        for element in target.elts if isinstance(target, (ast.List, ast.Tuple)) else [target]:
            yield element, node.value


def _list_arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(word.value for word in call.keywords)]


def _list_children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node itself, or for a method call the object and the arguments, as expressions to walk."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield ast.Expr(node.func.value)
        yield from (ast.Expr(word) for word in _list_arguments(node))
    else:
        yield node


def _is_parsing(statement: ast.stmt) -> bool:
    """Return whether a statement parses the command line."""
    return any(isinstance(node, ast.Attribute) and node.attr == "parse_args" for node in ast.walk(statement))


def _unroll_loop(module: Module, loop: ast.For, local: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the local variables in each iteration of a loop; if its values are unknown, yield once without them."""
    targets = loop.target.elts if isinstance(loop.target, (ast.List, ast.Tuple)) else [loop.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    try:
        values = evaluate(module, loop.iter, local)
    except UndecidedError:
        values = None
    rows = values if isinstance(values, list) else []
    if loop.target not in targets:
        rows = [row for row in rows if isinstance(row, list) and len(row) == len(targets)]
    elif names:
        rows = [[value] for value in rows]
    if not isinstance(values, list) or len(names) != len(targets) or len(rows) != len(values):
        yield {name: value for name, value in local.items() if name not in names}
        return
    for row in rows:
        yield {**local, **dict(zip(names, row))}
