"""The keys of scripts of the HF Trainer: arguments of `TrainingArguments` and `Seq2SeqTrainingArguments`."""

from __future__ import annotations

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.keys import ArgumentKeys


class ScriptKeys(ArgumentKeys):
    """transformers 4.30.0 to 5.24.0."""

    def entry(self, document: Document, root: Route) -> str | None:
        """The class of arguments that the script makes."""
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = document.node(root)
        return node.entry if isinstance(node, ScriptSettings) else None

    def context(self, config: Config) -> Context:
        """The class of arguments alone decides."""
        return Context(entry=self.entry(config.document, config.root))
