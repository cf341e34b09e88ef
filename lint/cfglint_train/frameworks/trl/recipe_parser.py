"""What the parsers of a repository's own scripts make of a key of a recipe: `TrlParser((Own, SFTConfig))`.

Sources: trl 0.9.6 to 0.12.2 `commands/cli_utils.py` and 0.13.0 to 1.16.0 `scripts/utils.py` (TrlParser: a key is taken
that is the name of an option, and `env`; `--config` stands before the file).
"""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import ParserOptions, read_parser_options


def is_unknown_everywhere(config: Config, name: str) -> bool:
    """Whether each program that is given a recipe hands it to a parser without an option of that name, and has no use
    for what its parser does not take. `name` is of no class of TRL's.
    """
    parsers = config.compute_once(_find_parser_options)
    return bool(parsers) and not any(
        name in parser.own_names or parser.has_from_other_package("trl", name) for parser in parsers
    )


def _find_parser_options(config: Config) -> tuple[ParserOptions, ...]:
    """What the parsers take to which a recipe is given; none where that of one is not known, or a copy of TRL's."""
    parsers = []
    for program, option in config.evidence.programs if config.evidence.vocabulary is None else ():
        options = _read_recipe_options(program) if option == "--config" else None
        if options is None:
            return ()
        parsers.append(options)
    return tuple(parsers)


def _read_recipe_options(program: Document | None) -> ParserOptions | None:
    """What a program's parser takes that reads a recipe, and is not asked to skip what it does not know."""
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
