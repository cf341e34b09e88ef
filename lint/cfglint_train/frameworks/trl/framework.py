"""TRL: YAML recipes whose values become defaults of `TrlParser`, command lines with options, and Python scripts.

Sources: trl 0.9.2 to 1.16.0 (`scripts/`, `trainer/*_config.py`, `trainer/*_trainer.py`, `cli/`, `Requires-Dist`); for
the behavior of the Trainer and accelerate, see `hf_trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.hf_trainer.arguments import SECTION_FILES
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.infer import infer
from cfglint_train.frameworks.trl.keys import TrlKeys
from cfglint_train.frameworks.trl.lenses import LENSES
from cfglint_train.frameworks.trl.recognise import list_references, prepare
from cfglint_train.frameworks.trl.sequence import has_filled_packs

NEWEST: Final = "1.16.0"


def _parse_trailing(config: Config, words: list[str]) -> Mapping[Route, Any]:
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script import runs

        return runs.parse_trailing(config, words)
    from cfglint_train.frameworks.trl.commands import parse_trailing  # only needed if a script starts the recipe

    return parse_trailing(words)


def _list_recipes(config: Config) -> tuple[str, ...]:
    from cfglint_train.frameworks.trainer_script.runs import list_recipes  # few files are scripts

    return list_recipes(config)


def _is_recipe_option(script: Document, option: str) -> bool:
    from cfglint_train.frameworks.trainer_script.runs import is_recipe_option

    return is_recipe_option(script, option)


FRAMEWORK: Final = Framework(
    name="trl",
    default_release=NEWEST,
    lenses=LENSES,
    loader=HF_ARGPARSER,
    prepare=prepare,
    references=list_references,
    infer=infer,
    fill_auto=fill_auto,
    keys_type=TrlKeys,
    launch_interface=LaunchInterface(
        parse_trailing=_parse_trailing,
        list_recipes=_list_recipes,
        accepts_recipe=_is_recipe_option,
        companion_setting="deepspeed",
    ),
    traits=Traits(
        runs_trainer=True,
        strict_json=True,
        section_files=SECTION_FILES,
        fills_packs=has_filled_packs,
    ),
)
