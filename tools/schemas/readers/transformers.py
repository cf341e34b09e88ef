"""transformers: the training arguments that a script passes to its Trainer."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable

_HOME: Final = "transformers.training_args"
_ARGUMENTS: Final = "TrainingArguments"
_SEQ2SEQ: Final = "Seq2SeqTrainingArguments"


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    models = ModelReader()
    keys = models.read_keys(_resolve_class(source, _HOME, _ARGUMENTS))
    seq2seq_keys = models.read_keys(_resolve_class(source, f"{_HOME}_seq2seq", _SEQ2SEQ))
    definitions = {
        _ARGUMENTS: Definition(keys),
        _SEQ2SEQ: Definition({name: key for name, key in seq2seq_keys.items() if name not in keys}),
    }
    entries = {"trainer": (_ARGUMENTS,), "seq2seq": (_ARGUMENTS, _SEQ2SEQ)}
    return ReleaseTable({**definitions, **models.list_definitions()}, entries)


def _resolve_class(source: Source, module: str, name: str) -> Class:
    symbol = source.require_module(module).resolve_name(name)
    if not isinstance(symbol, Class):
        raise UndecidedError(f"transformers {source.tree.release}: {name} is not a class")
    return symbol
