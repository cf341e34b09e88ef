"""TRL and transformers classes that a script uses directly or derives its own classes from.

An argument class that the script patches at run time does not count, because its source does not show its arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from cfglint_train.documents.document import MISSING
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.shape import parse_shape
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.values import Class, External
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.class_sources import (
    ClassSource,
    find_class,
    find_imported_class,
    find_package_class,
    walk_bases,
)
from cfglint_train.frameworks.trainer_script.names import CONFIG_CLASSES, PACKAGE_TRAINERS

_PACKAGE_CONFIGS: Final[Mapping[str, Collection[str]]] = {"trl": CONFIG_CLASSES, "transformers": CONFIG_CLASSES}
_TRAINER_WORD: Final = "Trainer"
_LOSS_METHODS: Final = ("compute_loss", "training_step")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_DEPTH: Final = 5
"""Maximum number of base classes to follow from a script's class to the package's class."""


def find_base_trainer(evaluator: Evaluator, name: str) -> str:
    """Return the TRL or transformers trainer that a class is or derives from, or an empty string."""
    original = _find_original(evaluator, name, PACKAGE_TRAINERS, _MAX_DEPTH)
    if original or _TRAINER_WORD not in name.rpartition(".")[2]:
        return original
    return find_package_class(find_class_source(evaluator, name), PACKAGE_TRAINERS)


def find_class_source(evaluator: Evaluator, name: str) -> ClassSource | None:
    """Return the class that a script calls by this name, in the script or in another module, or None."""
    if "." in name:
        return find_imported_class(evaluator.document, name)
    return find_class(evaluator.document, ast.Name(name, ast.Load()))


def find_imported_default(source: ClassSource | None, name: str) -> Any:
    """Return the literal default of a field of a dataclass in another module, or MISSING."""
    for item in walk_bases(source):
        member = None if item is None or item.definition is None else parse_shape(item.definition).members.get(name)
        if isinstance(member, ast.Call) and get_callee_name(member) == "field":
            member = next((keyword.value for keyword in member.keywords if keyword.arg == "default"), None)
        if isinstance(member, ast.expr):
            try:
                return ast.literal_eval(member)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return MISSING
    return MISSING


def has_own_loss(evaluator: Evaluator, name: str) -> bool:
    """Return whether a trainer class, or a base class in the repository, replaces the loss or the training step.

    True if a base class cannot be found.
    """
    for source in walk_bases(find_class_source(evaluator, name)):
        if source is None:
            return True
        methods = () if source.definition is None else source.definition.body
        if any(isinstance(item, _FUNCTIONS) and item.name in _LOSS_METHODS for item in methods):
            return True
    return False


def find_base_config(evaluator: Evaluator, name: str) -> str:
    """Return the TRL or transformers argument class that a class is or derives from, or an empty string."""
    config_class = _find_original(evaluator, name, _PACKAGE_CONFIGS, _MAX_DEPTH)
    if not config_class and name:  # a class inside a function, whose base is imported there
        config_class = find_package_class(find_class_source(evaluator, name), _PACKAGE_CONFIGS)
    return "" if is_patched(evaluator, config_class) else config_class


def is_patched(evaluator: Evaluator, name: str) -> bool:
    """Return whether the script patches a class of this name from another module."""
    return any(patched_name.rpartition(".")[2] == name for patched_name in evaluator.patched_classes)


def _find_original(evaluator: Evaluator, name: str, package_classes: Mapping[str, Collection[str]], depth: int) -> str:
    module, _, last = name.rpartition(".")
    if module:
        if package_classes is not _PACKAGE_CONFIGS or module.partition(".")[0] in package_classes:
            return last if last in package_classes.get(module.partition(".")[0], ()) else ""
        # Another module of the repository may derive an argument class.
        return find_package_class(find_imported_class(evaluator.document, name), package_classes)
    owner = evaluator.module.names.get(last) or _find_inner_class(evaluator, last)
    if not isinstance(owner, Class) or not depth:
        return ""
    bases = (evaluator.evaluate(base, owner.scope) for base in owner.node.bases)
    names = (_get_name(base) for base in bases if isinstance(base, (External, Class)))
    return next(
        (
            original
            for base_name in names
            if (original := _find_original(evaluator, base_name, package_classes, depth - 1))
        ),
        "",
    )


def _get_name(base: External | Class) -> str:
    return base.name if isinstance(base, External) else base.node.name


def _find_inner_class(evaluator: Evaluator, name: str) -> Class | None:
    """Return the only class with a name in the script, even inside a function, or None unless there is exactly one."""
    definitions = evaluator.document.find_classes(name)
    return Class(definitions[0], evaluator.module) if len(definitions) == 1 else None
