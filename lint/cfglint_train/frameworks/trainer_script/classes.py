"""Which class of TRL or transformers a class of a script is, or is made from.

A class of arguments that the script changes at run time is none of theirs: what it takes is not in its text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.values import Class, External
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.trainer_script.names import CONFIGS, HF_TRAINERS, TRAINERS

_TRAINERS: Final[Mapping[str, Collection[str]]] = {"trl": TRAINERS, "transformers": HF_TRAINERS}
_CONFIGS: Final[Mapping[str, Collection[str]]] = {"trl": CONFIGS, "transformers": CONFIGS}
_DEEPEST: Final = 5
"""Classes between one of the script and the package's."""


def trainer_of(evaluator: Evaluator, name: str) -> str:
    """The trainer of TRL or transformers that a class is, or is made from; empty for other classes."""
    return _original(evaluator, name, _TRAINERS, _DEEPEST)


def config_of(evaluator: Evaluator, name: str) -> str:
    """The class of arguments of TRL or transformers that a class is, or is made from; empty for other classes."""
    found = _original(evaluator, name, _CONFIGS, _DEEPEST)
    return "" if is_patched(evaluator, found) else found


def is_patched(evaluator: Evaluator, name: str) -> bool:
    """Whether the script changes a class of this name of another module."""
    return any(one.rpartition(".")[2] == name for one in evaluator.patched)


def _original(evaluator: Evaluator, name: str, known: Mapping[str, Collection[str]], depth: int) -> str:
    module, _, last = name.rpartition(".")
    if module:
        return last if last in known.get(module.partition(".")[0], ()) else ""
    owner = evaluator.module.names.get(last) or _inner(evaluator, last)
    if not isinstance(owner, Class) or not depth:
        return ""
    bases = (evaluator.value(base, owner.scope) for base in owner.node.bases)
    names = (_name(base) for base in bases if isinstance(base, (External, Class)))
    return next((found for one in names if (found := _original(evaluator, one, known, depth - 1))), "")


def _name(base: External | Class) -> str:
    return base.name if isinstance(base, External) else base.node.name


def _inner(evaluator: Evaluator, name: str) -> Class | None:
    """The class of a name that a function of the script defines; None where there is none, or several."""
    found = evaluator.document.classes(name)
    return Class(found[0], evaluator.module) if len(found) == 1 else None
