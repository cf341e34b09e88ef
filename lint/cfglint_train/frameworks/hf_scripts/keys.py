"""Keys of HF Trainer scripts: the arguments of `TrainingArguments` and `Seq2SeqTrainingArguments`."""

from __future__ import annotations

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.keys import ArgumentKeys


class ScriptKeys(ArgumentKeys):
    """Key handling for transformers 4.30.0 to 5.24.0."""

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the vocabulary entry of the arguments class that the script uses, or None if `root` is not a run."""
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = document.find_node(root)
        return node.entry if isinstance(node, ScriptSettings) else None

    def build_context(self, config: Config) -> Context:
        """Return the context, which depends only on the arguments class."""
        return Context(entry=self.find_entry(config.document, config.root))
