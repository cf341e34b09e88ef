"""EasyR1: the tree of dataclasses below `PPOConfig`, into which OmegaConf merges the YAML file and the words."""

from __future__ import annotations

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    root = source.require_module("verl.trainer.config").resolve_name("PPOConfig")
    if not isinstance(root, Class):
        raise UndecidedError(f"{package} {source.tree.release}: PPOConfig is not a class")
    models = ModelReader(enum_names=True)
    keys = models.read_keys(root)
    return ReleaseTable({"PPOConfig": Definition(keys), **models.list_definitions()}, {"train": ("PPOConfig",)})
