"""TRL: one YAML file, whose values become the defaults of HfArgumentParser (`TrlParser`), options alone, or a script.

Sources: trl 0.9.2 to 1.16.0 (`scripts/`, `trainer/*_config.py`, `trainer/*_trainer.py`, `cli/`, `Requires-Dist`); for
what the Trainer and accelerate do, see `hf_trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Framework, Launching, Traits
from cfglint_train.frameworks.hf_trainer.arguments import SECTION_FILES
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.infer import infer
from cfglint_train.frameworks.trl.keys import TrlKeys
from cfglint_train.frameworks.trl.lenses import LENSES
from cfglint_train.frameworks.trl.recognise import prepare, references
from cfglint_train.frameworks.trl.sequence import fills_packs

NEWEST: Final = "1.16.0"


def _trailing(config: Config, words: list[str]) -> Mapping[Route, Any]:
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trainer_script import runs

        return runs.trailing(config, words)
    from cfglint_train.frameworks.trl.commands import trailing  # only where a script starts the recipe

    return trailing(words)


def _recipes(config: Config) -> tuple[str, ...]:
    from cfglint_train.frameworks.trainer_script.runs import recipes  # few files are scripts

    return recipes(config)


def _takes_recipe(script: Document, option: str) -> bool:
    from cfglint_train.frameworks.trainer_script.runs import takes_recipe

    return takes_recipe(script, option)


FRAMEWORK: Final = Framework(
    name="trl",
    newest=NEWEST,
    lenses=LENSES,
    loader=HF_ARGPARSER,
    prepare=prepare,
    references=references,
    infer=infer,
    auto=fill_auto,
    keys_of=TrlKeys,
    launching=Launching(
        trailing=_trailing,
        recipes=_recipes,
        takes_recipe=_takes_recipe,
    ),
    traits=Traits(
        runs_trainer=True,
        strict_json=True,
        section_files=SECTION_FILES,
        fills_packs=fills_packs,
    ),
)
