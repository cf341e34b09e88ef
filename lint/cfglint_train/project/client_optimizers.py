"""Programs of a repository that hand DeepSpeed an optimizer of their own: the file's section makes none then.

DeepSpeed 0.10.0 to 0.19.8 `__init__.py` (initialize) and `runtime/engine.py` (_configure_optimizer).
"""

from __future__ import annotations

import ast

from cfglint_train.foundation.python_grammar import parsed
from cfglint_train.foundation.typed import Final
from cfglint_train.project.fillers import MAX_FOLLOWED, Followed
from cfglint_train.project.index import RepositoryIndex

_CALL: Final = "deepspeed.initialize"
_KEYWORD: Final = "optimizer"
_POSITION: Final = 2
"""Of the optimizer among the arguments: `initialize(args, model, optimizer)`."""


def client_optimizer(index: RepositoryIndex) -> bool:
    """Whether one of the programs may hand it one, or there are too many to be read; copies of frameworks, which are
    not started so, do not count.
    """
    followed, left = index.once(Followed), MAX_FOLLOWED
    for path in index.pythons_having((_CALL,), _KEYWORD):
        if path.startswith(followed.copies):
            continue
        text = followed.text(path)
        left -= len(text)
        if left < 0 or _hands_one(text):
            return True
    return False


def _hands_one(text: str) -> bool:
    try:
        nodes = list(ast.walk(parsed(text)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == _CALL]
    given = [one for call in calls for one in (*call.args[_POSITION : _POSITION + 1], *_by_keyword(call))]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in given)


def _by_keyword(call: ast.Call) -> list[ast.expr]:
    """The optimizer, and what may have it (`**arguments`)."""
    return [word.value for word in call.keywords if word.arg in (_KEYWORD, None)]
