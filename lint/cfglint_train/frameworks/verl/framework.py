"""verl: reinforcement learning with FSDP and an inference engine on the same GPUs, and supervised training.

A configuration is a command with Hydra's words (`python -m verl.trainer.main_ppo a.b=c`), or a YAML file that a command
composes (`--config-path conf --config-name run`). Both are read as the same tree.

Sources: verl 0.3.0.post1 to 0.9.1 (`trainer/config/`, `trainer/ppo/`, `workers/`, `utils/config.py`).
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.loaders import HYDRA
from cfglint_train.frameworks.verl.batches import list_even_batches
from cfglint_train.frameworks.verl.infer import infer
from cfglint_train.frameworks.verl.keys import VerlKeys
from cfglint_train.frameworks.verl.lenses import LENSES, is_dynamic
from cfglint_train.frameworks.verl.recognise import prepare
from cfglint_train.frameworks.verl.settings import is_sft
from cfglint_train.frameworks.verl.words import parse_trailing

NEWEST: Final = "0.9.1"

FRAMEWORK: Final = Framework(
    name="verl",
    default_release=NEWEST,
    lenses=LENSES,
    loader=HYDRA,
    prepare=prepare,
    infer=infer,
    keys_type=VerlKeys,
    launch_interface=LaunchInterface(
        separates_launches=True,
        uses_all_launched_gpus=is_sft,
        parse_trailing=lambda _, words: parse_trailing(words),
    ),
    traits=Traits(
        refuses_duplicates_since="",
        # Micro batches of a fixed number of sequences hold their real lengths; a token budget is filled.
        fills_packs=lambda config: is_dynamic(config) is True,
        list_even_batches=list_even_batches,
    ),
)
