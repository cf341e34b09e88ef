"""A release's Python read as text: names resolved across modules, classes with their fields, constants evaluated.

Nothing here imports or runs what it reads. What cannot be determined from the text raises `UndecidedError`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final, Union

from cfglint_schemas.readers.arithmetic import BUILTINS, COMPARE, KNOWN_ATTRIBUTES, OPERATORS, UNARY, blows_up
from cfglint_schemas.readers.tree import Tree
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.python_arithmetic import LONGEST
from cfglint_train.foundation.python_grammar import parsed

MAX_STEPS: Final = 500_000
"""Names, expressions and classes that are looked at in one release. OpenRLHF 0.6.1 takes the most, 22,000."""


class UndecidedError(Exception):
    """A value or a name that the text alone does not settle."""


class TooManyStepsError(Exception):
    """A text that refers to itself so often that reading it does not end soon; never swallowed as undecided."""


class Class(Frozen):
    """A class definition and the module that it is in."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Its bare name."""
        return self.node.name


class Function(Frozen):
    """A function definition and the module that it is in."""

    module: Module
    node: ast.FunctionDef


class Bound(Frozen):
    """A name that is assigned an expression."""

    module: Module
    node: ast.expr


class External(Frozen):
    """A name that another package defines."""

    name: str


Symbol = Union[Class, Function, Bound, External, "Module"]


class Field(Frozen):
    """One annotated name in a class body."""

    owner: Class
    name: str
    annotation: ast.expr
    value: ast.expr | None


class Module:
    """One Python file. Later bindings of a name win, as they do when it runs (the `else` of a conditional import)."""

    __slots__ = ("bindings", "name", "source", "stars", "tree")

    def __init__(self, source: Source, name: str, text: str) -> None:
        self.source = source
        self.name = name
        self.tree = parsed(text)
        self.bindings: dict[str, ast.AST | tuple[str, str | None]] = {}
        self.stars: list[str] = []
        self._bind(self.tree.body)

    def _bind(self, body: list[ast.stmt]) -> None:
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
                    bound = alias.asname or alias.name.partition(".")[0]
                    self.bindings[bound] = (alias.name if alias.asname else bound, None)
            elif isinstance(node, ast.ImportFrom):
                self._bind_from(node)
            elif isinstance(node, (ast.If, ast.Try)):
                self._bind(node.body)
                for handler in getattr(node, "handlers", ()):
                    self._bind(handler.body)
                self._bind(node.orelse)

    def _bind_from(self, node: ast.ImportFrom) -> None:
        origin = self.absolute(node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(origin)
            else:
                self.bindings[alias.asname or alias.name] = (origin, alias.name)

    def absolute(self, name: str, level: int) -> str:
        """A relative import's module as a dotted name from the root."""
        if not level:
            return name
        parts = self.name.split(".")
        package = parts if self.source.is_package(self.name) else parts[:-1]
        package = package[: len(package) - (level - 1)]
        return ".".join([*package, name] if name else package)

    def resolve(self, name: str, depth: int = 0) -> Symbol:
        """What a name (dotted or not) means here. Raises UndecidedError for a name that nothing binds."""
        head, _, rest = name.partition(".")
        symbol = self._resolve(head, depth)
        for part in rest.split(".") if rest else ():
            if isinstance(symbol, Module):
                symbol = symbol.resolve(part, depth + 1)
            elif isinstance(symbol, External):
                symbol = External(f"{symbol.name}.{part}")
            else:
                raise UndecidedError(f"{name} in {self.name}")
        return symbol

    def _resolve(self, name: str, depth: int) -> Symbol:
        self.source.step()
        if depth > 50:
            raise UndecidedError(f"{name} in {self.name}: circular")
        bound = self.bindings.get(name)
        if bound is None:
            return self._from_elsewhere(name, depth)
        if isinstance(bound, tuple):
            origin, wanted = bound
            return self.source.find(origin, wanted, depth + 1)
        if isinstance(bound, ast.ClassDef):
            return Class(self, bound)
        if isinstance(bound, ast.FunctionDef):
            return Function(self, bound)
        assert isinstance(bound, ast.expr)
        if isinstance(bound, (ast.Name, ast.Attribute)) and (dotted := dotted_name(bound)) and dotted != name:
            try:
                return self.resolve(dotted, depth + 1)
            except UndecidedError:
                pass
        return Bound(self, bound)

    def _from_elsewhere(self, name: str, depth: int) -> Symbol:
        for origin in self.stars:
            module = self.source.module(origin)
            if module is not None:
                try:
                    return module._resolve(name, depth + 1)
                except UndecidedError:
                    continue
        submodule = self.source.module(f"{self.name}.{name}")
        if submodule is not None:
            return submodule
        raise UndecidedError(f"{name} in {self.name}")


class Source:
    """All modules of one release, each parsed when it is first asked for."""

    __slots__ = ("_modules", "_packages", "_steps", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._modules: dict[str, Module | None] = {}
        self._packages = {path.partition("/")[0] for path in tree.files if "/" in path}
        self._steps = 0

    def step(self, count: int = 1) -> None:
        """Count steps of reading. Raises TooManyStepsError where names that stand for names take too many."""
        self._steps += count
        if self._steps > MAX_STEPS:
            raise TooManyStepsError(f"{self.tree.package} {self.tree.release}")

    def is_package(self, name: str) -> bool:
        """Whether a dotted name is a folder with an `__init__.py`."""
        return self.tree.has(name.replace(".", "/") + "/__init__.py")

    def module(self, name: str) -> Module | None:
        """A module by its dotted name; None where this release has none."""
        if name not in self._modules:
            path = name.replace(".", "/")
            text = self.tree.files.get(path + ".py", self.tree.files.get(path + "/__init__.py"))
            self._modules[name] = None if text is None else Module(self, name, text)
        return self._modules[name]

    def lacks(self, name: str) -> bool:
        """Whether a dotted name belongs to the package itself, and yet is not in its text (a part of it was read)."""
        return name.partition(".")[0] in self._packages

    def need(self, *names: str) -> Module:
        """The first of some modules that exists. Raises UndecidedError where none does."""
        for name in names:
            module = self.module(name)
            if module is not None:
                return module
        raise UndecidedError(f"{self.tree.package} {self.tree.release} has none of {', '.join(names)}")

    def modules(self, folder: str, having: str = "") -> Iterator[Module]:
        """Every module below a folder whose text has a word, in the order of their paths."""
        for path in self.tree.below(folder):
            if having not in self.tree.files[path]:
                continue
            module = self.module(path[: -len(".py")].removesuffix("/__init__").replace("/", "."))
            assert module is not None
            yield module

    def find(self, origin: str, wanted: str | None, depth: int = 0) -> Symbol:
        """A module, or what one of its names means."""
        module = self.module(origin)
        if module is None:
            return External(origin if wanted is None else f"{origin}.{wanted}")
        return module if wanted is None else module.resolve(wanted, depth)


def dotted_name(node: ast.expr) -> str | None:
    """`a.b.c` of a chain of attributes, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def bases(of: Class) -> list[Symbol]:
    """What a class inherits from, as far as the text shows."""
    found: list[Symbol] = []
    for node in of.node.bases:
        name = dotted_name(node.value if isinstance(node, ast.Subscript) else node)
        if name is None:
            continue
        try:
            symbol = of.module.resolve(name)
        except UndecidedError:
            symbol = External(name)
        if isinstance(symbol, External) and of.module.source.lacks(symbol.name):
            raise UndecidedError(f"{symbol.name}, which {of.name} descends from, is not there")
        found.append(symbol)
    return found


def lineage(of: Class) -> list[Class]:
    """A class and its ancestors in this package, most derived first, each once (depth first, left to right)."""
    seen: list[Class] = []
    of.module.source.step()
    for base in bases(of):
        if isinstance(base, Class):
            for ancestor in lineage(base):
                of.module.source.step(1 + len(seen) // 8)
                if ancestor in seen:
                    seen.remove(ancestor)
                seen.append(ancestor)
    return [of, *[ancestor for ancestor in seen if ancestor.node is not of.node]]


def descends_from(of: Class, *names: str) -> bool:
    """Whether one of the names stands among a class's ancestors, in this package or as an external name's last part."""
    for ancestor in lineage(of):
        if ancestor.name in names:
            return True
        for base in bases(ancestor):
            if isinstance(base, External) and base.name.rpartition(".")[2] in names:
                return True
    return False


def own_fields(of: Class) -> list[Field]:
    """The annotated names of one class body, in order; class variables and private names aside."""
    found = []
    for node in of.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            head = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
            if (dotted_name(head) or "").rpartition(".")[2] not in ("ClassVar", "InitVar"):
                found.append(Field(of, node.target.id, unquoted(node.annotation), node.value))
    return found


def all_fields(of: Class) -> dict[str, Field]:
    """The fields of a class with those that it inherits; the most derived definition of a name wins."""
    found: dict[str, Field] = {}
    for ancestor in reversed(lineage(of)):
        for field in own_fields(ancestor):
            of.module.source.step()
            found[field.name] = field
        for node in ancestor.node.body:
            # A bare assignment in a derived class changes the default of an inherited field.
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in found and found[name].owner.node is not ancestor.node:
                    found[name] = found[name]._replace(value=node.value)
    return found


def unquoted(annotation: ast.expr) -> ast.expr:
    """An annotation that is written as a string, parsed."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            raise UndecidedError(f"annotation {annotation.value!r}") from None
    return annotation


def is_enum(of: Class) -> bool:
    """Whether a class is an enumeration."""
    return descends_from(of, "Enum", "StrEnum", "IntEnum", "ExplicitEnum", "BaseEnum")


def members(of: Class) -> dict[str, Any]:
    """An enumeration's members: name to value. `auto()` gives what a string enumeration makes of it."""
    found: dict[str, Any] = {}
    for ancestor in reversed(lineage(of)):
        for node in ancestor.node.body:
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                continue
            name = node.targets[0].id
            if name.startswith("_"):
                continue
            value: ast.expr = node.value
            if isinstance(value, ast.Tuple) and value.elts:
                value = value.elts[0]
            if isinstance(value, ast.Call) and (dotted_name(value.func) or "").rpartition(".")[2] == "auto":
                found[name] = name.lower()
                continue
            try:
                found[name] = evaluate(ancestor.module, value, found)
            except UndecidedError:
                found[name] = name
    return found


def evaluate(module: Module, node: ast.expr, local: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """The value of an expression made of constants. Raises UndecidedError for everything else."""
    if depth > 50:
        raise UndecidedError("circular")
    module.source.step()

    def deeper(child: ast.expr) -> Any:
        return evaluate(module, child, local, depth + 1)

    if isinstance(node, ast.Constant):
        if node.value is Ellipsis or isinstance(node.value, (bytes, complex)):
            raise UndecidedError(ast.dump(node))
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [deeper(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise UndecidedError("dictionary display with **")
        try:
            return {deeper(key): deeper(value) for key, value in zip(node.keys, node.values) if key is not None}
        except TypeError:  # a list is no key
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        try:
            return UNARY[type(node.op)](deeper(node.operand))
        except TypeError:
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = deeper(node.left), deeper(node.right)
        if blows_up(node.op, left, right):
            raise UndecidedError(ast.unparse(node))
        try:
            return OPERATORS[type(node.op)](left, right)
        except (TypeError, ValueError, ArithmeticError):
            raise UndecidedError(ast.unparse(node)) from None
    if isinstance(node, ast.IfExp):
        return deeper(node.body if deeper(node.test) else node.orelse)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        return COMPARE[type(node.ops[0])](deeper(node.left), deeper(node.comparators[0]))
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(deeper(part)) for part in node.values)
        if len(text) > LONGEST:
            raise UndecidedError("a text that grows")
        return text
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return deeper(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _named(module, node, local, depth)
    if isinstance(node, ast.Call):
        return _called(module, node, local, depth)
    raise UndecidedError(ast.unparse(node))


def _named(module: Module, node: ast.Name | ast.Attribute, local: dict[str, Any] | None, depth: int) -> Any:
    if isinstance(node, ast.Name) and local is not None and node.id in local:
        return local[node.id]
    if isinstance(node, ast.Attribute):
        if node.attr == "value":
            return evaluate(module, node.value, local, depth + 1)
        owner = dotted_name(node.value)
        if owner is None:
            raise UndecidedError(ast.unparse(node))
        if f"{owner}.{node.attr}" in KNOWN_ATTRIBUTES:
            return KNOWN_ATTRIBUTES[f"{owner}.{node.attr}"]
        try:
            symbol = module.resolve(owner)
        except UndecidedError:
            raise UndecidedError(ast.unparse(node)) from None
        if isinstance(symbol, Class):
            if is_enum(symbol):
                known = members(symbol)
                if node.attr in known:
                    return known[node.attr]
            raise UndecidedError(ast.unparse(node))
    name = dotted_name(node)
    assert name is not None
    symbol = module.resolve(name)
    if isinstance(symbol, Bound):
        return evaluate(symbol.module, symbol.node, None, depth + 1)
    raise UndecidedError(name)


def _called(module: Module, node: ast.Call, local: dict[str, Any] | None, depth: int) -> Any:
    name = dotted_name(node.func)
    if name in BUILTINS and name not in module.bindings and not node.keywords:
        arguments = [evaluate(module, argument, local, depth + 1) for argument in node.args]
        try:
            made = BUILTINS[name](*arguments)
        except (TypeError, ValueError):
            raise UndecidedError(ast.unparse(node)) from None
        return list(made) if isinstance(made, (tuple, set)) else made
    if name is not None and len(node.args) >= 1 and (numeric := _numeric_class(module, name)) is not None:
        return numeric(evaluate(module, node.args[0], local, depth + 1))
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "values") and not node.args:
        owner = evaluate(module, node.func.value, local, depth + 1)
        if isinstance(owner, dict):
            return list(getattr(owner, node.func.attr)())
    raise UndecidedError(ast.unparse(node))


def _numeric_class(module: Module, name: str) -> type[int] | type[float] | None:
    """`int` or `float` for a class of the package that derives from it (DeepSpeed's `pp_int`)."""
    try:
        symbol = module.resolve(name)
    except UndecidedError:
        return None
    if isinstance(symbol, Class):
        for base in symbol.node.bases:
            if dotted_name(base) in ("int", "float"):
                return int if dotted_name(base) == "int" else float
    return None
