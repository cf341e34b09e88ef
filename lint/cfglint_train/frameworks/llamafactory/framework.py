"""LLaMA-Factory (v0): one YAML file, read by OmegaConf and handed to HfArgumentParser.

Sources: LLaMA-Factory 0.8.0 to 0.9.5 (`model/adapter.py`, `model/loader.py`, `model/patcher.py`,
`model/model_utils/`, `train/trainer_utils.py`, `train/*/workflow.py`, `Requires-Dist`); for what the Trainer and
accelerate do, see `hf_trainer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.chat_templates import contradicted
from cfglint_train.frameworks.framework import Framework, Launching, Traits
from cfglint_train.frameworks.hf_trainer.arguments import SECTION_FILES
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory.infer import infer
from cfglint_train.frameworks.llamafactory.keys import LlamaFactoryKeys
from cfglint_train.frameworks.llamafactory.lenses import LENSES
from cfglint_train.frameworks.llamafactory.recognise import prepare, references

NEWEST: Final = "0.9.5"


def settings(words: Iterable[str]) -> Mapping[Route, Any]:
    """`key=value` words, as OmegaConf.from_cli reads them. Raises ValueError for other words."""
    from cfglint_train.frameworks.dotlist import parse_dotlist  # only where a flag gives settings

    return parse_dotlist(list(words))


def _trailing(_: Config, words: list[str]) -> Mapping[Route, Any]:
    from cfglint_train.frameworks.llamafactory.options import trailing  # only where a script starts the file

    return trailing(words)


FRAMEWORK: Final = Framework(
    name="llamafactory",
    newest=NEWEST,
    lenses=LENSES,
    prepare=prepare,
    references=references,
    infer=infer,
    auto=fill_auto,
    keys_of=LlamaFactoryKeys,
    launching=Launching(
        settings=settings,
        trailing=_trailing,
    ),
    traits=Traits(
        runs_trainer=True,
        template_of=contradicted,
        strict_json=True,
        section_files=SECTION_FILES,
        # hparams/parser.py read_args: yaml.safe_load up to 0.9.3, OmegaConf.load from 0.9.4 on.
        refuses_duplicates="0.9.4",
    ),
)
