"""TRL: one YAML file, whose values become the defaults of HfArgumentParser (`TrlParser`), options alone, or a script.

Sources: trl 0.9.2 to 1.16.0 (`scripts/`, `trainer/*_config.py`, `trainer/*_trainer.py`, `cli/`, `Requires-Dist`); for
what the Trainer and accelerate do, see `hf_trainer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.framework import Framework
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

# The newest transformers on the day of each release, by the dates of the wheels; 0.12.2 asks for less than 4.47.
_TRANSFORMERS: Final = Since(
    (
        ("", "4.41.0"),
        ("0.9.6", "4.42.0"),
        ("0.10.1", "4.44.0"),
        ("0.11.2", "4.45.0"),
        ("0.12.0", "4.46.1"),
        ("0.13.0", "4.47.0"),
        ("0.14.0", "4.48.0"),
        ("0.15.1", "4.49.0"),
        ("0.16.0", "4.50.0"),
        ("0.17.0", "4.51.0"),
        ("0.18.0", "4.52.1"),
        ("0.19.1", "4.53.0"),
        ("0.20.0", "4.54.0"),
        ("0.21.0", "4.55.0"),
        ("0.22.0", "4.56.0"),
        ("0.23.0", "4.56.1"),
        ("0.24.0", "4.57.1"),
        ("0.27.2", "5.0.0"),
        ("0.28.0", "5.1.0"),
        ("0.29.0", "5.2.0"),
        ("0.29.1", "5.3.0"),
        ("1.0.0", "5.4.0"),
        ("1.1.0", "5.5.0"),
        ("1.3.0", "5.6.0"),
        ("1.4.0", "5.8.0"),
        ("1.5.0", "5.9.0"),
        ("1.6.0", "5.11.0"),
        ("1.7.0", "5.12.0"),
        ("1.7.1", "5.13.0"),
        ("1.9.0", "5.14.0"),
        ("1.10.0", "5.15.0"),
        ("1.11.0", "5.16.0"),
        ("1.13.0", "5.17.0"),
        ("1.14.2", "5.19.0"),
        ("1.16.0", "5.20.0"),
    )
)


def _newest_allowed(release: str) -> Mapping[str, str]:
    """Return the transformers that a release was made for: it allows any newer one."""
    return {"transformers": _TRANSFORMERS.at(release)}


def _trailing(config: Config, words: list[str]) -> Mapping[Route, Any]:
    if config.document.syntax == "python":
        from cfglint_train.frameworks.trl import script_runs

        return script_runs.trailing(config, words)
    from cfglint_train.frameworks.trl.commands import trailing  # only where a script starts the recipe

    return trailing(words)


def _recipes(config: Config) -> tuple[str, ...]:
    from cfglint_train.frameworks.trl.script_runs import recipes  # few files are scripts

    return recipes(config)


def _takes_recipe(script: Document, option: str) -> bool:
    from cfglint_train.frameworks.trl.script_runs import takes_recipe

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
    newest_allowed=_newest_allowed,
    trailing=_trailing,
    recipes=_recipes,
    takes_recipe=_takes_recipe,
    keys_of=TrlKeys,
    runs_trainer=True,
    strict_json=True,
    section_files=SECTION_FILES,
    fills_packs=fills_packs,
)
