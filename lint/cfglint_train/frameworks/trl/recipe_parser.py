"""What the parsers of a repository's own scripts make of a key of a recipe: `TrlParser((Own, SFTConfig))`.

Sources: trl 0.9.6 to 0.12.2 `commands/cli_utils.py` and 0.13.0 to 1.16.0 `scripts/utils.py` (TrlParser: a key is taken
that is the name of an option, and `env`; `--config` stands before the file).
"""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import Fields, fields_of_parser


def lacks(config: Config, name: str) -> bool:
    """Whether each program that is given a recipe hands it to a parser without an option of that name, and has no use
    for what its parser does not take. `name` is of no class of TRL's.
    """
    parsers = config.once(_parsers)
    return bool(parsers) and not any(name in one.own or one.has_beside("trl", name) for one in parsers)


def _parsers(config: Config) -> tuple[Fields, ...]:
    """What the parsers take to which a recipe is given; none where that of one is not known, or a copy of TRL's."""
    found = []
    for program, option in config.evidence.programs if config.evidence.vocabulary is None else ():
        fields = _of_recipe(program) if option == "--config" else None
        if fields is None:
            return ()
        found.append(fields)
    return tuple(found)


def _of_recipe(program: Document | None) -> Fields | None:
    """What a program's parser takes that reads a recipe, and is not asked to skip what it does not know."""
    if not isinstance(program, PythonScript):
        return None
    made = program.calls(PARSERS[0])
    others = [one.arg for call in made for one in call.keywords if one.arg != "dataclass_types"]
    if not made or others or any(len(call.args) > 1 for call in made) or not program.calls("parse_args_and_config"):
        return None
    return fields_of_parser(program)
