"""Parsers of a repository's own scripts that read a recipe: `TrlParser((Own, SFTConfig))`.

Sources: trl 0.9.6 to 0.12.2 `commands/cli_utils.py` and 0.13.0 to 1.16.0 `scripts/utils.py` (TrlParser: accepts keys
that are names of options, and `env`; `--config` precedes the file).
"""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import ParserOptions, read_parser_options


def is_unknown_everywhere(config: Config, name: str) -> bool:
    """Return whether none of the programs that read a recipe has an option `name`.

    False if no program is known, if some options of a program's parser are unknown, or if it skips unknown keys. `name`
    must not belong to a class of TRL.
    """
    parsers = config.compute_once(_find_parser_options)
    return bool(parsers) and not any(
        name in parser.own_names or parser.has_from_other_package("trl", name) for parser in parsers
    )


def _find_parser_options(config: Config) -> tuple[ParserOptions, ...]:
    """Return the options of the parsers that read a recipe.

    Empty if any parser's options are unknown, or if the repository has a copy of TRL.
    """
    parsers = []
    for program, option in config.evidence.programs if config.evidence.vocabulary is None else ():
        options = _read_recipe_options(program) if option == "--config" else None
        if options is None:
            return ()
        parsers.append(options)
    return tuple(parsers)


def _read_recipe_options(program: Document | None) -> ParserOptions | None:
    """Return the options of a program's parser, or None unless it reads a recipe and rejects unknown keys."""
    if not isinstance(program, PythonScript):
        return None
    parser_calls = program.find_calls(PARSERS[0])
    others = [keyword.arg for call in parser_calls for keyword in call.keywords if keyword.arg != "dataclass_types"]
    if (
        not parser_calls
        or others
        or any(len(call.args) > 1 for call in parser_calls)
        or not program.find_calls("parse_args_and_config")
    ):
        return None
    return read_parser_options(program)
