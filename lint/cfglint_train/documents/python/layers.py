"""Merged mappings in a Python file: OmegaConf's merge, `update`, `{**a, **b}`, `a | b`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import combinations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_MERGE_FUNCTION: Final = compile_on_use(r"(?:unsafe_|deep_?|recursive_)?(?:merge|update)(?:_with|_dicts?)?")
"""Pattern of functions that merge mappings into their first argument or into the object they are called on.

Sources: OmegaConf 2.3 `omegaconf.py` (merge, unsafe_merge), `basecontainer.py` (merge_with); mergedeep; deepmerge
(`always_merger.merge`).
"""
_SET_ONE_KEY: Final = "OmegaConf.update"
"""Call that sets a single key of a mapping (`OmegaConf.update(config, key, value)`)."""
_COPY_FUNCTIONS: Final = ("create", "copy", "deepcopy", "dict", "DictConfig", "to_container")
"""Functions that return a mapping equal to their argument."""
_ROUNDS: Final = 3
"""Maximum number of assignments that are followed from name to name."""
_MAX_LAYERS: Final = 20
"""Maximum number of mappings of one merge that are compared."""

Layer = tuple[ast.expr, ast.expr]
"""A base mapping and the mapping that overrides it."""


class Layers:
    """Merged mappings of a file. `assigned` holds every value that the file assigns to a variable."""

    def __init__(self, nodes: Iterable[ast.AST], assigned: dict[str, list[ast.expr]]) -> None:
        """Find the variables that the file modifies after assignment."""
        self._assigned = assigned
        self._modified = {
            ast.unparse(node.value)
            for node in nodes
            if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
        }
        """Source text of expressions that the file modifies, so that their assigned values are incomplete."""
        self._modified |= {
            ast.unparse(node.func.value)
            for node in nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _MERGE_FUNCTION.fullmatch(node.func.attr)
        }

    def find_layers(self, node: ast.AST) -> Iterator[Layer]:
        """Yield the pairs of mappings that a node merges: a base and the mapping that overrides it."""
        if isinstance(node, ast.Dict):
            yield from _pair_layers(_split_unpacked(node) if None in node.keys else [])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield node.left, node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
            yield node.target, node.value
        elif isinstance(node, ast.Call) and _MERGE_FUNCTION.fullmatch(ast.unparse(node.func).rpartition(".")[2]):
            if ast.unparse(node.func) == _SET_ONE_KEY:
                return
            spread = [word.value for word in node.keywords if word.arg is None]
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            yield from _pair_layers([*owner, *node.args, *spread])

    def find_keys(self, node: ast.expr, depth: int = 0) -> tuple[Route, ...] | None:
        """Return the routes of the keys of a mapping, or None if the source does not spell all of them out."""
        if isinstance(node, ast.Dict):
            return self._merge_routes(
                [self._find_entry_routes(key, value, depth) for key, value in zip(node.keys, node.values)]
            )
        if isinstance(node, ast.Name) and depth < _ROUNDS and node.id not in self._modified:
            values = self._assigned.get(node.id, [])
            return self._merge_routes([self.find_keys(value, depth + 1) for value in values]) if values else None
        if not isinstance(node, ast.Call):
            return None
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "dict" and not node.args:
            words = [((word.arg,),) if word.arg else self.find_keys(word.value, depth) for word in node.keywords]
            return self._merge_routes(words)
        if name == "from_dotlist" and len(node.args) == 1 and isinstance(node.args[0], (ast.List, ast.Tuple)):
            return self._merge_routes([_parse_dotted_key(item) for item in node.args[0].elts])
        if name in _COPY_FUNCTIONS and len(node.args) == 1:
            return self.find_keys(node.args[0], depth)
        return None

    def _find_entry_routes(self, key: ast.expr | None, value: ast.expr, depth: int) -> tuple[Route, ...] | None:
        if key is None:
            return self.find_keys(value, depth)
        if not (isinstance(key, ast.Constant) and isinstance(key.value, (str, int))):
            return None
        child_routes = self.find_keys(value, depth) if isinstance(value, ast.Dict) else None
        return tuple((key.value, *route) for route in child_routes) if child_routes else ((key.value,),)

    @staticmethod
    def _merge_routes(parts: list[tuple[Route, ...] | None]) -> tuple[Route, ...] | None:
        routes: list[Route] = []
        for part in parts:
            if part is None:
                return None
            routes += part
        return tuple(routes)


def _pair_layers(layers: list[ast.expr]) -> Iterator[Layer]:
    """Yield each mapping of a list paired with each mapping after it."""
    return combinations(layers[:_MAX_LAYERS], 2)


def _split_unpacked(node: ast.Dict) -> list[ast.expr]:
    """Return the mappings that a dictionary display unpacks, each followed by a mapping of the entries after it.

    The values of those entries become None, because an entry replaces a whole value. Entries before the first `**` are
    left out.
    """
    parts: list[ast.expr] = []
    for key, value in zip(node.keys, node.values):
        if key is None:
            parts += [value, ast.Dict([], [])]
        elif parts and isinstance(display := parts[-1], ast.Dict):
            display.keys.append(key)
            display.values.append(ast.Constant(None))
    return parts


def _parse_dotted_key(node: ast.expr) -> tuple[Route, ...] | None:
    """Return the route of the setting in `"optim.lr=1e-5"`, or None if it is not a string with `=`.

    For an f-string, only its constant beginning is read.
    """
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str) and "=" in first.value):
        return None
    return (tuple(first.value.partition("=")[0].split(".")),)
