"""Keys of HF Trainer scripts: the arguments of `TrainingArguments` and `Seq2SeqTrainingArguments`."""

from __future__ import annotations

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.keys import ArgumentKeys
from cfglint_train.frameworks.trl.settings import find_settings_reader


class ScriptKeys(ArgumentKeys):
    """Key handling for transformers 4.30.0 to 5.24.0."""

    def find_entry(self, document: Document, root: Route) -> str | None:
        """Return the vocabulary entry of the arguments class that the script uses, or None if `root` is not a run."""
        if document.syntax != "python":
            return None
        from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

        node = document.find_node(root)
        return node.entry if isinstance(node, ScriptSettings) else None

    def determine_effect(self, effect: str, route: Route, value: Any, config: Config, release: str) -> str:
        """Return the effect of an unknown key: "dropped" if the program that reads a settings file allows any."""
        reader = find_settings_reader(config)
        return effect if reader is None or effect != "error" or len(route) != 1 else reader.find_effect(release)

    def build_context(self, config: Config) -> Context:
        """Return the context: the arguments class of a script, or the classes that read a settings file."""
        if config.document.syntax == "python":
            return Context(entry=self.find_entry(config.document, config.root))
        reader = find_settings_reader(config)
        return Context(definitions=None if reader is None else reader.list_definitions())
