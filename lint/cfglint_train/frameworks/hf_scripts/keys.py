"""Keys of scripts of the HF Trainer: arguments of `TrainingArguments` and `Seq2SeqTrainingArguments`."""

from __future__ import annotations

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.keys import ArgumentKeys


class ScriptKeys(ArgumentKeys):
    """Key handling of transformers 4.30.0 to 5.24.0."""

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the class of arguments that the script creates."""
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = document.find_node(root)
        return node.entry if isinstance(node, ScriptSettings) else None

    def build_context(self, config: Config) -> Context:
        """Return the context, which only depends on the class of arguments."""
        return Context(entry=self.find_entry(config.document, config.root))
