"""OLMo v1: the tree of dataclasses below `TrainConfig`, into which OmegaConf merges the YAML file."""

from __future__ import annotations

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    root = source.require_module("olmo.config").resolve_name("TrainConfig")
    if not isinstance(root, Class):
        raise UndecidedError(f"{package} {source.tree.release}: TrainConfig is not a class")
    models = ModelReader(enum_names=True)
    keys = models.read_keys(root)
    return ReleaseTable({"TrainConfig": Definition(keys), **models.list_definitions()}, {"train": ("TrainConfig",)})
