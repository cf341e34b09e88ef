"""Programs of a repository that read a recipe: `TrlParser((Own, SFTConfig))`, and the trainer that they create.

Sources: trl 0.9.6 to 0.12.2 `commands/cli_utils.py` and 0.13.0 to 1.16.0 `scripts/utils.py` (TrlParser: accepts keys
that are names of options, and `env`; `--config` precedes the file).
"""

from __future__ import annotations

import os

from cfglint_schemas.status import Context
from cfglint_train.documents.document import Document
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import ParserOptions, read_parser_options
from cfglint_train.frameworks.trainer_script.trainer_calls import TrainerCall, find_trainer_call


class RecipeReader(Frozen):
    """The repository's programs that read a recipe."""

    names: tuple[str, ...]
    """File names of the programs."""
    options: ParserOptions
    """Options of their parsers; a key is unknown if no parser has it."""

    def build_context(self) -> Context:
        """Return the context in which TRL's vocabulary has the keys of the parsers' classes and no others."""
        classes = ParserOptions(definitions=frozenset(("trl", name) for _, name in self.options.definitions))
        return classes.build_context("trl")

    def describe(self) -> str:
        """Return the parser as messages name it."""
        return f"the parser of {' and '.join(f'`{name}`' for name in self.names)}"


def find_reader(config: Config) -> RecipeReader | None:
    """Return the programs that read a recipe, or None if any of them is unknown, or its parser's options are.

    None also if the repository has a copy of TRL, or if the file is not a recipe.
    """
    return config.compute_once(_find_reader)


def _find_reader(config: Config) -> RecipeReader | None:
    options, names = ParserOptions(), dict[str, None]()
    for program, option in config.evidence.programs if config.evidence.vocabulary is None else ():
        read_options = _read_recipe_options(program) if option == "--config" else None
        if program is None or read_options is None:
            return None
        options |= read_options
        names[os.path.basename(program.path)] = None
    return RecipeReader(tuple(names), options) if names else None


def _read_recipe_options(program: Document | None) -> ParserOptions | None:
    """Return the options of a program's parser, or None unless it reads a recipe."""
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


def find_program_trainer(config: Config) -> TrainerCall | None:
    """Return the trainer that the programs that read a recipe create, or None if it is unknown or they differ."""
    return config.compute_once(_find_program_trainer)


def _find_program_trainer(config: Config) -> TrainerCall | None:
    calls = [
        find_trainer_call(program) if isinstance(program, PythonScript) else None
        for program, _ in config.evidence.programs
    ]
    first = calls[0] if calls else None
    return first if all(call is not None and first is not None and call.is_like(first) for call in calls) else None
