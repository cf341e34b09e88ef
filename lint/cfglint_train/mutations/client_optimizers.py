"""Client optimizers: find programs that pass their own optimizer or scheduler to DeepSpeed.

DeepSpeed then ignores the matching section of its config. Sources: DeepSpeed 0.10.0 to 0.19.8 `__init__.py`
(initialize) and `runtime/engine.py` (_configure_optimizer, _configure_lr_scheduler: up to 0.14, the config's scheduler
took precedence).
"""

from __future__ import annotations

import ast

from cfglint_train.documents.python.syntax import parse_tree
from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import MAX_PROGRAM_BYTES, PythonSources
from cfglint_train.repository.index import RepositoryIndex

_CALL: Final = "deepspeed.initialize"
_POSITIONS: Final = {"optimizer": 2, "lr_scheduler": 5}
"""Positions of the arguments in a call: `initialize(args, model, optimizer)`."""


def has_client_optimizer(index: RepositoryIndex) -> bool:
    """Return whether a program of the repository may pass an optimizer to DeepSpeed.

    The result is also True if there are too many programs to read. Copies of frameworks do not count, because they are
    not started directly.
    """
    return _is_passed(index, "optimizer")


def has_client_scheduler(index: RepositoryIndex) -> bool:
    """Return whether a program of the repository may pass a learning rate scheduler to DeepSpeed.

    The rules of `has_client_optimizer` apply.
    """
    return _is_passed(index, "lr_scheduler")


def _is_passed(index: RepositoryIndex, keyword: str) -> bool:
    sources, budget = index.compute_once(PythonSources), MAX_PROGRAM_BYTES
    for path in index.find_python_using((_CALL,), "initialize"):
        if path.startswith(sources.copies):
            continue
        text = sources.read_source(path)
        budget -= len(text)
        if budget < 0 or _is_passed_in(text, keyword):
            return True
    return False


def _is_passed_in(text: str, keyword: str) -> bool:
    calls = [
        node for node in ast.walk(parse_tree(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == _CALL
    ]
    place = slice(_POSITIONS[keyword], _POSITIONS[keyword] + 1)
    arguments = [argument for call in calls for argument in (*call.args[place], *_get_keyword_arguments(call, keyword))]
    return any(not (isinstance(argument, ast.Constant) and argument.value is None) for argument in arguments)


def _get_keyword_arguments(call: ast.Call, keyword: str) -> list[ast.expr]:
    """Return the keyword's value, and the mappings that may contain it (`**arguments`)."""
    return [word.value for word in call.keywords if word.arg in (keyword, None)]
