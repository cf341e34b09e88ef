"""The trainer that a program creates: a package's class, or a class of the repository."""

from __future__ import annotations

import ast
from functools import lru_cache

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.trainer_script.class_sources import find_class, walk_bases
from cfglint_train.frameworks.trainer_script.facts import find_full_name
from cfglint_train.frameworks.trainer_script.names import PACKAGE_TRAINERS
from cfglint_train.frameworks.trainer_script.parser import MAX_CACHED_PROGRAMS

_DECISIVE_METHODS: Final = frozenset((
    "__init__", "compute_loss", "_compute_loss", "training_step", "get_batch_loss_metrics", "concatenated_forward",
    "_get_per_token_logps", "_get_per_token_logps_and_entropies", "_prepare_inputs",
    "_generate_and_score_completions",
))  # fmt: skip
"""Methods of a trainer that check its settings, or determine the contents and the memory of a step."""


class TrainerCall(Frozen):
    """A call that creates a trainer."""

    name: str
    """Class that the program calls."""
    base: str
    """Trainer of TRL or transformers that the class is or derives from; empty if there is none."""
    is_changed: bool
    """True if a class of the repository replaces the trainer's checks or its steps."""

    def is_like(self, other: TrainerCall) -> bool:
        """Return whether another call creates the same kind of trainer."""
        return (self.base, self.is_changed) == (other.base, other.is_changed)


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def find_trainer_call(program: PythonScript) -> TrainerCall | None:
    """Return the trainer that a program creates, or None if it creates none, or trainers of different kinds.

    A class counts as a trainer if the call passes `args`, and if its name ends with `Trainer` or it derives from a
    trainer of TRL or transformers.
    """
    calls = [call for call in program.list_nodes(ast.Call) if any(keyword.arg == "args" for keyword in call.keywords)]
    trainers = [
        trainer
        for call in calls
        if ((trainer := resolve_trainer(program, call)) is not None and trainer.base)
        or get_callee_name(call).endswith("Trainer")
    ]
    first = trainers[0] if trainers else None
    return first if all(item is not None and first is not None and item.is_like(first) for item in trainers) else None


def resolve_trainer(program: PythonScript, call: ast.Call) -> TrainerCall | None:
    """Return the trainer that a call creates, or None if its class or a base class cannot be found."""
    name, is_changed = get_callee_name(call), False
    source = find_class(program, call.func)
    if source is None and find_full_name(program, call.func):
        return TrainerCall(name, "", is_changed=True)  # a package other than TRL and transformers has it
    for item in walk_bases(source):
        if item is None:
            return None
        if item.definition is None:
            is_known = item.name in PACKAGE_TRAINERS.get(item.package, ())
            return TrainerCall(name, item.name, is_changed) if is_known else None
        is_changed = is_changed or _is_changing(item.definition)
    return TrainerCall(name, "", is_changed=True)


def _is_changing(node: ast.ClassDef) -> bool:
    """Return whether a class replaces the checks or the steps of the trainer that it derives from.

    A method that calls the method of the same name in the base class only adds to it.
    """
    methods = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return any(item.name in _DECISIVE_METHODS and not _calls_base(item) for item in methods)


def _calls_base(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    attributes = (item for item in ast.walk(method) if isinstance(item, ast.Attribute) and item.attr == method.name)
    return any(not (isinstance(item.value, ast.Name) and item.value.id == "self") for item in attributes)
