"""Values of a Python file that it only prints or logs."""

from __future__ import annotations

import ast
import re

from cfglint_train.documents.python.layers import SAME
from cfglint_train.foundation.typed import Final

_LOGS: Final = re.compile(
    r"(?:wandb|swanlab|trackio|mlflow|comet_ml|logging|(?:\w+\.)*_?(?:logger|log))\.[\w.]+"
    r"|(?:.*\.)?(?:p?print|echo|info|debug|warning|add_text|add_hparams|init_trackers"
    r"|log(?:_(?:args|arguments|conf|config|dict|h?params|hyper_?param(?:eter)?s|metrics|parameters|settings))?)"
)
"""Functions that only show or record what they are given: of trackers, of logging, of TensorBoard and Accelerate."""
_SAME: Final = (*SAME, "list", "sorted", "dumps", "pformat", "repr", "str", "to_yaml")
"""Functions whose result is the same in another form."""
_METHODS: Final = ("copy", "get", "items", "keys", "pop", "setdefault", "update", "values")
"""Methods of a mapping."""
_PARTS: Final = (
    *(ast.keyword, ast.FormattedValue, ast.JoinedStr, ast.Starred, ast.BinOp, ast.IfExp, ast.BoolOp),
    *(ast.Dict, ast.List, ast.Tuple, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp),
)
"""Expressions that hold what is in them."""


class Logged:
    """What becomes of the values of one file. Names are taken for the same thing wherever they are in it."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._above = {id(below): node for node in nodes for below in ast.iter_child_nodes(node)}
        self._uses: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._uses.setdefault(node.id, []).append(node)
        self._configs = {
            ast.unparse(node.value)
            for node in nodes
            if isinstance(node, ast.Attribute) and node.attr == "config" and not self._is_owner(node)
        }
        """What has a `config` that is read: that of a tracker is what it was given."""

    def only(self, node: ast.expr) -> bool:
        """Whether a value is printed or logged and goes nowhere else."""
        return self._only(node, {})

    def names(self, name: str) -> bool:
        """Whether all that a variable holds is only logged."""
        return self._used(name, {})

    def _only(self, node: ast.AST, seen: dict[str, bool]) -> bool:
        above = self._above.get(id(node))
        if isinstance(above, ast.Expr):
            return True
        if isinstance(above, ast.Call):
            called = ast.unparse(above.func)
            if _LOGS.fullmatch(called):
                return not self._is_read_back(above, called)
            return called.rpartition(".")[2] in _SAME and self._only(above, seen)
        if isinstance(above, ast.Attribute):
            call = self._above.get(id(above))
            if isinstance(call, ast.Call) and call.func is above:
                return above.attr in _METHODS and self._only(call, seen)
            return not isinstance(above.ctx, ast.Load) or self._only(above, seen)
        if isinstance(above, ast.Subscript):
            return above.value is node and (not isinstance(above.ctx, ast.Load) or self._only(above, seen))
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(isinstance(one, ast.Name) and self._used(one.id, seen) for one in targets)
        if isinstance(above, (ast.For, ast.comprehension)):
            turns = [one for one in ast.walk(above.target) if isinstance(one, ast.Name)]
            return above.iter is node and all(self._used(one.id, seen) for one in turns)
        return isinstance(above, _PARTS) and self._only(above, seen)

    def _used(self, name: str, seen: dict[str, bool]) -> bool:
        if name not in seen:
            seen[name] = False  # what is assigned back to its own name is kept
            uses = self._uses.get(name, [])
            seen[name] = bool(uses) and all(self._only(one, seen) for one in uses)
        return seen[name]

    def _is_owner(self, node: ast.Attribute) -> bool:
        """Whether something is called of it (`wandb.config.update(...)`)."""
        above = self._above.get(id(node))
        call = self._above.get(id(above))
        return isinstance(above, ast.Attribute) and isinstance(call, ast.Call) and call.func is above

    def _is_read_back(self, call: ast.Call, called: str) -> bool:
        """Whether the settings that a tracker was given are read from it: a sweep's may be others."""
        above = self._above.get(id(call))
        runs = above.targets if isinstance(above, ast.Assign) else ()
        named = above.optional_vars if isinstance(above, ast.withitem) else None
        owners = {called.partition(".")[0], *(ast.unparse(one) for one in (*runs, *((named,) if named else ())))}
        return any(owner.partition(".")[0] in owners for owner in self._configs)
