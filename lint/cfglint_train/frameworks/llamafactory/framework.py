"""LLaMA-Factory (v0): one YAML file, read by OmegaConf and passed to HfArgumentParser.

Sources: LLaMA-Factory 0.8.0 to 0.9.5 (`model/adapter.py`, `model/loader.py`, `model/patcher.py`, `model/model_utils/`,
`train/trainer_utils.py`, `train/*/workflow.py`, `Requires-Dist`); for the Trainer and accelerate, see `hf_trainer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.chat_templates import find_contradicted_template
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.hf_trainer.arguments import SECTION_FILES
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.llamafactory.infer import infer
from cfglint_train.frameworks.llamafactory.keys import LlamaFactoryKeys
from cfglint_train.frameworks.llamafactory.lenses import LENSES
from cfglint_train.frameworks.llamafactory.recognise import list_references, prepare
from cfglint_train.frameworks.loaders import PARSE_DICT

NEWEST: Final = "0.9.5"


def parse_settings(words: Iterable[str]) -> Mapping[Route, Any]:
    """Return the settings in `key=value` words as OmegaConf.from_cli reads them. Raise ValueError for other words."""
    from cfglint_train.frameworks.dotlist import parse_dotlist  # only needed if a flag passes settings

    return parse_dotlist(list(words))


def _find_dataset_file(config: Config) -> tuple[str, str] | None:
    """Return the path of `dataset_info.json` and its key, or None if the data is on the Hub or already tokenised.

    Sources: LLaMA-Factory 0.7.1 to 0.9.5 `data/parser.py` (get_dataset_list), `data/loader.py` (get_dataset).
    """
    folder = config.get("dataset_dir", default="data")
    is_remote = not isinstance(folder, str) or folder == "ONLINE" or folder.startswith("REMOTE:")
    if is_remote or config.get("tokenized_path") is not None:
        return None
    return os.path.join(folder, "dataset_info.json"), "dataset_dir"


def _parse_trailing(_: Config, words: list[str]) -> Mapping[Route, Any]:
    from cfglint_train.frameworks.llamafactory.options import parse_trailing  # only needed if a script starts the file

    return parse_trailing(words)


FRAMEWORK: Final = Framework(
    name="llamafactory",
    default_release=NEWEST,
    lenses=LENSES,
    loader=PARSE_DICT,
    prepare=prepare,
    references=list_references,
    infer=infer,
    fill_auto=fill_auto,
    keys_type=LlamaFactoryKeys,
    launch_interface=LaunchInterface(
        parse_settings=parse_settings,
        parse_trailing=_parse_trailing,
    ),
    traits=Traits(
        runs_trainer=True,
        suggest_template=find_contradicted_template,
        strict_json=True,
        section_files=SECTION_FILES,
        find_dataset_file=_find_dataset_file,
        # hparams/parser.py read_args: yaml.safe_load up to 0.9.3, OmegaConf.load from 0.9.4 on.
        refuses_duplicates_since="0.9.4",
    ),
)
