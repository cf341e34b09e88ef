"""Python source of a release: parse modules, resolve names, collect fields of classes, evaluate constant expressions.

The source is never imported or run. If it does not determine a value, `UndecidedError` is raised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final, Union

from cfglint_schemas.readers.arithmetic import BUILTINS, COMPARE, KNOWN_ATTRIBUTES, OPERATORS, UNARY, is_unbounded
from cfglint_schemas.readers.tree import SourceTree
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.python_arithmetic import MAX_LENGTH
from cfglint_train.foundation.python_grammar import parse_python

MAX_STEPS: Final = 500_000
"""Maximum number of steps (names, expressions, classes) per release; OpenRLHF 0.6.1 needs the most, 22,000."""


class UndecidedError(Exception):
    """Error for a value or a name that the source alone does not determine."""


class TooManyStepsError(Exception):
    """Error for a source that takes too many steps to read; it is not an `UndecidedError`, so no reader catches it."""


class Class(Frozen):
    """A class definition and its module."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Name of the class without its module."""
        return self.node.name


class Function(Frozen):
    """A function definition and its module."""

    module: Module
    node: ast.FunctionDef


class Assignment(Frozen):
    """The expression that a top-level name is assigned, and its module."""

    module: Module
    node: ast.expr


class External(Frozen):
    """A name that another package defines."""

    name: str


Symbol = Union[Class, Function, Assignment, External, "Module"]


class Field(Frozen):
    """A field: an annotated name in a class body."""

    owner: Class
    name: str
    annotation: ast.expr
    value: ast.expr | None


class Module:
    """A Python file.

    Later bindings of a name win, as they do at run time (the `else` of a conditional import).
    """

    __slots__ = ("bindings", "name", "source", "star_imports", "tree")

    def __init__(self, source: Source, name: str, text: str) -> None:
        """Parse a module and collect the bindings of its top-level names."""
        self.source = source
        self.name = name
        self.tree = parse_python(text)
        self.bindings: dict[str, ast.AST | tuple[str, str | None]] = {}
        self.star_imports: list[str] = []
        self._bind_names(self.tree.body)

    def _bind_names(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.bindings[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.bindings[target.id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.bindings[node.target.id] = node.value
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.bindings[name] = (alias.name if alias.asname else name, None)
            elif isinstance(node, ast.ImportFrom):
                self._bind_imports(node)
            elif isinstance(node, (ast.If, ast.Try)):
                self._bind_names(node.body)
                for handler in getattr(node, "handlers", ()):
                    self._bind_names(handler.body)
                self._bind_names(node.orelse)

    def _bind_imports(self, node: ast.ImportFrom) -> None:
        origin = self.resolve_import(node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*":
                self.star_imports.append(origin)
            else:
                self.bindings[alias.asname or alias.name] = (origin, alias.name)

    def resolve_import(self, name: str, level: int) -> str:
        """Return the absolute dotted name of the module in an import; `level` is the number of leading dots."""
        if not level:
            return name
        parts = self.name.split(".")
        package = parts if self.source.is_package(self.name) else parts[:-1]
        package = package[: len(package) - (level - 1)]
        return ".".join([*package, name] if name else package)

    def resolve_name(self, name: str, depth: int = 0) -> Symbol:
        """Return the symbol that a simple or dotted name refers to; raise UndecidedError if it is not bound."""
        head, _, attributes = name.partition(".")
        symbol = self._resolve_part(head, depth)
        for part in attributes.split(".") if attributes else ():
            if isinstance(symbol, Module):
                symbol = symbol.resolve_name(part, depth + 1)
            elif isinstance(symbol, External):
                symbol = External(f"{symbol.name}.{part}")
            else:
                raise UndecidedError(f"{name} in {self.name}")
        return symbol

    def _resolve_part(self, name: str, depth: int) -> Symbol:
        self.source.count_steps()
        if depth > 50:
            raise UndecidedError(f"{name} in {self.name}: circular reference")
        binding = self.bindings.get(name)
        if binding is None:
            return self._resolve_indirect(name, depth)
        if isinstance(binding, tuple):
            origin, imported = binding
            return self.source.resolve_imported(origin, imported, depth + 1)
        if isinstance(binding, ast.ClassDef):
            return Class(self, binding)
        if isinstance(binding, ast.FunctionDef):
            return Function(self, binding)
        assert isinstance(binding, ast.expr)
        if isinstance(binding, (ast.Name, ast.Attribute)) and (dotted := get_dotted_name(binding)) and dotted != name:
            try:
                return self.resolve_name(dotted, depth + 1)
            except UndecidedError:
                pass
        return Assignment(self, binding)

    def _resolve_indirect(self, name: str, depth: int) -> Symbol:
        for origin in self.star_imports:
            module = self.source.find_module(origin)
            if module is not None:
                try:
                    return module._resolve_part(name, depth + 1)
                except UndecidedError:
                    continue
        submodule = self.source.find_module(f"{self.name}.{name}")
        if submodule is not None:
            return submodule
        raise UndecidedError(f"{name} in {self.name}")


class Source:
    """The modules of one release; each is parsed when first needed."""

    __slots__ = ("_modules", "_packages", "_steps", "tree")

    def __init__(self, tree: SourceTree) -> None:
        """Store a source tree; its modules are parsed later."""
        self.tree = tree
        self._modules: dict[str, Module | None] = {}
        self._packages = {path.partition("/")[0] for path in tree.files if "/" in path}
        self._steps = 0

    def count_steps(self, count: int = 1) -> None:
        """Add to the number of steps; raise TooManyStepsError if it exceeds `MAX_STEPS`."""
        self._steps += count
        if self._steps > MAX_STEPS:
            raise TooManyStepsError(f"{self.tree.package} {self.tree.release}")

    def is_package(self, name: str) -> bool:
        """Return whether a dotted name is a package, that is, a folder with an `__init__.py`."""
        return self.tree.has_file(name.replace(".", "/") + "/__init__.py")

    def find_module(self, name: str) -> Module | None:
        """Return a module by its dotted name, or None if the source tree does not have it."""
        if name not in self._modules:
            path = name.replace(".", "/")
            text = self.tree.files.get(path + ".py", self.tree.files.get(path + "/__init__.py"))
            self._modules[name] = None if text is None else Module(self, name, text)
        return self._modules[name]

    def is_internal(self, name: str) -> bool:
        """Return whether a dotted name belongs to the packages of the source tree.

        If an internal name cannot be resolved, its module is missing because the tree is incomplete.
        """
        return name.partition(".")[0] in self._packages

    def require_module(self, *names: str) -> Module:
        """Return the first of the named modules that exists; raise UndecidedError if none does."""
        for name in names:
            module = self.find_module(name)
            if module is not None:
                return module
        raise UndecidedError(f"{self.tree.package} {self.tree.release} has none of {', '.join(names)}")

    def list_modules(self, folder: str, word: str = "") -> Iterator[Module]:
        """Yield the modules below a folder whose source contains `word`, in the order of their paths."""
        for path in self.tree.list_files(folder):
            if not path.endswith(".py") or word not in self.tree.files[path]:
                continue
            module = self.find_module(path[: -len(".py")].removesuffix("/__init__").replace("/", "."))
            assert module is not None
            yield module

    def resolve_imported(self, origin: str, name: str | None, depth: int = 0) -> Symbol:
        """Return the module `origin`, or the symbol `name` in it; `External` if the tree does not have the module."""
        module = self.find_module(origin)
        if module is None:
            return External(origin if name is None else f"{origin}.{name}")
        return module if name is None else module.resolve_name(name, depth)


def get_dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` for a chain of attributes, or None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = get_dotted_name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def resolve_bases(class_: Class) -> list[Symbol]:
    """Return the bases of a class, without those that are not simple or dotted names.

    Raises UndecidedError if the module of a base in this package is missing.
    """
    symbols: list[Symbol] = []
    for node in class_.node.bases:
        name = get_dotted_name(node.value if isinstance(node, ast.Subscript) else node)
        if name is None:
            continue
        try:
            symbol = class_.module.resolve_name(name)
        except UndecidedError:
            symbol = External(name)
        if isinstance(symbol, External) and class_.module.source.is_internal(symbol.name):
            raise UndecidedError(f"{symbol.name}, which {class_.name} descends from, is missing")
        symbols.append(symbol)
    return symbols


def list_ancestors(class_: Class) -> list[Class]:
    """Return a class and its ancestors in this package, most derived first, each once (depth-first, left to right)."""
    ancestors: list[Class] = []
    class_.module.source.count_steps()
    for base in resolve_bases(class_):
        if isinstance(base, Class):
            for ancestor in list_ancestors(base):
                class_.module.source.count_steps(1 + len(ancestors) // 8)
                if ancestor in ancestors:
                    ancestors.remove(ancestor)
                ancestors.append(ancestor)
    return [class_, *[ancestor for ancestor in ancestors if ancestor.node is not class_.node]]


def is_descendant(class_: Class, *names: str) -> bool:
    """Return whether a class or one of its ancestors has one of the names.

    For a base from another package, the last part of its dotted name is compared.
    """
    for ancestor in list_ancestors(class_):
        if ancestor.name in names:
            return True
        for base in resolve_bases(ancestor):
            if isinstance(base, External) and base.name.rpartition(".")[2] in names:
                return True
    return False


def list_own_fields(class_: Class) -> list[Field]:
    """Return the fields that a class body declares, in order; class variables and private names are not fields."""
    fields = []
    for node in class_.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            head = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
            if (get_dotted_name(head) or "").rpartition(".")[2] not in ("ClassVar", "InitVar"):
                fields.append(Field(class_, node.target.id, unquote_annotation(node.annotation), node.value))
    return fields


def collect_fields(class_: Class) -> dict[str, Field]:
    """Return the fields of a class, including inherited ones; the most derived definition of a name wins."""
    fields: dict[str, Field] = {}
    for ancestor in reversed(list_ancestors(class_)):
        for field in list_own_fields(ancestor):
            class_.module.source.count_steps()
            fields[field.name] = field
        for node in ancestor.node.body:
            # An assignment without annotation in a derived class changes the default of an inherited field.
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in fields and fields[name].owner.node is not ancestor.node:
                    fields[name] = fields[name]._replace(value=node.value)
    return fields


def unquote_annotation(annotation: ast.expr) -> ast.expr:
    """Return an annotation, parsed if it is a string; raise UndecidedError if the string is not an expression."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            raise UndecidedError(f"annotation {annotation.value!r}") from None
    return annotation


def is_enum(class_: Class) -> bool:
    """Return whether a class is an enumeration."""
    return is_descendant(class_, "Enum", "StrEnum", "IntEnum", "ExplicitEnum", "BaseEnum")


def list_members(class_: Class) -> dict[str, Any]:
    """Return the names and values of an enumeration's members.

    `auto()` counts as the name in lower case, a tuple as its first item, and an undetermined value as the name.
    """
    values: dict[str, Any] = {}
    for ancestor in reversed(list_ancestors(class_)):
        for node in ancestor.node.body:
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                continue
            name = node.targets[0].id
            if name.startswith("_"):
                continue
            value: ast.expr = node.value
            if isinstance(value, ast.Tuple) and value.elts:
                value = value.elts[0]
            if isinstance(value, ast.Call) and (get_dotted_name(value.func) or "").rpartition(".")[2] == "auto":
                values[name] = name.lower()
                continue
            try:
                values[name] = evaluate(ancestor.module, value, values)
            except UndecidedError:
                values[name] = name
    return values


def evaluate(module: Module, node: ast.expr, local: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """Return the value of a constant expression; raise UndecidedError for any other expression.

    Constants assigned to names, enumeration members and calls of some builtins are followed. `local` has the values of
    local names. Tuples and sets are returned as lists.
    """
    if depth > 50:
        raise UndecidedError("circular")
    module.source.count_steps()

    def evaluate_child(child: ast.expr) -> Any:
        return evaluate(module, child, local, depth + 1)

    if isinstance(node, ast.Constant):
        if node.value is Ellipsis or isinstance(node.value, (bytes, complex)):
            raise UndecidedError(ast.dump(node))
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [evaluate_child(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise UndecidedError("dictionary display with **")
        try:
            return {
                evaluate_child(key): evaluate_child(value)
                for key, value in zip(node.keys, node.values)
                if key is not None
            }
        except TypeError:  # a list cannot be a key
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        try:
            return UNARY[type(node.op)](evaluate_child(node.operand))
        except TypeError:
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = evaluate_child(node.left), evaluate_child(node.right)
        if is_unbounded(node.op, left, right):
            raise UndecidedError(ast.unparse(node))
        try:
            return OPERATORS[type(node.op)](left, right)
        except (TypeError, ValueError, ArithmeticError):
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.IfExp):
        return evaluate_child(node.body if evaluate_child(node.test) else node.orelse)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        return COMPARE[type(node.ops[0])](evaluate_child(node.left), evaluate_child(node.comparators[0]))
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(evaluate_child(part)) for part in node.values)
        if len(text) > MAX_LENGTH:
            raise UndecidedError(f"a string of more than {MAX_LENGTH} characters")
        return text
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return evaluate_child(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _evaluate_name(module, node, local, depth)
    if isinstance(node, ast.Call):
        return _evaluate_call(module, node, local, depth)
    raise UndecidedError(ast.unparse(node))


def _evaluate_name(module: Module, node: ast.Name | ast.Attribute, local: dict[str, Any] | None, depth: int) -> Any:
    if isinstance(node, ast.Name) and local is not None and node.id in local:
        return local[node.id]
    if isinstance(node, ast.Attribute):
        if node.attr == "value":
            return evaluate(module, node.value, local, depth + 1)
        owner = get_dotted_name(node.value)
        if owner is None:
            raise UndecidedError(ast.unparse(node))
        if f"{owner}.{node.attr}" in KNOWN_ATTRIBUTES:
            return KNOWN_ATTRIBUTES[f"{owner}.{node.attr}"]
        try:
            symbol = module.resolve_name(owner)
        except UndecidedError:
            raise UndecidedError(ast.unparse(node)) from None
        if isinstance(symbol, Class):
            if is_enum(symbol):
                values = list_members(symbol)
                if node.attr in values:
                    return values[node.attr]
            raise UndecidedError(ast.unparse(node))
    name = get_dotted_name(node)
    assert name is not None
    symbol = module.resolve_name(name)
    if isinstance(symbol, Assignment):
        return evaluate(symbol.module, symbol.node, None, depth + 1)
    raise UndecidedError(name)


def _evaluate_call(module: Module, node: ast.Call, local: dict[str, Any] | None, depth: int) -> Any:
    name = get_dotted_name(node.func)
    if name in BUILTINS and name not in module.bindings and not node.keywords:
        arguments = [evaluate(module, argument, local, depth + 1) for argument in node.args]
        try:
            result = BUILTINS[name](*arguments)
        except (TypeError, ValueError):
            raise UndecidedError(ast.unparse(node)) from None
        return list(result) if isinstance(result, (tuple, set)) else result
    if name is not None and len(node.args) >= 1 and (numeric := _find_numeric_base(module, name)) is not None:
        return numeric(evaluate(module, node.args[0], local, depth + 1))
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "values") and not node.args:
        owner = evaluate(module, node.func.value, local, depth + 1)
        if isinstance(owner, dict):
            return list(getattr(owner, node.func.attr)())
    raise UndecidedError(ast.unparse(node))


def _find_numeric_base(module: Module, name: str) -> type[int] | type[float] | None:
    """Return `int` or `float` if a class of this name derives from it (DeepSpeed's `pp_int`), or None."""
    try:
        symbol = module.resolve_name(name)
    except UndecidedError:
        return None
    if isinstance(symbol, Class):
        for base in symbol.node.bases:
            if get_dotted_name(base) in ("int", "float"):
                return int if get_dotted_name(base) == "int" else float
    return None
