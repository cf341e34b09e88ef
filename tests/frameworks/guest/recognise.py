"""Recognition of Guest's files."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.frameworks.framework import RecognisedConfig


def recognise(document: Document) -> list[RecognisedConfig]:
    """Recognise a mapping that names its trainer."""
    return [RecognisedConfig((), 100, "trainer: guest")] if document.get_value(("trainer",)) == "guest" else []
