"""Python scripts that call the transformers Trainer with arguments that can be read from the source.

Scripts are read the way TRL scripts are (`trainer_script/reader.py`), with the same setting names and lenses.

Sources: transformers 4.30.0 to 5.24.0 (`training_args.py`), 4.57.1 and 5.8.0 (`trainer.py`, `loss/loss_utils.py`); for
the Trainer and accelerate, see `hf_trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.hf_scripts.infer import infer
from cfglint_train.frameworks.hf_scripts.keys import ScriptKeys
from cfglint_train.frameworks.hf_scripts.lenses import LENSES
from cfglint_train.frameworks.hf_scripts.recognise import is_passing_model, prepare
from cfglint_train.frameworks.hf_trainer.arguments import SECTION_FILES
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.recognise import list_references

NEWEST: Final = "5.24.0"


def _parse_trailing(config: Config, words: list[str]) -> Mapping[Route, Any]:
    from cfglint_train.frameworks.trainer_script.runs import parse_trailing

    return parse_trailing(config, words)


def _list_recipes(config: Config) -> tuple[str, ...]:
    from cfglint_train.frameworks.trainer_script.runs import (
        list_recipes,
    )  # imported late, because few files are scripts

    return list_recipes(config)


def _is_settings_file(program: Document, option: str) -> bool:
    from cfglint_train.frameworks.trainer_script.parser import read_file_options  # few files are settings of scripts

    options = read_file_options(program) if not option and isinstance(program, PythonScript) else None
    return options is not None and {package for package, _ in options.definitions} == {"transformers"}


FRAMEWORK: Final = Framework(
    name="hf_scripts",
    default_release=NEWEST,
    lenses=LENSES,
    loader=HF_ARGPARSER,
    prepare=prepare,
    references=list_references,
    infer=infer,
    fill_auto=fill_auto,
    keys_type=ScriptKeys,
    launch_interface=LaunchInterface(
        parse_trailing=_parse_trailing,
        list_recipes=_list_recipes,
        accepts_recipe=_is_settings_file,
        main_syntaxes=frozenset(("python",)),
        passes_model=is_passing_model,
        companion_setting="deepspeed",
    ),
    traits=Traits(
        runs_trainer=True,
        strict_json=True,
        section_files=SECTION_FILES,
        fills_packs=lambda _: False,
    ),
)
