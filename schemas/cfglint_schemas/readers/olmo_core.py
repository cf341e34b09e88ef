"""OLMo-core: the configuration dataclasses that scripts construct, by class name.

The entry point `script` has a key for each class name; `config` describes the contents of a saved `config.json`.
"""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.models import ModelReader, is_dataclass
from cfglint_schemas.readers.source import Class, Source, is_descendant
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey

_CLASSES: Final = "(classes)"
_ROOTS: Final = ("Config", "Callback", "OptimConfig", "Scheduler", "ModelConfig", "ModuleConfig")


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError if the package is incomplete."""
    source.require_module(
        "olmo_core.config"
    )  # base of all configurations; without it, only a part of the package was copied
    models = ModelReader()
    classes: dict[str, list[str]] = {}
    experiment: str | None = None
    for class_ in sorted(
        _find_config_classes(source), key=lambda item: (item.module.name.count("."), item.module.name)
    ):
        reference = models.name_definition(class_)
        if reference is not None:
            classes.setdefault(class_.name, []).append(reference)
            if class_.name == "ExperimentConfig" and class_.module.name == "olmo_core.internal.experiment":
                experiment = reference
    keys = {name: TableKey(_unite_references(references)) for name, references in classes.items()}
    entries: dict[str, tuple[str, ...]] = {"script": (_CLASSES,)}
    if experiment is not None:
        entries["config"] = (experiment,)
    return ReleaseTable({_CLASSES: Definition(keys, "kept"), **models.list_definitions()}, entries)


def _unite_references(references: list[str]) -> dict[str, object]:
    fragments = [{"$ref": f"#/$defs/{reference}"} for reference in references]
    return dict(fragments[0]) if len(fragments) == 1 else {"anyOf": fragments}


def _find_config_classes(source: Source) -> list[Class]:
    """Return the configuration dataclasses of the package, except those in test modules."""
    classes = []
    for module in source.list_modules("olmo_core", word="@dataclass"):
        if ".testing" in module.name or ".test_" in module.name:
            continue
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                class_ = Class(module, node)
                if is_dataclass(class_) and is_descendant(class_, *_ROOTS):
                    classes.append(class_)
    return classes
