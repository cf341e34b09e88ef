"""Recognition of OLMo-core configurations."""

from __future__ import annotations

import os

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.lens import format_route

if TYPE_CHECKING:
    from cfglint_train.documents.python.document import PythonDocument

TRAIN_MODULE_PATH: Final = "olmo_core.train.train_module"

_LADDERS: Final = ("olmo_core.model_ladder", "olmo_core.internal.ladder", "olmo_core.internal.model_ladder")

_TRAIN_MODULES: Final = frozenset(
    (
        "TransformerTrainModuleConfig",
        "TransformerPipelineTrainModuleConfig",
        "OLMoDDPTrainModuleConfig",
        "configure_train_module",
    )
)
_TRAINERS: Final = frozenset(("TrainerConfig", "configure_trainer"))
_CONSTRUCTORS: Final = (*_TRAIN_MODULES, *_TRAINERS)

_BUILDERS: Final = frozenset(("train_module_config_builder", "trainer_config_builder", "model_config_builder"))


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognize a script that assembles an OLMo-core experiment, or an experiment saved as JSON."""
    if document.syntax == "json":
        return _recognise_saved(document)
    if document.syntax != "python":
        return []
    from cfglint_train.documents.python.document import PythonDocument

    assert isinstance(document, PythonDocument)
    modules = {name for name in document.list_imports() if name == "olmo_core" or name.startswith("olmo_core.")}
    if not modules:
        return []
    if any(name.startswith(_LADDERS) for name in modules):
        return [RecognisedConfig((), 60, "an OLMo-core ladder computes its sizes at run time", "other")]
    groups = list(document.list_keyword_groups())
    builders = any(len(names & _BUILDERS) > 1 for names in groups)
    joins = any("trainer" in names and ("train_module" in names or "model" in names) for names in groups)
    if not builders and not (joins and document.find_calls(*_CONSTRUCTORS)) and not _has_joint_builder(document):
        return []
    if _is_library_module(document.path):
        return []
    return [RecognisedConfig((), 60, "it imports olmo_core and builds a training config")]


def _has_joint_builder(document: PythonDocument) -> bool:
    """Return whether one function builds both a train module and a trainer, for example to return them as a tuple."""
    import ast

    from cfglint_train.documents.python.syntax import get_callee_name

    if not document.find_calls(*_TRAIN_MODULES) or not document.find_calls(*_TRAINERS):
        return False
    functions = (*document.list_nodes(ast.FunctionDef), *document.list_nodes(ast.AsyncFunctionDef))
    calls_by_function = [
        {get_callee_name(node) for node in ast.walk(function) if isinstance(node, ast.Call)} for function in functions
    ]
    return any(names & _TRAIN_MODULES and names & _TRAINERS for names in calls_by_function)


def _is_library_module(path: str) -> bool:
    """Return whether a file is a module of the olmo_core package itself, for example in a copy."""
    parent, package, _ = path.replace(os.sep, "/").rpartition("/olmo_core/")
    return bool(package) and filesystem.exists(os.path.join(f"{parent}/olmo_core", "__init__.py"))


def _recognise_saved(document: Document) -> list[RecognisedConfig]:
    root = document.root
    if not isinstance(root, MappingNode) or not root.index.keys() >= {"model", "trainer"}:
        return []
    classes = [document.get_value((section, "_CLASS_")) for section in ("model", "trainer", "train_module")]
    if not any(isinstance(name, str) and name.startswith("olmo_core.") for name in classes):
        return []
    return [RecognisedConfig((), 60, "sections with OLMo-core classes (_CLASS_)")]


def prepare(document: Document) -> None:
    """Evaluate a script and attach the tree of its settings; a JSON file is already that tree."""
    if document.syntax != "python" or document.root is not None:
        return
    from cfglint_train.documents.document import Span
    from cfglint_train.documents.python.document import PythonDocument
    from cfglint_train.documents.python.tree import Record
    from cfglint_train.frameworks.olmo_core.script import evaluate_experiment

    assert isinstance(document, PythonDocument)
    unreadable = Record(Span(0, 0), [], open_="the script's settings cannot be determined without running it")
    document.attach_tree(evaluate_experiment(document) or unreadable, format_override)


def format_override(route: Route, value: Any) -> str:
    """Return advice to pass a setting at launch if the file cannot state it."""
    return f"pass --{format_route(route)}={_format_value(value)} at launch instead"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {_format_value(item)}" for key, item in value.items() if key != "_CLASS_")
        return "'{" + inner.replace("'", "") + "}'"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
