"""OpenRLHF: the flags of every entry point, as its argument parser declares them."""

from __future__ import annotations

from typing import Final

from cfglint_schemas.readers.flags import read_parser
from cfglint_schemas.readers.source import Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey

_FOLDER: Final = "openrlhf/cli"


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release: one definition per module of `openrlhf.cli` that parses arguments."""
    definitions = {}
    for module in source.list_modules(_FOLDER):
        parser_flags = read_parser(module)
        keys = {flag.name: _accept_word(flag.key) for flag in parser_flags.flags}
        if keys:
            unknown = "kept" if parser_flags.may_have_more else "error"
            definitions[module.name.rpartition(".")[2]] = Definition(keys, unknown)
    if not definitions:
        raise UndecidedError(f"{package} {source.tree.release}: no entry point adds arguments")
    order = sorted(definitions, key=lambda name: (name != "train_ppo_ray", name))
    return ReleaseTable(definitions, {name: (name,) for name in order})


def _accept_word(key: TableKey) -> TableKey:
    """Return a flag's key. With `type=bool` it accepts any text, as `bool` does."""
    if key.schema.get("type") != "boolean" or key.schema.get("x-flag"):
        return key
    return key._replace(schema={**key.schema, "type": "string"})
