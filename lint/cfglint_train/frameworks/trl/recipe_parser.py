"""Programs of a repository that read a recipe: `TrlParser((Own, SFTConfig))`, and the trainer that they create.

Sources: trl 0.9.6 to 0.12.2 `commands/cli_utils.py` and 0.13.0 to 1.16.0 `scripts/utils.py` (TrlParser: accepts keys
that are names of options, and `env`; `--config` precedes the file).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cfglint_train.documents.document import Route
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import ParserOptions, read_file_options, read_parser_options
from cfglint_train.frameworks.trainer_script.trainer_calls import TrainerCall, find_trainer_call


class RecipeReader(Frozen):
    """The repository's programs that read a recipe."""

    names: tuple[str, ...]
    """File names of the programs."""
    options: ParserOptions
    """Options of their parsers; a key is unknown if no parser has it."""
    is_strict_at: Callable[[str], bool]
    """Predicate: the parsers reject unknown keys at a release of TRL."""

    def list_definitions(self) -> tuple[str, ...]:
        """Return the classes of TRL and transformers that the parsers fill."""
        return tuple(sorted({name for _, name in self.options.definitions}))

    def is_declared(self, route: Route) -> bool:
        """Return whether a class of the repository declares a setting."""
        return len(route) == 1 and route[0] in self.options.own_names

    def find_effect(self, release: str) -> str:
        """Return the effect of an unknown key: "error" or "dropped"."""
        return "error" if self.options.is_strict and self.is_strict_at(release) else "dropped"

    def describe(self) -> str:
        """Return the parser as messages name it."""
        return f"the parser of {' and '.join(f'`{name}`' for name in self.names)}"


def find_reader(config: Config) -> RecipeReader | None:
    """Return the programs that read a recipe, or None if any of them is unknown, or its parser's options are.

    None also if the repository has a copy of TRL, or if the file is not a recipe.
    """
    return config.compute_once(_find_reader)


def _find_reader(config: Config) -> RecipeReader | None:
    options, names, are_files = ParserOptions(), dict[str, None](), set[bool]()
    for program, option in config.evidence.programs if config.evidence.vocabulary is None else ():
        if not isinstance(program, PythonScript) or option not in ("", "--config"):
            return None
        read_options = _read_recipe_options(program) if option else read_file_options(program)
        if read_options is None:
            return None
        options |= read_options
        names[os.path.basename(program.path)] = None
        are_files.add(not option)
    return (
        RecipeReader(tuple(names), options, _is_strict_at if False in are_files else _is_always_strict)
        if names
        else None
    )


def _is_strict_at(release: str) -> bool:
    """Return whether `TrlParser` rejects unknown keys of a recipe unless the script configures it.

    Up to 0.9.4 and from 0.13 to 0.18, it skipped them.
    """
    key = parse_release(release)
    return parse_release("0.9.6") <= key < parse_release("0.13") or key >= parse_release("0.19")


def _is_always_strict(_: str) -> bool:
    return True


def _read_recipe_options(program: PythonScript) -> ParserOptions | None:
    """Return the options of a program's parser, or None unless it reads a recipe."""
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
