"""Recognition of EasyR1's YAML files."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig

_PARTS: Final = frozenset(("actor", "critic", "ref", "reward", "rollout"))
"""Sections of `worker`; two suffice, because a name may be misspelt."""


def recognise(document: Document) -> list[RecognisedConfig]:
    """Return the YAML file if it has the sections of EasyR1."""
    root = document.root
    if document.syntax != "yaml" or not isinstance(root, MappingNode):
        return []
    worker = root.index.get("worker")
    parts = worker.value.index.keys() if worker is not None and isinstance(worker.value, MappingNode) else set[str]()
    if len(parts & _PARTS) < 2 or not root.index.keys() >= {"data", "trainer"}:
        return []
    if document.get_value(("trainer", "val_only")) is True:
        return [RecognisedConfig((), 60, "`trainer.val_only` trains nothing", "other")]
    return [RecognisedConfig((), 60, "`worker` and `data` are sections of EasyR1")]


def prepare(document: Document) -> None:
    """Make a YAML document use OmegaConf's scalar types."""
    if isinstance(document, YamlDocument):
        document.set_dialect(get_omegaconf_dialect())
