"""transformers: the training arguments that a script hands to its Trainer."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import Class, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, Table

_HOME: Final = "transformers.training_args"
_ARGUMENTS: Final = "TrainingArguments"
_SEQ2SEQ: Final = "Seq2SeqTrainingArguments"


def read(package: str, source: Source) -> Table:
    """The vocabulary of one release. Raises UndecidedError for an unexpected layout."""
    models = Models()
    keys = models.keys(_class(source, _HOME, _ARGUMENTS))
    further = models.keys(_class(source, f"{_HOME}_seq2seq", _SEQ2SEQ))
    definitions = {
        _ARGUMENTS: Definition(keys),
        _SEQ2SEQ: Definition({name: key for name, key in further.items() if name not in keys}),
    }
    entries = {"trainer": (_ARGUMENTS,), "seq2seq": (_ARGUMENTS, _SEQ2SEQ)}
    return Table({**definitions, **models.definitions()}, entries)


def _class(source: Source, home: str, name: str) -> Class:
    found = source.need(home).resolve(name)
    if not isinstance(found, Class):
        raise UndecidedError(f"transformers {source.tree.release}: {name} is not a class")
    return found
