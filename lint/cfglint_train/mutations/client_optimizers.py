"""Programs of a repository that hand DeepSpeed an optimizer or a scheduler of their own: the file's section makes none
then.

DeepSpeed 0.10.0 to 0.19.8 `__init__.py` (initialize) and `runtime/engine.py` (_configure_optimizer,
_configure_lr_scheduler: up to 0.14 the file's scheduler won).
"""

from __future__ import annotations

import ast

from cfglint_train.documents.python.syntax import tree_of
from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import MAX_FOLLOWED, Followed
from cfglint_train.repository.index import RepositoryIndex

_CALL: Final = "deepspeed.initialize"
_POSITIONS: Final = {"optimizer": 2, "lr_scheduler": 5}
"""Among the arguments: `initialize(args, model, optimizer)`."""


def client_optimizer(index: RepositoryIndex) -> bool:
    """Whether one of the programs may hand it an optimizer, or there are too many to be read; copies of frameworks,
    which are not started so, do not count.
    """
    return _is_handed(index, "optimizer")


def client_scheduler(index: RepositoryIndex) -> bool:
    """Whether one of the programs may hand it a scheduler of the learning rate."""
    return _is_handed(index, "lr_scheduler")


def _is_handed(index: RepositoryIndex, keyword: str) -> bool:
    followed, left = index.once(Followed), MAX_FOLLOWED
    for path in index.pythons_having((_CALL,), "initialize"):
        if path.startswith(followed.copies):
            continue
        text = followed.text(path)
        left -= len(text)
        if left < 0 or _hands_one(text, keyword):
            return True
    return False


def _hands_one(text: str, keyword: str) -> bool:
    calls = [node for node in ast.walk(tree_of(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == _CALL]
    place = slice(_POSITIONS[keyword], _POSITIONS[keyword] + 1)
    given = [one for call in calls for one in (*call.args[place], *_by_keyword(call, keyword))]
    return any(not (isinstance(one, ast.Constant) and one.value is None) for one in given)


def _by_keyword(call: ast.Call, keyword: str) -> list[ast.expr]:
    """What an argument gets, and what may have it (`**arguments`)."""
    return [word.value for word in call.keywords if word.arg in (keyword, None)]
